"""Hypothesis strategies: playbooks with the worlds they are run in."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st

from bisect_agent.model import Configuration, Hypothesis, Playbook, Setting
from tests.worlds import SYMPTOMS, Rule, World, playbook_of

FEW = settings(max_examples=25, deadline=None)
"""For properties that search whole worlds or write files; pytest-timeout says how long a test may take."""

NAMES = ("a", "b", "c", "d", "e")
LEVELS = ("0", "1", "2")


@dataclass(frozen=True)
class Case:
    """A playbook and the truth about its stack."""

    playbook: Playbook
    world: World


@st.composite
def hypotheses(draw: st.DrawFn, factors: tuple[str, ...]) -> tuple[Hypothesis, ...]:
    """Up to three claims, each of which involves and excludes some of the factors."""
    count = draw(st.integers(0, 3))
    found = []
    for number in range(count):
        involves = draw(st.sets(st.sampled_from(factors), min_size=1))
        excludes = draw(st.sets(st.sampled_from(factors))) - involves
        found.append(
            Hypothesis(
                id=f"h{number}",
                family="tests",
                claim="it is so",
                involves=tuple(sorted(involves)),
                excludes=tuple(sorted(excludes)),
            )
        )
    return tuple(found)


@st.composite
def playbooks(draw: st.DrawFn) -> Playbook:
    """Up to five factors of two or three levels, some in order; `bad` differs from `good` in one at least."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    levels = {name: LEVELS[: draw(st.integers(2, 3))] for name in names}
    different = draw(st.sets(st.sampled_from(names), min_size=1))
    bad = {name: draw(st.sampled_from(levels[name][1:])) for name in sorted(different)}
    ordered = " ".join(draw(st.frozensets(st.sampled_from(names), max_size=1)))
    return playbook_of(levels, bad, hypotheses=draw(hypotheses(names)), ordered=ordered)


def subsets(settings: tuple[Setting, ...], least: int = 1) -> st.SearchStrategy[frozenset[Setting]]:
    """Some of these settings."""
    return st.frozensets(st.sampled_from(settings), min_size=least)


def every_setting(playbook: Playbook) -> tuple[Setting, ...]:
    """All settings that a playbook knows."""
    return tuple(Setting(factor=f.name, level=level) for f in playbook.factors for level in f.levels)


@st.composite
def the_rule_of_bad(draw: st.DrawFn, playbook: Playbook) -> frozenset[Setting]:
    """A conjunction of settings of `bad`, at least one of which `good` has otherwise.

    An order that is the same in both has no level to change it to, and no part in it.
    """
    differences = playbook.bad.differs(playbook.good)
    plain = [s for s in playbook.bad.settings() if s in differences or not playbook.factor(s.factor).ordered]
    return draw(subsets(differences)) | draw(subsets(tuple(plain), least=0))


@st.composite
def monotone(draw: st.DrawFn) -> Case:
    """A world where the failure needs each of some settings of `bad`, and nothing else."""
    playbook = draw(playbooks())
    return Case(playbook, World((Rule(draw(the_rule_of_bad(playbook))),)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any world: several ways to fail, several symptoms, levels that do not show, lost attempts."""
    playbook = draw(playbooks())
    names = tuple(f.name for f in playbook.factors)
    others = st.builds(Rule, subsets(every_setting(playbook)), st.sampled_from(SYMPTOMS))
    rules = [Rule(draw(the_rule_of_bad(playbook))), *draw(st.lists(others, max_size=3))]
    some = st.frozensets(st.sampled_from(names), max_size=2)
    flips = [playbook.bad.replace([s]) for s in every_setting(playbook)]
    world = World(
        rules=tuple(draw(st.permutations(rules))),
        silent=draw(some),
        stubborn=draw(st.just(frozenset[str]()) | some),
        lost=draw(st.just(frozenset[Configuration]()) | st.frozensets(st.sampled_from(flips), max_size=2)),
        facts=draw(st.frozensets(st.sampled_from([h.id for h in playbook.hypotheses]), max_size=1))
        if playbook.hypotheses
        else frozenset(),
    )
    return Case(playbook, world)
