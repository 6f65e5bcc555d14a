"""A whole investigation over SSH: a real OpenSSH server on the loopback, reached by a name of ssh_config."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import Agent, finished, listens, processes_of, tiny, wait_for
from tests.hosts.sshd import Sshd, server


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """A server that runs for all tests of this file."""
    with server() as running:
        yield running


@pytest.fixture
def far(agent: Agent, sshd: Sshd) -> Agent:
    """An agent whose ~/.ssh/config calls that server `box`."""
    (agent.home / ".ssh").mkdir(mode=0o700)
    shutil.copy(sshd.config(), agent.home / ".ssh" / "config")
    return agent


def on_the_box(agent: Agent) -> tuple[str, str]:
    """The edit of a playbook that has it carried out over SSH, its files in a folder of the test's."""
    place = f"target:\n  host: ssh://box\n  cwd: {agent.home}/tiny\n  folder: {agent.home}/there\n"
    return ("target:\n", place)


def test_a_server_over_ssh_is_bisected_like_one_here(far: Agent) -> None:
    """Same cause, `good` restored there, the record here; `stop` ends it there."""
    stack = tiny(far.home, on_the_box(far))
    run = finished(far, far.run(stack.playbook, "--json"))
    assert (ExitCode.CONCLUDED, (Setting(factor="mode", level="fails"),)) == (run.code, run.verdict().cause)
    assert run.verdict().good_restored.ok is True
    assert listens(stack.port)
    assert run.command("verify").end() == ExitCode.CONCLUDED
    assert run.command("stop").end() == ExitCode.CONCLUDED
    assert not listens(stack.port)
    assert [] == processes_of(run.folder)


def test_check_looks_at_the_host(far: Agent) -> None:
    """What would run is said of there, and nothing of us stays."""
    stack = tiny(far.home, on_the_box(far))
    command = far.start("check", stack.playbook)
    assert command.end() == ExitCode.CONCLUDED, command.stderr
    assert b"a server on ssh://box" in command.stdout


def test_a_link_that_is_cut_costs_no_verdict(far: Agent, sshd: Sshd) -> None:
    """In the middle of `bad` the connection is lost, and taken up again."""
    stack = tiny(far.home, on_the_box(far))
    stack.hold("fails")
    command = far.run(stack.playbook, "--json")
    far.awaits("launched", "t02")
    sshd.cut()
    stack.release("fails")
    run = finished(far, command)
    assert (ExitCode.CONCLUDED, (Setting(factor="mode", level="fails"),)) == (run.code, run.verdict().cause)


def test_an_unknown_key_is_not_accepted_by_itself(far: Agent, sshd: Sshd) -> None:
    """Exit 4 with the command that accepts it, and that command asks a person."""
    nothing_known = {"UserKnownHostsFile": str(far.home / "known_hosts")}
    shutil.copy(sshd.config(name="unknown", **nothing_known), far.home / ".ssh" / "config")
    stack = tiny(far.home, on_the_box(far))
    command = far.run(stack.playbook)
    assert command.end() == ExitCode.TARGET
    assert "bisect-agent trust" in command.stderr
    asked = far.start("trust", "ssh://box")
    assert asked.end() == ExitCode.USAGE
    assert b"unknown" in asked.stdout
    assert not (far.home / "known_hosts").exists()


def test_one_target_s_trouble_does_not_stop_another_s(far: Agent) -> None:
    """A run on the box comes to its end while one here stands still, and one elsewhere finds nobody."""
    for name in ("here", "there", "nowhere"):
        (far.home / name).mkdir()
    here = tiny(far.home / "here")
    box = "target:\n  host: ssh://box\n  cwd: {}/tiny\n  folder: {}\n"
    there = tiny(far.home / "there", ("target:\n", box.format(far.home / "there", far.home / "files")))
    nowhere = tiny(far.home / "nowhere", ("target:\n", "target:\n  host: ssh://127.0.0.1:1\n"))
    here.hold("fails")
    command = far.start(
        "run", here.playbook, there.playbook, nowhere.playbook, "--runs", far.runs, "--json", "--quiet"
    )
    wait_for(lambda: any((folder / "verdict.html").exists() for folder in far.folders()), "the box's verdict")
    assert command.running()
    here.release("fails")
    assert command.end() == ExitCode.TARGET
    assert [0, 0, 4] == [run["code"] for run in json.loads(command.stdout)["runs"]]
