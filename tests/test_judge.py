"""What is made of one attempt: logs as text, read by the real scanner, before the real judge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.judge import Known, judge, known
from bisect_agent.model import (
    Aftermath,
    Applied,
    Death,
    Exhibit,
    Exit,
    Failed,
    FileLine,
    HttpAnswer,
    LogCopy,
    Observation,
    Outcome,
    OutOfMemory,
    Passed,
    Process,
    Reason,
    Role,
    Serving,
    Settled,
    Signature,
    Stacks,
    Symptom,
    SymptomKind,
    Trial,
    Trouble,
    Unresolved,
    Why,
)
from bisect_agent.signatures import Scanner, watches
from tests.strategies import FEW
from tests.worlds import PORT, READY, claim, playbook_of

SIGNATURES = (
    Signature(id="advice", role=Role.HINT, pattern="disable boom"),
    Signature(id="wrapped", role=Role.WRAPPER, pattern="capture failed"),
    Signature(id="lost", role=Role.CASCADE, pattern="previous error"),
    Signature(id="sick", role=Role.SYMPTOM, pattern="scheduler died"),
    Signature(id="link", role=Role.INFRA, pattern="link down"),
    Signature(id="taken", role=Role.INFRA, pattern="address in use", topic="port"),
    Signature(id="void", role=Role.INVALID, pattern="not a valid run"),
    Signature(id="memory", role=Role.ROOT, pattern="out of memory", phase_matters=True),
)
PLAYBOOK = playbook_of(
    {"mode": ("safe", "fast"), "kernel": ("mma", "stock")},
    {"mode": "fast"},
    hypotheses=(claim("inner", "mode", contradicted_by=("graphs are off",)),),
).model_copy(update={"signatures": SIGNATURES})
BAD = Trial(id="t02", control="bad", configuration=PLAYBOOK.bad)
SERVED = Serving(
    listener="ours", health=HttpAnswer(status=200), request=HttpAnswer(status=200, body='{"text": "because"}')
)
CHAIN = """\
Traceback (most recent call last):
  File "/opt/model.py", line 12, in forward
    raise ValueError(f"shape {x}")
ValueError: shape 12
The above exception was the direct cause of the following exception:
Traceback (most recent call last):
  File "/opt/engine.py", line 99, in step
    wrap()
