"""Which configurations can be, by what the factors' levels require and exclude of each other. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from bisect_agent.model import Configuration, Factor, Playbook, Setting


@dataclass(frozen=True)
class _Clash:
    """Two factors whose levels do not go together, and the bound that says so."""

    factors: tuple[str, str]
    bound: str


def bound(playbook: Playbook, configuration: Configuration) -> str:
    """The first bound that forbids a configuration, as a sentence; empty where it is possible."""
    return next((clash.bound for clash in _clashes(playbook, configuration)), "")


def _clashes(playbook: Playbook, configuration: Configuration) -> Iterator[_Clash]:
    for factor in playbook.factors:
        if factor.requires or factor.excludes:
            yield from _clashes_of(factor, configuration)


def _clashes_of(factor: Factor, configuration: Configuration) -> Iterator[_Clash]:
    setting = Setting(factor=factor.name, level=configuration[factor.name])
    for other, levels in factor.requires.get(setting.level, {}).items():
        if configuration[other] not in levels:
            wanted = " or ".join(f"{other}={level}" for level in levels)
            yield _Clash((factor.name, other), f"{setting} requires {wanted}")
    for other, levels in factor.excludes.get(setting.level, {}).items():
        if configuration[other] in levels:
            yield _Clash((factor.name, other), f"{setting} excludes {other}={configuration[other]}")


def nearest(playbook: Playbook, wanted: Configuration, present: Configuration) -> Configuration:
    """The possible configuration nearest to `wanted` on the way to it from `present`, which is possible.

    As few factors as can be stay as in `present`; of several such choices, the one that the playbook's
    order of factors comes to first. A bound speaks of two factors, and `present` keeps it: so one of the
    two must stay. All choices of that kind are looked through, the smallest first.
    """
    if playbook.possible(wanted):
        return wanted
    waiting, seen = deque([frozenset[str]()]), set[frozenset[str]]()
    while True:
        kept = waiting.popleft()
        configuration = wanted.replace(s for s in present.settings() if s.factor in kept)
        clash = next(_clashes(playbook, configuration), None)
        if clash is None:
            return configuration
        for factor in clash.factors:
            more = kept | {factor}
            if configuration[factor] != present[factor] and more not in seen:
                seen.add(more)
                waiting.append(more)
