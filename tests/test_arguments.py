"""What a program accepts, what is wrong with a command line, and the data of releases."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.arguments import (
    Finding,
    Names,
    Option,
    Options,
    Shipped,
    check,
    check_names,
    from_help,
    shipped,
)

DATA = Path(__file__).resolve().parents[1] / "hypotheses" / "arguments"


@cache
def release(name: str) -> Shipped:
    """What is shipped about a release."""
    return shipped((DATA / f"{name}.json").read_text(encoding="utf-8"))


def found(name: str, line: str) -> list[tuple[str, str, bool]]:
    """What is found in a line of arguments, by the data of a release: kind, argument, wrong."""
    return [(f.kind, f.argument, f.wrong) for f in check(line.split(), release(name).known())]


# --- releases -----------------------------------------------------------------------------------------


def test_a_name_that_became_ambiguous_is_named_with_all_that_it_may_mean() -> None:
    """The option of older releases is now a part of two names, and argparse refuses it."""
    (finding,) = check(["--cuda-graph-max-bs", "64"], release("sglang-0.5.23").known())
    expected = (
        "`--cuda-graph-max-bs` is short for several options of sglang 0.5.23:"
        " `--cuda-graph-max-bs-decode`, `--cuda-graph-max-bs-prefill`"
    )
    assert (expected, "ambiguous", True) == (finding.text, finding.kind, finding.wrong)


def test_a_variable_that_is_no_longer_read_is_named() -> None:
    """Setting it would change nothing, and look like a result."""
    retired = {"VLLM_ATTENTION_BACKEND": "--attention-backend"}
    names = ["VLLM_ATTENTION_BACKEND", "VLLM_LOGGING_LEVEL", "HF_HOME"]
    (finding,) = check_names(names, [release("vllm-0.33.0").names(("VLLM_",))], retired)
    assert (
        Finding(
            kind="unknown",
            argument="VLLM_ATTENTION_BACKEND",
            text="VLLM_ATTENTION_BACKEND does not occur in vllm 0.33.0: nothing there reads it",
            remedy="--attention-backend",
            wrong=False,
        )
        == finding
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--model-path m --tensor-parallel-size 8 --enable-torch-compile", []),
        ("--enable-torch-compil3", [("unknown", "--enable-torch-compil3", True)]),
        ("--tp 8", [("abbreviation", "--tp", False)]),
        ("--disable-cuda-graph", [("deprecated", "--disable-cuda-graph", False)]),
        ("--attention-backend flashinfr", [("choice", "--attention-backend", True)]),
        ("--dtype BFLOAT16", [("choice", "--dtype", False)]),
        ("--enable-torch-compile true", [("values", "true", True)]),
        ("--cuda-graph-bs-decode 1 2 4 --tp-size", [("values", "--tp-size", True)]),
    ],
)
def test_sglang_0_5_23(line: str, expected: list[tuple[str, str, bool]]) -> None:
    """As the server itself takes such lines."""
    assert expected == found("sglang-0.5.23", line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("serve m -tp 8 -cc.cudagraph_mode=NONE -O2 -O 1 -O=0 --enforce_eager", []),
        ("--compilation_config.pass_config.fuse_norm_quant false --port 8000", []),
        ("--no-enable-prefix-caching --disable-prefix-caching", []),
        ("--served-model-name a b", []),
        ("--swap-space 4", [("unknown", "--swap-space", True)]),
        ("--compile-config.mode=3", [("unknown", "--compile-config.mode", True)]),
        ("--compilation-conf.mode 3", [("abbreviation", "--compilation-conf", False)]),
        ("-cc.mode", [("values", "-cc", True)]),
        ("--enforce-eager.mode 1", [("values", "--enforce-eager", True)]),
        ("-tp8", [("unknown", "-tp8", True)]),
        ("--log-config-file l", [("deprecated", "--log-config-file", False)]),
        ("--moe-backend FlashInfer-CUTLASS", [("choice", "--moe-backend", False)]),
    ],
)
def test_vllm_0_33_0(line: str, expected: list[tuple[str, str, bool]]) -> None:
    """With what its parser rewrites before argparse sees it."""
    assert expected == found("vllm-0.33.0", line)


@pytest.mark.parametrize("file", sorted(DATA.glob("*.json")), ids=lambda file: str(file.stem))
def test_no_two_options_of_a_release_share_a_name(file: Path) -> None:
    """Or a line would be read in two ways."""
    names = [name for option in shipped(file.read_text(encoding="utf-8")).options for name in option.names]
    assert sorted(set(names)) == sorted(names)


# --- remedies -----------------------------------------------------------------------------------------

KNOWN = Options(
    source="the server 1.0",
    options=(
        Option(names=("--graph-size", "-g"), takes="one", choices=("1", "2", "4")),
        Option(names=("--old",), takes="none", deprecated="Deprecated. Use --new-way=fast instead."),
        Option(names=("--older", "--quiet"), takes="none", deprecated="(deprecated)"),
    ),
)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("--graph-sise 4", "write `--graph-size`"),
        ("--spec 4", "write `--speculative`"),
        ("--nothing-like-it", "leave it out"),
        ("--old", "write `--new-way=fast`"),
        ("--quiet", "do without it"),
        ("--graph-size 8", "write one of them"),
        ("--o", "write one of them in full"),
        ("--ol", "write `--new-way=slow`"),
        ("--graph-size=2=2", "write one of them"),
        ("--graph", "write `--graph-size`"),
    ],
)
def test_a_finding_says_what_to_write(line: str, remedy: str) -> None:
    """The last step of the reader is finished for them."""
    retired = {"--spec": "--speculative", "--ol": "--new-way=slow"}
    assert remedy == check(line.split(), KNOWN, retired)[0].remedy


def test_equal_numbers_are_equal_choices() -> None:
    """A parser compares them after it has read them as numbers."""
    assert () == check(["--graph-size", "04"], KNOWN)


def test_what_follows_two_dashes_is_no_option() -> None:
    """Nor is a value in front of the first option ours to judge: it may belong to one before."""
    closed = KNOWN.model_copy(update={"positionals": False})
    assert () == check(["value", "-g", "1", "--", "--unknown"], closed)


# --- names --------------------------------------------------------------------------------------------

ENGINE = Names(
    source="engine 1 in /opt/engine",
    prefixes=("ENGINE_", "ENG_"),
    names=frozenset({"ENGINE_GRAPHS", "ENGINE_*_PATH"}),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ENGINE_GRAPHS", []),
        ("ENGINE_PTXAS_PATH", []),
        ("OTHER_GRAPHS", []),
        ("ENGINE_GRAPS", [("unknown", "ENGINE_GRAPHS")]),
        ("ENG_GRAPHS", [("deprecated", "ENGINE_GRAPHS")]),
        ("ENGINE_BACKEND", [("unknown", "--backend")]),
        ("ENGINE_X", [("unknown", "leave it out; where other code reads it, give its factor a witness")]),
    ],
)
def test_a_name_that_does_not_occur_in_its_package(name: str, expected: list[tuple[str, str]]) -> None:
    """With the name that is meant, as far as that can be told."""
    retired = {"ENG_*": "ENGINE_*", "ENGINE_BACKEND": "--backend"}
    assert expected == [(f.kind, f.remedy) for f in check_names([name], [ENGINE], retired)]


def test_a_package_that_was_looked_through_in_part_accuses_nobody() -> None:
    """The name may be in the other part."""
    assert () == check_names(["ENGINE_X"], [ENGINE.model_copy(update={"complete": False})])


def test_a_name_of_two_packages_may_be_read_by_either() -> None:
    """Packages of one project share their prefix."""
    kernels = Names(source="kernels 1", prefixes=("ENGINE_",), names=frozenset({"ENGINE_TILE"}))
    assert () == check_names(["ENGINE_TILE", "ENGINE_GRAPHS"], [ENGINE, kernels])


# --- argparse -----------------------------------------------------------------------------------------


class Refused(Exception):
    """What argparse says of a line that it does not take."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise it."""
        raise Refused(message)