RuntimeError: step failed
"""


def seen(log: str, why: Why = Why.FATAL, **more: object) -> Observation:
    """An observation of an attempt with this log."""
    scanner = Scanner(watches(PLAYBOOK))
    scanner.feed(log.encode())
    scanner.finish()
    copy = LogCopy(path="trials/t02-bad/1/server.log", size=len(log), sha256="1" * 64, original="2" * 64)
    return Observation.model_validate({"reading": scanner.reading(), "log": copy, "why": why, **more})


def settled(log: str, why: Why = Why.FATAL, before: Known | None = None, **more: object) -> Settled:
    """What is made of an attempt with this log."""
    return judge(PLAYBOOK, BAD, 1, seen(log, why, **more), before or Known())


def outcome(log: str, why: Why = Why.FATAL, before: Known | None = None, **more: object) -> Outcome:
    """How an attempt with this log is judged."""
    return settled(log, why, before, **more).outcome


def failure(log: str, why: Why = Why.FATAL, before: Known | None = None, **more: object) -> Symptom:
    """The symptom of an attempt that must have failed."""
    found = outcome(log, why, before, **more)
    assert isinstance(found, Failed)
    return found.symptom


def reason(log: str, why: Why = Why.FATAL, **more: object) -> Reason:
    """Why an attempt must not have resolved."""
    found = outcome(log, why, None, **more)
    assert isinstance(found, Unresolved)
    return found.reason


# --- which line is the failure (rule 7) -------------------------------------------------------------


def test_the_root_is_the_failure_and_has_an_address() -> None:
    """The evidence is the line: path, number, offset, text."""
    symptom = failure("loading\ncapturing\nerror: boom\n")
    line = symptom.evidence[0]
    assert (SymptomKind.SIGNATURE, "boom", "capture") == (symptom.kind, symptom.id, symptom.phase)
    assert ("trials/t02-bad/1/server.log", 3, 18, "error: boom") == (
        line.path,
        line.line,
        line.offset,
        line.text,
    )


@pytest.mark.parametrize("line", ["1. disable boom", "capture failed: x", "previous error", "scheduler died"])
def test_what_follows_a_failure_is_not_its_root(line: str) -> None:
    """Advice, wrappers, cascades and symptoms may come first and are not believed before the root."""
    assert "boom" == failure(f"{line}\nerror: boom\n").id


@pytest.mark.parametrize("line", ["disable boom", "capture failed", "previous error"])
def test_advice_wrappers_and_cascades_alone_are_no_failure(line: str) -> None:
    """Where the log names nothing, the end of the process is all there is."""
    assert "exit-3" == failure(f"{line}\n", Why.EXITED, exit=Exit(code=3)).id


def test_a_quoted_source_line_is_no_root() -> None:
    """`raise X("error: boom")` in a traceback quotes the code; the exception is what was raised."""
    log = CHAIN.replace('raise ValueError(f"shape {x}")', 'raise E("error: boom")')
    assert SymptomKind.EXCEPTION is failure(log, Why.EXITED, exit=Exit(code=1)).kind


def test_a_record_below_error_is_no_root() -> None:
    """Who writes INFO or WARNING does not mean that it failed."""
    log = "2026-06-17 23:46:56 INFO tries again after error: boom\n"
    assert "exit-1" == failure(log, Why.EXITED, exit=Exit(code=1)).id


def test_the_first_exception_of_a_chain_is_the_symptom() -> None:
    """Not the last line; numbers are masked, and its own frame is part of it."""
    symptom = failure(CHAIN, Why.EXITED, exit=Exit(code=1))
    assert "ValueError: shape # @ model.py:forward" == symptom.id
    assert ("ValueError: shape 12", 4) == (symptom.text, symptom.evidence[0].line)


def test_a_symptom_line_stands_in_where_nothing_better_is() -> None:
    """A symptom says that it failed, if not why."""
    assert "sick" == failure("scheduler died\n", Why.EXITED, exit=Exit(code=1)).id


@pytest.mark.parametrize(
    ("end", "expected"), [(Exit(code=3), "exit-3"), (Exit(signal=9), "signal-9"), (Exit(code=0), "exit-0")]
)
def test_without_a_line_the_exit_is_the_symptom(end: Exit, expected: str) -> None:
    """A server that ends before it was ready has failed, with 0 too; its last line is shown."""
    symptom = failure("loading\nweights\n", Why.EXITED, exit=end)
    assert (expected, ["weights"]) == (symptom.id, [line.text for line in symptom.evidence])


@pytest.mark.parametrize("why", [Why.SILENT, Why.OVERDUE])
def test_silence_is_a_hang_of_its_phase(why: Why) -> None:
    """Two hangs in different phases are two failures (rule 5)."""
    early, late = (
        failure(log, why, phase=phase, quiet=61.0) for log, phase in (("x\n", "load"), ("y\n", "capture"))
    )
    assert (SymptomKind.HANG, "hang", False) == (early.kind, early.id, early.same_as(late))


def test_the_phase_counts_only_where_the_signature_says_so() -> None:
    """Out of memory while loading is not out of memory while capturing; `boom` is `boom`."""
    logs = ("loading\n{}\n", "loading\ncapturing\n{}\n")
    memory = [failure(log.format("out of memory")) for log in logs]
    boom = [failure(log.format("error: boom")) for log in logs]
    assert (False, True) == (memory[0].same_as(memory[1]), boom[0].same_as(boom[1]))


# --- what stands still, and how it died -------------------------------------------------------------

FRAME = FileLine(line=5, offset=90, text="    take (stack.py:8)")
LOOK = Exhibit(path="trials/t02-bad/1/stacks-2.txt", sha256="3" * 64, lines=(FRAME,))
KERNEL_LINE = "[ 12.5] Memory cgroup out of memory: Killed process 77 (python)"
KERNEL = Exhibit(
    path="trials/t02-bad/1/kernel.txt",
    sha256="4" * 64,
    lines=(FileLine(line=1, offset=0, text=KERNEL_LINE),),
)
KILLED = OutOfMemory(counted=1, logged=1, file=KERNEL)
QUIET = OutOfMemory(counted=0, logged=0)


@pytest.mark.parametrize(
    ("moved", "expected", "said"),
    [("", "hang", "stuck in"), ("process 7 used 9.9 s of CPU in 10.0 s", "overdue", "slow, not stuck, in")],
)
def test_two_looks_tell_stuck_from_slow(moved: str, expected: str, said: str) -> None:
    """Two failures of one kind; the frame and the last line are the evidence."""
    stacks = Stacks(looks=(LOOK, LOOK), seconds=10, moved=moved)
    symptom = failure("loading\n", Why.SILENT, quiet=61.0, phase="load", stacks=stacks)
    assert (SymptomKind.HANG, expected, True) == (symptom.kind, symptom.id, symptom.phase_matters)
    assert symptom.text.startswith(f"{said} phase load: no new line for 61 s; ")
    assert [FRAME.text, "loading"] == [line.text for line in symptom.evidence]


def test_a_look_that_could_not_be_had_is_said_so() -> None:
    """Then the clock alone has decided, as before."""
    symptom = failure("loading\n", Why.OVERDUE, stacks=Stacks(missing="no answer"))
    assert ("hang", "hang in its start: limits.start is over; its stacks could not be read: no answer") == (
        symptom.id,
        symptom.text,
    )


@pytest.mark.parametrize("end", [Exit(code=1), Exit(signal=9)])
def test_a_kill_for_want_of_memory_explains_what_follows_it(end: Exit) -> None:
    """An exception and a symptom line of those who lived on are consequences; its phase counts."""
    symptom = failure(f"loading\nscheduler died\n{CHAIN}", Why.EXITED, exit=end, memory=KILLED, phase="load")
    assert ("host-out-of-memory", KERNEL_LINE, True) == (symptom.id, symptom.text, symptom.phase_matters)
    assert KERNEL.path == symptom.evidence[0].path


def test_a_root_line_comes_before_a_kill_for_want_of_memory() -> None:
    """The stack itself has named what failed."""
    assert "boom" == failure("error: boom\n", memory=KILLED).id


def test_a_kill_that_good_survives_has_no_vote() -> None:
    """A helper that is killed in every run explains nothing; it is said to have been voiceless."""
    before = known([seen(f"{READY}\n", Why.SERVED, serving=SERVED, memory=KILLED)])
    found = settled("", Why.EXITED, before, exit=Exit(signal=9), memory=KILLED)
    assert isinstance(found.outcome, Failed)
    assert ("signal-9", ("host-out-of-memory",)) == (found.outcome.symptom.id, found.voiceless)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (QUIET, "the kernel's counters show no out-of-memory kill"),
        (OutOfMemory(), "the kernel's counters are not readable: by whom is unknown"),
        (None, "the kernel's counters are not readable: by whom is unknown"),
    ],
)
@pytest.mark.parametrize("end", [Exit(code=137), Exit(signal=9)])
def test_a_sigkill_is_no_want_of_memory_by_itself(end: Exit, memory: OutOfMemory | None, said: str) -> None:
    """A server may kill its own tree; who it was is told as far as it is known."""
    symptom = failure("", Why.EXITED, exit=end, memory=memory)
    assert (False, True) == ("memory" in symptom.id, symptom.text.endswith(said))


@pytest.mark.parametrize(("number", "named"), [(11, True), (9, True), (15, False), (13, False)])
def test_the_first_death_of_a_child_is_told(number: int, named: bool) -> None:
    """Not that of one who was asked to end, or whose reader was gone. The symptom is the same with it."""
    dead = Death(process=Process(pid=7, start=1, boot="b", name="worker"), signal=number, time=5)
    symptom = failure("", Why.EXITED, exit=Exit(code=1), deaths=(dead,))
    assert ("exit-1", named) == (
        symptom.id,
        f"process 7 worker was killed by signal {number}" in symptom.text,
    )


# --- ranks ------------------------------------------------------------------------------------------


def ranks(*seconds: int | None) -> str:
    """A log in which rank n fails at that second, or without a stamp."""
    stamps = [
        f"[2026-06-17 23:46:{s:02} TP{n}] " if s is not None else f"[rank{n}]: "
        for n, s in enumerate(seconds)
    ]
    return "".join(f"{stamp}error: boom\n" for stamp in stamps)


@FEW
@given(st.lists(st.integers(0, 59), min_size=2, max_size=6, unique=True))
def test_the_first_rank_is_told_by_the_stamps(seconds: list[int]) -> None:
    """Whatever the order in which the lines were printed."""
    symptom = failure(ranks(*seconds))
    assert ("shown", f"TP{seconds.index(min(seconds))}") == (symptom.order, symptom.first_rank)
    assert min(line.time or 0.0 for line in symptom.evidence) == symptom.evidence[0].time


@FEW
@given(st.lists(st.integers(1, 59), max_size=3))
def test_where_stamps_tie_the_order_is_not_shown(later: list[int]) -> None:
    """Nothing is guessed from who printed first."""
    symptom = failure(ranks(0, 0, *later))
    assert ("not shown", None) == (symptom.order, symptom.first_rank)


def test_a_rank_without_a_stamp_leaves_the_order_open() -> None:
    """It might have been the first."""
    assert "not shown" == failure(ranks(5, None)).order


def test_one_rank_needs_no_order() -> None:
    """Who fails alone fails first."""
    symptom = failure(ranks(5))
    assert ("one rank", "TP0") == (symptom.order, symptom.first_rank)


# --- ours is not theirs (rule 6) --------------------------------------------------------------------


def test_infrastructure_counts_before_the_first_root_only() -> None:
    """Afterwards it is a consequence."""
    assert Reason.INFRA is reason("link down\nerror: boom\n")
    assert "boom" == failure("error: boom\nlink down\n").id


def test_a_port_that_the_configuration_takes_from_itself_is_its_failure() -> None:
    """It was free before the start, and is free again. Any other port may be anybody's."""
    assert "taken" == failure(f"127.0.0.1:{PORT}: address in use\n", Why.EXITED).id
    assert Reason.INFRA is reason(f"127.0.0.1:{PORT}1: address in use\n")
    assert Reason.INFRA is reason("address in use\n")


