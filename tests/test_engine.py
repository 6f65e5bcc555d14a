"""The engine, over a target that exists only in memory and a clock that nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bisect_agent import library
from bisect_agent.engine import Engine, Outcome
from bisect_agent.errors import ExitCode
from bisect_agent.events import (
    Closed,
    Entry,
    Judged,
    Launched,
    Launching,
    OnTarget,
    Resumed,
    TargetSurveyed,
    TrialPlanned,
    fold,
)
from bisect_agent.hour import Hour
from bisect_agent.journal import Journal, decode
from bisect_agent.model import (
    FIRST,
    Before,
    Command,
    Configuration,
    Fingerprint,
    Kind,
    Playbook,
    Reason,
    Role,
    Settled,
    Signature,
    State,
    Unresolved,
)
from bisect_agent.standstill import BETWEEN_LOOKS
from bisect_agent.verify import verify
from tests.fakes import PLAN, Behaviour, Lab, SetClock, Stack, fails, serves, stack_of
from tests.worlds import PORT, Rule, World, claim, playbook_of, setting

CLASH = World((Rule(frozenset({setting("compile=on"), setting("capture=on")})),))
INCIDENT = playbook_of(
    {"compile": ("off", "on"), "kernel": ("mma", "stock"), "capture": ("on", "off")},
    {"compile": "on"},
    hypotheses=(
        claim("stack-wide", "compile capture", "kernel"),
        claim("kernel-specific", "compile capture kernel"),
    ),
)
ONE = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
"""The smallest playbook: one difference, no suspect."""
FAST = Configuration({"mode": "fast"})


def bad_does(behaviour: Behaviour) -> Stack:
    """A stack whose good works, and whose bad does this."""
    return lambda configuration, _: behaviour if configuration == FAST else serves()


def limited(playbook: Playbook, **limits: float) -> Playbook:
    """The playbook with other limits."""
    return playbook.model_copy(update={"limits": playbook.limits.model_copy(update=limits)})


@dataclass(frozen=True)
class Ran:
    """An investigation that is over."""

    lab: Lab
    outcome: Outcome

    @property
    def ended(self) -> tuple[ExitCode, bool | None]:
        """The exit code, and whether good was restored."""
        return self.outcome.code, self.outcome.verdict.good_restored.ok

    @property
    def symptom(self) -> str | None:
        """The id of the failure under investigation."""
        found = self.outcome.verdict.symptom
        return found.id if found else None

    def judged(self, trial: str) -> list[Settled]:
        """What was made of the attempts of a trial."""
        events = [e.event for e in self.lab.journal.entries if isinstance(e.event, Judged)]
        return [e.settled for e in events if e.settled.trial.id == trial]

    def reasons(self, trial: str) -> list[Reason]:
        """Why the attempts of a trial did not resolve."""
        return [s.outcome.reason for s in self.judged(trial) if isinstance(s.outcome, Unresolved)]


class Reacts:
    """A listener that does something at the events which fit; it is given its lab afterwards."""

    def __init__(self, fits: Callable[[Entry], bool], deed: Callable[[Lab], None]) -> None:
        self.fits = fits
        self.deed = deed
        self.lab: Lab | None = None

    def __call__(self, entry: Entry) -> None:
        """Acts, where the event fits."""
        if self.fits(entry):
            assert self.lab is not None
            self.deed(self.lab)


def investigate(
    tmp_path: Path,
    stack: Stack,
    playbook: Playbook = ONE,
    *,
    before: Callable[[Lab], None] | None = None,
    reacts: Reacts | None = None,
    further: Sequence[Stack] = (),
) -> Ran:
    """A whole investigation; `before` may change the target, `reacts` may act in its course."""
    with Lab(tmp_path / "run", playbook, stack, reacts, further=further) as lab:
        if reacts is not None:
            reacts.lab = lab
        if before is not None:
            before(lab)
        return Ran(lab, lab.begin().engine.run())


def launches(trial: str) -> Callable[[Entry], bool]:
    """Fits the moment in which an attempt of a trial is about to be launched."""
    return lambda entry: isinstance(entry.event, Launching) and entry.event.trial == trial


def runs(trial: str) -> Callable[[Entry], bool]:
    """Fits the moment in which an attempt of a trial runs."""
    return lambda entry: isinstance(entry.event, Launched) and entry.event.trial == trial


def of(trial: str, attempt: int, *kinds: str) -> Callable[[Entry], bool]:
    """Fits these events of one attempt."""
    expected = (trial, attempt)

    def fits(entry: Entry) -> bool:
        event = entry.event
        return event.kind in kinds and expected == (
            getattr(event, "trial", None),
            getattr(event, "attempt", None),
        )

    return fits


def lose_one_call(lab: Lab) -> None:
    """The next call to the target goes unanswered, and so does its repetition."""
    lab.host.unanswered = 2


def interrupt(lab: Lab) -> None:
    """What Ctrl-C does."""
    lab.engine.interrupt()


# --- the whole path ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The incident, investigated once for all who look at it."""
    return investigate(tmp_path_factory.mktemp("incident"), stack_of(CLASH, INCIDENT), INCIDENT)


