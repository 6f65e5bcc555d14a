"""Takes the target for one run, and has it guarded: what the guardian there is to do, should we be lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from bisect_agent.edge import Edge, order
from bisect_agent.errors import TargetError
from bisect_agent.events import AnyEvent, GuardianActed, RunState, TargetGuarded
from bisect_agent.folder import digest
from bisect_agent.model import Command, Playbook
from bisect_agent.owners import OUT, command_script
from bisect_agent.playbook import files
from bisect_agent.report.words import acted
from bisect_agent.serving import HEALTH
from bisect_agent.target.launcher import Plan, Request

LOOK = 1.0
"""Seconds between two looks at a guardian that is at work."""


class Held(TargetError):
    """Another run has the target, so nothing of it is ours."""


def take(
    playbook: Playbook,
    target: int,
    edge: Edge,
    holder: str,
    locks: str,
    state: RunState,
    say: Callable[[str], None],
) -> tuple[AnyEvent, ...]:
    """Takes a target, waiting for a guardian of this run that is at work there; what there is to record.

    Args:
        playbook: what the guardian restores.
        target: its number.
        edge: how it is reached.
        holder: who we are, for a person who finds the target taken.
        locks: the folder, on the target, of the locks.
        state: what is known of earlier guardians.
        say: is told, once, that we wait.

    Raises:
        Held: another investigation holds the target.
        Setback: the target gives no answer.
    """
    plan = _plan(playbook.at(target), edge, holder, locks)
    waits = False
    while (found := edge.launcher.guard(plan)).acting is not None:
        if not waits:
            say(f"{edge.host.name}: the guardian is at work: {acted(found.acting)}")
            waits = True
        edge.clock.sleep(LOOK)
    if found.held:
        raise Held(_held(edge.host.name, found.held), _REMEDY)
    assert found.fence is not None
    assert found.guardian is not None
    fresh = state.on(target).unheard(found.reports)
    acts = (GuardianActed(target=target, takeover=takeover) for takeover in fresh)
    return *acts, TargetGuarded(target=target, fence=found.fence, guardian=found.guardian)


_REMEDY = "wait for its end; where its agent is gone, `bisect-agent resume` goes on with it"


def _held(host: str, held: Mapping[str, str]) -> str:
    others = "; ".join(f"another investigation holds {name}: {holder}" for name, holder in held.items())
    return f"{host}: {others}"


def _plan(playbook: Playbook, edge: Edge, holder: str, locks: str) -> Plan:
    """What the guardian is to do; `good` lies prepared for it, and is started only by it."""
    restore, observe = playbook.restore, playbook.observe
    port = playbook.target.ports[0] if playbook.target.ports else 0
    health = [Request(port, observe.ready_http, HEALTH)] if observe.ready_http else []
    asked = observe.request
    return Plan(
        locks={name: f"{locks}/{name}.lock" for name in _lock_names(playbook)},
        holder=holder,
        lease=playbook.limits.lease,
        good=_prepared(playbook, edge) if restore == "good" else None,
        command=command_script(playbook, edge, "restore", restore.command)
        if isinstance(restore, Command)
        else None,
        put_back=[edge.launcher.putting_back(path) for path in files(playbook, playbook.good)],
        touched=f"stop{OUT}",
        ports=playbook.target.ports,
        health=health,
        request=[Request(port, asked.path, playbook.limits.request, asked.body)] if asked else [],
        start=playbook.limits.start,
    )


def _prepared(playbook: Playbook, edge: Edge) -> str:
    """The name of a folder on the target from which `good` can be started."""
    tag = secrets.token_hex(16)
    name = f"guard-{tag[:8]}"
    edge.launcher.prepare(name, order(playbook, edge, playbook.good, name, tag, keep=True))
    return name


def _lock_names(playbook: Playbook) -> list[str]:
    """What one investigation at a time may use: each port; for a job, the folder that it runs in."""
    if playbook.target.ports:
        return [f"port-{port}" for port in sorted(playbook.target.ports)]
    return [f"folder-{digest(playbook.target.cwd.encode())[:16]}"]
