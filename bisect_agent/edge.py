"""What an attempt is given: the world that it may touch, and what is to be carried out there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bisect_agent.clock import Clock
from bisect_agent.events import Attempt as Begun
from bisect_agent.events import OfAttempt
from bisect_agent.facts import Fact
from bisect_agent.hosts import Host
from bisect_agent.model import FIRST, Configuration, Fingerprint, Playbook, Trial
from bisect_agent.playbook import arguments, environment, files, script
from bisect_agent.standstill import BETWEEN_LOOKS
from bisect_agent.target.launcher import CALL, Launcher, Order

BOUND = 10.0
"""Seconds after the kill in which all must be gone; what is not makes the target dirty."""
CACHES = "caches"
"""The folder, in the attempt's own on the target, for the caches that are to be empty at its start."""

SMI = 10.0
"""Seconds for nvidia-smi: one that waits for a driver that is gone waits for ever."""
MEMORY_BACK = 30.0
"""Seconds after a stop in which GPUs must be as free as before; an H200 needs 0.3 s after a SIGKILL."""


@dataclass(frozen=True)
class Edge:
    """What an attempt touches the world with.

    `folder` and `python` are the target's; `ours` is our own environment, `secrets` what is masked.
    `between_looks` are the seconds between two looks at the stacks of an attempt whose time is over.
    nvidia-smi gets `smi` seconds, and within `memory_back` the memory of the GPUs must be free after a stop.
    """

    host: Host
    launcher: Launcher
    folder: str
    python: str
    clock: Clock
    ours: Mapping[str, str]
    secrets: tuple[str, ...]
    between_looks: float = BETWEEN_LOOKS
    smi: float = SMI
    memory_back: float = MEMORY_BACK


@dataclass(frozen=True)
class Task:
    """What is to be carried out, with the playbook as it is on the target of that number.

    `keep` leaves a server that answers running, for the restore; `answer` is what `good` answered.
    `begun` is how far an earlier process of ours came with this very attempt. `baseline` is what the target
    was before the first trial; None where nobody looked.
    """

    playbook: Playbook
    trial: Trial
    attempt: int
    tag: str
    target: int = FIRST
    keep: bool = False
    answer: str | None = None
    begun: Begun | None = None
    baseline: Fingerprint | None = None


def learn(edge: Edge, fact: Fact) -> str:
    """What a read-only fact of the target is now."""
    return fact.parse(edge.host.run(fact.command, timeout=CALL).stdout.decode(errors="replace"))


def order(
    playbook: Playbook, edge: Edge, configuration: Configuration, name: str, tag: str, *, keep: bool
) -> Order:
    """What the target is told to start, in the folder of that name, where this configuration is to run.

    A server to `keep` is one that is restored.
    """
    caches = f"{edge.folder}/{name}/{CACHES}"
    return Order(
        script=script(playbook, configuration).encode(),
        arguments=arguments(playbook, configuration),
        env={
            **environment(playbook, configuration, edge.ours),
            **{variable: f"{caches}/{cache}" for variable, cache in playbook.caches.items()},
        },
        files=files(playbook, configuration),
        cwd=playbook.target.cwd,
        tag=tag,
        purpose="restore" if keep else "trial",
        grace=playbook.limits.stop,
        bound=BOUND,
    )


Emit = Callable[[OfAttempt], None]
"""Records an event; returns when it is on the disk, so that no deed comes before its record."""
