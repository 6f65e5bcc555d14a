"""The edge to a machine: what the agent asks of a host, and the values that come back.

A `Host` runs short commands and moves bytes. It knows nothing of attempts. Its errors are three:
`errors.Unreachable` (nothing is known), `DiskFull`, and any other `errors.TargetError` (the target
answered, and the answer is no).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bisect_agent import errors


class TimedOut(errors.Unreachable):
    """A command gave no exit status in its time. It was ended; what it had done is not known."""


class DiskFull(errors.TargetError):
    """There is no space left (or no quota) where something had to be written."""


@dataclass(frozen=True)
class Completed:
    """A command that ended. `returncode` is negative for a signal, 127 where there is no such program."""

    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Stat:
    """A file as it is now: bytes, what tells it from another file of that name, seconds since the epoch."""

    size: int
    identity: str
    mtime: float


class Host(Protocol):
    """A machine. Paths are absolute paths on it."""

    @property
    def name(self) -> str:
        """What a person calls it, for the beginning of a sentence: `local`, `gpu-box`."""
        ...

    @property
    def home(self) -> str:
        """The home folder of the user there."""
        ...

    @property
    def python(self) -> str:
        """The absolute path of a Python there, 3.6 or later."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """What commands there inherit."""
        ...

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Runs a command until its exit status is known, at most `timeout` seconds.

        It does not wait for the end of the output: a process left behind that holds it is no reason
        to hang.

        Raises:
            TimedOut: no exit status came; what was started was ended.
        """
        ...

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """Writes `path + ".part"`, durably, and returns that name; it can be verified before `rename`.

        Missing folders are made, for the owner alone.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Gives a file its name, replacing what had it; atomic and durable."""
        ...

    def read(self, path: str, offset: int, size: int) -> bytes | None:
        """At most `size` bytes from `offset`, none at or after the end; None where there is no such file."""
        ...

    def stat(self, path: str) -> Stat | None:
        """The file as it is now, or None where there is no such file."""
        ...
