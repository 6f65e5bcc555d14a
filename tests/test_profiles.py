"""The shipped profiles: against recorded logs, against what stacks print of their arguments, as data."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent import library, playbook, profiles
from bisect_agent.errors import PlaybookError, UsageError
from bisect_agent.model import (
    EnvFactor,
    Factor,
    FlagsFactor,
    Match,
    MatchKind,
    OptionFactor,
    Role,
    Shown,
)
from bisect_agent.signatures import Scanner, Watch, check_pattern
from bisect_agent.target.around import SHARED_MEMORY

SAMPLES = Path(__file__).parents[1] / "logs" / "samples"
LOGS = sorted([*SAMPLES.glob("**/*.log"), *SAMPLES.glob("**/*.log.gz")])
PROFILES = profiles.names()
OPTIONAL = {"autotune", "capture", "profile", "compile", "graph-profile"}
"""Phases that a start need not have: nothing to tune, to compile, or to capture."""


def content(log: Path) -> str:
    """A recorded log."""
    data = log.read_bytes()
    return (gzip.decompress(data) if log.suffix == ".gz" else data).decode(errors="replace")


def stack_of(log: Path) -> str:
    """The profile that fits a recorded log."""
    return "vllm" if log.name.startswith("vllm") else "sglang"


def marks(profile: str, text: str) -> list[Match]:
    """Every phase, ready line and progress that a profile sees in a log."""
    observe = profiles.load(profile).observe
    scanner = Scanner(
        [
            *(Watch(MatchKind.PHASE, p.name, p.begin) for p in observe.phases),
            *(Watch(MatchKind.READY, "ready", r) for r in [observe.ready_log] if r),
            *(
                Watch(MatchKind.PROGRESS, phase.name, phase.progress, Role.PROGRESS)
                for phase in observe.phases
                if phase.progress
            ),
        ]
    )
    return [*scanner.feed(text.encode()), *scanner.finish()]


def phases(profile: str, text: str) -> list[str]:
    """The phases of a log as they are first met."""
    return list(dict.fromkeys(m.id for m in marks(profile, text) if m.kind is MatchKind.PHASE))


def progress(profile: str, line: str) -> set[str]:
    """The phases in which a line is progress."""
    return {m.id for m in marks(profile, line) if m.kind is MatchKind.PROGRESS}


def answers(text: str) -> bool:
    """Whether the server of a log answered a request of somebody else's."""
    return '"POST /generate HTTP/1.1" 200' in text or '"POST /v1/completions HTTP/1.1" 200' in text


# --- the files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_a_shipped_profile_is_called_like_its_file_and_names_what_is_shipped(name: str) -> None:
    """Its families are there, its cache folders are different ones and hold no weights."""
    loaded = profiles.load(name)
    folders = list(loaded.profile.caches.values())
    assert name == loaded.profile.name
    assert set() == set(loaded.families) - set(library.families())
    assert sorted(set(folders)) == sorted(folders)
    assert [] == [variable for variable in loaded.profile.caches if variable.startswith("HF_")]


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_stack_leaves_is_named_closely(name: str) -> None:
    """Shared memory and locks of its own; no pattern could stand for another program's."""
    leaves = profiles.load(name).profile.leaves
    assert f"{SHARED_MEMORY}psm_*" in leaves
    assert [] == [
        pattern
        for pattern in leaves
        if not re2.fullmatch(rf"{SHARED_MEMORY}[\w.-]{{3,}}\*[\w.]*|~/\.cache/\w+/\*/\*/lock", pattern)
    ]


def test_a_profile_that_is_not_there_is_refused_with_the_names_of_the_others() -> None:
    """A person reads what to write."""
    with pytest.raises(UsageError, match="no profile `sg`") as refused:
        profiles.load("sg")
    assert refused.value.remedy == f"one of: {', '.join(PROFILES)}"


@pytest.mark.parametrize(
    ("was", "becomes", "found"),
    [
        ("title: a job", "titel: a job", "unknown key `titel`"),
        ("begin: a", "begin: (", "not a pattern"),
        ("start: 1h", "begin: 1h", "unknown key `limits.begin`"),
        ("kind: job", "kind: server", "a server needs `observe.ready`"),
    ],
)
def test_a_mistake_in_a_profile_is_refused_at_once(was: str, becomes: str, found: str) -> None:
    """It is read as a playbook is, so its mistakes are found as a playbook's are."""
    text = (
        "profile: p\ntitle: a job\nkind: job\nobserve: {phases: [{name: a, begin: a}]}\n"
        "limits: {start: 1h}\nhypotheses: [start-hang]\n"
    )
    assert profiles.read(text, "p.yaml").limits == {"start": 3600.0}
    with pytest.raises(PlaybookError, match=found):
        profiles.read(text.replace(was, becomes), "p.yaml")


