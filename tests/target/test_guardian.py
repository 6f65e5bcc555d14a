"""The guardian on a real target: who has the lease, and that nothing is started without it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_agent.hosts import Completed
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Reason, Takeover
from bisect_agent.target.launcher import Guarded, Launcher, Order, Plan, Setback
from tests.fakes import PLAN

PATIENCE = 30.0
LEASE = 1.0
"""Seconds of a lease that a test waits for."""


class Agent:
    """What one agent of a run does on the target; several may do it for the same run."""

    def __init__(self, base: Path, run: str = "run") -> None:
        self.base = base
        self.folder = base / run
        self.launcher = Launcher(LocalHost(), str(self.folder), sys.executable)
        self.launcher.install()

    def plan(self, lease: float, *locks: str) -> Plan:
        """A plan that restores nothing."""
        return replace(
            PLAN,
            locks={name: f"{self.base}/locks/{name}" for name in locks or ("port-1",)},
            holder=f"the agent of {self.folder.name}",
            lease=lease,
        )

    def guard(self, lease: float = 60, *locks: str) -> Guarded:
        """Takes the target."""
        return self.launcher.guard(self.plan(lease, *locks))

    def prepare(self, name: str, script: str = "sleep 600") -> str:
        """An attempt that can be started."""
        env = {"PATH": os.environ["PATH"]}
        tag = f"{os.getpid()}-{time.monotonic_ns()}"
        order = Order(script.encode(), (), env, str(self.base), tag, grace=0.2, bound=5)
        return self.launcher.prepare(name, order)

    def claimed(self, name: str) -> bool:
        """Whether anything was ever started there."""
        return (self.folder / name / "claim").exists()

    def report(self) -> Takeover:
        """What the guardian did, once it is done."""
        eventually(lambda: any(t.done for t in self.launcher.takeovers().reports))
        return self.launcher.takeovers().reports[-1]

    def guardian(self) -> int | None:
        """The process that watches over this run."""
        wanted = f"{self.folder}/guardian.py".encode()
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            words = read(place).split(b"\0")
            if wanted in words and b"guard" in words:
                return int(place.parent.name)
        return None


def read(path: Path) -> bytes:
    """A file that may be gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def eventually(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent; whatever it has left is ended."""
    yield Agent(tmp_path)
    for folder in tmp_path.glob("run*"):
        last = Agent(tmp_path, folder.name)
        if (pid := last.guardian()) is not None:
            os.kill(pid, signal.SIGKILL)
        for attempt in folder.glob("*/claim"):
            last.launcher.stop(str(attempt.parent))


def reason_of(deed: Callable[[], object]) -> Reason:
    """Why a deed could not be done."""
    with pytest.raises(Setback) as setback:
        deed()
    return setback.value.trouble.reason


# --- the lease --------------------------------------------------------------------------------------


def test_calls_renew_the_lease_and_silence_ends_it(agent: Agent) -> None:
    """Whoever asks again and again keeps it; then nothing is heard, and what ran is ended."""
    agent.guard(LEASE)
    folder = agent.prepare("t01")
    agent.launcher.start(folder)
    deadline = time.monotonic() + 3 * LEASE
    while time.monotonic() < deadline:
        assert not agent.launcher.status(folder).guarded
        time.sleep(LEASE / 5)
    report = agent.report()
    assert (("t01",), None, "") == (report.ended, report.restored, report.wrong)
    assert f"nothing was heard of the agent for {LEASE:g} s" == report.why
    status = agent.launcher.status(folder)
    assert status.guarded
    assert status.result is not None
    assert () == status.result.left


def test_a_silence_that_was_announced_is_none(agent: Agent) -> None:
    """A command of the owners' may take longer than the lease."""
    agent.guard(LEASE)
    agent.launcher.renew(2 * LEASE)
    time.sleep(2 * LEASE)  # the silence itself
    assert () == agent.launcher.takeovers().reports
    agent.report()


def test_after_the_end_of_a_lease_nothing_is_started(agent: Agent) -> None:
    """Neither what was prepared before, nor may it look at ports and act on what it sees."""
    agent.guard(LEASE)
    folder = agent.prepare("t01")
    agent.report()
    assert Reason.GUARDED is reason_of(lambda: agent.launcher.start(folder))
    assert Reason.GUARDED is reason_of(lambda: agent.launcher.probe(None, [1]))
    assert Reason.GUARDED is reason_of(lambda: agent.launcher.renew(0))
    assert not agent.claimed("t01")


def test_no_start_is_so_late_that_it_comes_after_the_end(agent: Agent) -> None:
    """Many starts around the moment in which the lease ends: what was started then was ended then."""
    names = [f"t{n:02}" for n in range(12)]
    folders = [agent.prepare(name) for name in names]
    agent.guard(LEASE)
    until = time.monotonic() + LEASE + 0.1
    moments = [until - 0.6 + 0.1 * n for n in range(len(names))]

    def start(folder: str, moment: float) -> None:
        threading.Event().wait(max(0.0, moment - time.monotonic()))
        other = Launcher(Quiet(agent.folder), str(agent.folder), sys.executable)
        other._fence = agent.launcher._fence
        with suppress(Setback):
            other.start(folder)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(start, folders, moments))
    report = agent.report()
    assert set(report.ended) == {name for name in names if agent.claimed(name)}
    assert all(agent.launcher.status(f).result for f in folders if agent.claimed(Path(f).name))


