"""What the cause may be, and how likely each possibility is after what was seen. Pure.

A stack is looked at as elements that are on or off: an element is one step of a factor from good's level
towards bad's. A configuration is the set of elements that are on, as a bit mask. The cause is a set of one,
two or three elements: a configuration that holds all of them fails, each time or, where the failure is
flaky, at some rate. Any other works.

Elements that were on and off together in all that was seen, and are equally suspect, are alike: they are
counted in blocks and not one by one, so that hundreds of factors take hardly longer than ten.

What fails otherwise may hide the failure under investigation, whatever the cause (some element that is on
needs another one that is off: a front), or it may be a failure behind it, which shows where the cause is
off. The probability of each pair and element to be that is kept as if they were independent: after each run
it is what Bayes' rule makes of it (assumed density filtering).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement

from bisect_agent.rates import RATES, likely

SIZES = (0.02, 0.92, 0.05, 0.03)
"""How likely a cause is to have so many elements, from none on, as the search bets."""
CAREFUL = (0.02, 0.53, 0.28, 0.17)
"""The same, where it is no bet: what is said of the error of a verdict rests on it."""
MORE = ((0.0,) * 4 + (1.0,), (0.0,) * 5 + (1.0,))
"""The same where no cause of these sizes explains what was seen: four elements, and then five."""
KINDS = 30_000
"""So many kinds of causes are weighed at most."""
FRONT, BEHIND = 1.5, 0.7
"""How many fronts, and how many failures behind, are expected as soon as something fails otherwise."""
SURE = 0.999
"""No front and no failure behind is more likely than this: another one may be the one that was met."""


class Shows(Enum):
    """What a run shows of the failure under investigation."""

    FAILS = auto()
    PASSES = auto()
    HIDES = auto()
    """It failed otherwise, or could not be tested."""


@dataclass(frozen=True)
class Seen:
    """A run: what was on, and what it showed."""

    on: int
    shows: Shows


@dataclass(frozen=True)
class Block:
    """Elements that nothing seen tells apart; those of one factor in the order of its levels."""

    mask: int
    elements: tuple[int, ...]
    weight: float
    chain: int | None


@dataclass(frozen=True)
class Guess:
    """A kind of causes: one element of each of these blocks.

    Attributes:
        blocks: places of blocks, ascending; one that comes twice gives two elements.
        mask: all elements of these blocks.
        odds: the probability that the cause is of this kind.
        fails: the same, and that it shows itself in a run that holds it.
        noise: bits of doubt about whether it shows itself, times `odds`.
    """

    blocks: tuple[int, ...]
    mask: int
    odds: float
    fails: float
    noise: float


@dataclass(frozen=True)
class Cause:
    """One possible cause: its elements, and how likely it is."""

    mask: int
    odds: float


@dataclass(frozen=True)
class Promise:
    """What a run of some configuration promises: the probability of each outcome, and bits."""

    fails: float
    passes: float
    hides: float
    bits: float


def elements(mask: int) -> Iterator[int]:
    """The elements of a bit mask, ascending."""
    return (place for place in range(mask.bit_length()) if mask >> place & 1)


def entropy(*shares: float) -> float:
    """Bits of doubt about which one comes, of shares that sum to one."""
    return -sum(p * math.log2(p) for p in shares if p > 0)


@lru_cache(maxsize=4096)
def _flaky(fails: int, passes: int) -> tuple[float, float, float]:
    """Over all rates: how likely such runs are, such runs and one more failure, the doubt about one more."""
    known = likely(fails, passes)
    again = sum(p * rate for p, rate in zip(known, RATES, strict=True))
    noise = sum(p * entropy(rate, 1 - rate) for p, rate in zip(known, RATES, strict=True))
    return sum(known), again, noise


def _steady(_: int, passes: int) -> tuple[float, float, float]:
    return (0.0, 0.0, 0.0) if passes else (1.0, 1.0, 0.0)


class Odds:
    """The possible causes after what was seen.

    Attributes:
        top: a set of elements that was seen to fail; the cause is looked for in it.
        blocks: of all elements, those in `top` first.
        guesses: the possible causes by kind; none where no cause of three elements explains what was seen.
    """

    def __init__(
        self,
        chains: Sequence[int],
        weights: Sequence[float],
        seen: Sequence[Seen],
        top: int,
        *,
        flaky: bool = False,
        flying: Sequence[int] = (),
        sizes: Sequence[float] = SIZES,
    ) -> None:
        """Of each element: of which factor it is a step, and how suspect it is."""
        self.top = top
        self.flying = tuple(dict.fromkeys(on & self.top for on in flying))
        told = dict.fromkeys((*(s.on for s in seen), *flying, self.top))
        self.blocks = _blocks(chains, weights, self.top, tuple(told))
        self._inside = sum(1 for block in self.blocks if not block.mask & ~self.top)
        self.guesses: list[Guess] = []
        for shares in (sizes, *MORE):
            kinds = math.comb(self._inside + len(shares) - 1, len(shares) - 1)
            if not self.guesses and (shares is sizes or kinds <= KINDS):
                self.guesses = self._weighed(seen, weights, shares, _flaky if flaky else _steady)
        hidden = [s.on for s in seen if s.shows is Shows.HIDES]
        self._cover = _Cover(self.blocks, len(chains)) if hidden and self.guesses else None
        if self._cover:
            self._learn(self._cover, seen, hidden)

    def _weighed(
        self,
        seen: Sequence[Seen],
        weights: Sequence[float],
        sizes: Sequence[float],
        chance: Callable[[int, int], tuple[float, float, float]],
    ) -> list[Guess]:
        """Every kind of causes in `top`, by Bayes' rule."""
        # What fails without some of `top` has another cause, and says nothing of this one.
        counted: dict[int, list[int]] = {}
        for run in seen:
            if run.shows is Shows.PASSES:
                counted.setdefault(run.on & self.top, [0, 0])[1] += 1
            elif run.shows is Shows.FAILS and run.on & self.top == self.top:
                counted.setdefault(self.top, [0, 0])[0] += 1
        runs = [(on, fails, passes) for on, (fails, passes) in counted.items()]
        total = _symmetric(weights, len(sizes) - 1)
        found = []
        for kind in self._kinds(sizes):
            mask, prior = 0, sizes[len(kind)] / total[len(kind)]
            for place in kind:
                mask |= self.blocks[place].mask
                prior *= self.blocks[place].weight
            for place in set(kind):
                prior *= math.comb(len(self.blocks[place].elements), kind.count(place))
            held = [(fails, passes) for on, fails, passes in runs if not mask & ~on]
            odds, again, noise = chance(sum(f for f, _ in held), sum(p for _, p in held))
            if prior * odds > 0:
                found.append(Guess(kind, mask, prior * odds, prior * again, prior * noise))
        return _normal(found)

    def _kinds(self, sizes: Sequence[float]) -> Iterator[tuple[int, ...]]:
        """Blocks from which a cause takes its elements. Of one factor, one step is enough."""
        chain = [block.chain for block in self.blocks]
        for size in (size for size, share in enumerate(sizes) if share):
            for kind in combinations_with_replacement(range(self._inside), size):
                long = [chain[place] for place in kind if chain[place] is not None]
                room = all(kind.count(p) <= len(self.blocks[p].elements) for p in kind)
                if room and len(long) == len(set(long)):
                    yield kind

    def _learn(self, cover: _Cover, seen: Sequence[Seen], hidden: Sequence[int]) -> None:
        for run in seen:
            if run.shows is not Shows.HIDES:
                cover.spares(run.on, behind=run.shows is Shows.PASSES)
        for on in hidden:
            inside = sum(guess.odds for guess in self.guesses if not guess.mask & ~on)
            front, behind = cover.met(on, inside)
            chance = {True: front, False: front + (1 - front) * behind}
            self.guesses = _normal([_scaled(g, chance[not g.mask & ~on]) for g in self.guesses])

    def held(self, element: int) -> float:
        """The probability that the cause holds an element, one that has been told apart from all others."""
        return sum(guess.odds for guess in self.guesses if guess.mask >> element & 1)

    # --- what may be run -----------------------------------------------------------------------------

    def promise(self, on: int) -> Promise:
        """What a run with these elements of `top` on promises, beside those in flight."""
        shares = self._shares(on)
        told: dict[tuple[bool, ...], list[float]] = {}
        for guess, share in zip(self.guesses, shares, strict=True):
            pattern = tuple(not guess.mask & ~flying for flying in self.flying)
            sums = told.setdefault(pattern, [0.0, 0.0, 0.0, 0.0])
            sums[0] += guess.odds
            sums[1] += share * guess.odds
            sums[2] += share * guess.fails
            sums[3] += share * guess.noise
        front, behind = self._cover.chance(on) if self._cover else (0.0, 0.0)
        bits = sum(sums[0] * _bits(sums, front, behind) for sums in told.values())
        shows = sum(sums[2] for sums in told.values()) * (1 - front)
        open_ = (1 - front) - shows
        return Promise(shows, open_ * (1 - behind), front + open_ * behind, bits)

    def _shares(self, on: int) -> list[float]:
        """Of each kind of causes, the share that a configuration holds."""
        part = {
            place: (on & block.mask).bit_count()
            for place, block in enumerate(self.blocks[: self._inside])
            if on & block.mask and block.mask & ~on
        }
        if not part:
            return [0.0 if guess.mask & ~on else 1.0 for guess in self.guesses]
        cut = sum(self.blocks[place].mask for place in part)
        return [self._share(guess, on, part, cut) for guess in self.guesses]

    def _share(self, guess: Guess, on: int, part: dict[int, int], cut: int) -> float:
        if guess.mask & ~cut & ~on:
            return 0.0
        share = 1.0
        for place in set(guess.blocks) & part.keys():
            count = guess.blocks.count(place)
            share *= math.comb(part[place], count) / math.comb(len(self.blocks[place].elements), count)
        return share

    @cached_property
    def ranked(self) -> list[Block]:
        """The blocks of `top`, the likeliest elements first; those of one factor in their order."""
        odds = [0.0] * self._inside
        for guess in self.guesses:
            for place in guess.blocks:
                odds[place] += guess.odds / len(self.blocks[place].elements)
        order = sorted(range(self._inside), key=lambda place: -odds[place])
        found: list[Block] = []
        for place in order:
            chain = self.blocks[place].chain
            if chain is None:
                found.append(self.blocks[place])
            elif all(block.chain != chain for block in found):
                found += [b for b in self.blocks[: self._inside] if b.chain == chain]
        return found

    @property
    def rate(self) -> float:
        """How often the failure is expected to show itself where the cause is on."""
        return sum(guess.fails for guess in self.guesses) or 1.0

    def causes(self, most: int) -> list[Cause]:
        """The likeliest causes, one of each kind: of elements that are alike, the first."""
        found = []
        for guess in self.guesses:
            mask, ways = 0, 1
            for place in set(guess.blocks):
                block, count = self.blocks[place], guess.blocks.count(place)
                mask |= sum(1 << element for element in block.elements[:count])
                ways *= math.comb(len(block.elements), count)
            if mask:
                found.append(Cause(mask, guess.odds / ways))
        return heapq.nlargest(most, found, key=lambda cause: cause.odds)


