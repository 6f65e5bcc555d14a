"""The possible causes, held against the same counted one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.odds import SIZES, Odds, Seen, Shows, elements, entropy
from bisect_agent.rates import RATES
from tests.strategies import FEW

FAILS, PASSES, HIDES = Shows


@dataclass(frozen=True)
class Runs:
    """What was seen of a few elements; a failing run holds the smallest set that failed."""

    chains: tuple[int, ...]
    weights: tuple[float, ...]
    seen: tuple[Seen, ...]
    flaky: bool

    @property
    def top(self) -> int:
        """The smallest set that failed."""
        return min((s.on for s in self.seen if s.shows is FAILS), key=int.bit_count)


@st.composite
def runs(draw: st.DrawFn, *, flaky: bool | None = None) -> Runs:
    """Runs of up to six elements that some set of up to three of them explains."""
    count = draw(st.integers(3, 6))
    chains = draw(st.sampled_from([tuple(range(count)), tuple(max(0, n - 2) for n in range(count))]))
    weights = tuple(draw(st.sampled_from([1.0, 3.0])) for _ in range(count))
    cause = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))
    noisy = draw(st.booleans()) if flaky is None else flaky
    seen = [Seen(0, PASSES), Seen((1 << count) - 1, FAILS)]
    for on in draw(st.lists(st.integers(0, (1 << count) - 1), max_size=6)):
        missed = noisy and draw(st.booleans())
        seen.append(Seen(on, FAILS if mask(cause) & ~on == 0 and not missed else PASSES))
    smallest = min((s.on for s in seen if s.shows is FAILS), key=int.bit_count)
    kept = [s for s in seen if s.shows is PASSES or s.on & smallest == smallest]
    return Runs(chains, weights, tuple(kept), noisy)


def mask(found: Sequence[int] | set[int]) -> int:
    """Some elements as a bit mask."""
    return sum(1 << element for element in found)


def one_by_one(it: Runs) -> dict[int, tuple[float, float]]:
    """Each possible cause: how likely it is, and that it shows itself once more, by Bayes' rule."""
    count, found = len(it.chains), {}
    long = {chain for chain in it.chains if it.chains.count(chain) > 1}
    for size, share in enumerate(SIZES):
        total = sum(math.prod(it.weights[e] for e in c) for c in combinations(range(count), size)) or 1
        for cause in combinations(range(count), size):
            chained = [it.chains[e] for e in cause if it.chains[e] in long]
            if mask(cause) & ~it.top or len(chained) != len(set(chained)):
                continue
            held = [s.shows for s in it.seen if not mask(cause) & ~s.on]
            prior = share / total * math.prod(it.weights[e] for e in cause)
            rates = RATES if it.flaky else (1.0,)
            likely = [r ** held.count(FAILS) * (1 - r) ** held.count(PASSES) / len(rates) for r in rates]
            again = sum(p * r for p, r in zip(likely, rates, strict=True))
            found[mask(cause)] = prior * sum(likely), prior * again
    whole = sum(odds for odds, _ in found.values())
    return {cause: (odds / whole, again / whole) for cause, (odds, again) in found.items() if odds}


@FEW
@given(runs(), st.data())
def test_blocks_count_what_one_by_one_would(it: Runs, data: st.DataObject) -> None:
    """Of any configuration within what fails: how likely it is to fail."""
    odds = Odds(it.chains, it.weights, it.seen, it.top, flaky=it.flaky)
    on = data.draw(st.integers(0, odds.top)) & odds.top
    expected = sum(again for cause, (_, again) in one_by_one(it).items() if not cause & ~on)
    assert expected == pytest.approx(odds.promise(on).fails)


@FEW
@given(runs(flaky=False), st.data())
def test_bits_are_the_doubt_about_the_outcome(it: Runs, data: st.DataObject) -> None:
    """Where each failure shows itself, the outcome is a matter of the cause alone."""
    odds = Odds(it.chains, it.weights, it.seen, it.top)
    promise = odds.promise(data.draw(st.integers(0, odds.top)) & odds.top)
    assert promise.bits == pytest.approx(entropy(promise.fails, promise.passes), abs=1e-9)


