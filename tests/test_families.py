"""The shipped families of hypotheses: sound as claims, and found in playbooks as people write them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent import library
from bisect_agent.claims import assess, predict
from bisect_agent.evidence import Table
from bisect_agent.model import (
    EnvFactor,
    Factor,
    FlagsFactor,
    Hypothesis,
    OptionFactor,
    Playbook,
    ScriptFactor,
    Setting,
    State,
)
from tests.strategies import FEW
from tests.worlds import Rule, World, play, playbook_of

FAMILIES = {name: library.family(name) for name in library.families()}
OTHER = "another"
"""A factor that plays no role of any family."""
NO_CAUSE = ("inner_graphs",)
"""Inductor makes graphs of compiled code only, so what needs them needs the compiler too."""


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> library.Family:
    """Each shipped family."""
    return FAMILIES[request.param]


# --- the data -----------------------------------------------------------------------------------------


def test_the_three_that_run_out_of_memory_have_a_family_each() -> None:
    """Their cures are opposite, so a failure must not lead to the family of another."""
    assert ["device-memory", "cache-memory", "host-memory"] == [
        name
        for topic in ("device-memory", "cache-memory", "host-memory")
        for name, family in FAMILIES.items()
        if topic in family.topics
    ]


def test_a_topic_of_a_family_is_one_that_failures_have(family: library.Family) -> None:
    """No verdict could lead to a family of another topic."""
    known = {signature.topic for signature in library.signatures()}
    assert family.topics
    assert set() == set(family.topics) - known - {"answer"}  # which no line of a log shows


def test_every_role_is_needed_by_a_claim(family: library.Family) -> None:
    """One that is only excluded could be accused of nothing."""
    assert set(family.roles) == {role for h in family.hypotheses for role in h.involves}


def test_a_name_or_setting_belongs_to_one_role(family: library.Family) -> None:
    """Also where it is spelt otherwise; in two roles it would be cast by accident."""
    names = [name.replace("-", "_").lower() for part in family.roles.values() for name in part.factors]
    names += [name for part in family.roles.values() for name in part.sets]
    assert [] == [name for name, count in Counter(names).items() if count > 1]


def test_what_a_role_sets_is_an_option_or_a_variable(family: library.Family) -> None:
    """A name without its dashes would never be met."""
    names = [name for part in family.roles.values() for name in part.sets]
    assert [] == [name for name in names if not re2.fullmatch(r"--?[a-zA-Z][\w.-]*|[A-Z][A-Z0-9_]*", name)]


# --- the claims ---------------------------------------------------------------------------------------


def test_no_claim_contradicts_itself(family: library.Family) -> None:
    """What it needs and what it does not need are different roles."""
    assert [] == [h.id for h in family.hypotheses if set(h.involves) & set(h.excludes)]


def test_no_two_claims_say_the_same(family: library.Family) -> None:
    """The trials could never tell them apart."""
    counts = Counter((frozenset(h.involves), frozenset(h.excludes)) for h in family.hypotheses)
    assert [] == [claim for claim, count in counts.items() if count > 1]


def test_a_family_can_be_the_wrong_one(family: library.Family) -> None:
    """One claim says that none of the roles is needed."""
    nothing = [h.id for h in family.hypotheses if not h.involves and set(h.excludes) == set(family.roles)]
    assert 1 == len(nothing)


def true_of(claim: library.FamilyHypothesis | Hypothesis, cause: Sequence[str]) -> bool:
    """Whether a claim is true of a cause."""
    return set(claim.involves) <= set(cause) and not set(claim.excludes) & set(cause)


def small_causes(family: library.Family) -> list[tuple[str, ...]]:
    """Every cause of up to two roles."""
    return [cause for size in range(3) for cause in combinations(family.roles, size)]


def test_a_claim_is_true_of_every_small_cause(family: library.Family) -> None:
    """Whatever the trials find, some sentence fits it."""
    possible = [cause for cause in small_causes(family) if cause != NO_CAUSE]
    assert [] == [c for c in possible if not any(true_of(h, c) for h in family.hypotheses)]


def playbook_for(family: library.Family) -> Playbook:
    """A playbook in which each role is a factor of its own, and all are set otherwise in `bad`."""
    names = (*family.roles, OTHER)
    resolved = family.resolve({role: role for role in family.roles})
    return playbook_of(
        dict.fromkeys(names, ("fine", "broken")), dict.fromkeys(names, "broken"), hypotheses=resolved
    )


def world_of(cause: Sequence[str]) -> World:
    """A stack that fails where all of these are set as in `bad`."""
    return World((Rule(frozenset(Setting(factor=name, level="broken") for name in cause)),))


def wrong(claim: Hypothesis, playbook: Playbook, world: World, changed: Sequence[str]) -> bool:
    """Whether a claim predicts wrongly what `bad` does with some factors set as in `good`."""
    there = playbook.bad.replace(Setting(factor=name, level="fine") for name in changed)
    happens = "fails" if world.symptom(there) else "passes"
    return predict(claim, playbook, there) not in {happens, "nothing"}


def test_a_claim_is_true_where_it_predicts_every_single_change_right(family: library.Family) -> None:
    """And a false one is caught by one change at least."""
    playbook = playbook_for(family)
    for cause in [roles or (OTHER,) for roles in small_causes(family)]:
        world = world_of(cause)
        right = [
            h.id
            for h in playbook.hypotheses
            if not any(wrong(h, playbook, world, [f.name]) for f in playbook.factors)
        ]
        assert [h.id for h in playbook.hypotheses if true_of(h, cause)] == right


@given(st.sampled_from(list(FAMILIES.values())), st.data())
def test_a_claim_that_is_true_predicts_nothing_wrong(family: library.Family, data: st.DataObject) -> None:
    """However many settings are changed, and however many the cause has."""
    playbook = playbook_for(family)
    some = st.lists(st.sampled_from([f.name for f in playbook.factors]), min_size=1, unique=True)
    cause, changed = data.draw(some), data.draw(some)
    claims = [h for h in playbook.hypotheses if true_of(h, cause)]
    assert [] == [h.id for h in claims if wrong(h, playbook, world_of(cause), changed)]


@FEW
@given(st.sampled_from(list(FAMILIES.values())), st.data())
def test_a_search_supports_what_is_true_and_refutes_the_rest(
    family: library.Family, data: st.DataObject
) -> None:
    """With every role played and every level witnessed, no claim stays open."""
    playbook = playbook_for(family)
    cause = data.draw(st.lists(st.sampled_from([*family.roles, OTHER]), min_size=1, max_size=2, unique=True))
    table = Table(playbook, play(playbook, world_of(cause)).settled)
    truth = {h.id: State.SUPPORTED if true_of(h, cause) else State.REFUTED for h in playbook.hypotheses}
    assert truth == {h.id: assess(h, table).state for h in playbook.hypotheses}


# --- lines that contradict ----------------------------------------------------------------------------

SGLANG = "[2026-11-29 15:11:19] server_args={'model_path': '/m', %s, 'enable_multimodal': None}"
SGLANG_BEFORE = "[2026-11-29 15:02:11] server_args=ServerArgs(model_path='/m', %s, enable_multimodal=None)"
VLLM = "INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/m', %s, tokenizer='/m'"
NO_GRAPHS = (
    SGLANG % "'disable_cuda_graph': True",
    SGLANG_BEFORE % "disable_cuda_graph=True",
    VLLM % "enforce_eager=True",
)
PERHAPS_GRAPHS = (
    SGLANG % "'disable_cuda_graph': False, 'disable_cuda_graph_padding': True",
    SGLANG_BEFORE % "disable_decode_cuda_graph=True",
    VLLM % "enforce_eager=False",
    "INFO 11-29 15:21:48 [vllm.py:2005] Cudagraph is disabled under eager mode",
    "[2026-11-29 14:50:02] Cuda graph is disabled because of using torch native attention backend",
    "3. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)",
)
NO_DRAFT = (
    SGLANG % "'speculative_algorithm': None",
    SGLANG_BEFORE % "speculative_algorithm=None",
    VLLM % "speculative_config=None",
)
PERHAPS_A_DRAFT = (
    SGLANG % "'speculative_algorithm': 'EAGLE', 'speculative_draft_attention_backend': None",
    SGLANG_BEFORE % "speculative_algorithm='NGRAM'",
    VLLM % "speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=2)",
)
NO_KERNEL = (
    "[custom_all_reduce.py:189] Custom allreduce is disabled because of missing custom allreduce library",
    "[custom_all_reduce.py:212] Custom allreduce is disabled due to an unsupported world size: 3.",
)
PERHAPS_A_KERNEL = (
    "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
    "Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.",
    "Custom quick allreduce is disabled because of missing custom quick allreduce library",
)
LINES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "double-capture": (
        ["torch._inductor.config.triton.cudagraphs = False"],
        ["skipping cudagraphs due to mutated inputs (2 instances)."],
    ),
    "graph-kernel": (NO_GRAPHS, PERHAPS_GRAPHS),
    "graph-kernel-cold": (NO_GRAPHS, PERHAPS_GRAPHS),
    "graph-side-stream": (NO_GRAPHS, PERHAPS_GRAPHS),
    "attention-in-graph": (NO_GRAPHS, PERHAPS_GRAPHS),
    "moe-in-graph": (NO_GRAPHS, PERHAPS_GRAPHS),
    "moe-dispatch-in-graph": (NO_GRAPHS, PERHAPS_GRAPHS),
    "device-memory-reserve-and-graphs": (
        NO_GRAPHS,
        [*PERHAPS_GRAPHS, "Graph capturing finished in 21 secs, took 1.77 GiB"],
    ),
    "speculation-in-graph": ([*NO_GRAPHS, *NO_DRAFT], PERHAPS_A_DRAFT),
    "speculation-draft-attention": (NO_DRAFT, PERHAPS_A_DRAFT),
    "speculation-draft-experts": (NO_DRAFT, PERHAPS_A_DRAFT),
    "speculation-draft-graph": (NO_DRAFT, PERHAPS_A_DRAFT),
    "collectives-custom": (NO_KERNEL, PERHAPS_A_KERNEL),
    "collectives-custom-shares-memory": (NO_KERNEL, PERHAPS_A_KERNEL),
    "collectives-custom-in-graph": (NO_KERNEL, PERHAPS_A_KERNEL),
    "hang-all-reduce-in-capture": (NO_KERNEL, PERHAPS_A_KERNEL),
    "autotune-experts": (
        [
            SGLANG % "'disable_flashinfer_autotune': True",
            "INFO 11-29 15:21:53 [kernel_warmup.py:270] Skipping FlashInfer autotune because it is disabled.",
        ],
        [
            SGLANG % "'disable_flashinfer_autotune': False",
            "FlashInfer extend autotune skipped: not enough free memory for the dummy batch",
            "Runtime error during autotuning: misaligned address. Ignoring this choice.",
        ],
    ),
}
"""For each claim that a line can contradict: lines that do, and lines that only seem to."""

CONTRADICTED = {h.id: h for f in FAMILIES.values() for h in f.hypotheses if h.contradicted_by}


def contradicting(claim: str, lines: Sequence[str]) -> list[str]:
    """Those of some lines that contradict a claim."""
    return [line for line in lines if any(re2.search(p, line) for p in CONTRADICTED[claim].contradicted_by)]


def test_every_claim_that_a_line_can_contradict_is_shown_such_lines() -> None:
    """A pattern that was never seen to match is a guess."""
    assert set(LINES) == set(CONTRADICTED)


@pytest.mark.parametrize("claim", LINES)
def test_a_line_contradicts_where_it_states_the_setting_itself(claim: str) -> None:
    """And not where it speaks of one graph, one group of ranks or one candidate, or only advises."""
    stated, unsure = LINES[claim]
    assert (list(stated), []) == (contradicting(claim, stated), contradicting(claim, unsure))


@pytest.mark.parametrize("claim", LINES)
def test_every_pattern_that_contradicts_was_seen_to_match(claim: str) -> None:
    """One among several that matches nothing is not noticed otherwise."""
    patterns = CONTRADICTED[claim].contradicted_by
    assert [] == [p for p in patterns if not any(re2.search(p, line) for line in LINES[claim][0])]


# --- who plays which role -----------------------------------------------------------------------------


def env(name: str, variable: str) -> Factor:
    """A factor that sets a variable."""
    return EnvFactor(name=name, env=variable, levels={"default": None, "off": "0"})


def option(name: str, of: str, *levels: str) -> Factor:
    """A factor that sets an option, or leaves it out."""
    return OptionFactor(name=name, option=of, levels={"default": None, **{level: level for level in levels}})


def flags(name: str, *on: str, off: Sequence[str] = ()) -> Factor:
    """A factor that adds arguments."""
    return FlagsFactor(name=name, levels={"off": tuple(off), "on": on})


PLAYBOOKS: Mapping[str, str] = {
    "torch-compile-capture": """
        compile             tc                   --enable-torch-compile --torch-compile-max-bs 64
        kernel              kernel               MY_MMA_KERNEL
        inner_graphs        trees                TORCHINDUCTOR_CUDAGRAPHS
        capture             Cuda-Graph           --disable-cuda-graph
        -                   eager                --enforce-eager
        """,
    "host-compiler": """
        compile             tc                   --enable-torch-compile
        kernel              kernel               MY_MMA_KERNEL
        toolchain           which                CXX
        """,
    "graph-capture": """
        capture             decode               --cuda-graph-backend-decode=disabled
        prefill_graph       piecewise            --disable-prefill-cuda-graph
        eager               eager                --enforce-eager
        kernel              attn                 --attention-backend triton
        warm_up             warmup               --no-warm-up
        batches             max-bs               --cuda-graph-max-bs-decode 64
        padding             pad                  --disable-cuda-graph-padding
        overlap             scheduler            --disable-overlap-schedule
        """,
    "device-memory": """
        reserve             util                 --gpu-memory-utilization 0.95
        capture             plain                --enforce-eager
        batches             sizes                -cc.max_cudagraph_capture_size=128
        requests            max_num_seqs         --max-num-seqs 256
        tokens              batched              --max-num-batched-tokens 8192
        context             len                  --max-model-len 8192
        allocator           alloc                PYTORCH_CUDA_ALLOC_CONF
        -                   parallel             --tensor-parallel-size 8
        """,
    "cache-memory": """
        pool                mem_fraction         --mem-fraction-static 0.9
        context             long                 --context-length 8192
        requests            running              --max-running-requests 64
        admission           chunk                --chunked-prefill-size -1
        prefix_cache        reuse                --disable-radix-cache
        cache_type          kv                   --kv-cache-dtype fp8_e4m3
        page                pages                --page-size 64
        speculation         mtp                  --speculative-algorithm EAGLE --speculative-num-steps 3
        """,
    "host-memory": """
        host_cache          tiers                --enable-hierarchical-cache --hicache-size 100
        weights_offload     offload              --cpu-offload-gb 16
        loading             no-map               --weight-loader-disable-mmap
        processes           tp                   --tensor-parallel-size 8
        compile_jobs        builders             MAX_JOBS
        reserve             share                --gpu-memory-utilization 0.5
        """,
    "attention-backend": """
        attention           attention            --attention-backend fa3
        prefill_attention   prompts              --prefill-attention-backend fa3
        decode_attention    steps                --decode-attention-backend flashmla
        vision_attention    vit                  --mm-attention-backend sdpa
        capture             recorded             --compilation-config '{"cudagraph_mode": "NONE"}'
        cache_type          kv_dtype             --kv-cache-dtype fp8
        context             max_model_len        --max-model-len 131072
        page                pages                --block-size 64
        """,
    "moe-backend": """
        moe                 runner               --moe-runner-backend triton
        dispatch            low_latency          --deepep-mode low_latency
        gemm                dense                --fp8-gemm-backend triton
        deep_gemm           dg                   SGLANG_ENABLE_JIT_DEEPGEMM
        quantization        quant                --quantization fp8
        expert_parallel     spread               --ep-size 8
        capture             prefill_graph        --disable-prefill-cuda-graph
        """,
    "collectives": """
        custom_all_reduce   car                  --disable-custom-all-reduce
        fusion              fused_sums           -cc.pass_config.fuse_allreduce_rms=false
        symmetric_memory    symm                 VLLM_ALLREDUCE_USE_SYMM_MEM
        p2p                 p2p                  NCCL_P2P_DISABLE
        shm                 host_shm             NCCL_SHM_DISABLE
        nvls                sharp                NCCL_NVLS_ENABLE
        cumem               vmm                  NCCL_CUMEM_ENABLE
        network             interface            NCCL_SOCKET_IFNAME
        nccl                library              VLLM_NCCL_SO_PATH
        allocator           expandable-segments  PYTORCH_CUDA_ALLOC_CONF
        capture             cudagraph_mode       -cc.cudagraph_mode=NONE
        """,
    "autotune": """
        autotune            fi                   --no-enable-flashinfer-autotune
        choices             picks                VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR
        inductor_autotune   max_autotune         TORCHINDUCTOR_MAX_AUTOTUNE
        subprocess          isolated             TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC
        moe                 moe_backend          --moe-backend triton
        capture             plain                --enforce-eager
        """,
    "compile-cache": """
        cache               root                 VLLM_CACHE_ROOT
        kernel_cache        triton-cache         TRITON_CACHE_DIR
        jit_cache           built                FLASHINFER_WORKSPACE_BASE
        compile             no_compile           -cc.mode=0
        workers             threads              TORCHINDUCTOR_COMPILE_THREADS
        """,
    "architecture": """
        attention           attention_backend    --attention-backend triton
        moe                 runner               --moe-runner-backend cutlass
        gemm                fp4                  --fp4-gemm-backend cutlass
        quantization        stored_as            --quantization modelopt_fp4
        kernel              tile                 MY_TILE
        sampler             draws                --sampling-backend pytorch
        assembler           assemble_with        TRITON_PTXAS_PATH
        targets             arches               TORCH_CUDA_ARCH_LIST
        """,
    "speculative-decoding": """
        speculation         drafting             -sc '{"method": "mtp", "num_speculative_tokens": 3}'
        draft_length        steps                --speculative-num-steps 3
        draft_attention     draft_attention      --speculative-draft-attention-backend triton
        draft_moe           their_moe            --speculative-moe-runner-backend triton
        draft_graph         extend               SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH
        capture             graph                --disable-cuda-graph
        padding             pad                  --disable-cuda-graph-padding
        overlap             Overlap              --disable-overlap-schedule
        prefix_cache        prefixes             --no-enable-prefix-caching
        """,
    "start-hang": """
        p2p                 nvlink_only          NCCL_P2P_LEVEL
        shm                 shm                  NCCL_SHM_DISABLE
        nccl_memory         cumem                NCCL_CUMEM_ENABLE
        network             verbs                NCCL_IB_DISABLE
        custom_all_reduce   ar                   --disable-custom-all-reduce
        capture             enforce_eager        --enforce-eager
        warm_up             warm                 SGLANG_JIT_DEEPGEMM_PRECOMPILE
        build_cache         builds               FLASHINFER_WORKSPACE_BASE
        """,
}
"""For each family a playbook's factors: the role, what a person calls the factor, and what it sets."""


