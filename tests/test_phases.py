"""Clocks of an attempt: no progress, a phase that takes too long, a start that takes too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.model import Kind, Limits, PhaseMark, Playbook, Why
from bisect_agent.phases import Progress, idle, spare, stuck
from tests.strategies import FEW
from tests.worlds import playbook_of

LIMITS = Limits(start=100, quiet=10, request=5, stop=5, trials=10, wall=1000)
SECONDS = st.floats(0, 300)


def playbook(kind: Kind = Kind.SERVER, *phases: PhaseMark) -> Playbook:
    """A playbook with these phases, and limits of 10 and 100 seconds."""
    plain = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
    observe = plain.observe.model_copy(update={"phases": phases})
    return plain.model_copy(update={"kind": kind, "limits": LIMITS, "observe": observe})


def phase(**clocks: object) -> PhaseMark:
    """The phase `warm` with these clocks."""
    return PhaseMark.model_validate({"name": "warm", "begin": "warming", **clocks})


SERVER, JOB = playbook(), playbook(Kind.JOB)


@pytest.mark.parametrize(
    ("grown", "now", "expected"),
    [(0, 10, None), (0, 10.1, Why.SILENT), (95, 100, None), (95, 100.1, Why.OVERDUE)],
)
def test_a_server_is_stuck_by_silence_or_by_the_clock(grown: float, now: float, expected: Why | None) -> None:
    """The limits themselves are still allowed."""
    assert expected is stuck(Progress(began=0, grown=grown), SERVER, now)


def test_a_job_may_be_silent() -> None:
    """Only its whole time is bounded: many jobs print nothing until they end."""
    progress = Progress(began=0, grown=0)
    assert [None, Why.OVERDUE] == [stuck(progress, JOB, now) for now in (99, 101)]


@FEW
@given(SECONDS, SECONDS)
def test_a_ready_server_is_never_stuck(grown: float, now: float) -> None:
    """It has nothing more to say; the request has a limit of its own."""
    assert None is stuck(Progress(began=0, grown=grown).become_ready(), SERVER, now)


@FEW
@given(st.lists(st.floats(0.1, 9.9), max_size=10))
def test_whoever_speaks_in_time_is_never_silent(pauses: list[float]) -> None:
    """Each line starts the clock of silence again."""
    progress, now = Progress(began=0, grown=0), 0.0
    for pause in pauses:
        now += pause
        assert stuck(progress, SERVER, now) is not Why.SILENT
        progress = progress.grow(now)
    assert 0.0 == progress.quiet(now) == idle(progress, SERVER, now)


def test_progress_keeps_what_it_does_not_change() -> None:
    """A phase is entered, a log grows, a server becomes ready: each one thing."""
    progress = Progress(began=1, grown=2).enter("capture", 2).grow(3).advance(4).become_ready()
    expected = Progress(began=1, grown=3, entered=2, advanced=4, phase="capture", ready=True)
    assert expected == progress


# --- clocks of a phase ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Kind)
def test_a_phase_has_its_own_clock_of_silence(kind: Kind) -> None:
    """Longer or shorter than that of the playbook; a job has one where its phase says so."""
    patient = playbook(kind, phase(quiet=30))
    progress = Progress(began=0, grown=0).enter("warm", 5)
    assert [None, Why.SILENT] == [stuck(progress, patient, now) for now in (35, 35.1)]


def test_before_its_marker_a_phase_says_nothing() -> None:
    """The start has the playbook's clocks."""
    assert Why.SILENT is stuck(Progress(began=0, grown=0), playbook(Kind.SERVER, phase(quiet=30)), 11)


def test_a_phase_may_last_as_long_as_its_limit() -> None:
    """However much it writes: the clock began with its marker."""
    progress = Progress(began=0, grown=0).enter("warm", 5).grow(25)
    limited = playbook(Kind.SERVER, phase(limit=20))
    assert [None, Why.LIMIT] == [stuck(progress, limited, now) for now in (25, 25.1)]


@FEW
@given(st.floats(0, 20))
def test_lines_that_repeat_hide_no_hang_where_progress_has_a_pattern(age: float) -> None:
    """However young the last line is."""
    counted = playbook(Kind.SERVER, phase(progress="step [0-9]+"))
    progress = Progress(began=0, grown=0).enter("warm", 5).grow(30 - age)
    assert Why.STALLED is stuck(progress, counted, 30)
    assert 25 == idle(progress, counted, 30)


def test_progress_starts_both_clocks_of_a_phase_again() -> None:
    """A warm-up of a thousand steps goes on as long as its steps come."""
    counted = playbook(Kind.SERVER, phase(progress="step [0-9]+", limit=8, quiet=8))
    progress = Progress(began=0, grown=0).enter("warm", 5).advance(12)
    assert [None, Why.LIMIT] == [stuck(progress, counted, now) for now in (20, 20.1)]


def test_no_progress_outlasts_the_start() -> None:
    """`limits.start` bounds it all."""
    counted = playbook(Kind.SERVER, phase(progress="step [0-9]+"))
    assert Why.OVERDUE is stuck(Progress(began=0, grown=101).enter("warm", 5).advance(101), counted, 101)


@FEW
@given(st.floats(11, 50), st.floats(0, 10))
def test_the_clock_of_silence_is_begun_anew_once(now: float, later: float) -> None:
    """Who is slow gets it once more; only progress earns another."""
    spared = spare(Progress(began=0, grown=0), SERVER, now)
    assert spared is not None
    assert stuck(spared, SERVER, now + later) is None
    assert Why.SILENT is stuck(spared, SERVER, now + 10.1)
    assert None is spare(spared, SERVER, now + 10.1)
    assert spare(spared.grow(now + 10.1), SERVER, now + 30) is not None
