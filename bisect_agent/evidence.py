"""What the settled trials show about each configuration, factor and setting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import cached_property
from itertools import product
from typing import Literal

from bisect_agent.bounds import bound, nearest
from bisect_agent.model import (
    RETRIED,
    Applied,
    Configuration,
    Failed,
    Group,
    Pair,
    Passed,
    Playbook,
    Reason,
    Setting,
    Settled,
    Symptom,
    Unresolved,
)

TRIES = 2
"""How often a configuration is run whose runs are all lost on the way."""
LOST = RETRIED - {Reason.UNTESTABLE}
"""Reasons that say nothing about a configuration, not even that it cannot be tested."""
VOTES = frozenset({Applied.WITNESSED, Applied.READ})
"""What must be known of a level for a change to it to vote, where it does not heal."""


class Answer(Enum):
    """What all runs of one configuration say together."""

    NOT_RUN = auto()
    HEALS = auto()
    FAILS = auto()
    OTHER = auto()
    """It failed otherwise, or not the same way each time."""
    UNRESOLVED = auto()
    IMPOSSIBLE = auto()
    """It is never run: what some level requires or excludes forbids it."""


class Standing(StrEnum):
    """What the trials show about one factor of the failure."""

    NEEDED = "needed"
    NOT_NEEDED = "not needed"
    NOT_WITNESSED = "not witnessed"
    OTHER_FAILURE = "fails otherwise"
    NOT_APPLIED = "not applied"
    UNRESOLVED = "unresolved"
    NOT_RUN = "not run"
    BOUND = "bound"
    """What levels require and exclude leaves no run that would show it."""


@dataclass(frozen=True)
class Flip:
    """One setting changed in a failing configuration, and what came of it.

    `runs` are those that may vote: a run that was planned as a group is not among them.
    """

    setting: Setting
    configuration: Configuration
    runs: tuple[Settled, ...]
    answer: Answer

    @property
    def run(self) -> Settled:
        """The run to name: the first that resolved, or else the last."""
        resolved = (s for s in self.runs if not isinstance(s.outcome, Unresolved))
        return next(resolved, self.runs[-1])

    @property
    def open(self) -> bool:
        """Whether a run may still bring an answer."""
        return self.answer is not Answer.IMPOSSIBLE and _open(self.runs)


@dataclass(frozen=True)
class Boundary:
    """Where, along the levels of an ordered factor, a failing configuration begins to fail.

    A level in between that fails says so without a witness of its own: that the stack reads the factor
    is shown by the level that heals.

    Attributes:
        factor: whose levels.
        fails: the first level that fails, as far as was seen.
        heals: the level before it that passes.
        between: changes to the levels between the two, none of which says where it begins.
    """

    factor: str
    fails: str
    heals: str
    between: tuple[Flip, ...]


@dataclass(frozen=True)
class Ahead:
    """The next change of the present failing configuration, which decides where the search goes on.

    It asks whether the failure *needs* a factor, at which of its levels it *begins*, or whether it
    fails *without* one more setting.
    """

    setting: Setting
    asks: Literal["needs", "begins", "without"]


@dataclass(frozen=True)
class Walk:
    """A way from a failing configuration towards `good`, through configurations that fail the same.

    Attributes:
        here: the present failing configuration, as near to `good` as was seen.
        left: of each factor that was set as in `good`, the failing configuration in which it was.
        heals: of each ordered factor that the failure needs, the level that passed last.
        ahead: what to change next; None where no step is left.
    """

    here: Configuration
    left: Mapping[str, Configuration] = field(default_factory=dict)
    heals: Mapping[str, str] = field(default_factory=dict)
    ahead: Ahead | None = None


@dataclass(frozen=True)
class Healing:
    """One setting of each cause found, set in `bad` so that it heals, and what came of it.

    Where that still fails the same, it has another cause. `step` is the next trial on the way there, a
    failing configuration and a change of it; None where it was run, or where no way leads there.
    """

    settings: tuple[Setting, ...]
    configuration: Configuration
    answer: Answer
    step: tuple[Configuration, Setting] | None = None


def accused(settings: Iterable[Setting]) -> str:
    """A set of settings as a person writes it."""
    return " × ".join(str(s) for s in settings)


def _lost(run: Settled) -> bool:
    return isinstance(run.outcome, Unresolved) and run.outcome.reason in LOST


def _open(runs: Sequence[Settled]) -> bool:
    return len(runs) < TRIES and all(_lost(s) for s in runs)


class Table:
    """The settled trials of a run, looked at through the rules of evidence.

    `symptom` is the failure under investigation: the first one that `bad` showed.
    """

    def __init__(self, playbook: Playbook, settled: Sequence[Settled]) -> None:
        self.playbook = playbook
        self.settled = tuple(settled)
        self._runs: dict[Configuration, list[Settled]] = {}
        for run in self.settled:
            self._runs.setdefault(run.trial.configuration, []).append(run)
        self._flips: dict[tuple[Configuration, str], tuple[Flip, ...]] = {}
        self._place = {run.trial.id: place for place, run in enumerate(self.settled)}
        failures = (s.outcome for s in self.runs(playbook.bad) if isinstance(s.outcome, Failed))
        first = next(failures, None)
        self.symptom: Symptom | None = first.symptom if first else None

    # --- a configuration ------------------------------------------------------------------------------

    def runs(self, configuration: Configuration) -> Sequence[Settled]:
        """The settled trials of a configuration, oldest first."""
        return self._runs.get(configuration, [])

    def fails(self, run: Settled) -> bool:
        """Whether a run shows the failure under investigation (rule 5)."""
        return (
            self.symptom is not None
            and isinstance(run.outcome, Failed)
            and run.outcome.symptom.same_as(self.symptom)
        )

    def answer(self, configuration: Configuration) -> Answer:
        """What the runs of a configuration say together; contradicting runs say nothing."""
        runs = self.runs(configuration)
        if not runs and not self.playbook.possible(configuration):
            return Answer.IMPOSSIBLE
        return self._together(runs)

    def _together(self, every: Sequence[Settled]) -> Answer:
        """What runs say together. One that was lost on the way takes nothing from what another shows."""
        runs = [s for s in every if not _lost(s)] or every
        if not runs:
            return Answer.NOT_RUN
        if any(isinstance(s.outcome, Unresolved) for s in runs):
            return Answer.UNRESOLVED
        if all(isinstance(s.outcome, Passed) for s in runs):
            return Answer.HEALS
        if all(self.fails(s) for s in runs):
            return Answer.FAILS
        return Answer.OTHER

    def open(self, configuration: Configuration) -> bool:
        """Whether a run may still bring an answer: there was none, or it was lost on the way."""
        return _open(self.runs(configuration)) and self.playbook.possible(configuration)

    def first(self, configuration: Configuration) -> Settled:
        """The first run in which a failing configuration failed the same."""
        return next(s for s in self.runs(configuration) if self.fails(s))

    def wavering(self) -> Settled | None:
        """A run that fails the same, where another run of its configuration says otherwise."""
        failing = (s for s in self.settled if self.fails(s))
        return next((s for s in failing if self.answer(s.trial.configuration) is not Answer.FAILS), None)

    def after(self, run: Settled, other: Settled) -> bool:
        """Whether a run settled after another."""
        return self._place[run.trial.id] > self._place[other.trial.id]

    def leads(self) -> tuple[Settled, ...]:
        """Trials that failed otherwise than `bad` did: other failures, with their own evidence."""
        return tuple(s for s in self.settled if isinstance(s.outcome, Failed) and not self.fails(s))

    # --- a change of a failing configuration ------------------------------------------------------------

    def stake(self, failing: Configuration) -> tuple[str, ...]:
        """The factors to change in a failing configuration: differences, then suspects."""
        return (*(s.factor for s in failing.differs(self.playbook.good)), *self.playbook.suspects)

    def levels(self, failing: Configuration, factor: str) -> tuple[str, ...]:
        """The levels to change a factor to: good's first, then the others as listed.

        Those of an ordered factor lie between good's level and the present one, and come in that order.
        """
        good, present = self.playbook.good[factor], failing[factor]
        every = tuple(self.playbook.factor(factor).levels)
        if self.playbook.factor(factor).ordered:
            first, last = every.index(good), every.index(present)
            return every[first : last : 1 if first < last else -1]
        rest = tuple(level for level in every if level not in (good, present))
        return rest if good == present else (good, *rest)

    def flips(self, failing: Configuration, factor: str) -> tuple[Flip, ...]:
        """Every change of one factor of a failing configuration, run or not."""
        key = failing, factor
        if key not in self._flips:
            levels = self.levels(failing, factor)
            self._flips[key] = tuple(self.flip(failing, Setting(factor=factor, level=v)) for v in levels)
        return self._flips[key]

    def flip(self, failing: Configuration, setting: Setting) -> Flip:
        """One change of a failing configuration."""
        configuration = failing.replace([setting])
        runs = tuple(s for s in self.runs(configuration) if not isinstance(s.trial.change, Group))
        said, whole = self._together(runs), self.answer(configuration)
        contradicted = said in {Answer.HEALS, Answer.FAILS} and said is not whole
        impossible = whole is Answer.IMPOSSIBLE
        return Flip(setting, configuration, runs, whole if contradicted or impossible else said)

    # --- causes -----------------------------------------------------------------------------------------

    @cached_property
    def inquiries(self) -> tuple[Inquiry, ...]:
        """The searches for a cause so far: the first from `bad`, each other where no cause found is left.

        Another one begins only where every cause is asked for, and the one before has established its own.
        """
        found = [Inquiry(self, self.playbook.bad)]
        while self.playbook.every_cause and found[-1].cause:
            healing = self._next(found)
            if healing is None or healing.answer is not Answer.FAILS:
                break
            found.append(Inquiry(self, healing.configuration, healing.settings))
        return tuple(found)

    @property
    def inquiry(self) -> Inquiry:
        """The present search for a cause."""
        return self.inquiries[-1]

    @cached_property
    def causes(self) -> tuple[tuple[Setting, ...], ...]:
        """The established causes, in the order in which they were found."""
        return tuple(inquiry.cause for inquiry in self.inquiries if inquiry.cause)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of the established causes."""
        return tuple(pair for inquiry in self.inquiries if inquiry.cause for pair in inquiry.pairs)

    def ahead(self) -> tuple[Configuration, Setting] | None:
        """The next trial on the way to where another cause may show; None where none is left."""
        healing = self._next([inquiry for inquiry in self.inquiries if inquiry.cause])
        return healing.step if healing else None

    def _next(self, found: Sequence[Inquiry]) -> Healing | None:
        """The first healing that still fails, or that a trial leads to. The order does not depend on runs."""
        every = self._healings(found)
        return next((h for h in every if h.answer is Answer.FAILS or h.step), None)

    def healings(self) -> list[Healing]:
        """All smallest ways to heal the established causes at once, and what came of each."""
        return self._healings([inquiry for inquiry in self.inquiries if inquiry.cause])

    def _healings(self, found: Sequence[Inquiry]) -> list[Healing]:
        """One setting of each cause, in all smallest ways: the minimal sets that hit every cause."""
        remedies: dict[str, Setting] = {}
        for inquiry in found:
            for setting in inquiry.cause:
                remedies.setdefault(setting.factor, inquiry.remedies(setting.factor)[0].setting)
        chosen = {frozenset(c) for c in product(*({s.factor for s in i.cause} for i in found)) if c}
        least = [c for c in chosen if not any(other < c for other in chosen)]
        place = {factor.name: n for n, factor in enumerate(self.playbook.factors)}
        least.sort(key=lambda c: (len(c), sorted(place[f] for f in c)))
        return [self._healing([remedies[f] for f in sorted(c, key=place.__getitem__)]) for c in least]

    def _healing(self, settings: Sequence[Setting]) -> Healing:
        configuration = self.playbook.bad.replace(settings)
        step = self._towards(frozenset(settings)) if self.open(configuration) else None
        return Healing(tuple(settings), configuration, self.answer(configuration), step)

    def _towards(self, settings: frozenset[Setting]) -> tuple[Configuration, Setting] | None:
        """The next trial on a way from `bad` to it with these settings: one change a run, of what fails."""
        last = sorted(settings, key=str)
        before = {s: self.playbook.bad.replace(settings - {s}) for s in last}
        for setting in last:
            if self.answer(before[setting]) is Answer.FAILS:
                return before[setting], setting
        ways = (self._towards(settings - {s}) for s in last if self.open(before[s]))
        return next((way for way in ways if way), None)


