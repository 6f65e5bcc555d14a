"""What the settled trials show about each configuration, factor and setting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, StrEnum, auto

from bisect_agent.model import (
    Applied,
    Configuration,
    Failed,
    Pair,
    Passed,
    Playbook,
    Reason,
    Setting,
    Settled,
    Symptom,
    Unresolved,
)


class Answer(Enum):
    """What all runs of one configuration say together."""

    NOT_RUN = auto()
    HEALS = auto()
    FAILS = auto()
    OTHER = auto()
    """It failed otherwise, or not the same way each time."""
    UNRESOLVED = auto()


class Standing(StrEnum):
    """What the trials show about one factor of `bad`."""

    NEEDED = "needed"
    NOT_NEEDED = "not needed"
    NOT_WITNESSED = "not witnessed"
    OTHER_FAILURE = "fails otherwise"
    NOT_APPLIED = "not applied"
    UNRESOLVED = "unresolved"
    NOT_RUN = "not run"


def accused(settings: Iterable[Setting]) -> str:
    """A set of settings as a person writes it."""
    return " × ".join(str(s) for s in settings)


class Table:
    """The settled trials of a run, looked at through the rules of evidence.

    `symptom` is the failure under investigation: the first one that `bad` showed.
    """

    def __init__(self, playbook: Playbook, settled: Sequence[Settled]) -> None:
        self.playbook = playbook
        self.settled = tuple(settled)
        failures = (s.outcome for s in self.runs(playbook.bad) if isinstance(s.outcome, Failed))
        first = next(failures, None)
        self.symptom: Symptom | None = first.symptom if first else None

    def runs(self, configuration: Configuration) -> list[Settled]:
        """The settled trials of a configuration, oldest first."""
        return [s for s in self.settled if s.trial.configuration == configuration]

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
        if not runs:
            return Answer.NOT_RUN
        if any(isinstance(s.outcome, Unresolved) for s in runs):
            return Answer.UNRESOLVED
        if all(isinstance(s.outcome, Passed) for s in runs):
            return Answer.HEALS
        if all(self.fails(s) for s in runs):
            return Answer.FAILS
        return Answer.OTHER

    def levels(self, factor: str) -> tuple[str, ...]:
        """The levels to flip a factor of `bad` to: good's first, then the others as listed."""
        good, bad = self.playbook.good[factor], self.playbook.bad[factor]
        rest = [level for level in self.playbook.factor(factor).levels if level not in (good, bad)]
        return tuple(rest) if good == bad else (good, *rest)

    def flips(self, factor: str) -> list[tuple[Setting, list[Settled]]]:
        """The flips of a factor from `bad` that were run, each with its runs."""
        settings = [Setting(factor=factor, level=level) for level in self.levels(factor)]
        runs = [(s, self.runs(self.playbook.bad.replace([s]))) for s in settings]
        return [(setting, found) for setting, found in runs if found]

    def standing(self, factor: str) -> Standing:
        """What the flips of a factor from `bad` show.

        A flip that heals is its own witness. One that does not heal votes only when its level was
        seen to take effect (rule 4).
        """
        flips = self.flips(factor)
        answers = [self.answer(self.playbook.bad.replace([setting])) for setting, _ in flips]
        if Answer.HEALS in answers:
            return Standing.NEEDED
        if any(self._votes(factor, runs) for _, runs in flips):
            return Standing.NOT_NEEDED
        if Answer.FAILS in answers:
            return Standing.NOT_WITNESSED
        if Answer.OTHER in answers:
            return Standing.OTHER_FAILURE
        if any(self._not_applied(runs) for _, runs in flips):
            return Standing.NOT_APPLIED
        return Standing.UNRESOLVED if flips else Standing.NOT_RUN

    def _votes(self, factor: str, runs: Sequence[Settled]) -> bool:
        return all(self.fails(s) and s.applied.get(factor) is Applied.WITNESSED for s in runs)

    @staticmethod
    def _not_applied(runs: Sequence[Settled]) -> bool:
        return any(isinstance(s.outcome, Unresolved) and s.outcome.reason is Reason.NOT_APPLIED for s in runs)

    def witnessed(self, factor: str) -> Settled | None:
        """The trial that shows that a factor is not needed."""
        voting = (runs[0] for _, runs in self.flips(factor) if self._votes(factor, runs))
        return next(voting, None)

    def needed(self) -> tuple[Setting, ...]:
        """The settings of `bad` that a single flip was seen to heal, in the playbook's order."""
        return tuple(s for s in self.playbook.bad.settings() if self.standing(s.factor) is Standing.NEEDED)

    def good_with(self, settings: Sequence[Setting]) -> Configuration:
        """`good` with these settings."""
        return self.playbook.good.replace(settings)

    def pairs(self) -> tuple[Pair, ...]:
        """The pairs closed so far: `bad` failing, one flip passing, `bad` failing again after it."""
        if self.answer(self.playbook.bad) is not Answer.FAILS:
            return ()
        bad = self.runs(self.playbook.bad)
        found = []
        for setting in self.needed():
            passing = next(
                runs
                for flip, runs in self.flips(setting.factor)
                if self.answer(self.playbook.bad.replace([flip])) is Answer.HEALS
            )
            again = [s for s in bad if self.settled.index(s) > self.settled.index(passing[0])]
            if again and again[-1] is not bad[0]:
                found.append(
                    Pair(
                        setting=setting,
                        failing=bad[0].trial.id,
                        passing=passing[0].trial.id,
                        again=again[-1].trial.id,
                    )
                )
        return tuple(found)

    def leads(self) -> tuple[Settled, ...]:
        """Trials that failed otherwise than `bad` did: other failures, with their own evidence."""
        return tuple(s for s in self.settled if isinstance(s.outcome, Failed) and not self.fails(s))
