"""The command that makes a copy which can travel, on a run that was recorded on this very machine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from tests.e2e.agent import Agent, Command, Finished, finished, listens, tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """A real run of the tiny server."""
    agent = Agent(tmp_path_factory.mktemp("telling"))
    server = tiny(agent.home)
    yield finished(agent, agent.run(server.playbook), server.port)
    agent.leave()


@pytest.fixture(scope="module")
def made(run: Finished) -> Command:
    """The command that has exported it."""
    return run.command("export", "--redact")


def traces(agent: Agent) -> re.Pattern[bytes]:
    """What tells of this machine: its name, where the run was, which kernel and which boot it had."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    names = (socket.gethostname(), agent.home.name, agent.home.parent.name, boot, os.uname().release)
    telling = [re.escape(n) for n in names if not re.fullmatch(r"[\d.]+|localhost|.{1,3}", n)]
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(telling)})(?![A-Za-z0-9])".encode())


def content(folder: Path) -> bytes:
    """All names and bytes of a folder."""
    return b"\n".join(
        str(p.relative_to(folder)).encode() + p.read_bytes() for p in folder.rglob("*") if p.is_file()
    )


def test_a_run_is_exported_beside_it(run: Finished, made: Command) -> None:
    """Nothing in the copy tells of this machine; it is verified and reported as the run is."""
    copy, told, telling = Path(f"{run.folder}-exported"), made.stdout.decode(), traces(run.agent)
    assert (ExitCode.CONCLUDED, True, True) == (made.end(), str(copy) in told, "--also WORD" in told)
    assert ([], True) == (telling.findall(content(copy)), bool(telling.findall(content(run.folder))))
    head = sha256(run.read("journal.jsonl").splitlines()[-1]).hexdigest()
    verified, report = run.agent.start("verify", copy), run.agent.start("report", copy)
    assert (ExitCode.CONCLUDED, ExitCode.CONCLUDED) == (verified.end(), report.end())
    assert verified.stdout.decode().startswith(f"exported from a run whose head was {head}\nit follows: ")
    assert run.command("report").stdout == report.stdout


def test_a_run_is_exported_as_one_file(run: Finished) -> None:
    """It is verified and reported without being unpacked by hand."""
    archive = run.agent.home / "run.tar.gz"
    assert ExitCode.CONCLUDED == run.command("export", "--redact", "--to", str(archive)).end()
    verified, report = run.agent.start("verify", archive), run.agent.start("report", archive)
    assert (ExitCode.CONCLUDED, ExitCode.CONCLUDED) == (verified.end(), report.end())
    assert verified.stdout.decode().startswith("exported from a run ")
    assert run.command("report").stdout == report.stdout


@pytest.mark.parametrize("command", ["resume", "stop"])
def test_an_exported_run_has_nothing_to_go_on_with(run: Finished, made: Command, command: str) -> None:
    """What it tells of is not here; the server that the run itself has left is not touched."""
    assert ExitCode.CONCLUDED == made.end()
    refused = run.agent.start(command, f"{run.folder}-exported")
    assert (ExitCode.USAGE, True) == (refused.end(), listens(run.port))
    assert "this run was exported" in refused.stderr


def test_export_without_redact_says_what_it_does(run: Finished) -> None:
    """A copy as it is would tell everything, and needs no command of ours."""
    refused = run.command("export")
    assert ExitCode.USAGE == refused.end()
    assert f"export --redact {run.folder}" in refused.stderr
