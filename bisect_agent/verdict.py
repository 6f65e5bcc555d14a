"""From settled trials to the verdict: cause, hypotheses, what stays unknown, and the tree. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from bisect_agent.bounds import bound
from bisect_agent.claims import HypothesisResult, assess, gap, relevant
from bisect_agent.events import SCHEMA, Attempt, RunState, TrialPlanned
from bisect_agent.evidence import VOTES, Answer, Boundary, Healing, Inquiry, Standing, Table, accused
from bisect_agent.model import (
    FIRST,
    Cached,
    Command,
    Configuration,
    Evidence,
    Failed,
    Frozen,
    Group,
    Pair,
    Passed,
    Playbook,
    Prediction,
    Setting,
    Settled,
    Single,
    StoppedBy,
    Takeover,
    Unresolved,
)
from bisect_agent.rates import interval
from bisect_agent.tree import Control, Node, SymptomResult, evidence_of, grow, said

LATER = 10.0
"""Seconds that a failure comes later than a pass was seen, and half of that time, before it is said."""


class TrialResult(Frozen):
    """One attempt. `started` is in seconds since the epoch, `target` the number of that on which it ran."""

    id: str
    control: Literal["good", "bad", "restore"] | None = None
    parent: str | None
    change: Single | Group | None
    configuration: Configuration
    replicate: int
    attempt: int
    outcome: Literal["passed", "failed", "unresolved"]
    symptom: str | None = None
    reason: str | None = None
    predicted: Mapping[str, Prediction]
    evidence: tuple[Evidence, ...]
    started: float
    seconds: float
    phase: str
    target: int = Field(default=FIRST, exclude_if=lambda number: number == FIRST)


class Rate(Frozen):
    """How often a configuration failed the same, of the runs that told; where its rate lies, but for 5 %.

    `configuration` is written as what it has otherwise than `good`.
    """

    configuration: str
    failed: int
    runs: int
    low: float
    high: float


class Confidence(Frozen):
    """How often each side was seen, in words and numbers.

    Where the failure may be flaky, `asked` is the error that the playbook allows, `error` the one that is
    left: the probability that the failure needs less than what is accused. `rates` are those of both sides
    of each pair.
    """

    failing_runs: int
    passing_runs: int
    statement: str
    asked: float | None = Field(default=None, exclude_if=lambda error: error is None)
    error: float | None = Field(default=None, exclude_if=lambda error: error is None)
    rates: tuple[Rate, ...] = Field(default=(), exclude_if=lambda rates: not rates)


class Verdict(Frozen):
    """What a run concludes. Every sentence names the trial or the line it comes from."""

    established: bool
    cause: tuple[Setting, ...]
    causes: tuple[tuple[Setting, ...], ...]
    symptom: SymptomResult | None
    leads: tuple[SymptomResult, ...]
    hypotheses: tuple[HypothesisResult, ...]
    pairs: tuple[Pair, ...]
    trials: tuple[TrialResult, ...]
    tree: Node
    confidence: Confidence
    unknown: tuple[str, ...]
    good_first: Control
    good_restored: Control
    stopped_by: str
    caches: Cached | None = Field(default=None, exclude_if=lambda cached: cached is None)
    versions: Mapping[str, str]


# --- the whole --------------------------------------------------------------------------------------


def conclude(playbook: Playbook, state: RunState, version: str) -> Verdict:
    """The verdict of a run, from its journal alone."""
    table = Table(playbook, state.settled())
    causes = table.causes
    results = tuple(assess(h, table) for h in relevant(playbook, table))
    symptom = _symptom(next((s for s in table.settled if table.fails(s)), None))
    leads = tuple(result for s in table.leads() if (result := _symptom(s)))
    good_first = _good_first(playbook, table)
    good_restored = _good_restored(playbook, state, good_first)
    unknown = (*_unknown(playbook, table, symptom), *_elsewhere(playbook, table, state))
    stopped = state.concluded.stopped_by if state.concluded else StoppedBy.BUG
    detail = state.concluded.detail if state.concluded else ""
    return Verdict(
        established=bool(causes),
        cause=causes[0] if causes else (),
        causes=causes,
        symptom=symptom,
        leads=leads,
        hypotheses=results,
        pairs=table.pairs,
        trials=tuple(
            _trial(planned, a, a.settled)
            for (name, _), a in state.attempts.items()
            if a.settled and (planned := state.planned.get(name))
        ),
        tree=grow(playbook, table, symptom, results, good_first, good_restored, unknown, stopped, detail),
        confidence=_confidence(table, state),
        unknown=unknown,
        good_first=good_first,
        good_restored=good_restored,
        stopped_by=f"{stopped}: {detail}" if detail else str(stopped),
        caches=playbook.cached,
        versions={"bisect_agent": version, "schema": str(SCHEMA)},
    )


def _symptom(run: Settled | None) -> SymptomResult | None:
    if run is None or not isinstance(run.outcome, Failed):
        return None
    symptom = run.outcome.symptom
    return SymptomResult(
        id=symptom.id,
        phase=symptom.phase,
        text=symptom.text,
        first_rank=symptom.first_rank,
        order=symptom.order,
        evidence=symptom.evidence,
    )


def _trial(planned: TrialPlanned, attempt: Attempt, run: Settled) -> TrialResult:
    outcome = run.outcome
    return TrialResult(
        id=run.trial.id,
        control=run.trial.control,
        parent=run.trial.parent,
        change=run.trial.change,
        configuration=run.trial.configuration,
        replicate=run.trial.replicate,
        attempt=run.attempt,
        outcome=outcome.kind,
        symptom=outcome.symptom.id if isinstance(outcome, Failed) else None,
        reason=f"{outcome.reason}: {outcome.detail}" if isinstance(outcome, Unresolved) else None,
        predicted=planned.predicted,
        evidence=evidence_of(run),
        started=attempt.began,
        seconds=round(max(0.0, attempt.ended - attempt.began), 3),  # the wall clock may be set back
        phase=outcome.symptom.phase if isinstance(outcome, Failed) else attempt.phase,
        target=attempt.target,
    )


def _good_first(playbook: Playbook, table: Table) -> Control:
    runs = table.runs(playbook.good)
    if not runs:
        return Control(ok=None, reason="`good` was not run")
    passed = next((s for s in runs if isinstance(s.outcome, Passed)), None)
    if passed:
        return Control(ok=True, evidence=evidence_of(passed), reason=f"passed in {passed.trial.id}")
    return Control(ok=False, evidence=evidence_of(runs[-1]), reason=said(runs[-1]))


def _good_restored(playbook: Playbook, state: RunState, first: Control) -> Control:
    if playbook.restore == "none":
        return Control(ok=None, reason="the playbook says `restore: none`")
    if state.first.taken_over is not None:
        return _left(state.first.taken_over)
    if isinstance(playbook.restore, Command):
        return _brought_back(state)
    if first.ok is not True:
        return Control(ok=None, reason="`good` never worked in this run: there is nothing to restore")
    if state.out_of_reach:
        reason = "the target gives no answer; its guardian brings `good` up when our lease ends"
        return Control(ok=None, reason=reason)
    run = state.restored()
    if run is None:
        why = state.concluded.stopped_by if state.concluded else StoppedBy.BUG
        return Control(ok=False, reason=f"the restore was not carried out: {why}")
    ok = isinstance(run.outcome, Passed)
    return Control(ok=ok, evidence=evidence_of(run), reason="it runs and answers" if ok else said(run))


def _left(takeover: Takeover) -> Control:
    """What came of a restore that was the guardian's."""
    if takeover.restored is None and not takeover.done:
        return Control(ok=None, reason=f"{takeover.why}: it is at work")
    how = "the guardian has brought it up" if takeover.restored else "nothing was begun"
    return Control(ok=takeover.restored, reason=takeover.wrong or how)


