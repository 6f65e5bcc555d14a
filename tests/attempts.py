"""Attempts at small real programs, carried out by the real product on this machine and judged."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_agent.attempt import carry_out
from bisect_agent.between import fingerprint
from bisect_agent.clock import SystemClock
from bisect_agent.edge import Edge, Task
from bisect_agent.events import Closed, OfAttempt
from bisect_agent.folder import RunFolder
from bisect_agent.hosts import Host
from bisect_agent.hosts.local import LocalHost
from bisect_agent.judge import Known, judge
from bisect_agent.model import (
    Evidence,
    Failed,
    Fingerprint,
    HttpRequest,
    Limits,
    Observation,
    Observe,
    Outcome,
    PhaseMark,
    Playbook,
    Symptom,
    Trial,
)
from bisect_agent.stacks import lines
from bisect_agent.target.launcher import Launcher
from tests.worlds import READY, playbook_of

LIMITS = Limits(start=20, quiet=2, request=1, stop=0.5, trials=1, wall=60)
BETWEEN_LOOKS = 0.5
SMI, MEMORY_BACK = 2.0, 1.0
TAG = "tag"

Listener = Callable[[OfAttempt], None]


@dataclass(frozen=True)
class Attempted:
    """An attempt that is over: what was seen, what was made of it, and where its files are."""

    seen: Observation
    outcome: Outcome
    folder: RunFolder

    @property
    def symptom(self) -> Symptom:
        """What failed, as something must have."""
        assert isinstance(self.outcome, Failed), self.outcome
        return self.outcome.symptom

    def text(self, name: str) -> str:
        """One of its files."""
        return self.folder.read(f"trials/t01-good/1/{name}").decode()

    def has(self, evidence: Evidence) -> bool:
        """Whether a line of evidence stands where it is said to."""
        found = lines(self.folder.read(evidence.path))[evidence.line - 1]
        return (evidence.offset, evidence.text) == (found.offset, found.text)


def playbook(
    folder: Path, launch: str, port: int = 0, phases: Sequence[PhaseMark] = (), **limits: float
) -> Playbook:
    """A server's playbook that starts this script in a folder."""
    plain = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
    target = plain.target.model_copy(update={"cwd": str(folder), "ports": (port,) if port else ()})
    observe = Observe(
        ready_log=READY,
        ready_http="/health",
        request=HttpRequest(path="/generate", body='{"text": "?"}'),
        phases=tuple(phases),
    )
    changed = {"launch": launch, "target": target, "observe": observe}
    return plain.model_copy(update={**changed, "limits": LIMITS.model_copy(update=limits)})


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def attempt(
    playbook: Playbook,
    listen: Listener = lambda _: None,
    path: str = "",
    host: Host | None = None,
    baseline: Callable[[Fingerprint], Fingerprint] | None = None,
) -> Attempted:
    """Carries out one attempt at `good`.

    `listen` is told each event; `path` are folders before the PATH; `host` is this machine if not given.
    With a `baseline` the target is looked at before, which is told what was seen and says what is to stay.
    """
    base = Path(playbook.target.cwd)
    host = host or LocalHost()
    launcher = Launcher(host, str(base / "target"), sys.executable)
    launcher.install()
    ours = {"PATH": os.pathsep.join(filter(None, (path, os.environ["PATH"]))), "HOME": str(base)}
    edge = Edge(
        host=host,
        launcher=launcher,
        folder=str(base / "target"),
        python=sys.executable,
        clock=SystemClock(),
        ours=ours,
        secrets=(),
        between_looks=BETWEEN_LOOKS,
        smi=SMI,
        memory_back=MEMORY_BACK,
    )
    folder = RunFolder.create(base / "run", b"playbook: 1\n", playbook)
    trial = Trial(id="t01", control="good", configuration=playbook.good)
    events: list[OfAttempt] = []

    def emit(event: OfAttempt) -> None:
        events.append(event)
        listen(event)

    stays = baseline(fingerprint(playbook, edge, folder)) if baseline else None
    carry_out(Task(playbook, trial, 1, TAG, baseline=stays), edge, folder, emit, threading.Event())
    closed = events[-1]
    assert isinstance(closed, Closed)
    settled = judge(playbook, trial, 1, closed.observation, Known())
    return Attempted(closed.observation, settled.outcome, folder)