@pytest.mark.parametrize("name", PROFILES)
def test_a_playbook_of_ten_lines_is_enough(name: str, tmp_path: Path) -> None:
    """What it does not say, the profile does."""
    file = tmp_path / "playbook.yaml"
    file.write_text(
        f"playbook: 1\n"
        f"title: it fails when it compiles\n"
        f"target: {{host: local, ports: [30000]}}\n"
        f"profile: {name}\n"
        f"launch: |\n"
        f'  exec python3 program.py --port 30000 "$@"\n'
        f"factors:\n"
        f"  compile: {{flags: {{off: [], on: [--enable-torch-compile]}}}}\n"
        f"bad: {{compile: on}}\n"
    )
    file.chmod(0o600)
    loaded, made = profiles.load(name), playbook.load(file, ours={"HOME": "/home/me"})
    assert loaded.observe == made.observe
    assert (loaded.kind, loaded.profile) == (made.kind, made.profile)


# --- logs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", LOGS, ids=[log.name for log in LOGS])
def test_no_log_goes_back_to_an_earlier_phase(log: Path) -> None:
    """A phase is entered once, and none after a later one: the order must be that of every version."""
    order = [p.name for p in profiles.load(stack_of(log)).observe.phases]
    met = [m.id for m in marks(stack_of(log), content(log)) if m.kind is MatchKind.PHASE]
    assert sorted(met, key=order.index) == met


GOOD = [log for log in LOGS if answers(content(log))]


@pytest.mark.parametrize("log", GOOD, ids=[log.name for log in GOOD])
def test_a_good_start_passes_every_phase_and_is_ready_in_the_last(log: Path) -> None:
    """The ready line begins the phase of serving."""
    profile, text = stack_of(log), content(log)
    named = {p.name for p in profiles.load(profile).observe.phases}
    met = phases(profile, text)
    assert named - OPTIONAL <= set(met)
    assert met[-1] == "serving"
    assert [m.line for m in marks(profile, text) if m.kind is MatchKind.READY] == [
        m.line for m in marks(profile, text) if m.id == "serving"
    ]


def test_good_starts_of_both_stacks_are_among_the_samples() -> None:
    """Otherwise the test before shows nothing."""
    assert {stack_of(log) for log in GOOD} == {"sglang", "vllm"}


@pytest.mark.parametrize(
    ("log", "phase"),
    [
        ("sglang-side-stream.log", "capture"),
        ("sglang-autotune.log", "capture"),
        ("sglang-double-capture.log", "capture"),
        ("sglang-no-compiler.log", "capture"),
        ("sglang-out-of-memory.log", "cache"),
        ("sglang-scheduler-killed.log", "cache"),
        ("sglang-port-taken.log", "listen"),
        ("vllm-attention-unsupported.log", "serving"),
        ("cpu/cpu1.log.gz", "load"),
    ],
)
def test_a_failed_start_ends_in_the_phase_that_failed(log: str, phase: str) -> None:
    """The last phase of its log."""
    file = SAMPLES / log
    assert phases(stack_of(file), content(file))[-1] == phase


def test_a_start_that_was_refused_has_no_phase() -> None:
    """Its arguments were never printed."""
    assert phases("sglang", content(SAMPLES / "sglang-no-model.log")) == []