def _brought_back(state: RunState) -> Control:
    """What came of the owners' own command."""
    back = state.brought_back
    if back is None and not state.disturbed:
        return Control(ok=None, reason="nothing was ended or started: there is nothing to restore")
    if back is None:
        return Control(ok=False, reason="the command of `restore` was not run")
    return Control(ok=not back.wrong, reason=back.wrong or "the command of `restore` has brought it back")


def _unknown(playbook: Playbook, table: Table, symptom: SymptomResult | None) -> tuple[str, ...]:
    """What the run does not show, so that nobody reads more into it."""
    if symptom is None:
        return ()
    factors = [*(s.factor for s in playbook.bad.differs(playbook.good)), *playbook.suspects]
    silent = {Standing.NEEDED, Standing.NOT_NEEDED}
    gaps = [gap(f, i) for i in table.inquiries for f in factors if i.standing(f) not in silent]
    boundaries = [(i, found) for i in table.inquiries for f in factors if (found := i.boundary(f))]
    gaps += [said for i, found in boundaries for said in _boundary(i, found)]
    gaps += [said for healing in table.healings() if (said := _another(table, healing))]
    if symptom.order == "not shown":
        gaps.append("which rank failed first: the log's stamps do not show it")
    voiceless = dict.fromkeys(name for run in table.settled for name in run.voiceless)
    gaps += [f"what {name} means: it is also seen while `good` passes, and has no vote" for name in voiceless]
    if playbook.cached == "shared" and playbook.profile is not None:
        gaps.append(
            "what an attempt took from those before it: `caches: shared` lets each find what they compiled"
        )
    untried = [f.name for f in playbook.factors if f.name not in factors]
    if untried:
        gaps.append(f"whether it needs {', '.join(untried)}: not among the suspects")
    return tuple(dict.fromkeys(gaps))


