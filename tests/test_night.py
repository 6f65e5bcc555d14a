"""The queue of a night: what stands in it, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_agent import library, night
from bisect_agent.errors import ExitCode, PlaybookError, TargetError
from bisect_agent.model import Playbook
from bisect_agent.night import listed, queue, queues
from bisect_agent.report.digest import Brief
from tests.fakes import Lab, Stack, fails
from tests.worlds import playbook_of

JOB = """\
playbook: 1
kind: job
launch: exec true
factors: {a: {env: A, levels: {x: 1, y: 2}}}
bad: {a: y}
"""


@pytest.fixture
def nightly(tmp_path: Path) -> Path:
    """A folder with two playbooks, and what is none."""
    folder = tmp_path / "nightly"
    folder.mkdir()
    for name in ("b.yaml", "a.yaml", "notes.md", ".hidden"):
        (folder / name).write_text(JOB)
        (folder / name).chmod(0o600)
    return folder


def names(*paths: Path) -> list[str]:
    """What the playbooks at these paths are called."""
    return [item.name for item in queue(paths, {}, None)]


def test_a_folder_stands_for_its_playbooks(nightly: Path) -> None:
    """By name, after what was named before it."""
    found = listed(["quickstart", str(nightly), "elsewhere.yaml"])
    expected = [
        library.playbook("quickstart"),
        nightly / "a.yaml",
        nightly / "b.yaml",
        Path("elsewhere.yaml"),
    ]
    assert expected == found


def test_a_playbook_named_twice_stands_there_once(nightly: Path) -> None:
    """Where it was named first."""
    assert [nightly / "b.yaml", nightly / "a.yaml"] == listed([str(nightly / "b.yaml"), str(nightly)])


def test_names_are_short_and_unlike(nightly: Path) -> None:
    """Of two that would be called the same, each is called by its path."""
    other = nightly.parent / "a.yaml"
    assert ["b", "quickstart"] == names(nightly / "b.yaml", library.playbook("quickstart"))
    assert [str(other), "b", str(nightly / "a.yaml")] == names(other, nightly / "b.yaml", nightly / "a.yaml")


def test_what_is_wrong_with_one_is_known_before_the_first_begins(nightly: Path) -> None:
    """It has its place, and the others can be used."""
    (nightly / "a.yaml").write_text("playbook: 2\n")
    wrong, right = queue(listed([str(nightly)]), {}, None)
    assert isinstance(wrong.read, PlaybookError)
    assert isinstance(right.read, Playbook)


def test_playbooks_that_share_a_machine_are_one_queue(tmp_path: Path) -> None:
    """One of several targets joins what would else run side by side."""
    written = {
        "a": "target: {host: ssh://one}",
        "b": "target: {host: ssh://two}",
        "c": "target: {host: ssh://me@three}",
        "d": "targets: [{host: ssh://two}, {host: ssh://three}]",
        "e": "target: {host: ssh://one}",
    }
    for name, target in written.items():
        (tmp_path / f"{name}.yaml").write_text(JOB.replace("launch", f"{target}\nlaunch"))
        (tmp_path / f"{name}.yaml").chmod(0o600)
    read = queue(listed([str(tmp_path)]), {}, None)
    assert [[0, 3], [1], [2]] == sorted(queues([*read[:3], read[4]]))
    assert [[0, 4], [1, 2, 3]] == sorted(queues(read))


def test_an_empty_folder_is_no_playbook(tmp_path: Path) -> None:
    """That is said in its place as well."""
    (only,) = queue(listed([str(tmp_path)]), {}, None)
    assert "the playbook is a folder" in str(only.read)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("local", "local", True),
        ("ssh://gpu-box", "ssh://me@gpu-box", True),
        ("ssh://gpu-box", "ssh://gpu-box:2222", False),
        ("ssh://gpu-box", "local", False),
    ],
)
def test_a_machine_is_told_by_its_address(one: str, other: str, *, same: bool) -> None:
    """Who logs in there does not matter; another port may be another machine behind one address."""
    assert same == (night._machine(one) == night._machine(other))


@pytest.mark.parametrize(("undying", "said"), [(False, ""), (True, "one has left the target dirty: ")])
def test_a_target_on_which_something_lives_on_is_dirty(tmp_path: Path, said: str, *, undying: bool) -> None:
    """Nothing more is started there; after any other run, the next one has its turn."""
    stack: Stack = lambda *_: fails("error: boom", undying=undying)  # noqa: E731
    with Lab(tmp_path / "run", playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"}), stack) as lab:
        lab.begin().engine.run()
        assert night._dirt(lab.engine.state, "one").startswith(said)
        assert bool(said) == bool(night._dirt(lab.engine.state, "one"))


def test_what_an_error_quotes_of_a_secret_is_masked() -> None:
    """Before it stands in the digest, or in a message."""
    error = TargetError("the command said s3cret-t0ken", "look there")
    run = night._masked(
        night.ended(Brief(name="a", playbook="/a b.yaml"), None, error, 5.0), ["s3cret-t0ken"]
    )
    assert "the command said ************\n  try: look there" == run.found
    assert (ExitCode.TARGET, 5.0, ("bisect-agent run '/a b.yaml'",)) == (run.code, run.ended, run.commands)
