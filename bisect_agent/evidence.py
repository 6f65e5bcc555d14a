"""What the settled trials show about each configuration, factor and setting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cached_property
from itertools import product

from bisect_agent.bounds import bound, nearest
from bisect_agent.course import Course, levels_between
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
from bisect_agent.odds import CAREFUL, Odds, Seen, Shows, elements
from bisect_agent.rates import enough, missed

TRIES = 2
"""How often a configuration is run whose runs are all lost on the way."""
HALF = 0.5
"""The rate at which another flaky cause is looked for."""
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

    `runs` are those that may vote: a run that was planned as a group is among them only where it fails.
    """

    setting: Setting
    configuration: Configuration
    runs: tuple[Settled, ...]
    answer: Answer

    @property
    def run(self) -> Settled:
        """The run to name: the first that failed, where it fails; else one that resolved, or the last."""
        failed = (s for s in self.runs if self.answer is Answer.FAILS and isinstance(s.outcome, Failed))
        resolved = (s for s in self.runs if not isinstance(s.outcome, Unresolved))
        return next(failed, None) or next(resolved, self.runs[-1])

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
class Healing:
    """One setting of each cause found, set in `bad` so that it heals, and what came of it.

    Where that still fails the same, it has another cause.
    """

    settings: tuple[Setting, ...]
    configuration: Configuration
    answer: Answer


def accused(settings: Iterable[Setting]) -> str:
    """A set of settings as a person writes it."""
    return " × ".join(str(s) for s in settings)


def lost(run: Settled) -> bool:
    """Whether a run says nothing about its configuration, not even that it cannot be tested."""
    return isinstance(run.outcome, Unresolved) and run.outcome.reason in LOST


