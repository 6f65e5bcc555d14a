"""What lies ahead: the next trials by what the ones before them show, and how many there will be. Pure.

The search itself is asked, as if trials had settled one way and the other. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from bisect_agent import search
from bisect_agent.evidence import Table
from bisect_agent.model import (
    Applied,
    Failed,
    Passed,
    Playbook,
    Setting,
    Settled,
    Symptom,
    SymptomKind,
    Trial,
)
from bisect_agent.steer import EQUAL, Costs

SAMPLE = 40
"""So many causes are searched to say how many trials one takes, if there are more."""
MOST = 1000
"""A search that takes more trials is not followed further."""


@dataclass(frozen=True)
class Ahead:
    """A trial ahead.

    Attributes:
        trial: what would be run.
        why: the search's own reason.
        fails: the probability that it fails the same.
        after_failure: what comes then; None beyond the depth that was asked for.
        after_pass: the same where it passes.
    """

    trial: Trial
    why: str
    fails: float
    after_failure: Ahead | search.Finished | None = None
    after_pass: Ahead | search.Finished | None = None


@dataclass(frozen=True)
class Count:
    """How many trials a search takes, from the first to the verdict, if the cause has so many settings.

    Attributes:
        size: how many.
        mean: trials in the mean.
        most: trials at most, of the causes searched.
        of: how many causes were searched.
        seconds: the attempts' expected time in the mean; None where no attempt has shown any.
    """

    size: int
    mean: float
    most: int
    of: int
    seconds: float | None


def tree(
    playbook: Playbook, settled: Sequence[Settled], depth: int, costs: Costs = EQUAL
) -> Ahead | search.Finished | None:
    """The trials ahead, `depth` of them one after another; the end of the search where it comes before."""
    if depth == 0:
        return None
    step = search.step(playbook, settled, (), 1, costs)
    if isinstance(step, search.Finished):
        return step
    wanted = step.wanted[0]

    def after(*, fails: bool) -> Ahead | search.Finished | None:
        if (wanted.fails if fails else 1 - wanted.fails) <= 0:
            return None
        return tree(
            playbook, [*settled, _settled(playbook, settled, wanted.trial, fails=fails)], depth - 1, costs
        )

    return Ahead(wanted.trial, wanted.why, wanted.fails, after(fails=True), after(fails=False))


def counts(playbook: Playbook, seconds: Costs | None = None) -> Iterator[Count]:
    """How many trials a search takes where one setting is the cause, two, or three."""
    differences = playbook.bad.differs(playbook.good)
    for size in range(1, min(3, len(differences)) + 1):
        every = list(combinations(differences, size))
        causes = every[:: -(-len(every) // SAMPLE)]
        searched = [_searched(playbook, cause, seconds or EQUAL) for cause in causes]
        took = [len(settled) for settled in searched]
        spent = [sum(_took(run, seconds) for run in settled) for settled in searched] if seconds else []
        mean = sum(spent) / len(spent) if spent else None
        yield Count(size, sum(took) / len(took), max(took), len(took), mean)


def _took(run: Settled, seconds: Costs) -> float:
    return seconds.passes if isinstance(run.outcome, Passed) else seconds.fails


def _searched(playbook: Playbook, cause: Iterable[Setting], costs: Costs) -> list[Settled]:
    """All trials of a search, where a configuration fails that holds all of these settings."""
    needs = set(cause)
    settled: list[Settled] = []
    while len(settled) < MOST:
        step = search.step(playbook, settled, (), 1, costs)
        if isinstance(step, search.Finished):
            break
        trial = step.wanted[0].trial
        fails = needs <= set(trial.configuration.settings())
        settled.append(_settled(playbook, settled, trial, fails=fails))
    return settled


def _settled(playbook: Playbook, before: Sequence[Settled], trial: Trial, *, fails: bool) -> Settled:
    """A trial as if it had settled, with every level seen to take effect."""
    symptom = Table(playbook, before).symptom or Symptom(
        kind=SymptomKind.SIGNATURE, id="the failure of bad", text="", phase=""
    )
    return Settled(
        trial=trial,
        attempt=1,
        outcome=Failed(symptom=symptom) if fails else Passed(),
        applied=dict.fromkeys(trial.configuration.root, Applied.WITNESSED),
    )
