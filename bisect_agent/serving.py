"""Whether a server serves: who listens, whether it is healthy, what it answers to one real request.

All of it is asked on the target, where 127.0.0.1 is the server's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Literal

from bisect_agent.model import HttpAnswer, HttpWitness, Playbook, Serving
from bisect_agent.target.launcher import Launcher, Listener, Probe, Request

HEALTH = 5.0
"""Seconds that one health check may take."""


def ask(playbook: Playbook, launcher: Launcher, attempt: str | None, wait: Callable[[], bool]) -> Serving:
    """Waits for a listener and for health, then sends the playbook's request once, and asks the witnesses.

    `attempt` is the one whose processes are ours, None where nobody's are. `wait` lets a moment pass and
    says whether there is still time for another look.
    """
    port, observe = playbook.target.ports[0], playbook.observe
    health = [Request(port, observe.ready_http, HEALTH)] if observe.ready_http else []
    seen = launcher.probe(attempt, [port], health)
    while not _well(seen) and wait():
        seen = launcher.probe(attempt, [port], health)
    answer: HttpAnswer | None = None
    witnesses: dict[str, HttpAnswer] = {}
    if _well(seen):
        if observe.request:
            asked = Request(port, observe.request.path, playbook.limits.request, observe.request.body)
            answer = launcher.probe(attempt, [], [asked]).http[0]
        paths = list(
            dict.fromkeys(f.witness.http for f in playbook.factors if isinstance(f.witness, HttpWitness))
        )
        reports = [Request(port, path, HEALTH) for path in paths]
        witnesses = dict(zip(paths, launcher.probe(attempt, [], reports).http if paths else (), strict=True))
    return Serving(
        listener=_listener(seen.ports[port]),
        health=seen.http[0] if seen.http else None,
        request=answer,
        witnesses=witnesses,
    )


def _well(seen: Probe) -> bool:
    """Whether somebody listens and every health check was answered with success."""
    heard = all(answer.status is not None and 200 <= answer.status < 300 for answer in seen.http)
    return heard and all(seen.ports.values())


def _listener(found: Sequence[Listener]) -> Literal["ours", "foreign", "nobody"]:
    if not found:
        return "nobody"
    return "ours" if all(listener.ours for listener in found) else "foreign"


def held(launcher: Launcher, ports: Sequence[int]) -> tuple[int, ...]:
    """Which of these ports somebody listens on."""
    found = launcher.probe(None, ports).ports if ports else {}
    return tuple(port for port, listeners in found.items() if listeners)


def busy(launcher: Launcher, ports: Sequence[int]) -> str:
    """Who holds which of these ports, as a sentence; empty where all are free."""
    found = launcher.probe(None, ports).ports if ports else {}
    return "; ".join(
        f"port {port} is held by pid {listener.pid or 'unknown'} {listener.name} of {listener.user}"
        f"{_left_by(listener)}"
        for port, listeners in found.items()
        for listener in listeners
    )


def _left_by(listener: Listener) -> str:
    """Which run has left a server running, if one has."""
    run = PurePosixPath(listener.attempt).parent.name
    return f", left running by run {run}: `bisect-agent stop` ends it" if run else ""
