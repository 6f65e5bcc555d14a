"""What `check` says of a playbook that can run: one file for each kind of it, all keys among them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bisect_agent import library
from bisect_agent.check import check
from bisect_agent.errors import TargetError

CASES = Path(__file__).parent / "cases" / "checks"


def said(case: Path, tmp_path: Path) -> str:
    """The lines for a copy of the playbook, without where it lies."""
    for file in CASES.iterdir():
        shutil.copy(file, tmp_path)
        (tmp_path / file.name).chmod(0o644)
    lines = "".join(f"{line}\n" for line in check(tmp_path / case.name, {}))
    return lines.replace(str(tmp_path), "FOLDER")


@pytest.mark.parametrize("case", sorted(CASES.glob("*.yaml")), ids=lambda case: case.stem)
def test_what_would_run_is_said(case: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The whole text is the one beside it; `--update` writes it."""
    found, golden = said(case, tmp_path), case.with_suffix(".expected")
    if request.config.getoption("--update"):
        golden.write_text(found)
    assert golden.read_text() == found


@pytest.mark.parametrize("name", library.playbooks())
def test_the_shipped_playbooks_can_run(name: str) -> None:
    """Each of ours passes the check that we give others."""
    assert any(line.startswith("it can run") for line in check(library.playbook(name), {}))


def test_code_that_is_not_there_cannot_stay(tmp_path: Path) -> None:
    """Before anything is started; the path is named."""
    text = (CASES / "server.yaml").read_text().replace("code: [old.sh]", "code: [gone]")
    (tmp_path / "server.yaml").write_text(text)
    (tmp_path / "server.yaml").chmod(0o644)
    with pytest.raises(TargetError) as error:
        list(check(tmp_path / "server.yaml", {}))
    assert f"`target.code`: {tmp_path}/gone: there is no such file or folder" in error.value.message