TAKES: dict[Any, Any] = {None: "one", 0: "none", "?": "optional", "+": "many", "*": "any"}
LONG = st.text("abc", min_size=2, max_size=4).map("--{}".format)
SHORT = st.text("xyz", min_size=1, max_size=2).map("-{}".format)
COLOURS = ("red", "green", "blue")


@dataclass
class Declared:
    """An option as a program declares it."""

    names: tuple[str, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@st.composite
def declarations(draw: st.DrawFn) -> list[Declared]:
    """Some options, with names that begin alike."""
    names = draw(st.lists(st.one_of(LONG, SHORT), min_size=1, max_size=8, unique=True))
    cuts = [0, *sorted(draw(st.sets(st.integers(1, len(names))))), len(names)]
    groups = [names[a:b] for a, b in pairwise(cuts) if a < b]
    return [Declared(tuple(group), draw(kwargs())) for group in groups]


@st.composite
def kwargs(draw: st.DrawFn) -> dict[str, Any]:
    """The rest of a declaration."""
    said = {"help": draw(st.none() | st.text("abc -.()\n", max_size=200))}
    if draw(st.booleans()):
        return {**said, "action": draw(st.sampled_from(["store_true", "count"]))}
    choices = {"choices": COLOURS} if draw(st.booleans()) else {}
    return {**said, **choices, "nargs": draw(st.sampled_from([None, "?", "+", "*", 2]))}


def parser_of(declared: Sequence[Declared], width: int = 80) -> Parser:
    """The parser of some options."""
    parser = Parser(prog="server", formatter_class=lambda prog: argparse.HelpFormatter(prog, width=width))
    for option in declared:
        parser.add_argument(*option.names, **option.kwargs)
    return parser


def options_of(parser: argparse.ArgumentParser) -> list[Option]:
    """What is known of a parser's options."""
    return [
        Option(
            names=tuple(action.option_strings),
            takes=TAKES.get(action.nargs, action.nargs),
            choices=tuple(action.choices or ()),
        )
        for action in parser._actions
    ]


@given(declarations(), st.integers(30, 120))
def test_every_option_is_found_in_the_help(declared: list[Declared], width: int) -> None:
    """With all its names, its values and its choices, however narrow the terminal."""
    parser = parser_of(declared, width)
    known = from_help("some warning\n" + parser.format_help())
    assert known is not None
    assert (options_of(parser), False, False) == (list(known.options), known.positionals, known.flexible)


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[Declared], list[str]]:
    """Options and a line that begins with one, or with what looks like one."""
    declared = draw(declarations())
    name = st.sampled_from([name for option in declared for name in option.names])
    value = st.sampled_from([*COLOURS, "reb", "4", "x y"])
    part = st.builds(lambda name, end: name[:end], name, st.integers(3, 6))
    option = st.one_of(name, name, part, LONG, SHORT, SHORT.map("{}x".format))
    attached = st.builds("{}={}".format, st.one_of(name, part), value)
    first = draw(st.one_of(option, attached))
    return declared, [first, *draw(st.lists(st.one_of(option, attached, value, value), max_size=5))]


