"""Clocks that jump: the machine's, while a run goes on, and the stamps in a log."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.verify import verify
from tests.fakes import FakeClock, Lab, stack_of
from tests.weapons.arms import FATAL, Arms
from tests.worlds import Rule, World, playbook_of, setting

DAY = 86_400.0
PLAYBOOK = playbook_of({"mode": ("safe", "fast"), "kernel": ("mma", "stock")}, {"mode": "fast"})
WORLD = World((Rule(frozenset({setting("mode=fast")})),))


class Set(FakeClock):
    """A clock whose time of day is set again at every look, a year ahead or a day back."""

    def __init__(self) -> None:
        super().__init__()
        self._error = cycle((0.0, 366 * DAY, -DAY))

    def time(self) -> float:
        """Whatever it was set to."""
        return super().time() + next(self._error)


def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    """Time limits are those of the clock that never goes back; the journal's own times only tell."""
    with Lab(tmp_path / "run", PLAYBOOK, stack_of(WORLD, PLAYBOOK), clock=Set()) as lab:
        outcome = lab.begin().engine.run()
    assert ExitCode.CONCLUDED == outcome.code
    assert (setting("mode=fast"),) == outcome.verdict.cause
    assert all(trial.seconds >= 0 for trial in outcome.verdict.trials)
    assert outcome.verdict == verify(lab.folder).verdict


@pytest.mark.parametrize(
    ("first", "second", "order", "rank"),
    [
        ("2026-06-17 23:46:56", "2026-06-17 22:46:56", "shown", "TP1"),
        ("2026-06-17 23:46:56", "2026-06-17 23:46:56", "not shown", None),
        ("2026-06-17 23:46:56", "0000-00-00 99:99:99", "not shown", None),
    ],
)
def test_the_order_is_by_stamps_that_can_be_read(
    arms: Arms, first: str, second: str, order: str, rank: str | None
) -> None:
    """A stamp may jump back, tie, or be nonsense; what it does not show is not said."""
    lines = f"[{first} TP0] {FATAL}\\n[{second} TP1] {FATAL}\\n"
    arms.load(f"printf 'armed\\n{lines}'; exit 1")
    symptom = arms.attempt().symptom()
    assert (order, rank) == (symptom.order, symptom.first_rank)
