"""Our copy of a long log: small, readable, and it says exactly what the log said."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_agent.model import LogCopy, MatchKind, Reading, Role
from bisect_agent.pieces import Sizes, faithful, reread
from bisect_agent.record import Record
from bisect_agent.secrets import Masker
from bisect_agent.signatures import WINDOW, Scanner, Watch
from tests.strategies import FEW

WATCHES = (
    Watch(MatchKind.SIGNATURE, "boom", "boom", Role.ROOT),
    Watch(MatchKind.SIGNATURE, "step", r"step \d", Role.PROGRESS),
    Watch(MatchKind.PHASE, "load", "^loading"),
)
SMALL = Sizes(ends=96 << 10, around=16 << 10, middle=256 << 10)
"""A log of some hundred KiB is a long one."""

TRACEBACK = b"""[2026-06-17 23:46:56 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/run.py", line 12, in run
    raise KernelError("boom")
KernelError: no such split

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/serve.py", line 40, in serve
RuntimeError: it failed
"""
BLOCKS = {
    "healthy": b"[2026-06-17 23:46:56 TP0] all is well\n" * 2000,
    "a healthy line": b"all is well\n",
    "a failure": b"[2026-06-17 23:46:56 TP1] boom\n",
    "another rank's failure": b"[2026-06-17 23:46:57 TP2] boom\n",
    "a phase": b"loading weights\n",
    "a traceback": TRACEBACK,
    "half a traceback": TRACEBACK[:170],
    "the other half": TRACEBACK[170:],
    "a header alone": b"Traceback (most recent call last):\n",
    "a rank's line": b"[2026-06-17 23:46:56 TP5] the next line is mine\n",
    "progress": b"\r".join(b"step %d of 1000" % n + b"#" * 400 for n in range(300)) + b"\n",
    "blank lines": b"\n" * (1100 << 10),
    "a few blank lines": b"\n" * 9000,
    "a long line": b"x" * (5 * WINDOW) + b"\n",
    "a long line that fails": b"[2026-06-17 23:46:56 TP4] "
    + b"y" * (7 * WINDOW)
    + b" boom "
    + b"z" * WINDOW
    + b"\n",
    "a long line without an end": b"w" * (3 * WINDOW + 17),
    "an exception as long": b"Traceback (most recent call last):\nValueError: " + b"v" * (2 * WINDOW) + b"\n",
    "warnings": (b"/opt/a.py:1: UserWarning: " + b"oh " * 2000 + b"\n  warnings.warn(text)\n") * 200,
    "binary": bytes(range(256)) * 300,
}
LOGS = st.lists(st.sampled_from(sorted(BLOCKS)), max_size=12)


@dataclass(frozen=True)
class Kept:
    """A log that was recorded, and what came of it."""

    reading: Reading
    copy: LogCopy
    data: bytes


def keep(
    path: Path, log: bytes, *, sizes: Sizes = SMALL, chunk: int = 100_000, cut: int | None = None
) -> Kept:
    """Records a log that arrives in chunks."""
    record = Record(io.FileIO(path, "w"), "server.log", Masker([]), Scanner(WATCHES), sizes)
    if cut is not None:
        record.cut(cut)
    for at in range(0, len(log), chunk):
        record.take(log[at : at + chunk])
    reading, copy, _ = record.finish()
    return Kept(reading, copy, path.read_bytes())


def read(log: bytes) -> Reading:
    """What the whole log says."""
    scanner = Scanner(WATCHES)
    scanner.feed(log)
    scanner.finish()
    return scanner.reading()


def again(kept: Kept) -> Reading:
    """What the copy says."""
    return reread(kept.copy, kept.data, kept.reading.size, Scanner(WATCHES))


@settings(FEW, max_examples=30)
@given(LOGS, st.integers(1000, 1 << 20))
def test_the_copy_says_what_the_log_said(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], chunk: int
) -> None:
    """Every match, exception and last line, with its place: from the log, and from the copy alone."""
    log = b"".join(BLOCKS[name] for name in names)
    kept = keep(tmp_path_factory.getbasetemp() / "log", log, chunk=chunk)
    assert read(log) == kept.reading
    assert kept.reading == again(kept)
    assert faithful(kept.copy, kept.data)
    assert sha256(kept.data).hexdigest() == kept.copy.sha256


def places(kept: Kept) -> Iterator[tuple[int, int]]:
    """Offset and line of all that the reading points to."""
    yield from ((match.offset, match.line) for match in kept.reading.matches)
    yield from ((raised.offset, raised.line) for raised in kept.reading.raised)


@settings(FEW, max_examples=20)
@given(LOGS)
def test_a_line_of_the_log_is_found_in_the_copy(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    """By its number, and by its offset."""
    log = b"".join(BLOCKS[name] for name in names)
    kept = keep(tmp_path_factory.getbasetemp() / "log", log)
    rows = kept.data.split(b"\n")
    for offset, line in places(kept):
        row = kept.copy.line_of(offset, line)
        assert row is not None
        assert log[offset : offset + 20].splitlines()[0] in rows[row - 1]


@settings(FEW, max_examples=20)
@given(LOGS, st.data())
def test_what_comes_after_our_stop_is_never_read_again(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    """The copy holds the end of it, for a person; the reading ends at the cut."""
    log = b"".join(BLOCKS[name] for name in names)
    cut = data.draw(st.integers(0, len(log)))
    kept = keep(tmp_path_factory.getbasetemp() / "log", log, cut=cut)
    assert read(log[:cut]) == kept.reading == again(kept)
    assert faithful(kept.copy, kept.data)
    assert log[cut:][-1000:] == kept.data[-len(log[cut:][-1000:]) or len(kept.data) :]


def test_a_short_log_is_copied_whole(tmp_path: Path) -> None:
    """Byte for byte, and nothing is said of pieces."""
    log = BLOCKS["healthy"] + TRACEBACK
    kept = keep(tmp_path / "log", log)
    assert (log, ()) == (kept.data, kept.copy.pieces)
    assert "pieces" not in kept.copy.model_dump()


def test_a_long_log_has_holes_that_a_person_can_read(tmp_path: Path) -> None:
    """One line says what is missing; evidence is found at its line of the copy."""
    healthy = BLOCKS["healthy"] * 20
    log = healthy + BLOCKS["a failure"] + healthy
    kept = keep(tmp_path / "log", log)
    first, _ = kept.copy.holes()
    assert len(kept.data) < 300_000
    (boom,) = kept.reading.matches
    row = kept.copy.line_of(boom.offset, boom.line)
    lines = kept.data.decode().splitlines()
    assert row is not None
    assert "[2026-06-17 23:46:56 TP1] boom" == lines[row - 1]
    said = f"[bisect-agent: {first.size} bytes of the log, {first.newlines} line ends, are left out here]"
    assert 1 == lines.count(said)


@pytest.mark.parametrize("moved", [-1, 1])
def test_pieces_that_are_not_those_of_the_copy_are_found(tmp_path: Path, moved: int) -> None:
    """The lines between them say how much is missing, and must be true of the pieces."""
    kept = keep(tmp_path / "log", BLOCKS["healthy"] * 20)
    first, last = kept.copy.pieces
    other = last.model_copy(update={"offset": last.offset + moved, "size": last.size - moved})
    assert faithful(kept.copy, kept.data)
    assert not faithful(kept.copy.model_copy(update={"pieces": (first, other)}), kept.data)


def test_when_the_room_is_spent_the_noted_line_is_kept_alone(tmp_path: Path) -> None:
    """However many ranks a log claims to have, no line that was noted is missing."""
    quiet = b"all is well\n" * 4000
    log = b"".join(quiet + b"[2026-06-17 23:46:56 TP%d] boom\n" % rank for rank in range(60)) + quiet * 3
    kept = keep(tmp_path / "log", log)
    assert kept.copy.bare > 0
    assert 60 == len(kept.reading.matches)
    assert kept.reading == again(kept)
    assert len(kept.data) < 2 * SMALL.ends + SMALL.middle + 60 * SMALL.around
