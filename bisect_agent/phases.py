"""Which phase an attempt is in, and when silence is a hang. Pure: time comes in as an argument.

All times are seconds of a clock that never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bisect_agent.model import Kind, Limits, Why


@dataclass(frozen=True)
class Progress:
    """How far an attempt has come, and when it last gave a sign of life."""

    began: float
    grown: float
    phase: str = ""
    ready: bool = False

    def grow(self, now: float) -> Progress:
        """The log grew."""
        return replace(self, grown=now)

    def enter(self, phase: str) -> Progress:
        """A phase's marker was met."""
        return replace(self, phase=phase)

    def become_ready(self) -> Progress:
        """The ready rule was met: the clock of the start no longer runs."""
        return replace(self, ready=True)

    def quiet(self, now: float) -> float:
        """Seconds since the last sign of life."""
        return now - self.grown


def stuck(progress: Progress, limits: Limits, kind: Kind, now: float) -> Why | None:
    """Why an attempt is to be ended for standing still or taking too long; None while it may go on.

    A job's whole run is bounded by `limits.start`; of a server, only the time until it is ready. A
    ready server is no longer expected to write: the request's own limit bounds what is left.
    """
    if progress.ready:
        return None
    if now - progress.began > limits.start:
        return Why.OVERDUE
    if kind is Kind.SERVER and progress.quiet(now) > limits.quiet:
        return Why.SILENT
    return None
