"""The run folder: where everything of a run lies, and how it is named."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from bisect_agent.errors import DamagedRun, RunFolderFull
from bisect_agent.journal import NAME as JOURNAL
from bisect_agent.model import Playbook, Trial

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PLAYBOOK: Final = "playbook.yaml"
RESOLVED: Final = "resolved.json"
VERDICT: Final = "verdict.json"
LOG: Final = "server.log"
SCRIPT: Final = "launch.sh"
ENV: Final = "env"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def canonical(value: BaseModel) -> bytes:
    """The one way in which a value is written as JSON: fields as declared, two spaces, a final newline.

    Keys are not sorted: the order of factors and levels means something.
    """
    return json.dumps(value.model_dump(mode="json"), indent=2, ensure_ascii=False).encode() + b"\n"


def digest(data: bytes) -> str:
    """The sha256 of some bytes, in hexadecimal."""
    return sha256(data).hexdigest()


def run_name(title: str, now: float, token: str) -> str:
    """The name of a run: when it began (UTC), what it is about, and something that makes it unique."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:32].strip("-")
    return f"{stamp}-{slug or 'run'}-{token}"


def attempt_path(trial: Trial, attempt: int) -> str:
    """Where an attempt's files lie, from the run folder."""
    label = re.sub(r"[^A-Za-z0-9._=,+-]+", "_", trial.label)[:64]
    name = trial.id if trial.control == "restore" else f"{trial.id}-{label}"
    return f"trials/{name}/{attempt}"


class RunFolder:
    """One run's folder, for its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, playbook: bytes, resolved: Playbook) -> RunFolder:
        """Lays out a new run folder with the playbook as it was read and as it was understood."""
        folder = cls(path)
        with folder.room():
            path.mkdir(mode=0o700, parents=True)
        folder.write(PLAYBOOK, playbook)
        folder.write(RESOLVED, canonical(resolved))
        return folder

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.path / JOURNAL

    def write(self, name: str, data: bytes) -> None:
        """Writes a file whole or not at all, for the owner alone."""
        with self.room():
            target = self._place(name)
            part = target.with_name(target.name + ".part")
            with open(part, "wb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)

    @contextmanager
    def room(self) -> Iterator[None]:
        """Writing to the run folder.

        Raises:
            RunFolderFull: there is no room left for what was to be written.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            raise RunFolderFull(
                f"{self.path}: {error.strerror}: nothing more can be recorded;"
                " what was started is ended, and `good` is not restored",
                f"free some space there, then: bisect-agent resume {self.path}",
            ) from error

    def read(self, name: str) -> bytes:
        """A file of the run.

        Raises:
            DamagedRun: it is not there.
        """
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise DamagedRun(f"{name}: {error.strerror or error}") from error

    def resolved(self) -> Playbook:
        """The playbook as it was understood when the run began."""
        try:
            return Playbook.model_validate_json(self.read(RESOLVED))
        except ValueError as error:
            raise DamagedRun(f"{RESOLVED}: {str(error).splitlines()[0]}") from error

    def grow(self, name: str) -> io.FileIO:
        """A new file of the run, open for writing at its end, unbuffered.

        The bytes are with the kernel when a write returns: a crash of ours loses none of them.
        """
        with self.room():
            return _Growing(self._place(name), self)

    def set_aside(self, name: str) -> None:
        """Gives way to a new folder of that name: what is there is kept under another one."""
        place = self.path / name
        if place.exists():
            taken = len(list(place.parent.glob(f"{place.name}.lost-*")))
            place.rename(place.with_name(f"{place.name}.lost-{taken + 1}"))

    def _place(self, name: str) -> Path:
        """Where a file goes; the folders above it are made, each for the owner alone."""
        target = self.path / name
        # Not `parents=True`: the folders between would be open to others.
        for folder in reversed(target.relative_to(self.path).parents):
            (self.path / folder).mkdir(mode=0o700, exist_ok=True)
        return target


class _Growing(io.FileIO):
    """A file of a run folder that is written as it comes."""

    def __init__(self, place: Path, folder: RunFolder) -> None:
        super().__init__(place, "w", opener=_private)
        self._folder = folder

    def write(self, data: ReadableBuffer) -> int:
        """Writes some of the data, as `RunFolder.room` says."""
        with self._folder.room():
            return super().write(data) or 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
