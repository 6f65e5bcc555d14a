"""The journal: events as lines, each with the hash of the line before; one writer; a torn tail is seen.

A line is compact JSON: `{"n": number, "v": 1, "at": seconds, "event": {...}, "previous": sha256, "own":
sha256}`. `previous` is of the line before and finds a line taken out; `own` is of all the rest of the line
and finds a damaged one, the last one too. Neither proves who wrote it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from bisect_agent.errors import DamagedRun, UsageError
from bisect_agent.events import EVENT, SCHEMA, AnyEvent, Entry

NAME = "journal.jsonl"
FIRST = hashlib.sha256(b"").hexdigest()
"""What the first line has for `previous`."""


def encode(entry: Entry, previous: str) -> bytes:
    """The line of an entry, newline included."""
    record = {
        "n": entry.number,
        "v": SCHEMA,
        "at": round(entry.at, 6),
        "event": EVENT.dump_python(entry.event, mode="json"),
        "previous": previous,
    }
    return _compact({**record, "own": hashlib.sha256(_compact(record)).hexdigest()}) + b"\n"


def _compact(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def chain(entries: Iterable[Entry]) -> bytes:
    """A whole journal of these entries, each with the hash of the one before."""
    lines: list[bytes] = []
    for entry in entries:
        lines.append(encode(entry, head(b"".join(lines[-1:]))))
    return b"".join(lines)


def head(data: bytes) -> str:
    """The sha256 of a journal's last line: what a next one has for `previous`."""
    lines = data.rsplit(b"\n", 2)
    return hashlib.sha256(lines[-2]).hexdigest() if len(lines) > 1 else FIRST


def decode(data: bytes, name: str = NAME) -> tuple[Entry, ...]:
    """Every entry of a journal's bytes.

    Raises:
        DamagedRun: naming the first line that is torn, altered, or out of its place.
    """
    entries, _, damage = intact(data, name)
    if damage:
        raise damage
    return entries


def intact(data: bytes, name: str = NAME) -> tuple[tuple[Entry, ...], int, DamagedRun | None]:
    """The entries up to the first damage, how many bytes they are, and what is wrong after them."""
    entries: list[Entry] = []
    previous, size = FIRST, 0
    lines = data.split(b"\n")
    torn = lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(_verified(line, number, previous, f"{name}:{number}"))
        except DamagedRun as damage:
            return tuple(entries), size, damage
        previous = hashlib.sha256(line).hexdigest()
        size += len(line) + 1
    message = f"{name}:{len(lines) + 1}: the line is torn: it does not end in a newline"
    return tuple(entries), size, DamagedRun(message) if torn else None


def _verified(line: bytes, number: int, previous: str, where: str) -> Entry:
    """The entry of a line that is in its place, unaltered."""
    entry, link = _decode_line(line, where)
    if link != previous:
        raise DamagedRun(f"{where}: the chain breaks here: this line or the one before was altered")
    if entry.number != number:
        raise DamagedRun(f"{where}: the line says that it is number {entry.number}")
    if encode(entry, previous) != line + b"\n":
        raise DamagedRun(f"{where}: the line is not as it was written")
    return entry


def _decode_line(line: bytes, where: str) -> tuple[Entry, str]:
    try:
        record = json.loads(line)
        if record["v"] != SCHEMA:
            raise DamagedRun(f"{where}: schema {record['v']} is not known here (this version reads {SCHEMA})")
        event = EVENT.validate_python(record["event"])
        return Entry(int(record["n"]), float(record["at"]), event), str(record["previous"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise DamagedRun(f"{where}: the line cannot be read: {str(error).splitlines()[0]}") from error


class Journal:
    """The one writer of a run's journal. Each event is on the disk when `append` returns."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        """Opens or begins the journal of a run folder.

        Raises:
            UsageError: another process writes this journal.
            DamagedRun: the lines already there are not intact.
        """
        self.path = folder / NAME
        self._clock = clock
        self._file = _locked(self.path)
        data = self.path.read_bytes()
        try:
            self.entries = list(decode(data))
        except DamagedRun:
            os.close(self._file)
            raise
        self._previous = head(data)

    @classmethod
    def repaired(cls, folder: Path, clock: Callable[[], float]) -> tuple[Self, tuple[str, ...]]:
        """Opens a journal whose end may be damaged; returns it with sentences that name what is lost.

        What is good is used. What is not is moved to a file beside it, and nothing is thrown away.
        """
        path = folder / NAME
        data = path.read_bytes()
        _, size, damage = intact(data)
        if damage is None:
            return cls(folder, clock), ()
        lines = data[size:].count(b"\n") + (not data.endswith(b"\n"))
        aside = folder / f"{NAME}.lost-{hashlib.sha256(data[size:]).hexdigest()[:8]}"
        file = _locked(path)
        try:
            aside.write_bytes(data[size:])
            os.ftruncate(file, size)
            os.fsync(file)
        finally:
            os.close(file)
        lost = f"{damage.message}; {lines} line(s) from there on are not used, and were moved to {aside.name}"
        return cls(folder, clock), (lost,)

    def append(self, event: AnyEvent) -> Entry:
        """Writes an event and waits until it is on the disk."""
        entry = Entry(len(self.entries) + 1, round(self._clock(), 6), event)
        line = encode(entry, self._previous)
        if os.write(self._file, line) != len(line):
            raise OSError(
                errno.ENOSPC, "the disk is full: the last line of the journal is torn", str(self.path)
            )
        os.fsync(self._file)
        self._previous = hashlib.sha256(line[:-1]).hexdigest()
        self.entries.append(entry)
        return entry

    def close(self) -> None:
        """Gives the journal free."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Follower:
    """Reads a journal that another process writes: entry by entry, as they come."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._offset = 0
        self._number = 0
        self._previous = FIRST

    def new(self) -> tuple[Entry, ...]:
        """The entries since the last call. A last line without its end is being written, or never will be.

        Raises:
            DamagedRun: a line is altered or out of its place, or the journal is shorter than it was.
        """
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._offset:
                raise DamagedRun(f"{NAME}:{self._number}: the journal was cut here while it was read")
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        entries = []
        for line in whole.split(b"\n") if newline else []:
            entries.append(_verified(line, self._number + 1, self._previous, f"{NAME}:{self._number + 1}"))
            self._number += 1
            self._previous = hashlib.sha256(line).hexdigest()
            self._offset += len(line) + 1
        return tuple(entries)


def is_written(folder: Path) -> bool:
    """Whether a process carries this run out now: it holds the journal."""
    file = os.open(folder / NAME, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


GLANCES = 20
"""So often a lock is asked for: who only looks whether it is held, holds it for a moment."""
GLANCE = 0.05
"""Seconds between two of them."""


def _locked(path: Path) -> int:
    """The journal's file, open for us alone.

    Raises:
        UsageError: another process writes it.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    for glance in range(1, GLANCES + 1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if glance == GLANCES:
                os.close(file)
                raise UsageError(f"{path}: another process is writing this run") from error
            time.sleep(GLANCE)
    return file
