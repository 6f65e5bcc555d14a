"""What a person types by hand: it starts what the attempt started, and shows no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bisect_agent import playbook as books
from bisect_agent.model import (
    EnvFactor,
    FileFactor,
    FlagsFactor,
    HttpRequest,
    OptionFactor,
    Playbook,
    ScriptFactor,
)
from bisect_agent.report.commands import asks, commands, means, word
from tests.worlds import playbook_of

SECRET = "hunter2-and-more"  # nothing that is one
OURS = {
    "HOME": "/home/me",
    "PATH": os.environ["PATH"],
    "LANG": "C.UTF-8",
    "HF_TOKEN": SECRET,
    "VISIBLE": "0, 1\nHF_TOKEN=no",
    "BASE": "/srv/it's here",
}
ODD = "a 'b' \"c\" $HOME `id` \\ ü \x1b[2J\u202e\n\tend"

SHOW = """import json, os, sys
print(json.dumps([dict(os.environ), sys.argv[1:], os.getcwd()]))"""

ENV = EnvFactor(name="env", env="ODD", levels={"off": None, "on": ODD})
TOKEN = EnvFactor(name="token", env="TOKEN", levels={"off": "none", "on": "x${HF_TOKEN} ${BASE}/y"})
FLAGS = FlagsFactor(name="flags", levels={"off": (), "on": ("--text", ODD, "")})
OPTION = OptionFactor(name="option", option="--backend", levels={"off": None, "on": "a b"})
FILE = FileFactor(name="file", path="etc/config.json", levels={"off": None, "on": '{"END": 1}\nEND\n'})
SCRIPT = ScriptFactor(name="script", levels={"off": "old", "on": "new"})


@pytest.fixture
def playbook(tmp_path: Path) -> Playbook:
    """A playbook with a factor of every kind; `good` has each of them off, `bad` on."""
    factors = (ENV, TOKEN, FLAGS, OPTION, FILE, SCRIPT)
    plain = playbook_of({f.name: ("off", "on") for f in factors}, {f.name: "on" for f in factors})
    (tmp_path / "etc").mkdir()
    target = plain.target.model_copy(
        update={
            "cwd": str(tmp_path),
            "env": {"FIXED": "1 and 2", "CACHE": "${BASE}/cache"},
            "passed": ("HF_TOKEN", "VISIBLE", "NOT_SET_ANYWHERE"),
        }
    )
    return plain.model_copy(update={"factors": factors, "target": target})


def written(playbook: Playbook) -> str:
    """The environment of `bad` as the run folder keeps it."""
    values = books.environment(playbook, playbook.bad, OURS)
    return "".join(f"{name}={value}\n" for name, value in sorted(values.items())).replace(SECRET, "*" * 16)


def typed(lines: tuple[str, ...], tmp_path: Path) -> Any:  # noqa: ANN401  # JSON
    """What a launch script gets when the lines are typed into a shell that has `OURS`."""
    (tmp_path / "launch.sh").write_text(f'exec {sys.executable} -I {tmp_path}/show.py "$@"\n')
    (tmp_path / "show.py").write_text(SHOW)
    done = subprocess.run(
        ["/bin/bash", "--norc"],
        input="\n".join((*lines, "")).encode(),
        env=OURS,
        capture_output=True,
        check=True,
        timeout=30,
    )
    return json.loads(done.stdout)


def test_what_is_typed_starts_what_the_attempt_started(playbook: Playbook, tmp_path: Path) -> None:
    """The same environment, arguments and folder, to the byte; and the files are written."""
    lines = commands(playbook, playbook.bad, f"{tmp_path}/launch.sh", written(playbook))
    environment, arguments, folder = typed(lines, tmp_path)
    expected = books.environment(playbook, playbook.bad, OURS)
    assert expected == {name: environment[name] for name in environment if name not in BASH}
    assert (list(books.arguments(playbook, playbook.bad)), str(tmp_path)) == (arguments, folder)
    assert books.files(playbook, playbook.bad) == {str(p): p.read_text() for p in tmp_path.glob("etc/*")}


BASH = {"PWD", "SHLVL", "_", "OLDPWD"}
"""What bash itself adds."""


def test_no_secret_is_shown(playbook: Playbook) -> None:
    """It is named, and whoever types it has it in the environment."""
    lines = commands(playbook, playbook.bad, "launch.sh", written(playbook))
    assert [] == [line for line in lines if SECRET in line or "****" in line]
    assert '  HF_TOKEN="${HF_TOKEN}" \\' in lines
    assert """  TOKEN=x"${HF_TOKEN}"' '"${BASE}"/y \\""" in lines


def test_a_file_that_was_there_is_kept(playbook: Playbook, tmp_path: Path) -> None:
    """Whatever level is run, the first text can be put back."""
    config = tmp_path / "etc/config.json"
    config.write_text("mine\n")
    for configuration in (playbook.bad, playbook.good):
        typed(commands(playbook, configuration, f"{tmp_path}/launch.sh", written(playbook)), tmp_path)
    assert not config.exists()
    assert (tmp_path / "etc/config.json.kept").read_text() == "mine\n"


def test_caches_are_empty_again(playbook: Playbook, tmp_path: Path) -> None:
    """The attempt's own are warm by now, or gone."""
    fresh = playbook.model_copy(update={"caches": {"TRITON_CACHE_DIR": "triton"}})
    kept = written(playbook) + "TRITON_CACHE_DIR=/gone/caches/triton\n"
    lines = commands(fresh, fresh.bad, f"{tmp_path}/launch.sh", kept)
    environment, *_ = typed(lines, tmp_path)
    assert "/gone/" not in environment["TRITON_CACHE_DIR"]
    assert environment["TRITON_CACHE_DIR"].endswith("/triton")


