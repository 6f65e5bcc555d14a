"""The search, in worlds whose truth is known."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent import search
from bisect_agent.claims import assess, gap
from bisect_agent.evidence import Answer, Standing, Table
from bisect_agent.model import (
    Configuration,
    Failed,
    Group,
    Passed,
    Playbook,
    Reason,
    Setting,
    Settled,
    State,
    StoppedBy,
    Trial,
    Unresolved,
)
from tests.strategies import FEW, Case, cases, monotone
from tests.worlds import Rule, World, claim, play, playbook_of, setting, symptom

ORDERS = st.randoms(use_true_random=False)
CAPACITIES = st.integers(1, 3)


def flipped(table: Table, factor: str) -> list[Configuration]:
    """The failing configuration with each other level of a factor."""
    return [flip.configuration for flip in table.inquiry.changes(table.inquiry.here, factor)]


def changed(trial: Trial, trials: dict[str, Settled]) -> set[str]:
    """The factors that a trial has otherwise than its parent."""
    assert trial.parent is not None
    return {s.factor for s in trial.configuration.differs(trials[trial.parent].trial.configuration)}


# --- the shape of a search --------------------------------------------------------------------------


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_every_search_ends_soon(case: Case, capacity: int, landing: Random) -> None:
    """Four trials a factor and eight, and one more of each configuration that is lost on the way."""
    played = play(case.playbook, case.world, capacity, landing)
    assert len(played.planned) <= 4 * len(case.playbook.factors) + 8 + len(case.world.lost)


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_a_trial_differs_from_its_parent_in_what_its_change_says(
    case: Case, capacity: int, landing: Random
) -> None:
    """One variable a run, unless a group says otherwise (rule 1)."""
    played = play(case.playbook, case.world, capacity, landing)
    assert [] == [
        s.trial.id
        for s in played.settled
        if s.trial.change and changed(s.trial, played.trials) != {x.factor for x in s.trial.change.settings()}
    ]


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_no_configuration_flies_twice_at_a_time(case: Case, capacity: int, landing: Random) -> None:
    """What is in flight is different, and never more than the capacity."""
    played = play(case.playbook, case.world, capacity, landing)
    assert all(len({t.configuration for t in flight}) == len(flight) <= capacity for flight in played.flights)


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_ids_are_unique_and_replicates_count_up(case: Case, capacity: int, landing: Random) -> None:
    """An id names one trial; the n-th run of a configuration is replicate n."""
    planned = play(case.playbook, case.world, capacity, landing).planned
    replicates: dict[Configuration, list[int]] = defaultdict(list)
    for trial in planned:
        replicates[trial.configuration].append(trial.replicate)
    assert 1 == max(Counter(trial.id for trial in planned).values())
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in replicates.values())


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_good_comes_first_and_bad_before_any_change(case: Case, capacity: int, landing: Random) -> None:
    """A change is planned only when `good` was seen to work and `bad` to fail (rule 10)."""
    played = play(case.playbook, case.world, capacity, landing)
    stages = [["good", "bad"].index(t.control) if t.control else 2 for t in played.planned]
    first_change = stages.index(2) if 2 in stages else len(stages)
    assert sorted(stages[:first_change]) == stages[:first_change]


def test_capacity_counts_what_already_flies() -> None:
    """With more in flight than may be (a run taken up with less room), nothing is started."""
    playbook = playbook_of(dict.fromkeys("abcd", "01"), dict.fromkeys("abcd", "1"))
    world = World((Rule(frozenset({setting("a=1")})),))
    controls = play(playbook, world).settled[:2]
    step = search.step(playbook, controls, (), 4)
    assert isinstance(step, search.Next)
    assert search.Next(()) == search.step(playbook, controls, [w.trial for w in step.wanted[:2]], 1)


# --- what is concluded ------------------------------------------------------------------------------


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_every_accused_setting_has_a_pair_of_its_own(case: Case, capacity: int, landing: Random) -> None:
    """One side fails, the other passes and differs in that factor only, and the first fails again."""
    played = play(case.playbook, case.world, capacity, landing)
    table, trials = Table(case.playbook, played.settled), played.trials
    place = {s.trial.id: n for n, s in enumerate(played.settled)}
    cause = table.inquiry.cause
    pairs = table.pairs if cause else ()
    assert (played.finished.by is StoppedBy.CAUSE) == bool(cause)
    assert cause == tuple(pair.setting for pair in pairs)
    for pair in pairs:
        failing, passing, again = (trials[name] for name in (pair.failing, pair.passing, pair.again))
        differs = failing.trial.configuration.differs(passing.trial.configuration)
        assert ((pair.setting,), again.trial.configuration) == (differs, failing.trial.configuration)
        assert place[pair.again] > max(place[pair.passing], place[pair.failing])
        assert (True, False, True) == tuple(table.fails(s) for s in (failing, passing, again))


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_the_failing_side_fails_again_after_the_last_passing_trial(
    case: Case, capacity: int, landing: Random
) -> None:
    """One run closes all pairs, so it comes after all of them (rule 8)."""
    played = play(case.playbook, case.world, capacity, landing)
    if played.finished.by is StoppedBy.CAUSE:
        failing = Table(case.playbook, played.settled).inquiry.here
        assert failing == played.settled[-1].trial.configuration


@FEW
@given(monotone(), CAPACITIES, ORDERS)
def test_a_conjunction_is_found_exactly(case: Case, capacity: int, landing: Random) -> None:
    """Where the failure needs each of some settings, these are the cause, no more and no less."""
    played = play(case.playbook, case.world, capacity, landing)
    cause = Table(case.playbook, played.settled).inquiry.cause
    assert (StoppedBy.CAUSE, case.world.rules[0].needs) == (played.finished.by, frozenset(cause))


@FEW
@given(cases(), CAPACITIES, ORDERS)
def test_nothing_is_accused_wrongly(case: Case, capacity: int, landing: Random) -> None:
    """In any world: `good` with the cause fails as `bad` does; without any one of it the failure is gone."""
    played = play(case.playbook, case.world, capacity, landing)
    table, truth = Table(case.playbook, played.settled), case.world.symptom
    cause, bad = table.inquiry.cause, case.playbook.bad
    if cause:
        assert truth(bad) == truth(case.playbook.good.replace(cause))
        assert [] == [s for s in cause if None not in map(truth, flipped(table, s.factor))]


@FEW
@given(cases())
def test_a_level_that_does_not_show_is_never_not_needed(case: Case) -> None:
    """Without a witness, a flip that fails the same says nothing (rule 4)."""
    played = play(case.playbook, case.world)
    table = Table(case.playbook, played.settled)
    unseen = case.world.silent | case.world.stubborn
    supported = [h for h in case.playbook.hypotheses if assess(h, table).state is State.SUPPORTED]
    assert [] == [f for f in unseen if table.inquiry.standing(f) is Standing.NOT_NEEDED]
    assert [] == [h.id for h in supported if set(h.excludes) & unseen]


@FEW
@given(cases())
def test_another_failure_is_a_lead_and_never_the_same_failure(case: Case) -> None:
    """Only the symptom of `bad` counts as "still fails"; every other one is listed (rule 5)."""
    table = Table(case.playbook, play(case.playbook, case.world).settled)
    failed = [s for s in table.settled if isinstance(s.outcome, Failed)]
    other = [
        s
        for s in failed
        if case.world.symptom(s.trial.configuration) != case.world.symptom(case.playbook.bad)
    ]
    leads = table.leads()
    assert [] == [s.trial.id for s in other if table.fails(s)]
    assert table.symptom is None or [s.trial.id for s in other] == [s.trial.id for s in leads]


@FEW
@given(cases(), ORDERS)
def test_the_order_of_hypotheses_changes_no_verdict(case: Case, shuffle: Random) -> None:
    """Claims steer what is tried first, and nothing that is concluded."""
    claims = list(case.playbook.hypotheses)
    shuffle.shuffle(claims)
    other = case.playbook.model_copy(update={"hypotheses": tuple(claims)})
    assert verdict(case.playbook, case.world) == verdict(other, case.world)


@FEW
@given(monotone(), CAPACITIES, ORDERS)
def test_the_order_of_landing_changes_no_verdict(case: Case, capacity: int, landing: Random) -> None:
    """However many trials fly at a time, and whichever lands first, the conclusion is the same."""
    one = verdict(case.playbook, case.world)
    assert one == verdict(case.playbook, case.world, capacity, landing)


@FEW
@given(monotone(), ORDERS)
def test_the_order_and_the_names_of_factors_change_no_verdict(case: Case, shuffle: Random) -> None:
    """They steer what is tried first, and nothing that is concluded."""
    names = [f.name for f in case.playbook.factors]
    shuffle.shuffle(names)
    new = dict(zip(sorted(names), (f"{name}{n}" for n, name in enumerate(names)), strict=True))
    by, cause, states = verdict(case.playbook, case.world)
    expected = by, frozenset(renamed(s, new) for s in cause), states
    assert expected == verdict(reordered(case.playbook, names, new), renamed_world(case.world, new))


def renamed(found: Setting, new: Mapping[str, str]) -> Setting:
    """The setting of the factor's new name."""
    return Setting(factor=new[found.factor], level=found.level)


