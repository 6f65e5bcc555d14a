"""Every way in which a command can end, on a server so small that a run takes seconds."""

import getpass
import json
import os
import re
import signal
import socket
from collections.abc import Iterator

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import (
    Agent,
    Finished,
    events,
    finished,
    listens,
    post,
    tiny,
)

SECRET = "s3cret-t0ken-of-mine"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""The characters that a terminal acts upon, but for the newline."""


# --- interrupted ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_restores_good_and_is_sealed(agent: Agent, number: signal.Signals) -> None:
    """Exit 130 in the middle of `bad`; the good server answers, and `verify` agrees."""
    server = tiny(agent.home)
    server.hold("fails")
    command = agent.run(server.playbook, "--json")
    agent.awaits("launched", "t02")
    command.send(number)
    run = finished(agent, command)
    assert run.code == ExitCode.INTERRUPTED
    assert run.verdict().stopped_by == "the run was interrupted"
    assert run.verdict().good_restored.ok is True
    assert post(server.port, "/generate", {})[0] == 200
    assert run.command("verify").end() == ExitCode.CONCLUDED


# --- not begun --------------------------------------------------------------------------------------


def test_a_port_that_somebody_holds_is_named_with_its_holder(agent: Agent) -> None:
    """Exit 4 with pid and owner; nothing is started, and the holder is left alone."""
    server = tiny(agent.home)
    with socket.create_server(("127.0.0.1", server.port)):
        run = finished(agent, agent.run(server.playbook))
        assert listens(server.port)
    assert run.code == ExitCode.TARGET
    holder = rf"port {server.port} is held by pid {os.getpid()} \S+ of {getpass.getuser()}"
    assert re.search(holder, run.stdout.decode())
    assert {"run-started", "target-guarded", "target-surveyed", "concluded", "sealed"} == {
        e["kind"] for e in events(run.folder)
    }


def test_a_port_that_an_earlier_good_server_holds_is_named_with_its_run(agent: Agent) -> None:
    """Last night's server is in the way of this night's: whose it is, and the command that ends it."""
    server = tiny(agent.home)
    assert ExitCode.CONCLUDED == agent.run(server.playbook).end()
    again = agent.run(server.playbook)
    assert ExitCode.TARGET == again.end()
    assert (
        f"left running by run {agent.folders()[0].name}: `bisect-agent stop` ends it" in again.stdout.decode()
    )


def test_the_second_agent_on_a_port_is_sent_away(agent: Agent) -> None:
    """Exit 4, with who holds the lock; the first goes on undisturbed."""
    server = tiny(agent.home)
    server.hold("fails")
    first = agent.run(server.playbook)
    agent.awaits("launched", "t02")
    second = agent.run(server.playbook)
    assert second.end() == ExitCode.TARGET
    assert f"another investigation holds port-{server.port}" in second.stderr
    assert f"pid {first.pid}, run {agent.folder()}" in second.stderr
    server.release("fails")
    assert first.end() == ExitCode.CONCLUDED


def test_a_playbook_with_a_mistake_starts_nothing(agent: Agent) -> None:
    """Exit 2 with file, line and column; not even the folder of the runs is made."""
    server = tiny(agent.home, ("limits:", "limitz:"))
    command = agent.run(server.playbook)
    assert command.end() == ExitCode.USAGE
    assert f"{server.playbook}:17:1: " in command.stderr
    assert b"" == command.stdout
    assert not agent.runs.exists()


# --- one whole run of the tiny server ---------------------------------------------------------------


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """A run with a pinned factor, every event on stderr, a secret in the environment and a hostile log."""
    agent = Agent(tmp_path_factory.mktemp("home"), MY_API_TOKEN=SECRET)
    server = tiny(agent.home)
    yield finished(agent, agent.run(server.playbook, "--set", "kernel=stock", "--debug"), server.port)
    agent.leave()


def test_a_pinned_factor_keeps_its_level(pinned: Finished) -> None:
    """`--set` sets it in `good` and `bad`, and nothing flips it."""
    levels = {trial.configuration["kernel"] for trial in pinned.verdict().trials}
    assert {"stock"} == levels
    assert b"the kernel is stock" in pinned.read("trials/t02-bad/1/server.log")


def test_debug_tells_every_event_as_json(pinned: Finished) -> None:
    """One object a line, in the journal's order, where stderr is not a terminal."""
    told = [json.loads(line) for line in pinned.stderr.splitlines() if line.startswith("{")]
    kept = events(pinned.folder)
    assert [event["kind"] for event in kept] == [event["event"] for event in told]


def test_a_secret_is_in_no_file_of_the_run(pinned: Finished) -> None:
    """Neither in log, environment, answer, journal and reports, nor in what was printed."""
    files = [path for path in pinned.folder.rglob("*") if path.is_file()]
    assert {"env", "server.log", "response.txt", "journal.jsonl", "verdict.html"} <= {f.name for f in files}
    assert [] == [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in pinned.stdout.decode() + pinned.stderr


def test_a_masked_log_is_as_long_as_the_log(pinned: Finished) -> None:
    """Offsets stay true; the log on the target is the server's own, and is not touched."""
    copy = pinned.read("trials/t02-bad/1/server.log")
    (on_target,) = pinned.agent.home.glob(f".bisect-agent/{pinned.folder.name}/t02-1-*/log")
    log = on_target.read_bytes()
    assert copy == log.replace(SECRET.encode(), b"*" * len(SECRET))
    assert SECRET.encode() in log


@pytest.mark.parametrize("name", ["verdict.md", "verdict.html", "verdict.json", "journal.jsonl"])
def test_no_control_character_of_a_log_is_in_a_report(pinned: Finished, name: str) -> None:
    """What a terminal would obey is shown or left out."""
    assert "told to fail" in pinned.read(name).decode()
    assert [] == OBEYED.findall(pinned.read(name).decode())


def test_no_control_character_of_a_log_is_printed(pinned: Finished) -> None:
    """Neither as it happens nor in the verdict."""
    assert "told to fail" in pinned.stdout.decode()
    assert [] == OBEYED.findall(pinned.stdout.decode() + pinned.stderr)


def test_markup_in_a_log_is_text_in_the_page(pinned: Finished) -> None:
    """A log cannot run a script in the reader's browser."""
    page = pinned.read("verdict.html")
    assert b"&lt;script&gt;alert(1)" in page
    assert b"<script" not in page


# --- a job ------------------------------------------------------------------------------------------


def test_a_job_that_dies_of_something_unknown_has_a_cause(agent: Agent) -> None:
    """The exception itself is the symptom where no signature matches; `--quiet` says little of it."""
    tiny(agent.home)
    run = finished(agent, agent.run(agent.home / "tiny" / "job.yaml", "--json", "--quiet"))
    verdict = run.verdict()
    assert run.code == ExitCode.CONCLUDED
    assert (Setting(factor="table", level="new"),) == verdict.cause
    assert verdict.symptom is not None
    assert "KeyError: 'new'" == verdict.symptom.text
    assert f"run folder: {run.folder}\n" == run.stderr
