"""How often something happens that happens only at times, as far as runs show it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

RATES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Rates at which a flaky failure may show itself. Before any run, each is as likely as another."""

LEAST_ERROR, MOST_ERROR = 0.0001, 0.2
"""The errors that a playbook may ask for: a smaller one takes more runs than a night has."""


@lru_cache(maxsize=4096)
def likely(fails: int, passes: int) -> tuple[float, ...]:
    """How likely each of the rates makes these runs."""
    return tuple(rate**fails * (1 - rate) ** passes / len(RATES) for rate in RATES)


def missed(fails: int, passes: int, more: int) -> float:
    """How likely so many `more` passes in a row are, of what has shown these failures and passes.

    This is the error of a sequential test: where a change does nothing, so many passes come by chance
    as often as that.
    """
    known = likely(fails, passes)
    return sum(p * (1 - rate) ** more for p, rate in zip(known, RATES, strict=True)) / sum(known)


def enough(rate: float, error: float) -> int:
    """How many passes in a row are an accident of at most this probability, at this rate of failing."""
    return math.ceil(math.log(error) / math.log1p(-rate))


def interval(hits: int, of: int, error: float = 0.05) -> tuple[float, float]:
    """Where a rate lies but for this error (the exact interval of Clopper and Pearson)."""

    def tail(rate: float, least: int) -> float:
        return sum(math.comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in range(least, of + 1))

    if not of:
        return 0.0, 1.0
    low = _crossing(lambda rate: tail(rate, hits) >= error / 2) if hits else 0.0
    high = _crossing(lambda rate: 1 - tail(rate, hits + 1) <= error / 2) if hits < of else 1.0
    return low, high


def _crossing(over: Callable[[float], bool]) -> float:
    """Where a condition on [0, 1] begins to hold, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if over(middle) else (middle, high)
    return low
