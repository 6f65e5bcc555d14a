"""What to try next, and when to stop. Pure.

`good` is run first, then `bad`, then one flip a run from `bad`: each difference set to good's level,
each suspect set to another. What heals is needed. An ordered factor that is needed is halved first: from
then on it stands at the first of its levels that fails. Then whatever of `bad` the failure does not need
is taken away at once (a group, which steers and accuses nobody). Where that does not fail the same, some
settings stand in for each other, and the failure is followed from `bad` towards `good`: one setting
more at a time, for as long as it fails. At the configuration reached each setting left is changed
alone, and each suspect. In the end the failing configuration is run once more, so that the failing side
of every pair was seen to fail after the last passing one.

Where every cause is asked for, one setting of each cause found is then set in `bad` so that it heals, in
all smallest ways. What still fails the same has another cause, and is searched like `bad`.

No configuration is run that the bounds of a factor's levels forbid. A group is then as large as they
allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from bisect_agent.claims import undecided
from bisect_agent.evidence import TRIES, Ahead, Answer, Inquiry, Table, accused
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
    """A configuration worth a run: a control, or a failing one with a change, or without one once more."""

    configuration: Configuration
    why: str
    failing: Configuration | None = None
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
    """The trial of an idea."""
    configuration, change = idea.configuration, idea.change
    replicate = len(table.runs(configuration)) + 1
    if idea.failing is None or (change is None and configuration == playbook.bad):
        control: Literal["good", "bad"] = "good" if configuration == playbook.good else "bad"
        return Trial(id=name, control=control, configuration=configuration, replicate=replicate)
    failing = table.first(idea.failing).trial
    if change is None:
        return failing.model_copy(update={"id": name, "replicate": replicate})
    return Trial(id=name, parent=failing.id, change=change, configuration=configuration, replicate=replicate)


def _ideas(playbook: Playbook, table: Table) -> list[_Idea] | Finished:
    """The configurations worth a run now, the most wanted first; or the end.

    Each stage needs the one before it: controls; the levels of ordered factors; changes of `bad`, what
    the failure does not need; then, where that was not enough, the walk towards `good` and the same again at
    the configuration reached; then the failing configuration once more; in the end, other causes.
    """
    controls = _good(playbook, table) or _bad(playbook, table)
    if controls:
        return controls
    if run := table.wavering():
        by = Stop.CAUSE if table.causes else Stop.NOT_ESTABLISHED
        return Finished(by, f"{run.trial.id} does not fail each time: one run a side proves nothing")
    inquiry = table.inquiry
    if inquiry.walk.ahead:
        return [_step(inquiry, inquiry.walk.ahead)]
    return _flips(playbook, table, inquiry) or _confirm(table, inquiry)


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


def _flips(playbook: Playbook, table: Table, inquiry: Inquiry) -> list[_Idea]:
    """The next level of each factor to try, most wanted by the open hypotheses first.

    None where one heals or all were tried. Differences come before suspects.
    """
    flips = [setting for factor in inquiry.stake() if (setting := inquiry.untried(factor))]
    open_now = undecided(playbook, table) if len(flips) > 1 else []

    def wish(setting: Setting) -> int:
        return -sum(setting.factor in (*h.involves, *h.excludes) for h in open_now)

    return [_change(inquiry, s, _needs(inquiry, s.factor)) for s in sorted(flips, key=wish)]


def _name(inquiry: Inquiry) -> str:
    """The present failing configuration, as a person calls it."""
    return _called(inquiry.table, inquiry.walk.here)


def _called(table: Table, failing: Configuration) -> str:
    return "`bad`" if failing == table.playbook.bad else table.first(failing).trial.id


def _change(inquiry: Inquiry, setting: Setting, why: str) -> _Idea:
    """One change of the present failing configuration."""
    here = inquiry.walk.here
    return _Idea(here.replace([setting]), why, here, Single(setting=setting))


def _needs(inquiry: Inquiry, factor: str) -> str:
    here = inquiry.walk.here
    nearer = here != inquiry.table.playbook.bad
    alone = f", now that {_name(inquiry)} fails nearer to `good`" if nearer else ""
    return f"does the failure need {factor}={here[factor]}{alone}?"


def _step(inquiry: Inquiry, ahead: Ahead) -> _Idea:
    """A change that decides where the search goes on."""
    setting = ahead.setting
    match ahead.asks:
        case "needs":
            why = _needs(inquiry, setting.factor)
        case "begins":
            why = (
                f"at which level of {setting.factor} does the failure begin? {setting.level} is about halfway"
            )
        case "without":
            why = f"no single change is enough: does {_name(inquiry)} fail with {setting} too?"
        case _:
            assert_never(ahead.asks)
    return _change(inquiry, setting, why)


def _confirm(table: Table, inquiry: Inquiry) -> list[_Idea] | Finished:
    """All changes are in: take away what is not needed, then see the failure once more."""
    here, needed, rest = inquiry.walk.here, inquiry.needed, inquiry.rest
    if needed and table.open(rest):
        away = rest.differs(here)
        whole = rest == table.playbook.good.replace(needed)
        what = "everything else" if whole else "what can be of everything else"
        why = f"is {accused(needed)} enough? {what} of {_name(inquiry)} is set as in `good`"
        change = Single(setting=away[0]) if len(away) == 1 else Group(group=away)
        return [_Idea(rest, why, here, change)]
    if needed and table.answer(rest) is Answer.FAILS:
        return _close(table, inquiry)
    if lost := inquiry.lost():
        return [_change(inquiry, setting, "it was lost on the way: once more") for setting in lost]
    by, detail = _given_up(inquiry)
    if table.causes:
        return Finished(
            Stop.CAUSE, f"{_found(table)}; of what {_called(table, inquiry.start)} shows, {detail}"
        )
    return Finished(by, detail)


def _close(table: Table, inquiry: Inquiry) -> list[_Idea] | Finished:
    """The failing side of every pair fails once more, after the last passing trial."""
    here = inquiry.walk.here
    if inquiry.cause:
        return _others(table)
    lost = [s for s in table.runs(here) if isinstance(s.outcome, Unresolved)]
    if len(lost) >= TRIES:
        return Finished(Stop.TARGET, f"{_name(inquiry)} could not be run once more")
    return [_Idea(here, "it must fail once more, after the last passing trial", here)]


def _others(table: Table) -> list[_Idea] | Finished:
    """A cause is established: where every cause is asked for, look for where another one shows."""
    if not table.playbook.every_cause or (ahead := table.ahead()) is None:
        return Finished(Stop.CAUSE, _found(table))
    failing, setting = ahead
    why = f"is there another cause? does {_called(table, failing)} still fail with {setting}?"
    return [_Idea(failing.replace([setting]), why, failing, Single(setting=setting))]


def _found(table: Table) -> str:
    """The causes established, in a sentence."""
    return "; ".join(f"{accused(cause)} is needed and enough" for cause in table.causes)


def _given_up(inquiry: Inquiry) -> tuple[Stop, str]:
    """Why nothing is established."""
    name, start = _name(inquiry), _called(inquiry.table, inquiry.start)
    if not inquiry.needed:
        also = "" if name == start else f", nor one from {name}, which is nearer to `good`"
        return Stop.NO_CAUSE, f"no single change from {start} heals{also}"
    seen = "gone" if inquiry.table.answer(inquiry.rest) is Answer.HEALS else "not seen"
    needed = f"{accused(inquiry.needed)} is needed but not enough"
    return Stop.NOT_ESTABLISHED, f"{needed}: with the rest as in `good`, the failure is {seen}"
