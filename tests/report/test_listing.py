"""A line a run: whether it runs or how it ended, from the end of its journal alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bisect_agent.events import Concluded, Sealed
from bisect_agent.journal import NAME, Journal
from bisect_agent.model import StoppedBy
from bisect_agent.report.files import TAIL, listing

FOUND = "mode=fails is the cause\x1b[2J"


def run(runs: Path, name: str, code: int | None) -> Path:
    """A run folder with little in it; `code` is how it was sealed."""
    folder = runs / name
    folder.mkdir()
    (folder / "verdict.json").write_text(json.dumps({"tree": {"text": FOUND}}))
    with Journal(folder, float) as journal:
        journal.append(Concluded(stopped_by=StoppedBy.BUG, detail="x" * 2 * TAIL))
        if code is not None:
            journal.append(Sealed(verdict="0" * 64, exit_code=code))
    return folder


def said(runs: Path) -> str:
    """What is said of the only run."""
    (line,) = listing(runs)
    return line.removeprefix(f"{runs}/")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, "concluded, exit 0"),
        (1, "concluded, exit 1"),
        (3, "concluded, exit 3"),
        (5, "ended early, exit 5"),
        (130, "interrupted, exit 130"),
    ],
)
def test_a_run_that_was_sealed_says_how_it_ended(tmp_path: Path, code: int, expected: str) -> None:
    """And what was found, in its verdict's words, without what a terminal obeys."""
    run(tmp_path, "a", code)
    assert f"a: {expected}: mode=fails is the cause\\x1b[2J" == said(tmp_path)


def test_a_run_without_its_end_has_crashed(tmp_path: Path) -> None:
    """Whatever the length of its last line, and also where that is torn."""
    folder = run(tmp_path, "a", None)
    crashed = f"a: crashed: nobody carries it out; bisect-agent resume {folder}"
    assert crashed == said(tmp_path)
    with (folder / NAME).open("ab") as journal:
        journal.write(b'{"n":2,"v":1')
    assert crashed == said(tmp_path)


def test_an_empty_journal_has_crashed(tmp_path: Path) -> None:
    """Nothing was recorded before."""
    (run(tmp_path, "a", None) / NAME).write_bytes(b"")
    assert said(tmp_path).startswith("a: crashed")


def test_a_run_whose_journal_is_held_runs(tmp_path: Path) -> None:
    """Whatever its last line says."""
    with Journal(run(tmp_path, "a", 0), float):
        assert "a: running" == said(tmp_path)


@pytest.mark.parametrize("line", [b"no json\n", b"[]\n", b'{"event":{"kind":"sealed"}}\n', b"\xff\n"])
def test_a_damaged_end_is_said_to_be_one(tmp_path: Path, line: bytes) -> None:
    """And the other runs are listed."""
    folder = run(tmp_path, "a", 0)
    run(tmp_path, "b", 0)
    (folder / NAME).write_bytes(line)
    damaged, other = listing(tmp_path)
    assert f"{folder}: damaged: " in damaged
    assert "concluded, exit 0" in other


def test_only_the_end_of_a_journal_is_read(tmp_path: Path) -> None:
    """What stands before is for `verify`; so hundreds of runs are listed in a moment."""
    folder = run(tmp_path, "a", 0)
    whole = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(b"?" * TAIL + whole[TAIL:])
    assert said(tmp_path).startswith("a: concluded")
