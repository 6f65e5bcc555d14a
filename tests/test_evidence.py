"""What settled trials show of a configuration, a factor, a setting."""

from __future__ import annotations

import pytest

from bisect_agent.evidence import Answer, Standing, Table, accused
from bisect_agent.model import (
    Applied,
    Configuration,
    Failed,
    Group,
    Outcome,
    Pair,
    Passed,
    Reason,
    Setting,
    Settled,
    Single,
    Trial,
    Unresolved,
)
from tests.worlds import playbook_of, setting, symptom

PLAYBOOK = playbook_of({"mode": ("safe", "fast"), "kernel": ("mma", "stock", "new")}, {"mode": "fast"})
GOOD, BAD = PLAYBOOK.good, PLAYBOOK.bad
BOOM, BANG, PASS = Failed(symptom=symptom("boom")), Failed(symptom=symptom("bang")), Passed()
LOST = Unresolved(reason=Reason.UNREACHABLE, detail="no answer")
OTHER_LEVEL = Unresolved(reason=Reason.NOT_APPLIED, detail="the log shows another level")
STOCK, NEW = setting("kernel=stock"), setting("kernel=new")


def run(name: str, configuration: Configuration, outcome: Outcome, *witnessed: str) -> Settled:
    """A settled trial of a configuration."""
    changed = [s for s in configuration.settings() if BAD[s.factor] != s.level]
    more = {"parent": "t02", "change": Single(setting=changed[0])} if changed else {"control": "bad"}
    trial = Trial.model_validate({"id": name, "configuration": configuration, **more})
    return Settled(
        trial=trial, attempt=1, outcome=outcome, applied=dict.fromkeys(witnessed, Applied.WITNESSED)
    )


def table(*runs: Settled) -> Table:
    """The table of `bad` failing, and then these trials."""
    return Table(PLAYBOOK, (run("t02", BAD, BOOM), *runs))


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], Answer.NOT_RUN),
        ([PASS, PASS], Answer.HEALS),
        ([BOOM, BOOM], Answer.FAILS),
        ([BANG], Answer.OTHER),
        ([BOOM, BANG], Answer.OTHER),
        ([PASS, BOOM], Answer.OTHER),
        ([PASS, OTHER_LEVEL], Answer.UNRESOLVED),
        ([LOST, LOST], Answer.UNRESOLVED),
        ([PASS, LOST], Answer.HEALS),
    ],
)
def test_runs_that_contradict_each_other_say_nothing(outcomes: list[Outcome], expected: Answer) -> None:
    """Only what each run of a configuration shows is shown."""
    flip = BAD.replace([STOCK])
    runs = [run(f"t{n}", flip, outcome) for n, outcome in enumerate(outcomes, start=3)]
    assert expected is table(*runs).answer(flip)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], Standing.NOT_RUN),
        ([run("t03", BAD.replace([STOCK]), PASS)], Standing.NEEDED),
        ([run("t03", BAD.replace([STOCK]), BOOM, "kernel")], Standing.NOT_NEEDED),
        ([run("t03", BAD.replace([STOCK]), BOOM, "mode")], Standing.NOT_WITNESSED),
        ([run("t03", BAD.replace([STOCK]), BANG, "kernel")], Standing.OTHER_FAILURE),
        ([run("t03", BAD.replace([STOCK]), OTHER_LEVEL)], Standing.NOT_APPLIED),
        ([run("t03", BAD.replace([STOCK]), LOST)], Standing.UNRESOLVED),
        (
            [run("t03", BAD.replace([STOCK]), BOOM, "kernel"), run("t04", BAD.replace([NEW]), PASS)],
            Standing.NEEDED,
        ),
    ],
)
def test_a_factor_stands_as_its_flips_show(runs: list[Settled], expected: Standing) -> None:
    """What heals is needed; what fails the same must be witnessed; all else says nothing (rules 4, 5)."""
    assert expected is table(*runs).inquiry.standing("kernel")


@pytest.mark.parametrize(
    ("runs", "expected"), [((), Standing.NOT_RUN), ((LOST,), Standing.UNRESOLVED), ((PASS,), Standing.NEEDED)]
)
def test_a_group_that_passes_accuses_nobody(runs: tuple[Outcome, ...], expected: Standing) -> None:
    """Not even where it differs from `bad` in one factor: that change needs a run of its own (rule 1)."""
    flip = BAD.replace([STOCK])
    group = Trial(id="t03", parent="t02", change=Group(group=(STOCK,)), configuration=flip)
    passed = Settled(trial=group, attempt=1, outcome=PASS)
    assert expected is table(passed, *(run("t04", flip, outcome) for outcome in runs)).inquiry.standing(
        "kernel"
    )


