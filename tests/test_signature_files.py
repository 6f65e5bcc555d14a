"""A folder of the user's own signatures: read like shipped ones, and held to their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_agent import playbook
from bisect_agent.errors import PlaybookError, UsageError
from bisect_agent.model import Role
from bisect_agent.signature_files import read_folder

SHIPPED = sorted((Path(__file__).parents[1] / "hypotheses" / "signatures").glob("*.yaml"))


def folder(tmp_path: Path, **files: str) -> Path:
    """A folder of signature files, by their names without the ending."""
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        path.chmod(0o644)
    return tmp_path


def complaint(path: Path) -> str:
    """What is said of a folder, without its own name."""
    with pytest.raises(PlaybookError) as caught:
        read_folder(path)
    return str(caught.value).replace(f"{path}/", "")


def test_the_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    """All entries of all files, each with what it says."""
    path = folder(
        tmp_path,
        b="- {id: second, role: symptom, pattern: two}\n",
        a="- {id: first, role: root, pattern: 'one: .*', fatal: true, topic: hang, means: It hangs.}\n",
    )
    found = read_folder(path)
    assert [("first", Role.ROOT, True, "hang"), ("second", Role.SYMPTOM, False, "")] == [
        (s.id, s.role, s.fatal, s.topic) for s in found
    ]


def test_an_entry_is_held_to_its_lines(tmp_path: Path) -> None:
    """A line that it should match and does not, or should not and does, is named with its place."""
    path = folder(
        tmp_path,
        a="- id: mine\n  role: root\n  pattern: 'boom'\n"
        "  matches: ['boom here', 'bang here']\n  ignores: ['a boom there', 'WARNING: boom']\n",
    )
    assert (
        "a.yaml:4:26: the pattern of `mine` does not match this line\n  try: correct the pattern\n"
        "a.yaml:5:13: the pattern of `mine` matches this line\n  try: correct the pattern"
    ) == complaint(path)


def test_every_mistake_of_every_file_is_told(tmp_path: Path) -> None:
    """An unknown key, a bad pattern, an id of another file, an empty file."""
    path = folder(
        tmp_path,
        a="- {id: mine, role: root, patern: boom}\n",
        b="- {id: mine, role: rot, pattern: '(boom'}\n",
        c="",
    )
    said = complaint(path)
    assert "a.yaml:1:26: unknown key `[1].patern`\n  try: did you mean `pattern`?" in said
    assert "b.yaml:1:20: `[1].role` must be one of" in said
    assert "b.yaml:1:34: the pattern `(boom`: not a pattern of RE2" in said
    assert "b.yaml:1:3: the signature id `mine` is used twice" in said
    assert "c.yaml:1:1: the signature file is empty" in said


def test_a_folder_without_a_file_is_said(tmp_path: Path) -> None:
    """A wrong path must not mean: no signatures of your own."""
    with pytest.raises(UsageError, match="there is no signature file"):
        read_folder(tmp_path / "nowhere")


def test_ones_own_stand_in_place_of_shipped_ones(tmp_path: Path) -> None:
    """The same id is one signature: the playbook's before the folder's, the folder's before ours."""
    path = folder(
        tmp_path, a="- {id: host-killed, role: hint, pattern: mine}\n- {id: own, role: root, pattern: x}\n"
    )
    file = tmp_path / "playbook"
    file.write_text(
        "playbook: 1\nkind: job\nlaunch: ls\nfactors: {a: {env: A, levels: {x: 1, y: 2}}}\nbad: {a: y}\n"
        "observe: {signatures: [{id: own, role: symptom, pattern: z}]}\n"
    )
    file.chmod(0o644)
    loaded = playbook.load(file, signatures=path)
    patterns = [s.pattern for s in loaded.signatures if s.id in {"host-killed", "own"}]
    assert ["mine"] == patterns
    assert "z" == loaded.signature("own").pattern


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_files_have_the_form_of_ones_own(file: Path, tmp_path: Path) -> None:
    """Whoever copies one of ours to begin with has a file that works."""
    assert read_folder(folder(tmp_path, own=file.read_text()))
