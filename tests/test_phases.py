"""Clocks of an attempt: silence, and taking too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.model import Kind, Limits, Why
from bisect_agent.phases import Progress, stuck
from tests.strategies import FEW

LIMITS = Limits(start=100, quiet=10, request=5, stop=5, trials=10, wall=1000)
SECONDS = st.floats(0, 300)


@pytest.mark.parametrize(
    ("grown", "now", "expected"),
    [(0, 10, None), (0, 10.1, Why.SILENT), (95, 100, None), (95, 100.1, Why.OVERDUE)],
)
def test_a_server_is_stuck_by_silence_or_by_the_clock(grown: float, now: float, expected: Why | None) -> None:
    """The limits themselves are still allowed."""
    assert expected is stuck(Progress(began=0, grown=grown), LIMITS, Kind.SERVER, now)


def test_a_job_may_be_silent() -> None:
    """Only its whole time is bounded: many jobs print nothing until they end."""
    progress = Progress(began=0, grown=0)
    assert [None, Why.OVERDUE] == [stuck(progress, LIMITS, Kind.JOB, now) for now in (99, 101)]


@FEW
@given(SECONDS, SECONDS)
def test_a_ready_server_is_never_stuck(grown: float, now: float) -> None:
    """It has nothing more to say; the request has a limit of its own."""
    assert None is stuck(Progress(began=0, grown=grown).become_ready(), LIMITS, Kind.SERVER, now)


@FEW
@given(st.lists(st.floats(0.1, 9.9), max_size=10))
def test_whoever_speaks_in_time_is_never_silent(pauses: list[float]) -> None:
    """Each line starts the clock of silence again."""
    progress, now = Progress(began=0, grown=0), 0.0
    for pause in pauses:
        now += pause
        assert stuck(progress, LIMITS, Kind.SERVER, now) is not Why.SILENT
        progress = progress.grow(now)
    assert 0.0 == progress.quiet(now)


def test_progress_keeps_what_it_does_not_change() -> None:
    """A phase is entered, a log grows, a server becomes ready: each one thing."""
    progress = Progress(began=1, grown=2).enter("capture").grow(3).become_ready()
    assert Progress(began=1, grown=3, phase="capture", ready=True) == progress
