"""The playbooks of real servers, as far as they can be looked at without the servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bisect_agent import load
from bisect_agent.model import Playbook

ROOT = Path(__file__).parents[1] / "playbooks"
GPU = sorted((ROOT / "gpu").glob("*.yaml"))
ALL = [*sorted((ROOT / "sglang-cpu").glob("*.yaml")), *GPU]


def levels(playbook: Playbook) -> set[str]:
    """Every level of every factor, as a report writes it."""
    return {f"{factor.name}={level}" for factor in playbook.factors for level in factor.levels}


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_playbook_of_a_real_server_is_right(path: Path) -> None:
    """It can be read, and the cause that it expects is made of its own levels."""
    playbook = load(path)
    (cause,) = re.findall(r"^# expect cause: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(cause.split(" × ")) <= levels(playbook)


def test_playbooks_that_run_side_by_side_share_no_port() -> None:
    """Those of a GPU run at once on one host."""
    ports = [port for path in GPU for port in load(path).target.ports]
    assert len(ports) == len(set(ports))


def test_the_page_names_each_playbook_of_a_gpu() -> None:
    """In the table of what is wrong, and in the table of what came."""
    page = (ROOT / "gpu" / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in GPU if f"[`{path.stem}`]({path.name})" not in page] == []
    assert [path.stem for path in GPU if f"\n| `{path.stem}`" not in page] == []