def test_the_incident_is_solved(incident: Ran) -> None:
    """Compile and capture together are the cause, and the kernel is cleared."""
    verdict = incident.outcome.verdict
    assert (ExitCode.CONCLUDED, True) == incident.ended
    assert CLASH.rules[0].needs == set(verdict.cause)
    assert {"stack-wide": State.SUPPORTED, "kernel-specific": State.REFUTED} == {
        h.id: h.state for h in verdict.hypotheses
    }


def test_only_the_good_server_is_left(incident: Ran) -> None:
    """Every attempt was ended but the restored one (rules 9 and 10)."""
    assert [INCIDENT.good] == incident.lab.host.alive()


def test_a_failing_attempt_is_told_in_its_order(incident: Ran) -> None:
    """Each step is on record before the next one begins."""
    told = "launching launched log-seen phase-entered phase-entered ending stopping closed"
    assert told.split() == incident.lab.kinds("t02")


def test_a_passing_attempt_is_told_in_its_order(incident: Ran) -> None:
    """Ready is a step of its own, and the restored server is not stopped."""
    told = "launching launched log-seen phase-entered phase-entered ready-seen ending"
    assert [*told.split(), "stopping", "closed"] == incident.lab.kinds("t01")
    assert [*told.split(), "closed"] == incident.lab.kinds("restore")


def test_the_run_is_told_from_its_start_to_its_seal(incident: Ran) -> None:
    """The journal begins with the run and the target, and ends with restore and seal."""
    kinds = incident.lab.kinds()
    assert ["run-started", "target-surveyed", "trial-planned"] == kinds[:3]
    assert ["concluded", "restore-planned", "launching"] == kinds[kinds.index("concluded") :][:3]
    assert ["judged", "sealed"] == kinds[-2:]


def test_every_plan_says_what_each_hypothesis_predicts(incident: Ran) -> None:
    """Predictions come before the run (rule 13)."""
    plans = [e.event for e in incident.lab.journal.entries if isinstance(e.event, TrialPlanned)]
    assert [{"stack-wide", "kernel-specific"}] * 5 == [set(p.predicted) for p in plans]
    assert {"stack-wide": "fails", "kernel-specific": "passes"} == plans[2].predicted


def test_the_intent_is_on_the_disk_before_the_launch(tmp_path: Path) -> None:
    """When the target is told to run, the journal's file already says so (rule 11)."""
    last: list[object] = []

    def look(lab: Lab) -> None:
        lab.host.before_run = lambda _: last.append(decode(lab.folder.journal.read_bytes())[-1].event.kind)

    investigate(tmp_path, bad_does(fails("error: boom")), before=look)
    assert ["launching"] * 4 == last


# --- exit codes -------------------------------------------------------------------------------------


def test_a_good_that_fails_twice_ends_with_3(tmp_path: Path) -> None:
    """There is nothing to bisect, and nothing to restore."""
    ran = investigate(tmp_path, lambda *_: fails("error: bang"))
    assert (ExitCode.NOTHING_TO_BISECT, None) == ran.ended
    assert 2 == len(ran.lab.host.starts)


def test_a_bad_that_passes_three_times_ends_with_3(tmp_path: Path) -> None:
    """Nothing fails, so there is nothing to bisect; good is restored all the same."""
    ran = investigate(tmp_path, lambda *_: serves())
    assert (ExitCode.NOTHING_TO_BISECT, True) == ran.ended
    assert [ONE.good, *[FAST] * 3, ONE.good] == ran.lab.host.starts


def test_the_symptom_of_bad_on_good_ends_with_3(tmp_path: Path) -> None:
    """A good that showed bad's failure, if only once, is no good."""
    ran = investigate(
        tmp_path,
        lambda configuration, n: serves() if configuration == ONE.good and n > 1 else fails("error: boom"),
    )
    assert (ExitCode.NOTHING_TO_BISECT, True) == ran.ended


