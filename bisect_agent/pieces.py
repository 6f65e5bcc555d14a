"""Our copy of one log: the whole of a short one; else its head, its tail, and what surrounds all noted lines.

What lies between is a hole: a line of our own says how much is missing. Every piece begins and ends at a
`Place`, so that the copy, read again, says exactly what the log said.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from bisect_agent.model import Hole, LogCopy, Piece, Reading
from bisect_agent.signatures import News, Place, Scanner


@dataclass(frozen=True)
class Sizes:
    """How much is kept, in bytes.

    Attributes:
        ends: of a log's beginning, and of its end.
        around: before something noted, and after it.
        middle: between the ends; when it is spent, a noted line is kept without surroundings.
    """

    ends: int = 1 << 20
    around: int = 64 << 10
    middle: int = 8 << 20


SIZES = Sizes()
"""What is kept of every log."""


@dataclass(frozen=True)
class _Anchor:
    """Bytes that what follows them may need although much lies between: how a long line begins, say."""

    place: Place
    data: bytes


class Pieces:
    """Takes a log's bytes in order, with what the scanner has come by in them.

    What was noted is in the file when `take` returns. A few MiB are held back, however long the log is.
    """

    def __init__(self, file: io.FileIO, sizes: Sizes) -> None:
        self._file = file
        self._sizes = sizes
        self._hash = sha256()
        self._written = 0  # bytes of the file
        self._rows = 0  # newlines in it
        self._ends_line = True
        self._pieces: list[Piece] = []
        self._done = 0  # what is before was written, or is in a hole
        self._newlines = 0  # before there
        self._held = bytearray()
        self._from = 0  # offset of the first byte held; more than `_done` where a hole has begun
        self._places: deque[Place] = deque()  # in the bytes held
        self._until: int | None = sizes.ends  # written through, up to the first place from here on
        self._anchor: _Anchor | None = None
        self._spent = 0
        self._bare = 0
        self._unread = bytearray()
        self._forgotten = self._forgotten_newlines = 0  # of the bytes that nobody reads
        self._begin(Place(0, 0))

    def take(self, data: bytes, news: News) -> None:
        """The next bytes."""
        self._held += data
        places = deque(news.places)
        for note in news.notes:
            while places and places[0].offset <= note:
                self._arrive(places.popleft())
            self._note(note)
        for place in places:
            self._arrive(place)
        if self._until is not None:
            self._write(self._from + len(self._held))
        else:
            self._drop(news.last)

    def take_unread(self, data: bytes) -> None:
        """The next bytes, which come after our stop: the last of them are kept, and nobody reads them."""
        self._unread += data
        surplus = max(0, len(self._unread) - self._sizes.ends)
        self._forgotten += surplus
        self._forgotten_newlines += self._unread.count(b"\n", 0, surplus)
        del self._unread[:surplus]

    def finish(self, news: News) -> tuple[str, tuple[Piece, ...], int]:
        """Writes the tail. Returns the copy's hash, its pieces, and how many notes have no surroundings."""
        self.take(b"", news)
        if self._until is None:
            self._open(self._places[0] if self._from > self._done else None, news.last)
        self._write(self._from + len(self._held))
        if self._forgotten:
            lost = Place(self._done + self._forgotten, self._newlines + self._forgotten_newlines, inside=True)
            self._begin(lost)
        self._held, self._from = self._unread, self._done
        self._write(self._done + len(self._unread))
        pieces = tuple(self._pieces) if len(self._pieces) > 1 else ()
        return self._hash.hexdigest(), pieces, self._bare

    # --- what is kept -------------------------------------------------------------------------------

    def _arrive(self, place: Place) -> None:
        """A place was passed: the open piece can end there, or a later one begin."""
        if self._until is None:
            self._places.append(place)
        elif place.end >= max(self._until, self._done):
            self._write(place.end)
            self._until = None
            self._places = deque([] if place.inside else [place])

    def _note(self, offset: int) -> None:
        """Something noted was met here: a piece that is open goes on, or one is opened before it."""
        context = self._sizes.around if self._spent < self._sizes.middle else 0
        self._bare += not context
        if self._until is None:
            early = [p for p in self._places if p.offset <= max(0, offset - context)]
            first = self._places[0] if self._from > self._done else None
            self._open(early[-1] if early else first, offset)
            self._until = self._done
        self._until = max(self._until, offset + max(1, context))

    def _open(self, place: Place | None, last: int) -> None:
        """A piece begins at this place, or where the one before it ended; `last` is the last line's offset.

        A place in a long line needs the line's beginning, and what is said last is kept, whatever follows.
        """
        if place is not None and place.inside:
            place = next(
                (p for p in reversed(self._places) if p.offset < place.offset and not p.inside), place
            )
        if self._anchor is not None and place is not None and (place.inside or last < place.offset):
            self._begin(self._anchor.place)
            self._put(self._anchor.data)
        if place is not None and place.offset > self._done:
            self._begin(place)
        del self._held[: self._done - self._from]
        self._from = self._done
        self._places.clear()
        self._anchor = None

    def _drop(self, last: int) -> None:
        """Lets go of what is too far back to be needed, up to a place."""
        far = self._from + len(self._held) - self._sizes.ends
        passed = [p for p in self._places if p.offset <= far]
        if not passed or passed[-1].offset <= self._done:
            return
        begin = passed[-1]
        if begin.inside or self._done <= last < begin.offset:
            self._hold(passed, last)
        else:
            self._anchor = None
        del self._held[: begin.offset - self._from]
        self._from = begin.offset
        for _ in passed[:-1]:
            self._places.popleft()

    def _hold(self, passed: list[Place], last: int) -> None:
        """Makes an anchor of the beginning of the last line that began before the last place."""
        lines = [n for n, p in enumerate(passed[:-1]) if not p.inside and p.offset <= last]
        if lines:
            place, following = passed[lines[-1]], passed[lines[-1] + 1]
            data = bytes(self._held[place.offset - self._from : following.end - self._from])
            self._anchor = _Anchor(place, data)

    # --- the file -----------------------------------------------------------------------------------

    def _begin(self, place: Place) -> None:
        """A new piece, after a line that says what is missing before it."""
        if place.offset == self._done and self._pieces:
            return
        if self._pieces:
            hole = Hole(
                offset=self._done,
                size=place.offset - self._done,
                newlines=place.newlines - self._newlines,
            )
            self._emit(_marker(hole, ends_line=self._ends_line))
        self._done, self._newlines = place.offset, place.newlines
        self._pieces.append(
            Piece(
                offset=place.offset,
                size=0,
                line=place.newlines + 1,
                newlines=0,
                inside=place.inside,
                copy_offset=self._written,
                copy_line=self._rows + 1,
            )
        )

    def _write(self, end: int) -> None:
        """Writes what is held up to this byte."""
        self._put(bytes(self._held[: end - self._from]))
        del self._held[: end - self._from]
        self._from = self._done

    def _put(self, data: bytes) -> None:
        """Makes the last piece longer."""
        newlines, piece = data.count(b"\n"), self._pieces[-1]
        self._pieces[-1] = piece.model_copy(
            update={"size": piece.size + len(data), "newlines": piece.newlines + newlines}
        )
        self._spent += len(data) if self._done >= self._sizes.ends else 0
        self._done += len(data)
        self._newlines += newlines
        self._emit(data)

    def _emit(self, data: bytes) -> None:
        if not data:
            return
        self._hash.update(data)
        self._written += len(data)
        self._rows += data.count(b"\n")
        self._ends_line = data.endswith(b"\n")
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]


