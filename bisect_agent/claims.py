"""What the trials say of each hypothesis: predictions before, states after. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from bisect_agent.evidence import Answer, Standing, Table
from bisect_agent.model import Configuration, Frozen, Hypothesis, Playbook, Prediction, Setting, State

Move = tuple[str, State]
"""A hypothesis, and the state that it comes to."""


class HypothesisResult(Frozen):
    """A hypothesis with its state, the trials that decided it, and the sentence that says how."""

    id: str
    claim: str
    state: State
    by: tuple[str, ...]
    because: str


def established(table: Table) -> tuple[Setting, ...]:
    """The established cause, or nothing.

    A cause is a minimal set S of settings: `good` with S fails with the symptom of `bad` (it is enough),
    and a failing configuration that holds S passes when any one of S is set otherwise (each is needed,
    and has a closed pair at that configuration).
    """
    needed = table.needed
    enough = table.answer(table.good_with(needed)) is Answer.FAILS
    return needed if needed and enough and len(table.pairs) == len(needed) else ()


def predict(hypothesis: Hypothesis, playbook: Playbook, configuration: Configuration) -> Prediction:
    """What a hypothesis says that a configuration will do, before it is run.

    A configuration without a setting of `bad` that the claim involves works; one that lacks only what the
    claim excludes fails; of any other the claim says nothing. So it is, too, on the way to `good`, where
    several settings are set otherwise: a claim that is true of one cause of several may be wrong there.
    """
    if hypothesis.missing:
        return "nothing"
    if configuration == playbook.good:
        return "passes"
    changed = {s.factor for s in configuration.differs(playbook.bad)}
    if changed & set(hypothesis.involves):
        return "passes"
    return "fails" if changed <= set(hypothesis.excludes) else "nothing"


@dataclass(frozen=True)
class _Finding:
    state: State
    because: str
    by: tuple[str, ...] = ()


def assess(hypothesis: Hypothesis, table: Table) -> HypothesisResult:
    """The state of one hypothesis after these trials."""
    finding = _contradiction(hypothesis, table) or _support(hypothesis, table)
    return HypothesisResult(
        id=hypothesis.id,
        claim=hypothesis.claim,
        state=finding.state,
        by=tuple(dict.fromkeys(finding.by)),
        because=finding.because,
    )


def undecided(playbook: Playbook, table: Table) -> list[Hypothesis]:
    """The hypotheses that these trials leave open."""
    return [h for h in playbook.hypotheses if assess(h, table).state is State.UNDECIDED]


def _contradiction(hypothesis: Hypothesis, table: Table) -> _Finding | None:
    """A fact or a pair that the claim cannot be true with."""
    for run in table.settled:
        fact = run.contradicts.get(hypothesis.id)
        if fact and table.fails(run):
            return _Finding(
                State.REFUTED,
                f"the log of {run.trial.id}, which fails, says otherwise: {fact.text}",
                (run.trial.id,),
            )
    for factor in hypothesis.involves:
        if innocent := table.witnessed(factor):
            change = Setting(factor=factor, level=innocent.trial.configuration[factor])
            return _Finding(
                State.REFUTED,
                f"with {change}, seen to take effect, it fails the same ({innocent.trial.id})",
                (table.first(table.origin(factor)).trial.id, innocent.trial.id),
            )
    cause = established(table)
    for pair in table.pairs:
        if pair.setting in cause and pair.setting.factor in hypothesis.excludes:
            return _Finding(
                State.REFUTED,
                f"the failure needs {pair.setting}: {pair.failing} fails, {pair.passing} passes,"
                f" {pair.again} fails again",
                (pair.failing, pair.passing, pair.again),
            )
    return None


def _support(hypothesis: Hypothesis, table: Table) -> _Finding:
    """Whether an established cause bears the claim out; the sentence says what is missing if not."""
    if hypothesis.missing:
        return _Finding(State.UNDECIDED, f"no factor of the playbook plays {', '.join(hypothesis.missing)}")
    gaps = [said for factor in _unsettled(hypothesis, table) if (said := gap(factor, table))]
    if gaps:
        return _Finding(State.UNDECIDED, "; ".join(gaps))
    cause = established(table)
    if not cause:
        return _Finding(State.UNDECIDED, "no cause is established")
    pairs = [p for p in table.pairs if p.setting.factor in hypothesis.involves]
    innocent = [run for f in hypothesis.excludes if (run := table.witnessed(f))]
    by = [name for p in pairs for name in (p.failing, p.passing, p.again)]
    by += [run.trial.id for run in innocent]
    return _Finding(State.SUPPORTED, _fits(hypothesis, table, cause), tuple(by))


def _fits(hypothesis: Hypothesis, table: Table, cause: Sequence[Setting]) -> str:
    """How a cause bears a claim out."""
    needs = [str(s) for s in cause if s.factor in hypothesis.involves] or [str(s) for s in cause]
    spared = [
        f"{factor}={table.playbook.bad[factor]} ({run.trial.id})"
        for factor in hypothesis.excludes
        if (run := table.witnessed(factor))
    ]
    without = f", and does not need {' or '.join(spared)}" if spared else ""
    return f"the failure needs {' and '.join(needs)}{without}"


def _unsettled(hypothesis: Hypothesis, table: Table) -> list[str]:
    """The factors of a claim that do not stand as the claim needs them to."""
    return [f for f in hypothesis.involves if table.standing(f) is not Standing.NEEDED] + [
        f for f in hypothesis.excludes if table.standing(f) is not Standing.NOT_NEEDED
    ]


def gap(factor: str, table: Table) -> str:
    """What is missing to say whether the failure needs a factor."""
    standing = table.standing(factor)
    origin = table.origin(factor)
    place = "" if origin == table.playbook.bad else f" from {table.first(origin).trial.id}"
    trials = ", ".join(flip.run.trial.id for flip in table.flips(factor))
    changed = f"{factor} was changed{place} in {trials}"
    match standing:
        case Standing.NOT_WITNESSED:
            return f"{changed} and it fails the same, but the change was not witnessed"
        case Standing.NOT_APPLIED:
            return f"{changed}, but not witnessed: the log shows another level"
        case Standing.NOT_RUN:
            return f"{factor} was not changed in any trial{place}"
        case Standing.UNRESOLVED:
            return f"{changed}, which did not resolve"
        case Standing.OTHER_FAILURE:
            return f"with {factor} changed{place} it fails otherwise ({trials})"
        case Standing.NEEDED:
            return f"the pair of {factor}={origin[factor]} is not closed"
        case Standing.NOT_NEEDED:
            return ""
        case _:
            assert_never(standing)


def moves(playbook: Playbook, table: Table, now: Mapping[str, str], *, last: bool = False) -> Iterator[Move]:
    """How the hypotheses move from the states they have, `now`, to what the trials say.

    One that was decided and is to be decided otherwise is undecided in between. One that nothing has
    decided stays open until the `last` trial has settled.
    """
    for hypothesis in playbook.hypotheses:
        before, said = now.get(hypothesis.id), assess(hypothesis, table).state
        if before == said:
            continue
        decided = before in {State.SUPPORTED, State.REFUTED}
        if decided or (last and said is State.UNDECIDED):
            yield hypothesis.id, State.UNDECIDED
        if said is not State.UNDECIDED:
            yield hypothesis.id, said