def _open(runs: Sequence[Settled]) -> bool:
    return len(runs) < TRIES and all(lost(s) for s in runs)


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
        self.flaky = playbook.error is not None
        self.error = playbook.error or 0.0
        self._place = {run.trial.id: place for place, run in enumerate(self.settled)}
        failures = (s.outcome for s in self.runs(playbook.bad) if isinstance(s.outcome, Failed))
        first = next(failures, None)
        self.symptom: Symptom | None = first.symptom if first else None

    # --- a configuration ------------------------------------------------------------------------------

    @property
    def configurations(self) -> Iterable[Configuration]:
        """Those that were run, in the order of their first runs."""
        return self._runs

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
        """What the runs of a configuration say together.

        Runs that contradict each other say nothing; but of a failure that may be flaky one shows it.
        """
        runs = self.runs(configuration)
        if not runs and not self.playbook.possible(configuration):
            return Answer.IMPOSSIBLE
        return self._together(runs)

    def _together(self, every: Sequence[Settled]) -> Answer:
        """What runs say together. One that was lost on the way takes nothing from what another shows.

        Where the failure may be flaky, neither does one that fails otherwise.
        """
        runs = [s for s in every if not lost(s)] or every
        if self.flaky:
            runs = [s for s in runs if self.fails(s) or isinstance(s.outcome, Passed)] or runs
        if not runs:
            return Answer.NOT_RUN
        if any(isinstance(s.outcome, Unresolved) for s in runs):
            return Answer.UNRESOLVED
        if all(isinstance(s.outcome, Passed) for s in runs):
            return Answer.HEALS
        if (any if self.flaky else all)(map(self.fails, runs)):
            return Answer.FAILS
        return Answer.OTHER

    def open(self, configuration: Configuration) -> bool:
        """Whether a run may still bring an answer: there was none, or it was lost on the way."""
        return _open(self.runs(configuration)) and self.playbook.possible(configuration)

    def askable(self, configuration: Configuration) -> bool:
        """Whether a configuration may be run once more, though it has answered."""
        return sum(isinstance(s.outcome, Unresolved) for s in self.runs(configuration)) < TRIES

    def first(self, configuration: Configuration) -> Settled:
        """The first run in which a failing configuration failed the same."""
        return next(s for s in self.runs(configuration) if self.fails(s))

    def wavering(self) -> Settled | None:
        """A run that fails the same, where another run of its configuration says otherwise."""
        if self.flaky:
            return None
        failing = (s for s in self.settled if self.fails(s))
        return next((s for s in failing if self.answer(s.trial.configuration) is not Answer.FAILS), None)

    def after(self, run: Settled, other: Settled) -> bool:
        """Whether a run settled after another."""
        return self._place[run.trial.id] > self._place[other.trial.id]

    def leads(self) -> tuple[Settled, ...]:
        """Trials that failed otherwise than `bad` did: other failures, with their own evidence."""
        return tuple(s for s in self.settled if isinstance(s.outcome, Failed) and not self.fails(s))

    # --- a change of a failing configuration ------------------------------------------------------------

    def levels(self, failing: Configuration, factor: str) -> tuple[str, ...]:
        """The levels to change a factor to: good's first, then the others as listed.

        Those of an ordered factor lie between good's level and the present one, and come in that order.
        """
        if self.playbook.factor(factor).ordered:
            return levels_between(self.playbook, failing, factor)[:-1]
        good, present = self.playbook.good[factor], failing[factor]
        rest = tuple(v for v in self.playbook.factor(factor).levels if v not in (good, present))
        return rest if good == present else (good, *rest)

    def flip(self, failing: Configuration, setting: Setting) -> Flip:
        """One change of a failing configuration. A group that heals accuses nobody (rule 1)."""
        configuration = failing.replace([setting])
        every, whole = tuple(self.runs(configuration)), self.answer(configuration)
        if whole in {Answer.FAILS, Answer.IMPOSSIBLE}:
            return Flip(setting, configuration, every, whole)
        runs = tuple(s for s in every if not isinstance(s.trial.change, Group))
        said = self._together(runs)
        return Flip(setting, configuration, runs, whole if said is Answer.HEALS else said)

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

    def ahead(self) -> Healing | None:
        """Where another cause may show, and nothing was run yet; None where nothing is left."""
        healing = self._next([inquiry for inquiry in self.inquiries if inquiry.cause])
        return healing if healing and healing.answer is not Answer.FAILS else None

    def _next(self, found: Sequence[Inquiry]) -> Healing | None:
        """The first healing that still fails, or that may be run. The order does not depend on runs."""
        every = self._healings(found)
        return next((h for h in every if h.answer is Answer.FAILS or not self._known(h)), None)

    def _known(self, healing: Healing) -> bool:
        """Whether no run is left that would tell more of a healing.

        Of a flaky failure, so many passes are asked for that a cause which shows itself in half of the runs
        is missed as seldom as the playbook allows.
        """
        if not self.flaky or healing.answer is not Answer.HEALS:
            return not self.open(healing.configuration)
        return len(self.runs(healing.configuration)) >= enough(HALF, self.error)

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
        return Healing(tuple(settings), configuration, self.answer(configuration))