def _marker(hole: Hole, *, ends_line: bool) -> bytes:
    """The line of the copy that stands for a hole."""
    text = f"[bisect-agent: {hole.size} bytes of the log, {hole.newlines} line ends, are left out here]\n"
    return (text if ends_line else "\n" + text).encode()


def faithful(copy: LogCopy, data: bytes) -> bool:
    """Whether the bytes of a copy are its pieces, with the lines between that stand for the holes."""
    if not copy.pieces:
        return copy.size == len(data)
    return data == b"".join(_laid_out(copy, data)) and copy.pieces[-1].end == copy.size


def _laid_out(copy: LogCopy, data: bytes) -> Iterator[bytes]:
    """The pieces as they stand in the data, and the marker that belongs between each two."""
    last = b""
    for piece, hole in zip(copy.pieces, (None, *copy.holes()), strict=True):
        if hole is not None:
            yield _marker(hole, ends_line=not last or last.endswith(b"\n"))
        last = data[piece.copy_offset : piece.copy_offset + piece.size]
        yield last


def reread(copy: LogCopy, data: bytes, size: int, scanner: Scanner) -> Reading:
    """What a copy says of the log's first `size` bytes."""
    whole = Piece(offset=0, size=copy.size, line=1, newlines=0, copy_offset=0, copy_line=1)
    for number, piece in enumerate(copy.pieces or (whole,)):
        if piece.offset >= size:
            break
        if number:
            scanner.skip(Place(piece.offset, piece.line - 1, piece.inside))
        scanner.feed(data[piece.copy_offset : piece.copy_offset + min(piece.size, size - piece.offset)])
    scanner.finish()
    return scanner.reading()
