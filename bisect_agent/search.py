"""What to try next, and when to stop. Pure.

`good` is run first, then `bad`, then one flip a run from `bad`: each difference set to good's level,
each suspect set to another. What heals is needed. Then whatever of `bad` the failure does not need is
taken away at once (a group, which steers and accuses nobody). Where that does not fail the same, some
settings stand in for each other, and the failure is followed from `bad` towards `good`: one setting
more at a time, for as long as it fails. At the configuration reached each setting left is changed
alone, and each suspect. In the end the failing configuration is run once more, so that the failing side
of every pair was seen to fail after the last passing one.

A cause is a minimal set S of settings: `good` with S fails with the symptom of `bad`, and a failing
configuration that holds S passes when any one of S is set otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bisect_agent.claims import undecided
from bisect_agent.evidence import TRIES, Answer, Table, accused
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
    """The trial of an idea; without a change it is a control, or the present failing configuration again."""
    configuration, change = idea.configuration, idea.change
    replicate = len(table.runs(configuration)) + 1
    if change is None and configuration in (playbook.good, playbook.bad):
        control: Literal["good", "bad"] = "good" if configuration == playbook.good else "bad"
        return Trial(id=name, control=control, configuration=configuration, replicate=replicate)
    failing = table.first(table.walk.here).trial
    if change is None:
        return failing.model_copy(update={"id": name, "replicate": replicate})
    return Trial(id=name, parent=failing.id, change=change, configuration=configuration, replicate=replicate)


def _ideas(playbook: Playbook, table: Table) -> list[_Idea] | Finished:
    """The configurations worth a run now, the most wanted first; or the end.

    Each stage needs the one before it: controls, changes of `bad`, what the failure does not need; then,
    where that was not enough, the walk towards `good` and the same again at the configuration reached;
    in the end the failing configuration once more.
    """
    controls = _good(playbook, table) or _bad(playbook, table)
    if controls:
        return controls
    if run := table.wavering():
        return Finished(
            Stop.NOT_ESTABLISHED, f"{run.trial.id} does not fail each time: one run a side proves nothing"
        )
    if table.walk.ahead:
        return [_step(table, table.walk.ahead)]
    flips = [idea for factor in _by_need(playbook, table) for idea in _flip(table, factor)]
    return flips or _confirm(table)


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
    unresolved = table.symptom is None or table.answer(playbook.bad) is Answer.UNRESOLVED
    if unresolved and (lost := _lost(runs, "bad")):
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
    """The factors to change, most wanted by the open hypotheses first, differences before suspects."""
    open_now = undecided(playbook, table)

    def wish(factor: str) -> int:
        return -sum(factor in (*h.involves, *h.excludes) for h in open_now)

    return sorted(table.stake(), key=wish)


def _name(table: Table) -> str:
    """The present failing configuration, as a person calls it."""
    here = table.walk.here
    return "`bad`" if here == table.playbook.bad else table.first(here).trial.id


def _change(table: Table, setting: Setting, why: str) -> _Idea:
    """One change of the present failing configuration."""
    return _Idea(table.walk.here.replace([setting]), why, Single(setting=setting))


def _flip(table: Table, factor: str) -> list[_Idea]:
    """The next level of a factor to try: none when one heals or all were tried."""
    setting = table.untried(factor)
    if setting is None:
        return []
    here = table.walk.here
    alone = "" if here == table.playbook.bad else f", now that {_name(table)} fails without the rest"
    return [_change(table, setting, f"does the failure need {factor}={here[factor]}{alone}?")]


def _step(table: Table, ahead: Setting) -> _Idea:
    """One setting more as in `good`: a step of the walk."""
    return _change(table, ahead, f"no single change is enough: does {_name(table)} fail with {ahead} too?")


def _confirm(table: Table) -> list[_Idea] | Finished:
    """All changes are in: take away what is not needed, then see the failure once more."""
    here, needed = table.walk.here, table.needed
    rest = table.good_with(needed)
    if needed and table.open(rest):
        away = rest.differs(here)
        why = f"is {accused(needed)} enough? everything else of {_name(table)} is set as in `good`"
        return [_Idea(rest, why, Single(setting=away[0]) if len(away) == 1 else Group(group=away))]
    if needed and table.answer(rest) is Answer.FAILS:
        return _close(table, needed)
    if lost := table.lost():
        return [_change(table, setting, "it was lost on the way: once more") for setting in lost]
    return Finished(*_given_up(table, needed))


def _close(table: Table, needed: Sequence[Setting]) -> list[_Idea] | Finished:
    """The failing side of every pair fails once more, after the last passing trial."""
    here = table.walk.here
    if len(table.pairs) == len(needed):
        return Finished(Stop.CAUSE, f"{accused(needed)} is needed and enough")
    lost = [s for s in table.runs(here) if isinstance(s.outcome, Unresolved)]
    if len(lost) >= TRIES:
        return Finished(Stop.TARGET, f"{_name(table)} could not be run once more")
    return [_Idea(here, "it must fail once more, after the last passing trial")]


def _given_up(table: Table, needed: Sequence[Setting]) -> tuple[Stop, str]:
    """Why nothing is established."""
    name = _name(table)
    if not needed:
        also = "" if name == "`bad`" else f", nor one from {name}, which is nearer to `good`"
        return Stop.NO_CAUSE, f"no single change from `bad` heals{also}"
    seen = "gone" if table.answer(table.good_with(needed)) is Answer.HEALS else "not seen"
    return (
        Stop.NOT_ESTABLISHED,
        f"{accused(needed)} is needed but not enough: with the rest as in `good`, the failure is {seen}",
    )
