"""Thousands of worlds of known truth: nothing is accused wrongly, and what can be found is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, product
from pathlib import Path
from random import Random

import pytest

from bisect_agent.claims import assess
from bisect_agent.events import Launching, TrialPlanned
from bisect_agent.evidence import Standing, Table
from bisect_agent.model import (
    Configuration,
    Failed,
    Group,
    Hypothesis,
    Passed,
    Playbook,
    Setting,
    State,
    StoppedBy,
)
from bisect_agent.verdict import Verdict
from bisect_agent.verify import verify
from tests.fakes import Behaviour, Lab, Stack, stack_of
from tests.strategies import Case
from tests.worlds import HANGS, SYMPTOMS, Played, Rule, World, bounds_of, claim, play, playbook_of

# --- worlds by chance -------------------------------------------------------------------------------

FACTORS = "abcdef"
LEVELS = "012"


def some(dice: Random, things: Iterable[Setting], least: int = 0, most: int = 9) -> frozenset[Setting]:
    """A few of these settings."""
    every = list(things)
    return frozenset(dice.sample(every, dice.randint(min(least, len(every)), min(most, len(every)))))


def a_playbook(dice: Random, most: int = len(FACTORS)) -> Playbook:
    """Up to six factors of two or three levels, some of them different in `bad`, and up to two claims."""
    names = FACTORS[: dice.randint(1, most)]
    levels = {name: LEVELS[: dice.randint(2, 3)] for name in names}
    different = dice.sample(names, dice.randint(1, len(names)))
    bad = {name: dice.choice(levels[name][1:]) for name in sorted(different)}
    return playbook_of(levels, bad, hypotheses=[a_claim(dice, f"h{n}", names) for n in range(2)])


def an_ordered_playbook(dice: Random, most: int = len(FACTORS)) -> Playbook:
    """A factor of up to twelve levels in an order, with `good` and `bad` anywhere along it; and others."""
    others = FACTORS[: dice.randint(0, min(3, most - 1))]
    versions = [f"v{number}" for number in range(dice.randint(2, 12))]
    levels = {**{name: LEVELS[: dice.randint(2, 3)] for name in others}, "v": versions}
    good, bad = dice.sample(versions, 2)
    different = {name: dice.choice(levels[name][1:]) for name in others if dice.random() < 0.6}
    claims = [a_claim(dice, f"h{n}", f"{others}v") for n in range(2)]
    return playbook_of(levels, {**different, "v": bad}, good={"v": good}, ordered="v", hypotheses=claims)


def bounded(dice: Random, playbook: Playbook) -> Playbook:
    """The same, where some levels require or exclude others; `good` and `bad` stay possible."""
    while True:
        requires, excludes = (
            dict(bound for _ in range(dice.randint(0, 2)) if (bound := a_bound(dice, playbook)))
            for _ in range(2)
        )
        factors = tuple(
            f.model_copy(
                update={
                    "requires": bounds_of(f.name, requires),
                    "excludes": bounds_of(f.name, excludes),
                }
            )
            for f in playbook.factors
        )
        found = playbook.model_copy(update={"factors": factors})
        if found.possible(found.good) and found.possible(found.bad):
            return found


def a_bound(dice: Random, playbook: Playbook) -> tuple[str, str] | None:
    """A setting, and one of another factor that it has to do with."""
    if len(playbook.factors) == 1:
        return None
    one, other = dice.sample(playbook.factors, 2)
    return f"{one.name}={dice.choice(list(one.levels))}", f"{other.name}={dice.choice(list(other.levels))}"


def a_bounded_playbook(dice: Random, most: int = len(FACTORS)) -> Playbook:
    """One whose levels have bounds."""
    return bounded(dice, a_playbook(dice, most))


def a_thorough_playbook(dice: Random, most: int = len(FACTORS)) -> Playbook:
    """One that asks for every cause."""
    return a_playbook(dice, most).model_copy(update={"every_cause": True})


def any_playbook(dice: Random, most: int = len(FACTORS)) -> Playbook:
    """One with all of it: an order, bounds, every cause."""
    playbook = bounded(dice, dice.choice((a_playbook, an_ordered_playbook))(dice, most))
    return playbook.model_copy(update={"every_cause": True})


def a_claim(dice: Random, name: str, factors: str) -> Hypothesis:
    """A claim that involves up to two factors, and excludes one of the others at times."""
    involved = dice.sample(factors, min(len(factors), dice.randint(1, 2)))
    others = [factor for factor in factors if factor not in involved]
    return claim(name, " ".join(involved), " ".join(others[: dice.randint(0, 1)]))


def a_way_of_bad(dice: Random, playbook: Playbook) -> Rule:
    """A conjunction of settings of `bad`, at least one of which `good` has otherwise."""
    differences = playbook.bad.differs(playbook.good)
    return Rule(some(dice, differences, 1, 3) | some(dice, playbook.bad.settings(), 0, 1))


def every_setting(playbook: Playbook) -> list[Setting]:
    """All settings that a playbook knows."""
    return [Setting(factor=f.name, level=level) for f in playbook.factors for level in f.levels]


def conjunction(dice: Random, playbook: Playbook) -> World:
    """The failure needs each of some settings."""
    return World((a_way_of_bad(dice, playbook),))


def redundant(dice: Random, playbook: Playbook) -> World:
    """Any monotone condition over settings of `bad`: several conjunctions, each of which is enough."""
    return World(tuple(a_way_of_bad(dice, playbook) for _ in range(dice.randint(2, 4))))


def along(dice: Random, playbook: Playbook) -> World:
    """The failure needs some level of an order or a later one, and other settings; some cannot be tested."""
    levels = versions(playbook)
    first = dice.randint(1, len(levels) - 1)
    others = some(dice, [s for s in playbook.bad.settings() if s.factor != "v"], 0, 2)
    ways = (Rule(others | {Setting(factor="v", level=level)}) for level in levels[first:])
    between = [Setting(factor="v", level=level) for level in levels[1:-1]]
    return World(tuple(ways), untestable=some(dice, between, 0, dice.choice((0, 0, 4))))


def versions(playbook: Playbook) -> list[str]:
    """The levels of the ordered factor, from that of `good` to that of `bad`."""
    levels = list(playbook.factor("v").levels)
    first, last = (levels.index(side["v"]) for side in (playbook.good, playbook.bad))
    return levels[first : last + 1] if first < last else levels[last : first + 1][::-1]


def several(dice: Random, playbook: Playbook) -> World:
    """Several conjunctions of differences, each of which is enough."""
    differences = playbook.bad.differs(playbook.good)
    return World(tuple(Rule(some(dice, differences, 1, 3)) for _ in range(dice.randint(1, 4))))


def a_quirk(dice: Random, playbook: Playbook, symptoms: Sequence[str | None]) -> Rule:
    """What some settings of any levels do, as long as it is not that `good` fails or that `bad` works."""
    while True:
        needs = some(dice, every_setting(playbook), 1, 3)
        symptom = dice.choice(symptoms)
        held = playbook.good if symptom else playbook.bad
        if not needs <= set(held.settings()):
            return Rule(needs, symptom)


def interacting(dice: Random, playbook: Playbook) -> World:
    """Not monotone: less of `bad` may fail where more of it works."""
    quirks = (a_quirk(dice, playbook, ("boom", None)) for _ in range(dice.randint(1, 5)))
    return World((*quirks, a_way_of_bad(dice, playbook)))


def many_symptoms(dice: Random, playbook: Playbook) -> World:
    """Failures hide each other; some are silences in one phase or the other."""
    shown = dice.sample((*SYMPTOMS, *HANGS), 3)
    quirks = [a_quirk(dice, playbook, (None, *shown)) for _ in range(dice.randint(1, 4))]
    ways = [replace(a_way_of_bad(dice, playbook), symptom=dice.choice(shown)) for _ in range(2)]
    return World((*quirks, *ways))


def lawless(dice: Random, playbook: Playbook) -> World:
    """Each configuration does as it likes; only `good` works and `bad` fails."""
    levels = [[Setting(factor=f.name, level=v) for v in f.levels] for f in playbook.factors]
    bad, good = (frozenset(c.settings()) for c in (playbook.bad, playbook.good))
    every = [frozenset(held) for held in product(*levels)]
    failing = [held for held in every if held != good and (held == bad or dice.random() < 0.6)]
    return World(tuple(Rule(held, "boom" if held == bad else dice.choice(SYMPTOMS[:2])) for held in failing))


def deceptive(dice: Random, playbook: Playbook) -> World:
    """Levels that do not show, that do not take effect and say so, or do not and say that they do."""
    names = [f.name for f in playbook.factors]
    world = dice.choice((redundant, interacting, many_symptoms))(dice, playbook)
    spared = [
        s for s in playbook.bad.settings() if not replace(world, lying=frozenset({s})).symptom(playbook.good)
    ]
    return World(
        world.rules,
        silent=frozenset(dice.sample(names, dice.randint(0, len(names)))),
        stubborn=frozenset(dice.sample(playbook.suspects, min(len(playbook.suspects), dice.randint(0, 1)))),
        lying=some(dice, spared, 0, 1),
    )


def anything(dice: Random, playbook: Playbook) -> World:
    """Any of these."""
    return dice.choice((redundant, interacting, many_symptoms, deceptive))(dice, playbook)


@dataclass(frozen=True)
class Kind:
    """A kind of worlds.

    Attributes:
        world: draws one.
        worlds: how many in one chunk.
        playbook: draws what it is asked with.
        found: the share of them where a cause must be established.
        monotone: whether the failure only gets likelier with more of `bad`.
        loss: the share of attempts that are lost on the way.
        factors: at most so many.
    """

    world: Callable[[Random, Playbook], World]
    worlds: int
    playbook: Callable[[Random, int], Playbook] = a_playbook
    found: float = 0.0
    monotone: bool = False
    loss: float = 0.0
    factors: int = len(FACTORS)


KINDS: Mapping[str, Kind] = {
    "conjunction": Kind(conjunction, 20, found=1, monotone=True),
    "redundant": Kind(redundant, 70, found=1, monotone=True),
    "redundant, attempts lost": Kind(redundant, 50, found=0.95, monotone=True, loss=0.2),
    "interacting": Kind(interacting, 40),
    "many symptoms": Kind(many_symptoms, 40),
    "lawless": Kind(lawless, 20, factors=3),
    "deceptive": Kind(deceptive, 30),
    "deceptive, attempts lost": Kind(deceptive, 25, loss=0.2),
    "bounded": Kind(redundant, 55, a_bounded_playbook, found=0.9),
    "ordered": Kind(along, 40, an_ordered_playbook, found=1, monotone=True),
    "several causes": Kind(several, 40, a_thorough_playbook, found=1, monotone=True),
    "anything": Kind(anything, 45, any_playbook, factors=5),
    "anything, attempts lost": Kind(anything, 25, any_playbook, loss=0.2, factors=5),
}
CHUNKS = range(4)


def budget(playbook: Playbook, causes: int = 4) -> int:
    """The attempts that are enough for one cause, or, where every cause is asked for, for some."""
    halvings = sum(len(f.levels).bit_length() for f in playbook.factors if f.ordered)
    return (4 * len(playbook.factors) + 8 + halvings) * (causes if playbook.every_cause else 1)


def drawn(kind: Kind, seed: str) -> tuple[Case, Random]:
    """The world of a seed, and the dice to go on with."""
    dice = Random(seed)  # noqa: S311  # a world, not a secret
    playbook = kind.playbook(dice, kind.factors)
    return Case(playbook, kind.world(dice, playbook)), dice


# --- the truth ----------------------------------------------------------------------------------------

UNTESTABLE = "untestable"


def is_cause(case: Case, accused: Iterable[Setting]) -> bool:
    """The definition, held against the world alone.

    `good` with the cause fails as `bad` does, or, where that is impossible, a possible configuration that
    holds it and can be brought no nearer to `good`. And some configuration that holds the cause and fails
    so works when any one setting of the cause is set otherwise: one of an ordered factor, at the next
    level towards `good` that says anything.
    """
    cause, playbook, world = frozenset(accused), case.playbook, case.world
    symptom, good, held = world.symptom(playbook.bad), playbook.good, {s.factor: (s.level,) for s in cause}

    @cache
    def truth(configuration: Configuration) -> str | None:
        untestable = world.untestable & set(configuration.settings())
        return UNTESTABLE if untestable else world.symptom(configuration)

    def works_without(failing: Configuration, setting: Setting) -> bool:
        factor = playbook.factor(setting.factor)
        levels = list(factor.levels)
        if factor.ordered:
            first, last = levels.index(good[factor.name]), levels.index(setting.level)
            levels = levels[first:last][::-1] if first < last else levels[last + 1 : first + 1]
        changed = [
            failing.replace([Setting(factor=factor.name, level=v)]) for v in levels if v != setting.level
        ]
        said = [truth(c) for c in changed if playbook.possible(c)]
        return (
            next((x for x in said if x in {None, symptom}), symptom) is None
            if factor.ordered
            else None in said
        )

    def is_nearest(configuration: Configuration) -> bool:
        away = [s for s in good.differs(configuration) if s.factor not in held]
        more = (c for n in range(1, len(away) + 1) for c in combinations(away, n))
        return not any(playbook.possible(configuration.replace(settings)) for settings in more)

    every = product(*({f.name: tuple(f.levels) for f in playbook.factors} | held).values())
    names = [f.name for f in playbook.factors]
    holding = (Configuration(dict(zip(names, found, strict=True))) for found in every)
    failing = [c for c in holding if playbook.possible(c) and truth(c) == symptom]
    own = {s for s in cause if not playbook.factor(s.factor).ordered} <= set(playbook.bad.settings())
    return (
        own
        and any(map(is_nearest, failing))
        and any(all(works_without(c, s) for s in cause) for c in failing)
    )


def is_least(case: Case, cause: Iterable[Setting]) -> bool:
    """In a monotone world: without any one difference of the cause, `good` with the rest of it works."""
    good, settings = case.playbook.good, set(cause)
    less = [good.replace(settings - {s}) for s in settings if good[s.factor] != s.level]
    return not any(map(case.world.symptom, less))


# --- the rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Searched:
    """A world that was searched to the end."""

    seed: str
    case: Case
    kind: Kind
    played: Played

    @cached_property
    def table(self) -> Table:
        """What the trials show."""
        return Table(self.case.playbook, self.played.settled)

    @property
    def causes(self) -> tuple[tuple[Setting, ...], ...]:
        """What is accused."""
        return self.table.causes


def the_causes_are_some(it: Searched) -> bool:
    """What is accused is a cause by the definition, and nothing twice; the search knows when there is one."""
    by, enough = it.played.finished.by, {StoppedBy.CAUSE, StoppedBy.BUDGET, StoppedBy.TARGET}
    return (
        (by in enough if it.causes else by is not StoppedBy.CAUSE)
        and len(set(it.causes)) == len(it.causes)
        and all(is_cause(it.case, cause) for cause in it.causes)
    )


def the_cause_is_least(it: Searched) -> bool:
    """No setting of it is idle, where the world is monotone."""
    return not it.kind.monotone or all(is_least(it.case, cause) for cause in it.causes)


def every_cause_is_found(it: Searched) -> bool:
    """Where every cause is asked for, and the failure can be walked everywhere."""
    ways = {rule.needs for rule in it.case.world.rules}
    least = {way for way in ways if not any(other < way for other in ways)}
    return it.kind.world is not several or least == set(map(frozenset, it.causes))


def the_first_failing_level_is_accused(it: Searched) -> bool:
    """Of an order: the first that fails of those that can be tested."""
    if it.kind.world is not along:
        return True
    fail = {s.level for rule in it.case.world.rules for s in rule.needs if s.factor == "v"}
    unseen = {s.level for s in it.case.world.untestable}
    first = next(v for v in versions(it.case.playbook) if v in fail and v not in unseen)
    return [first] == [s.level for cause in it.causes for s in cause if s.factor == "v"]


def only_what_may_be_is_run(it: Searched) -> bool:
    """No bound is broken, and no level outside of an order's `good` and `bad` is run."""
    playbook = it.case.playbook
    ordered = any(f.ordered for f in playbook.factors)
    return all(
        playbook.possible(trial.configuration)
        and (not ordered or trial.configuration["v"] in versions(playbook))
        for trial in it.played.planned
    )