def _bits(sums: Sequence[float], front: float, behind: float) -> float:
    """Bits that a run tells about the cause: those of its outcome, less those that chance makes."""
    whole, held, fails, noise = sums
    if whole <= 0:
        return 0.0
    held, fails, noise = held / whole, fails / whole, noise / whole
    free, miss = 1 - front, 1 - fails
    outcome = entropy(free * fails, free * miss * (1 - behind), front + free * miss * behind)
    cover = entropy(front, 1 - front)
    # Beside what covers it, chance decides whether a cause that is held shows itself.
    outside = entropy(front + free * behind, free * (1 - behind))
    lost = free * noise if not behind else free * noise + (held - fails) * free * entropy(behind, 1 - behind)
    return max(0.0, outcome - held * cover - lost - (1 - held) * outside)


def _scaled(guess: Guess, factor: float) -> Guess:
    return replace(guess, odds=guess.odds * factor, fails=guess.fails * factor, noise=guess.noise * factor)


def _normal(guesses: Sequence[Guess]) -> list[Guess]:
    whole = sum(guess.odds for guess in guesses)
    return [_scaled(guess, 1 / whole) for guess in guesses if guess.odds > 0] if whole > 0 else []


def _symmetric(weights: Sequence[float], degree: int) -> list[float]:
    """The elementary symmetric sums of the weights: over all sets of 0, 1, … `degree` elements."""
    sums = [1.0] + [0.0] * degree
    for weight in weights:
        for size in range(degree, 0, -1):
            sums[size] += weight * sums[size - 1]
    return [total or 1.0 for total in sums]


