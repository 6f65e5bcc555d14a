"""Pointwise work of a layer: as it is written, or compiled into one function."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from recorder import Operation, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROW_MULTIPLE = 64
"""Compiled code wants the rows of the cache in whole multiples of this; the rest is padding."""


class Stream(Protocol):
    """Where compiled work is run."""

    def run(self, work: Callable[[], None]) -> None:
        """Run the work to its end."""


class SideStream:
    """A thread of its own: the caller's thread is kept for the large matrix products."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="side-stream")

    def run(self, work: Callable[[], None]) -> None:
        """Hand the work over and join."""
        self._thread.submit(work).result()


class CallersStream:
    """The thread that asks."""

    def run(self, work: Callable[[], None]) -> None:
        """Run the work here."""
        work()


STREAM: type[Stream] = SideStream
"""Where the compiler puts what it has fused."""


class Pointwise(Protocol):
    """Carries out a layer's pointwise operations."""

    def rows(self, rows: int) -> int:
        """The rows that the cache must have for at least this many tokens."""

    def launch(self, operations: Sequence[Operation]) -> None:
        """Run these operations in order, or have them recorded."""


class Eager:
    """One launch for each operation."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def rows(self, rows: int) -> int:
        """No padding."""
        return rows

    def launch(self, operations: Sequence[Operation]) -> None:
        """Launch them one after the other."""
        for operation in operations:
            self._recorder.launch(operation)


class Compiled:
    """One launch for all of them: they are fused, and the fused function is kept."""

    def __init__(self, recorder: Recorder, *, inner_graphs: bool, say: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._inner_graphs = inner_graphs
        self._say = say
        self._stream = STREAM()
        self._fused: dict[tuple[Operation, ...], Operation] = {}

    def rows(self, rows: int) -> int:
        """Padded to whole multiples."""
        return -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE

    def launch(self, operations: Sequence[Operation]) -> None:
        """Launch the fused function on the compiler's stream, and wait for it."""
        fused = self._compile(tuple(operations))
        self._stream.run(lambda: self._recorder.launch(fused))

    def _compile(self, operations: tuple[Operation, ...]) -> Operation:
        if operations not in self._fused:
            if not self._fused:
                self._say(f"inner graphs: {'on' if self._inner_graphs else 'off'}")
            self._fused[operations] = fuse(operations, inner_graph=self._inner_graphs)
        return self._fused[operations]


def fuse(operations: tuple[Operation, ...], *, inner_graph: bool) -> Operation:
    """One operation with the effect of several; with an inner graph it replays a recording of them."""
    reads = tuple(dict.fromkeys(b for operation in operations for b in operation.reads))
    writes = tuple(dict.fromkeys(b for operation in operations for b in operation.writes))
    name = "fused " + "+".join(operation.name for operation in operations)
    return Operation(name, _recorded(operations) if inner_graph else _chained(operations), reads, writes)


def _chained(operations: tuple[Operation, ...]) -> Callable[[], None]:
    def run() -> None:
        for operation in operations:
            operation.run()

    return run


def _recorded(operations: tuple[Operation, ...]) -> Callable[[], None]:
    inner = Recorder()
    with inner.capture() as graph:
        for operation in operations:
            inner.launch(operation)
    return graph.replay