def one_change_a_run(it: Searched) -> bool:
    """Each trial differs from a parent that told something in what its change says (1)."""
    trials, table = it.played.trials, it.table
    changed = [t for t in it.played.planned if t.change and t.id in trials]
    parents = [trials[t.parent or ""] for t in changed]
    return all(
        (table.fails(parent) or isinstance(parent.outcome, Passed))
        and set(trial.configuration.differs(parent.trial.configuration)) == set(trial.change.settings())
        and isinstance(trial.change, Group) == (len(trial.change.settings()) > 1)
        for trial, parent in zip(changed, parents, strict=True)
        if trial.change
    )


def only_passes_heal(it: Searched) -> bool:
    """What heals was seen to pass: no lost attempt and no other failure is a pass (3, 6)."""
    needed = [(inquiry, s) for inquiry in it.table.inquiries for s in inquiry.needed]
    healing = [flip for inquiry, s in needed for flip in inquiry.remedies(s.factor)]
    return {s.factor for _, s in needed} == {flip.setting.factor for flip in healing} and all(
        it.case.world.symptom(flip.configuration) is None
        and any(isinstance(s.outcome, Passed) for s in flip.runs)
        for flip in healing
    )


def what_does_not_show_does_not_vote(it: Searched) -> bool:
    """A factor whose level was not seen to take effect is never "not needed" (4)."""
    unseen = it.case.world.silent | it.case.world.stubborn
    states = [(h, assess(h, it.table)) for h in it.case.playbook.hypotheses]
    return not (
        any(i.standing(f) is Standing.NOT_NEEDED for i in it.table.inquiries for f in unseen)
        or any(result.state is State.SUPPORTED and set(h.excludes) & unseen for h, result in states)
    )