def read(text: str) -> tuple[list[Factor], dict[str, str]]:
    """The factors of such a playbook, and who plays which role."""
    rows = [shlex.split(line) for line in text.strip().splitlines()]
    factors = [
        flags(name, *arguments) if arguments[0].startswith("-") else env(name, arguments[0])
        for _, name, *arguments in rows
    ]
    return factors, {role: name for role, name, *_ in rows if role != "-"}


def test_every_family_has_a_playbook_that_finds_it() -> None:
    """And no family is lost, which would leave its failures without a hypothesis."""
    assert set(PLAYBOOKS) == set(FAMILIES)


def test_a_playbook_s_factors_find_their_roles(family: library.Family) -> None:
    """Some by their names, some by what they set."""
    factors, expected = read(PLAYBOOKS[family.family])
    assert expected == family.cast(factors, {})
    assert set(family.roles) == set(expected)


CAPTURE = library.Family.model_validate(
    {
        "family": "f",
        "title": "t",
        "roles": {
            "compile": {"factors": ["compile"], "sets": ["--compile", "-cc.mode"], "means": "m"},
            "capture": {"factors": ["cuda_graph"], "sets": ["--eager", "GRAPHS", "-cc.graphs"], "means": "m"},
            "draft": {"factors": ["draft"], "sets": ["--draft"], "means": "m"},
            "length": {"factors": ["length"], "sets": ["--draft.length"], "means": "m"},
        },
        "hypotheses": [],
    }
)


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        pytest.param([env("Cuda-Graph", "X")], {"capture": "Cuda-Graph"}, id="spelt otherwise"),
        pytest.param(
            [flags("a", "--eager"), env("cuda_graph", "X")], {"capture": "cuda_graph"}, id="by name first"
        ),
        pytest.param([flags("b", "--eager"), env("a", "GRAPHS")], {"capture": "b"}, id="the first of two"),
        pytest.param([env("compile", "GRAPHS")], {"compile": "compile"}, id="one role each"),
        pytest.param([flags("both", "--compile", off=["--eager"])], {}, id="two roles are none"),
        pytest.param([flags("a", "--x", "1", "--compile")], {"compile": "a"}, id="beside what nobody knows"),
        pytest.param(
            [flags("a", "--compile", "--eager=1", off=["--compile", "--eager=0"])],
            {"capture": "a"},
            id="what stays the same is not set",
        ),
        pytest.param([option("a", "-cc.mode", "0", "3")], {"compile": "a"}, id="a key of an option"),
        pytest.param([flags("a", "-cc", '{"graphs": "NONE"}')], {"capture": "a"}, id="a key in JSON"),
        pytest.param([option("a", "-cc", '{"mode": 0, "graphs": 0}')], {}, id="keys of two roles"),
        pytest.param(
            [option("a", "--draft", '{"length": 2}')], {"draft": "a"}, id="a whole option before its keys"
        ),
        pytest.param(
            [flags("a", "--draft", '{"length": 2}', off=["--draft", '{"length": 3}'])],
            {"length": "a"},
            id="the key that differs",
        ),
        pytest.param([option("a", "-cc", "{mode", "{")], {}, id="no JSON after all"),
        pytest.param([option("a", "-cc", '{"mode": ' * 5000)], {}, id="no JSON that anybody means"),
        pytest.param([flags("a", "stray", "--eager", "-1")], {"capture": "a"}, id="values are no options"),
        pytest.param(
            [ScriptFactor(name="a", levels={"x": "--eager", "y": ""}), "compile"],
            {"compile": "compile"},
            id="a script and a mere name",
        ),
    ],
)
def test_a_factor_plays_what_it_is_called_or_else_what_it_sets(
    factors: Sequence[Factor | str], expected: Mapping[str, str]
) -> None:
    """Names first; a factor that sets things of two roles would accuse both."""
    assert dict(expected) == CAPTURE.cast(factors, {})


