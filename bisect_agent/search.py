"""What to try next, and when to stop. Pure.

`good` is run first, then `bad`, then one flip a run from `bad`: each difference set to good's level,
each suspect set to another. What heals is needed. Then whatever of `bad` the failure does not need is
taken away at once (a group, which steers and accuses nobody), and `bad` is run once more, so that the
failing side of every pair was seen to fail after the last passing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bisect_agent.claims import undecided
from bisect_agent.evidence import Answer, Table, accused
from bisect_agent.model import (
    RETRIED,
    Configuration,
    Failed,
    Group,
    Passed,
    Playbook,
    Setting,
    Settled,
    Single,
    Trial,
    Unresolved,
)
from bisect_agent.model import StoppedBy as Stop

PASSES = 3
"""How often `bad` is run before it is believed not to fail."""
CONTROLS = 2
"""How often `good` is run before it is believed not to work."""


@dataclass(frozen=True)
class Wanted:
    """A trial to run, and the sentence that says why."""

    trial: Trial
    why: str


@dataclass(frozen=True)
class Next:
    """Trials to start now; none while those in flight must land first."""

    wanted: tuple[Wanted, ...]


@dataclass(frozen=True)
class Finished:
    """The search is over."""

    by: Stop
    detail: str = ""


@dataclass(frozen=True)
class _Idea:
    """A configuration worth a run."""

    configuration: Configuration
    why: str
    change: Single | Group | None = None


def step(
    playbook: Playbook, settled: Sequence[Settled], in_flight: Sequence[Trial], capacity: int
) -> Next | Finished:
    """The next trials, at most `capacity` beside those in flight, or the end of the search.

    On entry every trial of `settled` has had its last word. Whatever the order in which trials
    settle, a configuration is never started twice at a time, and no trial changes two factors except
    as a group.
    """
    table = Table(playbook, settled)
    ideas = _ideas(playbook, table)
    if isinstance(ideas, Finished):
        return ideas
    flying = {trial.configuration for trial in in_flight}
    room = max(0, capacity - len(in_flight))
    fresh = [idea for idea in ideas if idea.configuration not in flying][:room]
    first = len(settled) + len(in_flight) + 1
    return Next(
        tuple(
            Wanted(_trial(playbook, table, idea, f"t{number:02}"), idea.why)
            for number, idea in enumerate(fresh, start=first)
        )
    )


def _trial(playbook: Playbook, table: Table, idea: _Idea, name: str) -> Trial:
    configuration = idea.configuration
    replicate = len(table.runs(configuration)) + 1
    if idea.change is None:
        control: Literal["good", "bad"] = "good" if configuration == playbook.good else "bad"
        return Trial(id=name, control=control, configuration=configuration, replicate=replicate)
    parent = table.runs(playbook.bad)[0].trial.id
    return Trial(id=name, parent=parent, change=idea.change, configuration=configuration, replicate=replicate)


def _ideas(playbook: Playbook, table: Table) -> list[_Idea] | Finished:
    """The configurations worth a run now, the most wanted first; or the end.

    Each stage needs the one before it: controls, flips, what the failure does not need, `bad` again.
    """
    controls = _good(playbook, table) or _bad(playbook, table)
    if controls:
        return controls
    flips = [idea for factor in _by_need(playbook, table) for idea in _flip(playbook, table, factor)]
    return flips or _confirm(playbook, table)


def _good(playbook: Playbook, table: Table) -> list[_Idea] | Finished | None:
    """`good` must be seen to work: None when it was."""
    runs = table.runs(playbook.good)
    failed = [s.outcome.symptom for s in runs if isinstance(s.outcome, Failed)]
    same_as_bad = [x for x in failed if table.symptom and x.same_as(table.symptom)]
    if lost := _lost(runs, "good"):
        return lost
    if same_as_bad:
        return Finished(Stop.GOOD_FAILS, f"`good` fails with the symptom of `bad`: {same_as_bad[0].text}")
    if len(failed) >= CONTROLS:
        return Finished(Stop.GOOD_FAILS, f"`good` failed {len(failed)} times: {failed[-1].text}")
    if any(isinstance(s.outcome, Passed) for s in runs):
        return None
    why = "it failed once: run it again" if failed else "it must be seen to work first"
    return [_Idea(playbook.good, why)]


def _bad(playbook: Playbook, table: Table) -> list[_Idea] | Finished | None:
    """`bad` must be seen to fail, the same way each time: None when it was."""
    runs = table.runs(playbook.bad)
    passed = [s for s in runs if isinstance(s.outcome, Passed)]
    if lost := _lost(runs, "bad"):
        return lost
    if passed and table.symptom:
        return Finished(Stop.NOT_ESTABLISHED, "`bad` fails only sometimes: one run a side proves nothing")
    if table.answer(playbook.bad) is Answer.OTHER:
        return Finished(Stop.NOT_ESTABLISHED, "`bad` fails in more than one way")
    if len(passed) >= PASSES:
        return Finished(Stop.BAD_PASSES, f"`bad` passed {len(passed)} times")
    if table.symptom:
        return None
    why = "it passed: run it again" if passed else "it must be seen to fail"
    return [_Idea(playbook.bad, why)]


def _lost(runs: Sequence[Settled], name: str) -> Finished | None:
    """A control that did not resolve ends the search: no other run would mean anything."""
    for run in runs:
        if isinstance(run.outcome, Unresolved):
            by = Stop.TARGET if run.outcome.reason in RETRIED else Stop.NOT_ESTABLISHED
            return Finished(by, f"`{name}` could not be run: {run.outcome.reason}: {run.outcome.detail}")
    return None


def _by_need(playbook: Playbook, table: Table) -> list[str]:
    """The factors to flip, most wanted by the open hypotheses first, differences before suspects."""
    open_now = undecided(playbook, table)
    differences = [s.factor for s in playbook.bad.differs(playbook.good)]

    def wish(factor: str) -> tuple[int, bool]:
        return -sum(factor in (*h.involves, *h.excludes) for h in open_now), factor not in differences

    return sorted((*differences, *playbook.suspects), key=wish)


def _flip(playbook: Playbook, table: Table, factor: str) -> list[_Idea]:
    """The next level of a factor to try from `bad`: none when one heals or all were tried."""
    for level in table.levels(factor):
        setting = Setting(factor=factor, level=level)
        configuration = playbook.bad.replace([setting])
        answer = table.answer(configuration)
        if answer is Answer.HEALS:
            return []
        if answer is Answer.NOT_RUN:
            was = playbook.bad[factor]
            why = f"does the failure need {factor}={was}?"
            return [_Idea(configuration, why, Single(setting=setting))]
    return []


def _confirm(playbook: Playbook, table: Table) -> list[_Idea] | Finished:
    """All flips are in: take away what is not needed, then see `bad` fail once more."""
    needed = table.needed()
    if not needed:
        return Finished(Stop.NO_CAUSE, "no single change from `bad` heals")
    rest = table.good_with(needed)
    away = rest.differs(playbook.bad)
    answer = table.answer(rest)
    if answer is Answer.NOT_RUN:
        why = f"is {accused(needed)} enough? everything else of `bad` is set as in `good`"
        return [_Idea(rest, why, Single(setting=away[0]) if len(away) == 1 else Group(group=away))]
    if answer is not Answer.FAILS:
        return Finished(
            Stop.NOT_ESTABLISHED,
            f"{accused(needed)} is needed but not enough: with the rest as in `good`, the failure "
            + ("is gone" if answer is Answer.HEALS else "is not seen"),
        )
    if len(table.pairs()) < len(needed):
        return [_Idea(playbook.bad, "it must fail once more, after the last passing trial")]
    return Finished(Stop.CAUSE, f"{accused(needed)} is needed and enough")