def another_failure_is_a_lead(it: Searched) -> bool:
    """Only the symptom of `bad` is "still fails"; every other one is listed (5)."""
    truth, bad = it.case.world.symptom, it.case.playbook.bad
    failed = [s for s in it.played.settled if isinstance(s.outcome, Failed)]
    other = [s.trial.id for s in failed if truth(s.trial.configuration) != truth(bad)]
    return it.table.symptom is None or other == [s.trial.id for s in it.table.leads()]


def pairs_are_closed(it: Searched) -> bool:
    """Each accused setting: failing, passing, failing again, one factor apart, and no group (8)."""
    trials, table = it.played.trials, it.table
    place = {name: number for number, name in enumerate(trials)}
    for inquiry in (i for i in table.inquiries if i.cause):
        last = max(place[p.passing] for p in inquiry.pairs)
        for pair in inquiry.pairs:
            failing, passing, again = (trials[name] for name in (pair.failing, pair.passing, pair.again))
            if not (
                failing.trial.configuration.differs(passing.trial.configuration) == (pair.setting,)
                and failing.trial.configuration == again.trial.configuration
                and pair.failing != pair.again
                and place[pair.again] > last
                and (table.fails(failing), table.fails(again)) == (True, True)
                and isinstance(passing.outcome, Passed)
                and not any(isinstance(s.trial.change, Group) for s in (failing, passing, again))
            ):
                return False
    return [p.setting for p in table.pairs] == [s for cause in it.causes for s in cause]