def test_infrastructure_after_a_root_without_a_stamp_is_a_consequence() -> None:
    """The first root line is the first one printed, whatever the stamps of later ones say."""
    assert isinstance(outcome("error: boom\nlink down\n[2026-06-17 23:46:56 TP2] error: boom\n"), Failed)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"trouble": Trouble(reason=Reason.LOG_STALE, detail="x")}, Reason.LOG_STALE),
        ({"left": (Process(pid=1, start=1, boot="b", name="serve"),)}, Reason.DIRTY),
        ({"busy_ports": (30000,)}, Reason.DIRTY),
        ({"exit": Exit(code=125)}, Reason.UNTESTABLE),
    ],
)
def test_our_trouble_outranks_whatever_the_log_says(more: dict[str, object], expected: Reason) -> None:
    """An attempt that is not clean says nothing of the stack."""
    assert expected is reason("error: boom\n", Why.EXITED, **more)


CHANGED = Aftermath(
    changed=Exhibit(
        path="trials/t02-bad/1/environment.txt",
        sha256="3" * 64,
        lines=(FileLine(line=1, offset=0, text="kernel: 6.8 → 6.9"),),
    )
)


def test_another_environment_is_an_excuse_with_its_lines() -> None:
    """Whatever the log says: it was not run where the others were run."""
    found = outcome("error: boom\n", aftermath=CHANGED)
    assert isinstance(found, Unresolved)
    assert (Reason.ENVIRONMENT, "kernel: 6.8 → 6.9") == (found.reason, found.detail)
    assert ["trials/t02-bad/1/environment.txt"] == [line.path for line in found.evidence]


