"""Runs of real servers, recorded and exported: each verdict still follows from its folder alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_agent.archive import opened
from bisect_agent.folder import RunFolder
from bisect_agent.verify import verify

RUNS = Path(__file__).parents[1] / "logs" / "samples" / "runs"
CAUSES = {
    "kernel-under-compile": {"compile=on", "kernel=on"},
    "natural": {"compile=on"},
    "no-compiler": {"compile=on", "compiler=broken"},
    "wrong-answer": {"kernel=on"},
}


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_a_recorded_verdict_follows(name: str) -> None:
    """It is an export, its cause is the one that its playbook expects, and `verify` agrees."""
    with opened(RUNS / f"{name}.tar.gz") as folder:
        found = verify(RunFolder(folder))
    assert found.exported
    assert CAUSES[name] == {str(setting) for setting in found.verdict.cause}


def test_every_recorded_run_is_looked_at() -> None:
    """None lies there that nobody verifies."""
    assert sorted(CAUSES) == sorted(path.name.removesuffix(".tar.gz") for path in RUNS.iterdir())
