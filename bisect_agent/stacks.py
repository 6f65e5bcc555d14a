"""What the processes of an attempt do at one moment, and what moved between two. Pure.

A log that stands still may be that of a server that is stuck, or of one that works hard on something it
does not tell of. Two looks at the stacks, some seconds apart, tell the two from each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bisect_agent.model import FileLine, Frozen, Process

CAP = 256 * 1024
"""The most bytes kept of one look."""
BUSY = 0.1
"""The share of one core from which on a process counts as busy; idle servers with many threads use less."""

_SHOWN = 400
_NAMED = 3
_LABEL = re.compile(r"\((?:idle|active)(?:\+\w+)?\)")
"""How py-spy calls the state of a thread: a guess from the moment's run queue, no part of the stack."""
_FRAME = re.compile(r"^\s+\S.* \((?P<file>[^()]+\.py):\d+\)$")
_WAITERS = frozenset(
    {
        "_base.py", "base_events.py", "connection.py", "events.py", "popen_fork.py", "popen_spawn_posix.py",
        "process.py", "queue.py", "queues.py", "runners.py", "selectors.py", "socket.py", "socketserver.py",
        "ssl.py", "subprocess.py", "synchronize.py", "thread.py", "threading.py",
    }
)  # fmt: skip
"""Files of Python's own library in which a thread waits: who called them is what a person asks."""
_THREADS = re.compile(r"^  \d+ threads?: ")
_PARENT = "do_wait"
"""The wait of a process for its child: a shell's, most often."""


class ThreadState(Frozen):
    """A thread: its state as in /proc, what it waits in, the kernel's frames (for root only), CPU seconds."""

    tid: int
    name: str
    state: str
    wait: str = ""
    kernel: tuple[str, ...] = ()
    cpu: float = 0.0


class ProcessState(Frozen):
    """A process with its threads. `python` is what py-spy says; `error` why it says nothing."""

    process: Process
    command: str = ""
    cpu: float = 0.0
    python: str = ""
    error: str = ""
    threads: tuple[ThreadState, ...] = ()


class Look(Frozen):
    """The processes of an attempt at one moment; `time` is of the target's clock that never goes back.

    `cut`: there were more threads, or less time, than one look has room for.
    """

    time: float
    processes: tuple[ProcessState, ...]
    cut: bool = False


def moved(first: Look, second: Look) -> str:
    """What moved between two looks, as a short list; empty where nothing did."""
    found = list(_differences(first, second))
    more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _differences(first: Look, second: Look) -> Iterator[str]:
    before = {(p.process.pid, p.process.start): p for p in first.processes}
    after = {(p.process.pid, p.process.start): p for p in second.processes}
    seconds = second.time - first.time
    for key in sorted(before.keys() & after.keys()):
        was, now = before[key], after[key]
        used = now.cpu - was.cpu
        if used >= BUSY * seconds:
            yield f"{_name(now)} used {used:.1f} s of CPU in {seconds:.1f} s"
        elif _stack(was) != _stack(now):
            yield f"the stack of {_name(now)} changed"
    yield from (f"{_name(after[key])} was born" for key in sorted(after.keys() - before.keys()))
    yield from (f"{_name(before[key])} ended" for key in sorted(before.keys() - after.keys()))


def _name(state: ProcessState) -> str:
    return f"process {state.process.pid} {state.process.name}".strip()


def _stack(state: ProcessState) -> object:
    """Where its threads are: by Python's frames, else by the kernel's.

    A thread that runs at that moment has no place to compare; the CPU it uses tells of it.
    """
    if state.python:
        return _LABEL.sub("", state.python)
    return {t.tid: (t.wait, t.kernel) for t in state.threads if t.state != "R"}


def render(look: Look) -> str:
    """A look as text, for people."""
    text: list[str] = []
    for state in look.processes:
        text.append(f"{_name(state)}, {state.cpu:.2f} s of CPU: {state.command or '(no command line)'}")
        text += [f"  {line}".rstrip() for line in state.python.splitlines()]
        text += [f"  no Python stack: {state.error}"] if state.error else []
        text += _grouped(state.threads)
        text.append("")
    if look.cut:
        text.append("There was more than one look has room for.")
    return "\n".join(text) + "\n"


def _grouped(threads: tuple[ThreadState, ...]) -> Iterator[str]:
    """The kernel's view; threads that do the same are told of once."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[ThreadState]] = {}
    for thread in threads:
        groups.setdefault((thread.state, thread.wait, thread.kernel), []).append(thread)
    for (state, wait, kernel), members in groups.items():
        who = ", ".join(f"{t.tid} {t.name} ({t.cpu:.2f} s)" for t in members)
        count = f"{len(members)} thread{'s' if len(members) > 1 else ''}"
        yield f"  {count}: state {state}{f', waits in {wait}' if wait else ''}: {who}"
        yield from (f"      {frame}" for frame in kernel)


def capped(text: str) -> bytes:
    """The bytes of a text, whole lines up to the cap."""
    data = text.encode(errors="surrogateescape")
    return data if len(data) <= CAP else data[: data.rfind(b"\n", 0, CAP) + 1]


def telling(data: bytes) -> FileLine | None:
    """The line of a rendered look that a person should see first.

    The first Python frame that is not of the library's own waiting; where there is none, the first
    threads that do not wait for a child.
    """
    shown = lines(data)
    frames = [line for line in shown if _interesting(line.text)]
    threads = [line for line in shown if _THREADS.match(line.text)]
    waiting = [line for line in threads if f"waits in {_PARENT}:" not in line.text]
    return next(iter((*frames, *waiting, *threads)), None)


def _interesting(text: str) -> bool:
    frame = _FRAME.match(text)
    return frame is not None and frame["file"].rpartition("/")[2] not in _WAITERS


def lines(data: bytes) -> list[FileLine]:
    """The lines of a file, each with its place."""
    found, offset = [], 0
    for number, raw in enumerate(data.splitlines(keepends=True), 1):
        text = raw.rstrip(b"\r\n").decode(errors="replace")
        found.append(FileLine(line=number, offset=offset, text=text[:_SHOWN]))
        offset += len(raw)
    return found
