"""Which run tells most for what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.odds import Odds, Seen, Shows
from bisect_agent.steer import QUICK, Costs, options

EQUAL = Costs()
SIXTEEN = (1 << 16) - 1
CONTROLS = (Seen(0, Shows.PASSES), Seen(SIXTEEN, Shows.FAILS))


@pytest.mark.parametrize(
    ("costs", "rate", "seconds"),
    [
        (Costs(), 1.0, 1.0),
        (Costs(), 0.7, 1 / 0.504),  # log2(1 + 0.7 * 0.3 ** (3 / 7)) bits a run
        (Costs(fails=1, passes=10), 1.0, 1 / 0.26),  # x + x ** 10 = 1, log2(1 / x) bits a second
        (Costs(fails=5, passes=5), 1.0, 5.0),
    ],
)
def test_a_bit_costs_what_the_best_channel_gives(costs: Costs, rate: float, seconds: float) -> None:
    """Against the capacities as they are known."""
    assert costs.bit(rate) == pytest.approx(seconds, rel=2e-3)


def chosen(*seen: Seen, costs: Costs = EQUAL, forbidden: frozenset[int] = frozenset()) -> list[int]:
    """What may be run next of sixteen elements, where no proof is needed."""
    failing = [run.on for run in (*CONTROLS, *seen) if run.shows is Shows.FAILS]
    odds = Odds(range(16), [1.0] * 16, (*CONTROLS, *seen), min(failing, key=int.bit_count))
    told = {run.on for run in (*CONTROLS, *seen)} | forbidden
    found = options(odds, costs, int, lambda _: (), lambda on: None if on in told else on)
    return [option.on for option in found]


def test_about_half_goes_first() -> None:
    """A little more than half stays on, for the cause may be more than one setting."""
    assert 8 <= chosen()[0].bit_count() <= 9


def test_what_fails_is_halved_further_within() -> None:
    """And nothing outside of it is run."""
    found = chosen(Seen(0xFF, Shows.FAILS))
    assert 4 == found[0].bit_count()
    assert not any(on & ~0xFF for on in found)


def test_where_passing_is_dear_fewer_are_taken_away() -> None:
    """So that it fails more often than it passes."""
    assert chosen(costs=Costs(fails=1, passes=10))[0].bit_count() >= 12


def test_what_is_not_allowed_is_not_chosen() -> None:
    """The next best is."""
    best = chosen()[0]
    assert best not in chosen(forbidden=frozenset({best}))


def test_a_proof_is_worth_the_run_that_it_saves() -> None:
    """The likelier of two goes first, alone: if it is the cause, that is a part of its proof."""
    odds = Odds(range(16), [1.0, 2.0, *[1.0] * 14], (*CONTROLS, Seen(0b11, Shows.FAILS)), 0b11)
    first, *_ = options(odds, Costs(), int, lambda cause: [cause.mask], lambda on: on)
    assert first.proof
    assert (0b10, 0b10) == (first.on, first.proof.mask)


@given(
    st.lists(st.floats(0, 1e4), max_size=4),
    st.lists(st.floats(0, 1e4), max_size=4),
)
def test_what_runs_took_is_learnt(fails: list[float], passes: list[float]) -> None:
    """Quick ones are all alike; one side that was not seen is taken to be like the other."""
    costs = Costs.learnt(fails, passes)
    assert costs.fails >= (QUICK if fails or passes else 1)
    assert costs.passes >= (QUICK if fails or passes else 1)
    assert fails or costs.fails == costs.passes
    assert passes or costs.fails == costs.passes
