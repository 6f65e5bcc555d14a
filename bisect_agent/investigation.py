"""Puts an investigation together: playbook, run folder, journal, target; and takes it apart again."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path

from bisect_agent import events, playbook
from bisect_agent.attempt import Edge
from bisect_agent.check import check_script
from bisect_agent.engine import Engine, Listener
from bisect_agent.errors import TargetError
from bisect_agent.events import RunStarted, RunState
from bisect_agent.folder import PLAYBOOK, RESOLVED, RunFolder, digest, run_name
from bisect_agent.hosts import Host
from bisect_agent.hosts.local import LocalHost
from bisect_agent.journal import NAME as JOURNAL
from bisect_agent.journal import Journal, decode
from bisect_agent.model import Passed, Playbook
from bisect_agent.target.launcher import Launcher

HOME = "~/.bisect-agent"
"""On the target: where runs put their files, and where the locks are."""


class SystemClock:
    """The machine's own time."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Investigation:
    """An investigation that can be run: its engine, and where its record goes."""

    engine: Engine
    folder: RunFolder
    playbook: Playbook


def version() -> str:
    """The version of this package."""
    return installed("bisect-agent")


@contextmanager
def open_new(path: Path, runs: Path, pins: Mapping[str, str], listener: Listener) -> Iterator[Investigation]:
    """A new investigation of a playbook, its target held for us until we leave.

    Raises:
        PlaybookError: the playbook cannot be used.
        TargetError: another investigation holds the target.
    """
    resolved = playbook.load(path, pins=pins)
    clock, ours = SystemClock(), dict(os.environ)
    name = run_name(resolved.title, clock.time(), secrets.token_hex(2))
    host = LocalHost()
    check_script(host, resolved)
    with ExitStack() as stack:
        for lock in _lock_names(resolved):
            _hold(stack, host, lock, f"{runs / name}")
        folder = RunFolder.create(runs / name, path.read_bytes(), resolved)
        journal = stack.enter_context(Journal(folder.path, clock.time))
        place = resolved.target.folder or f"{Path(HOME).expanduser()}/{name}"
        edge = Edge(
            host=host,
            launcher=Launcher(host, place, sys.executable),
            folder=place,
            python=sys.executable,
            clock=clock,
            ours=ours,
            secrets=tuple(playbook.secrets_of(resolved, ours).values()),
        )
        engine = Engine(resolved, folder, journal, edge, version(), listener, lambda: secrets.token_hex(16))
        engine.begin(
            RunStarted(
                run=name,
                playbook=digest(folder.read(PLAYBOOK)),
                resolved=digest(folder.read(RESOLVED)),
                versions={"bisect_agent": version(), "python": sys.version.split()[0]},
            )
        )
        yield Investigation(engine, folder, resolved)


def restored(state: RunState) -> str | None:
    """The folder, on the target, of the restored server that a run has left running."""
    run = state.restored()
    if run is None or state.surveyed is None or not isinstance(run.outcome, Passed):
        return None
    return f"{state.surveyed.folder}/{state.attempts[run.trial.id, run.attempt].folder}"


def stop_restored(folder: RunFolder) -> str:
    """Ends the server that a run has restored; returns what was done, as a sentence.

    Raises:
        TargetError: something of it did not die.
    """
    state = events.fold(decode(folder.read(JOURNAL)))
    attempt = restored(state)
    if attempt is None or state.surveyed is None:
        return "this run has left no server running"
    stopped = Launcher(LocalHost(), state.surveyed.folder, sys.executable).stop(attempt)
    if stopped.left:
        names = ", ".join(f"{p.pid} {p.name}" for p in stopped.left)
        raise TargetError(f"still alive: {names}", "look at these processes; nothing else was touched")
    return "nothing of the restored server is left"


def _lock_names(resolved: Playbook) -> list[str]:
    """What one investigation at a time may use: each port; for a job, the folder that it runs in."""
    if resolved.target.ports:
        return [f"port-{port}" for port in sorted(resolved.target.ports)]
    return [f"folder-{digest(resolved.target.cwd.encode())[:16]}"]


def _hold(stack: ExitStack, host: Host, name: str, run: str) -> None:
    path = f"{Path(HOME).expanduser()}/locks/{name}.lock"
    holder = f"{socket.gethostname()} pid {os.getpid()}, run {run}"
    lock = host.lock(path, holder)
    if isinstance(lock, str):
        raise TargetError(
            f"{host.name}: another investigation holds {name}: {lock}",
            "wait for it to end, or end it with Ctrl-C there: it restores the good server first",
        )
    stack.enter_context(lock)