def test_no_single_change_that_heals_ends_with_1(tmp_path: Path) -> None:
    """Without either of two settings it fails otherwise: not established is a good answer."""
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"})
    both, either = frozenset({setting("a=1"), setting("b=1")}), ("a=1", "b=1")
    world = World((Rule(both), *(Rule(frozenset({setting(x)}), "bang") for x in either)))
    ran = investigate(tmp_path, stack_of(world, playbook), playbook)
    assert (ExitCode.NOT_ESTABLISHED, True) == ran.ended
    assert () == ran.outcome.verdict.cause


def test_spent_trials_end_with_5_and_a_partial_verdict(tmp_path: Path) -> None:
    """What was seen is in the verdict, good is restored, nothing is concluded."""
    ran = investigate(tmp_path, stack_of(CLASH, INCIDENT), limited(INCIDENT, trials=3))
    assert (ExitCode.BUDGET, True) == ran.ended
    assert (False, "boom", 3) == (
        ran.outcome.verdict.established,
        ran.symptom,
        len(ran.outcome.verdict.trials),
    )


def test_a_spent_wall_ends_with_5_before_the_time_of_the_restore(tmp_path: Path) -> None:
    """As long as good took is kept back for its restore: 16 s are not enough for the third trial."""
    ran = investigate(tmp_path, stack_of(CLASH, INCIDENT), limited(INCIDENT, wall=16))
    assert (ExitCode.BUDGET, True) == ran.ended
    assert "limits.wall: 16 s" in ran.outcome.verdict.stopped_by


SLOW = limited(ONE, quiet=300, stop=60)
"""A hang takes its time, and so may a stop: the engine looks at the clock while many seconds pass here."""


def until(tmp_path: Path, seconds: float | None, *, shift: float = 0.0, playbook: Playbook = SLOW) -> Ran:
    """A run that is to be over in so many seconds; while `bad` hangs, the wall clock is set by `shift`."""
    clock = SetClock()

    def set_it(_: Lab) -> None:
        clock.shift = shift

    reacts = Reacts(runs("t02"), set_it)
    stack = bad_does(fails("hangs"))
    with Lab(tmp_path / "run", playbook, stack, reacts, clock=clock) as lab:
        reacts.lab = lab
        hour = None if seconds is None else Hour.named(clock.time() + seconds, clock)
        return Ran(lab, lab.begin().engine.run(hour=hour))


def test_an_hour_in_the_middle_of_a_trial_ends_with_5_and_good_is_back_before_it(tmp_path: Path) -> None:
    """The attempt is ended, what was seen is in the verdict, and the restore is over before the hour."""
    ran = until(tmp_path, 200)
    assert (ExitCode.BUDGET, True) == ran.ended
    assert ([Reason.INTERRUPTED], [ONE.good]) == (ran.reasons("t02"), ran.lab.host.alive())
    assert "--until " in ran.outcome.verdict.stopped_by
    assert 100 < ran.lab.clock.monotonic() < 200


def test_without_an_hour_the_trial_goes_on(tmp_path: Path) -> None:
    """The same run finds its cause, later than that."""
    ran = until(tmp_path, None)
    assert (ExitCode.CONCLUDED, True) == ran.ended
    assert ran.lab.clock.monotonic() > 200


@pytest.mark.parametrize("shift", [30.0, -3600.0])
def test_a_wall_clock_that_is_set_does_not_make_a_run_late(tmp_path: Path, shift: float) -> None:
    """Set forward, the hour comes sooner; set back, no more time passes than there was."""
    ran = until(tmp_path, 200, shift=shift)
    assert (ExitCode.BUDGET, True) == ran.ended
    assert ran.lab.clock.monotonic() < 200 - max(shift, 0.0)


def test_an_hour_that_is_too_near_lets_the_owners_server_be(tmp_path: Path) -> None:
    """How long their command takes is not known: with less than `limits.start` left, nothing is touched."""
    target = ONE.target.model_copy(update={"stop": "stop it"})
    theirs = ONE.model_copy(update={"target": target, "restore": Command(command="start it")})
    ran = until(tmp_path, ONE.limits.start, playbook=theirs)
    assert (ExitCode.BUDGET, None) == ran.ended
    assert ["run-started", "concluded", "sealed"] == ran.lab.kinds()


def test_a_busy_port_ends_with_4_and_names_who_has_it(tmp_path: Path) -> None:
    """Nothing is started, nothing is killed; a person is told where to look."""

    def occupy(lab: Lab) -> None:
        lab.host.strangers = frozenset({PORT})

    ran = investigate(tmp_path, lambda *_: serves(), before=occupy)
    assert (ExitCode.TARGET, []) == (ran.outcome.code, ran.lab.host.starts)
    assert f"port {PORT} is held by pid 77 redis of somebody" in ran.outcome.verdict.stopped_by


