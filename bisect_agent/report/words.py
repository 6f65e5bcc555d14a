"""How events, times and evidence are worded, the same in every report. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import assert_never

from bisect_agent.claims import HypothesisResult
from bisect_agent.errors import RANK, ExitCode
from bisect_agent.events import (
    AnyEvent,
    Closed,
    CommandRun,
    Concluded,
    Ending,
    Exported,
    FilesPutBack,
    GuardianActed,
    HypothesisMoved,
    Judged,
    Launched,
    Launching,
    LogSeen,
    PhaseEntered,
    ReadySeen,
    RestoreEnded,
    RestorePlanned,
    Resumed,
    RunStarted,
    Sealed,
    StackAsked,
    Stopping,
    TakenUp,
    TargetGuarded,
    TargetLeft,
    TargetSurveyed,
    TrialPlanned,
)
from bisect_agent.evidence import accused
from bisect_agent.model import FIRST, Evidence, Prediction, State, Takeover
from bisect_agent.report.digest import Brief
from bisect_agent.signatures import printable
from bisect_agent.tree import Node, SymptomResult, said
from bisect_agent.verdict import TrialResult, Verdict


def clock_time(at: float) -> str:
    """A time of day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def stamp(at: float) -> str:
    """A time of day to the millisecond, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]


def day(at: float) -> str:
    """A date with its time of day to the minute, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def lasting(seconds: float) -> str:
    """A length of time, in the two largest units that it has."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def place(evidence: Evidence) -> str:
    """Where a line stands: `path:line`, and its number in the whole log where the file is a part of it."""
    if evidence.copy_line in {None, evidence.line}:
        return f"{evidence.path}:{evidence.line}"
    return f"{evidence.path}:{evidence.copy_line} (line {evidence.line} of the whole log)"


def called(trial: str, attempt: int) -> str:
    """An attempt's name; the first one has its trial's."""
    return trial if attempt == 1 else f"{trial}/{attempt}"


def shorter(evidence: Evidence) -> str:
    """Where a line stands that was quoted before: without the folder that all trials are in."""
    return place(evidence).removeprefix("trials/")


def quote(evidence: Evidence) -> str:
    """A line of a log, safe to show."""
    return printable(evidence.text)


def who(evidence: Evidence) -> str:
    """Whose line it is and when it was written, where the line itself does not say so."""
    if evidence.rank is None or evidence.rank in evidence.text:
        return ""
    return evidence.rank if evidence.time is None else f"{evidence.rank} {stamp(evidence.time)}"


class Quoted:
    """The lines that a report has quoted: each is quoted once, and named by its place afterwards."""

    def __init__(self) -> None:
        self._places: set[str] = set()

    def split(self, evidence: Sequence[Evidence]) -> tuple[list[Evidence], list[Evidence]]:
        """Of these lines, those to quote now and those quoted before."""
        known = [line for line in evidence if place(line) in self._places]
        fresh = [line for line in evidence if place(line) not in self._places]
        self._places.update(map(place, fresh))
        return fresh, known


def part(tree: Node, title: str) -> Node:
    """The part of a verdict tree with that title; an empty one where there is none."""
    return next((child for child in tree.children if child.text == title), Node(text=title))


def untold(symptom: SymptomResult) -> bool:
    """Whether a failure's own text is none of its lines: a clock that was over, an exit code."""
    return symptom.text not in {line.text for line in symptom.evidence}


def titled(text: str) -> tuple[str, str]:
    """A sentence of the verdict tree as what it is about, before the first colon, and the rest."""
    title, colon, rest = text.partition(": ")
    return (title, rest) if colon else ("", text)


def change(trial: TrialResult) -> str:
    """What a trial changes, or which control it is, in a few words."""
    return accused(trial.change.settings()) if trial.change else str(trial.control)


_RANK = (State.SUPPORTED, State.UNDECIDED, State.REFUTED)


def ranked(hypotheses: Iterable[HypothesisResult]) -> list[HypothesisResult]:
    """Those that hold first, then those that may; each kind in the playbook's order."""
    return sorted(hypotheses, key=lambda found: _RANK.index(found.state))


def came_true(trial: TrialResult, predicted: Prediction, verdict: Verdict) -> str:
    """`right` or `wrong`: whether a trial did what was predicted; empty where nobody can say."""
    if predicted == "nothing" or trial.outcome == "unresolved":
        return ""
    same = verdict.symptom is not None and trial.symptom == verdict.symptom.id
    did = trial.outcome == "passed" if predicted == "passes" else same
    return "right" if did else "wrong"


