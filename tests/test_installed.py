"""Which Python a script starts, and what is found in the packages that it has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.arguments import Names, check_names
from bisect_agent.installed import (
    Interpreter,
    help_arguments,
    installs,
    interpreter,
    names_command,
    names_of,
    places_command,
    places_of,
)
from bisect_agent.model import Package
from tests.strategies import FEW

PLAIN = Interpreter(command="python3")
VENV = Interpreter(command="/opt/venv/bin/python")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('exec python3 -m sglang.launch_server --tp 8 "$@"', PLAIN),
        ("python3 -u -m vllm.entrypoints.openai.api_server >log 2>&1 &\nwait", PLAIN),
        ("A=1 B='two words' exec env C=3 numactl --cpunodebind=0 /opt/venv/bin/python \\\n  -m x", VENV),
        ('VENV=/opt/venv\nexec "$VENV/bin/python" -m x', VENV),
        ("PY=${VENV}/bin/python VENV=/opt\n$PY -m x", None),
        ("# python2 -m x\nif true; then\n  exec /opt/venv/bin/python -m x # python2\nfi", VENV),
        ("cat >f <<'END'\npython2 -m x\nEND\npython3 f", PLAIN),
        ('python2 -c "import torch"\nexec python3 -m x', PLAIN),
        ("python2 prepare.py\nexec python3 -m x", PLAIN),
        ("vllm serve m", Interpreter(command="vllm")),
        ("timeout 5h sglang serve --model-path m", Interpreter(command="sglang")),
        (". /opt/venv/bin/activate; vllm serve", Interpreter(command="vllm", path="/opt/venv/bin:$PATH")),
        ("source ~/v/bin/activate\npython -m x", Interpreter(command="python", path="$HOME/v/bin:$PATH")),
        ("PATH=/opt/bin:$PATH python3 -m x", Interpreter(command="python3", path="/opt/bin:$PATH")),
        ("exec ~/venv/bin/python -m x", Interpreter(command="$HOME/venv/bin/python")),
        ('cd "/srv/x y"; cd z\nexec python3 -m x', Interpreter(command="python3", folder="/srv/x y/z")),
        (
            "export PYTHONPATH=$HOME/plugin:$PYTHONPATH\npython3 -m x",
            Interpreter(command="python3", pythonpath="$HOME/plugin:$PYTHONPATH"),
        ),
    ],
)
def test_the_python_that_a_script_starts(script: str, expected: Interpreter | None) -> None:
    """As bash would start it."""
    assert expected == interpreter(script)


@pytest.mark.parametrize(
    "script",
    [
        "",
        "exec ./server --port 1",
        "exec docker run --gpus all image python3 -m sglang.launch_server",
        "ssh box python3 -m x",
        "conda run -n x python3 -m x",
        "uv run vllm serve m",
        "conda activate x\npython3 -m x",
        "source env.sh\npython3 -m x",
        'PY=$(command -v python3)\nexec "$PY" -m x',
        "exec ${PY:-python3} -m x",
        "if a; then PY=/a/python; else PY=/b/python; fi\n$PY -m x",
        "python3 a.py\npython2 b.py",
        "echo python3 -m x",
        "exec python3 -m x 'not closed",
        '"$PYTHON" -m x & python3 watch.py',
    ],
)
def test_what_cannot_be_told_is_not_told(script: str) -> None:
    """A guess would ask the wrong Python, and believe it."""
    assert interpreter(script) is None


@given(st.text("python3 -mx$HOME{}'\"\\\n;&|()<>#=~/.`"))
def test_any_script_can_be_read(script: str) -> None:
    """It may be one that bash would not read."""
    assert interpreter(script) is None or interpreter(script + "\n") == interpreter(script)


def test_help_is_asked_for_as_the_stack_says() -> None:
    """Where the first answer only tells how to ask."""
    said = "usage: vllm serve [model_tag] [options]\n\nFor full list:  vllm serve --help=all\n"
    assert (("--help",), ("--help=all",)) == (help_arguments(), help_arguments(said))


# --- on the target ------------------------------------------------------------------------------------

ENGINE = Package(name="engine", prefixes=("ENGINE_", "ENG_"))
SOURCE = """\
raise RuntimeError("this package is never imported")
"""
SETTINGS = """\
a = os.environ.get("ENGINE_GRAPHS", '1') + os.environ['ENG_OLD']
class Envs:
    ENGINE_CLASS = EnvBool(True)
    ENGINE_TYPED: EnvField = EnvInt(3)
    ENGINE_KIND = 3
