"""What to try next, and when to stop. Pure.

`good` is run first, then `bad`. Then the failure is followed from `bad` towards `good`: settings are set as
in `good`, several at once (a group, which steers and accuses nobody), and each run is the one that tells most
about the cause for what it costs. That ends at the failing configuration nearest to `good`: each setting that
it has otherwise is changed alone, and each suspect. In the end it is run once more, so that the failing side
of every pair was seen to fail after the last passing one.

Where every cause is asked for, one setting of each cause found is then set in `bad` so that it heals, in
all smallest ways. What still fails the same has another cause, and is searched like `bad`.

Where the failure may be flaky, runs are repeated until less than what is accused is as unlikely to be enough
as the playbook asks.

No configuration is run that the bounds of a factor's levels forbid; the nearest possible one stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bisect_agent.bounds import nearest
from bisect_agent.claims import undecided
from bisect_agent.evidence import Answer, Inquiry, Table, accused
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
    StoppedBy,
    Trial,
    Unresolved,
)
from bisect_agent.odds import CAREFUL, SIZES, Cause, Odds, Shows, elements
from bisect_agent.rates import enough
from bisect_agent.steer import EQUAL, Costs, Option, options

PASSES = 3
"""How often `bad` is run before it is believed not to fail."""
CONTROLS = 2
"""How often `good` is run before it is believed not to work."""
RARE = 0.3
"""The rate of a flaky failure that `bad` is given the runs to show."""
INVOLVED = 3.0
"""How much more suspect a factor is where an open claim involves it."""
LEAST = 0.03
"""What is worth less than this share of what it takes is not run for it."""
HIDDEN = 8
"""So many runs may fail otherwise, and two more for each factor, before only single changes are tried."""
MANY = 4
"""Of twice as many suspects or more, one of so many parts is changed at once."""
SUSPECT = 0.3
"""How likely a suspect is needed, and how likely there is another cause, as far as nothing is known."""
DOUBT = 0.5
"""A setting that seems needed, and more likely than this is not, is searched like the rest (flaky)."""
NEVER, ALWAYS = 0.0, 1.0
NOTHING = 1e-12
"""A doubt that is none."""
FLAKY = "one run a side proves nothing; `confidence: {error: 0.01}` searches with as many as it takes"


@dataclass(frozen=True)
class Wanted:
    """A trial to run, the sentence that says why, and the probability that it fails the same."""

    trial: Trial
    why: str
    fails: float


@dataclass(frozen=True)
class Next:
    """Trials to start now; none while those in flight must land first."""

    wanted: tuple[Wanted, ...]


@dataclass(frozen=True)
class Finished:
    """The search is over."""

    by: StoppedBy
    detail: str = ""


@dataclass(frozen=True)
class _Idea:
    """A configuration worth a run, why, and how likely it fails the same.

    The `last` one waits until nothing is in flight.
    """

    configuration: Configuration
    why: str
    fails: float
    last: bool = False


def step(
    playbook: Playbook,
    settled: Sequence[Settled],
    in_flight: Sequence[Trial],
    capacity: int,
    costs: Costs = EQUAL,
) -> Next | Finished:
    """The next trials, at most `capacity` beside those in flight, or the end of the search.

    On entry every trial of `settled` has had its last word. Whatever the order in which trials
    settle, a configuration is never started twice at a time, and no trial changes two factors except
    as a group.
    """
    if len(in_flight) >= capacity:
        return Next(())
    table = Table(playbook, settled)
    flying = [trial.configuration for trial in in_flight]
    wanted: list[Wanted] = []
    while len(flying) < capacity:
        ideas = _ideas(playbook, table, costs, flying)
        if isinstance(ideas, Finished):
            return Next(tuple(wanted)) if flying else ideas
        fresh = [idea for idea in ideas if idea.configuration not in flying and not (idea.last and flying)]
        if not fresh:
            break
        number = len(settled) + len(flying) + 1
        trial = _trial(table, fresh[0].configuration, f"t{number:02}")
        wanted.append(Wanted(trial, fresh[0].why, fresh[0].fails))
        flying.append(fresh[0].configuration)
    return Next(tuple(wanted))


def control(playbook: Playbook, settled: Sequence[Settled], place: str) -> Wanted | Finished | None:
    """The next run of `good` or of `bad` where only these are run; None once both have shown themselves.

    `place` ends the names of the trials.
    """
    table = Table(playbook, settled)
    found = _controls(playbook, table)
    if found is None or isinstance(found, Finished):
        return found
    trial = _trial(table, found[0].configuration, "")
    again = f"-{trial.replicate}" if trial.replicate > 1 else ""
    named = trial.model_copy(update={"id": f"{trial.control}-{place}{again}"})
    return Wanted(named, found[0].why, found[0].fails)


def _trial(table: Table, configuration: Configuration, name: str) -> Trial:
    """The trial of a configuration.

    Its parent differs in one factor, if a configuration was run that does, a failing one before others; else
    the change is a group of the failing configuration looked at.
    """
    playbook, replicate = table.playbook, len(table.runs(configuration)) + 1
    if configuration in {playbook.good, playbook.bad}:
        control: Literal["good", "bad"] = "good" if configuration == playbook.good else "bad"
        return Trial(id=name, control=control, configuration=configuration, replicate=replicate)
    here = table.inquiry.here
    told = [c for c in table.configurations if table.answer(c) in {Answer.FAILS, Answer.HEALS}]
    told.sort(key=lambda c: (c != here, table.answer(c) is not Answer.FAILS))
    near = (c for c in told if len(configuration.differs(c)) == 1)
    parent = next(near, here if here != configuration else playbook.bad)
    changed = configuration.differs(parent)
    change = Single(setting=changed[0]) if len(changed) == 1 else Group(group=changed)
    run = table.first(parent) if table.answer(parent) is Answer.FAILS else table.runs(parent)[0]
    return Trial(
        id=name, parent=run.trial.id, change=change, configuration=configuration, replicate=replicate
    )


def _ideas(
    playbook: Playbook, table: Table, costs: Costs, flying: Sequence[Configuration]
) -> list[_Idea] | Finished:
    """The configurations worth a run now, the most wanted first; or the end."""
    if controls := _controls(playbook, table):
        return controls
    if run := table.wavering():
        by = StoppedBy.CAUSE if table.causes else StoppedBy.NOT_ESTABLISHED
        return Finished(by, f"{run.trial.id} does not fail each time: {FLAKY}")
    inquiry = table.inquiry
    return _others(table) if inquiry.cause else _sought(inquiry, costs, flying)


def _controls(playbook: Playbook, table: Table) -> list[_Idea] | Finished | None:
    """`good` first, then `bad`: None when both have shown themselves."""
    return _good(playbook, table) or _bad(playbook, table)


def _good(playbook: Playbook, table: Table) -> list[_Idea] | Finished | None:
    """`good` must be seen to work: None when it was."""
    runs = table.runs(playbook.good)
    failed = [s.outcome.symptom for s in runs if isinstance(s.outcome, Failed)]
    same_as_bad = [x for x in failed if table.symptom and x.same_as(table.symptom)]
    if lost := _lost(runs, "good"):
        return lost
    if same_as_bad:
        return Finished(
            StoppedBy.GOOD_FAILS, f"`good` fails with the symptom of `bad`: {same_as_bad[0].text}"
        )
    passed = any(isinstance(s.outcome, Passed) for s in runs)
    if len(failed) >= CONTROLS and not (passed and table.flaky):
        return Finished(StoppedBy.GOOD_FAILS, f"`good` failed {len(failed)} times: {failed[-1].text}")
    if passed:
        return None
    why = "it failed once: run it again" if failed else "it must be seen to work first"
    return [_Idea(playbook.good, why, NEVER)]


def _bad(playbook: Playbook, table: Table) -> list[_Idea] | Finished | None:
    """`bad` must be seen to fail, the same way each time: None when it was."""
    runs = table.runs(playbook.bad)
    passed = [s for s in runs if isinstance(s.outcome, Passed)]
    unresolved = table.symptom is None or table.answer(playbook.bad) is Answer.UNRESOLVED
    if unresolved and (lost := _lost(runs, "bad")):
        return lost
    if passed and table.symptom and not table.flaky:
        return Finished(StoppedBy.NOT_ESTABLISHED, f"`bad` fails only sometimes: {FLAKY}")
    if table.answer(playbook.bad) is Answer.OTHER:
        return Finished(StoppedBy.NOT_ESTABLISHED, "`bad` fails in more than one way")
    if len(passed) >= (enough(RARE, table.error) if table.flaky else PASSES):
        return Finished(StoppedBy.BAD_PASSES, f"`bad` passed {len(passed)} times")
    if table.symptom:
        return None
    why = "it passed: run it again" if passed else "it must be seen to fail"
    return [_Idea(playbook.bad, why, ALWAYS)]


def _lost(runs: Sequence[Settled], name: str) -> Finished | None:
    """A control that did not resolve ends the search: no other run would mean anything."""
    for run in runs:
        if isinstance(run.outcome, Unresolved):
            by = StoppedBy.TARGET if run.outcome.reason in RETRIED else StoppedBy.NOT_ESTABLISHED
            return Finished(by, f"`{name}` could not be run: {run.outcome.reason}: {run.outcome.detail}")
    return None


# --- a cause ------------------------------------------------------------------------------------------


def _sought(inquiry: Inquiry, costs: Costs, flying: Sequence[Configuration]) -> list[_Idea] | Finished:
    """The next runs of a search for one cause.

    Each stage needs the one before it: what `here` differs in from `good`; what else may matter there; the
    passes that a flaky failure asks for; then the failure once more.
    """
    if ideas := _narrowing(inquiry, costs, flying):
        return ideas
    if inquiry.needed and inquiry.table.answer(inquiry.rest) is Answer.FAILS:
        return _suspecting(inquiry) or _counted(inquiry, costs) or _again(inquiry)
    return _suspecting(inquiry) or _given_up(inquiry)


def _narrowing(inquiry: Inquiry, costs: Costs, flying: Sequence[Configuration]) -> list[_Idea]:
    """Runs that bring the failing configuration nearer to `good`, or show that it needs what is left."""
    table, course = inquiry.table, inquiry.course
    open_ = [s for s in inquiry.asks if s.factor in inquiry.differences]
    known = not open_ and {s.factor for s in inquiry.needed} >= set(inquiry.differences)
    if known and max(inquiry.doubts.values(), default=0.0) < DOUBT:
        return []
    seen = inquiry.seen
    odds = Odds(
        course.chains,
        _weights(inquiry),
        seen,
        inquiry.top,
        flaky=table.flaky,
        flying=[on for c in flying if (on := course.on(c)) is not None],
        sizes=CAREFUL if table.flaky else SIZES,
    )
    alone = {inquiry.here.replace([s]) for s in open_}
    hidden = sum(run.shows is Shows.HIDES for run in seen)
    groups = hidden <= 2 * len(course.steps) + HIDDEN

    def allowed(on: int) -> int | None:
        run = nearest(table.playbook, course.configuration(on), inquiry.here)
        open_to_groups = groups and (known or run != inquiry.here) and _fresh(table, run)
        return course.on(run) if run in alone or open_to_groups else None

    # Where passes must be counted in the end, dear as they are, a search that avoids them saves nothing.
    found = options(odds, EQUAL if table.flaky else costs, course.closed, partial(_proofs, inquiry), allowed)
    worth = [option for option in found if option.worth >= LEAST]
    ideas = [_aimed(inquiry, option) for option in worth[: len(flying) + 1]]
    steps = [_change(inquiry, setting, _needs(inquiry, setting.factor)) for setting in open_]
    return ideas or steps


def _fresh(table: Table, configuration: Configuration) -> bool:
    """Whether a run of a configuration may tell something new; of a flaky failure each one may."""
    answered = table.answer(configuration) in {Answer.HEALS, Answer.FAILS}
    return table.open(configuration) or (table.flaky and answered)


def _weights(inquiry: Inquiry) -> list[float]:
    """How suspect each step is: more where an open claim about such failures involves its factor."""
    table = inquiry.table
    involved = {f for h in undecided(table.playbook, table) for f in h.involves}
    return [INVOLVED if step.factor in involved else 1.0 for step in inquiry.course.steps]


def _proofs(inquiry: Inquiry, cause: Cause) -> list[int]:
    """What the proof of a cause still needs beside the failure once more: it alone, and less each setting."""
    course, table = inquiry.course, inquiry.table
    alone = course.closed(cause.mask)
    failing = course.configuration(alone)
    fails = table.answer(failing) is Answer.FAILS
    wanted = [] if fails else [alone]
    for element in elements(cause.mask if fails or not table.flaky else 0):
        less = course.configuration(alone & ~(1 << element))
        setting = Setting(factor=course.steps[element].factor, level=less[course.steps[element].factor])
        if (
            table.flip(failing, setting).answer is not Answer.HEALS
            or inquiry.doubts.get(setting.factor, 0) > table.error / 2
        ):
            wanted.append(alone & ~(1 << element))
    return wanted


def _aimed(inquiry: Inquiry, option: Option) -> _Idea:
    """The idea of a configuration nearer to `good`, and why it is the most worthwhile."""
    course, table = inquiry.course, inquiry.table
    configuration = course.configuration(option.on)
    here = inquiry.here
    away = configuration.differs(here)
    chance = f"it fails with {option.promise.fails:.0%}"
    bits = f"{option.promise.bits:.2g} bits"
    if option.proof is not None and course.closed(option.proof.mask) == option.on:
        cause = accused(course.steps[element] for element in elements(option.proof.mask))
        why = f"is {cause} enough? everything else is as in `good`; {chance}"
    elif len(away) == 1 and table.playbook.factor(away[0].factor).ordered:
        where = f"at which level of {away[0].factor} does the failure begin?"
        why = f"{where} {away[0].level} parts what is left; {chance}"
    elif len(away) == 1:
        why = f"{_needs(inquiry, away[0].factor)} {chance}"
    else:
        left = len(here.differs(table.playbook.good))
        why = (
            f"which of {left} settings does the failure need? {len(away)} are as in `good`; {chance}, {bits}"
        )
    return _Idea(configuration, why, option.promise.fails)


def _suspecting(inquiry: Inquiry) -> list[_Idea]:
    """Changes of what is the same in `good`, those that open claims speak of first; of many, some at once."""
    table, here = inquiry.table, inquiry.here
    asked = [s for s in inquiry.asks if s.factor not in inquiry.differences]
    claims = undecided(table.playbook, table) if len(asked) > 1 else []

    def wish(setting: Setting) -> tuple[int, int]:
        lost_ones = len(table.runs(here.replace([setting])))
        return lost_ones, -sum(setting.factor in (*h.involves, *h.excludes) for h in claims)

    asked.sort(key=wish)
    healing = [c for c in table.configurations if table.answer(c) is Answer.HEALS and _group(here, c, asked)]
    group = asked[: len(asked) // MANY]
    if healing:
        among = min((_group(here, c, asked) for c in healing), key=len)
        group = among[: (len(among) + 1) // 2]
    if len(group) > 1 and table.open(here.replace(group)):
        why = f"does the failure need any of {', '.join(s.factor for s in group)}?"
        return [_Idea(here.replace(group), why, (1 - SUSPECT) ** len(group))]
    return [_change(inquiry, s, _needs(inquiry, s.factor)) for s in dict.fromkeys([*group, *asked])]


def _group(here: Configuration, configuration: Configuration, asked: Sequence[Setting]) -> list[Setting]:
    """Changes that are asked for, where a configuration has several of them and nothing else."""
    changed = configuration.differs(here)
    return [s for s in asked if s in changed] if len(changed) > 1 and set(changed) <= set(asked) else []


def _counted(inquiry: Inquiry, costs: Costs) -> list[_Idea]:
    """Runs of a flaky failure that leave less doubt, where what is accused is right: the fastest way first.

    A pass of a change speaks for it. How often the failing side fails says what such a pass is worth.
    """
    table, here = inquiry.table, inquiry.here
    if sum(inquiry.doubts.values()) <= table.error:
        return []
    fails, passes = inquiry.shown
    rate = (fails + 1) / (fails + passes + 2)
    left = rate * _left(inquiry, here, fails=True) + (1 - rate) * _left(inquiry, here, fails=False)
    why = f"how often does it fail with {accused(here.differs(table.playbook.good))}? once more"
    found = [(left / (rate * costs.fails + (1 - rate) * costs.passes), _Idea(here, why, rate))]
    for factor, doubt in inquiry.doubts.items():
        setting = inquiry.remedies(factor)[-1].setting
        why = f"that it passes with {setting} is an accident with {doubt:.1%}: once more"
        idea = _change(inquiry, setting, why)
        found.append((_left(inquiry, idea.configuration, fails=False) / costs.passes, idea))
    found.sort(key=lambda pair: pair[0])
    return [idea for _, idea in found if table.askable(idea.configuration)]


def _left(inquiry: Inquiry, configuration: Configuration, *, fails: bool) -> float:
    """By how much a run changes the doubt (as a logarithm): less than nothing where less is left."""
    table = inquiry.table
    outcome = table.first(inquiry.here).outcome if fails else Passed()
    run = Settled(trial=_trial(table, configuration, "-"), attempt=1, outcome=outcome)
    after = Inquiry(Table(table.playbook, [*table.settled, run]), inquiry.start, tuple(inquiry.held.values()))
    return math.log(max(NOTHING, sum(after.doubts.values())) / sum(inquiry.doubts.values()))


def _again(inquiry: Inquiry) -> list[_Idea] | Finished:
    """The failing side of every pair fails once more, after the last passing trial."""
    here, table = inquiry.here, inquiry.table
    if not table.askable(here) or len(inquiry.pairs) == len(inquiry.needed):
        return Finished(StoppedBy.TARGET, f"{_name(inquiry)} could not be run once more")
    return [_Idea(here, "it must fail once more, after the last passing trial", ALWAYS, last=True)]


# --- words --------------------------------------------------------------------------------------------


def _name(inquiry: Inquiry) -> str:
    """The present failing configuration, as a person calls it."""
    return _called(inquiry.table, inquiry.here)


def _called(table: Table, failing: Configuration) -> str:
    return "`bad`" if failing == table.playbook.bad else table.first(failing).trial.id


def _change(inquiry: Inquiry, setting: Setting, why: str) -> _Idea:
    """One change of the present failing configuration."""
    return _Idea(inquiry.here.replace([setting]), why, 1 - SUSPECT)


def _needs(inquiry: Inquiry, factor: str) -> str:
    here = inquiry.here
    nearer = here != inquiry.table.playbook.bad
    alone = f", now that {_name(inquiry)} fails nearer to `good`" if nearer else ""
    return f"does the failure need {factor}={here[factor]}{alone}?"


def _others(table: Table) -> list[_Idea] | Finished:
    """A cause is established: where every cause is asked for, look for where another one shows."""
    if not table.playbook.every_cause or (healing := table.ahead()) is None:
        return Finished(StoppedBy.CAUSE, _found(table))
    without = accused(healing.settings)
    why = f"is there another cause? does `bad` still fail with {without}?"
    return [_Idea(healing.configuration, why, SUSPECT)]


def _found(table: Table) -> str:
    """The causes established, in a sentence."""
    return "; ".join(f"{accused(cause)} is needed and enough" for cause in table.causes)


def _given_up(inquiry: Inquiry) -> Finished:
    """Nothing is left to run, and the present search established nothing."""
    table = inquiry.table
    name, start = _name(inquiry), _called(table, inquiry.start)
    by = StoppedBy.NOT_ESTABLISHED
    if inquiry.needed:
        seen = "gone" if table.answer(inquiry.rest) is Answer.HEALS else "not seen"
        needed = f"{accused(inquiry.needed)} is needed but not enough"
        detail = f"{needed}: with the rest as in `good`, the failure is {seen}"
    else:
        by = StoppedBy.NO_CAUSE
        also = "" if name == start else f", nor one from {name}, which is nearer to `good`"
        detail = f"no single change from {start} heals{also}"
    if table.causes:
        return Finished(StoppedBy.CAUSE, f"{_found(table)}; of what {start} shows, {detail}")
    return Finished(by, detail)
