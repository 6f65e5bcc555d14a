"""Messages between the parent and a rank: one JSON object a line, over the rank's stdin and stdout."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from enum import StrEnum
from typing import IO, TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable


class Kind(StrEnum):
    """What a message says."""

    JOINED = "joined"
    """Rank: I am up, and wait for the others."""
    START = "start"
    """Parent: all are up."""
    READY = "ready"
    """Rank: I can decode."""
    STEP = "step"
    """Parent: decode this token."""
    LOGITS = "logits"
    """Rank: the result of the step."""
    FAILED = "failed"
    """Rank: I have failed, and ask when to report."""
    REPORT = "report"
    """Parent: report now."""
    REPORTED = "reported"
    """Rank: my report is in the log."""


class Message(TypedDict):
    """A kind, and what belongs to it."""

    kind: Kind
    token: NotRequired[int]
    position: NotRequired[int]
    logits: NotRequired[list[float]]


class Link:
    """One end. Messages arrive on a thread of the link's own, which also learns of the other's end."""

    def __init__(
        self,
        incoming: IO[str],
        outgoing: IO[str],
        received: Callable[[Message], None],
        closed: Callable[[], None],
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._received = received
        self._closed = closed
        threading.Thread(target=self._read, name="link", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send a message; to an end that is gone, nothing is sent: `closed` will tell."""
        with contextlib.suppress(BrokenPipeError):
            # Straight to the pipe: a buffer would keep what a dead end did not take, and complain later.
            os.write(self._outgoing.fileno(), (json.dumps(message) + "\n").encode())

    def _read(self) -> None:
        for line in self._incoming:
            message: Message = json.loads(line)
            self._received({**message, "kind": Kind(message["kind"])})
        self._closed()
