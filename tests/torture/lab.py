"""A home with one run in it, whatever is done to that run, and what it comes to."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bisect_agent.errors import ExitCode
from bisect_agent.events import fold
from bisect_agent.folder import RunFolder
from bisect_agent.journal import decode
from bisect_agent.model import Unresolved
from bisect_agent.verdict import Verdict
from bisect_agent.verify import verify
from tests.hosts.sshd import Sshd

HERE = Path(__file__).parent
AT_A_TIME = 4
TRIES = 6
"""How often a run is taken up before it is given up."""


@dataclass(frozen=True)
class Lab:
    """A home, a playbook with a port of its own, and the one run that is made there.

    What the agent keeps on the target lies in `there`.
    """

    home: Path

    @classmethod
    def make(cls, home: Path, sshd: Sshd | None = None) -> Lab:
        """A lab in a new folder; its target is reached over SSH where there is a server for it."""
        home.mkdir()
        (home / "there").mkdir()
        shutil.copy(HERE / "server.py", home)
        text = (HERE / "playbook.yaml").read_text(encoding="utf-8").replace("31849", str(_free_port()))
        place = f"cwd: {home}, folder: {home}/there"
        address = "ssh://box" if sshd else "local"
        text = text.replace("{host: local,", f"{{host: {address}, {place},")
        (home / "playbook.yaml").write_text(text, encoding="utf-8")
        if sshd:
            (home / ".ssh").mkdir(mode=0o700)
            shutil.copy(sshd.config(), home / ".ssh" / "config")
        return cls(home)

    def victim(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """An agent that may be doomed."""
        environment = {**os.environ, "HOME": str(self.home)}
        with (self.home / "stderr").open("a", encoding="utf-8") as stderr:
            return subprocess.Popen(
                [sys.executable, HERE / "victim.py", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def begin(self, *doom: str) -> subprocess.Popen[str]:
        """A run of the playbook."""
        return self.victim("run", self.home / "playbook.yaml", self.home / "runs", *doom)

    def resume(self) -> int:
        """The run taken up, to its end; returns the exit code."""
        process = self.victim("resume", self.run())
        process.communicate()
        return process.returncode

    def concluded(self, code: int) -> int:
        """The exit code of the run, taken up as often as that may help."""
        for _ in range(TRIES):
            if code not in {ExitCode.TARGET, ExitCode.NOT_RESTORED}:
                break
            code = self.resume() if self.run().exists() else self.again()
        return code

    def again(self) -> int:
        """The playbook run once more, after a run that had recorded nothing; returns the exit code."""
        shutil.rmtree(self.home / "runs", ignore_errors=True)
        process = self.begin()
        process.communicate()
        return process.returncode

    def run(self) -> Path:
        """The run folder, where the journal is or would be."""
        return next((self.home / "runs").glob("*"), self.home / "runs" / "none")

    def starts(self) -> list[str]:
        """The tags of all scripts that were started."""
        return (self.home / "starts").read_text(encoding="utf-8").split()

    def left(self) -> list[str]:
        """Processes that run in the lab's folder, or for it on the target."""
        return [
            entry.name
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and (_cwd(entry) == self.home or self.serves(entry))
        ]

    def serves(self, process: Path) -> bool:
        """Whether a process is a supervisor or a guardian of the lab's run."""
        try:
            return f"{self.home}/there/".encode() in (process / "cmdline").read_bytes()
        except OSError:
            return False


def _cwd(process: Path) -> Path | None:
    try:
        return (process / "cwd").readlink()
    except OSError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Answer:
    """What a run amounts to, without what differs between any two runs.

    `lost` counts trials that had an answer and were run again all the same, `twice` scripts that were
    started twice, `left` processes that nobody has ended.
    """

    code: int
    cause: tuple[str, ...]
    hypotheses: tuple[str, ...]
    outcomes: frozenset[tuple[str, str]]
    restored: bool | None
    lost: int
    twice: int
    left: int


def answer_of(lab: Lab, code: int) -> Answer:
    """Reads a finished run, checks that it verifies, and stops what it restored."""
    folder = RunFolder(lab.run())
    verify(folder)
    verdict = Verdict.model_validate_json(folder.read("verdict.json"))
    ended = subprocess.run(
        [sys.executable, HERE / "victim.py", "stop", lab.run()],
        env={**os.environ, "HOME": str(lab.home)},
        check=False,
        capture_output=True,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    state = fold(decode(folder.journal.read_bytes()))
    answers = Counter(s.trial.id for s in state.judged() if not isinstance(s.outcome, Unresolved))
    return Answer(
        code=code,
        cause=tuple(map(str, verdict.cause)),
        hypotheses=tuple(f"{h.id} {h.state}" for h in verdict.hypotheses),
        outcomes=frozenset(
            (str(t.configuration.root), t.outcome) for t in verdict.trials if t.outcome != "unresolved"
        ),
        restored=verdict.good_restored.ok,
        lost=sum(count > 1 for count in answers.values()),
        twice=sum(count > 1 for count in Counter(lab.starts()).values()),
        left=len(lab.left()),
    )


@dataclass(frozen=True)
class Undisturbed:
    """The run that nobody disturbs, how many steps it took, and how many seconds."""

    answer: Answer
    appends: int
    changes: int
    seconds: float