def test_an_interruption_comes_before_another_environment() -> None:
    """It ends the run, and costs the trial no attempt."""
    assert Reason.INTERRUPTED is reason("", Why.CANCELLED, aftermath=CHANGED)


def test_memory_that_is_not_back_is_dirt() -> None:
    """As a process that did not die is; our own trouble does not hide it."""
    held = Aftermath(memory="30 s after the stop: NVIDIA H200: 9 GiB used")
    trouble = Trouble(reason=Reason.UNREACHABLE, detail="no answer")
    found = outcome("", Why.TROUBLE, aftermath=held, trouble=trouble)
    assert isinstance(found, Unresolved)
    assert (Reason.DIRTY, f"GPU memory, {held.memory}") == (found.reason, found.detail)


def test_an_interrupted_attempt_says_nothing() -> None:
    """We ended it before it could."""
    assert Reason.INTERRUPTED is reason("error: boom\n", Why.CANCELLED)


def test_a_run_that_calls_itself_invalid_is_not_counted() -> None:
    """Nor is it made again: the same would be said."""
    assert Reason.INVALID is reason("not a valid run\nerror: boom\n")


def test_a_foreign_listener_is_no_answer() -> None:
    """Another process on the port could have answered anything."""
    foreign = SERVED.model_copy(update={"listener": "foreign"})
    assert Reason.PORT_BUSY is reason(f"{READY}\n", Why.SERVED, serving=foreign)