class Inquiry:
    """The search for one cause: the failing configurations between `good` and one that fails.

    Attributes:
        table: the trials that it reads.
        start: the failing configuration that it begins with.
        held: the settings of `start` that heal causes found before; they stay.
        course: the way from `good` to `start`.
    """

    def __init__(self, table: Table, start: Configuration, held: Sequence[Setting] = ()) -> None:
        self.table = table
        self.start = start
        self.held = {s.factor: s for s in held}
        self.course = Course(table.playbook, start, self.held)
        self._remedied: dict[Configuration, Mapping[str, Sequence[Flip]]] = {}

    @cached_property
    def failing(self) -> tuple[Configuration, ...]:
        """The configurations on the way that fail, the nearest to `good` first; `start`, if none is known."""
        places = {c: on for c in self.table.configurations if (on := self.course.on(c)) is not None}
        found = [c for c in places if self.table.answer(c) is Answer.FAILS]
        return tuple(sorted(found, key=lambda c: places[c].bit_count())) or (self.start,)

    @cached_property
    def here(self) -> Configuration:
        """The failing configuration that is looked at: one that shows a cause, or the nearest to `good`."""
        proven = (c for c in self.failing if self._proven(c))
        return next(proven, self.failing[0])

    # --- a factor -------------------------------------------------------------------------------------

    @cached_property
    def differences(self) -> tuple[str, ...]:
        """The factors that `here` has otherwise than `good`, and that may be changed."""
        every = (s.factor for s in self.here.differs(self.table.playbook.good))
        return tuple(factor for factor in every if factor not in self.held)

    @property
    def stake(self) -> tuple[str, ...]:
        """The factors to look at in `here`: differences, then suspects."""
        suspects = (factor for factor in self.table.playbook.suspects if factor not in self.held)
        return (*self.differences, *suspects)

    def origin(self, factor: str) -> Configuration:
        """The failing configuration in which a factor was changed, to see whether the failure needs it.

        What heals another cause was changed in `bad`; what is as in `good` by now, in `start`.
        """
        if factor in self.held:
            return self.table.playbook.bad
        return self.start if self.gone(factor) else self.here

    def gone(self, factor: str) -> bool:
        """Whether a factor is as in `good` where the failure was followed to."""
        good = self.table.playbook.good
        return factor not in self.held and self.start[factor] != self.here[factor] == good[factor]

    def changes(self, failing: Configuration, factor: str) -> list[Flip]:
        """Every change of one factor of a failing configuration, run or not."""
        levels = self.table.levels(failing, factor)
        return [self.table.flip(failing, Setting(factor=factor, level=v)) for v in levels]

    def _remedies(self, failing: Configuration) -> Mapping[str, Sequence[Flip]]:
        """The changes of a failing configuration that heal, by factor, in the order of its levels."""
        if failing not in self._remedied:
            table = self.table
            near = {changed[0] for c in table.configurations if len(changed := c.differs(failing)) == 1}
            different = {s.factor for s in failing.differs(table.playbook.good)}
            stake = {*different, *table.playbook.suspects} - self.held.keys()
            healed: dict[str, list[Flip]] = {}
            for factor in stake & {s.factor for s in near}:
                settings = [Setting(factor=factor, level=v) for v in table.levels(failing, factor)]
                flips = [table.flip(failing, setting) for setting in settings if setting in near]
                if healing := [flip for flip in flips if flip.answer is Answer.HEALS]:
                    healed[factor] = healing
            self._remedied[failing] = healed
        return self._remedied[failing]

    def flips(self, factor: str) -> list[Flip]:
        """The changes of a factor that were run, alone or, where it still failed, with others."""
        if factor in self.held:
            return [self._stands(self.held[factor], self.start)]
        if self.gone(factor):
            return [self._stands(Setting(factor=factor, level=self.here[factor]), self.here)]
        found = [flip for flip in self.changes(self.here, factor) if flip.runs]
        ran = {flip.setting for flip in found}
        return found + [flip for flip in self._together(factor) if flip.setting not in ran]

    def _stands(self, setting: Setting, configuration: Configuration) -> Flip:
        """A setting that was changed on the way to a failing configuration."""
        return Flip(
            setting, configuration, tuple(self.table.runs(configuration)), self.table.answer(configuration)
        )

    def _together(self, factor: str) -> list[Flip]:
        """The changes of a factor that were made together with others, where it failed all the same."""
        return [
            self._stands(setting, configuration)
            for configuration, changed in self._cleared
            for setting in changed
            if setting.factor == factor
        ]

    @cached_property
    def _cleared(self) -> list[tuple[Configuration, tuple[Setting, ...]]]:
        """Several changes of what is the same in `good`, made at once, where it failed all the same."""
        free = set(self.stake) - set(self.differences)
        found = ((c, c.differs(self.here)) for c in self.table.configurations)
        return [
            (configuration, changed)
            for configuration, changed in found
            if len(changed) > 1
            and free.issuperset(s.factor for s in changed)
            and self.table.answer(configuration) is Answer.FAILS
        ]

    def listed(self, factor: str) -> list[Flip]:
        """The changes of a factor to every level that may be run, whether it was or not."""
        known = {flip.setting.level: flip for flip in self.flips(factor)}
        table, origin, bad = self.table, self.origin(factor), self.table.playbook.bad
        levels = table.levels(origin, factor)
        if table.playbook.factor(factor).ordered:
            levels = (*table.levels(bad, factor), bad[factor])
        present = origin[factor]
        return [
            known.get(v) or table.flip(origin, Setting(factor=factor, level=v))
            for v in levels
            if v != present
        ]

    @cached_property
    def asks(self) -> tuple[Setting, ...]:
        """Of each factor the next change of `here` that may tell whether the failure needs it."""
        cleared = {setting for _, changed in self._cleared for setting in changed}
        healing = self._remedies(self.here)
        found = []
        for factor in self.stake:
            ordered = self.table.playbook.factor(factor).ordered
            if factor in healing and not ordered:
                continue
            flips = self.changes(self.here, factor)
            wanted = self._unknown(flips) if ordered else [f for f in flips if f.setting not in cleared]
            if flip := next((flip for flip in wanted if flip.open), None):
                found.append(flip.setting)
        return tuple(found)

    @staticmethod
    def _unknown(flips: Sequence[Flip]) -> Sequence[Flip]:
        """Of the changes along an order, from good's side, those behind the last one that heals."""
        heal = [place for place, flip in enumerate(flips) if flip.answer is Answer.HEALS]
        return flips[heal[-1] + 1 :] if heal else flips

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
        every = self.changes(self.here, factor)
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
        flips = self.changes(self.here, factor)
        forbidden = [f.configuration for f in flips if f.answer is Answer.IMPOSSIBLE]
        if factor in self.kept:
            forbidden = [self.rest.replace([good])]
        return tuple(dict.fromkeys(bound(self.table.playbook, c) for c in forbidden))

    def boundary(self, factor: str) -> Boundary | None:
        """Where along an ordered factor `here` begins to fail; None while a level may still tell."""
        if factor in self.held or not self.table.playbook.factor(factor).ordered:
            return None
        flips = self.changes(self.here, factor)
        behind = self._unknown(flips)
        if len(behind) == len(flips) or any(flip.open for flip in behind):
            return None
        healing = flips[len(flips) - len(behind) - 1]
        return Boundary(factor, self.here[factor], healing.setting.level, tuple(behind))

    # --- the cause --------------------------------------------------------------------------------------

    @cached_property
    def needed(self) -> tuple[Setting, ...]:
        """The settings that a single change of `here` was seen to heal."""
        return self._needed(self.here)

    def _needed(self, failing: Configuration) -> tuple[Setting, ...]:
        return tuple(s for s in failing.settings() if s.factor in self._remedies(failing))

    @cached_property
    def rest(self) -> Configuration:
        """`good` with the settings that are needed: as much of it as is possible."""
        return self._rest(self.here)

    def _rest(self, failing: Configuration) -> Configuration:
        wanted = self.table.playbook.good.replace([*self.held.values(), *self._needed(failing)])
        return nearest(self.table.playbook, wanted, failing)

    @cached_property
    def kept(self) -> frozenset[str]:
        """The factors that stayed as they are, by what levels require and exclude, when the rest went."""
        if not self.needed or self.table.answer(self.rest) is not Answer.FAILS:
            return frozenset()
        wanted = self.table.playbook.good.replace([*self.held.values(), *self.needed])
        return frozenset(s.factor for s in self.rest.differs(wanted))

    def remedies(self, factor: str) -> Sequence[Flip]:
        """The changes of `here` that heal, good's level first; in an order the last is at the boundary."""
        return self._remedies(self.here).get(factor, [])

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs closed so far: `here` fails, with one change it passes, and it fails again after that."""
        return self._pairs(self.here)

    def _pairs(self, here: Configuration) -> tuple[Pair, ...]:
        table = self.table
        if table.answer(here) is not Answer.FAILS:
            return ()
        failing = [s for s in table.runs(here) if table.fails(s) and not isinstance(s.trial.change, Group)]
        needed = self._needed(here)
        found = []
        for setting in needed:
            remedies = self._remedies(here)[setting.factor]
            healing = remedies[-1] if table.playbook.factor(setting.factor).ordered else remedies[0]
            passing = [s for s in healing.runs if isinstance(s.outcome, Passed)]
            passing = passing[-1:] if table.flaky else passing[:1]
            again = [s for s in failing if table.after(s, passing[0])]
            if not again or again[-1] is failing[0]:
                continue
            found.append(
                Pair(
                    setting=setting,
                    failing=failing[0].trial.id,
                    passing=passing[0].trial.id,
                    again=again[-1].trial.id,
                )
            )
        return tuple(found)

    @cached_property
    def seen(self) -> tuple[Seen, ...]:
        """The runs on the way, as far as they show something of the failure or hide it."""
        found = []
        for run in self.table.settled:
            on = self.course.on(run.trial.configuration)
            if on is None or lost(run):
                continue
            shows = Shows.PASSES if isinstance(run.outcome, Passed) else Shows.HIDES
            found.append(Seen(on, Shows.FAILS if self.table.fails(run) else shows))
        return tuple(found)

    @cached_property
    def doubts(self) -> Mapping[str, float]:
        """How likely it is, of each factor that seems to be needed nearest to `good`, that it is not.

        Of a difference that is told by all runs on the way; of a suspect by the passes of its changes, held
        to be needed as likely as not. A failure that is not flaky leaves no such doubt.
        """
        here = self.failing[0]
        needed = [s.factor for s in self._needed(here)]
        if not self.table.flaky:
            return dict.fromkeys(needed, 0.0)
        alike = [1.0] * len(self.course.steps)
        odds = Odds(self.course.chains, alike, self.seen, self.top, flaky=True, sizes=CAREFUL)
        last = {self.course.steps[element].factor: element for element in elements(self.top)}
        told = {factor: 1 - odds.held(last[factor]) for factor in last if odds.guesses}
        return {f: told[f] if f in told else self._accident(here, f) for f in needed}

    def _accident(self, here: Configuration, factor: str) -> float:
        """How likely the passes of a change are, if it changes nothing."""
        flips = self._remedies(here)[factor]
        passes = max(sum(isinstance(s.outcome, Passed) for s in flip.runs) for flip in flips)
        return missed(*self.shown, passes)

    @cached_property
    def shown(self) -> tuple[int, int]:
        """Failures and passes of what holds all that the configuration nearest to `good` has on."""
        holding = [s.shows for s in self.seen if s.on & self.top == self.top]
        return holding.count(Shows.FAILS), holding.count(Shows.PASSES)

    @cached_property
    def top(self) -> int:
        """What the failing configuration nearest to `good` has on."""
        return self.course.on(self.failing[0]) or 0

    def _proven(self, here: Configuration) -> bool:
        """Whether a failing configuration shows a cause: enough, each setting needed, each pair closed."""
        needed = self._needed(here)
        if not needed or self.table.answer(self._rest(here)) is not Answer.FAILS:
            return False
        if self.table.flaky and (here != self.failing[0] or sum(self.doubts.values()) > self.table.error):
            return False
        return len(self._pairs(here)) == len(needed)

    @cached_property
    def cause(self) -> tuple[Setting, ...]:
        """The established cause, or nothing.

        A cause is a minimal set S of settings: `good` with S fails with the symptom of `bad` (it is
        enough), and a failing configuration that holds S passes when any one of S is set otherwise (each is
        needed, and has a closed pair at that configuration). Where bounds forbid `good` with S, the nearest
        possible configuration stands for it.
        """
        return self.needed if self._proven(self.here) and not self.asks else ()