def test_a_full_disk_ends_with_4(tmp_path: Path) -> None:
    """Nothing is started where the log would not fit."""

    def fill(lab: Lab) -> None:
        lab.host.free_kib = 1024

    ran = investigate(tmp_path, lambda *_: serves(), before=fill)
    assert (ExitCode.TARGET, []) == (ran.outcome.code, ran.lab.host.starts)


@pytest.mark.parametrize("call", range(1, 8))
def test_a_target_that_is_lost_at_the_start_ends_with_4(tmp_path: Path, call: int) -> None:
    """Whichever call of the survey goes unanswered, the target is to blame, not we."""
    ran = investigate(tmp_path, lambda *_: serves(), before=lambda lab: lab.host.lose(call))
    assert (ExitCode.TARGET, []) == (ran.outcome.code, ran.lab.host.starts)


def test_an_interrupt_ends_with_130_and_good_restored(tmp_path: Path) -> None:
    """The attempt in flight is ended, and says nothing of the stack."""
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=Reacts(runs("t02"), interrupt))
    assert (ExitCode.INTERRUPTED, True) == ran.ended
    assert ([Reason.INTERRUPTED], [ONE.good]) == (ran.reasons("t02"), ran.lab.host.alive())


def test_a_second_interrupt_ends_the_restore_with_6(tmp_path: Path) -> None:
    """Who does not wait for the restore is told that good is not back."""
    either = Reacts(lambda e: runs("t02")(e) or runs("restore")(e), interrupt)
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=either)
    assert (ExitCode.NOT_RESTORED, False) == ran.ended
    assert [] == ran.lab.host.alive()


def test_a_restore_that_is_lost_three_times_is_left_to_the_guardian(tmp_path: Path) -> None:
    """What is ours is tried again; then it is said that nobody has seen good come back: 4, and resumable."""
    ran = investigate(
        tmp_path, bad_does(fails("error: boom")), reacts=Reacts(launches("restore"), lose_one_call)
    )
    assert (ExitCode.TARGET, None) == ran.ended
    assert [Reason.UNREACHABLE] * 3 == ran.reasons("restore")
    assert ran.outcome.verdict.established


def test_a_good_that_does_not_come_back_ends_with_6(tmp_path: Path) -> None:
    """A cause may be established, and yet the server is down: that outranks it."""
    ran = investigate(
        tmp_path,
        lambda configuration, n: fails("error: boom") if configuration == FAST or n > 1 else serves(),
    )
    assert (ExitCode.NOT_RESTORED, False) == ran.ended


@pytest.mark.parametrize("left", [{"undying": True}, {"holds_port": True}])
def test_what_does_not_die_stops_everything_with_6(tmp_path: Path, left: dict[str, bool]) -> None:
    """A dirty target is left as it is, and nothing more is started on it (rule 9)."""
    ran = investigate(tmp_path, bad_does(fails("error: boom", **left)))
    assert (ExitCode.NOT_RESTORED, False) == ran.ended
    assert ([Reason.DIRTY], 2) == (ran.reasons("t02"), len(ran.lab.host.starts))


# --- errors of our own ------------------------------------------------------------------------------


class OurBugError(Exception):
    """An error that no room expects."""


KINDS = [
    "target-surveyed",
    "trial-planned",
    "launching",
    "launched",
    "log-seen",
    "phase-entered",
    "ready-seen",
    "ending",
    "stopping",
    "closed",
    "judged",
    "concluded",
    "restore-planned",
    "sealed",
]


def fails_at(tmp_path: Path, fits: Callable[[Entry], bool]) -> Lab:
    """A run in which the first event that fits meets an error of our own; it must come out."""
    errors = iter([OurBugError()])

    def fail(_: Lab) -> None:
        for error in errors:
            raise error

    reacts = Reacts(fits, fail)
    with Lab(tmp_path / "run", ONE, bad_does(fails("error: boom")), reacts) as lab:
        reacts.lab = lab
        with pytest.raises(OurBugError):
            lab.begin().engine.run()
        return lab


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_our_own_comes_out_and_the_journal_is_whole(tmp_path: Path, kind: str) -> None:
    """At whichever event it happens, the error is not hidden, and every line written can be read."""
    lab = fails_at(tmp_path, lambda entry: entry.event.kind == kind)
    entries = decode(lab.folder.journal.read_bytes())
    fold(entries)
    assert kind in {entry.event.kind for entry in entries}


