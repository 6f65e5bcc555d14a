"""What the trials say of each hypothesis: predictions before, states after. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from bisect_agent.evidence import Inquiry, Standing, Table, accused
from bisect_agent.model import (
    Applied,
    Configuration,
    Frozen,
    Hypothesis,
    Playbook,
    Prediction,
    Setting,
    State,
    SymptomKind,
)

Move = tuple[str, State]
"""A hypothesis, and the state that it comes to."""


class HypothesisResult(Frozen):
    """A hypothesis with its state, the trials that decided it, and the sentence that says how."""

    id: str
    claim: str
    state: State
    by: tuple[str, ...]
    because: str


def predict(hypothesis: Hypothesis, playbook: Playbook, configuration: Configuration) -> Prediction:
    """What a hypothesis says that a configuration will do, before it is run.

    A configuration without a setting of `bad` that the claim involves works; one that lacks only what the
    claim excludes fails; of any other the claim says nothing. So it is, too, on the way to `good`, where
    several settings are set otherwise: a claim that is true of one cause of several may be wrong there.
    At which level of an ordered factor the failure begins, no claim says.
    """
    if hypothesis.missing:
        return "nothing"
    if configuration == playbook.good:
        return "passes"
    changed = {s.factor for s in configuration.differs(playbook.bad)}
    between = {f for f in changed if playbook.factor(f).ordered and configuration[f] != playbook.good[f]}
    if (changed - between) & set(hypothesis.involves):
        return "passes"
    return "fails" if changed <= set(hypothesis.excludes) else "nothing"


_SHOWN = {SymptomKind.HANG: "hang", SymptomKind.ANSWER: "answer"}
"""Classes of failure that no line of a log shows."""
_UNSAID = frozenset({"engine-exit"})
"""Classes that do not say why: any other may be behind them."""
_PLAIN = frozenset({"hang", "device-memory", "host-memory", "cache-memory", "shared-memory"})
"""Classes of failure that always show as what they are: what no signature knows is none of these."""


def relevant(playbook: Playbook, table: Table) -> tuple[Hypothesis, ...]:
    """The hypotheses that speak of the failure under investigation; all, before it was seen."""
    symptom = table.symptom
    if symptom is None:
        return playbook.hypotheses
    signatures = (*playbook.observe.signatures, *playbook.signatures)
    topic = _SHOWN.get(symptom.kind, "")
    if symptom.kind is SymptomKind.SIGNATURE:
        topic = next((s.topic for s in signatures if s.id == symptom.id), "")
    if topic in _UNSAID:
        topic = ""
    return tuple(
        h
        for h in playbook.hypotheses
        if not h.topics or (topic in h.topics if topic else not _PLAIN.issuperset(h.topics))
    )


@dataclass(frozen=True)
class _Finding:
    state: State
    because: str
    by: tuple[str, ...] = ()


def assess(hypothesis: Hypothesis, table: Table) -> HypothesisResult:
    """The state of one hypothesis after these trials.

    Supported: true of an established cause. Refuted: a fact says so, or each search for a cause does.
    """
    finding = _fact(hypothesis, table) or _together(
        [_contradiction(hypothesis, i) or _support(hypothesis, i) for i in table.inquiries]
    )
    return HypothesisResult(
        id=hypothesis.id,
        claim=hypothesis.claim,
        state=finding.state,
        by=tuple(dict.fromkeys(finding.by)),
        because=finding.because,
    )


def undecided(playbook: Playbook, table: Table) -> list[Hypothesis]:
    """The hypotheses that these trials leave open."""
    return [h for h in relevant(playbook, table) if assess(h, table).state is State.UNDECIDED]


def _together(findings: list[_Finding]) -> _Finding:
    """What all searches for a cause say of a claim."""
    for state in (State.SUPPORTED, State.UNDECIDED):
        if found := next((f for f in findings if f.state is state), None):
            return found
    because = "; ".join(dict.fromkeys(f.because for f in findings))
    return _Finding(State.REFUTED, because, tuple(name for f in findings for name in f.by))


def _fact(hypothesis: Hypothesis, table: Table) -> _Finding | None:
    """A line of a failing log that the claim cannot be true with."""
    for run in table.settled:
        fact = run.contradicts.get(hypothesis.id)
        if fact and table.fails(run):
            return _Finding(
                State.REFUTED,
                f"the log of {run.trial.id}, which fails, says otherwise: {fact.text}",
                (run.trial.id,),
            )
    return None


def _contradiction(hypothesis: Hypothesis, inquiry: Inquiry) -> _Finding | None:
    """A pair, or a change seen to take effect, that the claim cannot be true with."""
    for factor in hypothesis.involves:
        if innocent := inquiry.witnessed(factor):
            change = Setting(factor=factor, level=innocent.trial.configuration[factor])
            seen = innocent.applied[factor] is Applied.WITNESSED
            known = "seen to take effect" if seen else "which this version reads"
            return _Finding(
                State.REFUTED,
                f"with {change}, {known}, it fails the same ({innocent.trial.id})",
                (inquiry.table.first(inquiry.origin(factor)).trial.id, innocent.trial.id),
            )
    for pair in inquiry.pairs if inquiry.cause else ():
        if pair.setting.factor in hypothesis.excludes:
            return _Finding(
                State.REFUTED,
                f"the failure needs {pair.setting}: {pair.failing} fails, {pair.passing} passes,"
                f" {pair.again} fails again",
                (pair.failing, pair.passing, pair.again),
            )
    return None


def _support(hypothesis: Hypothesis, inquiry: Inquiry) -> _Finding:
    """Whether an established cause bears the claim out; the sentence says what is missing if not."""
    if hypothesis.missing:
        return _Finding(State.UNDECIDED, f"no factor of the playbook plays {', '.join(hypothesis.missing)}")
    gaps = [said for factor in _unsettled(hypothesis, inquiry) if (said := gap(factor, inquiry))]
    if gaps:
        return _Finding(State.UNDECIDED, "; ".join(gaps))
    if not inquiry.cause:
        return _Finding(State.UNDECIDED, "no cause is established")
    pairs = [p for p in inquiry.pairs if p.setting.factor in hypothesis.involves]
    innocent = [run for f in hypothesis.excludes if (run := inquiry.witnessed(f))]
    by = [name for p in pairs for name in (p.failing, p.passing, p.again)]
    by += [run.trial.id for run in innocent]
    return _Finding(State.SUPPORTED, _fits(hypothesis, inquiry), tuple(by))


def _fits(hypothesis: Hypothesis, inquiry: Inquiry) -> str:
    """How a cause bears a claim out."""
    cause = inquiry.cause
    needs = [str(s) for s in cause if s.factor in hypothesis.involves] or [str(s) for s in cause]
    spared = [
        f"{factor}={inquiry.table.playbook.bad[factor]} ({run.trial.id})"
        for factor in hypothesis.excludes
        if (run := inquiry.witnessed(factor))
    ]
    without = f", and does not need {' or '.join(spared)}" if spared else ""
    return f"the failure needs {' and '.join(needs)}{without}"


def _unsettled(hypothesis: Hypothesis, inquiry: Inquiry) -> list[str]:
    """The factors of a claim that do not stand as the claim needs them to."""
    return [f for f in hypothesis.involves if inquiry.standing(f) is not Standing.NEEDED] + [
        f for f in hypothesis.excludes if inquiry.standing(f) is not Standing.NOT_NEEDED
    ]


def gap(factor: str, inquiry: Inquiry) -> str:
    """What is missing to say whether the failure needs a factor."""
    standing = inquiry.standing(factor)
    origin = inquiry.origin(factor)
    bad = inquiry.table.playbook.bad
    place = "" if origin == bad else f" from {inquiry.table.first(origin).trial.id}"
    trials = ", ".join(flip.run.trial.id for flip in inquiry.flips(factor))
    changed = f"{factor} was changed{place} in {trials}"
    match standing:
        case Standing.NOT_WITNESSED:
            return f"{changed} and it fails the same, but the change was not witnessed"
        case Standing.NOT_APPLIED:
            return f"{changed}, but not witnessed: the log shows another level"
        case Standing.NOT_RUN:
            return _not_run(factor, inquiry, place)
        case Standing.UNRESOLVED:
            return f"{changed}, which did not resolve"
        case Standing.OTHER_FAILURE:
            return f"with {factor} changed{place} it fails otherwise ({trials})"
        case Standing.BOUND:
            forbid = "; ".join(inquiry.bounds(factor))
            if factor in inquiry.kept:
                alone = f"{accused(inquiry.needed)} is enough without {factor}={origin[factor]}"
                return f"whether {alone} cannot be run: {forbid}"
            return f"{factor} could not be changed{place}: {forbid}"
        case Standing.NEEDED:
            return f"the pair of {factor}={origin[factor]} is not closed"
        case Standing.NOT_NEEDED:
            return ""
        case _:
            assert_never(standing)


def _not_run(factor: str, inquiry: Inquiry, place: str) -> str:
    said = f"{factor} was not changed in any trial{place}"
    if inquiry.table.playbook.factor(factor).ordered and not inquiry.listed(factor):
        return f"{said}: its levels are ordered, and none lies between those of `good` and `bad`"
    return said


def moves(playbook: Playbook, table: Table, now: Mapping[str, str], *, last: bool = False) -> Iterator[Move]:
    """How the hypotheses move from the states they have, `now`, to what the trials say.

    One that was decided and is to be decided otherwise is undecided in between. One that nothing has
    decided stays open until the `last` trial has settled. One that speaks of other failures does not move.
    """
    for hypothesis in relevant(playbook, table):
        before, said = now.get(hypothesis.id), assess(hypothesis, table).state
        if before == said:
            continue
        decided = before in {State.SUPPORTED, State.REFUTED}
        if decided or (last and said is State.UNDECIDED):
            yield hypothesis.id, State.UNDECIDED
        if said is not State.UNDECIDED:
            yield hypothesis.id, said