def good_comes_first(it: Searched) -> bool:
    """Nothing is changed before `good` was seen to work and `bad` to fail (10)."""
    settled = it.played.settled
    first = next((n for n, s in enumerate(settled) if s.trial.change), len(settled))
    controls = [(s.trial.control, s.outcome.kind) for s in settled[:first]]
    changed = first < len(settled)
    return controls[0][0] == "good" and (
        not changed or {("good", "passed"), ("bad", "failed")} <= set(controls)
    )


def enough_is_enough(it: Searched) -> bool:
    """Four attempts a factor and eight for a cause, where none is lost; each configuration a few times."""
    runs = Counter(s.trial.configuration for s in it.played.settled)
    within = it.kind.loss > 0 or it.played.attempts <= budget(it.case.playbook, len(it.table.inquiries))
    return within and max(runs.values()) <= 4


def what_stays_unknown_is_said(it: Searched) -> bool:
    """A claim is decided only by trials: a supported one is true of a cause, a refuted one of none (13)."""
    results = [(h, assess(h, it.table)) for h in it.case.playbook.hypotheses]
    causes = [{s.factor for s in cause} for cause in it.causes]
    return all(
        result.because
        and (result.state is State.UNDECIDED or result.by)
        and (result.state is State.UNDECIDED or (result.state is State.SUPPORTED) == any(true_of(h, causes)))
        for h, result in results
    )


