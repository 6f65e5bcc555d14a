"""The lines around a piece of evidence, from our copy of its file. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bisect_agent.lines import clean, excerpt
from bisect_agent.model import Evidence, LogCopy
from bisect_agent.report.dossier import Near

BEFORE = 5
"""Lines shown before the evidence: a traceback ends in the line that names its exception."""
AFTER = 3
"""Lines shown after it."""


def around(data: bytes, evidence: Evidence, copy: LogCopy | None, cut: int | None) -> tuple[Near, ...]:
    """Some lines of a file, the evidence among them; none where the file does not hold it.

    `data` are the file's bytes; `copy` says which parts of a log these are, None for another file.
    `cut` is the log's byte at which our stop began.
    """
    start = _place(copy, evidence.offset)
    if start is None or start >= len(data):
        return ()
    number = evidence.copy_line or evidence.line
    before = list(_before(data, start))
    shown = [(number - back, at) for back, at in enumerate(before, 1)][::-1]
    shown += [(number + on, at) for on, at in enumerate(_from(data, start))]
    return tuple(
        Near(
            number=line,
            text=excerpt(clean(data[at : _end(data, at)]).decode()),
            cited=at == start,
            late=at > start and cut is not None and _offset(copy, at) >= cut,
        )
        for line, at in shown
    )


def _before(data: bytes, start: int) -> Iterator[int]:
    """Where the lines before a line begin, the nearest first."""
    for _ in range(BEFORE):
        if start == 0:
            return
        start = data.rfind(b"\n", 0, start - 1) + 1
        yield start


def _from(data: bytes, start: int) -> Iterator[int]:
    """Where a line and those after it begin."""
    for _ in range(1 + AFTER):
        if start >= len(data):
            return
        yield start
        start = _end(data, start) + 1


def _end(data: bytes, start: int) -> int:
    """Where the line that begins here ends."""
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


def _place(copy: LogCopy | None, offset: int) -> int | None:
    """Where a byte of the log stands in our copy; None where it is in a hole."""
    if copy is None or not copy.pieces:
        return offset
    holding = (p for p in copy.pieces if p.offset <= offset < p.end)
    return next((p.copy_offset + offset - p.offset for p in holding), None)


def _offset(copy: LogCopy | None, place: int) -> int:
    """Where a byte of our copy stands in the log; for the line that stands for a hole, where that begins."""
    if copy is None or not copy.pieces:
        return place
    begun = [p for p in copy.pieces if p.copy_offset <= place]
    return begun[-1].offset + min(place - begun[-1].copy_offset, begun[-1].size)