def test_another_host_is_named(playbook: Playbook) -> None:
    """The lines are for a shell there."""
    target = playbook.target.model_copy(update={"host": "ssh://gpu-box"})
    remote = playbook.model_copy(update={"target": target})
    assert commands(remote, remote.bad, "launch.sh", "")[0] == "# on ssh://gpu-box"


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@example(ODD)
@example("\udc80 broken")
@example("\\'\n")
def test_a_word_is_one_word_and_shows_nothing_that_is_obeyed(text: str) -> None:
    """Bash reads the text itself; a terminal reads one printable line."""
    shown = word(text)
    assert shown.isprintable()
    done = subprocess.run(
        ["/bin/bash", "-c", f"printf %s {shown}"], capture_output=True, check=True, timeout=30
    )
    assert text.encode(errors="surrogateescape") == done.stdout


def test_how_a_level_is_set_is_said_in_a_few_words() -> None:
    """For each kind of factor, with and without a value."""
    assert [
        ("ODD is unset", "TOKEN=none"),
        ("no argument", "no --backend"),
        ("no file etc/config.json", "its launch script"),
        ("--backend 'a b'", "its text in etc/config.json"),
    ] == [
        (means(ENV, "off"), means(TOKEN, "off")),
        (means(FLAGS, "off"), means(OPTION, "off")),
        (means(FILE, "off"), means(SCRIPT, "off")),
        (means(OPTION, "on"), means(FILE, "on")),
    ]


def test_a_server_is_asked_what_the_attempts_asked_it(playbook: Playbook) -> None:
    """Health, and the request with its body."""
    request = HttpRequest(path="/generate?a=1&b", body='{"prompt": "it\'s"}')
    observe = playbook.observe.model_copy(update={"request": request})
    health, sent = asks(playbook.model_copy(update={"observe": observe}))
    assert health == "curl -sS -i http://127.0.0.1:30000/health"
    assert sent == (
        "curl -sS 'http://127.0.0.1:30000/generate?a=1&b' -H 'Content-Type: application/json'"
        """ --data '{"prompt": "it'"'"'s"}'"""
    )
