"""Thousands of worlds of known truth: nothing is accused wrongly, and what can be found is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from random import Random

import pytest

from bisect_agent.claims import assess, established
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
from tests.worlds import HANGS, SYMPTOMS, Played, Rule, World, claim, play, playbook_of

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


@dataclass(frozen=True)
class Kind:
    """A kind of worlds.

    Attributes:
        world: draws one.
        worlds: how many in one chunk.
        monotone: whether the failure only gets likelier with more of `bad`.
        loss: the share of attempts that are lost on the way.
        factors: at most so many.
    """

    world: Callable[[Random, Playbook], World]
    worlds: int
    monotone: bool = False
    loss: float = 0.0
    factors: int = len(FACTORS)


KINDS: Mapping[str, Kind] = {
    "conjunction": Kind(conjunction, 50, monotone=True),
    "redundant": Kind(redundant, 130, monotone=True),
    "redundant, attempts lost": Kind(redundant, 100, monotone=True, loss=0.2),
    "interacting": Kind(interacting, 80),
    "many symptoms": Kind(many_symptoms, 80),
    "lawless": Kind(lawless, 40, factors=3),
    "deceptive": Kind(deceptive, 60),
    "deceptive, attempts lost": Kind(deceptive, 40, loss=0.2),
}
CHUNKS = range(4)


def budget(playbook: Playbook) -> int:
    """The attempts that are enough, where none is lost."""
    return 4 * len(playbook.factors) + 8


def drawn(kind: Kind, seed: str) -> tuple[Case, Random]:
    """The world of a seed, and the dice to go on with."""
    dice = Random(seed)  # noqa: S311  # a world, not a secret
    playbook = a_playbook(dice, kind.factors)
    return Case(playbook, kind.world(dice, playbook)), dice


# --- the truth ----------------------------------------------------------------------------------------


def is_cause(case: Case, accused: Iterable[Setting]) -> bool:
    """The definition, held against the world alone.

    `good` with the cause fails as `bad` does, and some configuration that holds the cause and fails so
    works when any one setting of the cause is set otherwise.
    """
    cause, truth = frozenset(accused), cache(case.world.symptom)
    playbook, symptom = case.playbook, case.world.symptom(case.playbook.bad)
    levels = {f.name: tuple(f.levels) for f in playbook.factors}
    held = {s.factor: (s.level,) for s in cause}

    def needs_each(failing: Configuration) -> bool:
        others = (
            [failing.replace([Setting(factor=s.factor, level=v)]) for v in levels[s.factor] if v != s.level]
            for s in cause
        )
        return truth(failing) == symptom and all(None in map(truth, changed) for changed in others)

    every = product(*({**levels, **held}[name] for name in levels))
    holding = (Configuration(dict(zip(levels, found, strict=True))) for found in every)
    enough = truth(playbook.good.replace(cause)) == symptom is not None
    return enough and cause <= set(playbook.bad.settings()) and any(map(needs_each, holding))


def is_least(case: Case, cause: Iterable[Setting]) -> bool:
    """In a monotone world: without any one difference of the cause, `good` with the rest of it works."""
    good, settings = case.playbook.good, set(cause)
    less = [good.replace(settings - {s}) for s in settings & set(case.playbook.bad.differs(good))]
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

    @cached_property
    def cause(self) -> tuple[Setting, ...]:
        """What is accused."""
        return established(self.table)


def the_cause_is_one(it: Searched) -> bool:
    """What is accused is a cause by the definition; the search knows when there is one."""
    stopped = it.played.finished.by is StoppedBy.CAUSE
    return stopped == bool(it.cause) and (not it.cause or is_cause(it.case, it.cause))


def the_cause_is_least(it: Searched) -> bool:
    """No setting of it is idle, where the world is monotone."""
    return not it.kind.monotone or not it.cause or is_least(it.case, it.cause)


def one_change_a_run(it: Searched) -> bool:
    """Each trial differs in what its change says from a parent that failed; only a group in several (1)."""
    trials, table = it.played.trials, it.table
    changed = [t for t in it.played.planned if t.change and t.id in trials]
    parents = [trials[t.parent or ""] for t in changed]
    return all(
        table.fails(parent)
        and set(trial.configuration.differs(parent.trial.configuration)) == set(trial.change.settings())
        and isinstance(trial.change, Group) == (len(trial.change.settings()) > 1)
        for trial, parent in zip(changed, parents, strict=True)
        if trial.change
    )


def only_passes_heal(it: Searched) -> bool:
    """What heals was seen to pass: no lost attempt and no other failure is a pass (3, 6)."""
    needed = [flip for s in it.table.needed for flip in it.table.flips(s.factor)]
    healing = [flip for flip in needed if any(isinstance(s.outcome, Passed) for s in flip.runs)]
    return {f.setting.factor for f in needed} == {f.setting.factor for f in healing} and all(
        it.case.world.symptom(flip.configuration) is None for flip in healing
    )


def what_does_not_show_does_not_vote(it: Searched) -> bool:
    """A factor whose level was not seen to take effect is never "not needed" (4)."""
    unseen = it.case.world.silent | it.case.world.stubborn
    states = [(h, assess(h, it.table).state) for h in it.case.playbook.hypotheses]
    return not (
        any(it.table.standing(f) is Standing.NOT_NEEDED for f in unseen)
        or any(state is State.SUPPORTED and set(h.excludes) & unseen for h, state in states)
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
    pairs = table.pairs if it.cause else ()
    passes = [place[p.passing] for p in pairs]
    for pair in pairs:
        failing, passing, again = (trials[name] for name in (pair.failing, pair.passing, pair.again))
        if not (
            failing.trial.configuration.differs(passing.trial.configuration) == (pair.setting,)
            and failing.trial.configuration == again.trial.configuration
            and pair.failing != pair.again
            and place[pair.again] > max(passes)
            and (table.fails(failing), table.fails(again)) == (True, True)
            and isinstance(passing.outcome, Passed)
            and not any(isinstance(s.trial.change, Group) for s in (failing, passing, again))
        ):
            return False
    return tuple(p.setting for p in pairs) == it.cause


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
    """Four attempts a factor and eight, where none is lost; each configuration a few times at most."""
    runs = Counter(s.trial.configuration for s in it.played.settled)
    within = it.kind.loss > 0 or it.played.attempts <= budget(it.case.playbook)
    return within and max(runs.values()) <= 4


def what_stays_unknown_is_said(it: Searched) -> bool:
    """A claim is decided only by trials, and a supported one is true of the cause (13)."""
    results = [(h, assess(h, it.table)) for h in it.case.playbook.hypotheses]
    factors = {s.factor for s in it.cause}
    return all(
        result.because
        and (result.state is State.UNDECIDED or result.by)
        and (result.state is not State.SUPPORTED or set(h.involves) <= factors - set(h.excludes))
        and (result.state is not State.REFUTED or not set(h.involves) <= factors or set(h.excludes) & factors)
        for h, result in results
    )


RULES: tuple[Callable[[Searched], bool], ...] = (
    the_cause_is_one,
    the_cause_is_least,
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
        played = play(case.playbook, case.world, landing=dice, loss=kind.loss, limit=limit)
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
    found = {name: sum(bool(it.cause) for it in every) for name, every in worlds.items()}
    table = "\n".join(
        f"{name:28}{len(every):6} worlds{found[name]:6} established" for name, every in worlds.items()
    )
    print(f"\n{table}")
    assert 2000 <= sum(map(len, worlds.values()))
    assert [] == [
        name
        for name, kind in KINDS.items()
        if kind.monotone and found[name] < len(worlds[name]) * (0.95 if kind.loss else 1)
    ], table


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
    accused = it.verdict.cause
    return it.verdict.established == bool(accused) and (not accused or is_cause(it.case, accused))


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
    case = replace(case, playbook=case.playbook.model_copy(update={"limits": limits}))
    stack = lossy(stack_of(case.world, case.playbook), dice, kind.loss)
    with Lab(path / f"{number}", case.playbook, stack) as lab:
        return seed, Investigated(case, lab, lab.begin().engine.run().verdict)


@pytest.mark.parametrize("name", KINDS)
def test_no_investigation_breaks_a_rule(tmp_path: Path, name: str) -> None:
    """Through the real engine, too: what it starts, writes, concludes and leaves behind."""
    worlds = [investigated(tmp_path, name, number) for number in range(9)]
    assert [] == [f"{seed}: {deed.__name__}" for seed, it in worlds for deed in DEEDS if not deed(it)]