@given(lines())
def test_a_line_is_wrong_exactly_when_argparse_refuses_it(case: tuple[list[Declared], list[str]]) -> None:
    """An option that nobody knows, that is not clear, or whose values are not right; and nothing else."""
    declared, argv = case
    parser = parser_of(declared)
    try:
        parser.parse_args([arg for arg in argv if arg not in {"-h", "--help"}])
        refused = ""
    except Refused as said:
        refused = str(said)
    options = Options(source="the server", options=tuple(options_of(parser)), positionals=False)
    wrong = [finding for finding in check(argv, options) if finding.wrong]
    assert bool(refused) == bool(wrong), (refused, wrong)


# --- helps that are no plain ones ---------------------------------------------------------------------

USAGE = """\
usage: sglang serve [-h] --model-path MODEL_PATH [--tp-size TP_SIZE]
sglang serve: error: unrecognized arguments: --enable-torch-compil3
"""
OWN = """\
usage: launch.sh [-h] [--fast]

  -h          print this
  --fast      start with the flags that we like
"""
FLEXIBLE = """\
usage: serve [model_tag] [options]

positional arguments:
  model_tag             The model to serve

options:
  -h, --help            show this help message and exit
  --enable-x, --disable-x
                        Whether to do x. (default: True)
  --dtype {auto,half}, -d {auto,half}
                        How numbers are kept. One of --dtype auto
                        and

                        --dtype half.
  --parser {a,b} or the name of a plugin
                        Which one.
  --kind ['a', 'b']     Which kind.

Cache:
  What is kept.

  -n, --number N        How many. --number is deprecated. Use --graph-
                        count instead.

When passing JSON CLI arguments, the following sets of arguments are equivalent:
   --json-arg '{"key1": "value1"}'
   --json-arg.key1 value1
"""


