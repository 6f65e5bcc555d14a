"""Whoever carries a run out may be lost at any moment: the target is then taken care of, and by one alone."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import (
    TINY_PORT,
    Agent,
    Command,
    Finished,
    Tiny,
    end,
    events,
    finished,
    guardians,
    listens,
    post,
    processes_of,
    tiny,
    wait_for,
)
from tests.hosts.sshd import Sshd, server

CAUSE = (Setting(factor="mode", level="fails"),)
LIMITS = "limits: {start: 60s, quiet: 60s, stop: 2s}"
SHORT = (LIMITS, "limits: {start: 60s, quiet: 60s, stop: 2s, lease: 3s}")
"""A lease that a test can wait for."""


def answers(stack: Tiny) -> bool:
    """Whether the good server answers."""
    return listens(stack.port) and post(stack.port, "/generate", {})[0] == 200


def starts(run: Finished) -> int:
    """How many attempts the journal knows to have been started."""
    return sum(e["kind"] == "launched" for e in events(run.folder))


def acted(run: Finished) -> list[dict[str, object]]:
    """What the journal says that guardians did."""
    return [e["takeover"] for e in events(run.folder) if e["kind"] == "guardian-acted"]


def is_whole(run: Finished) -> bool:
    """Whether a run has the verdict of an undisturbed one, and follows."""
    verdict = run.verdict()
    return (run.code, verdict.cause, verdict.good_restored.ok) == (
        ExitCode.CONCLUDED,
        CAUSE,
        True,
    ) and run.command("verify").end() == ExitCode.CONCLUDED


def held_in(agent: Agent, trial: str, mode: str, *edits: tuple[str, str]) -> tuple[Tiny, Command]:
    """A run that is in a trial, whose server waits before it does what its mode is."""
    stack = tiny(agent.home, SHORT, *edits)
    if mode == "fails":
        stack.hold("fails")
    command = agent.run(stack.playbook, "--json")
    if mode == "works":
        agent.awaits("launched", "t02")
        stack.hold("works")
    agent.awaits("launched", trial)
    return stack, command


# --- the agent is gone ------------------------------------------------------------------------------


@pytest.mark.parametrize(("trial", "mode"), [("t02", "fails"), ("restore", "works")])
def test_an_agent_killed_for_good_leaves_the_good_server_up(agent: Agent, trial: str, mode: str) -> None:
    """In a trial, or in the restore: within the lease `good` answers, and the next `resume` tells of it."""
    stack, command = held_in(agent, trial, mode)
    command.send(signal.SIGKILL)
    stack.release(mode)
    killed = finished(agent, command)
    wait_for(lambda: answers(stack), "the good server")
    wait_for(lambda: not guardians(agent.home), "the guardian's end")
    again = finished(agent, agent.start("resume", killed.folder))
    (told,) = acted(again)
    assert told["restored"] is True
    assert "nothing was heard of the agent for 3 s" in again.stderr
    assert is_whole(again)


def test_between_two_trials_too(agent: Agent) -> None:
    """Nothing runs when the agent dies; what was begun before is reason enough to bring `good` up."""
    stack = tiny(agent.home, SHORT)
    command = agent.run(stack.playbook)
    agent.awaits("judged", "t02")
    command.send(signal.SIGKILL)
    killed = finished(agent, command)
    wait_for(lambda: answers(stack) and not guardians(agent.home), "the good server")
    assert is_whole(finished(agent, agent.start("resume", killed.folder)))


def test_what_the_guardian_brought_up_can_be_stopped_without_going_on(agent: Agent) -> None:
    """`stop` refuses while the guardian waits for the agent, and ends the server when it has acted."""
    stack, command = held_in(agent, "t02", "fails")
    command.send(signal.SIGKILL)
    killed = finished(agent, command)
    early = killed.command("stop")
    assert (ExitCode.TARGET, True) == (early.end(), "bisect-agent resume" in early.stderr)
    wait_for(lambda: not guardians(agent.home), "the guardian's end")
    assert answers(stack)
    assert ExitCode.CONCLUDED == killed.command("stop").end()
    assert not listens(stack.port)


def test_a_run_taken_up_in_time_is_none_of_the_guardians_business(agent: Agent) -> None:
    """The attempt is watched on, and nobody ended it."""
    stack, command = held_in(agent, "t02", "fails", (SHORT[1], LIMITS))
    command.send(signal.SIGKILL)
    killed = finished(agent, command)
    resumed = agent.start("resume", killed.folder)
    agent.awaits("taken-up", "t02")
    stack.release("fails")
    again = finished(agent, resumed)
    assert is_whole(again)
    assert [] == acted(again)
    assert 2 == sum(e["kind"] == "target-guarded" for e in events(again.folder))


def test_a_second_interrupt_leaves_the_restore_to_the_guardian(agent: Agent) -> None:
    """At once, not when the lease ends: the agent leaves with 130, and the good server comes up."""
    stack = tiny(agent.home)
    stack.hold("fails")
    command = agent.run(stack.playbook, "--json")
    agent.awaits("launched", "t02")
    stack.hold("works")
    command.send(signal.SIGINT)
    agent.awaits("launched", "restore")
    command.send(signal.SIGINT)
    run = finished(agent, command)
    assert ExitCode.INTERRUPTED == run.code
    assert "the guardian on the target ends the attempt and restores `good`" in run.stderr
    assert run.verdict().good_restored.ok is None
    assert [] == processes_of(run.folder)
    stack.release("works")
    wait_for(lambda: answers(stack) and not guardians(agent.home), "the good server")
    assert ExitCode.CONCLUDED == run.command("stop").end()
    assert not listens(stack.port)


# --- the agent is not heard -------------------------------------------------------------------------


def test_an_agent_that_slept_starts_nothing_more(agent: Agent) -> None:
    """It wakes after its lease has ended: `good` is up, one server runs, and the agent leaves it so."""
    stack, command = held_in(agent, "t02", "fails")
    command.send(signal.SIGSTOP)
    wait_for(lambda: answers(stack) and not guardians(agent.home), "the good server")
    command.send(signal.SIGCONT)
    run = finished(agent, command)
    assert ExitCode.TARGET == run.code
    assert (2, True) == (starts(run), run.verdict().good_restored.ok)
    assert run.command("verify").end() == ExitCode.CONCLUDED
    assert answers(stack)
    stack.release("fails")
    assert is_whole(finished(agent, agent.start("resume", run.folder)))


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """A server that runs for all tests of this file."""
    with server() as running:
        yield running


def test_a_partition_longer_than_the_lease(agent: Agent, sshd: Sshd) -> None:
    """The agent lives and hears nothing; over there `good` comes up; then it is heard, and stops."""
    (agent.home / ".ssh").mkdir(mode=0o700)
    shutil.copy(sshd.config(), agent.home / ".ssh" / "config")
    place = f"target:\n  host: ssh://box\n  cwd: {agent.home}/tiny\n"
    stack, command = held_in(agent, "t02", "fails", ("target:\n", place))
    with sshd.hole(everybody=True):
        wait_for(lambda: answers(stack), "the good server")
    run = finished(agent, command)
    assert ExitCode.TARGET == run.code
    assert 2 == starts(run)
    assert answers(stack)
    stack.release("fails")
    assert is_whole(finished(agent, agent.start("resume", run.folder)))


# --- one alone --------------------------------------------------------------------------------------


def test_the_target_is_held_while_a_guardian_waits(agent: Agent) -> None:
    """Another run on that port is sent away, with who has it and what can be done."""
    _, command = held_in(agent, "t02", "fails")
    command.send(signal.SIGKILL)
    killed = finished(agent, command)
    other = agent.run(agent.home / "tiny" / "server.yaml")
    assert ExitCode.TARGET == other.end()
    assert f"pid {command.pid}, run {killed.folder}" in other.stderr
    assert [killed.folder] == agent.folders()
    assert 1 == len(list((agent.home / ".bisect-agent").glob("2*")))


def test_a_guardian_that_is_killed_is_replaced_before_the_next_start(agent: Agent) -> None:
    """The run goes on to its verdict; nothing is ever started unguarded."""
    stack, command = held_in(agent, "t02", "fails", (SHORT[1], LIMITS))
    (guardian,) = guardians(agent.home)
    os.kill(guardian, signal.SIGKILL)
    stack.release("fails")
    agent.awaits("launched", "t03")
    run = finished(agent, command)
    assert is_whole(run)
    assert [] == guardians(agent.home)


# --- what is restored -------------------------------------------------------------------------------


def killed_for_good(agent: Agent, *edits: tuple[str, str]) -> Finished:
    """A run whose agent is killed in `bad`, after its guardian has acted."""
    stack, command = held_in(agent, "t02", "fails", *edits)
    command.send(signal.SIGKILL)
    run = finished(agent, command)
    wait_for(lambda: not guardians(agent.home), "the guardian's end")
    stack.release("fails")
    assert [] == processes_of(run.folder)
    return run


def test_where_nothing_is_to_be_restored_the_attempt_is_ended(agent: Agent) -> None:
    """`restore: none`."""
    run = killed_for_good(agent, ("limits:", "restore: none\nlimits:"))
    again = finished(agent, agent.start("resume", run.folder))
    assert (ExitCode.CONCLUDED, [None]) == (again.code, [told["restored"] for told in acted(again)])


def test_the_owners_command_brings_their_server_back(agent: Agent) -> None:
    """`restore: {command: ...}`: it is run there, and waited for."""
    command = f"setsid python3 server.py --port {TINY_PORT} >owners.log 2>&1 & echo $! >owners.pid"
    run = killed_for_good(agent, ("limits:", f"restore: {{command: '{command}'}}\nlimits:"))
    owners = int((agent.home / "tiny" / "owners.pid").read_text())
    again = agent.start("resume", run.folder)
    assert ExitCode.TARGET == again.end()
    assert f"is held by pid {owners} python3" in again.stdout.decode()
    end([owners])


def test_files_of_factors_are_as_before(agent: Agent) -> None:
    """What a level has written is `good`'s again where `good` is restored."""
    conf = agent.home / "conf.json"
    conf.write_text("the owners'")
    levels = f"{{path: {conf}, levels: {{mine: {{text: mine}}, other: {{text: other}}}}}}"
    factor = ("factors:\n", f"factors:\n  conf: {{file: {levels}}}\n")
    run = killed_for_good(agent, factor, ("bad: {mode: fails}", "bad: {mode: fails, conf: other}"))
    assert "mine" == conf.read_text()
    assert ExitCode.CONCLUDED == run.command("stop").end()
    assert "the owners'" == conf.read_text()
