"""The machine that the agent itself runs on."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bisect_agent import errors
from bisect_agent.hosts import Completed, DiskFull, Stat, TimedOut

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class LocalHost:
    """This machine, without a network between."""

    name = "local"
    python = sys.executable

    @property
    def home(self) -> str:
        """The home folder of who runs us."""
        return str(Path.home())

    @property
    def environment(self) -> Mapping[str, str]:
        """Our own."""
        return os.environ

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Runs a command until its exit status is known; see `Host.run`."""
        # Output goes to files, not pipes: a pipe ends when its last holder ends, which may be never.
        with (
            _sentences(f"run {argv[0]}"),
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            try:
                # A session of its own: Ctrl-C at our terminal is for us, not for our commands.
                process = subprocess.Popen(argv, stdin=given, stdout=out, stderr=err, start_new_session=True)
            except (FileNotFoundError, PermissionError) as error:
                return Completed(127, b"", f"{argv[0]}: {error.strerror}\n".encode())
            returncode = _exit_status(process, argv, timeout)
            return Completed(returncode, _contents(out), _contents(err))

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """Writes `path + ".part"` durably; see `Host.put`."""
        part = path + ".part"
        with _sentences(f"write {part}"):
            _make_folder(Path(part).parent)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
        return part

    def rename(self, source: str, target: str) -> None:
        """Gives a file its name; see `Host.rename`."""
        with _sentences(f"rename {source} to {target}"):
            Path(source).replace(target)
            _sync_folder(Path(target).parent)

    def read(self, path: str, offset: int, size: int) -> bytes | None:
        """At most `size` bytes from `offset`, or None where there is no such file."""
        with _sentences(f"read {path}"):
            try:
                with Path(path).open("rb", buffering=0) as file:
                    return os.pread(file.fileno(), size, offset)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def stat(self, path: str) -> Stat | None:
        """The file as it is now, or None where there is no such file."""
        with _sentences(f"look at {path}"):
            try:
                found = Path(path).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return Stat(found.st_size, f"{found.st_dev}:{found.st_ino}", found.st_mtime)


def _exit_status(process: subprocess.Popen[bytes], argv: Sequence[str], timeout: float) -> int:
    """The exit status, or `TimedOut` after everything in the command's own process group was killed."""
    try:
        return _poll(process, timeout)
    except BaseException as error:
        # The group is that of a child that we have not waited for: its number cannot be another's.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        command = shlex.join(argv)
        message = f"local: no exit status of `{command[:200]}` within {timeout:g} s; it was killed"
        raise TimedOut(message) from None


def _poll(process: subprocess.Popen[bytes], timeout: float) -> int:
    # Not `wait(timeout)`: the pauses between its looks grow to longer than most commands take.
    deadline = time.monotonic() + timeout
    while (returncode := process.poll()) is None:
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(process.args, timeout)
        time.sleep(0.002)
    return returncode


def _contents(file: IO[bytes]) -> bytes:
    # By position: the offset is shared with the command, and with whatever it left behind.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _make_folder(folder: Path) -> None:
    for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _sentences(deed: str) -> Iterator[None]:
    """Turns the system's errors into ours, each with what could not be done."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            message = f"local: cannot {deed}: {error.strerror}"
            raise DiskFull(message, "free some space there, then resume") from error
        raise errors.TargetError(f"local: cannot {deed}: {error.strerror}") from error
