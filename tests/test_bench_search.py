"""The instrument that judges the search: it counts right, and calls a wrong verdict wrong."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean

import pytest

from bisect_agent import search
from bisect_agent.model import Playbook, Settled, Trial
from tests.bench.search import first_difference, misled
from tests.bench.searches import ours, peers
from tests.bench.searches.oracle import LOST, OK, REFUSED, SECOND, TARGET, Rule, World
from tests.bench.searches.ours import Searched
from tests.bench.searches.scenarios import (
    SCENARIOS,
    Claim,
    Declined,
    Named,
    Placement,
    Scenario,
    Truth,
    Verdict,
    noisy,
    splits,
)
from tests.bench.searches.scores import Score, aligned, of_ours

NAMES = {scenario.name: scenario for scenario in SCENARIOS}
CERTAIN = [s for s in SCENARIOS if not s.flaky and s.size <= 16]
BY_HAND = {"ddmin": peers.ddmin, "one at a time": peers.one_at_a_time}


def placed(rules: Sequence[Rule], truth: Truth, size: int = 4, lost: float = 0.0) -> Placement:
    """A world made by hand, of factors t1, t2, ..."""

    def draw(_: Random, __: Sequence[str]) -> tuple[list[Rule], Truth]:
        return list(rules), truth

    return Scenario("by hand", draw, bar=0, bound=0, size=size, lost=lost).placed("0")


def causes(*found: str) -> frozenset[frozenset[str]]:
    """Sets of factors, each written in one text."""
    return frozenset(frozenset(text.split()) for text in found)


def on(searched: Searched) -> list[str]:
    """What was on in each run."""
    return [" ".join(sorted(held)) for held, _ in searched.runs]


# --- the counting ---------------------------------------------------------------------------------------


def test_one_factor_at_a_time_makes_the_runs_that_a_person_would_make() -> None:
    """Among four factors, one of them the cause: both sides, then each alone."""
    searched = peers.one_at_a_time(placed([(["t3"], [], TARGET, 1.0)], causes("t3")))
    assert ["", "t1 t2 t3 t4", "t1", "t2", "t3", "t4"] == on(searched)
    assert Named(causes("t3")) == searched.claim


def test_one_factor_at_a_time_finds_a_pair_from_the_other_side() -> None:
    """None fails alone; two of them heal: 2 + 4 + 4 runs."""
    searched = peers.one_at_a_time(placed([(["t1", "t3"], [], TARGET, 1.0)], causes("t1 t3")))
    assert (10, Named(causes("t1 t3"))) == (len(searched.runs), searched.claim)


def test_ddmin_halves() -> None:
    """Both sides, the half without the cause, the half with it, and the same again."""
    searched = peers.ddmin(placed([(["t4"], [], TARGET, 1.0)], causes("t4")))
    assert ["", "t1 t2 t3 t4", "t1 t2", "t3 t4", "t3", "t4"] == on(searched)
    assert Named(causes("t4")) == searched.claim


def test_a_lost_run_is_counted() -> None:
    """Whatever is seen of it, the stack was started."""
    placement = placed([(["t3"], [], TARGET, 1.0)], causes("t3"), lost=0.5)
    searched = peers.one_at_a_time(placement)
    lost = [shows for _, shows in searched.runs].count(LOST)
    assert (6 + lost, True) == (len(searched.runs), lost > 0)


def test_ours_counts_the_proof() -> None:
    """A single cause of one factor: `good`, `bad`, the flip that is `good` again, and `bad` once more."""
    searched = ours.pure(placed([(["t1"], [], TARGET, 1.0)], causes("t1"), size=1))
    assert ["", "t1", "t1"] == on(searched)
    assert Named(causes("t1")) == searched.claim


def test_ours_counts_every_attempt() -> None:
    """Where half of the attempts are lost, there are more runs than trials."""
    settled: list[Settled] = []

    def ask(
        playbook: Playbook, so_far: Sequence[Settled], flying: Sequence[Trial], capacity: int
    ) -> search.Next | search.Finished:
        settled[:] = so_far
        return search.step(playbook, so_far, flying, capacity)

    searched = ours.pure(placed([(["t3"], [], TARGET, 1.0)], causes("t3"), lost=0.5), ask)
    assert sum(s.attempt for s in settled) == len(searched.runs) > len(settled)


def test_the_same_run_shows_the_same_to_all() -> None:
    """Chance belongs to the world and to the number of the run, not to who asks."""
    placement = NAMES["flaky"].placed("7")
    every = frozenset(placement.scenario.factors)
    first, again = ([placement.world.answer(every, n) for n in range(200)] for _ in range(2))
    assert first == again
    assert 115 < first.count(TARGET) < 165


# --- the stack as a program -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "environment", "shows", "code"),
    [
        ("plain", {}, OK, 0),
        ("plain", {"T1": "1"}, TARGET, 1),
        ("plain", {"T2": "1", "T3": "1"}, OK, 0),
        ("plain", {"T2": "1"}, REFUSED, 1),
        ("target", {"T2": "1"}, REFUSED, 0),
        ("interesting", {"T1": "1"}, TARGET, 0),
        ("interesting", {"T4": "1"}, SECOND, 1),
        ("metric", {"MLBISECT_AXIS_T4": "1"}, SECOND, 3),
    ],
)
def test_the_program_does_what_the_world_says(
    tmp_path: Path, way: str, environment: dict[str, str], shows: str, code: int
) -> None:
    """It writes its start down, and exits as the tool expects it."""
    rules: list[Rule] = [
        (["t1"], [], TARGET, 1.0),
        (["t2"], ["t3"], REFUSED, 1.0),
        (["t4"], [], SECOND, 1.0),
    ]
    command = ours.started(World(["t1", "t2", "t3", "t4"], rules, 0.0, "0"), tmp_path)
    done = subprocess.run([*command, "--exit", way], env=environment, check=False, capture_output=True)
    ((_, seen),) = ours.made(tmp_path)
    assert (shows, code) == (seen, done.returncode)


def test_the_program_reads_names_and_versions(tmp_path: Path) -> None:
    """A file of names, none where there is no file, and a version that holds all before it."""
    command = ours.started(World(["t1", "t2", "t3"], [], 0.0, "0"), tmp_path)
    names = tmp_path / "names"
    names.write_text("t2\nt3\n", encoding="utf-8")
    for more in (f"--from {names}", "--from nowhere", "--until 2"):
        subprocess.run([*command, *shlex.split(more)], check=True, capture_output=True)
    assert [{"t2", "t3"}, set(), {"t1", "t2"}] == [set(held) for held, _ in ours.made(tmp_path)]


# --- the judging ----------------------------------------------------------------------------------------

A_PAIR: Truth = causes("t1 t3")
TWO: Truth = causes("t1", "t2")


@pytest.mark.parametrize(
    ("truth", "claim", "verdict"),
    [
        (A_PAIR, Named(causes("t1 t3")), Verdict.RIGHT),
        (A_PAIR, Named(causes("t1")), Verdict.WRONG),
        (A_PAIR, Named(causes("t1 t3 t4")), Verdict.WRONG),
        (A_PAIR, Named(causes("t1", "t3")), Verdict.WRONG),
        (A_PAIR, Named(frozenset()), Verdict.WRONG),
        (A_PAIR, Declined(None, "cannot tell"), Verdict.OPEN),
        (A_PAIR, Declined("bad", "it passed"), Verdict.OPEN),
        (TWO, Named(causes("t1", "t2")), Verdict.RIGHT),
        (TWO, Named(causes("t2")), Verdict.PART),
        (TWO, Named(causes("t2", "t3")), Verdict.WRONG),
        (TWO, Named(causes("t1 t2")), Verdict.WRONG),
        ("good", Declined("good", "it fails"), Verdict.RIGHT),
        ("good", Declined("bad", "it passes"), Verdict.OPEN),
        ("bad", Declined(None, "cannot tell"), Verdict.OPEN),
        ("bad", Named(causes("t1")), Verdict.WRONG),
    ],
)
def test_a_claim_is_worth_what_is_true_of_it(truth: Truth, claim: Claim, verdict: Verdict) -> None:
    """Whoever names an innocent factor, or a part of a pair, is wrong; whoever says nothing is not."""
    assert verdict is placed([], truth).held(claim)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_a_search_that_lies_is_found_out(scenario: Scenario) -> None:
    """A search that always accuses the same factor is wrong, at a rate that its interval holds."""
    placements = [scenario.placed(f"liar {n}") for n in range(50)]
    lie = Searched((), Named(causes(scenario.factors[0])))
    score = Score.of("liar", [(p, lie) for p in placements], scenario.name)
    true = sum(p.truth == causes(scenario.factors[0]) for p in placements)
    assert score.verdicts[Verdict.WRONG] >= 50 - true - score.verdicts[Verdict.PART] > 30
    assert score.wrong[0] > max(0.5, scenario.error)


@pytest.mark.parametrize("scenario", CERTAIN, ids=lambda s: s.name)
def test_the_truth_is_what_the_world_does(scenario: Scenario) -> None:
    """Each cause is enough, a part of it is not, and there are no others."""
    placement = replace(scenario, lost=0.0).placed("truth")
    every = frozenset(scenario.factors)

    def shows(held: frozenset[str]) -> str:
        return placement.world.answer(held, 0)

    sets = placement.truth if isinstance(placement.truth, frozenset) else frozenset()
    assert {TARGET} >= {shows(cause) for cause in sets}
    assert TARGET not in {shows(cause - {x}) for cause in sets for x in cause}
    assert TARGET not in {shows(every - frozenset(x)) for x in zip(*sets, strict=False)} or not sets
    assert (shows(frozenset()), shows(every)) == {
        "good": (TARGET, TARGET),
        "bad": (OK, OK),
    }.get(str(placement.truth), (OK, TARGET))


# --- the bounds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", CERTAIN, ids=lambda s: s.name)
def test_nobody_who_is_right_is_below_the_bound(scenario: Scenario) -> None:
    """The fewest runs that are possible are fewer than what anybody takes."""
    placements = [scenario.placed(f"bound {n}") for n in range(5)]
    searches = {"ours": ours.pure} | (BY_HAND if peers.sets(scenario) else {})
    scores = [
        Score.of(name, [(p, find(p)) for p in placements], scenario.name) for name, find in searches.items()
    ]
    right = {score.searcher: mean(score.runs) for score in scores if score.verdicts[Verdict.RIGHT] == 5}
    assert "ours" in right
    assert min(right.values()) >= scenario.bound


@pytest.mark.parametrize(("candidates", "questions"), [(1, 0), (2, 1), (3, 5 / 3), (16, 4), (120, 6.9333)])
def test_questions_that_tell_candidates_apart(candidates: int, questions: float) -> None:
    """The mean depth of the flattest tree."""
    assert questions == pytest.approx(splits(candidates), abs=1e-3)


def test_chance_costs_runs() -> None:
    """A noisy answer says less than a sure one; without noise and error both bounds meet."""
    assert splits(16) < noisy(16, 0.7, 0.01)
    assert 4 == pytest.approx(noisy(16, 1 - 1e-12, 1e-12), abs=1e-3)


# --- the figures ----------------------------------------------------------------------------------------


def test_where_nothing_was_run_no_figure_stands() -> None:
    """A tool that is not installed, or cannot be asked this, has its reason there."""
    score = Score("ours", "flaky", note="not installed: here is how")
    table = of_ours([NAMES["flaky"]], [score], {})
    assert "not installed" in table
    assert "0.0" not in table
    assert 0 == score.plain()["placements"]


def test_a_search_that_misleads_ends_with_an_error() -> None:
    """One wrong verdict is too many where all is certain; where it is not, more than chance allows."""
    certain, flaky = (NAMES[name] for name in ("single", "flaky"))
    counts = Counter({Verdict.RIGHT: 197, Verdict.WRONG: 3})
    scores = [Score("ours", s.name, (9,) * 200, counts) for s in (certain, flaky)]
    assert ["single: ours is wrong in 3 of 200 worlds"] == misled((certain, flaky), scores)


def test_the_command_is_held_against_every_run() -> None:
    """Another run, one more, or another claim: each is told."""
    one, two = ((frozenset({"t1"}), TARGET), (frozenset[str](), OK))
    said, other = Declined(None, "a"), Declined(None, "b")
    searched = Searched((one, two), said)
    assert "" == first_difference(searched, Searched((one, two), said))
    assert "run 2 is good: ok, and by the command t1: target" == first_difference(
        searched, Searched((one, one), said)
    )
    assert "run 2 is good: ok, and by the command none" == first_difference(searched, Searched((one,), said))
    assert "b" in first_difference(searched, Searched((one, two), other))


def test_columns_are_side_by_side() -> None:
    """Text to the left, figures to the right."""
    assert "a    1\nbbb  22" == aligned([["a", "1"], ["bbb", "22"]]).replace("   1", "  1")


def test_scores_add_up() -> None:
    """Chunks of placements make one figure."""
    one = Score("ours", "single", (5, 7), Counter({Verdict.RIGHT: 2}), passing=6)
    other = Score("ours", "single", (9,), Counter({Verdict.WRONG: 1}), passing=3)
    assert "7.0 2R 1W" == (one + other).cell()
    assert {"mean": 7, "most": 9, "passing": 3, "wrong": 1}.items() <= (one + other).plain().items()


# --- the edges ------------------------------------------------------------------------------------------


def test_a_tool_that_is_not_there_says_how_it_comes(tmp_path: Path) -> None:
    """Nobody has to look it up."""
    tool = replace(peers.TOOLS[0], name="no-such-tool")
    with pytest.raises(peers.Missing, match="pip install no-such-tool"):
        tool.program(tmp_path)


def test_a_tool_is_counted_by_the_stack(tmp_path: Path) -> None:
    """Three starts are three runs, whatever the tool says; its answer is read from its report."""
    program = tmp_path / "envcause" / "bin" / "envcause"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do [ "$1" = --report-json ] && report=$2; shift; done; shift\n'
        f'"$@"; "$@"; "$@"\necho {shlex.quote(json.dumps({"changes": [{"key": "T01"}]}))} >"$report"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    searched = peers.TOOLS[0](NAMES["single"].placed("0"), tmp_path)
    assert (3, Named(causes("t01"))) == (len(searched.runs), searched.claim)


def test_the_command_makes_the_same_runs() -> None:
    """What the pure search promises is what real processes see, in a small world."""
    placement = placed([(["t2"], [], TARGET, 1.0)], causes("t2"), size=3)
    assert ours.pure(placement) == ours.command(placement)


def test_a_version_is_named_as_the_world_calls_it() -> None:
    """The first version that fails brought the factor that fails."""
    placement = replace(NAMES["200 versions"], size=12).placed("0")
    assert Verdict.RIGHT is placement.held(ours.pure(placement).claim)


def test_a_flaky_failure_is_searched() -> None:
    """With as many runs as it takes."""
    placement = NAMES["flaky"].placed("0")
    assert Verdict.RIGHT is placement.held(ours.pure(placement).claim)