@pytest.mark.parametrize("text", ["", USAGE, OWN, "--help\n  -h, --help  show this help message and exit\n"])
def test_what_is_no_help_says_nothing(text: str) -> None:
    """A usage gives one name of each option, and a script's own help is not the stack's."""
    assert from_help(text) is None


def test_the_help_of_a_flexible_parser() -> None:
    """With groups, paragraphs, both orders of names and values, and forms that are not listed."""
    negated = ("--enable-x", "--disable-x", "--no-enable-x", "--no-disable-x")
    note = "How many. --number is deprecated. Use --graph-count instead."
    assert Options(
        source="serve, by its own --help",
        positionals=True,
        flexible=True,
        options=(
            Option(names=("-h", "--help"), takes="none"),
            Option(names=negated, takes="none"),
            Option(names=("--dtype", "-d"), takes="one", choices=("auto", "half")),
            Option(names=("--parser",)),
            Option(names=("--kind",)),
            Option(names=("-n", "--number"), takes="one", deprecated=note),
        ),
    ) == from_help(FLEXIBLE)


@given(st.text())
def test_any_text_may_be_printed_for_help(text: str) -> None:
    """A target may print what it likes."""
    known = from_help(f"usage: x\n\n  -h  show this help message and exit\n{text}")
    assert known is not None


# --- the program that collects ------------------------------------------------------------------------

SGLANG = {
    "sglang/srt/server_args.py": """
        from sglang.srt.arg_groups.choices import BACKENDS
        class ServerArgs:
            @staticmethod
            def add_cli_args(parser):
                add_cli_args_from_dataclass(parser, ServerArgs)
                parser.add_argument("--config", type=str, help="A file.")
                parser.add_argument(
                    "--no-graph", action=DeprecatedStoreTrueAction, new_flag="--graph=off",
                    help="Deprecated. Use --graph=off instead.",
                )
                parser.add_argument("--made", choices=made_up_at_run_time())
        """,
    "sglang/srt/arg_groups/choices.py": "BACKENDS = ['triton', 'fa3']\nMORE = BACKENDS + ['fa4']\n",
    "sglang/srt/arg_groups/fields/all.py": """
        from sglang.srt.arg_groups.choices import MORE as CHOICES
        class Graph:
            graph_max_bs_decode: A[Optional[int], "Size."] = None
            graph_max_bs_prefill: A[int, Arg(help="Size.", aliases=["--gp"])] = 1
            graph_bs: A[Optional[List[int]], "Sizes."] = None
            compile: A[bool, "Whether to compile."] = False
            backend: A[str, Arg(help="Which.", choices=CHOICES, cli_name="--the-backend")] = "fa3"
            tf32: A[Optional[bool], Arg(help="Whether.", action=argparse.BooleanOptionalAction)] = None
            hidden: A[int, Arg(help="Computed.", no_cli=True)] = 0
            plain: int = 0
        """,
    "sglang/srt/environ.py": """
        class Envs:
            SGLANG_GRAPHS = EnvBool(True)
            SGLANG_KIND = 3
        _DEPRECATED_ENVS = {"SGLANG_GONE": 1}
        OTHER = os.environ.get("SGLANG_OTHER") or os.environ[f"SGLANG_{name}_PATH"] or f"SGLANG_{name}"
        message = "set SGLANG_ELSEWHERE=1 instead"
        """,
}
VLLM = {
    "vllm/utils/argparse_utils.py": "class EnableDisableAction: ...\n",
    "vllm/config/cache.py": """
        Kind = Literal["auto", "fp8"]
        @config
        class CacheConfig:
            block_size: int | None = None
            cache_dtype: Kind = "auto"
            enable_prefix_caching: bool = True
            sizes: list[int] | None = None
            tag: bool | str | None = None
        @config
        class VllmConfig:
            cache: CacheConfig = field()
            \"\"\"--cache-config is deprecated.\"\"\"
        """,
    "vllm/engine/arg_utils.py": """
        from vllm.config.cache import CacheConfig, VllmConfig
        class EngineArgs:
            @staticmethod
            def add_cli_args(parser):
                cache_kwargs = get_kwargs(CacheConfig)
                group = parser.add_argument_group(title="Cache")
                group.add_argument("--block-size", **cache_kwargs["block_size"])
                group.add_argument("--kv-cache-dtype", **{**cache_kwargs["cache_dtype"], "default": None})
                group.add_argument("--enable-prefix-caching", **cache_kwargs["enable_prefix_caching"])
                group.add_argument("--sizes", "-s", **cache_kwargs["sizes"])
                group.add_argument("--tag", **cache_kwargs["tag"])
                group.add_argument("--cache-config", "-cc", **get_kwargs(VllmConfig)["cache"])
                group.add_argument("--optimization-level", type=int)
        """,
    "vllm/entrypoints/somewhere/cli_args.py": """
        class BaseFrontendArgs:
            middleware: list[str] = field()
            @classmethod
            def _customize_cli_kwargs(cls, frontend_kwargs):
                frontend_kwargs["middleware"]["action"] = "append"
                del frontend_kwargs["middleware"]["nargs"]
                return frontend_kwargs
        class FrontendArgs(BaseFrontendArgs):
            port: int = 8000
        def make_arg_parser(parser):
            parser.add_argument("model_tag", nargs="?")
            parser.add_argument("--headless", action="store_true")
        """,
    "vllm/envs.py": 'environment_variables = {"VLLM_PORT": get_port}\n',
}


