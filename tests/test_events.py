"""The fold: which sequences of events are a run, and what they amount to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.errors import DamagedRun
from bisect_agent.events import (
    ATTEMPTS,
    SAID,
    AnyEvent,
    Closed,
    Concluded,
    Entry,
    Judged,
    Launching,
    RestorePlanned,
    Resumed,
    RunStarted,
    RunState,
    TargetSurveyed,
    TrialPlanned,
    apply,
    fold,
)
from bisect_agent.model import (
    RETRIED,
    UNCOUNTED,
    Observation,
    Outcome,
    Passed,
    Reason,
    Settled,
    StoppedBy,
    Trial,
    Unresolved,
    Why,
)
from tests.fakes import Lab, fails, serves
from tests.strategies import FEW
from tests.worlds import playbook_of

PLAYBOOK = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
GOOD = Trial(id="t01", control="good", configuration=PLAYBOOK.good)
BEGUN: tuple[AnyEvent, ...] = (
    RunStarted(run="r", playbook="", resolved="", versions={}),
    TargetSurveyed(folder="/srv", facts={}),
    TrialPlanned(trial=GOOD, why=""),
)


def entries(*events: AnyEvent) -> list[Entry]:
    """Events, one a second."""
    return [Entry(n, float(n), event) for n, event in enumerate(events, start=1)]


def attempt(outcome: Outcome, number: int = 1, trial: Trial = GOOD) -> tuple[AnyEvent, ...]:
    """An attempt that was not even launched, and what was made of it."""
    of = {"trial": trial.id, "attempt": number}
    return (
        Launching(**of, folder="", tag="", script="", env=""),
        Closed(**of, observation=Observation(why=Why.TROUBLE)),
        Judged(settled=Settled(trial=trial, attempt=number, outcome=outcome)),
    )


def lost(reason: Reason = Reason.UNREACHABLE) -> Unresolved:
    """Nothing can be said."""
    return Unresolved(reason=reason, detail="")


@pytest.mark.parametrize("reason", sorted(RETRIED - UNCOUNTED))
def test_what_is_ours_is_tried_three_times(reason: Reason) -> None:
    """Then the trial has had its last word."""
    events = list(BEGUN)
    wanted = []
    for number in range(1, ATTEMPTS + 1):
        events += attempt(lost(reason), number)
        wanted.append(fold(entries(*events)).next_attempt("t01"))
    assert [2, 3, None] == wanted
    assert 1 == len(fold(entries(*events)).settled())


@pytest.mark.parametrize("reason", sorted(UNCOUNTED))
def test_what_ended_the_run_counts_against_no_trial(reason: Reason) -> None:
    """When the run is resumed, the trial has all its attempts."""
    events = [*BEGUN, *(event for number in range(1, 6) for event in attempt(lost(reason), number))]
    assert 6 == fold(entries(*events)).next_attempt("t01")


@pytest.mark.parametrize(("reason", "wanted"), [(Reason.DISK, 4), (Reason.UNTESTABLE, None)])
def test_a_run_taken_up_has_its_tries_again(reason: Reason, wanted: int | None) -> None:
    """The disk may have room by now; what the script says of itself is not asked once more."""
    events = [*BEGUN, *(event for n in range(1, ATTEMPTS + 1) for event in attempt(lost(reason), n))]
    events += [Concluded(stopped_by=StoppedBy.TARGET), Resumed(versions={}, reopens=True)]
    assert wanted == fold(entries(*events)).next_attempt("t01")


@pytest.mark.parametrize(("by", "out"), [(StoppedBy.TARGET, True), (StoppedBy.BUDGET, False)])
def test_a_guardian_that_had_the_target_before_has_it_no_more(by: StoppedBy, out: bool) -> None:
    """The last attempt was lost to it; only where the run ended for that is the rest the guardian's."""
    events = (*BEGUN, *attempt(lost(Reason.GUARDED)), Concluded(stopped_by=by))
    assert out is fold(entries(*events)).out_of_reach