def test_a_factor_given_to_a_role_does_not_play_what_it_sets() -> None:
    """The person's own word stands."""
    assert {"draft": "a", "capture": "b"} == CAPTURE.cast(
        [flags("a", "--eager"), flags("b", "--eager")], {"draft": "a"}
    )


@st.composite
def castings(draw: st.DrawFn) -> tuple[library.Family, list[Factor], dict[str, str]]:
    """A family, factors whose names and variables are drawn from its roles, and roles given by hand."""
    family = draw(st.sampled_from(list(FAMILIES.values())))
    called = st.sampled_from([name for part in family.roles.values() for name in part.factors])
    set_by = st.sampled_from([name for part in family.roles.values() for name in part.sets])
    names = draw(st.lists(called | st.sampled_from(["one", "two", "three"]), unique=True, min_size=1))
    factors = [draw(st.builds(option, st.just(name), set_by, st.just("x"))) for name in names]
    given_roles = draw(st.lists(st.sampled_from(list(family.roles)), unique=True, max_size=2))
    return family, factors, dict(zip(given_roles, draw(st.permutations(names)), strict=False))


@given(castings())
def test_no_factor_plays_two_roles(case: tuple[library.Family, list[Factor], dict[str, str]]) -> None:
    """Players are of the playbook, what is given stands, and nobody idle is called as a free role."""
    family, factors, by_hand = case
    cast = family.cast(factors, by_hand)
    idle = [f.name for f in factors if f.name not in cast.values()]
    free = [part for role, part in family.roles.items() if role not in cast]
    assert len(cast) == len(set(cast.values()))
    assert set(cast) <= set(family.roles)
    assert set(cast.values()) <= {f.name for f in factors}
    assert by_hand.items() <= cast.items()
    assert [] == [name for name in idle if any(part.is_called(name) for part in free)]