@pytest.mark.parametrize("trial", ["t01", "t02", "restore"])
@pytest.mark.parametrize("kind", ["launched", "log-seen", "ending", "closed"])
def test_an_error_of_our_own_leaves_no_bad_server(tmp_path: Path, trial: str, kind: str) -> None:
    """What was started is ended, whatever goes wrong; only a good server may be left (rule 9)."""
    lab = fails_at(tmp_path, lambda e: e.event.kind == kind and getattr(e.event, "trial", "") == trial)
    assert lab.host.alive() in ([], [ONE.good])
    assert not [t for t in threading.enumerate() if t.name.startswith(f"{trial}/")]


# --- ours is not theirs (rule 6) --------------------------------------------------------------------


def test_a_lost_attempt_is_made_again(tmp_path: Path) -> None:
    """A lost connection is a new attempt of the same trial, and never a failure."""
    once = Reacts(lambda e: launches("t02")(e) and getattr(e.event, "attempt", 0) == 1, lose_one_call)
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=once)
    assert (ExitCode.CONCLUDED, True) == ran.ended
    assert (["unresolved", "failed"], [Reason.UNREACHABLE]) == (
        [s.outcome.kind for s in ran.judged("t02")],
        ran.reasons("t02"),
    )


def test_a_trial_that_is_lost_three_times_is_asked_once_more(tmp_path: Path) -> None:
    """After the others, and then it tells."""
    ran = investigate(
        tmp_path, stack_of(CLASH, INCIDENT), INCIDENT, reacts=Reacts(launches("t03"), lose_one_call)
    )
    planned = [e.event.trial for e in ran.lab.journal.entries if isinstance(e.event, TrialPlanned)]
    assert (ExitCode.CONCLUDED, [Reason.UNREACHABLE] * 3) == (ran.outcome.code, ran.reasons("t03"))
    assert ["good", "bad", "kernel=stock", "capture=off", "kernel=stock", "bad"] == [
        trial.label for trial in planned
    ]
    assert () == ran.outcome.verdict.unknown


def test_a_connection_that_comes_back_costs_nothing(tmp_path: Path) -> None:
    """Some unanswered calls while a server starts are no reason to give it up."""
    ran = investigate(tmp_path, bad_does(fails("error: boom", silent=(0.7, 5))))
    assert (ExitCode.CONCLUDED, []) == (ran.outcome.code, ran.reasons("t02"))


@pytest.mark.parametrize("kind", ["ending", "stopping"])
@pytest.mark.parametrize("call", range(1, 8))
def test_a_call_that_is_lost_at_the_end_costs_nothing(tmp_path: Path, kind: str, call: int) -> None:
    """Whichever call goes unanswered while an attempt is ended, it is ended, and what was seen counts."""
    reacts = Reacts(
        lambda e: e.event.kind == kind and getattr(e.event, "trial", "") == "t02",
        lambda lab: lab.host.lose(call),
    )
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=reacts)
    assert (ExitCode.CONCLUDED, True) == ran.ended
    assert ["failed"] == [s.outcome.kind for s in ran.judged("t02")]


def test_a_target_that_does_not_come_back_is_left_to_its_guardian(tmp_path: Path) -> None:
    """For longer than the lease: over there the attempt is ended and good brought up; we start nothing."""
    ran = investigate(tmp_path, bad_does(fails(silent=(0.7, 10**9))))
    assert (ExitCode.TARGET, None) == ran.ended
    assert ([Reason.GUARDED], None) == (ran.reasons("t02"), ran.symptom)


def test_a_guardian_that_has_taken_over_is_not_disturbed(tmp_path: Path) -> None:
    """The lease ended while the agent slept: what the guardian did is recorded, and nothing is started."""
    ran = investigate(
        tmp_path,
        bad_does(fails("error: late", "x", "x", "error: boom")),
        reacts=Reacts(runs("t02"), lambda lab: lab.host.take_over()),
    )
    assert (ExitCode.TARGET, True) == ran.ended
    assert ([Reason.GUARDED], 2) == (ran.reasons("t02"), len(ran.lab.host.starts))
    assert ["guardian-acted"] == [kind for kind in ran.lab.kinds() if kind.startswith("guard")]


def test_without_a_lease_nothing_is_started(tmp_path: Path) -> None:
    """It ended between two attempts: the next one sees nothing of the target, and the run ends."""
    ran = investigate(
        tmp_path,
        bad_does(fails("error: boom")),
        reacts=Reacts(lambda e: e.event.kind == "trial-planned", lambda lab: lab.host.take_over()),
    )
    assert (ExitCode.TARGET, []) == (ran.outcome.code, ran.lab.host.starts)