def test_a_change_that_its_group_contradicts_says_nothing() -> None:
    """The same configuration passed and failed."""
    flip = BAD.replace([STOCK])
    group = Trial(id="t03", parent="t02", change=Group(group=(STOCK,)), configuration=flip)
    failed = Settled(trial=group, attempt=1, outcome=BOOM)
    found = table(failed, run("t04", flip, PASS))
    assert (Standing.OTHER_FAILURE, "t02") == (found.inquiry.standing("kernel"), found.first(BAD).trial.id)
    assert failed == found.wavering()


def test_levels_to_flip_to_begin_with_the_level_of_good() -> None:
    """A difference is first set as in good; a suspect has no such level."""
    playbook = playbook_of({"a": "012", "b": "012"}, {"a": "2"}, good={"a": "1"})
    assert [("1", "0"), ("1", "2")] == [Table(playbook, ()).levels(playbook.bad, factor) for factor in "ab"]


def test_a_pair_needs_the_failure_again() -> None:
    """Failing, passing, failing again, in that order (rule 8)."""
    healed = run("t03", BAD.replace([STOCK]), PASS)
    assert () == table(healed).inquiry.pairs
    assert (Pair(setting=setting("kernel=mma"), failing="t02", passing="t03", again="t04"),) == table(
        healed, run("t04", BAD, BOOM)
    ).inquiry.pairs


def test_a_failure_before_the_passing_trial_closes_no_pair() -> None:
    """That it came back is seen only afterwards."""
    assert () == table(run("t03", BAD, BOOM), run("t04", BAD.replace([STOCK]), PASS)).inquiry.pairs


@pytest.mark.parametrize("again", [PASS, BANG, LOST])
def test_a_bad_that_does_not_fail_the_same_closes_no_pair(again: Outcome) -> None:
    """Whatever else `bad` does the second time, nothing is accused."""
    assert () == table(run("t03", BAD.replace([STOCK]), PASS), run("t04", BAD, again)).inquiry.pairs


def test_good_itself_is_the_other_side_where_one_factor_differs() -> None:
    """`good` passed before `bad` failed; then `bad` fails again."""
    good = Settled(trial=Trial(id="t01", control="good", configuration=GOOD), attempt=1, outcome=PASS)
    pairs = Table(PLAYBOOK, (good, run("t02", BAD, BOOM), run("t03", BAD, BOOM))).inquiry.pairs
    assert [("t02", "t01", "t03")] == [(p.failing, p.passing, p.again) for p in pairs]


def test_other_failures_are_leads() -> None:
    """They are neither the failure under investigation nor forgotten (rule 5)."""
    assert ["t03"] == [s.trial.id for s in table(run("t03", BAD.replace([STOCK]), BANG)).leads()]


def test_the_first_failure_of_bad_is_the_one_under_investigation() -> None:
    """Whatever comes later is held against it."""
    assert BOOM.symptom == table(run("t03", BAD, BANG)).symptom


def test_a_level_that_this_version_is_known_to_read_votes() -> None:
    """Without a line that shows it: that the stack reads the name is known (rule 4)."""
    flip = run("t03", BAD.replace([STOCK]), BOOM).model_copy(update={"applied": {"kernel": Applied.READ}})
    assert Standing.NOT_NEEDED is table(flip).inquiry.standing("kernel")


BOUND = playbook_of({"a": "01", "b": "012"}, {"a": "1", "b": "1"}, requires={"b=1": "a=1", "b=2": "a=1"})


def test_what_bounds_forbid_is_no_open_question() -> None:
    """Nor an answer of the stack: it is never run."""
    bad = Trial(id="t02", control="bad", configuration=BOUND.bad)
    found = Table(BOUND, (Settled(trial=bad, attempt=1, outcome=BOOM),))
    flip = BOUND.bad.replace([setting("a=0")])
    assert (Answer.IMPOSSIBLE, False) == (found.answer(flip), found.open(flip))
    assert (Standing.BOUND, ("b",)) == (
        found.inquiry.standing("a"),
        tuple(s.factor for s in found.inquiry.asks),
    )
    assert ("b=1 requires a=1",) == found.inquiry.bounds("a")


def test_an_order_has_the_levels_between_good_and_the_present_one() -> None:
    """From good's side, whichever way that is."""
    levels, sides = {"v": "01234"}, [("1", "4"), ("4", "1")]
    books = [playbook_of(levels, {"v": bad}, good={"v": good}, ordered="v") for good, bad in sides]
    assert [("1", "2", "3"), ("4", "3", "2")] == [Table(b, ()).levels(b.bad, "v") for b in books]


def test_settings_are_written_as_a_product() -> None:
    """As a person writes an interaction."""
    assert "mode=fast × kernel=stock" == accused((Setting(factor="mode", level="fast"), STOCK))
