"""A scene: a playbook with a small real stack, carried out by the real product in a folder of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from bisect_agent import playbook as playbooks
from bisect_agent.attempt import Clock, Edge, Task, carry_out
from bisect_agent.engine import Outcome
from bisect_agent.events import Closed, Entry, OfAttempt
from bisect_agent.folder import RunFolder
from bisect_agent.hosts import Host
from bisect_agent.hosts.local import LocalHost
from bisect_agent.investigation import SystemClock, open_new, stop_restored
from bisect_agent.judge import Known, judge
from bisect_agent.model import Evidence, Failed, Observation, Passed, Settled, Symptom, Trial, Unresolved
from bisect_agent.target.launcher import Launcher

SERVER = Path(__file__).with_name("launch_server.py")

COMPILE = {"compile": {"flags": {"off": [], "on": ["--enable-torch-compile"]}}}
"""The one factor of most scenes; a launch script sees it as its first argument."""

_Event = TypeVar("_Event")


@dataclass(frozen=True)
class Seen:
    """One attempt: its events with the moment of each (seconds of a clock), and what was made of it."""

    events: tuple[tuple[float, OfAttempt], ...]
    observation: Observation
    settled: Settled

    def at(self, kind: type[OfAttempt]) -> float | None:
        """When an event of that kind came; None where there was none."""
        return next((moment for moment, event in self.events if isinstance(event, kind)), None)

    @property
    def symptom(self) -> Symptom:
        """What failed."""
        assert isinstance(self.settled.outcome, Failed), self.settled.outcome
        return self.settled.outcome.symptom

    @property
    def unresolved(self) -> Unresolved:
        """Why it says nothing."""
        assert isinstance(self.settled.outcome, Unresolved), self.settled.outcome
        return self.settled.outcome

    @property
    def passed(self) -> Passed:
        """How it was seen to work."""
        assert isinstance(self.settled.outcome, Passed), self.settled.outcome
        return self.settled.outcome


@dataclass(frozen=True)
class Run:
    """One investigation: how it ended, what was recorded, and where."""

    outcome: Outcome
    entries: tuple[Entry, ...]
    folder: RunFolder

    def labels(self) -> list[str]:
        """What each trial was, in order."""
        return [
            trial.control
            for entry in self.entries
            if (trial := getattr(entry.event, "trial", None)) and isinstance(trial, Trial)
            for _ in [trial]
        ]


@dataclass
class Scene:
    """A folder with the stack's files, the target's files and the run folders."""

    folder: Path
    port: int = 0
    runs: list[RunFolder] = field(default_factory=list)