def true_of(hypothesis: Hypothesis, causes: Iterable[set[str]]) -> list[bool]:
    """Whether a claim is true of each of these sets of factors."""
    involves, excludes = set(hypothesis.involves), set(hypothesis.excludes)
    return [involves <= factors and not excludes & factors for factors in causes]


RULES: tuple[Callable[[Searched], bool], ...] = (
    the_causes_are_some,
    the_cause_is_least,
    every_cause_is_found,
    the_first_failing_level_is_accused,
    only_what_may_be_is_run,
    one_change_a_run,
    only_passes_heal,
    what_does_not_show_does_not_vote,
    another_failure_is_a_lead,
    pairs_are_closed,
    good_comes_first,
    enough_is_enough,
    what_stays_unknown_is_said,
)


# --- searched, without a stack ------------------------------------------------------------------------


@cache
def searched(name: str, chunk: int) -> tuple[Searched, ...]:
    """The worlds of a chunk, searched one after the other."""
    kind, found = KINDS[name], []
    for number in range(kind.worlds):
        seed = f"{name} {chunk}.{number}"
        case, dice = drawn(kind, seed)
        limit = budget(case.playbook)
        played = play(case.playbook, case.world, dice.randint(1, 3), dice, loss=kind.loss, limit=limit)
        found.append(Searched(seed, case, kind, played))
    return tuple(found)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", KINDS)