def _blocks(chains: Sequence[int], weights: Sequence[float], top: int, told: Sequence[int]) -> list[Block]:
    """Elements by what was on with them; those in `top` first."""
    lengths = Counter(chains)
    alike: dict[tuple[bool, tuple[int, ...], float, int | None], list[int]] = {}
    for element, chain in enumerate(chains):
        history = tuple(on >> element & 1 for on in told)
        outside = not top >> element & 1
        key = (outside, history, weights[element], chain if lengths[chain] > 1 else None)
        alike.setdefault(key, []).append(element)
    return [
        Block(sum(1 << e for e in elements_), tuple(elements_), weight, chain)
        for (_, _, weight, chain), elements_ in sorted(alike.items(), key=lambda pair: pair[0][0])
    ]


class _Cover:
    """What may hide the failure: fronts (one element is on, another off), and failures behind it."""

    def __init__(self, blocks: Sequence[Block], count: int) -> None:
        places = range(len(blocks))
        self._blocks = blocks
        self._front = {(x, y): FRONT / max(1, count * (count - 1)) for x in places for y in places}
        self._behind = [BEHIND / count] * len(blocks)

    def _counts(self, on: int) -> list[tuple[int, int]]:
        """Of each block, how many elements are on and off."""
        held = [(on & block.mask).bit_count() for block in self._blocks]
        return [(n, len(block.elements) - n) for n, block in zip(held, self._blocks, strict=True)]

    def chance(self, on: int) -> tuple[float, float]:
        """The probability that a front hides what a configuration shows, and that a failure behind is on."""
        counts = self._counts(on)
        open_ = 0.0
        for (x, y), chance in self._front.items():
            if chance and (ways := counts[x][0] * counts[y][1]):
                open_ += ways * math.log1p(-chance)
        behind = sum(n * math.log1p(-p) for (n, _), p in zip(counts, self._behind, strict=True) if n and p)
        return -math.expm1(open_), -math.expm1(behind)

    def spares(self, on: int, *, behind: bool) -> None:
        """A configuration showed what it does: nothing hides it."""
        counts = self._counts(on)
        for x, y in self._front:
            if counts[x][0] and counts[y][1]:
                self._front[x, y] = 0.0
        for place, (held, _) in enumerate(counts):
            if behind and held:
                self._behind[place] = 0.0

    def met(self, on: int, inside: float) -> tuple[float, float]:
        """A configuration hid what it does: how likely that was by a front, and by a failure behind."""
        front, behind = self.chance(on)
        counts, outside = self._counts(on), 1 - inside
        whole = front + (1 - front) * outside * behind
        if whole <= 0:
            return 1.0, 1.0  # nothing known explains it, so it tells nothing
        for (x, y), chance in self._front.items():
            if counts[x][0] and counts[y][1]:
                self._front[x, y] = min(SURE, chance / whole)
        for place, (held, _) in enumerate(counts):
            if held:
                told = self._behind[place] * (front + (1 - front) * outside) / whole
                self._behind[place] = min(SURE, told)
        return front, behind
