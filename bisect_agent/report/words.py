"""How events, times and evidence are worded, the same in every report. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_never

from bisect_agent.events import (
    AnyEvent,
    Closed,
    Concluded,
    Ending,
    HypothesisMoved,
    Judged,
    Launched,
    Launching,
    LogSeen,
    PhaseEntered,
    ReadySeen,
    RestorePlanned,
    RunStarted,
    Sealed,
    Stopping,
    TargetSurveyed,
    TrialPlanned,
)
from bisect_agent.model import Evidence
from bisect_agent.signatures import printable
from bisect_agent.tree import said


def clock_time(at: float) -> str:
    """A time of day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def place(evidence: Evidence) -> str:
    """Where a line stands: `path:line`."""
    return f"{evidence.path}:{evidence.line}"


def quote(evidence: Evidence) -> str:
    """A line of a log, safe to show."""
    return printable(evidence.text)


def told(event: AnyEvent) -> tuple[str, str] | None:
    """Who an event is about, and the sentence; None for what a person need not read as it happens."""
    match event:
        case RunStarted(run=run):
            return "run", run
        case TargetSurveyed(facts=facts):
            return "target", ", ".join(f"{name} {value}" for name, value in facts.items() if name != "boot")
        case TrialPlanned(trial=trial, why=why):
            return trial.id, f"{trial.label}: {why}"
        case RestorePlanned(trial=trial):
            return trial.id, "bring `good` up again and leave it running"
        case PhaseEntered(trial=trial, match=found):
            return trial, f"phase {found.id}"
        case ReadySeen(trial=trial):
            return trial, "ready: asking it"
        case Ending(trial=trial, why=why, match=found):
            return trial, f"ends: {why}" + (f": line {found.line}: {printable(found.text)}" if found else "")
        case Judged(settled=settled):
            return settled.trial.id, said(settled)
        case HypothesisMoved(hypothesis=name, state=state):
            return "claim", f"{name}: {state}"
        case Concluded(stopped_by=by, detail=detail):
            return "run", f"{by}: {detail}" if detail else str(by)
        case Launching() | Launched() | LogSeen() | Stopping() | Closed() | Sealed():
            return None
        case _:
            assert_never(event)