def collected(folder: Path, wheel: str, sources: dict[str, str]) -> dict[str, Any]:
    """What the program makes of a wheel."""
    program = folder / "collect.py"
    program.write_bytes((DATA / "collect.py").read_bytes())
    with zipfile.ZipFile(folder / wheel, "w") as file:
        for name, text in sources.items():
            lines = text.removeprefix("\n").splitlines(keepends=True)
            indent = len(lines[0]) - len(lines[0].lstrip())
            file.writestr(name, "".join(line[indent:] for line in lines))
    subprocess.run([sys.executable, str(program), str(folder / wheel)], check=True, timeout=60)
    (made,) = folder.glob("*.json")
    known: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    return known


def test_what_is_collected_from_sglang(tmp_path: Path) -> None:
    """From annotated fields, and from what is written out beside them."""
    known = collected(tmp_path, "sglang-9.9-py3-none-any.whl", SGLANG)
    assert {
        "stack": "sglang",
        "version": "9.9",
        "flexible": False,
        "positionals": False,
        "options": [
            {"names": ["--compile"], "takes": "none"},
            {"names": ["--config"], "takes": "one"},
            {"names": ["--graph-bs"], "takes": "many"},
            {"names": ["--graph-max-bs-decode"], "takes": "one"},
            {"names": ["--graph-max-bs-prefill", "--gp"], "takes": "one"},
            {"names": ["--made"], "takes": "one"},
            {"names": ["--no-graph"], "takes": "none", "deprecated": "Deprecated. Use --graph=off instead."},
            {"names": ["--tf32", "--no-tf32"], "takes": "none"},
            {"names": ["--the-backend"], "takes": "one", "choices": ["fa3", "fa4", "triton"]},
            {"names": ["-h", "--help"], "takes": "none"},
        ],
        "environment": ["SGLANG_*_PATH", "SGLANG_GRAPHS", "SGLANG_OTHER"],
    } == known


def test_what_is_collected_from_vllm(tmp_path: Path) -> None:
    """From the types of configuration classes, by the rules of its own `get_kwargs`."""
    known = collected(tmp_path, "vllm-9.9-cp38-abi3-any.whl", VLLM)
    paired = ["--enable-prefix-caching", "--no-enable-prefix-caching", "--disable-prefix-caching"]
    assert {
        "stack": "vllm",
        "version": "9.9",
        "flexible": True,
        "positionals": True,
        "options": [
            {"names": ["--block-size"], "takes": "one"},
            {
                "names": ["--cache-config", "-cc"],
                "takes": "one",
                "deprecated": "--cache-config is deprecated.",
            },
            {"names": paired, "takes": "none"},
            {"names": ["--headless"], "takes": "none"},
            {"names": ["--kv-cache-dtype"], "takes": "one", "choices": ["auto", "fp8"]},
            {"names": ["--middleware"], "takes": "one"},
            {"names": ["--optimization-level", "-O"], "takes": "one"},
            {"names": ["--port"], "takes": "one"},
            {"names": ["--sizes", "-s"], "takes": "many"},
            {"names": ["--tag"], "takes": "optional"},
            {"names": ["-h", "--help"], "takes": "none"},
        ],
        "environment": ["VLLM_PORT"],
    } == known
