"""The journal: what is written can be read again, and nothing else can."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.errors import DamagedRun, UsageError
from bisect_agent.events import AnyEvent, Concluded, LogSeen, RunStarted, TargetSurveyed, fold
from bisect_agent.journal import FIRST, NAME, Journal, decode
from bisect_agent.model import StoppedBy
from tests.fakes import Lab, fails, serves
from tests.strategies import FEW
from tests.worlds import playbook_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(Concluded, stopped_by=st.sampled_from(StoppedBy), detail=TEXTS),
    st.builds(LogSeen, trial=TEXTS, attempt=st.integers(1, 3), path=TEXTS),
    st.builds(TargetSurveyed, folder=TEXTS, facts=st.dictionaries(TEXTS, TEXTS, max_size=3)),
)


def write(folder: Path, events: list[AnyEvent]) -> bytes:
    """A journal with these events, one a second; returns its bytes."""
    ticks = count(1)
    folder.mkdir(exist_ok=True)
    with Journal(folder, lambda: float(next(ticks))) as journal:
        for event in events:
            journal.append(event)
    return (folder / NAME).read_bytes()


def line_of(data: bytes, position: int) -> int:
    """The number of the line that holds a byte."""
    return 1 + data[:position].count(b"\n")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of a whole run."""
    playbook = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
    stack = lambda configuration, _: serves() if configuration == playbook.good else fails("error: boom")  # noqa: E731
    with Lab(tmp_path_factory.mktemp("journal") / "run", playbook, stack) as lab:
        lab.begin().engine.run()
        return lab.folder.journal.read_bytes()


def damaged(data: bytes) -> str:
    """What is said of a damaged journal."""
    with pytest.raises(DamagedRun) as error:
        decode(data)
    return error.value.message


# --- reading what was written -----------------------------------------------------------------------


@FEW
@given(st.lists(EVENTS, max_size=5))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, events: list[AnyEvent]
) -> None:
    """Events come back as they were, in their order, whatever their texts hold."""
    data = write(tmp_path_factory.mktemp("journal"), events)
    assert events == [entry.event for entry in decode(data)]


def test_a_whole_run_folds_to_the_same_state_again(written: bytes, tmp_path: Path) -> None:
    """The state is in the file: who reads it knows what the writer knew."""
    entries = decode(written)
    (tmp_path / NAME).write_bytes(written)
    with Journal(tmp_path, lambda: 0.0) as journal:
        assert fold(entries) == fold(journal.entries)
    assert fold(entries).sealed is not None


def test_a_journal_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Opened again, its next line is chained to its last one."""
    first = RunStarted(run="r", playbook="", resolved="", versions={})
    write(tmp_path, [first])
    data = write(tmp_path, [Concluded(stopped_by=StoppedBy.BUDGET)])
    assert [1, 2] == [entry.number for entry in decode(data)]


def test_a_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Logs and answers of a stack may be private."""
    write(tmp_path, [])
    assert 0o600 == (tmp_path / NAME).stat().st_mode & 0o777


def test_the_first_line_is_chained_to_nothing(written: bytes) -> None:
    """It cannot be taken for a line from the middle of another journal."""
    assert f'"previous":"{FIRST}"'.encode() in written.split(b"\n")[0]


# --- damage -----------------------------------------------------------------------------------------


@FEW
@given(st.data())
def test_any_flipped_byte_is_found_in_its_line(written: bytes, data: st.DataObject) -> None:
    """Whichever byte is another: the reading stops at the line that holds it."""
    position = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[position]))
    altered = written[:position] + bytes([other]) + written[position + 1 :]
    assert damaged(altered).startswith(f"{NAME}:{line_of(written, position)}: ")


@FEW
@given(st.data())
def test_any_torn_line_is_found(written: bytes, data: st.DataObject) -> None:
    """A journal that ends within a line was not written to its end."""
    within = [n for n in range(1, len(written)) if written[n - 1 : n] != b"\n"]
    cut = data.draw(st.sampled_from(within))
    assert f"{NAME}:{line_of(written, cut)}: the line is torn: it does not end in a newline" == damaged(
        written[:cut]
    )


def without(lines: list[bytes], at: int) -> list[bytes]:
    """One line removed."""
    return lines[:at] + lines[at + 1 :]


def twice(lines: list[bytes], at: int) -> list[bytes]:
    """One line repeated; the second one is the wrong one."""
    return lines[:at] + lines[at - 1 : at] + lines[at:]


def swapped(lines: list[bytes], at: int) -> list[bytes]:
    """Two neighbours in each other's place."""
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


@pytest.mark.parametrize("change", [without, twice, swapped])
@FEW
@given(data=st.data())
def test_a_line_out_of_its_place_is_found(
    written: bytes, change: Callable[[list[bytes], int], list[bytes]], data: st.DataObject
) -> None:
    """A line taken out, repeated or moved breaks the chain where it happened."""
    lines = written.splitlines(keepends=True)
    at = data.draw(st.integers(1, len(lines) - 2))
    message = damaged(b"".join(change(lines, at)))
    assert message.startswith(f"{NAME}:{at + 1}: the chain breaks here")


def test_an_unknown_schema_is_named(written: bytes) -> None:
    """A journal of a later version is not guessed at."""
    later = written.replace(b'"v":1', b'"v":2', 1)
    assert f"{NAME}:1: schema 2 is not known here (this version reads 1)" == damaged(later)


def test_a_damaged_journal_is_not_written_to(written: bytes, tmp_path: Path) -> None:
    """Whoever opens it is told, each time, and it is left as it is."""
    (tmp_path / NAME).write_bytes(written[:-1])
    for _ in range(2):
        with pytest.raises(DamagedRun):
            Journal(tmp_path, lambda: 0.0)
    assert written[:-1] == (tmp_path / NAME).read_bytes()


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """One journal, one writer; when it is closed the next one may come."""
    with (
        Journal(tmp_path, lambda: 0.0),
        pytest.raises(UsageError, match="another process is writing this run"),
    ):
        Journal(tmp_path, lambda: 0.0)
    Journal(tmp_path, lambda: 0.0).close()


def test_who_only_looks_keeps_nobody_from_writing(tmp_path: Path) -> None:
    """To see whether a journal is held is to hold it for a moment; a writer waits that long."""
    write(tmp_path, [])
    looking = os.open(tmp_path / NAME, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, (looking,)).start()
    with Journal(tmp_path, float) as journal:
        assert [] == journal.entries