def renamed_world(world: World, new: Mapping[str, str]) -> World:
    """The same truth, in new names."""
    return World(tuple(Rule(frozenset(renamed(s, new) for s in r.needs), r.symptom) for r in world.rules))


def reordered(playbook: Playbook, names: Sequence[str], new: Mapping[str, str]) -> Playbook:
    """The same playbook, with its factors in another order and under other names."""
    factors = [playbook.factor(name).model_copy(update={"name": new[name]}) for name in names]
    sides = [
        Configuration({new[name]: side[name] for name in names}) for side in (playbook.good, playbook.bad)
    ]
    claims = [
        h.model_copy(
            update={
                "involves": tuple(new[f] for f in h.involves),
                "excludes": tuple(new[f] for f in h.excludes),
            }
        )
        for h in playbook.hypotheses
    ]
    return playbook.model_copy(
        update={
            "factors": tuple(factors),
            "good": sides[0],
            "bad": sides[1],
            "suspects": tuple(new[name] for name in names if name in playbook.suspects),
            "hypotheses": tuple(claims),
        }
    )


@FEW
@given(
    st.sets(st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=3), min_size=1, max_size=3),
    CAPACITIES,
    ORDERS,
)
def test_all_causes_are_the_same_whatever_the_order(
    found: set[frozenset[str]], capacity: int, landing: Random
) -> None:
    """Of the factors, and of what lands first."""
    names = list("abcdef")
    least = {way for way in found if not any(other < way for other in found)}
    world = ways(*(" ".join(f"{name}=1" for name in way) for way in least))
    landing.shuffle(names)
    book = playbook_of(dict.fromkeys(names, "01"), dict.fromkeys(names, "1"), every_cause=True)
    causes = Table(book, play(book, world, capacity, landing).settled).causes
    assert least == {frozenset(s.factor for s in cause) for cause in causes}


