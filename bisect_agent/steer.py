"""Which run tells most about the cause for what it costs. Pure.

A run is worth the bits that it tells about the cause, and the runs that it saves of those that the proof
needs in the end: the cause alone fails, and with any one setting of it as in `good` it passes. Both are
counted in expected seconds, and the run is chosen that is worth most for each second it is expected to take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bisect_agent.odds import Block, Cause, Odds, Promise, entropy

REACHED = 0.75
"""The share of the bits it could tell that a run tells in the mean: the sets do not split evenly."""
QUICK = 10.0
"""Seconds below which a run is as cheap as any other: what an attempt takes besides is more."""
BEST = 6
"""So many of the likeliest causes have their proofs looked at."""
EVERY = 24
"""Of so many elements every number is tried; of more only some."""


@dataclass(frozen=True)
class Costs:
    """Expected seconds of a run that fails, and of one that passes."""

    fails: float = 1.0
    passes: float = 1.0

    @classmethod
    def learnt(cls, fails: Sequence[float], passes: Sequence[float]) -> Costs:
        """What runs have taken so far. Where only one kind was seen, the other is taken to be like it."""
        known = [max(QUICK, sum(took) / len(took)) if took else 0.0 for took in (fails, passes)]
        return cls(*(own or max(known) or 1.0 for own in known))

    def bit(self, rate: float) -> float:
        """Seconds that a bit takes at best, of a failure that shows itself at this rate.

        That is where a run holds the best share of the possible causes: the capacity of a channel whose
        letters have costs (Shannon 1948), in which a failure is missed at times.
        """
        return min(self.seconds(held / 100, rate) for held in range(1, 100))

    def seconds(self, held: float, rate: float) -> float:
        """Seconds that a bit takes where a run holds this share of the possible causes."""
        fails = held * rate
        bits = entropy(fails, 1 - fails) - held * entropy(rate, 1 - rate)
        return (fails * self.fails + (1 - fails) * self.passes) / bits if bits > 0 else math.inf


EQUAL = Costs()
"""As long as nothing is known of the times."""


@dataclass(frozen=True)
class Option:
    """A configuration that may be run next.

    Attributes:
        on: its elements.
        promise: what may come of it.
        proof: the likeliest cause that it is a part of the proof of.
        worth: the expected seconds that it saves for each second that it takes.
    """

    on: int
    promise: Promise
    proof: Cause | None
    worth: float


def options(
    odds: Odds,
    costs: Costs,
    closed: Callable[[int], int],
    proofs: Callable[[Cause], Sequence[int]],
    allowed: Callable[[int], int | None],
) -> list[Option]:
    """What may be run next, the most worthwhile first.

    `closed` adds the steps before those that are on, `proofs` gives what the proof of a cause still needs,
    `allowed` the nearest configuration that may be run, or None.
    """
    parts: dict[int, list[Cause]] = {}
    for cause in odds.causes(BEST):
        for on in proofs(cause):
            parts.setdefault(on, []).append(cause)
    wanted = dict.fromkeys([*parts, *_cuts(odds, closed)])
    bit = costs.bit(odds.rate)
    found: dict[int, Option] = {}
    for on in dict.fromkeys(run for one in wanted if (run := allowed(one)) is not None):
        promise = odds.promise(on)
        proving = parts.get(on, [])
        seconds = costs.fails * (promise.fails + promise.hides) + costs.passes * promise.passes
        saved = promise.bits * bit / REACHED
        for cause in proving:
            saved += cause.odds * (costs.passes if cause.mask & ~on else costs.fails)
        found[on] = Option(on, promise, proving[0] if proving else None, saved / seconds)
    return sorted(found.values(), key=lambda option: -option.worth)


def _cuts(odds: Odds, closed: Callable[[int], int]) -> Iterator[int]:
    """What is left of the elements when the likeliest or the least likely are taken away, or one is."""
    ranked = odds.ranked
    chained = {block.chain for block in ranked} - {None}
    orders = [ranked] if chained else [ranked, ranked[::-1]]
    for order in orders:
        kept = 0
        for block in order:
            for count in _counts(len(block.elements)):
                yield kept | _first(block, count)
            kept |= block.mask
    for block in ranked:
        for element in block.elements if len(ranked) + len(block.elements) <= EVERY else block.elements[-1:]:
            rest = odds.top & ~(1 << element)
            if closed(rest) == rest:
                yield rest


def _counts(size: int) -> Sequence[int]:
    if size <= EVERY:
        return range(1, size + 1)
    return sorted({size, *(round(size * n / EVERY) for n in range(1, EVERY)), size // 2, size - size // 2})


def _first(block: Block, count: int) -> int:
    return sum(1 << element for element in block.elements[:count])
