"""A job whose log is a weapon, carried out by the real command; and small disks to fill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.folder import RunFolder
from bisect_agent.model import LogCopy, Reading
from bisect_agent.pieces import faithful, reread
from bisect_agent.playbook import load
from bisect_agent.signatures import Scanner, watches
from bisect_agent.verdict import Verdict
from tests.mistakes.scene import Scene, Seen

FATAL = "fatal: the weapon has struck"
OBSERVE = {
    "signatures": [{"id": "struck", "role": "root", "pattern": f"^{FATAL}", "fatal": True}],
    "phases": [{"name": "armed", "begin": "^armed"}],
}


@dataclass(frozen=True)
class Ran:
    """A command that has ended. `peak` is the most memory it had, in MB."""

    code: int
    stdout: str
    stderr: str
    peak: float
    runs: Path

    def folder(self) -> Path:
        """The only run folder."""
        (folder,) = self.runs.iterdir()
        return folder

    def verdict(self) -> Verdict:
        """Its verdict."""
        return Verdict.model_validate_json((self.folder() / "verdict.json").read_bytes())


@dataclass
class Arms:
    """The folder of a job that is harmless in `good`, and does its worst in `bad`."""

    scene: Scene

    def load(self, weapon: str, **keys: object) -> None:
        """The job is this script, where COMPILE is set."""
        self.scene.job(
            f'[ -n "$COMPILE" ] || exit 0\nlog=$(readlink /proc/$$/fd/1)\n{weapon}\n', observe=OBSERVE, **keys
        )

    def attempt(self) -> Seen:
        """One attempt at `bad`; a file `seen` appears when the agent has read that it is `armed`."""

        def touch(event: object) -> None:
            if getattr(event, "kind", "") == "phase-entered":
                (self.scene.stack / "seen").touch()

        return self.scene.attempt(on_event=touch)

    def run(self, runs: Path | None = None) -> Ran:
        """The whole investigation."""
        runs = runs or self.scene.folder / "runs"
        return self.command("run", self.scene.stack / "playbook.yaml", "--runs", runs, runs=runs)

    def command(self, *words: str | Path, runs: Path = Path()) -> Ran:
        """A command, in a process of its own."""
        out, err, peak = (self.scene.folder / name for name in ("stdout", "stderr", "peak"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            ended = subprocess.run(
                [sys.executable, Path(__file__).with_name("measured.py"), peak, *words],
                env={"PATH": os.environ["PATH"], "HOME": str(self.scene.folder)},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                check=False,
            )
        return Ran(ended.returncode, out.read_text(), err.read_text(), int(peak.read_text()) / 1000, runs)

    def again(self, log: LogCopy, size: int) -> Reading:
        """What our copy of the log says by itself."""
        folder = RunFolder(self.scene.folder / "run")
        playbook = load(self.scene.stack / "playbook.yaml")
        data = folder.read(log.path)
        assert faithful(log, data)
        return reread(log, data, size, Scanner(watches(playbook), playbook.observe.ignore))


@contextmanager
def disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of this size, mounted at a new folder."""
    place.mkdir()
    mounted = subprocess.run(
        ["/usr/bin/env", "mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", place],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["/usr/bin/env", "umount", "--lazy", place], check=True)