@pytest.mark.parametrize("log", ["never written", "of another run", "shrinks", "replaced", "deleted"])
def test_a_log_that_is_not_ours_says_nothing(tmp_path: Path, log: str) -> None:
    """Stale, missing, cut or replaced: the attempt does not resolve, whatever the log says (rule 2)."""
    ran = investigate(tmp_path, bad_does(fails("error: late", "x", "x", "error: boom", log=log)))
    expected = {
        "never written": Reason.LOG_MISSING,
        "of another run": Reason.LOG_STALE,
    }.get(log, Reason.LOG_DAMAGED)
    assert (ExitCode.TARGET, [expected] * 3, None) == (ran.outcome.code, ran.reasons("t02"), ran.symptom)


def test_a_lost_supervisor_is_our_trouble(tmp_path: Path) -> None:
    """Nobody saw how the attempt ended, so nothing is said of it."""
    ran = investigate(tmp_path, bad_does(fails(supervisor_dies=2.0)))
    assert [Reason.SUPERVISOR_LOST] * 3 == ran.reasons("t02")


def test_a_foreign_listener_is_no_pass(tmp_path: Path) -> None:
    """A ready line and an answer prove nothing if somebody else listens on the port (rule 3)."""
    ran = investigate(tmp_path, bad_does(serves(listens="foreign")))
    assert [Reason.PORT_BUSY] * 3 == ran.reasons("t02")


INFRA = ONE.model_copy(update={"signatures": (Signature(id="link", role=Role.INFRA, pattern="link down"),)})


def test_the_machine_that_fails_first_is_to_blame(tmp_path: Path) -> None:
    """An infra line before the first root line leaves the attempt unresolved."""
    ran = investigate(tmp_path, bad_does(fails("link down", "error: boom")), INFRA)
    assert ([Reason.INFRA] * 3, None) == (ran.reasons("t02"), ran.symptom)


def test_the_machine_that_fails_afterwards_is_not(tmp_path: Path) -> None:
    """What follows the root is a consequence of it."""
    ran = investigate(tmp_path, bad_does(fails("error: boom", "link down")), INFRA)
    assert ([], "boom") == (ran.reasons("t02"), ran.symptom)


# --- what is believed -------------------------------------------------------------------------------


def test_what_is_written_after_our_stop_is_not_evidence(tmp_path: Path) -> None:
    """A stack that we end says that it crashed; the hang before is the symptom (rule 2)."""
    hang = fails(after_stop=("error: boom", "crashed with exit code -15"))
    ran = investigate(tmp_path, bad_does(hang), limited(ONE, quiet=5))
    assert "hang" == ran.symptom
    assert b"exit code -15" in ran.lab.folder.read("trials/t02-bad/1/server.log")


def test_silence_is_a_hang_by_the_clock(tmp_path: Path) -> None:
    """A log that stands still for `limits.quiet`, and while it is looked at, is a hang of its phase."""
    ran = investigate(tmp_path, bad_does(fails("capturing")), limited(ONE, quiet=7))
    closed = next(
        e.event for e in ran.lab.journal.entries if isinstance(e.event, Closed) and e.event.trial == "t02"
    )
    assert ("hang", "capture") == (ran.symptom, closed.observation.phase)
    assert 7 + BETWEEN_LOOKS == pytest.approx(closed.observation.quiet, abs=0.2)


def test_a_failure_that_good_shows_too_has_no_vote(tmp_path: Path) -> None:
    """A root line that is also printed while good passes explains nothing, and that is said (rule 7)."""
    noise = Signature(id="noise", role=Role.ROOT, pattern="deprecated")
    playbook = ONE.model_copy(update={"signatures": (noise,)})

    def stack(configuration: Configuration, _: int) -> Behaviour:
        return fails("deprecated", exit=(3.0, 7)) if configuration == FAST else serves("deprecated")

    ran = investigate(tmp_path, stack, playbook)
    assert "exit-7" == ran.symptom
    assert any("noise" in sentence for sentence in ran.outcome.verdict.unknown)


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (serves(answer='{"text": ""}'), "answer-empty"),
        (serves(answer='{"text": "because", "logprob": NaN}'), "answer-nan"),
        (serves(answer='{"text": "!!!!!!!!!!!!"}'), "answer-degenerate"),
        (serves(answer='{"text": "no"}'), "answer-differs"),
        (serves(status=500), "http-500"),
        (serves(listens="nobody"), "nobody-listens"),
    ],
)
def test_a_wrong_answer_is_a_failure(tmp_path: Path, behaviour: Behaviour, expected: str) -> None:
    """A server that is up, healthy and wrong has failed, and the wrong answer is the symptom (rule 3)."""
    ran = investigate(tmp_path, bad_does(behaviour))
    assert (ExitCode.CONCLUDED, expected) == (ran.outcome.code, ran.symptom)


