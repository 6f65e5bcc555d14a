"""From `good` to a failing configuration as elements that are on or off, each a step of one factor. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bisect_agent.model import Configuration, Playbook, Setting


def levels_between(playbook: Playbook, start: Configuration, factor: str) -> tuple[str, ...]:
    """The levels of a factor from good's to that of `start`; of one without an order these two."""
    good, present = playbook.good[factor], start[factor]
    if not playbook.factor(factor).ordered:
        return good, present
    every = tuple(playbook.factor(factor).levels)
    first, last = every.index(good), every.index(present)
    return every[first : last + 1] if first < last else every[last : first + 1][::-1]


class Course:
    """The way from `good` to a failing configuration.

    An element is a step of one factor to its next level, towards that of `start`. An order of levels has as
    many steps, and a step is on only with those before it; any other factor that differs has one.

    Attributes:
        start: the failing configuration, where every element is on.
        steps: of each element, the setting that it leads to.
        chains: of each element, the place of its factor among those that differ.
    """

    def __init__(self, playbook: Playbook, start: Configuration, held: Iterable[str] = ()) -> None:
        """The factors `held` stay as they are in `start`."""
        kept = set(held)
        self.start = start
        self._levels = {
            s.factor: levels_between(playbook, start, s.factor)
            for s in start.differs(playbook.good)
            if s.factor not in kept
        }
        self.steps = tuple(
            Setting(factor=factor, level=level)
            for factor, found in self._levels.items()
            for level in found[1:]
        )
        self.chains = tuple(place for place, found in enumerate(self._levels.values()) for _ in found[1:])
        self._first: dict[str, int] = {}
        for element, step in enumerate(self.steps):
            self._first.setdefault(step.factor, element)

    def on(self, configuration: Configuration) -> int | None:
        """The elements that are on, as a bit mask; None where the configuration does not lie on this way."""
        mask = 0
        for factor, level in configuration.root.items():
            found = self._levels.get(factor)
            if found is None:
                if level != self.start[factor]:
                    return None
            elif level not in found:
                return None
            else:
                mask |= (1 << found.index(level)) - 1 << self._first[factor]
        return mask

    def configuration(self, on: int) -> Configuration:
        """The configuration with these elements on."""
        levels = {factor: found[self._reach(on, factor)] for factor, found in self._levels.items()}
        return Configuration({**self.start.root, **levels})

    def _reach(self, on: int, factor: str) -> int:
        """How many steps of a factor are on, up to the last one."""
        first, length = self._first[factor], len(self._levels[factor]) - 1
        return (on >> first & (1 << length) - 1).bit_length()

    def closed(self, on: int) -> int:
        """These elements, and the steps before them."""
        return sum((1 << self._reach(on, factor)) - 1 << first for factor, first in self._first.items())
