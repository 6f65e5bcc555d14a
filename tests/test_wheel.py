import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from bisect_agent import library

ROOT = Path(__file__).resolve().parents[1]
DATA = ("hypotheses", "kernels", "playbooks")
FOUND = "from bisect_agent import library as l; print(l.__file__, *l.families(), *l.playbooks(), sep='\\n')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the wheel installs, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*build, "--wheel-dir", folder, ROOT], check=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def python(site: Path, *arguments: str) -> list[str]:
    """The lines printed by a Python outside the checkout, to which the wheel's files come first."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, *arguments]
    return subprocess.check_output(command, cwd=site, env=environment, text=True, timeout=60).splitlines()


def files(folder: Path) -> set[str]:
    """The files below a folder, caches apart."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if not any("cache" in part for part in path.parts)}


@pytest.mark.parametrize("folder", DATA)
def test_the_wheel_holds_every_file_of_its_data(folder: str, site: Path) -> None:
    """The folders lie beside the package in a checkout, and inside it when installed."""
    assert files(site / "bisect_agent" / folder) == files(ROOT / folder)


def test_the_wheel_holds_no_caches(site: Path) -> None:
    """What tools leave in a checkout is not ours to ship."""
    assert [p for p in site.rglob("*cache*") if "bisect_agent" in p.parts and p.is_dir()] == []


def test_an_installed_library_finds_what_it_ships(site: Path) -> None:
    """Families and playbooks are found inside the package, far from any checkout."""
    expected = [str(site / "bisect_agent" / "library.py"), *library.families(), *library.playbooks()]
    assert python(site, "-c", FOUND) == expected


def test_an_installed_package_can_be_run(site: Path) -> None:
    """`python -m bisect_agent` shows the commands."""
    assert "Usage: python -m bisect_agent" in "\n".join(python(site, "-m", "bisect_agent", "--help"))
