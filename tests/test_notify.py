"""Messages, through the real apprise to a real server on the loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_agent import playbook
from bisect_agent.errors import ExitCode, PlaybookError
from bisect_agent.notify import Message, knows, send
from tests.hook import Hook

TOKEN = "s3cret-t0ken"
WITHOUT_APPRISE = "import sys; sys.modules['apprise'] = None; from bisect_agent.cli import main; main()"
"""The command, where that package is not to be had."""
MESSAGE = Message("a title", "two\nlines", "warning")
PLAYBOOK = """\
playbook: 1
kind: job
launch: exec true
factors: {a: {env: A, levels: {x: 1, y: 2}}}
bad: {a: y}
notify: NOTIFY
"""


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A server that takes notifications."""
    with Hook() as running:
        yield running


def test_a_message_arrives(hook: Hook) -> None:
    """Title, body and tone, as plain text."""
    assert () == send(MESSAGE, {"TO": hook.address(TOKEN)}, [])
    assert [("a title", "two\nlines", "warning")] == [(m["title"], m["message"], m["type"]) for m in hook.got]


def test_no_secret_is_told(hook: Hook) -> None:
    """Neither one of the run's nor the address itself, wherever they stand."""
    address = hook.address(TOKEN)
    send(Message(f"{TOKEN}!", f"see {address} and {TOKEN}", "failure"), {"TO": address}, [TOKEN])
    assert TOKEN not in json.dumps(hook.got)
    assert f"see {'*' * len(address)} and {'*' * len(TOKEN)}" == hook.got[0]["message"]


def test_one_that_fails_keeps_no_other_from_being_told(hook: Hook) -> None:
    """What went wrong is a sentence for each, by the variable's name, and nothing of the address is in it."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    addresses = {
        "GONE": f"json://user:{TOKEN}@127.0.0.1:{port}/{TOKEN}",
        "WRONG": hook.address(TOKEN, "refuse"),
        "RIGHT": hook.address(TOKEN),
        "NONE": f"nothing-known://{TOKEN}",
    }
    said = send(MESSAGE, addresses, [])
    assert ["GONE", "WRONG", "NONE"] == [sentence.split("${")[1].split("}")[0] for sentence in said]
    assert "error=418" in said[1]
    assert [] == [s for s in said if TOKEN in s or str(port) in s or "127.0.0.1" in s]
    assert 1 == len(hook.got)


def test_an_address_that_apprise_cannot_read_is_known() -> None:
    """Before anything is started."""
    assert knows("json://127.0.0.1/x")
    assert not knows("nothing-known://x")
    assert not knows("just a text")


@pytest.mark.parametrize(
    ("written", "ours", "said"),
    [
        ("[json://127.0.0.1/token]", {}, "`notify[1]` must be one `${NAME}`"),
        ("['${A}${B}']", {"A": "json://x", "B": "y"}, "`notify[1]` must be one `${NAME}`"),
        ("['${A}']", {}, "${A} is not set in your environment"),
        ("['${A}']", {"A": ""}, "${A} is not set in your environment"),
        ("['${A}']", {"A": f"nothing-known://{TOKEN}"}, "${A} holds no address that apprise knows"),
        ("${A}b", {"A": "json://x"}, "`notify` must be one `${NAME}`"),
        ("{a: b}", {}, "`notify` must be a list"),
        ("[${A}]", {"A": "json://x"}, 'put `${NAME}` in double quotes: "${NAME}"'),
    ],
)
def test_a_mistake_is_said_with_its_place(
    tmp_path: Path, written: str, ours: dict[str, str], said: str
) -> None:
    """As every mistake of a playbook is; the address itself is not repeated."""
    path = tmp_path / "playbook.yaml"
    path.write_text(PLAYBOOK.replace("NOTIFY", written))
    path.chmod(0o600)
    with pytest.raises(PlaybookError) as error:
        playbook.load(path, ours=ours)
    assert f"{path}:6:" in str(error.value)
    assert said in str(error.value)
    assert TOKEN not in str(error.value)


def test_without_apprise_it_is_said_what_to_install(tmp_path: Path) -> None:
    """Before anything is started, and only of a playbook that needs it."""
    path = tmp_path / "playbook.yaml"
    command = [sys.executable, "-c", WITHOUT_APPRISE, "check", str(path)]
    said = []
    for text in (PLAYBOOK.replace("NOTIFY", "${HOME}"), PLAYBOOK.replace("notify: NOTIFY\n", "")):
        path.write_text(text)
        path.chmod(0o600)
        said.append(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False))
    assert [ExitCode.USAGE, ExitCode.CONCLUDED] == [done.returncode for done in said]
    assert "`notify` needs apprise, and it is not installed\n  try: pip install 'bisect-agent[notify]'" in (
        said[0].stderr
    )


@pytest.mark.parametrize("written", ["${A}", "['${A}', '${A}']"])
def test_an_address_is_a_secret_of_the_playbook(tmp_path: Path, written: str) -> None:
    """So it is masked wherever others are; only its name is kept."""
    path = tmp_path / "playbook.yaml"
    path.write_text(PLAYBOOK.replace("NOTIFY", written))
    path.chmod(0o600)
    ours = {"A": f"json://127.0.0.1/{TOKEN}"}
    found = playbook.load(path, ours=ours)
    assert ("A",) == found.notify
    assert ours == playbook.secrets_of(found, ours) == playbook.notified(found, ours)
    assert TOKEN not in found.model_dump_json()
