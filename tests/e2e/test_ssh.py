"""A whole investigation over SSH: a real OpenSSH server on the loopback, reached by a name of ssh_config."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import Agent, Finished, finished, listens, processes_of, quickstart, tiny, wait_for
from tests.e2e.leaks import BY_LOOKS, ENVIRONMENT, PIECES, carried_out, found_in, leaky
from tests.e2e.test_targets import fleet, is_whole, placed
from tests.hosts.sshd import Sshd, plain_user, server

SOON = 2.0
"""Seconds in which a launch over SSH must return."""


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


def test_a_target_here_and_one_over_ssh_share_the_work(far: Agent, sshd: Sshd) -> None:
    """The cause is the same, `good` is restored here, and a link that is cut costs no verdict."""
    place = f"host: ssh://box, cwd: {far.home}/fleet, folder: {far.home}/there"
    stack = fleet(far.home, second=place)
    stack.hold.touch()
    command = far.run(stack.playbook, "--json")
    far.awaits("log-seen", "bad-on-2")
    sshd.cut()
    stack.hold.unlink()
    run = finished(far, command, stack.ports[0])
    assert is_whole(run, stack.ports)
    assert 2 in placed(run.folder).values()


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


# --- as a plain user --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def user(sshd: Sshd) -> Iterator[str]:
    """Somebody on that machine who may do nothing special."""
    with plain_user(sshd) as name:
        yield name


def plain(sshd: Sshd, user: str, home: Path, **variables: str) -> Agent:
    """An agent that logs in there as that user."""
    agent = Agent(home, **variables)
    (agent.home / ".ssh").mkdir(mode=0o700)
    shutil.copy(sshd.config("plain", user=user), agent.home / ".ssh" / "config")
    return agent


@pytest.fixture(scope="module")
def shipped(sshd: Sshd, user: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """The shipped quickstart, carried out there."""
    agent = plain(sshd, user, tmp_path_factory.mktemp("home"))
    place = sshd.folder / "shipped"
    there = f"  host: ssh://box\n  cwd: {place}/quickstart"
    here = "  host: local                             # or ssh://user@gpu-box"
    place.mkdir()
    playbook, port = quickstart(place, ("playbook.yaml", here, there))
    yield finished(agent, agent.run(playbook, "--json"), port)
    agent.leave()


def test_the_quickstart_has_the_same_verdict_there(shipped: Finished) -> None:
    """As locally: the cause, what became of each claim, and `good` in the end; `verify` agrees."""
    verdict = shipped.verdict()
    causes = {Setting(factor="compile", level="on"), Setting(factor="capture", level="on")}
    assert (ExitCode.CONCLUDED, causes) == (shipped.code, set(verdict.cause))
    states: dict[str, set[str]] = {}
    for hypothesis in verdict.hypotheses:
        states.setdefault(hypothesis.state, set()).add(hypothesis.id)
    refuted = {"kernel-specific", "double-capture", "compile-alone", "capture-alone", "environment"}
    assert {"supported": {"compile-against-capture", "stack-wide"}, "refuted": refuted} == states
    assert (True, True) == (verdict.good_first.ok, verdict.good_restored.ok)
    assert shipped.command("verify").end() == ExitCode.CONCLUDED


def test_every_launch_returns_while_the_server_runs_on(shipped: Finished, user: str) -> None:
    """Soon, each of them; the last server lives on when the agent is gone, and is that user's."""
    entries = [json.loads(line) for line in shipped.read("journal.jsonl").splitlines()]
    launches = [
        then["at"] - first["at"]
        for first, then in pairwise(entries)
        if (first["event"]["kind"], then["event"]["kind"]) == ("launching", "launched")
    ]
    assert len(shipped.verdict().trials) + 1 == len(launches)
    assert max(launches) < SOON
    assert listens(shipped.port)
    (*_, server_process) = processes_of(shipped.folder)
    assert user == Path(f"/proc/{server_process}").owner()
    assert shipped.command("stop").end() == ExitCode.CONCLUDED
    assert [] == processes_of(shipped.folder)


def test_a_server_that_tells_its_secrets_over_there_is_not_quoted(
    sshd: Sshd, user: str, tmp_path: Path
) -> None:
    """No file of the run, nothing that is printed, and no command line of a helper, here or there."""
    agent = plain(sshd, user, tmp_path, **ENVIRONMENT)
    place = sshd.folder / "leaky"
    run = carried_out(agent, leaky(place, f"  host: ssh://box\n  cwd: {place}\n"))
    assert (ExitCode.CONCLUDED, (Setting(factor="mode", level="fails"),)) == (run.code, run.verdict().cause)
    assert [] == found_in(run)
    assert [] == [piece for piece in PIECES if piece in run.stdout + run.stderr.encode()]
    (log,) = (sshd.folder / "home" / ".bisect-agent" / run.folder.name).glob("t02-1-*/log")
    assert BY_LOOKS.encode() in log.read_bytes()
    assert [] == processes_of(run.folder)
