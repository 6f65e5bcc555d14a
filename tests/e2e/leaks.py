"""A server that tells its secrets, and whoever looks for them wherever they must not be."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.agent import TINY_PORT, Agent, Command, Finished, finished, free_port

LEAKY = Path(__file__).parent / "leaky"
BY_NAME = "s3cret-t0ken-by-its-name"
BY_REFERENCE = "qu1et-w0rds-by-reference"
MARKED = 'm4rked "by" the/playbook'
BY_LOOKS = "hf_" + "aZ3bY4cX5dW6eV7fU8gT9hS0iR1jQ2kP3l"
ENVIRONMENT: Mapping[str, str] = {"MY_API_TOKEN": BY_NAME, "INNOCENT": BY_REFERENCE, "MARKED": MARKED}
PIECES = [
    piece.encode()
    for secret in (BY_NAME, BY_REFERENCE, MARKED, BY_LOOKS)
    for piece in (secret, secret[:12], secret[-12:], secret.replace('"', '\\"'))
]
"""None of these may be seen: the kernel cuts names, so the ends of secrets count as well."""
FORMS = ("terminal", "markdown", "html", "json")


def leaky(folder: Path, target: str = "") -> Path:
    """A copy of the leaky server with a port of its own; `target` are further lines of its target."""
    shutil.copytree(LEAKY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "token.txt").write_text(BY_LOOKS, encoding="utf-8")
    playbook = folder / "server.yaml"
    text = playbook.read_text(encoding="utf-8").replace(TINY_PORT, str(free_port()))
    playbook.write_text(text.replace("target:\n", f"target:\n{target}"), encoding="utf-8")
    return playbook


def carried_out(agent: Agent, playbook: Path) -> Finished:
    """The whole life of a run: checked, run, reported in every form, verified, exported, stopped."""
    with spied() as seen:
        check = agent.start("check", playbook)
        check.end()
        run = finished(agent, agent.run(playbook, "--debug"))
        later = [run.command("report", "--format", form) for form in FORMS]
        exported = agent.start("export", "--redact", run.folder, "--to", agent.home / "exported")
        exported.end()
        later += [run.command("verify"), exported, run.command("stop")]
    assert b"shown nowhere: the value of INNOCENT, MY_API_TOKEN, MARKED\n" in check.stdout
    assert [] == seen
    assert [] == [word for command in (check, *later) for word in _told(command)]
    assert [0] * (len(later) + 1) == [command.end() for command in (check, *later)], later[-2].stderr
    return run


def found_in(run: Finished) -> list[Path]:
    """The files of a run, and of its copy that travels, that hold a secret or a piece of one."""
    files = [
        path for top in (run.folder, run.agent.home / "exported") for path in top.rglob("*") if path.is_file()
    ]
    return [path for path in files if any(piece in path.read_bytes() for piece in PIECES)]


def _told(command: Command) -> list[bytes]:
    said = command.stdout + command.stderr.encode()
    return [piece for piece in PIECES if piece in said]


@contextmanager
def spied() -> Iterator[list[str]]:
    """The command lines that show a secret while we look, again and again; the server's own are its own."""
    seen: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = place.read_bytes()
                except OSError:
                    continue
                if any(piece in line for piece in PIECES) and b"server.py" not in line:
                    seen.append(line.decode(errors="replace"))

    spy = threading.Thread(target=look)
    spy.start()
    try:
        yield seen
    finally:
        over.set()
        spy.join()
