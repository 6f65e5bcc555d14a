"""Hypotheses: what they predict, and what the trials make of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given

from bisect_agent.claims import assess, gap, moves, predict
from bisect_agent.evidence import Standing, Table
from bisect_agent.lifecycle import HYPOTHESIS, initial, move
from bisect_agent.model import Hypothesis, Prediction, Single, State, StoppedBy, Trial
from tests.strategies import FEW, Case, cases
from tests.worlds import Rule, World, claim, play, playbook_of, setting

WIDE = claim("wide", "compile capture", "kernel")
NARROW = claim("narrow", "compile capture kernel")
DOUBLE = claim("double", "compile inner")
PLAYBOOK = playbook_of(
    {"compile": ("off", "on"), "kernel": ("mma", "stock"), "inner": ("on", "off"), "capture": ("on", "off")},
    {"compile": "on"},
    hypotheses=(WIDE, NARROW, DOUBLE),
)
CLASH = Rule(frozenset({setting("compile=on"), setting("capture=on")}))


def searched(world: World) -> Table:
    """All that a search of a world shows."""
    return Table(PLAYBOOK, play(PLAYBOOK, world).settled)


@pytest.mark.parametrize(
    ("hypothesis", "change", "expected"),
    [
        (WIDE, "capture=off", "passes"),
        (WIDE, "kernel=stock", "fails"),
        (WIDE, "inner=off", "nothing"),
        (NARROW, "kernel=stock", "passes"),
        (claim("unknown", "compile", missing=("trees",)), "compile=off", "nothing"),
    ],
)
def test_a_claim_predicts_before_the_run(hypothesis: Hypothesis, change: str, expected: Prediction) -> None:
    """A change of what it involves heals, one of what it excludes does not; of others it says nothing."""
    assert expected == predict(hypothesis, PLAYBOOK, PLAYBOOK.bad.replace([setting(change)]))


def test_every_claim_predicts_that_good_works_and_bad_fails() -> None:
    """Else it would be no claim about this failure."""
    both = [{predict(h, PLAYBOOK, c) for h in PLAYBOOK.hypotheses} for c in (PLAYBOOK.good, PLAYBOOK.bad)]
    assert [{"passes"}, {"fails"}] == both


@pytest.mark.parametrize(("level", "expected"), [("v0", "passes"), ("v1", "nothing"), ("v3", "fails")])
def test_no_claim_says_where_along_an_order_it_begins(level: str, expected: Prediction) -> None:
    """That the failure needs the version: at good's it is gone, at bad's there; between, nothing is said."""
    levels = {"v": ("v0", "v1", "v2", "v3")}
    playbook = playbook_of(levels, {"v": "v3"}, ordered="v")
    changed = playbook.bad.replace([setting(f"v={level}")])
    assert expected == predict(claim("version", "v"), playbook, changed)


@pytest.mark.parametrize(
    ("hypothesis", "expected"),
    [
        (claim("first", "b"), State.SUPPORTED),
        (claim("second", "a"), State.SUPPORTED),
        (claim("without", "a", "b"), State.SUPPORTED),
        (claim("both", "a b"), State.REFUTED),
        (claim("neither", "c"), State.REFUTED),
    ],
)
def test_a_claim_that_is_true_of_any_cause_is_supported(hypothesis: Hypothesis, expected: State) -> None:
    """And refuted is what is false of all of them."""
    playbook = playbook_of(dict.fromkeys("abc", "01"), dict.fromkeys("abc", "1"), every_cause=True)
    world = World(tuple(Rule(frozenset({setting(x)})) for x in ("a=1", "b=1")))
    table = Table(playbook, play(playbook, world).settled)
    assert (2, expected) == (len(table.causes), assess(hypothesis, table).state)


def test_what_is_refuted_of_one_cause_is_open_while_another_is_looked_for() -> None:
    """`b` is not needed for the first; whether the second is it, the next trials say."""
    playbook = playbook_of(dict.fromkeys("ab", "01"), dict.fromkeys("ab", "1"), every_cause=True)
    settled = play(playbook, World(tuple(Rule(frozenset({setting(x)})) for x in ("a=1", "b=1")))).settled
    states = [assess(claim("second", "b"), Table(playbook, settled[:n])).state for n in (3, 5, 6)]
    assert [State.REFUTED, State.UNDECIDED, State.SUPPORTED] == states


def test_the_incident_supports_one_claim_and_refutes_the_others() -> None:
    """Each with the trials that say so."""
    results = {h.id: assess(h, searched(World((CLASH,)))) for h in PLAYBOOK.hypotheses}
    assert {"wide": State.SUPPORTED, "narrow": State.REFUTED, "double": State.REFUTED} == {
        name: result.state for name, result in results.items()
    }
    assert all(result.by for result in results.values())
    assert results["narrow"].because.startswith("with kernel=stock, seen to take effect, it fails the same")


def test_a_needed_factor_that_a_claim_excludes_refutes_it() -> None:
    """The pair contradicts it."""
    result = assess(claim("alone", "compile", "capture"), searched(World((CLASH,))))
    assert (State.REFUTED, True) == (result.state, "the failure needs capture=on" in result.because)


def test_a_fact_in_the_failing_log_refutes() -> None:
    """A log that says that the inner graphs are off needs no flip to refute double capture."""
    table = searched(World((CLASH,), silent=frozenset({"inner"}), facts=frozenset({"double"})))
    result = assess(DOUBLE, table)
    assert (State.REFUTED, ("t02",)) == (result.state, result.by)


def test_a_claim_with_a_role_that_nobody_plays_stays_undecided() -> None:
    """It cannot be tested here, and that is said."""
    result = assess(claim("unknown", "compile", missing=("trees",)), searched(World((CLASH,))))
    assert (State.UNDECIDED, "no factor of the playbook plays trees") == (result.state, result.because)


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (
            World((CLASH,), silent=frozenset({"kernel"})),
            "kernel was changed in t03 and it fails the same, but the change was not witnessed",
        ),
        (
            World((CLASH,), stubborn=frozenset({"kernel"})),
            "kernel was changed in t03, but not witnessed: the log shows another level",
        ),
        (
            World((Rule(frozenset({setting("kernel=stock")}), "bang"), CLASH)),
            "with kernel changed it fails otherwise (t03)",
        ),
    ],
)
def test_the_gap_is_told_in_a_sentence(world: World, expected: str) -> None:
    """What is missing, and in which trial; the claim that needs it is not supported."""
    table = searched(world)
    assert expected == gap("kernel", table.inquiry)
    assert State.UNDECIDED is assess(WIDE, table).state


def test_closed_pairs_are_no_cause_before_they_are_seen_to_be_enough() -> None:
    """`bad` has failed again, but nobody has taken the rest of it away: `compile` may not be all."""
    levels = {f.name: tuple(f.levels) for f in PLAYBOOK.factors}
    playbook = playbook_of(levels, {"compile": "on", "kernel": "stock", "inner": "off"})
    off = setting("compile=off")
    flip = Trial(
        id="t03", parent="t02", change=Single(setting=off), configuration=playbook.bad.replace([off])
    )
    controls = play(playbook, World((CLASH,))).settled[:2]
    again = controls[1].trial.model_copy(update={"id": "t04", "replicate": 2})
    table = Table(playbook, (*controls, *(World((CLASH,)).settle(playbook, t) for t in (flip, again))))
    assert (playbook.bad, 1, ()) == (table.inquiry.here, len(table.inquiry.pairs), table.inquiry.cause)


@FEW
@given(cases())
def test_a_supported_claim_is_true_of_the_cause(case: Case) -> None:
    """All it involves is accused, nothing it excludes is, and all it excludes was seen to change."""
    table = Table(case.playbook, play(case.playbook, case.world).settled)
    cause = {s.factor for s in table.inquiry.cause}
    supported = [h for h in case.playbook.hypotheses if assess(h, table).state is State.SUPPORTED]
    assert [] == [h.id for h in supported if not set(h.involves) <= cause or set(h.excludes) & cause]
    assert {Standing.NOT_NEEDED} >= {table.inquiry.standing(f) for h in supported for f in h.excludes}


@FEW
@given(cases())
def test_a_refuted_claim_is_false(case: Case) -> None:
    """By the world's own truth: a fact speaks against it, or the failure does not need what it says."""
    table = Table(case.playbook, play(case.playbook, case.world).settled)
    needed = {f.name for f in case.playbook.factors if table.inquiry.standing(f.name) is Standing.NEEDED}
    refuted = [h for h in case.playbook.hypotheses if assess(h, table).state is State.REFUTED]
    wrong = [h for h in refuted if h.id not in case.world.facts]
    assert [] == [h.id for h in wrong if set(h.involves) <= needed and not set(h.excludes) & needed]


