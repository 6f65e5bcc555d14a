"""Our copy of a log: masked, hashed, and read up to the cut."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.model import MatchKind
from bisect_agent.record import Record
from bisect_agent.secrets import Masker
from bisect_agent.signatures import Scanner, Watch
from tests.strategies import FEW

BOOM = Watch(MatchKind.SIGNATURE, "boom", "boom")
LOGS = st.lists(
    st.sampled_from([b"boom\n", b"hunter2\n", b"some line\n", b"boo", b"m hunt", b"er2 "]), max_size=12
)


def recorder(path: Path) -> Record:
    """A record of a log that may hold the secret `hunter2`."""
    return Record(io.FileIO(path, "w"), "server.log", Masker(["hunter2"]), Scanner([BOOM]))


@FEW
@given(LOGS)
def test_the_copy_is_the_log_masked(tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]) -> None:
    """Byte for byte, with both hashes true."""
    path = tmp_path_factory.mktemp("record") / "log"
    record, log = recorder(path), b"".join(chunks)
    for chunk in chunks:
        record.take(chunk)
    _, copy, _ = record.finish()
    masked = log.replace(b"hunter2", b"*" * 7)
    assert (masked, len(log)) == (path.read_bytes(), copy.size)
    assert (sha256(masked).hexdigest(), sha256(log).hexdigest()) == (copy.sha256, copy.original)


@FEW
@given(LOGS, st.data())
def test_nothing_from_the_cut_on_is_read(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], data: st.DataObject
) -> None:
    """It is copied, and says nothing: the reading is that of the bytes before our stop (rule 2)."""
    path, log = tmp_path_factory.mktemp("record") / "log", b"".join(chunks)
    begun = data.draw(st.integers(0, len(chunks)))
    before = sum(map(len, chunks[:begun]))
    cut = data.draw(st.integers(before, len(log)))
    record = recorder(path)
    for number, chunk in enumerate(chunks):
        if number == begun:
            record.cut(cut)
        record.take(chunk)
    reading, copy, _ = record.finish()
    alone = Scanner([BOOM])
    alone.feed(log.replace(b"hunter2", b"*" * 7)[:cut])
    alone.finish()
    assert (alone.reading(), len(log)) == (reading, copy.size)


def test_a_last_line_without_an_end_is_read_when_all_is_over(tmp_path: Path) -> None:
    """A process that dies does not finish its line."""
    record = recorder(tmp_path / "log")
    assert [] == record.take(b"boom")
    _, _, matches = record.finish()
    assert ["boom"] == [match.id for match in matches]