JOB = ONE.model_copy(
    update={
        "kind": Kind.JOB,
        "restore": "none",
        "target": ONE.target.model_copy(update={"ports": ()}),
        "observe": ONE.observe.model_copy(update={"ready_log": None, "ready_http": None, "request": None}),
    }
)


@pytest.mark.parametrize(("code", "expected"), [(1, "exit-1"), (-11, "signal-11")])
def test_a_job_passes_with_0_and_fails_with_anything_else(tmp_path: Path, code: int, expected: str) -> None:
    """The exit code or the signal is the symptom where the log names none; nothing is restored."""
    ran = investigate(
        tmp_path, lambda configuration, _: fails(exit=(1.0, code if configuration == FAST else 0)), JOB
    )
    assert (ExitCode.CONCLUDED, None) == ran.ended
    assert expected == ran.symptom


def test_a_job_that_says_125_cannot_be_tested(tmp_path: Path) -> None:
    """It is tried twice more, then left out; it is never a failure."""
    ran = investigate(
        tmp_path, lambda configuration, _: fails(exit=(1.0, 125 if configuration == FAST else 0)), JOB
    )
    assert ([Reason.UNTESTABLE] * 3, None) == (ran.reasons("t02"), ran.symptom)


def test_a_contradicted_claim_without_a_factor_is_refuted(tmp_path: Path) -> None:
    """A line of the failing log refutes a claim, though no factor plays one of its roles."""
    playbook = ONE.model_copy(
        update={"hypotheses": (claim("inner", missing=("graphs",), contradicted_by=("graphs are off",)),)}
    )
    ran = investigate(tmp_path, bad_does(fails("graphs are off", "error: boom")), playbook)
    assert [State.REFUTED] == [h.state for h in ran.outcome.verdict.hypotheses]


# --- the environment --------------------------------------------------------------------------------


def changes(**parts: object) -> Callable[[Lab], None]:
    """The target is another one from now on."""

    def change(lab: Lab) -> None:
        lab.host.around = {"kernel": "6.8", **parts}

    return change


def test_what_must_stay_is_recorded_before_the_first_trial(tmp_path: Path) -> None:
    """And each attempt's intent says what was around it."""
    ran = investigate(tmp_path, bad_does(fails("error: boom")))
    seen = [e.event for e in ran.lab.journal.entries if isinstance(e.event, TargetSurveyed | Launching)]
    assert isinstance(seen[0], TargetSurveyed)
    assert seen[0].fingerprint is not None
    assert {"kernel": "6.8"} == seen[0].fingerprint.parts
    assert [Before(boot="0b00")] * 4 == [event.before for event in seen[1:] if isinstance(event, Launching)]


def test_an_environment_that_stays_another_one_ends_the_run(tmp_path: Path) -> None:
    """With a sentence, exit 4 and the good server back; nothing more is run that could not be compared."""
    reacts = Reacts(runs("t02"), changes(kernel="6.9"))
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=reacts)
    assert (ExitCode.TARGET, True) == ran.ended
    assert [Reason.ENVIRONMENT] == ran.reasons("t02")
    said = "the environment changed since the first trial: kernel: 6.8 → 6.9; try: put that back and resume"
    assert said in ran.outcome.verdict.tree.text
    assert [ONE.good, FAST, ONE.good] == ran.lab.host.starts
    assert ran.outcome.verdict == verify(ran.lab.folder).verdict


def test_an_environment_that_changes_back_costs_an_attempt(tmp_path: Path) -> None:
    """And no more: what was seen before and after can be compared."""

    def react(lab: Lab) -> None:
        back = lab.journal.entries[-1].event.kind == "closed"
        changes(kernel="6.8" if back else "6.9")(lab)

    reacts = Reacts(of("t02", 1, "launched", "closed"), react)
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=reacts)
    assert (ExitCode.CONCLUDED, True) == ran.ended
    assert [Reason.ENVIRONMENT] == ran.reasons("t02")
    assert 2 == len(ran.judged("t02"))