# --- passing (rule 3) -------------------------------------------------------------------------------


def test_a_pass_shows_its_ready_line_and_its_answer() -> None:
    """A pass has evidence as a failure has."""
    found = outcome(f"loading\n{READY}\n", Why.SERVED, serving=SERVED)
    assert isinstance(found, Passed)
    assert [READY, '{"text": "because"}'] == [line.text for line in found.evidence]


def test_a_wrong_answer_after_an_error_is_that_error() -> None:
    """What the log names explains the answer."""
    empty = SERVED.model_copy(update={"request": HttpAnswer(status=200, body="")})
    assert "boom" == failure(f"{READY}\nerror: boom\n", Why.SERVED, serving=empty).id


def test_another_answer_than_good_gave_is_a_failure() -> None:
    """A server can be up, healthy and wrong."""
    symptom = failure(f"{READY}\n", Why.SERVED, Known(answer='{"text": "no"}'), serving=SERVED)
    assert (SymptomKind.ANSWER, "answer-differs", "serving") == (symptom.kind, symptom.id, symptom.phase)


# --- what good shows too ----------------------------------------------------------------------------


def test_what_good_shows_while_it_passes_has_no_vote() -> None:
    """A root, an exception, a symptom: none explains a failure if good prints it and works."""
    before = known([seen(f"error: bang\n{CHAIN}scheduler died\n{READY}\n", Why.SERVED, serving=SERVED)])
    found = settled(f"error: bang\n{CHAIN}scheduler died\n", Why.EXITED, before, exit=Exit(code=1))
    assert isinstance(found.outcome, Failed)
    assert "exit-1" == found.outcome.symptom.id
    assert ("bang", "sick", "ValueError: shape # @ model.py:forward") == found.voiceless


def test_the_first_answer_of_good_is_the_one_to_compare() -> None:
    """What good answered is known from the attempts that passed."""
    assert '{"text": "because"}' == known([seen("", Why.SERVED, serving=SERVED)]).answer


# --- witnesses (rule 4) -----------------------------------------------------------------------------


def test_a_level_that_shows_is_witnessed_by_its_line() -> None:
    """The line is kept; the factor that shows nothing is not witnessed."""
    found = settled("kernel is mma\nerror: boom\n")
    assert {"mode": Applied.NOT_WITNESSED, "kernel": Applied.WITNESSED} == found.applied
    assert {"kernel": "kernel is mma"} == {name: line.text for name, line in found.witnesses.items()}


def test_a_level_that_shows_otherwise_was_not_applied() -> None:
    """The log outranks what was set."""
    assert Reason.NOT_APPLIED is reason("kernel is stock\nerror: boom\n")


def test_a_level_that_shows_after_another_one_was_applied() -> None:
    """A default that is printed before the setting is read is no contradiction."""
    assert "boom" == failure("kernel is stock\nkernel is mma\nerror: boom\n").id


def test_a_line_that_contradicts_a_claim_is_kept() -> None:
    """The first such line is the fact."""
    found = settled("graphs are off\ngraphs are off\nerror: boom\n")
    assert {"inner": 1} == {name: line.line for name, line in found.contradicts.items()}