def did(trial: TrialResult, verdict: Verdict) -> str:
    """What an attempt did, in the words of a prediction."""
    match trial.outcome:
        case "passed":
            return "passes"
        case "failed":
            same = verdict.symptom is not None and trial.symptom == verdict.symptom.id
            return "fails" if same else f"fails with {trial.symptom}"
        case "unresolved":
            return "does not resolve"
        case _:
            assert_never(trial.outcome)


def acted(takeover: Takeover) -> str:
    """What a guardian did, as a sentence."""
    ended = f"it ended {', '.join(takeover.ended)}" if takeover.ended else "nothing had to be ended"
    match takeover.restored:
        case True:
            restored = "`good` is up"
        case False:
            restored = f"`good` is not up: {takeover.wrong}"
        case None:
            restored = takeover.wrong or ("nothing had to be restored" if takeover.done else "it is at work")
    return f"{takeover.why}: {ended}; {restored}"


ENDS = {
    ExitCode.CONCLUDED: "a cause is established",
    ExitCode.NOT_ESTABLISHED: "no cause is established",
    ExitCode.USAGE: "the playbook cannot be used",
    ExitCode.NOTHING_TO_BISECT: "nothing to bisect",
    ExitCode.TARGET: "the target cannot be used",
    ExitCode.BUDGET: "the budget is spent",
    ExitCode.NOT_RESTORED: "`good` is not restored or the target is dirty",
    ExitCode.BUG: "a bug of ours",
    ExitCode.INTERRUPTED: "interrupted",
}
"""The exit codes of a run, in words."""
FAILED = frozenset({ExitCode.BUG, ExitCode.NOT_RESTORED, ExitCode.TARGET, ExitCode.USAGE})
"""Ends that ask for a person."""
NOT_BEGUN = "not begun"
"""A run for which there was no time, or no target; its exit code says which."""


def outcome(run: Brief) -> str:
    """How a run stands, in a few words."""
    if run.code is None:
        return "running" if run.state == "running" else "not begun yet"
    return NOT_BEGUN if run.began is None and run.code is not ExitCode.USAGE else ENDS[run.code]


def counted(runs: Sequence[Brief]) -> str:
    """How many runs came to what, the gravest first."""
    order = [*(ENDS[code] for code in RANK), NOT_BEGUN, "running", "not begun yet"]
    counts = Counter(map(outcome, runs))
    return " · ".join(f"{counts[words]} × {words}" for words in order if words in counts)


def back(run: Brief) -> str:
    """Whether `good` was brought back, and why."""
    word = {True: "yes", False: "NO", None: "not tried"}[run.restored]
    return f"{word}, {run.why}" if run.why else word


def which(target: int) -> str:
    """What a target is called: by its number, where it is a further one."""
    return "target" if target == FIRST else f"target {target}"


def told(event: AnyEvent) -> tuple[str, str] | None:
    """Who an event is about, and the sentence; None for what a person need not read as it happens."""
    match event:
        case RunStarted(run=run):
            return "run", run
        case Resumed(lost=lost):
            return "run", "; ".join(("resumed", *lost))
        case TargetGuarded(target=target, guardian=guardian):
            return which(target), f"guarded by process {guardian.pid} there, should we be heard no more"
        case GuardianActed(takeover=takeover):
            return "guardian", printable(acted(takeover))
        case TakenUp(trial=trial):
            return trial, "taken up again, from the log's first byte"
        case RestoreEnded():
            return "restore", "the server that was restored before is stopped"
        case CommandRun(purpose=purpose, code=code, wrong=wrong):
            how = "did not end in its time" if code is None else f"ended with exit code {code}"
            return purpose, f"the playbook's command {how}" + (f": {printable(wrong)}" if wrong else "")
        case FilesPutBack(paths=paths, wrong=wrong):
            return "files", printable(wrong) if wrong else f"{', '.join(paths)}: as before the run"
        case TargetSurveyed(target=target, facts=facts):
            known = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "boot")
            return which(target), known
        case TargetLeft(target=target, why=why):
            return which(target), printable(f"used no more: {why}")
        case StackAsked(asked=asked):
            notes = (*asked.sources, *map(str, asked.notes))
            return ("stack", printable("; ".join(notes))) if notes else None
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
        case HypothesisMoved(hypothesis=name, state=state, trial=trial):
            return trial or "run", f"hypothesis {name}: {state}"
        case Concluded(stopped_by=by, detail=detail):
            return "run", f"{by}: {detail}" if detail else str(by)
        case Exported(head=head):
            return "run", f"exported from a run whose head was {head}"
        case Launching(trial=trial, target=target) if target != FIRST:
            return trial, f"on {which(target)}"
        case Launching() | Launched() | LogSeen() | Stopping() | Closed() | Sealed():
            return None
        case _:
            assert_never(event)
