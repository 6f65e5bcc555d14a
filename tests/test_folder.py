"""The run folder: names, modes, and files that are whole or not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.errors import DamagedRun
from bisect_agent.folder import RunFolder, attempt_path, canonical, digest, run_name
from bisect_agent.model import Configuration, Playbook, Setting, Single, Trial
from tests.strategies import FEW, playbooks
from tests.worlds import playbook_of

PLAYBOOK = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A new run folder."""
    return RunFolder.create(tmp_path / "runs" / "r", b"playbook: 1\n", PLAYBOOK)


def flip(level: str) -> Trial:
    """A trial with one change."""
    return Trial(
        id="t07",
        parent="t02",
        change=Single(setting=Setting(factor="mode", level=level)),
        configuration=Configuration({"mode": level}),
    )


def test_a_run_is_named_by_when_and_what() -> None:
    """Names sort by time, and a person recognises the run."""
    assert "20260617T234656Z-dsv4-torch-compile-3f9a" == run_name("DSv4: torch.compile!", 1781740016, "3f9a")


@FEW
@given(st.text())
def test_any_title_makes_a_name_of_plain_characters(title: str) -> None:
    """A name is safe in every shell and on every file system."""
    assert re.fullmatch(r"[0-9TZ]+-[a-z0-9-]{1,32}-x", run_name(title, 0, "x"))


@FEW
@given(st.text(min_size=1, max_size=100))
def test_any_level_makes_a_path_below_trials(level: str) -> None:
    """No level can name a place outside of the run's folder."""
    assert re.fullmatch(r"trials/t07-[\w.=,+-]{1,64}/2", attempt_path(flip(level), 2), re.ASCII)


def test_an_attempt_lies_in_a_folder_of_its_trial() -> None:
    """As a person looks for it."""
    restore = Trial(id="restore", control="restore", configuration=PLAYBOOK.good)
    assert ["trials/t07-mode=fast/1", "trials/restore/2"] == [
        attempt_path(flip("fast"), 1),
        attempt_path(restore, 2),
    ]


def test_what_is_there_is_for_its_owner_alone(folder: RunFolder) -> None:
    """Folders and files, at every depth."""
    folder.write("trials/t01-good/1/env", b"")
    folder.grow("trials/t01-good/1/server.log").close()
    found = [folder.path, *folder.path.rglob("*")]
    assert {0o700, 0o600} == {path.stat().st_mode & 0o777 for path in found}
    assert [] == [path for path in found if path.stat().st_mode & 0o077]


def test_a_run_folder_is_never_used_twice(folder: RunFolder) -> None:
    """What an earlier run left could be read as ours."""
    with pytest.raises(FileExistsError):
        RunFolder.create(folder.path, b"", PLAYBOOK)


def test_a_file_is_replaced_whole(folder: RunFolder) -> None:
    """No part of it is left over."""
    folder.write("verdict.json", b"first")
    folder.write("verdict.json", b"2")
    assert (b"2", []) == (folder.read("verdict.json"), list(folder.path.glob("*.part")))


def test_a_missing_file_is_named(folder: RunFolder) -> None:
    """A person knows where to look."""
    with pytest.raises(DamagedRun, match=r"^verdict\.json: No such file"):
        folder.read("verdict.json")


def test_a_damaged_resolved_playbook_is_named(folder: RunFolder) -> None:
    """It is ours to read, so it is the folder that is wrong."""
    folder.write("resolved.json", b'{"title": 1}')
    with pytest.raises(DamagedRun, match=r"^resolved\.json: "):
        folder.resolved()


@FEW
@given(playbooks())
def test_the_playbook_is_kept_as_it_was_understood(
    tmp_path_factory: pytest.TempPathFactory, playbook: Playbook
) -> None:
    """`verify` needs nothing but the folder."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "r", b"", playbook)
    assert playbook == folder.resolved()


@FEW
@given(playbooks())
def test_a_value_has_one_way_to_be_written(playbook: Playbook) -> None:
    """Its hash says whether it is the same."""
    again = Playbook.model_validate_json(canonical(playbook))
    assert digest(canonical(playbook)) == digest(canonical(again))
