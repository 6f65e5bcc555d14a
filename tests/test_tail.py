"""The tail, on real files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent import errors, tail
from bisect_agent.hosts import Stat
from bisect_agent.hosts.local import LocalHost
from bisect_agent.tail import LIMIT, Missing, NewBytes, Nothing, Overwritten, Replaced, Shrunk, Stale, Tail

TAG = b"# attempt 1\n"


class Lost(LocalHost):
    """A host that does not answer."""

    def stat(self, path: str) -> Stat | None:
        """Raises what a lost host raises."""
        raise errors.Unreachable(f"gpu-box: no answer about {path}")


def tail_of(folder: Path) -> tuple[Path, Tail]:
    """A log's path, and a tail at its beginning."""
    log = folder / "log"
    return log, Tail(LocalHost(), str(log), TAG)


def append(log: Path, data: bytes) -> None:
    """What the log's writer does."""
    with log.open("ab") as file:
        file.write(data)


@given(st.lists(st.binary(max_size=20)))
def test_every_byte_is_handed_out_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]
) -> None:
    """However the writer's bytes arrive, what was handed out is the file."""
    log, reader = tail_of(tmp_path_factory.mktemp("log"))
    handed = b""
    for chunk in (TAG, *chunks):
        append(log, chunk)
        answer = reader.poll()
        assert answer == (NewBytes(chunk, len(handed)) if chunk else Nothing())
        handed += chunk
    assert log.read_bytes() == handed


@given(st.integers(0, len(TAG) - 1))
def test_no_byte_is_handed_out_before_the_first_line_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A first line that is being written is neither ours yet nor another's."""
    log, reader = tail_of(tmp_path_factory.mktemp("log"))
    append(log, TAG[:cut])
    assert Nothing() == reader.poll()
    append(log, TAG[cut:])
    assert NewBytes(TAG, 0) == reader.poll()


def test_a_missing_log_is_not_a_silent_one(tmp_path: Path) -> None:
    """Three answers: no file, no new bytes, no host."""
    log, reader = tail_of(tmp_path)
    assert Missing() == reader.poll()
    append(log, TAG)
    reader.poll()
    assert Nothing() == reader.poll()
    lost = Tail(Lost(), "/log", TAG)
    assert tail.Unreachable("gpu-box: no answer about /log") == lost.poll()


def test_a_log_that_vanishes_is_missing(tmp_path: Path) -> None:
    """A removed log is not a silent one either."""
    log, reader = tail_of(tmp_path)
    append(log, TAG)
    reader.poll()
    log.unlink()
    assert Missing() == reader.poll()


def test_the_log_of_another_attempt_is_stale(tmp_path: Path) -> None:
    """Not one byte of it is handed out, now or later."""
    log, reader = tail_of(tmp_path)
    append(log, b"# attempt 2\nThe server is fired up\n")
    assert [Stale(b"# attempt 2\nThe server is fired up\n")] * 2 == [reader.poll(), reader.poll()]


def test_a_log_that_was_cut_is_shrunk(tmp_path: Path) -> None:
    """The offset of what was read lies after its end."""
    log, reader = tail_of(tmp_path)
    append(log, TAG + b"more\n")
    reader.poll()
    log.write_bytes(TAG)
    assert Shrunk(size=len(TAG), offset=len(TAG) + 5) == reader.poll()


def test_a_log_that_was_cut_and_grew_again_is_not_read_on(tmp_path: Path) -> None:
    """The bytes at the old offset are not what follows."""
    log, reader = tail_of(tmp_path)
    append(log, TAG + b"more\n")
    reader.poll()
    log.write_bytes(b"no tag of ours, and longer than before\n")
    assert Overwritten() == reader.poll()


def test_a_log_that_was_replaced_is_not_read_on(tmp_path: Path) -> None:
    """Another file under the log's name, even with the same beginning, is another file."""
    log, reader = tail_of(tmp_path)
    append(log, TAG)
    reader.poll()
    (tmp_path / "other").write_bytes(TAG + b"more\n")
    (tmp_path / "other").rename(log)
    assert Replaced() == reader.poll()


def test_a_long_log_comes_in_pieces(tmp_path: Path) -> None:
    """One poll holds at most LIMIT bytes; the next goes on where it ended."""
    log, reader = tail_of(tmp_path)
    append(log, TAG + bytes(LIMIT))
    first, second = reader.poll(), reader.poll()
    assert NewBytes(TAG + bytes(LIMIT - len(TAG)), 0) == first
    assert NewBytes(bytes(len(TAG)), LIMIT) == second
