"""Whether a run folder's verdict follows from what is in it: everything is computed again.

Hashes show that nothing was changed; then the logs are read again, the attempts judged again, and the
verdict drawn again, with the signatures and families that the run itself kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from bisect_agent import events
from bisect_agent.claims import assess
from bisect_agent.engine import exit_code, judged
from bisect_agent.errors import DamagedRun
from bisect_agent.events import Closed, Exported, HypothesisMoved, Judged, Launching, RunState
from bisect_agent.evidence import Table
from bisect_agent.folder import (
    ENV,
    PLAYBOOK,
    RESOLVED,
    SCRIPT,
    VERDICT,
    RunFolder,
    attempt_path,
    canonical,
    digest,
)
from bisect_agent.journal import NAME as JOURNAL
from bisect_agent.journal import decode
from bisect_agent.judge import RESPONSE, answer_file
from bisect_agent.model import Exhibit, LogCopy, Observation, Playbook, State, Trial
from bisect_agent.pieces import faithful, reread
from bisect_agent.signatures import Scanner, watches
from bisect_agent.stacks import lines
from bisect_agent.verdict import Verdict, conclude


@dataclass(frozen=True)
class Verified:
    """What was computed again, and agreed. `exported` says of which run this is a copy, where it is one."""

    verdict: Verdict
    exported: Exported | None
    events: int
    attempts: int
    log_bytes: int


def verify(folder: RunFolder) -> Verified:
    """Computes the verdict again from the run folder alone.

    Raises:
        DamagedRun: naming the first place that does not agree.
    """
    entries = decode(folder.read(JOURNAL))
    whole = events.fold(entries)
    sealed, started = whole.sealed, whole.started
    if sealed is None or started is None:
        last = entries[-1].event.kind if entries else "nothing"
        raise DamagedRun(f"{JOURNAL}:{len(entries)}: the run is not sealed: its last event is {last}")
    _same(PLAYBOOK, started.playbook, digest(folder.read(PLAYBOOK)))
    _same(RESOLVED, started.resolved, digest(folder.read(RESOLVED)))
    _same(VERDICT, sealed.verdict, digest(folder.read(VERDICT)))
    playbook = folder.resolved()
    state, size = RunState(), 0
    for entry in entries[:-1]:
        where = f"{JOURNAL}:{entry.number}"
        if isinstance(entry.event, Launching):
            path = attempt_path(state.trial(entry.event.trial), entry.event.attempt)
            _same(f"{path}/{SCRIPT}", entry.event.script, digest(folder.read(f"{path}/{SCRIPT}")))
            _same(f"{path}/{ENV}", entry.event.env, digest(folder.read(f"{path}/{ENV}")))
        if isinstance(entry.event, Closed):
            size += _reread(folder, playbook, state.trial(entry.event.trial), entry.event)
        if isinstance(entry.event, Judged):
            _rejudge(playbook, state, entry.event, where)
        if isinstance(entry.event, HypothesisMoved):
            _reweigh(playbook, state, entry.event, where)
        state = events.apply(state, entry)
    verdict = conclude(playbook, state, started.versions["bisect_agent"])
    if digest(canonical(verdict)) != sealed.verdict:
        raise DamagedRun(f"{VERDICT}: another verdict follows from the journal")
    if exit_code(state, verdict) != sealed.exit_code:
        raise DamagedRun(f"{JOURNAL}:{len(entries)}: another exit code follows from the journal")
    return Verified(verdict, state.exported, len(entries), len(state.judged()), size)


def _same(name: str, expected: str, found: str) -> None:
    if expected != found:
        raise DamagedRun(f"{name}: it is not the file that the journal names (sha256 {found[:12]}…)")


def _reread(folder: RunFolder, playbook: Playbook, trial: Trial, event: Closed) -> int:
    """Reads an attempt's log again; it must say what was observed."""
    seen, path = event.observation, attempt_path(trial, event.attempt)
    if folder.read(f"{path}/observation.json") != canonical(seen):
        raise DamagedRun(f"{path}/observation.json: it is not what the journal holds")
    if seen.serving and seen.serving.request:
        body = seen.serving.request.body.encode()
        _same(f"{path}/{RESPONSE}", digest(body), digest(folder.read(f"{path}/{RESPONSE}")))
    for asked, answer in seen.serving.witnesses.items() if seen.serving else ():
        file = f"{path}/{answer_file(asked)}"
        _same(file, digest(answer.body.encode()), digest(folder.read(file)))
    for exhibit in _exhibits(seen):
        _reread_exhibit(folder, exhibit)
    return _reread_log(folder, playbook, seen, seen.log) if seen.log else 0


def _exhibits(seen: Observation) -> tuple[Exhibit, ...]:
    """The files beside the log that an observation points to."""
    kernel = (seen.memory.file,) if seen.memory and seen.memory.file else ()
    changed = (seen.aftermath.changed,) if seen.aftermath and seen.aftermath.changed else ()
    return (*(seen.stacks.looks if seen.stacks else ()), *kernel, *changed)


def _reread_exhibit(folder: RunFolder, exhibit: Exhibit) -> None:
    data = folder.read(exhibit.path)
    _same(exhibit.path, exhibit.sha256, digest(data))
    if not set(exhibit.lines) <= set(lines(data)):
        raise DamagedRun(f"{exhibit.path}: its lines are not those that the journal holds")


def _reread_log(folder: RunFolder, playbook: Playbook, seen: Observation, log: LogCopy) -> int:
    data = folder.read(log.path)
    _same(log.path, log.sha256, digest(data))
    if not faithful(log, data):
        raise DamagedRun(f"{log.path}: it is not made of the pieces that the journal names")
    scanner = Scanner(watches(playbook), playbook.observe.ignore)
    if reread(log, data, seen.reading.size, scanner) != seen.reading:
        raise DamagedRun(f"{log.path}: its lines do not say what the journal holds")
    return len(data)


def _rejudge(playbook: Playbook, state: RunState, event: Judged, where: str) -> None:
    said = event.settled
    attempt = state.attempts.get((said.trial.id, said.attempt))
    if attempt is None or attempt.observation is None:
        raise DamagedRun(f"{where}: an attempt is judged that was never closed")
    if judged(playbook, state, said.trial, said.attempt, attempt.observation) != said:
        raise DamagedRun(f"{where}: another outcome follows from what was observed")


def _reweigh(playbook: Playbook, state: RunState, event: HypothesisMoved, where: str) -> None:
    """A hypothesis may pass through `undecided`, and comes to nothing but what the trials say."""
    table = Table(playbook, state.settled())
    said = {h.id: assess(h, table).state for h in playbook.hypotheses}
    if event.state not in {said.get(event.hypothesis), State.UNDECIDED}:
        raise DamagedRun(f"{where}: the trials do not say that {event.hypothesis} is {event.state}")