@pytest.mark.parametrize(
    ("profile", "line", "phase"),
    [
        ("sglang", "[2025-01-01 00:00:00 TP0] Init torch distributed begin.", "distributed"),
        ("sglang", "[2026-01-01 00:00:00 TP7] Init parallel begin.", "distributed"),
        ("sglang", "[2025-01-01 00:00:00 TP0] Load weight begin. avail mem=78.56 GB", "load"),
        (
            "sglang",
            "[2025-01-01 00:00:00 TP0] Capture cuda graph begin. This can take up to several minutes.",
            "capture",
        ),
        ("sglang", "Capture piecewise CUDA graph begin. avail mem=7.16 GB", "capture"),
        ("sglang", "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4", "capture"),
        ("sglang", "Capture draft extend CUDA graph begin. step=1, avail mem=7.16 GB", "capture"),
        ("sglang", "Capture Frozen-KV MTP draft cuda graph begin.", "capture"),
        ("sglang", "Capture target decode CPU graph begin. backend=disabled, bs=[1]", "capture"),
        ("sglang", "[AutoTuner]: Autotuning process starts ...", "autotune"),
        ("vllm", "INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.9.1", "spawn"),
        ("vllm", "INFO 01-01 00:00:00 [model_runner.py:1] Model loading took 15 GiB", "profile"),
        ("vllm", "INFO 01-01 00:00:00 [backends.py:1] Dynamo bytecode transform time: 5.2 s", "compile"),
        ("vllm", "INFO 01-01 00:00:00 [gpu_worker.py:1] Available KV cache memory: 50.1 GiB", "cache"),
        ("vllm", "INFO 01-01 00:00:00 [kv_cache_utils.py:1] GPU KV cache size: 400,000 tokens", "cache"),
        ("vllm", "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/67", "capture"),
        ("torch", "W1129 15:21:59.000000 77 torch/distributed/run.py:774] ****", "distributed"),
    ],
)  # fmt: skip
def test_a_marker_of_another_version_begins_its_phase(profile: str, line: str, phase: str) -> None:
    """Wordings of versions of which no log is recorded here."""
    assert phases(profile, line) == [phase]


@pytest.mark.parametrize(
    "line",
    [
        "Exception: Capture cuda graph failed: CUDA error: operation failed",
        "[2026-01-01 00:00:00] Capture target decode CUDA graph end. elapsed=3.26 s, mem usage=0.33 GB",
        "    raise RuntimeError('Load weight begin')",
    ],
)
def test_a_line_that_speaks_of_a_phase_does_not_begin_it(line: str) -> None:
    """A wrapper's text, an end, and quoted code are no beginning."""
    quoted = f'Traceback (most recent call last):\n  File "/opt/a.py", line 1, in f\n{line}\nValueError: x\n'
    assert phases("sglang", quoted) == []


@pytest.mark.parametrize(
    ("profile", "phase", "line"),
    [
        ("sglang", "load", "Loading safetensors checkpoint shards:  12% Completed | 1/8"),
        ("sglang", "load", "Multi-thread loading shards:  50%|#####     | 4/8 [00:01<00:01,  3.0it/s]"),
        ("sglang", "capture", "Capturing batches (bs=4 avail_mem=134.07 GB):  33%|###      | 1/3"),
        ("sglang", "capture", "DeepGEMM warmup:  12%|#| 1902/16384 [00:10<01:20]"),
        ("sglang", "capture", "AUTOTUNE mm(4x64, 64x256)"),
        ("sglang", "warm-up", 'INFO:     127.0.0.1:1 - "GET /model_info HTTP/1.1" 200 OK'),
        ("vllm", "load", "(Worker_TP1 pid=7) INFO 01-01 00:00:00 [weight_utils.py:1] Downloaded in 4 s"),
        ("vllm", "compile", "INFO 01-01 00:00:00 [backends.py:1] Cache the graph of compile range (1, 64)"),
        ("vllm", "capture", "Capturing CUDA graphs (decode, FULL):  45%|####5     | 30/67 [00:02<00:02]"),
    ],
)  # fmt: skip
def test_a_line_that_shows_work_is_progress(profile: str, phase: str, line: str) -> None:
    """A long phase goes on for as long as such lines come."""
    assert phase in progress(profile, line)