b = os.environ[f"ENGINE_{tool.upper().replace('-', '_')}_PATH"], f"ENGINE_{anything}"
OLD = {"ENGINE_GONE": _DeprecatedEnv(note="it has no effect")}
# ENGINE_COMMENT
message = "set ENGINE_PROSE=1"
OTHER = "OTHER_NAME"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package that reads environment names, in Python and in compiled code."""
    package = tmp_path / "site" / "engine"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE)
    (package / "deep" / "settings.py").write_text(SETTINGS)
    (package / "native.so").write_bytes(b"\x7fELF\0\0ENGINE_NATIVE\0ENGINE_\0")
    (package / "notes.txt").write_text('"ENGINE_NOTES"')
    metadata = tmp_path / "site" / "engine-2.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: engine\nVersion: 2.5\n")
    return tmp_path / "site"


def asked(python: Interpreter, packages: Sequence[Package]) -> subprocess.CompletedProcess[str]:
    """What the command says on this machine."""
    command = names_command(python, packages)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def expected(site: Path) -> tuple[Names, ...]:
    """What is in that package."""
    found = {"GRAPHS", "CLASS", "TYPED", "*_PATH", "NATIVE"}
    names = frozenset({f"ENGINE_{name}" for name in found} | {"ENG_OLD"})
    return (Names(source=f"engine 2.5 in {site}/engine", prefixes=ENGINE.prefixes, names=names),)


def test_the_names_that_an_installed_package_reads(site: Path) -> None:
    """A package that is not there is left out, and neither is imported."""
    python = Interpreter(command=sys.executable, pythonpath=str(site))
    done = asked(python, [Package(name="absent", prefixes=("ABSENT_",)), ENGINE, Package(name="json")])
    assert (expected(site), "") == (names_of(done.stdout), done.stderr)


def test_a_package_is_found_where_the_script_goes(site: Path) -> None:
    """Python looks into the folder that it is started in."""
    assert expected(site) == names_of(
        asked(Interpreter(command=sys.executable, folder=str(site)), [ENGINE]).stdout
    )


@pytest.mark.parametrize(
    "head",
    ["#!{python}\n", "#!/usr/bin/env python3\n", "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"],
    ids=["plain", "env", "long"],
)
def test_a_console_script_names_its_python(head: str, site: Path) -> None:
    """In its first line, or in the second where the first has no room for it."""
    folder = site / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    script = folder / "engine"
    script.write_text(head.format(python=folder / "python3") + "raise SystemExit(1)\n")
    script.chmod(0o755)
    python = Interpreter(command="engine", path=f"{folder}:$PATH", pythonpath=str(site))
    assert expected(site) == names_of(asked(python, [ENGINE]).stdout)


def test_what_is_not_started_by_python_is_not_started(tmp_path: Path) -> None:
    """A wrapper in bash would take our program for its own."""
    wrapper = tmp_path / "vllm"
    wrapper.write_text(f"#!/bin/bash\ntouch {tmp_path}/started\n")
    wrapper.chmod(0o755)
    done = asked(Interpreter(command=str(wrapper)), [ENGINE])
    assert (1, f"{wrapper} is not started by a Python\n", False) == (
        done.returncode,
        done.stderr,
        (tmp_path / "started").exists(),
    )


def test_a_python_that_is_not_there_is_said_to_be_missing() -> None:
    """Nothing is found, and nothing is made of it."""
    done = asked(Interpreter(command="/nowhere/python3"), [ENGINE])
    assert (127, "there is no /nowhere/python3\n", ()) == (
        done.returncode,
        done.stderr,
        names_of(done.stdout),
    )


def test_what_is_found_is_what_names_are_checked_against(site: Path) -> None:
    """The question and its use fit together."""
    done = asked(Interpreter(command=sys.executable, pythonpath=str(site)), [ENGINE])
    (finding,) = check_names(["ENGINE_GRAPHS", "ENGINE_PTXAS_PATH", "ENGINE_GRAPS"], names_of(done.stdout))
    assert ("ENGINE_GRAPS", "ENGINE_GRAPHS") == (finding.argument, finding.remedy)


@given(st.text() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_any_output_can_be_read(output: str) -> None:
    """A target may print what it likes."""
    assert () == names_of(output)


# --- where its packages are ---------------------------------------------------------------------------


def test_a_python_tells_where_it_looks_for_packages(site: Path) -> None:
    """By its own path, PYTHONPATH first; what is no folder is left out."""
    command = places_command(Interpreter(command=sys.executable, pythonpath=f"/nowhere:{site}"))
    found = places_of(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert str(site) == found[0]
    assert "/nowhere" not in found
    assert [path for path in sys.path if path.endswith("site-packages")][-1:] == [
        path for path in found if path.endswith("site-packages")
    ]


@FEW
@given(st.text())
def test_any_word_of_a_python_can_be_read(said: str) -> None:
    """It may print what it likes before it, and instead of it."""
    assert isinstance(places_of(said), tuple)
    assert ("/a",) == places_of(f'{said}\n["/a"]')


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("pip install sglang==$VERSION\nexec python3 -m x", True),
        ("/opt/v/bin/python -m pip install x && exec python3 -m x", True),
        ("uv pip install x; python3 -m x", True),
        ("uv sync --frozen\nexec python3 -m x", True),
        ("conda install -y x\nexec python3 -m x", True),
        ("# pip install x\nexec python3 -m x", False),
        ("pip list\nexec python3 -m install", False),
        ("exec python3 -m x --install pip", False),
    ],
)
def test_a_script_that_installs_packages_is_known(script: str, *, expected: bool) -> None:
    """Then they are what it varies, and cannot be what must stay."""
    assert expected is installs(script)
