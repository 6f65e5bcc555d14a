"""What runs show of something that happens only at times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.rates import RATES, enough, interval, missed


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 200, 0, 0.01828), (3, 200, 0.00310, 0.04320), (10, 10, 0.69150, 1), (0, 0, 0, 1)],
)
def test_an_interval_is_the_exact_one(hits: int, of: int, low: float, high: float) -> None:
    """Against the tables of Clopper and Pearson."""
    assert (low, high) == pytest.approx(interval(hits, of), abs=1e-4)


@pytest.mark.parametrize(("rate", "error", "passes"), [(0.7, 0.01, 4), (0.3, 0.01, 13), (0.5, 0.5, 1)])
def test_so_many_passes_are_an_accident_of_at_most_the_error(rate: float, error: float, passes: int) -> None:
    """And one fewer is not enough."""
    assert passes == enough(rate, error)
    assert (1 - rate) ** passes <= error < (1 - rate) ** (passes - 1)


@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20))
def test_each_pass_more_leaves_less_doubt(fails: int, passes: int, more: int) -> None:
    """Of what has failed at all."""
    assert 1 >= missed(fails, passes, more) >= missed(fails, passes, more + 1) >= 0


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 20))
def test_what_fails_more_often_is_missed_less(fails: int, passes: int, more: int) -> None:
    """A failure more leaves less doubt, and a pass more leaves more of it."""
    least = missed(fails, passes, more)
    assert missed(fails + 1, passes, more) <= least <= missed(fails, passes + 1, more)


def test_with_much_seen_the_rate_is_as_good_as_known() -> None:
    """Seven of ten, over and over: three passes come by chance as often as at that rate."""
    assert 0.7 in RATES
    assert missed(350, 150, 3) == pytest.approx(0.3**3, rel=1e-3)
