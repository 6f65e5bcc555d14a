"""A run on two targets: real servers on ports of their own, of which the first is restored."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import (
    TINY,
    Agent,
    Command,
    Finished,
    end,
    events,
    finished,
    free_port,
    guardians,
    listens,
    processes_of,
    wait_for,
)

FLEET = Path(__file__).parent / "fleet" / "server.yaml"
CAUSE = (Setting(factor="mode", level="fails"),)


@dataclass(frozen=True)
class Fleet:
    """A copy of the playbook and its server, with ports of their own; the second target may be changed."""

    playbook: Path
    ports: tuple[int, int]

    @property
    def hold(self) -> Path:
        """While this file is there, `bad` waits, on both targets."""
        return self.playbook.parent / "hold-fails"


def fleet(home: Path, second: str = "host: local") -> Fleet:
    """The copy."""
    folder, ports = home / "fleet", (free_port(), free_port())
    folder.mkdir()
    shutil.copy(TINY / "server.py", folder)
    # One Python for both: over SSH another may come first, whose packages are others.
    text = FLEET.read_text(encoding="utf-8").replace("python3", sys.executable)
    for written, port in zip(("31848", "31849"), ports, strict=True):
        text = text.replace(written, str(port))
    before, local, after = text.rpartition("host: local")
    assert local
    playbook = folder / "server.yaml"
    playbook.write_text(f"{before}{second}{after}", encoding="utf-8")
    return Fleet(playbook, ports)


def placed(folder: Path) -> dict[str, int]:
    """On which target each trial ran last."""
    return {e["trial"]: e.get("target", 1) for e in events(folder) if e["kind"] == "launching"}


def at_bad(agent: Agent) -> tuple[Fleet, Command]:
    """A run in which `bad` waits on both targets."""
    stack = fleet(agent.home)
    stack.hold.touch()
    command = agent.run(stack.playbook)
    agent.awaits("log-seen", "t02")
    agent.awaits("log-seen", "bad-on-2")
    return stack, command


def is_whole(run: Finished, ports: tuple[int, int]) -> bool:
    """Whether the cause was found, `good` serves on the first target alone, and the record holds."""
    verdict = run.verdict()
    return (
        (run.code, verdict.cause, verdict.good_restored.ok) == (ExitCode.CONCLUDED, CAUSE, True)
        and [True, False] == [listens(port) for port in ports]
        and run.command("verify").end() == ExitCode.CONCLUDED
    )


def test_two_targets_find_what_one_finds(agent: Agent) -> None:
    """Both show `good` and `bad`, both carry trials; `stop` ends what runs, the record can travel."""
    stack = fleet(agent.home)
    run = finished(agent, agent.run(stack.playbook, "--json"), stack.ports[0])
    assert is_whole(run, stack.ports)
    assert {1, 2} == set(placed(run.folder).values())
    assert {"good-on-2": 2, "bad-on-2": 2}.items() <= placed(run.folder).items()
    copy = agent.home / "copy.tar.gz"
    assert agent.start("export", "--redact", run.folder, "--to", copy).end() == ExitCode.CONCLUDED
    assert agent.start("verify", copy).end() == ExitCode.CONCLUDED
    assert "on target 2" in run.read("verdict.md").decode()
    assert run.command("stop").end() == ExitCode.CONCLUDED
    assert [False, False] == [listens(port) for port in stack.ports]


def test_a_killed_run_goes_on_on_both_targets(agent: Agent) -> None:
    """What runs there when the agent is killed is watched on, and nothing is started twice."""
    stack, command = at_bad(agent)
    command.send(signal.SIGKILL)
    run = finished(agent, command)
    stack.hold.unlink()
    again = finished(agent, agent.start("resume", run.folder), stack.ports[0])
    assert is_whole(again, stack.ports)
    taken_up = {e["trial"] for e in events(run.folder) if e["kind"] == "taken-up"}
    assert {"t02", "bad-on-2"} == taken_up
    launched = [e["trial"] for e in events(run.folder) if e["kind"] == "launched"]
    assert sorted(set(launched)) == sorted(launched)


def test_whoever_leaves_leaves_nothing_on_the_others(agent: Agent) -> None:
    """After a second interrupt the guardians end what runs, and `good` comes back on the first alone."""
    stack, command = at_bad(agent)
    command.send(signal.SIGINT)
    command.send(signal.SIGINT)
    run = finished(agent, command, stack.ports[0])
    assert ExitCode.INTERRUPTED == run.code
    wait_for(lambda: listens(stack.ports[0]), "the good server")
    assert not listens(stack.ports[1])


def test_stop_ends_what_a_killed_agent_left_on_both(agent: Agent) -> None:
    """Where the guardians are gone too, so that nobody else does."""
    _, command = at_bad(agent)
    command.send(signal.SIGKILL)
    run = finished(agent, command)
    end(guardians(agent.home))
    assert len(processes_of(run.folder)) >= 2
    assert run.command("stop").end() == ExitCode.CONCLUDED
    assert [] == processes_of(run.folder)


def test_a_target_that_is_taken_refuses_the_run(agent: Agent) -> None:
    """With a sentence, before anything is started; the first target is free again at once."""
    stack = fleet(agent.home)
    stack.hold.touch()
    first = agent.run(stack.playbook)
    agent.awaits("log-seen", "t02")
    other = stack.playbook.with_name("other.yaml")
    text = stack.playbook.read_text(encoding="utf-8")
    other.write_text(text.replace(str(stack.ports[0]), str(free_port())), encoding="utf-8")
    refused = agent.run(other)
    assert ExitCode.TARGET == refused.end()
    assert f"another investigation holds port-{stack.ports[1]}" in refused.stderr
    assert 1 == len(agent.folders())
    stack.hold.unlink()
    assert ExitCode.CONCLUDED == first.end()


def test_check_tells_of_every_target(agent: Agent) -> None:
    """Where each is; and one whose port is taken cannot be used now."""
    stack = fleet(agent.home)
    command = agent.start("check", stack.playbook)
    assert command.end() == ExitCode.CONCLUDED, command.stderr
    where = f"the same, as target 2, on local, in {stack.playbook.parent}, ports {stack.ports[1]}"
    assert where in command.stdout.decode()
    with socket.create_server(("127.0.0.1", stack.ports[1])):
        taken = agent.start("check", stack.playbook)
        assert ExitCode.TARGET == taken.end()
    assert f"port {stack.ports[1]} is held" in taken.stderr


@pytest.mark.parametrize("command", ["plan", "check"])
def test_what_is_read_only_leaves_nothing(agent: Agent, command: str) -> None:
    """Neither here nor there."""
    stack = fleet(agent.home)
    assert agent.start(command, stack.playbook).end() == ExitCode.CONCLUDED
    left = agent.home / ".bisect-agent"
    assert [] == ([path for path in left.iterdir() if path.name.startswith("check")] if left.exists() else [])