def again(ran: Ran) -> Outcome:
    """The run, taken up by a later process of ours."""
    lab = ran.lab
    tags = iter(range(100, 200))
    with Journal(lab.folder.path, lab.clock.time) as journal:
        lab.edge.launcher.guard(PLAN)
        engine = Engine(ONE, lab.folder, journal, lab.edges, "0", lambda _: None, lambda: f"{next(tags):08}")
        engine.begin(Resumed(versions={}, reopens=True))
        return engine.run()


def test_a_resumed_run_is_held_to_the_first_environment(tmp_path: Path) -> None:
    """As long as it is another one nothing is started; once it was put back, the run goes on."""
    ran = investigate(
        tmp_path, bad_does(fails("error: boom")), reacts=Reacts(runs("t02"), changes(kernel="6.9"))
    )
    started = len(ran.lab.host.starts)
    still = again(ran)
    assert ExitCode.TARGET is still.code
    assert "kernel: 6.8 → 6.9" in still.verdict.tree.text
    assert [ONE.good] == ran.lab.host.starts[started:]  # The good server, which was ended to look around.
    changes()(ran.lab)
    assert ExitCode.CONCLUDED is again(ran).code


def test_a_restored_server_is_one_in_any_environment(tmp_path: Path) -> None:
    """That the machine is another one is no reason to leave its users without a server."""
    reacts = Reacts(lambda entry: entry.event.kind == "concluded", changes(kernel="7"))
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=reacts)
    assert (ExitCode.CONCLUDED, True) == ran.ended


def test_a_restart_of_the_machine_ends_no_run(tmp_path: Path) -> None:
    """It is the same machine: the attempt is made again, and all the others still count."""

    def react(lab: Lab) -> None:
        lab.host.around = {"kernel": "6.8", "boot": "0b01"}

    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=Reacts(runs("t02"), react))
    assert (ExitCode.CONCLUDED, True) == ran.ended
    assert [Reason.ENVIRONMENT] == ran.reasons("t02")


XID = "NVRM: Xid (PCI:0000:9c:00): {}, pid=123, name=python3"
SMI = {"gpus": {"text": "", "wrong": ""}, "apps": {"text": "", "wrong": ""}}


@pytest.mark.parametrize(("number", "excused"), [(79, True), (31, False)])
def test_a_fault_of_the_gpu_excuses_and_one_of_the_stack_does_not(
    tmp_path: Path, number: int, *, excused: bool
) -> None:
    """The kernel tells of an illegal access too, which may be the very failure that is looked for."""
    playbook = ONE.model_copy(update={"signatures": (*ONE.signatures, *library.signatures())})
    told = changes(**SMI, log={"last": 9, "lines": [XID.format(number)]})
    calm = changes(**SMI, log={"last": 9, "lines": []})
    reacts = Reacts(
        of("t02", 1, "launched", "closed"),
        lambda lab: (calm if lab.kinds("t02")[-1] == "closed" else told)(lab),
    )
    ran = investigate(tmp_path, bad_does(fails("error: boom")), playbook, before=calm, reacts=reacts)
    assert (ExitCode.CONCLUDED, True) == ran.ended
    assert [Reason.ENVIRONMENT] * excused == ran.reasons("t02")
    closed = [e.event for e in ran.lab.journal.entries if isinstance(e.event, Closed)]
    after = next(event.observation.aftermath for event in closed if event.trial == "t02")
    assert after is not None
    assert excused is (after.changed is not None)
    assert excused is not (XID.format(number) in after.heard)


def test_a_look_that_cannot_be_had_excuses_the_attempt(tmp_path: Path) -> None:
    """Nobody knows what has changed; the server was ended all the same, so the target is not dirty."""

    def react(lab: Lab) -> None:
        closed = lab.kinds("t02")[-1] == "closed"
        lab.host.around = {"kernel": "6.8"} if closed else {"nonsense": 1}

    reacts = Reacts(of("t02", 1, "stopping", "closed"), react)
    ran = investigate(tmp_path, bad_does(fails("error: boom")), reacts=reacts)
    assert (ExitCode.CONCLUDED, True) == ran.ended
    assert [Reason.UNUSABLE] == ran.reasons("t02")


def test_before_the_hour_the_memory_of_gpus_is_waited_for(tmp_path: Path) -> None:
    """What the end of an attempt may take is kept back, so that `good` is there in time."""
    with Lab(tmp_path / "run", ONE, bad_does(serves())) as lab:
        plain = lab.engine._way_out()
        known = OnTarget(baseline=Fingerprint(parts={"gpu driver": "580"}))
        lab.engine.state = replace(lab.engine.state, targets={FIRST: known})
        assert plain + lab.edge.memory_back == lab.engine._way_out()
