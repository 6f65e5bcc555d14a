"""Records the operations of one thread into a list that can be replayed: what stream capture is on a GPU.

The recorder knows buffers, operations and threads, nothing else. Its one rule is the rule of stream
capture: what is recorded must not depend on work that is not recorded. Work of another thread is not
recorded, so an operation of the capturing thread that touches a buffer which such work has written
since the capture began is refused, and the capture is then beyond repair.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class CaptureError(RuntimeError):
    """An operation cannot be part of a capture, or the capture is already lost."""


class Buffer:
    """Memory with an identity: operations are ordered by the buffers that they share."""

    __slots__ = ("data", "name")

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.data = [0.0] * size


@dataclass(frozen=True)
class Operation:
    """Work on buffers. Its result may depend on nothing but what is in `reads` when it runs."""

    name: str
    run: Callable[[], None]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]


@dataclass
class Graph:
    """Operations in the order in which they were recorded."""

    operations: list[Operation] = field(default_factory=list)

    def replay(self) -> None:
        """Run the operations again, on whatever the buffers hold now."""
        for operation in self.operations:
            operation.run()


class Recorder:
    """Runs operations; while a capture is on, records those of the capturing thread instead."""

    def __init__(self) -> None:
        self._capture: Capture | None = None

    def launch(self, operation: Operation) -> None:
        """Run the operation now, or record it.

        Raises:
            CaptureError: the operation cannot be recorded.
        """
        capture = self._capture
        if capture is None:
            operation.run()
        elif capture.thread == threading.get_ident():
            capture.record(operation)
        else:
            operation.run()
            capture.uncaptured.update(operation.writes)

    def capture(self) -> Capture:
        """A capture of what the calling thread launches inside the `with` block."""
        return Capture(self)

    def begin(self, capture: Capture) -> None:
        """Record from now on."""
        if self._capture is not None:
            raise CaptureError("operation not permitted while another capture is running")
        self._capture = capture

    def end(self) -> None:
        """Run what is launched from now on."""
        self._capture = None


class Capture:
    """One recording, from `__enter__` to `__exit__`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._graph = Graph()
        self._lost = False
        self.thread = threading.get_ident()
        self.uncaptured: set[Buffer] = set()

    def __enter__(self) -> Graph:
        self._recorder.begin(self)
        return self._graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.end()
        if self._lost:
            raise CaptureError("operation failed due to a previous error during capture")

    def record(self, operation: Operation) -> None:
        """Append the operation, unless it depends on work that no replay would repeat."""
        if not self.uncaptured.isdisjoint(operation.reads + operation.writes):
            self._lost = True
            raise CaptureError("dependency created on uncaptured work in another thread")
        self._graph.operations.append(operation)
