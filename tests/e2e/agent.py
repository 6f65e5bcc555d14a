"""The agent as a person uses it: a command with a home of its own, and what it leaves behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bisect_agent.verdict import Verdict

QUICKSTART = Path(__file__).resolve().parents[2] / "playbooks" / "quickstart"
PORT = "31847"
"""The port that the shipped quickstart listens on."""
TINY = Path(__file__).parent / "tiny"
TINY_PORT = "31848"
"""The port in the tiny server's playbook."""
PATIENCE = 90.0
"""Seconds after which something awaited is taken to be stuck."""

Edit = tuple[str, str, str]
"""A file, a whole line of it, and the line to have instead."""


class Command:
    """One command in flight, its two outputs in files."""

    def __init__(self, argv: tuple[str, ...], variables: Mapping[str, str], home: Path) -> None:
        self._out, self._err = home / "stdout", home / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bisect_agent", *argv],
                cwd=home,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the agent itself."""
        return self._process.pid

    @property
    def stdout(self) -> bytes:
        """What came so far."""
        return self._out.read_bytes()

    @property
    def stderr(self) -> str:
        """What came so far."""
        return self._err.read_text(encoding="utf-8")

    def send(self, number: signal.Signals) -> None:
        """A signal, to the agent alone."""
        self._process.send_signal(number)

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def end(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(PATIENCE)


class Agent:
    """Runs commands in a folder of their own, which is their home too.

    Args:
        home: a new folder.
        variables: environment variables beside PATH and HOME.
    """

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.runs = home / "runs"
        self._variables = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
        self._commands: list[Command] = []

    def start(self, *argv: str | Path) -> Command:
        """A command that is not waited for."""
        folder = self.home / f"command-{len(self._commands)}"
        folder.mkdir()
        self._commands.append(Command(tuple(map(str, argv)), self._variables, folder))
        return self._commands[-1]

    def run(self, playbook: Path, *options: str) -> Command:
        """An investigation that is not waited for, its record in `runs`."""
        return self.start("run", playbook, "--runs", self.runs, *options)

    def folders(self) -> list[Path]:
        """The run folders, oldest first."""
        return sorted(path for path in self.runs.glob("*") if path.is_dir())

    def folder_of(self, playbook: Path) -> Path:
        """The only run folder of a playbook."""
        (folder,) = [f for f in self.folders() if events(f)[0]["source"] == str(playbook)]
        return folder

    def folder(self) -> Path:
        """The only run folder."""
        (folder,) = self.folders()
        return folder

    def awaits(self, *expected: object) -> None:
        """Waits until the only run's journal has an event with these values for kind and trial."""
        wait_for(lambda: any(set(expected) <= _flat(e) for e in self._events()), f"the event {expected}")

    def leave(self) -> None:
        """Ends what still runs, the restored servers too."""
        for command in self._commands:
            while command.running():
                command.send(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command._process.wait(1)
        end(guardians(self.home))
        for folder in self.folders():
            self.start("stop", folder).end()

    def _events(self) -> list[dict[str, Any]]:
        return events(self.folders()[0]) if self.folders() else []


@dataclass(frozen=True)
class Finished:
    """An investigation that has ended."""

    agent: Agent
    folder: Path
    port: int
    code: int
    stdout: bytes
    stderr: str

    def verdict(self) -> Verdict:
        """The verdict in its folder."""
        return Verdict.model_validate_json(self.read("verdict.json"))

    def read(self, name: str) -> bytes:
        """A file of the run folder."""
        return (self.folder / name).read_bytes()

    def command(self, name: str, *options: str) -> Command:
        """A command about this run, once it has ended."""
        command = self.agent.start(name, self.folder, *options)
        command.end()
        return command


def finished(agent: Agent, command: Command, port: int = 0) -> Finished:
    """The investigation of a command, once it has ended."""
    code = command.end()
    return Finished(agent, agent.folder(), port, code, command.stdout, command.stderr)


def events(folder: Path) -> list[dict[str, Any]]:
    """The events of a run's journal; a line that is being written does not count yet."""
    journal = folder / "journal.jsonl"
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    return [json.loads(line)["event"] for line in lines]


def _flat(event: dict[str, Any]) -> set[object]:
    trial = event.get("trial") or event.get("settled", {}).get("trial")
    return {event["kind"], trial["id"] if isinstance(trial, dict) else trial}


def quickstart(home: Path, *edits: Edit) -> tuple[Path, int]:
    """A copy of the quickstart with a free port and some lines changed: its playbook, and the port."""
    folder, port = home / "quickstart", free_port()
    shutil.copytree(QUICKSTART, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in edits:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(f"\n{old}\n") == 1
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")
    playbook = folder / "playbook.yaml"
    playbook.write_text(playbook.read_text(encoding="utf-8").replace(PORT, str(port)), encoding="utf-8")
    return playbook, port


@dataclass(frozen=True)
class Tiny:
    """A copy of the tiny server, with a port of its own."""

    playbook: Path
    port: int

    def hold(self, mode: str) -> None:
        """Starts in this mode wait from now on, and write nothing."""
        (self.playbook.parent / f"hold-{mode}").touch()

    def release(self, mode: str) -> None:
        """They go on."""
        (self.playbook.parent / f"hold-{mode}").unlink()


def tiny(home: Path, *edits: tuple[str, str]) -> Tiny:
    """A copy of the tiny server and its playbook, the playbook with some texts changed."""
    folder, port = home / "tiny", free_port()
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    playbook = folder / "server.yaml"
    text = playbook.read_text(encoding="utf-8")
    for old, new in edits:
        text = text.replace(old, new)
    playbook.write_text(text.replace(TINY_PORT, str(port)), encoding="utf-8")
    return Tiny(playbook, port)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def post(port: int, path: str, body: object) -> tuple[int, bytes]:
    """The status and the body that a server on 127.0.0.1 answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()


def processes_of(folder: Path) -> list[int]:
    """The processes that carry the tag of one of a run's attempts in their environment."""
    tags = [event["tag"].encode() for event in events(folder) if event["kind"] == "launching"]
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/environ")
        if any(tag in _read(path) for tag in tags)
    ]


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def guardians(home: Path) -> list[int]:
    """The guardians that watch over runs of this home."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if f"{home}/.bisect-agent/".encode() in _read(path) and b"/guardian.py\0" in _read(path)
    ]


def end(pids: list[int]) -> None:
    """Kills processes, and waits until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        gone = partial(_gone, pid)
        wait_for(gone, f"the end of {pid}")


def _gone(pid: int) -> bool:
    return not _read(Path(f"/proc/{pid}/cmdline"))


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}"
        time.sleep(0.02)
