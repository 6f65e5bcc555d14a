"""Runs of real servers, recorded and exported: each verdict still follows from its folder alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.archive import opened
from bisect_agent.folder import RunFolder
from bisect_agent.verify import verify

RUNS = Path(__file__).parents[1] / "logs" / "samples" / "runs"


@dataclass(frozen=True)
class Expected:
    """What a verdict must be: its cause, its symptom's id, and the claims that it must have settled."""

    cause: set[str]
    symptom: str
    supported: tuple[str, ...] = ()
    refuted: tuple[str, ...] = ()


VERDICTS = {
    # playbooks/sglang-cpu
    "kernel-under-compile": Expected(
        {"compile=on", "kernel=on"}, "torch-compile-exception", ("kernel-specific",)
    ),
    "natural": Expected(
        {"compile=on"},
        "AttributeError: 'TorchNativeAttnBackend' object has no attribute 'init_cpu_graph_state'"
        " @ cpu_graph_runner.py:__init__",
        refuted=("kernel-specific", "double-capture"),
    ),
    "no-compiler": Expected(
        {"compile=on", "compiler=broken"}, "torch-compile-exception", refuted=("kernel-specific",)
    ),
    "wrong-answer": Expected({"kernel=on"}, "answer-degenerate", ("kernel-specific",)),
    # playbooks/gpu
    "double-capture": Expected(
        {"compile=on", "inductor_graphs=on"}, "torch-capture-nested", ("double-capture",)
    ),
    "kernel-in-capture": Expected(
        {"kernel=mma", "capture=on"}, "cuda-capture-isolation", ("kernel-specific", "graph-kernel")
    ),
    "stack-wide": Expected(
        {"compile=on", "capture=on"},
        "cuda-capture-isolation",
        ("stack-wide", "compile-against-capture"),
        ("kernel-specific", "double-capture", "compile-alone", "capture-alone", "environment"),
    ),
    "autotune-in-capture": Expected(
        {"kernel=autotuned", "capture=on"}, "cuda-capture-unsupported", ("kernel-specific", "graph-kernel")
    ),
    "shared-memory": Expected({"kernel=mma"}, "triton-out-of-resource", ("architecture-tile",)),
    "wrong-answer-gpu": Expected({"kernel=mma"}, "answer-differs", ("kernel-specific",)),
    "port-clash": Expected({"rendezvous=32041"}, "address-in-use"),
    "memory-in-capture": Expected({"kernel=mma", "capture=on"}, "cuda-out-of-memory"),
}
"""Of each recorded run, by the name of its file."""


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_a_recorded_verdict_follows(name: str) -> None:
    """It is an export, its verdict is the one that its playbook expects, and `verify` agrees."""
    expected = VERDICTS[name]
    with opened(RUNS / f"{name}.tar.gz") as folder:
        found = verify(RunFolder(folder))
    verdict = found.verdict
    assert found.exported
    assert expected.cause == {str(setting) for setting in verdict.cause}
    assert verdict.symptom is not None
    assert expected.symptom == verdict.symptom.id
    states = {hypothesis.id: hypothesis.state for hypothesis in verdict.hypotheses}
    assert {states[claim] for claim in expected.supported} <= {"supported"}
    assert {states[claim] for claim in expected.refuted} <= {"refuted"}


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("autotune-in-capture", "operation not permitted when stream is capturing"),
        ("kernel-in-capture", "dependency created on uncaptured work in another stream"),
        ("stack-wide", "dependency created on uncaptured work in another stream"),
    ],
)
def test_the_root_is_the_symptom_and_not_the_last_line(name: str, root: str) -> None:
    """Below it the log says, as its last error, that the capture was invalidated; that accuses nobody."""
    with opened(RUNS / f"{name}.tar.gz") as folder:
        symptom = verify(RunFolder(folder)).verdict.symptom
        assert symptom is not None
        (exhibit, *_) = symptom.evidence
        log = (folder / exhibit.path).read_bytes().decode().split("\n")  # bars hold bare returns
    assert exhibit.line is not None
    assert root in log[exhibit.line - 1]
    last = max(n for n, line in enumerate(log, 1) if line.startswith("Exception: Capture cuda graph failed:"))
    assert last > exhibit.line
    assert "operation failed due to a previous error during capture" in log[last - 1]


def tokens(name: str, trial: str) -> list[int]:
    """What the server answered in a trial's first attempt."""
    with opened(RUNS / f"{name}.tar.gz") as folder:
        answer = json.loads((folder / "trials" / trial / "1" / "response.txt").read_bytes())
    found: list[int] = answer["output_ids"]
    return found


def test_the_good_kernel_answers_alike_and_the_bad_one_differs_alike() -> None:
    """So a difference is the kernel's. The first token is right all the same: no decode step makes it."""
    good, bad = tokens("wrong-answer-gpu", "t01-good"), tokens("wrong-answer-gpu", "t02-bad")
    assert good == tokens("port-clash", "t01-good")
    assert bad == tokens("wrong-answer-gpu", "t03-bad")
    assert bad == [good[0], *[0] * 7]


def test_every_recorded_run_is_looked_at() -> None:
    """None lies there that nobody verifies."""
    assert sorted(VERDICTS) == sorted(path.name.removesuffix(".tar.gz") for path in RUNS.iterdir())