def verdict(
    playbook: Playbook, world: World, capacity: int = 1, landing: Random | None = None
) -> tuple[StoppedBy, frozenset[Setting], dict[str, State]]:
    """What a search concludes: why it ended, the cause, and the states of the hypotheses."""
    played = play(playbook, world, capacity, landing)
    table = Table(playbook, played.settled)
    states = {h.id: assess(h, table).state for h in playbook.hypotheses}
    return played.finished.by, frozenset(table.inquiry.cause), states


# --- examples a person can follow -------------------------------------------------------------------

LEVELS = {"compile": ("off", "on"), "kernel": ("mma", "stock"), "capture": ("on", "off")}
INCIDENT = playbook_of(
    LEVELS,
    {"compile": "on"},
    hypotheses=(
        claim("stack-wide", "compile capture", "kernel"),
        claim("kernel-specific", "compile capture kernel"),
    ),
)
CLASH = Rule(frozenset({setting("compile=on"), setting("capture=on")}))


def stopped(playbook: Playbook, world: World) -> tuple[StoppedBy, str]:
    """Why a search ends."""
    finished = play(playbook, world).finished
    return finished.by, finished.detail


def test_the_incident_is_settled_in_five_trials() -> None:
    """Controls, the two suspects (the third flip is `good` itself), and `bad` once more."""
    played = play(INCIDENT, World((CLASH,)))
    assert ["good", "bad", "kernel=stock", "capture=off", "bad"] == [t.label for t in played.planned]
    assert (
        StoppedBy.CAUSE,
        CLASH.needs,
        {"stack-wide": State.SUPPORTED, "kernel-specific": State.REFUTED},
    ) == verdict(INCIDENT, World((CLASH,)))


def test_without_the_witness_the_kernel_stays_open() -> None:
    """The incident's ninth mistake: the cause stands, and what was said of the kernel does not."""
    _, cause, states = verdict(INCIDENT, World((CLASH,), silent=frozenset({"kernel"})))
    assert (CLASH.needs, {State.UNDECIDED}) == (cause, set(states.values()))


def test_a_good_that_fails_twice_is_nothing_to_bisect() -> None:
    """A good that does not work is run once more, and then believed."""
    world = World((Rule(frozenset({setting("kernel=mma")}), "bang"),))
    assert (StoppedBy.GOOD_FAILS, "`good` failed 2 times: error: bang") == stopped(INCIDENT, world)


def test_a_bad_that_passes_three_times_is_nothing_to_bisect() -> None:
    """A failure that does not show itself cannot be taken apart."""
    assert (StoppedBy.BAD_PASSES, "`bad` passed 3 times") == stopped(INCIDENT, World(()))


ALL = playbook_of(dict.fromkeys("abcd", "01"), dict.fromkeys("abcd", "1"))
"""Four differences."""


