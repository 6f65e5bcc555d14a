"""The verdict as a tree of sentences, each with the lines it rests on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from bisect_agent.bounds import bound
from bisect_agent.claims import HypothesisResult
from bisect_agent.evidence import Answer, Flip, Inquiry, Table, accused
from bisect_agent.model import (
    Evidence,
    Failed,
    Frozen,
    Passed,
    Playbook,
    Settled,
    State,
    StoppedBy,
    Unresolved,
)

FEW = 2
"""So many settings are named beside the one that heals; of more, how many they are."""


class Node(Frozen):
    """A sentence of the verdict tree, the lines it rests on, and what it is made of."""

    text: str
    evidence: tuple[Evidence, ...] = ()
    children: tuple[Node, ...] = ()


class Control(Frozen):
    """Whether `good` was seen to work; `ok` is None where it was not tried."""

    ok: bool | None
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""


class SymptomResult(Frozen):
    """The failure under investigation."""

    id: str
    phase: str
    text: str
    first_rank: str | None
    order: str
    evidence: tuple[Evidence, ...]


def evidence_of(run: Settled) -> tuple[Evidence, ...]:
    """The lines that a run's outcome rests on."""
    if isinstance(run.outcome, Failed):
        return run.outcome.symptom.evidence
    return run.outcome.evidence


def said(run: Settled) -> str:
    """What a run did, as the end of a sentence."""
    match run.outcome:
        case Passed():
            return "passes"
        case Failed(symptom=symptom):
            phase = f" in {symptom.phase}" if symptom.phase else ""
            return f"fails with {symptom.id}{phase}"
        case Unresolved(reason=reason, detail=detail):
            return f"does not resolve: {reason}: {detail}"
        case _:
            assert_never(run.outcome)


def grow(  # noqa: PLR0913, PLR0917  # a report names all its parts once
    playbook: Playbook,
    table: Table,
    symptom: SymptomResult | None,
    results: Sequence[HypothesisResult],
    good_first: Control,
    good_restored: Control,
    unknown: Sequence[str],
    stopped: StoppedBy,
    detail: str,
) -> Node:
    """The tree: controls, the failure, each change, each hypothesis, advice, what stays unknown."""
    children = [
        Node(text=f"good first: {_mark(good_first)}", evidence=good_first.evidence),
        *_failure(symptom),
        *_answers(table),
        *_listed("levels", _levels(table)),
        *_claims(playbook, table, results),
        *_listed("advice", _advice(playbook, table, results)),
        *_listed("unknown", unknown),
        Node(text=f"good restored: {_mark(good_restored)}", evidence=good_restored.evidence),
    ]
    return Node(text=_headline(table, stopped, detail), children=tuple(children))


def _headline(table: Table, stopped: StoppedBy, detail: str) -> str:
    match table.causes:
        case ():
            return f"not established: {detail or stopped}"
        case (cause,):
            return f"{accused(cause)} is the cause"
        case causes:
            return f"{' and '.join(accused(cause) for cause in causes)} are causes, each by itself"


def _mark(control: Control) -> str:
    word = {True: "yes", False: "NO", None: "not tried"}[control.ok]
    return f"{word}, {control.reason}"


def _failure(symptom: SymptomResult | None) -> list[Node]:
    if symptom is None:
        return []
    where = f" in {symptom.phase}" if symptom.phase else ""
    first = f"; {symptom.first_rank} failed first" if symptom.first_rank else ""
    return [Node(text=f"bad fails with {symptom.id}{where}{first}", evidence=symptom.evidence)]