class Inquiry:
    """The search for one cause: a failing configuration, followed towards `good` by single changes.

    Attributes:
        table: the trials that it reads.
        start: the failing configuration that it begins with.
        held: the settings of `start` that heal causes found before; they stay.
    """

    def __init__(self, table: Table, start: Configuration, held: Sequence[Setting] = ()) -> None:
        self.table = table
        self.start = start
        self.held = {s.factor: s for s in held}

    # --- the way to good ------------------------------------------------------------------------------

    @cached_property
    def walk(self) -> Walk:
        """How far the failure was followed towards `good`.

        First along each ordered factor that it needs, to the first level that fails. The next step waits
        until all single changes are in, and those that heal are not enough: then some settings stand in
        for each other. Every difference that no single change heals is set as in `good`, one more at a
        time, for as long as it fails the same; one whose turn comes where it is impossible has another
        turn after the others. What does anything else then stays: whether it is needed is asked in
        the end, at the configuration reached. So a step into a level that was not seen to take effect says
        nothing of its factor, only that this configuration fails.
        """
        if self.table.answer(self.start) is not Answer.FAILS:
            return Walk(self.start)
        walk = self._narrowed(Walk(self.start))
        if walk.ahead or not self._astray(walk.here):
            return walk
        walk = self._stepped(walk, self._way(walk.here))
        return walk if walk.ahead else self._narrowed(walk)

    def _narrowed(self, walk: Walk) -> Walk:
        """As far along each ordered factor as it fails, where it is seen to pass at last."""
        for factor in self._differences(walk.here):
            if not self.table.playbook.factor(factor).ordered:
                continue
            found = self._boundary(walk.here, factor, walk.heals.get(factor))
            if isinstance(found, Ahead):
                return replace(walk, ahead=found)
            if found:
                walk = replace(walk, heals={**walk.heals, factor: found.heals})
            if found and found.fails != walk.here[factor]:
                first = Setting(factor=factor, level=found.fails)
                return self._narrowed(replace(walk, here=walk.here.replace([first])))
        return walk

    def _boundary(
        self, failing: Configuration, factor: str, passed: str | None = None
    ) -> Boundary | Ahead | None:
        """Where along an ordered factor a failing configuration begins to fail; or what to run to know it.

        Good's level is asked first, or the one that `passed` in another configuration. A level that says
        nothing is stepped around. None where no level heals.
        """
        flips = self.table.flips(failing, factor)
        first = [place for place, flip in enumerate(flips) if flip.setting.level == passed]
        for place in (*first, *range(len(flips))):
            if flips[place].open:
                return Ahead(flips[place].setting, "needs")
            if flips[place].answer is Answer.HEALS:
                return self._halved(failing, flips, place)
            if flips[place].answer is Answer.FAILS and place not in first:
                return None
        return None

    def _halved(self, failing: Configuration, flips: Sequence[Flip], heals: int) -> Boundary | Ahead:
        """The boundary between a level that heals and the present one, whose place is after all flips.

        Invariant: the level at `heals` passes, the one at `fails` fails.
        """
        fails = len(flips)
        while within := [place for place in range(heals + 1, fails) if self._says(flips[place])]:
            middle = min(within, key=lambda place: abs(2 * place - heals - fails))
            if flips[middle].open:
                return Ahead(flips[middle].setting, "begins")
            if flips[middle].answer is Answer.HEALS:
                heals = middle
            else:
                fails = middle
        factor = flips[heals].setting.factor
        level = flips[fails].setting.level if fails < len(flips) else failing[factor]
        return Boundary(factor, level, flips[heals].setting.level, tuple(flips[heals + 1 : fails]))

    @staticmethod
    def _says(flip: Flip) -> bool:
        """Whether a change tells, or may tell, on which side of a boundary its level lies."""
        return flip.open or flip.answer in {Answer.HEALS, Answer.FAILS}

    def _astray(self, failing: Configuration) -> bool:
        """Whether the changes that heal are known, and are not enough."""
        if any(self._untried(failing, f) for f in self._stake(failing)):
            return False
        rest = self._rest(failing)
        return not self.table.open(rest) and self.table.answer(rest) is not Answer.FAILS

    def _way(self, failing: Configuration) -> list[Setting]:
        """The differences that no single change heals, as `good` has them."""
        needed = {s.factor for s in self._needed(failing)}
        good = self.table.playbook.good
        differences = set(self._differences(failing)) - needed
        return [s for s in good.differs(failing) if s.factor in differences]

    def _stepped(self, walk: Walk, way: Sequence[Setting]) -> Walk:
        """One setting more at a time as in `good`, for as long as it fails."""
        table, skipped, begin = self.table, [], walk.here
        for setting in way:
            there = walk.here.replace([setting])
            if table.answer(there) is Answer.IMPOSSIBLE:
                skipped.append(setting)
            elif table.open(there):
                return replace(walk, ahead=Ahead(setting, "without"))
            elif table.answer(there) is Answer.FAILS:
                walk = replace(walk, here=there, left={**walk.left, setting.factor: walk.here})
        return self._stepped(walk, skipped) if skipped and walk.here != begin else walk

    def _differences(self, failing: Configuration) -> list[str]:
        """The factors that a failing configuration has otherwise than `good`, and that may be changed."""
        different = (s.factor for s in failing.differs(self.table.playbook.good))
        return [factor for factor in different if factor not in self.held]

    def stake(self) -> tuple[str, ...]:
        """The factors to change in the present failing configuration: differences, then suspects."""
        return self._stake(self.walk.here)

    def _stake(self, failing: Configuration) -> tuple[str, ...]:
        return tuple(factor for factor in self.table.stake(failing) if factor not in self.held)

    def origin(self, factor: str) -> Configuration:
        """The failing configuration in which a factor is changed, to see whether the failure needs it.

        The one where it was set as in `good`, if it was; else the present one. What heals another cause
        was changed in `bad`.
        """
        if factor in self.held:
            return self.table.playbook.bad
        return self.walk.left.get(factor, self.walk.here)

    # --- a factor -------------------------------------------------------------------------------------

    def flips(self, factor: str) -> list[Flip]:
        """The changes of a factor that were run."""
        if factor in self.held:
            runs = tuple(self.table.runs(self.start))
            return [Flip(self.held[factor], self.start, runs, self.table.answer(self.start))]
        return [flip for flip in self.table.flips(self.origin(factor), factor) if flip.runs]

    def listed(self, factor: str) -> list[Flip]:
        """The changes of a factor to every level that may be run, whether it was or not."""
        table, origin, bad = self.table, self.origin(factor), self.table.playbook.bad
        levels = table.levels(origin, factor)
        if table.playbook.factor(factor).ordered:
            levels = (*table.levels(bad, factor), bad[factor])
        present = origin[factor]
        return [table.flip(origin, Setting(factor=factor, level=v)) for v in levels if v != present]

    def untried(self, factor: str) -> Setting | None:
        """The next level of a factor to try: None when one heals or all were tried."""
        return self._untried(self.walk.here, factor)

    def _untried(self, failing: Configuration, factor: str) -> Setting | None:
        if self.table.playbook.factor(factor).ordered:
            return None  # it was asked on the way here
        for flip in self.table.flips(failing, factor):
            if flip.answer is Answer.HEALS:
                return None
            if flip.answer is Answer.NOT_RUN:
                return flip.setting
        return None

    def lost(self) -> list[Setting]:
        """Changes of differences that were lost on the way, where one more run may show a need."""
        idle = [f for f in self._differences(self.walk.here) if self.standing(f) is not Standing.NEEDED]
        return [flip.setting for f in idle for flip in self.flips(f) if flip.open]

    def standing(self, factor: str) -> Standing:
        """What the changes of a factor show.

        A change that heals is its own witness. One that does not heal votes only when its level was
        seen to take effect, or is known to be read (rule 4); and not where bounds left the factor as it
        is when the rest was set as in `good`.
        """
        flips = self.flips(factor)
        answers = [flip.answer for flip in flips]
        if Answer.HEALS in answers:
            return Standing.NEEDED
        if factor in self.kept or (not flips and self._impossible(factor)):
            return Standing.BOUND
        if any(self._votes(flip) for flip in flips):
            return Standing.NOT_NEEDED
        if Answer.FAILS in answers:
            return Standing.NOT_WITNESSED
        if Answer.OTHER in answers:
            return Standing.OTHER_FAILURE
        if any(self._not_applied(flip) for flip in flips):
            return Standing.NOT_APPLIED
        return Standing.UNRESOLVED if flips else Standing.NOT_RUN

    def _impossible(self, factor: str) -> bool:
        every = self.table.flips(self.origin(factor), factor)
        return bool(every) and all(flip.answer is Answer.IMPOSSIBLE for flip in every)

    def _votes(self, flip: Flip) -> bool:
        factor, failing = flip.setting.factor, [s for s in flip.runs if self.table.fails(s)]
        shown = all(s.applied.get(factor) in VOTES for s in failing)
        return flip.answer is Answer.FAILS and bool(failing) and shown

    @staticmethod
    def _not_applied(flip: Flip) -> bool:
        outcomes = [s.outcome for s in flip.runs]
        return any(isinstance(o, Unresolved) and o.reason is Reason.NOT_APPLIED for o in outcomes)

    def witnessed(self, factor: str) -> Settled | None:
        """The trial that shows that a factor is not needed."""
        if self.standing(factor) is not Standing.NOT_NEEDED:
            return None
        voting = next(flip for flip in self.flips(factor) if self._votes(flip))
        return next(s for s in voting.runs if self.table.fails(s))

    def bounds(self, factor: str) -> tuple[str, ...]:
        """What forbids the changes of a factor, or those of the rest with it."""
        good = Setting(factor=factor, level=self.table.playbook.good[factor])
        flips = self.table.flips(self.origin(factor), factor)
        forbidden = [f.configuration for f in flips if f.answer is Answer.IMPOSSIBLE]
        if factor in self.kept:
            forbidden = [self.rest.replace([good])]
        return tuple(dict.fromkeys(bound(self.table.playbook, c) for c in forbidden))

    def boundary(self, factor: str) -> Boundary | None:
        """Where along an ordered factor the present failing configuration begins to fail, if it is known."""
        if factor in self.held or factor not in self.walk.heals:
            return None
        found = self._boundary(self.walk.here, factor, self.walk.heals[factor])
        return found if isinstance(found, Boundary) else None

    # --- the cause --------------------------------------------------------------------------------------

    @cached_property
    def needed(self) -> tuple[Setting, ...]:
        """The settings that a single change of the present failing configuration was seen to heal."""
        return self._needed(self.walk.here)

    def _needed(self, failing: Configuration) -> tuple[Setting, ...]:
        heal = {
            factor
            for factor in self._stake(failing)
            if any(flip.answer is Answer.HEALS for flip in self.table.flips(failing, factor))
        }
        return tuple(s for s in failing.settings() if s.factor in heal)

    @cached_property
    def rest(self) -> Configuration:
        """`good` with the settings that are needed: as much of it as is possible."""
        return self._rest(self.walk.here)

    def _rest(self, failing: Configuration) -> Configuration:
        wanted = self.table.playbook.good.replace(self._needed(failing))
        return nearest(self.table.playbook, wanted, failing)

    @cached_property
    def kept(self) -> frozenset[str]:
        """The factors that stayed as they are, by what levels require and exclude, when the rest went."""
        if not self.needed or self.table.answer(self.rest) is not Answer.FAILS:
            return frozenset()
        different = self.rest.differs(self.table.playbook.good.replace(self.needed))
        return frozenset(s.factor for s in different)

    def remedies(self, factor: str) -> list[Flip]:
        """The changes that heal, good's level first; of an ordered factor the last is at the boundary."""
        return [flip for flip in self.flips(factor) if flip.answer is Answer.HEALS]

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs closed so far: a failing configuration, one change passing, failing again after it."""
        here, table = self.walk.here, self.table
        if table.answer(here) is not Answer.FAILS:
            return ()
        failing = [s for s in table.runs(here) if table.fails(s)]
        found = []
        for setting in self.needed:
            remedies = self.remedies(setting.factor)
            healing = remedies[-1] if table.playbook.factor(setting.factor).ordered else remedies[0]
            passing = next(s for s in healing.runs if isinstance(s.outcome, Passed))
            again = [s for s in failing if table.after(s, passing)]
            if again and again[-1] is not failing[0]:
                found.append(
                    Pair(
                        setting=setting,
                        failing=failing[0].trial.id,
                        passing=passing.trial.id,
                        again=again[-1].trial.id,
                    )
                )
        return tuple(found)

    @cached_property
    def cause(self) -> tuple[Setting, ...]:
        """The established cause, or nothing.

        A cause is a minimal set S of settings: `good` with S fails with the symptom of `bad` (it is
        enough), and a failing configuration that holds S passes when any one of S is set otherwise (each is
        needed, and has a closed pair at that configuration). Where bounds forbid `good` with S, the nearest
        possible configuration stands for it.
        """
        if self.walk.ahead or len(self.pairs) < len(self.needed):
            return ()
        return self.needed if self.table.answer(self.rest) is Answer.FAILS else ()