def ways(*needs: str) -> World:
    """A stack that fails in any of these ways, each of which is some settings."""
    return World(tuple(Rule(frozenset(map(setting, way.split()))) for way in needs))


def walked(world: World, playbook: Playbook = ALL) -> list[str]:
    """The trials after the controls, as a person calls them, each with its parent."""
    return [f"{t.parent}: {t.label}" for t in play(playbook, world).planned[2:]]


def test_of_two_settings_that_are_each_enough_one_is_accused() -> None:
    """Without `b` it still fails, then `a` is needed, for good itself passes."""
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"})
    world = ways("a=1", "b=1")
    assert ["t02: b=0", "t02: b=0"] == walked(world, playbook)
    assert (StoppedBy.CAUSE, "a=1 is needed and enough") == stopped(playbook, world)


def test_the_failure_is_followed_towards_good() -> None:
    """`a` needs `b`, `c` or `d`: half is set as in good, it still fails; then each setting left."""
    world = ways("a=1 b=1", "a=1 c=1", "a=1 d=1")
    half, alone, again = ["t02: c=0,d=0"], ["t03: b=0", "t03: a=0"], ["t04: b=1"] * 2
    assert [*half, *alone, *again] == walked(world)
    assert (StoppedBy.CAUSE, "a=1 × b=1 is needed and enough") == stopped(ALL, world)


def test_what_a_group_has_led_to_fails_twice_more() -> None:
    """A pair holds no run of a group: what one led to fails by single changes, too (rule 1)."""
    played = play(ALL, ways("a=1 b=1", "a=1 c=1", "a=1 d=1"))
    assert [("t06", "t07"), ("t06", "t07")] == [
        (p.failing, p.again) for p in Table(ALL, played.settled).pairs
    ]


def test_a_setting_that_stands_in_for_another_is_not_contradicted_by_it() -> None:
    """What no change of `bad` needs may be needed nearer to good; a claim is held against that."""
    claims = (claim("second", "a"), claim("first", "b"))
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"}, hypotheses=claims)
    assert {"second": State.SUPPORTED, "first": State.REFUTED} == verdict(playbook, ways("a=1", "b=1"))[2]


def test_a_step_into_a_level_that_does_not_show_refutes_nothing() -> None:
    """It fails the same, and whether `b` was set otherwise is not known (rule 4)."""
    playbook = playbook_of(
        {"a": "01", "b": "01"}, {"a": "1", "b": "1"}, hypotheses=(claim("without", "a", "b"),)
    )
    world = replace(ways("a=1", "b=1"), silent=frozenset({"b"}))
    by, cause, states = verdict(playbook, world)
    assert (StoppedBy.CAUSE, frozenset({setting("a=1")}), State.UNDECIDED) == (by, cause, states["without"])


def test_a_suspect_is_asked_where_the_failure_was_followed_to() -> None:
    """`s` matters only without `b`: it belongs to the cause that is found there."""
    playbook = playbook_of({"a": "01", "b": "01", "s": "01"}, {"a": "1", "b": "1"})
    world = ways("b=1", "a=1 s=0")
    assert (StoppedBy.CAUSE, frozenset({setting("a=1"), setting("s=0")})) == verdict(playbook, world)[:2]


def test_where_it_then_fails_otherwise_nothing_is_established() -> None:
    """Without either of the two it fails otherwise: two leads, no cause."""
    playbook = playbook_of({"a": "01", "b": "01", "c": "01"}, dict.fromkeys("abc", "1"))
    boom, bang = ways("a=1 b=1").rules[0], [replace(r, symptom="bang") for r in ways("a=1", "b=1").rules]
    played = play(playbook, World((boom, *bang)))
    table = Table(playbook, played.settled)
    assert (StoppedBy.NO_CAUSE, ()) == (played.finished.by, table.inquiry.cause)
    assert "no single change from `bad` heals, nor one from t08, which is nearer to `good`" == (
        played.finished.detail
    )
    assert [Standing.OTHER_FAILURE] * 2 == [table.inquiry.standing(factor) for factor in "ab"]
    assert "with a changed from t08 it fails otherwise (t04)" == gap("a", table.inquiry)


def test_a_configuration_that_wavers_is_not_believed() -> None:
    """The one reached fails once and then passes: one run a side proves nothing."""
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"})
    settled = play(playbook, ways("a=1", "b=1")).settled
    passed = settled[-1].model_copy(update={"outcome": Passed()})
    step = search.step(playbook, (*settled[:-1], passed), (), 1)
    assert search.Finished(StoppedBy.NOT_ESTABLISHED, f"t03 does not fail each time: {search.FLAKY}") == step
    assert () == Table(playbook, (*settled[:-1], passed)).causes


