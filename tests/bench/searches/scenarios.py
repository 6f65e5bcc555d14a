"""The scenarios of the benchmark: what is drawn anew for each placement, and what is true of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Literal

from tests.bench.searches.oracle import REFUSED, SECOND, TARGET, Rule, World

RATE = 0.7
"""How often a flaky failure shows itself."""
LOSS = 0.1
ERROR = 0.01
"""The error that is stated where a failure is flaky."""

Sets = frozenset[frozenset[str]]
Side = Literal["good", "bad"]
Truth = Sets | Side
"""The causes; or which side is not as it should be, so that there is nothing to find."""
Draw = Callable[[Random, Sequence[str]], tuple[list[Rule], Truth]]


@dataclass(frozen=True)
class Named:
    """A searcher says that these sets are the causes."""

    sets: Sets


@dataclass(frozen=True)
class Declined:
    """A searcher says that it cannot conclude; or that `good` or `bad` is not what it should be."""

    side: Side | None
    why: str


Claim = Named | Declined


class Verdict(StrEnum):
    """What a claim is worth. Only `wrong` misleads."""

    RIGHT = "right"
    PART = "part"
    """All that is named is a cause, and not every cause is named."""
    OPEN = "not established"
    WRONG = "wrong"


@dataclass(frozen=True)
class Scenario:
    """A kind of worlds.

    Attributes:
        name: the heading of its column.
        draw: rules and the truth, by chance.
        size: how many factors, or, where it is `ordered`, versions after the first.
        bar: the mean of runs to reach.
        bound: the mean of runs below which no search that is right, and looks at both sides, can come.
        lost: the share of runs of which nothing is seen.
        error: the share of wrong verdicts that is allowed.
        every: whether every cause is asked for.
        declared: whether what cannot be is said beforehand.
        ordered: whether there is one factor, of ordered versions.
        flaky: whether the failure shows itself only at times.
        sizes: how many factors a cause has at most.
        alike: whether all its worlds are the same.
    """

    name: str
    draw: Draw
    bar: float
    bound: float
    size: int = 16
    lost: float = 0.0
    error: float = 0.0
    every: bool = False
    declared: bool = False
    ordered: bool = False
    flaky: bool = False
    sizes: int = 1
    alike: bool = False

    @property
    def factors(self) -> tuple[str, ...]:
        """Their names, in an order that tells nothing."""
        width = len(str(self.size))
        return tuple(f"t{number:0{width}}" for number in range(1, self.size + 1))

    def placed(self, seed: str) -> Placement:
        """One of its worlds."""
        seed = f"{self.name} {seed}"
        rules, truth = self.draw(Random(seed), self.factors)  # noqa: S311  # a world, not a secret
        return Placement(self, World(self.factors, rules, self.lost, seed), truth)


@dataclass(frozen=True)
class Placement:
    """A world and the truth of it."""

    scenario: Scenario
    world: World
    truth: Truth

    def held(self, claim: Claim) -> Verdict:
        """A claim held against the truth."""
        match claim:
            case Declined(side=side):
                return Verdict.RIGHT if side == self.truth else Verdict.OPEN
            case Named(sets=sets) if isinstance(self.truth, str) or not sets or not sets <= self.truth:
                return Verdict.WRONG
            case Named(sets=sets):
                return Verdict.RIGHT if sets == self.truth else Verdict.PART


# --- what is drawn ------------------------------------------------------------------------------------


def _cause(size: int, rate: float = 1.0) -> Draw:
    def draw(dice: Random, names: Sequence[str]) -> tuple[list[Rule], Truth]:
        needs = dice.sample(names, size)
        return [(needs, (), TARGET, rate)], frozenset({frozenset(needs)})

    return draw


def _two(dice: Random, names: Sequence[str]) -> tuple[list[Rule], Truth]:
    one, other = dice.sample(names, 2)
    return [([x], (), TARGET, 1.0) for x in (one, other)], frozenset({frozenset({one}), frozenset({other})})


def _invalid(dice: Random, names: Sequence[str]) -> tuple[list[Rule], Truth]:
    """Three factors each need another one, or the start is refused."""
    cause, *others = dice.sample(names, 7)
    pairs = zip(others[::2], others[1::2], strict=True)
    refused: list[Rule] = [([one], [other], REFUSED, 1.0) for one, other in pairs]
    return [*refused, ([cause], (), TARGET, 1.0)], frozenset({frozenset({cause})})


def _behind(dice: Random, names: Sequence[str]) -> tuple[list[Rule], Truth]:
    """Without the cause, another factor makes it fail otherwise."""
    cause, other = dice.sample(names, 2)
    return [([cause], (), TARGET, 1.0), ([other], (), SECOND, 1.0)], frozenset({frozenset({cause})})


def _always(_: Random, __: Sequence[str]) -> tuple[list[Rule], Truth]:
    return [((), (), TARGET, 1.0)], "good"


def _never(_: Random, __: Sequence[str]) -> tuple[list[Rule], Truth]:
    return [], "bad"


# --- the bounds ---------------------------------------------------------------------------------------


def splits(candidates: int) -> float:
    """The least mean of yes-or-no questions that tell equally likely candidates apart."""
    whole = int(math.log2(candidates))
    return whole + 2 - float(2 ** (whole + 1)) / candidates


def noisy(candidates: int, rate: float, error: float) -> float:
    """The same where a yes is seen at a rate, and an error is allowed (Fano; capacity of a Z-channel)."""
    missed = 1 - rate
    capacity = math.log2(1 + rate * missed ** (missed / rate))
    doubt = -error * math.log2(error) - (1 - error) * math.log2(1 - error)
    return ((1 - error) * math.log2(candidates) - doubt) / capacity


# The two sides are run, and what is left is told apart by yes and no. Where a world has more in it than its
# cause, that is told for free. A failure that shows at a rate shows itself in `bad` after 1 / rate runs.
_PAIRS, _TRIPLES = math.comb(16, 2), math.comb(16, 3)
_SIDES = 1 + 1 / RATE
SCENARIOS = (
    Scenario("single", _cause(1), 8, 2 + splits(16)),
    Scenario("pair", _cause(2), 15, 2 + splits(_PAIRS), sizes=2),
    Scenario("triple", _cause(3), 21, 2 + splits(_TRIPLES), sizes=3),
    Scenario("two causes", _two, 18, 2 + splits(_PAIRS), every=True),
    Scenario("invalid", _invalid, 12, 2 + splits(16 - 6)),
    Scenario("invalid, declared", _invalid, 12, 2 + splits(16 - 6), declared=True),
    Scenario("other behind", _behind, 9, 2 + splits(16 - 1)),
    Scenario("flaky", _cause(1, RATE), 16, _SIDES + noisy(16, RATE, ERROR), error=ERROR, flaky=True),
    Scenario(
        "flaky pair",
        _cause(2, RATE),
        40,
        _SIDES + noisy(_PAIRS, RATE, ERROR),
        error=ERROR,
        flaky=True,
        sizes=2,
    ),
    Scenario("10 % lost", _cause(1), 9.5, (2 + splits(16)) / (1 - LOSS), lost=LOSS),
    Scenario("good fails", _always, 2, 1, alike=True),
    Scenario("bad is fine", _never, 7, 2, alike=True),
    Scenario("of 64", _cause(1), 10, 2 + splits(64), size=64),
    Scenario("of 256", _cause(1), 12, 2 + splits(256), size=256),
    Scenario("200 versions", _cause(1), 11, 2 + splits(199), size=199, ordered=True),
)
