"""What the settled trials show about each configuration, factor and setting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import cached_property

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


class Answer(Enum):
    """What all runs of one configuration say together."""

    NOT_RUN = auto()
    HEALS = auto()
    FAILS = auto()
    OTHER = auto()
    """It failed otherwise, or not the same way each time."""
    UNRESOLVED = auto()


class Standing(StrEnum):
    """What the trials show about one factor of the failure."""

    NEEDED = "needed"
    NOT_NEEDED = "not needed"
    NOT_WITNESSED = "not witnessed"
    OTHER_FAILURE = "fails otherwise"
    NOT_APPLIED = "not applied"
    UNRESOLVED = "unresolved"
    NOT_RUN = "not run"


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


@dataclass(frozen=True)
class Walk:
    """A way from `bad` towards `good`, through configurations that fail the same.

    Attributes:
        here: the present failing configuration, as near to `good` as was seen.
        left: of each factor that was set as in `good`, the failing configuration in which it was.
        ahead: what to set as in `good` next; None before the walk and after it.
    """

    here: Configuration
    left: Mapping[str, Configuration] = field(default_factory=dict)
    ahead: Setting | None = None


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
        self._changes: dict[tuple[Configuration, str], tuple[Flip, ...]] = {}
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
        return self._together(self.runs(configuration))

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
        return _open(self.runs(configuration))

    def first(self, configuration: Configuration) -> Settled:
        """The first run in which a failing configuration failed the same."""
        return next(s for s in self.runs(configuration) if self.fails(s))

    def wavering(self) -> Settled | None:
        """A run that fails the same, where another run of its configuration says otherwise."""
        failing = (s for s in self.settled if self.fails(s))
        return next((s for s in failing if self.answer(s.trial.configuration) is not Answer.FAILS), None)

    def good_with(self, settings: Sequence[Setting]) -> Configuration:
        """`good` with these settings."""
        return self.playbook.good.replace(settings)

    # --- the way to good ------------------------------------------------------------------------------

    @cached_property
    def walk(self) -> Walk:
        """How far the failure was followed towards `good`.

        It begins where all single changes of `bad` are in, and those that heal are not enough: then
        some settings stand in for each other. Every difference that no single change heals is set as
        in `good`, one more at a time, for as long as it fails the same. What does anything else then
        stays as in `bad`: whether it is needed is asked in the end, at the configuration reached. So a
        step into a level that was not seen to take effect says nothing of its factor, only that this
        configuration fails.
        """
        walk = Walk(self.playbook.bad)
        if not self._astray():
            return walk
        for setting in self._way():
            there = walk.here.replace([setting])
            if self.open(there):
                return replace(walk, ahead=setting)
            if self.answer(there) is Answer.FAILS:
                walk = Walk(there, {**walk.left, setting.factor: walk.here})
        return walk

    def _astray(self) -> bool:
        """Whether the changes that heal `bad` are known, and are not enough."""
        bad = self.playbook.bad
        if self.answer(bad) is not Answer.FAILS or any(self._untried(bad, f) for f in self._stake(bad)):
            return False
        rest = self.good_with(self._needed(bad))
        return not self.open(rest) and self.answer(rest) is not Answer.FAILS

    def _way(self) -> list[Setting]:
        """The differences that no single change of `bad` heals, as `good` has them."""
        good, bad = self.playbook.good, self.playbook.bad
        needed = {s.factor for s in self._needed(bad)}
        return [s for s in good.differs(bad) if s.factor not in needed]

    def stake(self) -> tuple[str, ...]:
        """The factors to change in the present failing configuration: differences, then suspects."""
        return self._stake(self.walk.here)

    def _stake(self, failing: Configuration) -> tuple[str, ...]:
        return (*(s.factor for s in failing.differs(self.playbook.good)), *self.playbook.suspects)

    def origin(self, factor: str) -> Configuration:
        """The failing configuration in which a factor is changed, to see whether the failure needs it.

        The one where it was set as in `good`, if it was; else the present one.
        """
        return self.walk.left.get(factor, self.walk.here)

    # --- a factor -------------------------------------------------------------------------------------

    def levels(self, factor: str) -> tuple[str, ...]:
        """The levels to change a factor to: good's first, then the others as listed."""
        return self._levels(self.origin(factor), factor)

    def _levels(self, failing: Configuration, factor: str) -> tuple[str, ...]:
        good, present = self.playbook.good[factor], failing[factor]
        rest = [level for level in self.playbook.factor(factor).levels if level not in (good, present)]
        return tuple(rest) if good == present else (good, *rest)

    def _flips(self, failing: Configuration, factor: str) -> tuple[Flip, ...]:
        """Every change of one factor of a failing configuration, run or not."""
        key = failing, factor
        if key not in self._changes:
            settings = (Setting(factor=factor, level=level) for level in self._levels(failing, factor))
            self._changes[key] = tuple(self._flip(failing, setting) for setting in settings)
        return self._changes[key]

    def _flip(self, failing: Configuration, setting: Setting) -> Flip:
        configuration = failing.replace([setting])
        runs = tuple(s for s in self.runs(configuration) if not isinstance(s.trial.change, Group))
        said, whole = self._together(runs), self.answer(configuration)
        contradicted = said in {Answer.HEALS, Answer.FAILS} and said is not whole
        return Flip(setting, configuration, runs, whole if contradicted else said)

    def flips(self, factor: str) -> list[Flip]:
        """The changes of a factor that were run."""
        return [flip for flip in self._flips(self.origin(factor), factor) if flip.runs]

    def untried(self, factor: str) -> Setting | None:
        """The next level of a factor to try: None when one heals or all were tried."""
        return self._untried(self.walk.here, factor)

    def _untried(self, failing: Configuration, factor: str) -> Setting | None:
        for flip in self._flips(failing, factor):
            if flip.answer is Answer.HEALS:
                return None
            if flip.answer is Answer.NOT_RUN:
                return flip.setting
        return None

    def lost(self) -> list[Setting]:
        """Changes of differences that were lost on the way, where one more run may show a need."""
        differences = [s.factor for s in self.walk.here.differs(self.playbook.good)]
        idle = [f for f in differences if self.standing(f) is not Standing.NEEDED]
        flips = [flip for f in idle for flip in self.flips(f)]
        return [flip.setting for flip in flips if _open(flip.runs)]

    def standing(self, factor: str) -> Standing:
        """What the changes of a factor show.

        A change that heals is its own witness. One that does not heal votes only when its level was
        seen to take effect (rule 4).
        """
        flips = self.flips(factor)
        answers = [flip.answer for flip in flips]
        if Answer.HEALS in answers:
            return Standing.NEEDED
        if any(self._votes(flip) for flip in flips):
            return Standing.NOT_NEEDED
        if Answer.FAILS in answers:
            return Standing.NOT_WITNESSED
        if Answer.OTHER in answers:
            return Standing.OTHER_FAILURE
        if any(self._not_applied(flip) for flip in flips):
            return Standing.NOT_APPLIED
        return Standing.UNRESOLVED if flips else Standing.NOT_RUN

    def _votes(self, flip: Flip) -> bool:
        factor, failing = flip.setting.factor, [s for s in flip.runs if self.fails(s)]
        shown = all(s.applied.get(factor) is Applied.WITNESSED for s in failing)
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
        return next(s for s in voting.runs if self.fails(s))

    @cached_property
    def needed(self) -> tuple[Setting, ...]:
        """The settings that a single change of the present failing configuration was seen to heal."""
        return self._needed(self.walk.here)

    def _needed(self, failing: Configuration) -> tuple[Setting, ...]:
        heal = {
            factor
            for factor in self._stake(failing)
            if any(flip.answer is Answer.HEALS for flip in self._flips(failing, factor))
        }
        return tuple(s for s in failing.settings() if s.factor in heal)

    # --- pairs and leads ------------------------------------------------------------------------------

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs closed so far: a failing configuration, one change passing, failing again after it."""
        here = self.walk.here
        if self.answer(here) is not Answer.FAILS:
            return ()
        failing = [s for s in self.runs(here) if self.fails(s)]
        found = []
        for setting in self.needed:
            healing = next(f for f in self.flips(setting.factor) if f.answer is Answer.HEALS)
            passing = next(s for s in healing.runs if isinstance(s.outcome, Passed))
            again = [s for s in failing if self._place[s.trial.id] > self._place[passing.trial.id]]
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

    def leads(self) -> tuple[Settled, ...]:
        """Trials that failed otherwise than `bad` did: other failures, with their own evidence."""
        return tuple(s for s in self.settled if isinstance(s.outcome, Failed) and not self.fails(s))
