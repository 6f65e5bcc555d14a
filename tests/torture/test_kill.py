"""kill -9 of the agent, anywhere: resumed, it ends in the verdict of a run that nobody disturbed."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bisect_agent.events import OfAttempt, Sealed
from bisect_agent.journal import decode, intact
from tests.torture.lab import AT_A_TIME, Answer, Lab, Undisturbed, answer_of

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]

RANDOM_INSTANTS = 70


def tortured(lab: Lab, *doom: str) -> tuple[str, Answer]:
    """A run that is killed at a step, and then resumed: where it was killed, and what it came to."""
    process = lab.begin(*doom)
    process.communicate()
    assert -signal.SIGKILL == process.returncode
    return taken_up(lab)


def taken_up(lab: Lab) -> tuple[str, Answer]:
    """Where a killed run was, and what it comes to."""
    journal = lab.run() / "journal.jsonl"
    entries, _, _ = intact(journal.read_bytes() if journal.exists() else b"")
    if not entries:
        return "nothing", answer_of(lab, lab.again())
    event = entries[-1].event
    if isinstance(event, Sealed):
        return event.kind, answer_of(lab, event.exit_code)
    trial = event.trial if isinstance(event, OfAttempt) else ""
    return f"{event.kind} {trial}".strip(), answer_of(lab, lab.resume())


def interrupted(lab: Lab, seconds: float) -> tuple[str, Answer]:
    """A run that is killed at an instant, and then resumed."""
    process = lab.begin()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return taken_up(lab)


def everything(
    labs: Iterable[tuple[Lab, tuple[str, ...]]], capsys: pytest.CaptureFixture[str]
) -> set[Answer]:
    """All the answers; a histogram of the states that were hit is printed."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(lambda given: tortured(given[0], *given[1]), labs))
    show(Counter(state for state, _ in results), capsys)
    return {answer for _, answer in results}


def show(histogram: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    """How often each state was hit."""
    with capsys.disabled():
        print(f"\nkilled {histogram.total()} times; the last event was:")
        for state, count in sorted(histogram.items()):
            print(f"  {count:4} {state}")


def test_killed_after_any_event(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each event is the last one once."""
    labs = [
        (Lab.make(tmp_path / f"append-{n}"), ("append", str(n))) for n in range(1, undisturbed.appends + 1)
    ]
    assert {undisturbed.answer} == everything(labs, capsys)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_around_any_change_of_the_target(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    """Whatever the journal does not yet know, the target does."""
    labs = [
        (Lab.make(tmp_path / f"{moment}-{n}"), (moment, str(n))) for n in range(1, undisturbed.changes + 1)
    ]
    assert {undisturbed.answer} == everything(labs, capsys)


def test_killed_at_any_instant(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seventy instants, drawn anew each time."""
    instants = [random.uniform(0.2, undisturbed.seconds) for _ in range(RANDOM_INSTANTS)]  # noqa: S311
    labs = [(Lab.make(tmp_path / f"instant-{n}"), seconds) for n, seconds in enumerate(instants)]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(lambda given: interrupted(*given), labs))
    show(Counter(state for state, _ in results), capsys)
    assert {undisturbed.answer} == {answer for _, answer in results}


def test_killed_inside_a_line(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """The torn line is named and set aside; the run comes to the same end."""
    lab = Lab.make(tmp_path / "torn")
    process = lab.begin("append", str(undisturbed.appends // 2))
    process.communicate()
    journal = lab.run() / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-40])
    code = lab.resume()
    entries = decode(journal.read_bytes())
    lost = [text for entry in entries if entry.event.kind == "resumed" for text in entry.event.lost]
    assert 1 == len(lost)
    assert undisturbed.answer == answer_of(lab, code)