def loses(number: int, world: World, playbook: Playbook = ALL) -> tuple[int, StoppedBy, set[Setting]]:
    """A search whose n-th trial is lost for good: how many trials it takes, why it ends, and the cause."""
    settled: list[Settled] = []
    while isinstance(step := search.step(playbook, settled, (), 1), search.Next):
        trial = step.wanted[0].trial
        lost = Unresolved(reason=Reason.UNREACHABLE, detail="no answer")
        spoilt = Settled(trial=trial, attempt=3, outcome=lost)
        settled.append(spoilt if len(settled) + 1 == number else world.settle(playbook, trial))
    return len(settled), step.by, set(Table(playbook, settled).inquiry.cause)


@pytest.mark.parametrize(("number", "trials"), [(3, 7), (4, 7), (5, 7), (6, 7)])
def test_what_decides_is_run_once_more_when_it_was_lost(number: int, trials: int) -> None:
    """Half of the settings, half of what is left, `good` with `d`, that once more: six, and the lost one."""
    assert (trials, StoppedBy.CAUSE, {setting("d=1")}) == loses(number, ways("d=1"))


@pytest.mark.parametrize("number", range(3, 8))
def test_no_lost_trial_costs_the_cause(number: int) -> None:
    """Whichever it is."""
    _, by, cause = loses(number, ways("a=1 b=1", "a=1 c=1", "a=1 d=1"))
    assert (StoppedBy.CAUSE, {setting("a=1"), setting("b=1")}) == (by, cause)


def test_what_is_as_in_good_where_it_fails_is_not_needed() -> None:
    """Each of the settings that were left on the way."""
    table = Table(ALL, play(ALL, ways("a=1", "b=1", "c=1", "d=1")).settled)
    assert [Standing.NEEDED, *[Standing.NOT_NEEDED] * 3] == [
        table.inquiry.standing(factor) for factor in "abcd"
    ]


def test_five_that_must_come_together_are_found() -> None:
    """No cause of up to three explains what is seen, so larger ones are looked for."""
    playbook = playbook_of(dict.fromkeys("abcdefgh", "01"), dict.fromkeys("abcdefgh", "1"))
    needs = "a=1 c=1 d=1 f=1 h=1"
    assert frozenset(map(setting, needs.split())) == verdict(playbook, ways(needs))[1]


def test_many_suspects_are_changed_together_until_something_heals() -> None:
    """Twelve of them: three at once, and where that heals, each of those alone."""
    names = [f"s{number:02}" for number in range(12)]
    playbook = playbook_of({"a": "01", **dict.fromkeys(names, "01")}, {"a": "1"})
    world = ways("a=1 s04=0")
    assert frozenset({setting("a=1"), setting("s04=0")}) == verdict(playbook, world)[1]
    assert ["t02: s00=1,s01=1,s02=1", "t02: s03=1,s04=1"] == walked(world, playbook)[:2]
    standings = [Table(playbook, play(playbook, world).settled).inquiry.standing(name) for name in names]
    assert [Standing.NEEDED if name == "s04" else Standing.NOT_NEEDED for name in names] == standings


def test_suspects_that_fail_otherwise_together_are_changed_one_by_one() -> None:
    """Of sixteen, four at once heal, and two of these fail otherwise: then each alone."""
    names = [f"s{number:02}" for number in range(16)]
    playbook = playbook_of({"a": "01", **dict.fromkeys(names, "01")}, {"a": "1"})
    bang = replace(ways("a=1 s00=1 s01=1 s02=0").rules[0], symptom="bang")
    world = World((bang, *ways("a=1 s03=0").rules))
    assert frozenset({setting("a=1"), setting("s03=0")}) == verdict(playbook, world)[1]


# --- an order -----------------------------------------------------------------------------------------

VERSIONS = [f"v{number}" for number in range(8)]


def since(first: int, last: int = 8, *others: str) -> World:
    """The failure begins at a version, and needs some settings besides."""
    return ways(*(" ".join((f"v=v{number}", *others)) for number in range(first, last)))


def test_versions_are_halved_to_the_first_that_fails() -> None:
    """`good` passed at the first of eight; three runs find the boundary, and one confirms it."""
    playbook = playbook_of({"v": VERSIONS}, {"v": "v7"}, ordered="v")
    assert ["t02: v=v3", "t03: v=v1", "t03: v=v2", "t02: v=v3"] == walked(since(3), playbook)
    table = Table(playbook, play(playbook, since(3)).settled)
    assert [("v=v3", "t03", "t05", "t06")] == [
        (str(p.setting), p.failing, p.passing, p.again) for p in table.pairs
    ]