def test_no_world_breaks_a_rule(name: str, chunk: int) -> None:
    """In whatever world, no rule of evidence is broken; nobody is accused wrongly."""
    worlds = searched(name, chunk)
    assert [] == [f"{it.seed}: {rule.__name__}" for it in worlds for rule in RULES if not rule(it)]


def test_what_can_be_found_is_found() -> None:
    """Each monotone failure within the budget; with every fifth attempt lost, 95 of 100."""
    worlds = {name: [it for chunk in CHUNKS for it in searched(name, chunk)] for name in KINDS}
    found = {name: sum(bool(it.causes) for it in every) for name, every in worlds.items()}
    table = "\n".join(
        f"{name:26}{len(every):5} worlds{found[name]:5} established"
        f"{sum(len(it.causes) for it in every):5} causes{sum(it.played.attempts for it in every):6} attempts"
        for name, every in worlds.items()
    )
    print(f"\n{table}")
    assert 2000 <= sum(map(len, worlds.values()))
    assert [] == [name for name, kind in KINDS.items() if found[name] < len(worlds[name]) * kind.found], table


# --- investigated, by the engine ----------------------------------------------------------------------


@dataclass(frozen=True)
class Investigated:
    """A world that the engine has investigated."""

    case: Case
    lab: Lab
    verdict: Verdict

    @property
    def planned(self) -> dict[str, tuple[int, TrialPlanned]]:
        """The plans of the trials, with their place in the journal."""
        entries = self.lab.journal.entries
        return {e.event.trial.id: (e.number, e.event) for e in entries if isinstance(e.event, TrialPlanned)}

    @property
    def launched(self) -> list[tuple[int, Launching]]:
        """The launches, with their place in the journal."""
        return [(e.number, e.event) for e in self.lab.journal.entries if isinstance(e.event, Launching)]


