"""A scene: a playbook and a tiny real stack, carried out by the real product in folders of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bisect_agent.attempt import carry_out
from bisect_agent.claims import HypothesisResult
from bisect_agent.clock import Clock, SystemClock
from bisect_agent.edge import Edge, Task
from bisect_agent.errors import ExitCode
from bisect_agent.events import Closed, OfAttempt
from bisect_agent.folder import RunFolder
from bisect_agent.hosts import Host
from bisect_agent.hosts.local import LocalHost
from bisect_agent.investigation import Means, open_new
from bisect_agent.judge import Known, judge
from bisect_agent.model import Failed, Observation, Outcome, Passed, Symptom, Trial, Unresolved
from bisect_agent.playbook import environment_for, load, secrets_of
from bisect_agent.target.launcher import Launcher
from bisect_agent.verdict import TrialResult, Verdict

SERVER = Path(__file__).with_name("launch_server.py")
READY = "The server is fired up and ready to roll!"
COMPILE = {"env": "COMPILE", "levels": {"off": None, "on": "1"}}
"""The one factor of most scenes, on in `bad`."""


@dataclass(frozen=True)
class Seen:
    """One attempt: its events, each with the second it came at, and what was made of it."""

    events: tuple[tuple[float, OfAttempt], ...]
    observation: Observation
    outcome: Outcome

    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [event.kind for _, event in self.events]

    def seconds(self, first: str, then: str) -> float:
        """How long it took from one event to another."""
        at: dict[str, float] = {event.kind: moment for moment, event in self.events}
        return at[then] - at[first]

    def passed(self) -> Passed:
        """The outcome, which must be this one."""
        assert isinstance(self.outcome, Passed), self.outcome
        return self.outcome

    def symptom(self) -> Symptom:
        """What failed, as something must have."""
        assert isinstance(self.outcome, Failed), self.outcome
        return self.outcome.symptom

    def unresolved(self) -> Unresolved:
        """The outcome, which must be this one."""
        assert isinstance(self.outcome, Unresolved), self.outcome
        return self.outcome


@dataclass(frozen=True)
class Run:
    """One investigation: its verdict and its exit code."""

    verdict: Verdict
    code: ExitCode

    def trial(self, setting: str) -> TrialResult:
        """The one that changed this setting alone."""
        return next(t for t in self.verdict.trials if t.change and setting in map(str, t.change.settings()))

    def hypothesis(self, name: str) -> HypothesisResult:
        """What became of a hypothesis."""
        return next(h for h in self.verdict.hypotheses if h.id == name)

    def evidence(self) -> list[str]:
        """The text of every line that the verdict points to, wherever it does."""
        return [e["text"] for e in _walk(self.verdict.model_dump(mode="json")) if "offset" in e]


def _walk(value: object) -> Iterator[dict[str, Any]]:
    """Every mapping in a JSON value."""
    inner: list[object] = []
    if isinstance(value, dict):
        yield value
        inner = list(value.values())
    elif isinstance(value, list):
        inner = value
    for one in inner:
        yield from _walk(one)


@dataclass
class Scene:
    """A stack's folder, where its playbook is and where it runs, and what the product makes beside it."""

    folder: Path
    port: int
    python: str = sys.executable

    def __post_init__(self) -> None:
        self.stack, self.target = self.folder / "stack", self.folder / "target"
        self.stack.mkdir()
        (self.stack / SERVER.name).write_bytes(SERVER.read_bytes())

    # --- setting -------------------------------------------------------------------------------------

    def job(self, launch: str, **keys: object) -> None:
        """The stack is a script that ends by itself."""
        self._write({"kind": "job", "launch": launch, **keys})

    def server(self, launch: str, **keys: object) -> None:
        """The stack is `launch_server.py`; `$server` in the launch starts it on the scene's port."""
        self._write(
            {
                "kind": "server",
                "launch": launch.replace("$server", " ".join(self.command())),
                "observe": {
                    "ready": {"log": READY, "http": "/health"},
                    "request": {"path": "/generate", "json": {"text": "two and two?"}},
                },
                **keys,
            }
        )

    def command(self) -> tuple[str, ...]:
        """The server's command line."""
        return (self.python, str(self.stack / SERVER.name), "--port", str(self.port))

    def _write(self, keys: dict[str, Any]) -> None:
        """The playbook; JSON is YAML."""
        limits = {"start": "20s", "quiet": "20s", "request": "5s", "stop": "1s", "wall": "1m"}
        whole = {
            "playbook": 1,
            "title": "a scene",
            "target": {"folder": str(self.target), "ports": [self.port] if keys["kind"] == "server" else []},
            "factors": {"compile": COMPILE},
            "good": {"compile": "off"},
            "bad": {"compile": "on"},
            **keys,
            "limits": {**limits, **keys.get("limits", {})},
        }
        path = self.stack / "playbook.yaml"
        path.write_text(json.dumps(whole))
        path.chmod(0o600)

    # --- action --------------------------------------------------------------------------------------

    def attempt(
        self,
        host: Host | None = None,
        clock: Clock | None = None,
        on_event: Callable[[OfAttempt], None] = lambda _: None,
    ) -> Seen:
        """Carries out one attempt at `bad`; `on_event` may meddle after each of its events."""
        path = self.stack / "playbook.yaml"
        playbook, host = load(path), host or LocalHost()
        folder = RunFolder.create(self.folder / "run", path.read_bytes(), playbook)
        edge = Edge(
            host=host,
            launcher=Launcher(host, str(self.target), host.python),
            folder=str(self.target),
            python=host.python,
            clock=clock or SystemClock(),
            ours=environment_for(host.environment, os.environ),
            secrets=tuple(secrets_of(playbook, os.environ).values()),
            between_looks=0.5,
        )
        edge.launcher.install()
        trial = Trial(id="t01", control="bad", configuration=playbook.bad)
        events: list[tuple[float, OfAttempt]] = []

        def emit(event: OfAttempt) -> None:
            events.append((time.monotonic(), event))
            on_event(event)

        carry_out(Task(playbook, trial, 1, secrets.token_hex(16)), edge, folder, emit, threading.Event())
        closed = events[-1][1]
        assert isinstance(closed, Closed)
        settled = judge(playbook, trial, 1, closed.observation, Known())
        return Seen(tuple(events), closed.observation, settled.outcome)

    def run(self, host: Host | None = None) -> Run:
        """Carries out the whole investigation."""
        path = self.stack / "playbook.yaml"
        means = Means(host, between_looks=0.5)
        with open_new(path, self.folder / "runs", {}, lambda _: None, means) as investigation:
            outcome = investigation.engine.run()
        return Run(outcome.verdict, outcome.code)

    # --- after ---------------------------------------------------------------------------------------

    def alive(self) -> list[int]:
        """The processes that run in the stack's folder, as the kernel says it."""
        found = []
        for place in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if place.readlink() == self.stack:
                    found.append(int(place.parent.name))
        return found

    def clear(self) -> None:
        """Ends the restored server, and whatever a failing product has left."""
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