@pytest.mark.parametrize(
    ("profile", "line"),
    [
        ("sglang", 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable'),
        ("sglang", 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'),
        ("sglang", "[2026-01-01 00:00:00 TP0] Still waiting for the other ranks."),
        ("vllm", "INFO 01-01 00:00:00 [shm_broadcast.py:1] No available shared memory broadcast block"),
    ],
)  # fmt: skip
def test_a_healthy_line_that_repeats_is_no_progress(profile: str, line: str) -> None:
    """It would hide a hang."""
    assert progress(profile, line) == set()


# --- arguments --------------------------------------------------------------------------------------

COMPILE = FlagsFactor(
    name="compile", levels={"off": (), "on": ("--enable-torch-compile", "--torch-compile-max-bs", "64")}
)
ATTENTION = OptionFactor(
    name="attention",
    option="--attention-backend",
    levels={"default": None, "triton": "triton", "flashinfer": "flashinfer", "native": "torch_native"},
)
EAGER = FlagsFactor(name="eager", levels={"off": (), "on": ("--enforce-eager",)})


def shown(profile: str) -> Shown:
    """How a stack shows its arguments."""
    found = profiles.load(profile).profile.shown
    assert found is not None
    return found


def witness(profile: str, factor: Factor) -> Mapping[str, str]:
    """The patterns of a factor's levels."""
    found = profiles.argument_witness(shown(profile), factor)
    return {} if found is None else found.patterns


def seen(patterns: Mapping[str, str], text: str) -> set[str]:
    """The levels that a log shows."""
    return {level for level, pattern in patterns.items() if re2.search(pattern, text)}


@pytest.mark.parametrize(
    ("log", "factor", "level"),
    [
        ("sglang-good-gpu.log", COMPILE, {"off"}),
        ("sglang-double-capture.log", COMPILE, {"on"}),
        ("h200/fa_flashinfer.log.gz", ATTENTION, {"flashinfer"}),
        ("h200/mma_ok.log.gz", ATTENTION, {"triton"}),
        ("cpu/vb2.log.gz", ATTENTION, {"native"}),
        ("cpu/vb2.log.gz", COMPILE, {"off"}),
        ("vllm-attention-unsupported.log", EAGER, {"on"}),
        ("cpu/vllm3.log.gz", EAGER, set()),
    ],
)
def test_a_level_is_seen_in_what_a_stack_prints(log: str, factor: Factor, level: set[str]) -> None:
    """In each version's form; what is not the default alone is printed by vLLM."""
    file = SAMPLES / log
    assert seen(witness(stack_of(file), factor), content(file)) == level


def flags(**levels: str) -> FlagsFactor:
    """A factor of flags."""
    return FlagsFactor(name="f", levels={level: tuple(said.split()) for level, said in levels.items()})


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (flags(off="", on="--x"), {"off", "on"}),
        (flags(on="", off="--disable-x"), {"off", "on"}),
        (flags(default="", off="--no-x"), {"off"}),
        (flags(on="--x", off="--no-x"), {"off", "on"}),
        (flags(default="", on="--x", off="--no-x"), {"off", "on"}),
        (flags(default="", a="--size 1", b="--size 2"), {"a", "b"}),
        (flags(a="--size 0.8", b="--size 0.80"), set()),
        (flags(none="", x="--x", y="--y", both="--x --y"), {"none", "x", "y", "both"}),
        (flags(x="--size 1", y="--other 2"), set()),
        (flags(off="", on="-O3"), set()),
        (flags(off="", on="--config.depth 3"), set()),
        (flags(off="", twice="--size 1 --size 2"), set()),
        (OptionFactor(name="f", option="--size", levels={"default": None, "one": "1"}), {"one"}),
        (EnvFactor(name="f", env="X", levels={"a": "1", "b": "2"}), set()),
    ],
)
def test_only_a_level_that_can_be_told_gets_a_pattern(factor: Factor, told: set[str]) -> None:
    """A default that the stack resolves could be any value."""
    assert set(witness("sglang", factor)) == told


def test_an_argument_inside_of_another_is_not_the_one_meant() -> None:
    """A draft's options have the names of the server's own."""
    patterns = witness("vllm", OptionFactor(name="f", option="--model", levels={"a": "a", "b": "b"}))
    line = "non-default args: {'model': 'a', 'speculative_config': {'method': 'eagle', 'model': 'b'}}"
    assert seen(patterns, line) == {"a"}


@dataclass(frozen=True, eq=False)
class Option:
    """An option of a made-up stack: the words it can be given with, and how each comes out when printed."""

    name: str
    values: Mapping[str, object]
    default: object

    @property
    def argument(self) -> str:
        """What the stack's report calls it."""
        return self.name.removeprefix("no-").replace("-", "_")


OPTIONS = (
    Option("enable-x", {"": True}, default=False),
    Option("disable-y", {"": True}, default=False),
    Option("no-z", {"": False}, default=True),
    Option("max-bs", {"8": 8, "08": 8, "16": 16}, 8),
    Option("fraction", {"0.8": 0.8, "0.80": 0.8, "1": 1.0}, 0.8),
    Option("backend", {"triton": "triton", "it's": "it's", "a, max_bs=16": "a, max_bs=16"}, "triton"),
    Option("sizes", {"1 2": [1, 2], "1": [1]}, None),
)
Level = Mapping[Option, str]