def _elsewhere(playbook: Playbook, table: Table, state: RunState) -> Iterator[str]:
    """What it means that there were several targets: which was not used, which pair lies on two."""
    for number, target in playbook.targets.items():
        if why := state.on(number).left:
            yield f"what target {number} ({target.host}) would have shown: it was left, {why}"
    ran = {name: attempt.target for (name, _), attempt in state.attempts.items()}
    for pair in table.pairs:
        failing = table.runs(state.trial(pair.failing).configuration)
        fails = {ran[s.trial.id]: s.trial.id for s in failing if isinstance(s.outcome, Failed)}
        if (passes := ran[pair.passing]) not in fails:
            yield (
                f"whether {pair.setting} matters on one target alone: {pair.passing} ran on target {passes},"
                f" {' and '.join(fails.values())} elsewhere; on each, `good` works and `bad` fails"
            )


def _boundary(inquiry: Inquiry, found: Boundary) -> Iterator[str]:
    """What stays open of where along an ordered factor the failure begins."""
    table, here = inquiry.table, inquiry.here
    passes, fails = (Setting(factor=found.factor, level=level) for level in (found.heals, found.fails))
    if found.between:
        levels = ", ".join(f"{f.setting.level} {_silence(table, f.configuration)}" for f in found.between)
        yield f"where between {passes}, which passes, and {fails}, which fails, it begins: {levels}"
    run = table.first(here)
    changed = here[found.factor] != table.playbook.bad[found.factor]
    if changed and run.applied.get(found.factor) not in VOTES:
        yield (
            f"whether {fails} took effect: it was not witnessed ({run.trial.id});"
            f" that {found.factor} is read is shown by {passes}, which heals"
        )


def _another(table: Table, healing: Healing) -> str:
    """What is not known of causes beside those found; of what nobody asked for, only what was seen."""
    without, every = accused(healing.settings), table.playbook.every_cause
    if healing.answer is Answer.FAILS:
        more = "" if every else "; `causes: all` looks for it"
        return f"another cause: with {without} it still fails{_trials(table, healing.configuration)}{more}"
    if not every or healing.answer is Answer.HEALS:
        return ""
    return f"whether there is another cause: with {without} it {_silence(table, healing.configuration)}"


