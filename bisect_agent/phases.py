"""Which phase an attempt is in, and when its time is over. Pure: time comes in as an argument.

Three clocks run until a server is ready, or a job has ended: of the whole start (`limits.start`), of the
phase (its `limit`), and of the time without progress (its `quiet`, else `limits.quiet`). What counts as
progress is the phase's own affair: healthy lines that repeat would hide a hang, so a phase that names a
pattern for its progress is moved on by such lines alone.

All times are seconds of a clock that never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bisect_agent.model import Kind, PhaseMark, Playbook, Why

_NEVER = float("-inf")
_FIRST = PhaseMark(name="", begin="")
"""What comes before the first phase's marker."""


@dataclass(frozen=True)
class Progress:
    """How far an attempt has come, and when it last gave which sign of life."""

    began: float
    grown: float
    entered: float = _NEVER
    advanced: float = _NEVER
    spared: float = _NEVER
    phase: str = ""
    ready: bool = False

    def grow(self, now: float) -> Progress:
        """The log grew."""
        return replace(self, grown=now)

    def enter(self, phase: str, now: float) -> Progress:
        """A phase's marker was met."""
        return replace(self, phase=phase, entered=now)

    def advance(self, now: float) -> Progress:
        """A line of progress was met."""
        return replace(self, advanced=now)

    def become_ready(self) -> Progress:
        """The ready rule was met: the clocks of the start no longer run."""
        return replace(self, ready=True)

    def quiet(self, now: float) -> float:
        """Seconds since the log last grew."""
        return now - self.grown


def stuck(progress: Progress, playbook: Playbook, now: float) -> Why | None:
    """Which clock is over; None while the attempt may go on.

    A job's whole run is bounded by `limits.start`, and it may be silent unless a phase says otherwise:
    many jobs print nothing until they end. A ready server is no longer expected to write: the
    request's own limit bounds what is left.
    """
    mark, limits = _mark(progress, playbook), playbook.limits
    if progress.ready:
        return None
    if now - progress.began > limits.start:
        return Why.OVERDUE
    if mark.limit is not None and now - _renewed(progress) > mark.limit:
        return Why.LIMIT
    quiet = limits.quiet if mark.quiet is None and playbook.kind is Kind.SERVER else mark.quiet
    if quiet is not None and now - max(_moved(progress, mark), progress.spared) > quiet:
        return Why.SILENT if mark.progress is None else Why.STALLED
    return None


def idle(progress: Progress, playbook: Playbook, now: float) -> float:
    """Seconds since the last progress, as the phase counts it."""
    return now - _moved(progress, _mark(progress, playbook))


def spare(progress: Progress, playbook: Playbook, now: float) -> Progress | None:
    """The same with the clock of silence begun anew; None where that was done since the last progress."""
    if progress.spared > _moved(progress, _mark(progress, playbook)):
        return None
    return replace(progress, spared=now)


def _mark(progress: Progress, playbook: Playbook) -> PhaseMark:
    return next((p for p in playbook.observe.phases if p.name == progress.phase), _FIRST)


def _renewed(progress: Progress) -> float:
    """When the clock of the phase last began."""
    return max(progress.began, progress.entered, progress.advanced)


def _moved(progress: Progress, mark: PhaseMark) -> float:
    """When the last progress was made."""
    return max(_renewed(progress), progress.grown if mark.progress is None else _NEVER)
