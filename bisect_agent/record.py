"""One log as it comes: masked, hashed, copied, and scanned up to the byte where our stop began."""

from __future__ import annotations

import io
from hashlib import sha256

from bisect_agent.model import LogCopy, Match, Reading
from bisect_agent.pieces import SIZES, Pieces, Sizes
from bisect_agent.secrets import Masker
from bisect_agent.signatures import Scanner


class Record:
    """Takes a log's bytes in order.

    Args:
        file: where the copy goes.
        path: the copy's name in the run folder.
        masker: what stars out secrets; it keeps every offset.
        scanner: what reads the lines.
        sizes: how much of a long log is kept.
    """

    def __init__(
        self, file: io.FileIO, path: str, masker: Masker, scanner: Scanner, sizes: Sizes = SIZES
    ) -> None:
        self._file = file
        self._pieces = Pieces(file, sizes)
        self._path = path
        self._masker = masker
        self._scanner = scanner
        self._original = sha256()
        self._shown = 0
        self._cut: int | None = None
        self.size = 0

    def take(self, data: bytes) -> list[Match]:
        """More of the log; returns the matches on the lines it completes, up to the cut."""
        self._original.update(data)
        self.size += len(data)
        return self._show(self._masker.feed(data))

    def cut(self, offset: int) -> None:
        """Nothing from this byte on is evidence: it is copied, and not read."""
        self._cut = offset

    def close(self) -> None:
        """Leaves the copy as it is: nothing more comes, and nobody asks what was said."""
        self._file.close()

    def finish(self) -> tuple[Reading, LogCopy, list[Match]]:
        """What the log says, the copy, and the matches on a last line that has no newline."""
        self._show(self._masker.finish())
        matches = self._scanner.finish()
        digest, pieces, bare = self._pieces.finish(self._scanner.news())
        self._file.close()
        copy = LogCopy(
            path=self._path,
            size=self.size,
            sha256=digest,
            original=self._original.hexdigest(),
            pieces=pieces,
            bare=bare if pieces else 0,
        )
        return self._scanner.reading(), copy, matches

    def _show(self, masked: bytes) -> list[Match]:
        end = len(masked) if self._cut is None else max(0, self._cut - self._shown)
        self._shown += len(masked)
        matches = self._scanner.feed(masked[:end])
        self._pieces.take(masked[:end], self._scanner.news())
        self._pieces.take_unread(masked[end:])
        return matches
