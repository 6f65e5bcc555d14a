"""The lines around a piece of evidence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.lines import printable
from bisect_agent.model import Evidence, LogCopy, Piece
from bisect_agent.report.context import AFTER, BEFORE, around

LINES = [b"line %d" % number for number in range(1, 31)]
LOG = b"".join(line + b"\n" for line in LINES)


def evidence(number: int, data: bytes = LOG, copy_line: int | None = None) -> Evidence:
    """A line of a log, by its number."""
    offset = sum(map(len, data.splitlines(keepends=True)[: number - 1]))
    return Evidence(
        path="server.log", line=number, offset=offset, text="", sha256="0" * 64, copy_line=copy_line
    )


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x1b"), max_size=20)), st.data())
def test_the_lines_are_those_of_the_file(texts: list[str], data: st.DataObject) -> None:
    """With their numbers, in order, the evidence in their midst; and safe to show."""
    lines = [text.encode() for text in [*texts, "the evidence"]]
    raw = b"\n".join(lines) + data.draw(st.sampled_from([b"", b"\n", b"\n\n"]))
    number = data.draw(st.integers(1, len(lines)))
    offset = sum(len(line) + 1 for line in lines[: number - 1])
    found = around(raw, Evidence(path="", line=number, offset=offset, text="", sha256=""), None, None)
    expected = range(max(1, number - BEFORE), min(len(lines), number + AFTER) + 1)
    shown = [near for near in found if near.number <= len(lines)]
    assert [
        (n, printable(lines[n - 1].decode()), n == number) for n in expected if _stands(raw, lines, n)
    ] == [(near.number, near.text, near.cited) for near in shown]
    assert all(near.text.isprintable() or "\t" in near.text for near in found)


def _stands(raw: bytes, lines: list[bytes], number: int) -> bool:
    """Whether a line begins before the end of the file: an empty last line without a newline does not."""
    return sum(len(line) + 1 for line in lines[: number - 1]) < len(raw)


def test_what_was_written_after_our_stop_is_marked() -> None:
    """It is shown, and is no evidence."""
    found = around(LOG, evidence(10), None, evidence(12).offset)
    assert [12, 13] == [near.number for near in found if near.late]


def test_a_part_of_a_log_is_read_where_it_stands() -> None:
    """The numbers are the copy's own; the line that stands for a hole is shown as it is."""
    first, last = LOG[: evidence(5).offset], LOG[evidence(20).offset :]
    marker = b"[bisect-agent: some bytes of the log are left out here]\n"
    copy = LogCopy(
        path="server.log",
        size=len(LOG),
        sha256="0" * 64,
        original="0" * 64,
        pieces=(
            Piece(offset=0, size=len(first), line=1, newlines=4, copy_offset=0, copy_line=1),
            Piece(
                offset=len(LOG) - len(last),
                size=len(last),
                line=20,
                newlines=11,
                copy_offset=len(first + marker),
                copy_line=6,
            ),
        ),
    )
    found = around(first + marker + last, evidence(21, copy_line=7), copy, evidence(23).offset)
    assert [(4, "line 4"), (5, marker.decode().strip()), (6, "line 20"), (7, "line 21")] == [
        (near.number, near.text) for near in found[2:6]
    ]
    assert [(7, True)] == [(near.number, near.cited) for near in found if near.cited]
    assert [9, 10] == [near.number for near in found if near.late]
    assert () == around(first + marker + last, evidence(10), copy, None)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [(b"\x1b[31mred\x1b[0m", "red"), (b"\xff", "\ufffd"), ("\u202eabc".encode(), "\\u202eabc")],
)
def test_nothing_around_is_obeyed(raw: bytes, shown: str) -> None:
    """Colours are taken off, as in the evidence itself; what would be obeyed is written out."""
    (near,) = around(raw, evidence(1), None, None)
    assert shown == near.text


def test_a_long_line_is_cut() -> None:
    """A line of a megabyte is no help."""
    (near,) = around(b"x" * 10**6, evidence(1), None, None)
    assert len(near.text) == 400
