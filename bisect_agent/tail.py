"""Reads a growing log from an offset. Missing, nothing new and unreachable are three answers.

No byte is handed out before the log's first line has shown that it is this attempt's, and none that
was read while the file under that name was replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from bisect_agent import errors
from bisect_agent.hosts import Host

LIMIT = 1 << 20
"""The most bytes handed out by one poll."""
FOUND = 4096
"""The most bytes shown of a log that is not ours."""


@dataclass(frozen=True)
class NewBytes:
    """What was written since the last poll, the first line too; `offset` is that of its first byte."""

    data: bytes
    offset: int


@dataclass(frozen=True)
class Nothing:
    """The log is there and has not grown; its first line may still be on its way."""


@dataclass(frozen=True)
class Missing:
    """There is no such file."""


@dataclass(frozen=True)
class Stale:
    """The file begins with something else than this attempt's first line: another writer's log.

    `found` is how; it may hold secrets.
    """

    found: bytes


@dataclass(frozen=True)
class Shrunk:
    """The file is shorter than what was already read of it."""

    size: int
    offset: int


@dataclass(frozen=True)
class Overwritten:
    """The file no longer begins as it did: it was cut, and has grown again."""


@dataclass(frozen=True)
class Replaced:
    """Another file has the log's name now."""


@dataclass(frozen=True)
class Unreachable:
    """The host gave no answer: nothing is known about the log."""

    detail: str


NoBytes = Nothing | Missing | Stale | Shrunk | Overwritten | Replaced | Unreachable
Poll = NewBytes | NoBytes


class Tail:
    """A place in one log.

    Args:
        host: where the log is.
        path: its absolute path there.
        first_line: what it must begin with, newline included.

    `size` is the log's, in bytes, as it was last seen.
    """

    def __init__(self, host: Host, path: str, first_line: bytes) -> None:
        self._host = host
        self._path = path
        self._first_line = first_line
        self._identity: str | None = None
        self._offset = 0
        self.size = 0

    def poll(self) -> Poll:
        """What the log has to say now. Never raises for a host that does not answer."""
        try:
            return self._poll()
        except errors.Unreachable as error:
            return Unreachable(error.message)

    def _poll(self) -> Poll:
        if self._identity is None:
            first_seen = self._host.stat(self._path)
            if first_seen is None:
                return Missing()
            self._identity = first_seen.identity
        # The file is looked at after it was read: if it is still the one first seen, so are the bytes.
        data = self._host.read(self._path, self._offset, LIMIT)
        stat = self._host.stat(self._path)
        if data is None or stat is None:
            return Missing()
        if stat.identity != self._identity:
            return Replaced()
        self.size = stat.size
        if stat.size < self._offset:
            return Shrunk(stat.size, self._offset)
        if self._offset == 0:
            return self._begin(data)
        # Looked at after the bytes were read, too: what was cut later leaves them true.
        if data and self._host.read(self._path, 0, len(self._first_line)) != self._first_line:
            return Overwritten()
        return self._advance(data)

    def _begin(self, data: bytes) -> Poll:
        begin = data[: len(self._first_line)]
        if not self._first_line.startswith(begin):
            return Stale(data[:FOUND])
        return self._advance(data) if begin == self._first_line else Nothing()

    def _advance(self, data: bytes) -> Poll:
        if not data:
            return Nothing()
        offset = self._offset
        self._offset += len(data)
        return NewBytes(data, offset)
