"""kill -9 of the agent, anywhere: resumed, it ends in the verdict of a run that nobody disturbed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.events import OfAttempt, Sealed
from bisect_agent.folder import RunFolder
from bisect_agent.investigation import stop_left
from bisect_agent.journal import decode, intact
from bisect_agent.verdict import Verdict
from bisect_agent.verify import verify

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
AT_A_TIME = 4
RANDOM_INSTANTS = 50


@dataclass(frozen=True)
class Lab:
    """A home, a playbook with a port of its own, and the one run that is made there."""

    home: Path

    @classmethod
    def make(cls, home: Path) -> Lab:
        """A lab in a new folder."""
        home.mkdir()
        shutil.copy(HERE / "server.py", home)
        text = (HERE / "playbook.yaml").read_text(encoding="utf-8")
        (home / "playbook.yaml").write_text(text.replace("31849", str(_free_port())), encoding="utf-8")
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
        """Processes that run in the lab's folder."""
        return [
            entry.name
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _cwd(entry) == self.home
        ]


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
    """What a run amounts to, without what differs between any two runs."""

    code: int
    cause: tuple[str, ...]
    hypotheses: tuple[str, ...]
    outcomes: frozenset[tuple[str, str]]
    restored: bool | None
    twice: int
    left: int


def answer_of(lab: Lab, code: int) -> Answer:
    """Reads a finished run, checks that it verifies, and stops what it restored."""
    folder = RunFolder(lab.run())
    verify(folder)
    verdict = Verdict.model_validate_json(folder.read("verdict.json"))
    stop_left(folder)
    starts = Counter(lab.starts())
    return Answer(
        code=code,
        cause=tuple(map(str, verdict.cause)),
        hypotheses=tuple(f"{h.id} {h.state}" for h in verdict.hypotheses),
        outcomes=frozenset(
            (str(t.configuration.root), t.outcome) for t in verdict.trials if t.outcome != "unresolved"
        ),
        restored=verdict.good_restored.ok,
        twice=sum(count > 1 for count in starts.values()),
        left=len(lab.left()),
    )


@dataclass(frozen=True)
class Undisturbed:
    """The run that nobody kills, and how many steps it took."""

    answer: Answer
    appends: int
    changes: int
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """What every other run must come to."""
    lab = Lab.make(tmp_path_factory.mktemp("torture") / "undisturbed")
    begun = time.monotonic()
    process = lab.begin()
    out, _ = process.communicate()
    appends, changes = map(int, out.split())
    seconds = time.monotonic() - begun
    return Undisturbed(answer_of(lab, process.returncode), appends, changes, seconds)


def tortured(lab: Lab, *doom: str) -> tuple[str, Answer]:
    """A run that is killed at a step, and then resumed: where it was killed, and what it came to."""
    process = lab.begin(*doom)
    process.communicate()
    assert -signal.SIGKILL == process.returncode
    return taken_up(lab)


def taken_up(lab: Lab) -> tuple[str, Answer]:
    """Where a killed run was, and what it comes to."""
    journal = lab.run() / "journal.jsonl"
    entries, _, _ = intact(journal.read_bytes() if journal.exists() else b"")
    if not entries:
        return "nothing", answer_of(lab, lab.again())
    event = entries[-1].event
    if isinstance(event, Sealed):
        return event.kind, answer_of(lab, event.exit_code)
    trial = event.trial if isinstance(event, OfAttempt) else ""
    return f"{event.kind} {trial}".strip(), answer_of(lab, lab.resume())


def interrupted(lab: Lab, seconds: float) -> tuple[str, Answer]:
    """A run that is killed at an instant, and then resumed."""
    process = lab.begin()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return taken_up(lab)


def everything(
    labs: Iterable[tuple[Lab, tuple[str, ...]]], capsys: pytest.CaptureFixture[str]
) -> set[Answer]:
    """All the answers; a histogram of the states that were hit is printed."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(lambda given: tortured(given[0], *given[1]), labs))
    show(Counter(state for state, _ in results), capsys)
    return {answer for _, answer in results}


def show(histogram: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    """How often each state was hit."""
    with capsys.disabled():
        print(f"\nkilled {histogram.total()} times; the last event was:")
        for state, count in sorted(histogram.items()):
            print(f"  {count:4} {state}")


def test_killed_after_any_event(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each event is the last one once."""
    labs = [
        (Lab.make(tmp_path / f"append-{n}"), ("append", str(n))) for n in range(1, undisturbed.appends + 1)
    ]
    assert {undisturbed.answer} == everything(labs, capsys)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_around_any_change_of_the_target(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    """Whatever the journal does not yet know, the target does."""
    labs = [
        (Lab.make(tmp_path / f"{moment}-{n}"), (moment, str(n))) for n in range(1, undisturbed.changes + 1)
    ]
    assert {undisturbed.answer} == everything(labs, capsys)


def test_killed_at_any_instant(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fifty instants, drawn anew each time."""
    instants = [random.uniform(0.2, undisturbed.seconds) for _ in range(RANDOM_INSTANTS)]  # noqa: S311
    labs = [(Lab.make(tmp_path / f"instant-{n}"), seconds) for n, seconds in enumerate(instants)]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(lambda given: interrupted(*given), labs))
    show(Counter(state for state, _ in results), capsys)
    assert {undisturbed.answer} == {answer for _, answer in results}


def test_killed_inside_a_line(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """The torn line is named and set aside; the run comes to the same end."""
    lab = Lab.make(tmp_path / "torn")
    process = lab.begin("append", str(undisturbed.appends // 2))
    process.communicate()
    journal = lab.run() / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-40])
    code = lab.resume()
    entries = decode(journal.read_bytes())
    lost = [text for entry in entries if entry.event.kind == "resumed" for text in entry.event.lost]
    assert 1 == len(lost)
    assert undisturbed.answer == answer_of(lab, code)