def _silence(table: Table, configuration: Configuration) -> str:
    """Why a configuration says nothing."""
    match table.answer(configuration):
        case Answer.NOT_RUN:
            return "was not run"
        case Answer.IMPOSSIBLE:
            return f"cannot be run ({bound(table.playbook, configuration)})"
        case Answer.OTHER:
            return f"fails otherwise{_trials(table, configuration)}"
        case _:
            return f"did not resolve{_trials(table, configuration)}"


def _trials(table: Table, configuration: Configuration) -> str:
    return f" ({', '.join(run.trial.id for run in table.runs(configuration))})"


def _confidence(table: Table, state: RunState) -> Confidence:
    failing = sum(table.fails(s) for s in table.settled)
    passing = sum(isinstance(s.outcome, Passed) for s in table.settled)
    if not table.flaky:
        sides = "; ".join(_failed_again(table, inquiry.here) for inquiry in table.inquiries)
        once = "each other side was run once, so a failure that comes and goes is not excluded"
        return Confidence(failing_runs=failing, passing_runs=passing, statement=f"{sides}; {once}")
    error = max((sum(inquiry.doubts.values()) for inquiry in table.inquiries if inquiry.cause), default=None)
    rates = [rate for inquiry in table.inquiries for rate in _rates(inquiry)]
    said = [*map(_rated, rates), *_times(table, state)]
    if error is not None:
        said.append(f"that less would be enough is {error:.1g} likely, {table.error:g} is allowed")
    return Confidence(
        failing_runs=failing,
        passing_runs=passing,
        statement="; ".join(dict.fromkeys(said)),
        asked=table.error,
        error=error,
        rates=tuple(dict.fromkeys(rates)),
    )


def _rates(inquiry: Inquiry) -> Iterator[Rate]:
    """How often both sides of each pair failed."""
    table = inquiry.table
    sides = [
        inquiry.here,
        *(flip.configuration for s in inquiry.needed for flip in inquiry.remedies(s.factor)),
    ]
    for configuration in dict.fromkeys(sides):
        told = [s for s in table.runs(configuration) if table.fails(s) or isinstance(s.outcome, Passed)]
        failed = sum(map(table.fails, told))
        low, high = interval(failed, len(told))
        name = accused(configuration.differs(table.playbook.good)) or "`good`"
        yield Rate(configuration=name, failed=failed, runs=len(told), low=round(low, 4), high=round(high, 4))


def _rated(rate: Rate) -> str:
    between = f"95 %: {rate.low:.0%} to {rate.high:.0%}"
    return f"{rate.configuration} failed in {rate.failed} of {rate.runs} ({between})"


def _times(table: Table, state: RunState) -> Iterator[str]:
    """How long failures took to come, and how long what passed was watched: a later failure is no fix."""
    seconds = {(trial, a.number): max(0.0, a.ended - a.began) for (trial, _), a in state.attempts.items()}
    taken = [(run, seconds.get((run.trial.id, run.attempt), 0.0)) for run in table.settled]
    failed = [s for run, s in taken if table.fails(run)]
    passed = [s for run, s in taken if isinstance(run.outcome, Passed)]
    if failed and passed:
        later = max(failed) > min(passed) + max(LATER, min(passed) / 2)
        warning = ": a failure that only comes later is not excluded" if later else ""
        yield (
            f"failures came after {min(failed):.1f} to {max(failed):.1f} s,"
            f" and the shortest pass took {min(passed):.1f} s{warning}"
        )


def _failed_again(table: Table, failing: Configuration) -> str:
    playbook, runs = table.playbook, table.runs(failing)
    here = accused(failing.differs(playbook.good))
    name = "`bad`" if failing == playbook.bad else f"`good` with {here}"
    again = sum(map(table.fails, runs))
    return f"{name} failed the same way {again} times out of {len(runs)}"
