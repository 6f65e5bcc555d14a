"""How real processes die: by themselves, by a signal, by their own hand, by the kernel for want of memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGSEGV

import pytest

from bisect_agent.events import Launched, OfAttempt
from bisect_agent.hosts import Completed
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Exit, SymptomKind
from tests.attempts import Attempted, attempt, playbook

MEMORY = 96 << 20
"""Bytes that the control group of these tests may hold; the hog wants four times as much."""
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")

SEGV = "import os; os.kill(os.getpid(), 11)"
CHILD = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SEGV!r}])
time.sleep(1)
sys.exit(3)
"""
HOG = """
import subprocess, sys
hog = "import time; kept = bytearray(b'x' * (384 << 20)); time.sleep(60)"
print("a child ended with", subprocess.call([sys.executable, "-c", hog]), flush=True)
sys.exit(1)
"""


def died(folder: Path, launch: str, host: LocalHost | None = None) -> Attempted:
    """An attempt at a launch script, in which `$python` is Python and `stack.py` the program beside it."""
    return attempt(playbook(folder, launch.replace("$python", sys.executable)), host=host)


def by_whom(done: Attempted) -> str:
    """What is to be said of a SIGKILL that was not the kernel's."""
    assert done.seen.memory is not None
    if done.seen.memory.readable:
        return "; the kernel's counters show no out-of-memory kill"
    return "; the kernel's counters are not readable: by whom is unknown"


def test_a_code_is_a_code(tmp_path: Path) -> None:
    """And nothing else is said."""
    symptom = died(tmp_path, "exit 3").symptom
    assert ("exit-3", "exit code 3 in its start") == (symptom.id, symptom.text)


def test_a_signal_is_a_signal(tmp_path: Path) -> None:
    """A fault of the script's own process needs no word about memory."""
    symptom = died(tmp_path, f"exec $python -c '{SEGV}'").symptom
    assert (SymptomKind.SIGNAL, "signal-11", "killed by signal 11 in its start") == (
        symptom.kind,
        symptom.id,
        symptom.text,
    )


def test_a_child_that_a_signal_ended_is_named(tmp_path: Path) -> None:
    """Its parent, which did not wait for it at once, ends with a code that says nothing."""
    (tmp_path / "stack.py").write_text(CHILD)
    done = died(tmp_path, "exec $python stack.py")
    assert ("exit-3", [SIGSEGV]) == (done.symptom.id, [death.signal for death in done.seen.deaths])
    dead = done.seen.deaths[0].process
    assert done.symptom.text.endswith(f"; before, process {dead.pid} {dead.name} was killed by signal 11")


def test_an_orphan_that_a_signal_ended_is_named(tmp_path: Path) -> None:
    """The supervisor takes its status itself."""
    done = died(tmp_path, f"(setsid $python -c '{SEGV}' &)\nsleep 0.5\nexit 3")
    assert [SIGSEGV] == [death.signal for death in done.seen.deaths]


@pytest.mark.parametrize(
    "launch",
    ["exec $python -c 'import os; os.kill(os.getpid(), 9)'", "$python -c 'input()' & kill -9 -- -$$; wait"],
    ids=["itself", "its own group"],
)
def test_a_kill_by_its_own_hand_is_no_want_of_memory(tmp_path: Path, launch: str) -> None:
    """Signal 9 alone says nothing of memory: the kernel has to say so."""
    done = died(tmp_path, launch)
    assert ("signal-9", Exit(signal=SIGKILL)) == (done.symptom.id, done.seen.exit)
    assert f"killed by signal 9 in its start{by_whom(done)}" == done.symptom.text


def test_a_shell_tells_of_a_kill_by_a_code(tmp_path: Path) -> None:
    """137 is what is left of it; what the counters showed is kept."""
    done = died(tmp_path, "$python -c 'import os; os.kill(os.getpid(), 9)'")
    expected = f"exit code 137 in its start, as a shell tells of signal 9{by_whom(done)}"
    # The shell may be slow to take note of its child's death; then we have seen it, too.
    assert ("exit-137", True) == (done.symptom.id, done.symptom.text.startswith(expected))


def test_a_kill_from_outside_is_no_want_of_memory(tmp_path: Path) -> None:
    """By whom is unknown; that it was not the kernel is shown where it can be."""

    def kill(event: OfAttempt) -> None:
        if isinstance(event, Launched):
            os.kill(event.main.pid, SIGKILL)

    done = attempt(playbook(tmp_path, "sleep 60 & wait"), kill)
    assert ("signal-9", True) == (done.symptom.id, done.symptom.text.endswith(by_whom(done)))


def test_what_our_own_stop_kills_died_of_nothing(tmp_path: Path) -> None:
    """A process that is deaf to TERM is killed by us, and that is told of nowhere else."""
    done = attempt(playbook(tmp_path, "trap '' TERM\nsleep 60 & wait", quiet=0.3))
    assert ("hang", ()) == (done.symptom.id, done.seen.deaths)
    assert done.seen.killed > 0


# --- out of memory ----------------------------------------------------------------------------------


class Small(LocalHost):
    """This machine, where whatever is started has little memory."""

    def __init__(self, group: Path) -> None:
        super().__init__()
        self.group = group

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Runs it in the control group."""
        join = f'echo $$ > {self.group}/cgroup.procs; exec "$@"'
        return super().run(("sh", "-c", join, "sh", *argv), timeout=timeout, stdin=stdin)


@pytest.fixture
def small() -> Iterator[Small]:
    """A host with a control group of its own."""
    place, limit = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V2, "memory.max")
    group = place / f"bisect-agent-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(MEMORY))
        for more in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            with suppress(OSError):
                (group / more).write_text(str(MEMORY if "memsw" in more else 0))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"a control group for memory cannot be made here: {error}")
    yield Small(group)
    group.rmdir()


def test_a_kill_for_want_of_memory_is_shown_by_the_kernel(tmp_path: Path, small: Small) -> None:
    """The parent lives on and ends with a code: only the kernel knows why its child is gone."""
    (tmp_path / "stack.py").write_text(HOG)
    done = died(tmp_path, "exec $python stack.py", small)
    symptom, memory = done.symptom, done.seen.memory
    assert "a child ended with -9\n" in done.text("server.log")
    assert memory is not None
    assert (SymptomKind.SIGNATURE, "host-out-of-memory", 1) == (symptom.kind, symptom.id, memory.counted)
    assert {"kernel.txt", "server.log"} == {line.path.rpartition("/")[2] for line in symptom.evidence}
    assert [] == [line for line in symptom.evidence if not done.has(line)]


def test_a_kill_in_a_control_group_that_the_script_enters_is_counted(tmp_path: Path, small: Small) -> None:
    """The counter of the group in which the supervisor was started stands still.

    The script waits for longer than two looks at the tree are apart: who dies unseen is nobody's.
    """
    (tmp_path / "stack.py").write_text(HOG)
    done = died(tmp_path, f"echo $$ >{small.group}/cgroup.procs; sleep 0.5; exec $python stack.py")
    memory = done.seen.memory
    assert memory is not None
    assert ("host-out-of-memory", 1) == (done.symptom.id, memory.counted)
    assert f"{small.group}/memory" in done.text("kernel.txt")
