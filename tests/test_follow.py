"""Following a run: what its journal says, as it says it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.errors import DamagedRun, UsageError
from bisect_agent.events import AnyEvent, Concluded, Entry, Sealed
from bisect_agent.follow import follow
from bisect_agent.journal import NAME, Follower, Journal, chain, decode, is_written
from bisect_agent.model import StoppedBy
from tests.fakes import FakeClock

CONCLUDED = Concluded(stopped_by=StoppedBy.CAUSE)
SEALED = Sealed(verdict="0" * 64, exit_code=0)
FEW = tuple(Entry(n + 1, float(n), CONCLUDED) for n in range(5))


class Deeds(FakeClock):
    """A clock whose every look away lets the next thing happen."""

    def __init__(self, *deeds: Callable[[], object]) -> None:
        super().__init__()
        self._deeds = list(deeds)

    def sleep(self, seconds: float) -> None:
        """Time passes, and something happens."""
        super().sleep(seconds)
        self._deeds.pop(0)()


def followed(folder: Path, clock: FakeClock) -> list[AnyEvent]:
    """The events of a run, to its end."""
    return [entry.event for entry in follow(folder, clock)]


@given(data=st.data())
def test_whatever_is_there_is_read_once(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A journal that grows byte by byte gives each entry when its line is whole, and never again."""
    folder, whole = tmp_path_factory.mktemp("run"), chain(FEW)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=6)))
    journal = Follower(folder)
    seen: list[Entry] = []
    for cut in (*cuts, len(whole)):
        (folder / NAME).write_bytes(whole[:cut])
        seen += journal.new()
        assert decode(whole[: whole[:cut].rfind(b"\n") + 1]) == tuple(seen)
    assert FEW == tuple(seen)


def test_a_line_that_was_altered_is_named(tmp_path: Path) -> None:
    """What follows it is not believed."""
    (tmp_path / NAME).write_bytes(chain(FEW).replace(b'"n":3', b'"n":4', 1))
    with pytest.raises(DamagedRun, match=r"journal\.jsonl:3"):
        Follower(tmp_path).new()


def test_a_journal_that_shrinks_is_named(tmp_path: Path) -> None:
    """Somebody has cut what was read."""
    (tmp_path / NAME).write_bytes(chain(FEW))
    follower = Follower(tmp_path)
    follower.new()
    (tmp_path / NAME).write_bytes(chain(FEW[:2]))
    with pytest.raises(DamagedRun, match="was cut here"):
        follower.new()


def test_who_writes_a_journal_is_seen(tmp_path: Path) -> None:
    """Its lock says so; and to look does not keep anybody from writing."""
    with Journal(tmp_path, float):
        assert is_written(tmp_path)
    assert not is_written(tmp_path)
    with Journal(tmp_path, float):
        assert is_written(tmp_path)


def test_a_run_is_followed_to_its_seal(tmp_path: Path) -> None:
    """Also when its last line is torn for a moment; it is over when its agent lets go of it."""
    journal = Journal(tmp_path, float)
    journal.append(CONCLUDED)
    clock = Deeds(lambda: journal.append(SEALED), lambda: None, journal.close)
    assert [CONCLUDED, SEALED] == followed(tmp_path, clock)


def test_a_seal_that_a_resume_breaks_is_not_the_end(tmp_path: Path) -> None:
    """Who resumes it has the journal before a word is in it."""
    with Journal(tmp_path, float) as first:
        first.append(SEALED)
    journal = Journal(tmp_path, float)
    deeds = (lambda: journal.append(CONCLUDED), lambda: journal.append(SEALED), journal.close)
    assert [SEALED, CONCLUDED, SEALED] == followed(tmp_path, Deeds(*deeds))


def test_a_run_that_nobody_carries_out_is_said_to_be_one(tmp_path: Path) -> None:
    """With the command that goes on; what the crash has torn is no error."""
    (tmp_path / NAME).write_bytes(chain(FEW)[:-10])
    with pytest.raises(UsageError, match=f"nobody carries this run out.*\n.*resume {tmp_path}"):
        followed(tmp_path, FakeClock())


def test_another_folder_is_no_run(tmp_path: Path) -> None:
    """It has no journal."""
    with pytest.raises(UsageError, match="this is no run folder"):
        followed(tmp_path, FakeClock())
