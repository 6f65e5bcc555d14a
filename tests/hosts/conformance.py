"""What the suite for all hosts needs: hosts of each kind, and a folder on each that can be looked into."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bisect_agent.hosts import Host
from bisect_agent.hosts.local import LocalHost
from tests.hosts.sshd import network, plain_user, server

KINDS = ("local", "ssh", "ssh as a plain user", "ssh through a network")


@dataclass(frozen=True)
class Place:
    """A host, a second agent's way to it, and an empty folder there, of its own user."""

    host: Host
    other: Host
    folder: Path

    def path(self, name: str) -> str:
        """A name in that folder."""
        return str(self.folder / name)


@contextmanager
def hosts(kind: str) -> Iterator[tuple[Host, Host]]:
    """Two hosts of a kind that are one machine."""
    if kind == "local":
        yield LocalHost(), LocalHost()
        return
    with ExitStack() as stack:
        net = stack.enter_context(network()) if kind == "ssh through a network" else None
        sshd = stack.enter_context(server(net))
        user = stack.enter_context(plain_user(sshd)) if kind == "ssh as a plain user" else ""
        config = sshd.config(user=user)
        yield sshd.host(config), sshd.host(config)


@contextmanager
def place(host: Host, other: Host) -> Iterator[Place]:
    """A new folder on a host."""
    made = host.run(("mktemp", "-d"), timeout=10)
    folder = Path(made.stdout.decode().strip())
    try:
        yield Place(host, other, folder)
    finally:
        host.run(("rm", "-rf", str(folder)), timeout=10)


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for a condition; the test's time limit is the bound."""
    while not holds():
        time.sleep(0.01)


def lives(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
