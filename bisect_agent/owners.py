"""The owners' own server: ended by their command before the first start, brought back by theirs at the end.

Such a server is not ours: it is not in our tree, its log is not read. What it is asked to be is what its
users see: it listens, is healthy, and answers as `good` did.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from bisect_agent.answers import complaint
from bisect_agent.edge import Edge
from bisect_agent.hosts import TimedOut
from bisect_agent.model import Kind, Playbook, Serving
from bisect_agent.playbook import plain_environment, prelude
from bisect_agent.secrets import Masker
from bisect_agent.serving import ask, held
from bisect_agent.watching import HEALTH_EVERY

STOP = 300.0
"""Seconds that the command which ends the owners' server may take, and then the ports to be free."""
OUT = ".out"
"""How the file is called, after the command's purpose, into which it prints."""
SAID = 4096
"""Characters kept of what a command printed: its end says how it went."""


@dataclass(frozen=True)
class Ran:
    """How a command ended: its exit code, None where it did not end in its time, and what it printed."""

    code: int | None
    said: str


def run_command(playbook: Playbook, edge: Edge, name: str, command: str, timeout: float) -> Ran:
    """Runs a command of the playbook's as its launch script would run, without any factor's level.

    It reads nothing, and prints into a file of our folder: what it leaves running may hold that file for
    as long as it likes. Its secrets are given on standard input, where no list of processes shows them.
    """
    out = f"{edge.folder}/{name}{OUT}"
    script = command_script(playbook, edge, name, command)
    edge.launcher.renew(timeout)
    try:
        ended = edge.host.run(("env", "-i", "bash", "-s"), timeout=timeout, stdin=script.encode())
        code = ended.returncode
    except TimedOut:
        code = None
    stat = edge.host.stat(out)
    # Twice as much is read: where it begins may be in the middle of a secret.
    said = edge.host.read(out, max(0, stat.size - 2 * SAID), 2 * SAID) if stat else b""
    return Ran(code, Masker(edge.secrets).mask((said or b"").decode(errors="replace"))[-SAID:].strip())


def command_script(playbook: Playbook, edge: Edge, name: str, command: str) -> str:
    """The shell script of a command that prints into `name` with OUT in our folder."""
    out = shlex.quote(f"{edge.folder}/{name}{OUT}")
    return (
        f"{prelude(plain_environment(playbook, edge.ours), playbook.target.cwd)}"
        f"mkdir -p -m 700 -- {shlex.quote(edge.folder)}\n"
        f"{{\n{command}\n}} </dev/null >{out} 2>&1\n"
    )


def ports_free(playbook: Playbook, edge: Edge, ran: Ran, left: Callable[[], bool]) -> bool:
    """Whether nobody listens on the playbook's ports; it is waited for where the command ended well."""
    seconds = STOP if ran.code == 0 else 0.0
    return _until(edge, seconds, lambda: not held(edge.launcher, playbook.target.ports), left)


def answering(playbook: Playbook, edge: Edge, answer: str | None, left: Callable[[], bool]) -> str:
    """Waits until the owners' server serves again; what is wrong with it in the end, empty where nothing is.

    A job's owners have no server to ask.
    """
    if playbook.kind is Kind.JOB:
        return ""
    deadline = edge.clock.monotonic() + playbook.limits.start
    wrong = ""

    def wait() -> bool:
        edge.clock.sleep(HEALTH_EVERY)
        return edge.clock.monotonic() < deadline and not left()

    def serves() -> bool:
        nonlocal wrong
        serving: Serving = Masker(edge.secrets).said(ask(playbook, edge.launcher, None, wait))
        found = complaint(serving, playbook.observe.request, answer)
        wrong = found.text if found else ""
        return found is None

    _until(edge, playbook.limits.start, serves, left)
    return wrong


def _until(edge: Edge, seconds: float, seen: Callable[[], bool], left: Callable[[], bool]) -> bool:
    """Looks again and again, for so many seconds, until something is seen, or the run is `left`."""
    deadline = edge.clock.monotonic() + seconds
    while not seen():
        if edge.clock.monotonic() >= deadline or left():
            return False
        edge.clock.sleep(HEALTH_EVERY)
    return True