def the_verdict_is_true(it: Investigated) -> bool:
    """It accuses nobody wrongly, and says so in its exit code's terms (13)."""
    causes = it.verdict.causes
    return it.verdict.established == bool(causes) and all(is_cause(it.case, cause) for cause in causes)


def the_verdict_is_verified(it: Investigated) -> bool:
    """It is computed again from the folder alone (12)."""
    return verify(it.lab.folder).verdict == it.verdict


def predictions_come_first(it: Investigated) -> bool:
    """Each hypothesis has said what a trial will do before its first launch (13)."""
    claims = {h.id for h in it.case.playbook.hypotheses}
    launches = [(n, event) for n, event in it.launched if event.trial in it.planned]
    return all(it.planned[event.trial][0] < n for n, event in launches) and all(
        claims == set(planned.predicted) for _, planned in it.planned.values()
    )


def an_attempt_starts_once(it: Investigated) -> bool:
    """No script is started twice for one attempt (11)."""
    attempts = [(event.trial, event.attempt) for _, event in it.launched]
    return len(it.lab.host.starts) <= len(attempts) == len(set(attempts))


def good_is_first_and_last(it: Investigated) -> bool:
    """The first start and the last are of `good`, which alone is left running (9, 10)."""
    good, starts = it.case.playbook.good, it.lab.host.starts
    running = [good] if it.verdict.good_restored.ok else []
    worked = it.verdict.good_first.ok
    return (starts[0], it.lab.host.alive()) == (good, running) and (not worked or starts[-1] == good)


def the_budget_is_kept(it: Investigated) -> bool:
    """The search makes no more attempts than it may."""
    trials = [t for t in it.verdict.trials if t.control != "restore"]
    return len(trials) <= it.case.playbook.limits.trials


DEEDS: tuple[Callable[[Investigated], bool], ...] = (
    the_verdict_is_true,
    the_verdict_is_verified,
    predictions_come_first,
    an_attempt_starts_once,
    good_is_first_and_last,
    the_budget_is_kept,
)


def lossy(stack: Stack, dice: Random, loss: float) -> Stack:
    """The stack, where of some attempts nobody sees how they end."""

    def behave(configuration: Configuration, number: int) -> Behaviour:
        behaviour = stack(configuration, number)
        return replace(behaviour, supervisor_dies=0.0) if dice.random() < loss else behaviour

    return behave


def investigated(path: Path, name: str, number: int) -> tuple[str, Investigated]:
    """A world of a kind, investigated behind a fake host; and its seed."""
    seed, kind = f"engine {name} {number}", KINDS[name]
    case, dice = drawn(replace(kind, factors=3), seed)
    limits = case.playbook.limits.model_copy(update={"quiet": 3, "trials": budget(case.playbook)})
    case = Case(
        case.playbook.model_copy(update={"limits": limits}), replace(case.world, untestable=frozenset())
    )
    stack = lossy(stack_of(case.world, case.playbook), dice, kind.loss)
    with Lab(path / f"{number}", case.playbook, stack) as lab:
        return seed, Investigated(case, lab, lab.begin().engine.run().verdict)


@pytest.mark.parametrize("name", KINDS)
def test_no_investigation_breaks_a_rule(tmp_path: Path, name: str) -> None:
    """Through the real engine, too: what it starts, writes, concludes and leaves behind."""
    worlds = [investigated(tmp_path, name, number) for number in range(3)]
    assert [] == [f"{seed}: {deed.__name__}" for seed, it in worlds for deed in DEEDS if not deed(it)]