@FEW
@given(runs(flaky=True), st.data())
def test_a_flaky_failure_tells_less_than_its_outcome(it: Runs, data: st.DataObject) -> None:
    """What chance makes is no news."""
    odds = Odds(it.chains, it.weights, it.seen, it.top, flaky=True)
    promise = odds.promise(data.draw(st.integers(0, odds.top)) & odds.top)
    assert 0 <= promise.bits <= entropy(promise.fails, promise.passes) + 1e-9


@FEW
@given(runs(), st.data())
def test_a_run_in_flight_takes_nothing_from_another_that_is_not_told_by_it(
    it: Runs, data: st.DataObject
) -> None:
    """The same run again, though, tells nothing once its outcome is known for certain."""
    odds = Odds(it.chains, it.weights, it.seen, it.top, flaky=it.flaky)
    on = data.draw(st.integers(0, odds.top)) & odds.top
    beside = Odds(it.chains, it.weights, it.seen, it.top, flaky=it.flaky, flying=[on])
    assert odds.promise(on).fails == pytest.approx(beside.promise(on).fails)
    assert beside.promise(on).bits <= odds.promise(on).bits + 1e-9
    assert it.flaky or beside.promise(on).bits == pytest.approx(0, abs=1e-9)


def after(count: int, *told: tuple[str, Shows]) -> Odds:
    """The odds after runs, each as the names of what was on; nothing and all were seen first."""
    names = "abcdefghijklmnop"[:count]
    seen = [Seen(mask([names.index(x) for x in on]), shows) for on, shows in told]
    every = [Seen(0, PASSES), Seen((1 << count) - 1, FAILS), *seen]
    top = min((s.on for s in every if s.shows is FAILS), key=int.bit_count)
    return Odds(range(count), [1.0] * count, every, top)


def test_a_cause_of_four_is_looked_for_when_three_explain_nothing() -> None:
    """Each of four alone heals."""
    odds = after(5, *(("abcde".replace(x, ""), PASSES) for x in "abcd"))
    assert {0b01111, 0b11111} >= {guess.mask for guess in odds.guesses}
    assert odds.guesses


def test_what_explains_nothing_leaves_no_guess() -> None:
    """Each of seven alone heals: no cause of up to five explains it."""
    assert [] == after(7, *(("abcdefg".replace(x, ""), PASSES) for x in "abcdefg")).guesses


def test_what_fails_without_the_smallest_failing_set_has_another_cause() -> None:
    """It says nothing of this one."""
    alone, beside = after(4, ("a", FAILS)), after(4, ("a", FAILS), ("bc", FAILS))
    assert [g.odds for g in alone.guesses] == pytest.approx([g.odds for g in beside.guesses])


def test_a_failure_behind_is_no_pass_and_says_nearly_as_much() -> None:
    """With `a` to `h` on it fails otherwise; where it works with `a` to `d`, none of these is behind."""
    hidden = after(16, ("abcdefgh", HIDES))
    before, later = hidden.promise(0b1111).fails, hidden.promise(0xFF00).fails
    assert later > 2 * before
    spared = after(16, ("abcdefgh", HIDES), ("abcd", PASSES))
    assert spared.promise(0b1111).hides < hidden.promise(0b1111).hides


def test_what_bad_shows_is_hidden_by_no_single_element() -> None:
    """All of it was on, and the failure showed: near `bad` and near `good` less is hidden than between."""
    odds = after(16, ("abcdefgh", HIDES))
    between = odds.promise(0b0101010101010101).hides
    assert odds.promise(0x7FFF).hides < between > odds.promise(0b1).hides


def test_elements_of_a_mask() -> None:
    """Ascending."""
    assert [0, 2, 3] == list(elements(0b1101))
