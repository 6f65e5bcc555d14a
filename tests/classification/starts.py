"""What an attempt with a given log would have seen, and what the judge makes of it."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path

from bisect_agent import library, profiles
from bisect_agent.judge import Known, judge
from bisect_agent.model import (
    Exit,
    Failed,
    Frozen,
    HttpAnswer,
    LogCopy,
    MatchKind,
    Observation,
    Outcome,
    Passed,
    Playbook,
    Reading,
    Serving,
    Trial,
    Unresolved,
    Why,
)
from bisect_agent.signatures import Scanner, watches
from tests.worlds import playbook_of

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "logs" / "samples"
ANSWERED = Serving(
    listener="ours",
    health=HttpAnswer(status=200, body="ok"),
    request=HttpAnswer(status=200, body='{"text": " 10, 11, 12", "output_ids": [5, 6, 7]}'),
)
REFUSED = Serving(
    listener="ours",
    health=HttpAnswer(status=200, body="ok"),
    request=HttpAnswer(status=500, body='{"error": "EngineCore encountered an issue"}'),
)


class Row(Frozen):
    """A log, and what is to be made of it.

    `ended` is how its start ended: `answered`, or `refused` the first request; `cut` by a time limit;
    `killed` by the server's own clean-up; or an exit code. `line` is the log's line that shows it.
    """

    log: str
    profile: str
    ended: str
    outcome: str
    root: str = ""
    phase: str = ""
    line: int
    why: str


@cache
def content(log: str) -> bytes:
    """The log as it was written."""
    data = (SAMPLES / log).read_bytes()
    return gzip.decompress(data) if log.endswith(".gz") else data


@cache
def playbook(profile: str) -> Playbook:
    """A playbook of one factor that is watched as the profile says."""
    plain = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
    observe = profiles.load(profile).observe
    return plain.model_copy(update={"observe": observe, "signatures": library.signatures()})


def read(row: Row, data: bytes) -> Reading:
    """What the log says."""
    scanner = Scanner(watches(playbook(row.profile)))
    scanner.feed(data)
    scanner.finish()
    return scanner.reading()


def seen(row: Row, data: bytes) -> Observation:
    """What an attempt with this log would have seen."""
    reading = read(row, data)
    met = {m.id for m in reading.matches if m.kind is MatchKind.PHASE}
    phases = [p.name for p in playbook(row.profile).observe.phases if p.name in met]
    digest = hashlib.sha256(data).hexdigest()
    common = Observation(
        reading=reading,
        log=LogCopy(path="server.log", size=len(data), sha256=digest, original=digest),
        why=Why.EXITED,
        phase=phases[-1] if phases else "",
    )
    assert (row.ended in ("answered", "refused")) == any(m.kind is MatchKind.READY for m in reading.matches)
    ends: dict[str, dict[str, object]] = {
        "answered": {"why": Why.SERVED, "serving": ANSWERED},
        "refused": {"why": Why.SERVED, "serving": REFUSED},
        "cut": {"why": Why.OVERDUE},
        "killed": {"exit": Exit(signal=9)},
    }
    end = ends.get(row.ended) or {"exit": Exit(code=int(row.ended))}
    return common.model_copy(update=end)


def outcome(row: Row, observation: Observation) -> Outcome:
    """What the judge makes of it."""
    trial = Trial(id="t01", control="good", configuration=playbook(row.profile).good)
    return judge(playbook(row.profile), trial, 1, observation, Known()).outcome


def told(found: Outcome) -> tuple[str, str, str, int]:
    """An outcome as a row tells it: what it is, its root, the phase at the root, and the line shown first."""
    match found:
        case Passed(evidence=evidence):
            return "passed", "", "", evidence[0].line
        case Failed(symptom=symptom):
            return "failed", symptom.id, symptom.phase, symptom.evidence[0].line
        case Unresolved(reason=reason, evidence=evidence):
            return "unresolved", reason.name.lower(), "", evidence[0].line
