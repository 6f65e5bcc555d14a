"""A verdict is computed again from its folder alone; whatever was changed there is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_agent.errors import DamagedRun
from bisect_agent.events import AnyEvent, Closed, Entry, HypothesisMoved, Judged, Sealed
from bisect_agent.folder import RunFolder, canonical
from bisect_agent.journal import FIRST, NAME, decode, encode
from bisect_agent.model import Passed, State
from bisect_agent.verdict import Verdict
from bisect_agent.verify import Verified, verify
from tests.fakes import Lab, stack_of
from tests.strategies import FEW
from tests.worlds import Rule, World, claim, playbook_of, setting

PLAYBOOK = playbook_of(
    {"mode": ("safe", "fast"), "kernel": ("mma", "stock")},
    {"mode": "fast"},
    hypotheses=(claim("wide", "mode", "kernel"), claim("kernel", "mode kernel")),
)
CLASH = World((Rule(frozenset({setting("mode=fast")})),))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Verdict]:
    """The folder of a run that is over, and its verdict."""
    with Lab(tmp_path_factory.mktemp("verify") / "run", PLAYBOOK, stack_of(CLASH, PLAYBOOK)) as lab:
        outcome = lab.begin().engine.run()
        return lab.folder, outcome.verdict


@contextmanager
def altered(path: Path, data: bytes) -> Iterator[None]:
    """The file with another content, for a while."""
    kept = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(kept)


def said_of(folder: RunFolder) -> str:
    """What `verify` says of a damaged folder."""
    with pytest.raises(DamagedRun) as error:
        verify(folder)
    return error.value.message


def test_an_untouched_run_agrees(run: tuple[RunFolder, Verdict]) -> None:
    """The verdict follows from the logs, by way of every judgement in between."""
    folder, verdict = run
    verified = verify(folder)
    assert (verdict, 5) == (verified.verdict, verified.attempts)
    assert verified.log_bytes == sum(p.stat().st_size for p in folder.path.glob("trials/*/*/server.log"))


FILES = (
    "journal.jsonl",
    "verdict.json",
    "resolved.json",
    "playbook.yaml",
    "trials/t02-bad/1/server.log",
    "trials/t02-bad/1/observation.json",
    "trials/t02-bad/1/launch.sh",
    "trials/t01-good/1/response.txt",
)


@pytest.mark.parametrize("name", FILES)
@settings(FEW, max_examples=15)
@given(data=st.data())
def test_any_changed_byte_is_found_and_its_file_named(
    run: tuple[RunFolder, Verdict], name: str, data: st.DataObject
) -> None:
    """Whichever byte of whichever file is another, the verdict is not confirmed."""
    folder, _ = run
    kept = folder.read(name)
    position = data.draw(st.integers(0, len(kept) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != kept[position]))
    with altered(folder.path / name, kept[:position] + bytes([other]) + kept[position + 1 :]):
        assert said_of(folder).startswith(name)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_is_named(run: tuple[RunFolder, Verdict], name: str) -> None:
    """What cannot be read is not taken as read."""
    folder, _ = run
    moved = folder.path / "elsewhere"
    (folder.path / name).rename(moved)
    try:
        assert said_of(folder).startswith(f"{name}: No such file")
    finally:
        moved.rename(folder.path / name)


def test_a_run_without_its_last_line_is_not_sealed(run: tuple[RunFolder, Verdict]) -> None:
    """A journal that ends early is whole as far as it goes, and proves no verdict."""
    folder, _ = run
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    with altered(folder.journal, b"".join(lines[:-1])):
        message = said_of(folder)
    assert f"journal.jsonl:{len(lines) - 1}: the run is not sealed: its last event is judged" == message


def test_an_empty_journal_is_not_sealed(run: tuple[RunFolder, Verdict]) -> None:
    """Nothing is nothing."""
    folder, _ = run
    with altered(folder.journal, b""):
        assert "journal.jsonl:0: the run is not sealed: its last event is nothing" == said_of(folder)


def test_a_verified_run_stays_verified(run: tuple[RunFolder, Verdict]) -> None:
    """To verify changes nothing."""
    folder, _ = run
    first: Verified = verify(folder)
    assert first == verify(folder)


# --- a record that was written anew -----------------------------------------------------------------


def forged(folder: RunFolder, change: Callable[[AnyEvent], AnyEvent]) -> bytes:
    """The journal with changed events and an intact chain, as a careful forger would leave it."""
    data, previous = b"", FIRST
    for entry in decode(folder.read(NAME)):
        line = encode(Entry(entry.number, entry.at, change(entry.event)), previous)
        data, previous = data + line, sha256(line[:-1]).hexdigest()
    return data


def acquitted(event: AnyEvent) -> AnyEvent:
    """A failing trial is said to have passed."""
    if isinstance(event, Judged) and event.settled.trial.id == "t03":
        return event.model_copy(update={"settled": event.settled.model_copy(update={"outcome": Passed()})})
    return event


def unheard(event: AnyEvent) -> AnyEvent:
    """A line of the log is said not to have been there."""
    if isinstance(event, Closed) and event.trial == "t02":
        reading = event.observation.reading.model_copy(update={"matches": ()})
        return event.model_copy(
            update={"observation": event.observation.model_copy(update={"reading": reading})}
        )
    return event


def promoted(event: AnyEvent) -> AnyEvent:
    """A refuted hypothesis is said to be supported."""
    if isinstance(event, HypothesisMoved) and event.hypothesis == "kernel":
        return event.model_copy(update={"state": State.SUPPORTED})
    return event


def excused(event: AnyEvent) -> AnyEvent:
    """The run is said to have ended otherwise."""
    return event.model_copy(update={"exit_code": 1}) if isinstance(event, Sealed) else event


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (acquitted, "another outcome follows from what was observed"),
        (unheard, "it is not what the journal holds"),
        (promoted, "the trials do not say that kernel is supported"),
        (excused, "another exit code follows from the journal"),
    ],
)
def test_a_forged_record_does_not_follow(
    run: tuple[RunFolder, Verdict], change: Callable[[AnyEvent], AnyEvent], message: str
) -> None:
    """An intact chain is not enough: what is said must follow from what was seen (rule 12)."""
    folder, _ = run
    with altered(folder.journal, forged(folder, change)):
        assert message in said_of(folder)


def test_an_observation_must_follow_from_the_log(run: tuple[RunFolder, Verdict]) -> None:
    """Where its file was forged along with the journal, the log's own lines still say otherwise."""
    folder, _ = run
    closed = [entry.event for entry in decode(forged(folder, unheard)) if isinstance(entry.event, Closed)]
    observation = next(event.observation for event in closed if event.trial == "t02")
    path = folder.path / "trials/t02-bad/1/observation.json"
    with altered(folder.journal, forged(folder, unheard)), altered(path, canonical(observation)):
        assert "trials/t02-bad/1/server.log: its lines do not say what the journal holds" == said_of(folder)
