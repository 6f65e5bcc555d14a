import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KEPT = "Contracts: 1 kept, 0 broken."
BROKEN = "Contracts: 0 kept, 1 broken."
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def verdict(checkout: Path, contract: str) -> str:
    """What import-linter concludes about one contract in a checkout."""
    done = subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS, "--no-cache", "--contract", contract],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return next((line for line in done.stdout.splitlines() if line.startswith("Contracts:")), done.stdout)


def imported(source: str) -> set[str]:
    """The top-level packages that a program imports, wherever it does."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    absolute = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in plain + absolute}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the contracts are about, to be damaged."""
    shutil.copytree(
        ROOT / "bisect_agent", tmp_path / "bisect_agent", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("contract", ["layers", "report", "pure", "command-line", "controller"])
def test_every_contract_is_kept(contract: str) -> None:
    """The rooms import each other in one direction, and the pure ones nothing that acts."""
    assert verdict(ROOT, contract) == KEPT


@pytest.mark.parametrize(
    ("contract", "room", "line"),
    [
        ("layers", "model.py", "from bisect_agent import search"),
        ("layers", "verdict.py", "from bisect_agent import search"),
        ("layers", "a_room_without_a_place.py", "from bisect_agent import model"),
        ("report", "report/html.py", "from bisect_agent.report import terminal"),
        ("pure", "search.py", "import time"),
        ("pure", "judge.py", "import os.path"),
        ("pure", "claims.py", "from bisect_agent import journal"),
        ("command-line", "report/terminal.py", "import typer"),
        ("controller", "target/launcher.py", "import torch"),
    ],
)
def test_a_contract_bites(contract: str, room: str, line: str, checkout: Path) -> None:
    """A contract that nothing can break would only look like one."""
    with (checkout / "bisect_agent" / room).open("a", encoding="utf-8") as file:
        file.write(f"\n\ndef _late() -> None:\n    {line}\n")
    assert verdict(checkout, contract) == BROKEN


@pytest.mark.parametrize("folder", ["kernels", "playbooks"])
def test_what_runs_on_the_target_does_not_know_the_controller(folder: str) -> None:
    """The target has no `bisect_agent`."""
    programs = (ROOT / folder).rglob("*.py")
    assert [p for p in programs if "bisect_agent" in imported(p.read_text(encoding="utf-8"))] == []


def test_an_import_in_a_function_is_an_import() -> None:
    """The test above would see it wherever it hides."""
    source = "import os.path\ndef late():\n    from bisect_agent.model import Trial\n    from . import near\n"
    assert imported(source) == {"os", "bisect_agent"}