@FEW
@given(cases())
def test_every_state_is_reached_by_possible_moves(case: Case) -> None:
    """Trial by trial, the moves lead from `open` to what is said in the end."""
    played = play(case.playbook, case.world)
    states = {h.id: move("it", HYPOTHESIS, initial(HYPOTHESIS), "test") for h in case.playbook.hypotheses}
    for count in range(1, len(played.settled) + 1):
        walk(states, case, Table(case.playbook, played.settled[:count]))
    table = Table(case.playbook, played.settled)
    walk(states, case, table, last=True)
    assert {h.id: assess(h, table).state for h in case.playbook.hypotheses} == states


def walk(states: dict[str, str], case: Case, table: Table, *, last: bool = False) -> None:
    """Makes the moves that a table says, in place."""
    how: Mapping[State, str] = {State.SUPPORTED: "support", State.REFUTED: "refute", State.UNDECIDED: "leave"}
    for name, state in list(moves(case.playbook, table, states, last=last)):
        states[name] = move(name, HYPOTHESIS, states[name], how[state])


def test_a_claim_is_decided_when_its_trial_lands() -> None:
    """Not only in the end: a person who watches sees it."""
    played = play(PLAYBOOK, World((CLASH,)))
    early = Table(PLAYBOOK, [s for s in played.settled if s.trial.id <= "t04"])
    assert (StoppedBy.CAUSE, State.REFUTED) == (played.finished.by, assess(NARROW, early).state)