def words(level: Level) -> tuple[str, ...]:
    """The arguments of a level; a value of one word stands behind an equals sign now and then."""
    said: list[str] = []
    for option, value in level.items():
        joined = value and (" " in value) != (option.name == "sizes")
        said += [f"--{option.name}={value}"] if joined else [f"--{option.name}", *value.split()]
    return tuple(said)


def printed(level: Level, noise: Sequence[tuple[str, object]], order: Sequence[int]) -> dict[str, object]:
    """Every argument in effect, in some order."""
    values = [(o.argument, o.values[level[o]] if o in level else o.default) for o in OPTIONS]
    values += noise
    return dict(sorted(values, key=lambda entry: order[values.index(entry)]))


LEVELS = st.dictionaries(
    st.sampled_from("abcd"),
    st.lists(st.sampled_from(OPTIONS), unique=True, max_size=3).flatmap(
        lambda options: st.fixed_dictionaries({o: st.sampled_from(sorted(o.values)) for o in options})
    ),
    min_size=2,
)
NOISE = (
    ("note", "', max_bs=16, enable_x=True, '"),
    ("draft", {"max_bs": 16, "enable_x": True, "backend": "it's", "more": [{"fraction": 1.0}]}),
)


@given(levels=LEVELS, order=st.permutations(range(len(OPTIONS) + len(NOISE))))
def test_a_level_is_seen_in_its_own_line_alone(levels: Mapping[str, Level], order: list[int]) -> None:
    """Whatever stands beside it, in whichever order, and in both forms of sglang."""
    patterns = witness("sglang", FlagsFactor(name="f", levels={name: words(levels[name]) for name in levels}))
    assert [] == [p for p in patterns.values() if check_pattern(p)]
    for level in patterns:
        arguments = printed(levels[level], NOISE, order)
        shown_as = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        assert seen(patterns, f"[2026-01-01 00:00:00] server_args=ServerArgs({shown_as})") == {level}
        assert seen(patterns, f"[2026-01-01 00:00:00] server_args={arguments!r}") == {level}


# --- ports ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launch", "arguments", "ports"),
    [
        ("exec sglang serve --port 30000", [], ()),
        ("exec sglang serve --port 30000 --nccl-port 4000", [], (4000,)),
        ("exec sglang serve --nccl-port=4000 --dist-init-addr 10.0.0.1:5000", [], (4000, 5000)),
        ("exec sglang serve --nccl-port $PORT", [], ()),
        ("exec sglang serve --port 30000", ["--nccl-port", "1", "--nccl-port", "2"], (1, 2)),
        ("exec sglang serve --port 100", ["--enable-dp-attention"], tuple(range(333, 340))),
        ("exec sglang serve", ["--attn-dp-size", "2"], tuple(range(30233, 30240))),
        ("exec sglang serve", ["--attn-dp-size", "1"], ()),
        ("exec sglang serve --port 65500 --enable-dp-attention", [], tuple(range(65267, 65274))),
        ("exec sglang serve --enable-dp-attention --dist-init-addr :9", [], tuple(range(9, 16))),
        ("# --nccl-port 4000\nexec sglang serve", [], ()),
        ("exec sglang serve --nccl-port 70000", [], ()),
    ],
)
def test_the_ports_beside_its_own_are_those_written_out(
    launch: str, arguments: list[str], ports: tuple[int, ...]
) -> None:
    """What the shell fills in, and what the stack picks, is not known."""
    assert profiles.further_ports(profiles.load("sglang"), launch, arguments) == ports


def test_an_option_that_did_nothing_is_denied_by_the_line_that_it_should_prevent() -> None:
    """The report repeats `--disable-cuda-graph`, and a CPU captures its decode graph all the same."""
    flags = FlagsFactor(name="capture", levels={"on": (), "off": ("--disable-cuda-graph",)})
    witness = profiles.argument_witness(shown("sglang"), flags)
    assert witness is not None
    assert ["off"] == list(witness.denied)
    begins = "Capture target decode CPU graph begin. backend=disabled, num_tokens_per_req=1, bs=[1]"
    assert re2.search(witness.denied["off"], begins)
    assert not re2.search(witness.denied["off"], "Capture target prefill CUDA graph begin. backend=breakable")