class Quiet(LocalHost):
    """This machine, where a call does not renew the lease, as one that is on its way for long."""

    def __init__(self, run: Path) -> None:
        self._lease = run / "guard" / "lease"

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Gives the lease back what it was."""
        before = self._lease.read_bytes()
        try:
            return super().run(argv, timeout=timeout, stdin=stdin)
        finally:
            part = self._lease.with_name(f"lease.{threading.get_ident()}")
            part.write_bytes(before)  # At one stroke: other calls read it meanwhile.
            part.rename(self._lease)


def test_a_lease_that_is_handed_over_ends_at_once(agent: Agent) -> None:
    """What runs is ended although the lease would last for a minute more."""
    agent.guard(60)
    folder = agent.prepare("t01")
    agent.launcher.start(folder)
    assert agent.launcher.hand_over()
    report = agent.report()
    assert (("t01",), "the agent left it to the guardian") == (report.ended, report.why)


# --- one alone --------------------------------------------------------------------------------------


def test_a_later_agent_of_the_run_is_the_only_one(agent: Agent) -> None:
    """The guardian goes on for it; the earlier agent starts nothing more, and does not spoil the lease."""
    first = agent.guard()
    folder = agent.prepare("t01")
    later = Agent(agent.base)
    second = later.guard()
    assert (first.guardian, 2) == (second.guardian, second.fence)
    assert Reason.GUARDED is reason_of(lambda: agent.launcher.start(folder))
    assert Reason.GUARDED is reason_of(agent.launcher.release)
    later.launcher.start(folder)
    assert later.guardian() is not None


def test_another_run_gets_all_locks_or_none(agent: Agent) -> None:
    """It is told who holds what; and what it could have had is free for a third."""
    agent.guard(60, "port-1")
    other = Agent(agent.base, "run-other")
    assert {"port-1": "the agent of run"} == other.guard(60, "port-0", "port-1").held
    third = Agent(agent.base, "run-third")
    assert third.guard(60, "port-0").fence == 1


def test_who_releases_leaves_no_lock_and_no_process(agent: Agent) -> None:
    """The next run can begin when `release` has answered."""
    agent.guard()
    agent.launcher.release()
    assert agent.guardian() is None
    assert Agent(agent.base, "run-other").guard().fence == 1


def test_what_is_started_holds_no_lock(agent: Agent) -> None:
    """A restored server outlives its run, and the next run has its port's lock."""
    agent.guard()
    agent.launcher.start(agent.prepare("t01"))
    agent.launcher.release()
    assert Agent(agent.base, "run-other").guard().fence == 1


def test_nothing_is_started_unguarded(agent: Agent) -> None:
    """A guardian that was killed is replaced first; where another run was quicker, nothing is started."""
    agent.guard()
    pid = agent.guardian()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: agent.guardian() is None)
    agent.launcher.start(agent.prepare("t01"))
    assert agent.guardian() not in {None, pid}
    os.kill(agent.guardian() or 0, signal.SIGKILL)
    eventually(lambda: agent.guardian() is None)
    assert Agent(agent.base, "run-other").guard().fence == 1
    assert Reason.GUARDED is reason_of(lambda: agent.launcher.start(agent.prepare("t02")))
    assert not agent.claimed("t02")


def test_another_runs_guardian_is_no_remains_of_ours(agent: Agent) -> None:
    """It was born when nobody looked, without parent or tag, as what a dead supervisor may have left."""
    folder = agent.prepare("t01")
    started = agent.launcher.start(folder)
    os.kill(started.supervisor.pid, signal.SIGSTOP)
    other = Agent(agent.base, "run-other")
    other.guard()
    os.kill(started.supervisor.pid, signal.SIGKILL)
    eventually(lambda: agent.launcher.status(folder).supervisor == "dead")
    suspects = [process.pid for process in agent.launcher.stop(folder).suspects]
    assert other.guardian() not in suspects


# --- a guardian that is lost ------------------------------------------------------------------------


def test_what_a_guardian_did_before_it_was_killed_is_told(agent: Agent) -> None:
    """In the middle of its work: the report stands as far as it came, and a later agent goes on."""
    agent.guard(LEASE)
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    agent.launcher.start(agent.prepare("t01", stubborn))
    report = agent.folder / "guard" / "report-1"
    eventually(report.exists)
    pid = agent.guardian()
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: agent.guardian() is None)
    later = Agent(agent.base).guard()
    assert (2, [1]) == (later.fence, [takeover.fence for takeover in later.reports])


def test_files_are_put_back_where_nothing_else_is_restored(agent: Agent) -> None:
    """By the commands of the plan, which are the launcher's own."""
    conf = agent.base / "conf"
    conf.write_text("the owners'")
    put_back = [agent.launcher.putting_back(str(conf))]
    agent.launcher.guard(replace(agent.plan(LEASE), put_back=put_back))
    agent.launcher.keep(str(conf))
    folder = agent.prepare("t01")
    conf.write_text("ours")
    agent.launcher.start(folder)
    assert "" == agent.report().wrong
    assert "the owners'" == conf.read_text()
