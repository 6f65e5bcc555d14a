"""Everything else that goes wrong at night: links, supervisors, disks. The run comes to the same end."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.journal import NAME
from bisect_agent.target import supervisor
from tests.hosts.sshd import Sshd, server
from tests.torture.lab import AT_A_TIME, Answer, Lab, Undisturbed, answer_of
from tests.weapons.arms import disk

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]

CUTS = 5
"""Cuts of the connection in one run."""
LATEST = 40
"""The event of a run, of some sixty, at which it is disturbed at the latest."""
LONG = 60.0
"""Seconds of a long black hole."""
MEBIBYTES = 80
"""The size of a disk that gets full."""

Plague = Callable[[Lab, threading.Event], int]
"""Disturbs a lab's run until it is over, or the plague is; says how often it did."""


@dataclass(frozen=True)
class Case:
    """A lab, what disturbs it, and how it is taken down again."""

    lab: Lab
    plague: Plague
    stack: ExitStack


def suffered(case: Case) -> tuple[int, Answer]:
    """How often a run was disturbed, and what it came to, taken up as often as it needs."""
    over = threading.Event()
    with case.stack, ThreadPoolExecutor(1) as pool:
        process = case.lab.begin()
        times = pool.submit(case.plague, case.lab, over)
        try:
            process.communicate()
            code = process.returncode
        finally:
            over.set()
        return times.result(), answer_of(case.lab, case.lab.concluded(code))


def all_suffered(
    name: str,
    least: int,
    cases: list[Case],
    undisturbed: Undisturbed,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every case comes to the undisturbed answer; the counts are printed, and were at `least` so many."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(suffered, cases))
    answers = [answer for _, answer in results]
    with capsys.disabled():
        print(
            f"\n{sum(times for times, _ in results)} {name} in {len(results)} runs:"
            f" {sum(a.lost for a in answers)} finished trials lost,"
            f" {sum(a.twice for a in answers)} scripts started twice,"
            f" {sum(a.left for a in answers)} processes left,"
            f" {sum(a != undisturbed.answer for a in answers)} other verdicts"
        )
    assert {undisturbed.answer} == set(answers)
    assert least <= sum(times for times, _ in results)


def over_ssh(home: Path, plague: Callable[[Sshd], Plague]) -> Case:
    """A lab with a server of SSH of its own."""
    stack = ExitStack()
    sshd = stack.enter_context(server())
    return Case(Lab.make(home, sshd), plague(sshd), stack)


# --- the plagues ------------------------------------------------------------------------------------


def come(lab: Lab, over: threading.Event, events: int = 1) -> bool:
    """Waits until a run has come to so many events; who is disturbed before the first only tries again."""
    journal = lab.run() / NAME
    while not journal.exists() or journal.read_bytes().count(b"\n") < events:
        if over.wait(0.02):
            return False
        journal = lab.run() / NAME
    return True


def cuts(sshd: Sshd) -> Plague:
    """The connection is cut again and again."""

    def plague(lab: Lab, over: threading.Event) -> int:
        times = 0
        come(lab, over)
        while times < CUTS and not over.wait(random.uniform(0.1, 0.6)):  # noqa: S311
            times += len(sshd.sessions()) > 0
            sshd.cut()
        return times

    return plague


def black_hole(seconds: float) -> Callable[[Sshd], Plague]:
    """Nothing comes back for so many seconds, beginning at some moment."""

    def on(sshd: Sshd) -> Plague:
        def plague(lab: Lab, over: threading.Event) -> int:
            if not come(lab, over, random.randint(1, LATEST)):  # noqa: S311
                return 0
            with sshd.hole(everybody=True):
                time.sleep(seconds)  # the plague itself, whatever else happens
            return 1

        return plague

    return on


def supervisors_die(lab: Lab, over: threading.Event) -> int:
    """A supervisor is killed soon after it has come up."""
    spared = random.randrange(4)  # noqa: S311
    seen = set[str]()
    while not over.wait(0.01):
        for record in (lab.home / "there").glob("*/t*/super"):
            name = record.parent.name
            process = supervisor.find(supervisor.load(str(record)))
            if process is None or name in seen:
                continue
            seen.add(name)
            if len(seen) > spared:
                time.sleep(random.uniform(0, 0.3))  # noqa: S311  # at any moment of its life
                return int(supervisor.send(process, signal.SIGKILL))
    return 0


def disk_fills(lab: Lab, over: threading.Event) -> int:
    """The disk under the target's folder is full for a while."""
    if not come(lab, over, random.randint(1, LATEST)):  # noqa: S311
        return 0
    ballast = lab.home / "there" / "ballast"
    with suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
    over.wait(2)
    ballast.unlink()
    return 1


# --- the nights -------------------------------------------------------------------------------------


def test_fifty_cuts_of_the_connection(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five in each of sixteen runs, some of which are over before the fifth."""
    cases = [over_ssh(tmp_path / f"cut-{n}", cuts) for n in range(16)]
    all_suffered("cuts", 50, cases, undisturbed, capsys)


def test_twenty_black_holes(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eighteen of 5 to 15 seconds, shorter and longer than a link's patience, and two of a minute."""
    short = [random.uniform(5, 15) for _ in range(18)]  # noqa: S311
    cases = [
        over_ssh(tmp_path / f"hole-{n}", black_hole(seconds))
        for n, seconds in enumerate([LONG, LONG, *short])
    ]
    all_suffered("black holes", 20, cases, undisturbed, capsys)


def test_twenty_killed_supervisors(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The attempt is lost, and what was left of it is ended; the trial gets another attempt."""
    cases = [Case(Lab.make(tmp_path / f"killed-{n}"), supervisors_die, ExitStack()) for n in range(20)]
    all_suffered("killed supervisors", 20, cases, undisturbed, capsys)


def test_five_full_disks(
    undisturbed: Undisturbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What could not be written is no finding; when there is room again the run goes on."""
    cases = [on_a_small_disk(tmp_path / f"full-{n}") for n in range(5)]
    all_suffered("full disks", 5, cases, undisturbed, capsys)


def on_a_small_disk(home: Path) -> Case:
    """A lab whose target's folder lies on a disk of its own."""
    lab, stack = Lab.make(home), ExitStack()
    (home / "there").rmdir()
    stack.enter_context(disk(home / "there", MEBIBYTES))
    return Case(lab, disk_fills, stack)