def test_an_order_is_halved_from_its_other_end_too() -> None:
    """An old version fails, and a later one is good: the last that fails is the one next to good's side."""
    playbook = playbook_of({"v": VERSIONS}, {"v": "v1"}, good={"v": "v6"}, ordered="v")
    assert frozenset({setting("v=v3")}) == verdict(playbook, since(0, 4))[1]


def test_the_rest_is_changed_at_the_first_failing_level() -> None:
    """Each pair of the cause is at the version that the order is halved to."""
    playbook = playbook_of({"v": VERSIONS[:4], "a": "01", "b": "01"}, {"v": "v3", "a": "1"}, ordered="v")
    table = Table(playbook, play(playbook, since(2, 4, "a=1")).settled)
    passing = [
        run.trial.configuration for p in table.pairs for run in table.settled if run.trial.id == p.passing
    ]
    assert playbook.bad.replace([setting("v=v2")]) == table.inquiry.here
    assert [table.inquiry.here.replace([setting(x)]) for x in ("v=v1", "a=0")] == passing
    assert (StoppedBy.CAUSE, "v=v2 × a=1 is needed and enough") == stopped(playbook, since(2, 4, "a=1"))


def test_a_version_that_cannot_be_tested_is_stepped_around() -> None:
    """The levels beside it are tried, and the boundary lies between the two that speak."""
    playbook = playbook_of({"v": VERSIONS}, {"v": "v7"}, ordered="v")
    world = replace(since(3), untestable=frozenset(map(setting, ("v=v3", "v=v2"))))
    table = Table(playbook, play(playbook, world).settled)
    boundary = table.inquiry.boundary("v")
    assert boundary
    assert ("v1", "v4", ["v2", "v3"]) == (
        boundary.heals,
        boundary.fails,
        [flip.setting.level for flip in boundary.between],
    )
    assert frozenset({setting("v=v4")}) == verdict(playbook, world)[1]


def test_a_version_that_does_not_show_counts_where_another_heals() -> None:
    """That the stack reads it is shown by the one that heals (rule 4)."""
    playbook = playbook_of({"v": VERSIONS}, {"v": "v7"}, ordered="v")
    world = replace(since(3), silent=frozenset({"v"}))
    assert frozenset({setting("v=v3")}) == verdict(playbook, world)[1]


def test_a_version_that_fails_otherwise_says_nothing_of_the_boundary() -> None:
    """It is a lead, and the search goes around it."""
    playbook = playbook_of({"v": VERSIONS[:4]}, {"v": "v3"}, ordered="v")
    world = World((Rule(frozenset({setting("v=v1")}), "bang"), *since(2, 4).rules))
    table = Table(playbook, play(playbook, world).settled)
    assert (((setting("v=v2"),),), ["v=v1"]) == (table.causes, [s.trial.label for s in table.leads()])


def test_an_order_that_is_the_same_in_both_is_left_alone() -> None:
    """No level lies between; that nothing is known of it is said."""
    playbook = playbook_of({"a": "01", "v": VERSIONS}, {"a": "1"}, ordered="v")
    played = play(playbook, ways("a=1"))
    assert {"v0"} == {t.configuration["v"] for t in played.planned}
    assert gap("v", Table(playbook, played.settled).inquiry).startswith("v was not changed in any trial: its")


# --- bounds -------------------------------------------------------------------------------------------


def test_what_a_level_requires_is_changed_after_it() -> None:
    """`a` cannot go while `b` needs it; where `b` is gone, `a` can be asked."""
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"}, requires={"b=1": "a=1"})
    assert ["t02: b=0", "t02: b=0"] == walked(ways("a=1"), playbook)
    assert (StoppedBy.CAUSE, "a=1 is needed and enough") == stopped(playbook, ways("a=1"))


def test_what_no_run_can_tell_apart_is_neither_accused_nor_cleared() -> None:
    """`b` needs `a`: without `a` nothing can be run, so nobody knows whether `b` alone would fail."""
    claims = (claim("alone", "b", "a"), claim("both", "a b"))
    playbook = playbook_of(
        {"a": "01", "b": "01", "c": "01"},
        dict.fromkeys("abc", "1"),
        requires={"b=1": "a=1"},
        hypotheses=claims,
    )
    world = ways("b=1")
    table = Table(playbook, play(playbook, world).settled)
    assert (StoppedBy.CAUSE, "b=1 is needed and enough") == stopped(playbook, world)
    assert [Standing.BOUND, Standing.NEEDED] == [table.inquiry.standing(f) for f in "ab"]
    assert "whether b=1 is enough without a=1 cannot be run: b=1 requires a=1" == gap("a", table.inquiry)
    assert {State.UNDECIDED} == set(verdict(playbook, world)[2].values())