@pytest.mark.parametrize("outcome", [Passed(), *(lost(r) for r in sorted(frozenset(Reason) - RETRIED))])
def test_what_is_not_ours_is_tried_once(outcome: Outcome) -> None:
    """The same would be seen again, or nothing may be started any more."""
    state = fold(entries(*BEGUN, *attempt(outcome)))
    assert (None, 1, ()) == (state.next_attempt("t01"), len(state.settled()), state.in_flight())


def test_a_planned_trial_is_in_flight_until_its_last_word() -> None:
    """Also between two of its attempts."""
    assert (GOOD,) == fold(entries(*BEGUN)).in_flight() == fold(entries(*BEGUN, *attempt(lost()))).in_flight()


def test_trials_stand_in_the_order_of_their_last_word() -> None:
    """Not in that of their plans: what came after what is evidence."""
    bad = Trial(id="t02", control="bad", configuration=PLAYBOOK.bad)
    one, two = attempt(Passed()), attempt(Passed(), trial=bad)
    events = (*BEGUN, TrialPlanned(trial=bad, why=""), *one[:1], *two, *one[1:])
    assert ["t02", "t01"] == [s.trial.id for s in fold(entries(*events)).settled()]


def test_the_restore_is_no_trial_of_the_search() -> None:
    """It is judged like one, and concludes nothing."""
    restore = Trial(id="restore", control="restore", configuration=PLAYBOOK.good)
    state = fold(
        entries(
            *BEGUN,
            Concluded(stopped_by=StoppedBy.BUDGET),
            RestorePlanned(trial=restore),
            *attempt(Passed(), trial=restore),
        )
    )
    assert (["restore"], ()) == ([s.trial.id for s in state.judged()], state.settled())
    assert state.restored() == state.judged()[0]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((*BEGUN, BEGUN[0]), "event 4: the run starts twice"),
        (attempt(Passed()), "event 1: t01 was never planned"),
        (
            (*BEGUN, *attempt(Passed())[1:], *attempt(Passed())),
            "event 6: attempt 1 of t01 is judged: it cannot intend now",
        ),
        ((*BEGUN[:2], BEGUN[1]), "event 3: the investigation is searching: it cannot survey now"),
    ],
)
def test_what_cannot_follow_is_a_damaged_run(events: tuple[AnyEvent, ...], message: str) -> None:
    """The sentence says which event, of whom, and why it cannot be."""
    with pytest.raises(DamagedRun) as error:
        fold(entries(*events))
    assert message == error.value.message


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """All entries of a whole run."""
    playbook, good = PLAYBOOK, serves()
    with Lab(
        tmp_path_factory.mktemp("events") / "run",
        playbook,
        lambda configuration, _: good if configuration == playbook.good else fails("error: boom"),
    ) as lab:
        lab.begin().engine.run()
        return lab.journal.entries


@FEW
@given(st.data())
def test_a_fold_can_be_taken_up_anywhere(run: list[Entry], data: st.DataObject) -> None:
    """The state after some events, with the rest applied, is the state after all."""
    at = data.draw(st.integers(0, len(run)))
    state: RunState = fold(run[:at])
    for entry in run[at:]:
        state = apply(state, entry)
    assert fold(run) == state


def test_what_others_say_in_an_event_is_a_field_of_it() -> None:
    """The fields that are masked are there; those by which the run finds its way are not among them."""
    assert [] == [kind for kind, said in SAID.items() if not set(said) <= set(kind.model_fields)]
    assert not {"folder", "paths", "kind", "purpose"} & {name for said in SAID.values() for name in said}


@FEW
@given(st.data())
def test_an_event_of_an_attempt_cannot_happen_twice(run: list[Entry], data: st.DataObject) -> None:
    """But for the phases, each step is made once: a repeated launch is a damaged record (rule 11)."""
    once = [
        n
        for n, e in enumerate(run)
        if e.event.kind in {"launching", "launched", "log-seen", "stopping", "closed"}
    ]
    at = data.draw(st.sampled_from(once))
    with pytest.raises(DamagedRun):
        fold([*run[: at + 1], run[at], *run[at + 1 :]])