def _answers(table: Table) -> list[Node]:
    """One node a trial that changed something: what was asked and what came back."""
    named = {"good": table.playbook.good, "bad": table.playbook.bad}
    called = {s.trial.id: name for name, side in named.items() for s in table.runs(side)}
    nodes = []
    for run in table.settled:
        if run.trial.change is None:
            continue
        settings = run.trial.change.settings()
        witness = [run.witnesses[s.factor] for s in settings if s.factor in run.witnesses]
        seen = [f"{s}: {run.applied[s.factor]}" for s in settings if s.factor in run.applied]
        note = f" ({', '.join(seen)})" if seen and not isinstance(run.outcome, Passed) else ""
        parent = called.get(str(run.trial.parent), run.trial.parent)
        change = accused(settings) if len(settings) == 1 else f"the group {', '.join(map(str, settings))}"
        text = f"{run.trial.id}: {parent} with {change} {said(run)}{note}"
        nodes.append(Node(text=text, evidence=(*evidence_of(run)[:1], *witness)))
    return [Node(text="one change at a time", children=tuple(nodes))] if nodes else []


def _levels(table: Table) -> list[str]:
    """What each level of a factor with more than two does where the failure was looked at."""
    found = [
        _levels_of(inquiry, factor.name)
        for inquiry in table.inquiries
        for factor in table.playbook.factors
        if inquiry.flips(factor.name)
    ]
    return list(dict.fromkeys(line for line in found if line))


def _levels_of(inquiry: Inquiry, factor: str) -> str:
    flips = inquiry.listed(factor)
    if len(flips) == 1:
        return ""
    present = inquiry.origin(factor)[factor]
    return f"{factor}={present} fails, {', '.join(_level(inquiry.table, flip) for flip in flips)}"


def _level(table: Table, flip: Flip) -> str:
    """What is known of one level."""
    if flip.answer is Answer.IMPOSSIBLE:
        return f"{flip.setting.level} cannot be run ({bound(table.playbook, flip.configuration)})"
    return f"{flip.setting.level} {f'{said(flip.run)} ({flip.run.trial.id})' if flip.runs else 'was not run'}"


def _claims(playbook: Playbook, table: Table, results: Sequence[HypothesisResult]) -> list[Node]:
    runs = {s.trial.id: s for s in table.settled}
    nodes = []
    for result in results:
        deciding = [runs[name] for name in result.by if name in runs]
        facts = [run.contradicts[result.id] for run in deciding if result.id in run.contradicts]
        witness = [
            run.witnesses[s.factor]
            for run in deciding
            if run.trial.change
            for s in run.trial.change.settings()
            if s.factor in run.witnesses and s.factor in _named(playbook, result.id)
        ]
        lines = [line for run in deciding for line in evidence_of(run)[:1]]
        text = f"{result.state}: {result.id}: {result.because}"
        nodes.append(Node(text=text, evidence=tuple(dict.fromkeys((*facts, *witness, *lines)))))
    return [Node(text="hypotheses", children=tuple(nodes))] if nodes else []


def _named(playbook: Playbook, name: str) -> tuple[str, ...]:
    return next((*h.involves, *h.excludes) for h in playbook.hypotheses if h.id == name)


def _advice(playbook: Playbook, table: Table, results: Sequence[HypothesisResult]) -> list[str]:
    """What heals, seen; and what the supported hypotheses advise."""
    said = []
    trials = {run.trial.id: run.trial for run in table.settled}
    for pair in table.pairs:
        passing = trials[pair.passing].configuration
        (change,) = passing.differs(trials[pair.failing].configuration)
        others = [s for s in passing.differs(table.playbook.bad) if s != change]
        rest = accused(others) if len(others) <= FEW else f"{len(others)} other settings as in `good`"
        beside = f" with {rest}" if others else ""
        said.append(f"{change}{beside} heals it ({pair.passing}); what it costs was not measured")
    supported = {r.id for r in results if r.state is State.SUPPORTED}
    said += [h.advice for h in playbook.hypotheses if h.id in supported and h.advice]
    return list(dict.fromkeys(said))


def _listed(title: str, sentences: Sequence[str]) -> list[Node]:
    nodes = tuple(Node(text=sentence) for sentence in sentences)
    return [Node(text=title, children=nodes)] if nodes else []