def test_a_group_is_as_large_as_the_bounds_allow() -> None:
    """`b` must stay where `a` is; `c` goes only together with `d`."""
    playbook = playbook_of(
        dict.fromkeys("abcd", "01"), dict.fromkeys("abcd", "1"), excludes={"a=1": "b=0", "c=0": "d=1"}
    )
    played = play(playbook, ways("a=1"))
    assert ["c=0,d=0"] == [t.label for t in played.planned if isinstance(t.change, Group)]


def test_two_that_only_go_together_stay_unknown() -> None:
    """Neither can be changed alone, so neither is accused."""
    playbook = playbook_of(
        {"a": "01", "b": "01"}, {"a": "1", "b": "1"}, requires={"a=1": "b=1", "b=1": "a=1"}
    )
    played = play(playbook, ways("a=1"))
    inquiry = Table(playbook, played.settled).inquiry
    assert (StoppedBy.NO_CAUSE, 2) == (played.finished.by, len(played.planned))
    assert "b could not be changed: a=1 requires b=1" == gap("b", inquiry)


# --- every cause --------------------------------------------------------------------------------------


def every(playbook: Playbook) -> Playbook:
    """The same, asking for every cause."""
    return playbook.model_copy(update={"every_cause": True})


def test_what_still_fails_without_the_first_cause_has_another() -> None:
    """`a` is found without `b`; without `a` it still fails, and that needs `b`: each has its own pair."""
    playbook = every(playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"}))
    world = ways("a=1", "b=1")
    assert ["t02: b=0", "t02: b=0", "t02: a=0", "t02: a=0"] == walked(world, playbook)
    table = Table(playbook, play(playbook, world).settled)
    assert ((setting("a=1"),), (setting("b=1"),)) == table.causes
    assert [("a=1", "t03", "t01", "t04"), ("b=1", "t05", "t01", "t06")] == [
        (str(p.setting), p.failing, p.passing, p.again) for p in table.pairs
    ]


def test_causes_that_share_a_setting_are_all_found() -> None:
    """Each smallest choice of one setting of each is healed in turn, until all of that works."""
    table = Table(every(ALL), play(every(ALL), ways("a=1 b=1", "a=1 c=1", "b=1 c=1")).settled)
    assert {frozenset(map(setting, way.split())) for way in ("a=1 b=1", "a=1 c=1", "b=1 c=1")} == set(
        map(frozenset, table.causes)
    )
    assert [] == [h for h in table.healings() if h.answer is not Answer.HEALS]


def test_where_all_are_asked_for_each_smallest_healing_of_bad_is_run() -> None:
    """The cause was proven near `good`: whether `bad` has another is seen without each of its settings."""
    world = ways("a=1 b=1")
    assert [*walked(world), "t02: a=0", "t02: b=0"] == walked(world, every(ALL))


def test_a_cause_that_cannot_be_proven_is_said_to_be_there() -> None:
    """Without `b` it still fails, and fails otherwise at each change: one cause, and more to find."""
    playbook = every(playbook_of({"a": "01", "b": "01", "c": "01"}, dict.fromkeys("abc", "1")))
    bang = [replace(r, symptom="bang") for r in ways("a=1 b=0 c=0", "a=0 b=0 c=1").rules]
    finished = play(playbook, World((*bang, *ways("a=1 b=0", "c=1 b=0", "b=1").rules))).finished
    assert (StoppedBy.CAUSE, True) == (
        finished.by,
        finished.detail.startswith("b=1 is needed and enough; of"),
    )


def test_what_is_not_needed_goes_at_once() -> None:
    """A group takes away half of `bad`: it steers, and no pair is made of it (rule 1)."""
    played = play(ALL, ways("a=1"))
    groups = [t for t in played.planned if isinstance(t.change, Group)]
    pairs = Table(ALL, played.settled).pairs
    assert ["c=0,d=0"] == [t.label for t in groups]
    assert not {t.id for t in groups} & {name for p in pairs for name in (p.failing, p.passing, p.again)}


def test_a_third_level_that_heals_accuses() -> None:
    """Where good's level fails otherwise, the others are tried too."""
    playbook = playbook_of({"a": "012", "b": "01"}, {"a": "1", "b": "1"})
    bang = replace(ways("a=0 b=1").rules[0], symptom="bang")
    world = World((bang, *ways("a=1 b=1").rules))
    assert (StoppedBy.CAUSE, frozenset({setting("a=1"), setting("b=1")})) == verdict(playbook, world)[:2]


def test_where_good_s_level_fails_the_same_no_other_is_tried() -> None:
    """`good` with `b` fails: the failure needs no level of `a` that `bad` has."""
    playbook = playbook_of({"a": "012", "b": "01"}, {"a": "1", "b": "1"})
    world = ways("a=0 b=1", "a=1 b=1")
    assert frozenset({setting("b=1")}) == verdict(playbook, world)[1]
    assert "2" not in {t.configuration["a"] for t in play(playbook, world).planned}


# --- flaky --------------------------------------------------------------------------------------------

FLAKY = playbook_of(
    {"a": "01", "b": "01", "c": "01", "d": "01", "v": VERSIONS, "s": "01"},
    {**dict.fromkeys("abcd", "1"), "v": "v7"},
    ordered="v",
    error=0.01,
)


def nights(playbook: Playbook, world: World, count: int) -> list[Table]:
    """What searches show in which a failure shows itself in seven runs of ten."""
    dice = [Random(n) for n in range(count)]  # noqa: S311  # chance, not a secret
    return [Table(playbook, play(playbook, world, landing=d, rate=0.7).settled) for d in dice]


@pytest.mark.parametrize(
    "needs",
    ["a=1", "a=1 c=1", "a=1 b=1 d=1", "a=1 s=0", "v=v3", "v=v3 b=1"],
)
def test_a_flaky_failure_is_taken_apart(needs: str) -> None:
    """A difference, several, a suspect, a version: in each of ten nights."""
    world = since(3, 8, *needs.split()[1:]) if "v=v3" in needs else ways(needs)
    causes = [frozenset(table.inquiry.cause) for table in nights(FLAKY, world, 10)]
    assert [frozenset(map(setting, needs.split()))] * 10 == causes


def test_two_flaky_causes_are_both_found() -> None:
    """A pass without the first is not believed before it is repeated."""
    found = [set(map(frozenset, table.causes)) for table in nights(every(FLAKY), ways("a=1", "c=1"), 10)]
    assert [{frozenset({setting("a=1")}), frozenset({setting("c=1")})}] * 10 == found


@pytest.mark.parametrize("error", [0.1, 0.01, 0.001])
def test_a_smaller_error_takes_more_runs(error: float) -> None:
    """What is accused is left with no more doubt than was asked for."""
    books = [FLAKY.model_copy(update={"error": asked}) for asked in (error, error / 10)]
    few, more = (nights(book, ways("a=1 c=1"), 5) for book in books)
    assert max(sum(table.inquiry.doubts.values()) for table in few) <= error
    assert sum(len(table.settled) for table in few) < sum(len(table.settled) for table in more)


def test_a_bad_that_fails_seldom_is_given_more_runs() -> None:
    """Three passes are no proof of anything, if a failure may be flaky."""
    bad = [run for run in play(FLAKY, World(())).settled if run.trial.control == "bad"]
    assert 13 == len(bad)


def test_a_good_that_fails_otherwise_at_times_is_no_obstacle() -> None:
    """It was seen to work."""
    settled = list(play(FLAKY, World(())).settled[:1])
    fails = Failed(symptom=symptom("bang"))
    again = settled[0].trial.model_copy(update={"id": "t02", "replicate": 2})
    bad = [Settled(trial=again.model_copy(update={"id": f"t{n}"}), attempt=1, outcome=fails) for n in (3, 4)]
    step = search.step(FLAKY, (*bad, *settled), (), 1)
    assert isinstance(step, search.Next)
    assert isinstance(
        search.step(FLAKY.model_copy(update={"error": None}), (*bad, *settled), (), 1), search.Finished
    )


@pytest.mark.parametrize(("control", "by"), [("good", StoppedBy.TARGET), ("bad", StoppedBy.TARGET)])
def test_a_control_that_cannot_be_run_is_our_trouble(control: str, by: StoppedBy) -> None:
    """Nothing is concluded of the stack from attempts that were lost (rule 6)."""
    lost = INCIDENT.good if control == "good" else INCIDENT.bad
    assert (by, f"`{control}` could not be run: {Reason.UNREACHABLE}: no answer") == stopped(
        INCIDENT, World((CLASH,), lost=frozenset({lost}))
    )


def test_a_lost_flip_is_left_out() -> None:
    """The factor of a configuration that could not be run is neither needed nor not needed."""
    lost = INCIDENT.bad.replace([setting("kernel=stock")])
    played = play(INCIDENT, World((CLASH,), lost=frozenset({lost})))
    table = Table(INCIDENT, played.settled)
    assert (StoppedBy.CAUSE, Standing.UNRESOLVED) == (played.finished.by, table.inquiry.standing("kernel"))
