"""Hangs of real processes: what stands still is told from what is slow, and both from what goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from bisect_agent.attempt import carry_out
from bisect_agent.edge import Task
from bisect_agent.errors import DamagedRun, Unreachable
from bisect_agent.events import Closed, OfAttempt
from bisect_agent.hosts import Completed
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Configuration, Observation, Passed, PhaseMark, Reason, SymptomKind, Trial, Why
from bisect_agent.secrets import Masker
from bisect_agent.standstill import BETWEEN_LOOKS, Standstill
from bisect_agent.target.launcher import Launcher
from bisect_agent.verify import verify
from tests.attempts import Attempted, attempt, free_port, playbook
from tests.fakes import Behaviour, Lab, fails, serves
from tests.worlds import READY, playbook_of

WARM = PhaseMark(name="warm", begin="warming", progress="step [0-9]+", quiet=0.7)

DEADLOCK = """
import threading, time
print("warming", flush=True)
first, second = threading.Lock(), threading.Lock()
def take(one, other):
    with one:
        time.sleep(0.1)
        with other:
            pass
threading.Thread(target=take, args=(first, second)).start()
take(second, first)
"""
SPIN = """
print("warming", flush=True)
while True:
    pass
"""
REPEAT = """
import time
print("warming", flush=True)
while True:
    print("still healthy", flush=True)
    time.sleep(0.05)
"""
STEPS = """
import sys, time
print("warming", flush=True)
for number in range(8):
    print("step", number, flush=True)
    time.sleep(0.3)
sys.exit(3)
"""
SERVER = """
import http.server, sys, threading, time
began = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.say(503 if time.monotonic() - began < BUSY else 200, b"healthy")
    def do_POST(self):
        if DEAD:
            threading.Lock().acquire() and threading.Event().wait()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.say(200, b'{"text": "because"}')
    def say(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready to serve", flush=True)
server.serve_forever()
"""
FAKE_SPY = """#!/bin/sh
[ "$1 $2" = "dump --pid" ] || exit 2
echo "Process $3: python3 stack.py"
echo 'Thread 1 (idle): "MainThread"'
echo '    acquire (threading.py:100)'
echo '    take (stack.py:8)'
"""


def stack(folder: Path, program: str, *phases: PhaseMark, **limits: float) -> Attempted:
    """An attempt at this program, which never becomes ready."""
    (folder / "stack.py").write_text(program)
    return attempt(playbook(folder, f"exec {sys.executable} stack.py\n", 0, phases, **limits))


def kept(done: Attempted) -> tuple[str, ...]:
    """The names of the files that hold the two looks, whose evidence must stand where it is said to."""
    assert done.seen.stacks is not None
    assert [] == [line for line in done.symptom.evidence if not done.has(line)]
    return tuple(look.path.rpartition("/")[2] for look in done.seen.stacks.looks)


# --- real processes ---------------------------------------------------------------------------------


def test_a_deadlock_is_a_hang_of_its_phase(tmp_path: Path) -> None:
    """Two looks at the stacks show that nothing moved; the last one and the last line are the evidence."""
    done = stack(tmp_path, DEADLOCK, WARM.model_copy(update={"progress": None}))
    symptom = done.symptom
    assert (SymptomKind.HANG, "hang", "warm", Why.SILENT) == (
        symptom.kind,
        symptom.id,
        symptom.phase,
        done.seen.why,
    )
    assert symptom.text.startswith("stuck in phase warm: no new line for ")
    assert ("stacks-1.txt", "stacks-2.txt") == kept(done)
    assert ["stacks-2.txt", "server.log"] == [line.path.rpartition("/")[2] for line in symptom.evidence]
    assert "stack.py" in done.text("stacks-2.txt")


def test_a_loop_that_says_nothing_is_slow_and_then_overdue(tmp_path: Path) -> None:
    """It gets its clock once more, and is told apart from what stands still."""
    done = stack(tmp_path, SPIN, quiet=0.7)
    assert (SymptomKind.HANG, "overdue") == (done.symptom.kind, done.symptom.id)
    assert "slow, not stuck, in its start: " in done.symptom.text
    assert " s of CPU in " in done.symptom.text
    assert done.seen.quiet >= 2 * 0.7
    assert ("stacks-1.txt", "stacks-2.txt") == kept(done)


def test_a_healthy_line_that_repeats_hides_no_hang(tmp_path: Path) -> None:
    """Where the phase names what its progress looks like."""
    done = stack(tmp_path, REPEAT, WARM)
    assert ("hang", "warm", Why.STALLED) == (done.symptom.id, done.symptom.phase, done.seen.why)
    assert done.seen.quiet < 0.7 <= done.seen.idle


def test_a_line_that_repeats_is_life_where_nobody_said_what_progress_is(tmp_path: Path) -> None:
    """Only `limits.start` ends it, and it is not called stuck."""
    done = stack(tmp_path, REPEAT, start=1.5)
    assert ("overdue", Why.OVERDUE) == (done.symptom.id, done.seen.why)
    assert "its log grew" in done.symptom.text


def test_who_makes_progress_is_waited_for(tmp_path: Path) -> None:
    """For much longer than the phase may be quiet; what it dies of is what it dies of."""
    done = stack(tmp_path, STEPS, WARM)
    assert ("exit-3", None) == (done.symptom.id, done.seen.stacks)


def test_a_python_stack_is_evidence_where_there_is_py_spy(tmp_path: Path) -> None:
    """The first frame that is the stack's own, not the lock that it waits in."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "py-spy").write_text(FAKE_SPY)
    (tools / "py-spy").chmod(0o755)
    (tmp_path / "stack.py").write_text(DEADLOCK)
    done = attempt(playbook(tmp_path, f"exec {sys.executable} stack.py\n"), path=str(tools))
    kept(done)
    assert "      take (stack.py:8)" == done.symptom.evidence[0].text


def serve(folder: Path, *, busy: float = 0.0, dead: bool = False) -> Attempted:
    """An attempt at a server that is `busy` for so many seconds, or `dead` to every request."""
    program = SERVER.replace("BUSY", repr(busy)).replace("DEAD", repr(dead))
    (folder / "stack.py").write_text(program)
    port = free_port()
    return attempt(
        playbook(
            folder, f"exec {sys.executable} stack.py {port}\n", port, request=2 if busy else 0.5, quiet=9
        )
    )


def test_a_server_that_is_healthy_and_dead_has_not_passed(tmp_path: Path) -> None:
    """200 from its health check, and no answer to the request: where it stands is the evidence."""
    done = serve(tmp_path, dead=True)
    assert done.seen.serving is not None
    assert done.seen.serving.health is not None
    assert (200, "no-answer") == (done.seen.serving.health.status, done.symptom.id)
    assert ("stacks-1.txt", "stacks-2.txt") == kept(done)
    assert {"server.log", "stacks-2.txt"} == {line.path.rpartition("/")[2] for line in done.symptom.evidence}


def test_a_server_that_is_busy_is_waited_for(tmp_path: Path) -> None:
    """503 is no failure as long as the clocks say nothing."""
    assert isinstance(serve(tmp_path, busy=0.8).outcome, Passed)


# --- a target that exists only here -----------------------------------------------------------------

PLAYBOOK = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
"""Its server may be quiet for 60 seconds, and take 60 for an answer."""


def observed(folder: Path, behaviour: Behaviour) -> Observation:
    """What is seen of an attempt at a server that behaves so."""
    events: list[OfAttempt] = []
    with Lab(folder / "run", PLAYBOOK, lambda *_: behaviour) as lab:
        lab.edge.launcher.install()
        trial = Trial(id="t01", control="good", configuration=PLAYBOOK.good)
        carry_out(Task(PLAYBOOK, trial, 1, "tag"), lab.edge, lab.folder, events.append, threading.Event())
    closed = events[-1]
    assert isinstance(closed, Closed)
    return closed.observation


def test_the_two_looks_are_ten_seconds_apart(tmp_path: Path) -> None:
    """As long as a deadlock needs to be told from a slow step."""
    seen = observed(tmp_path, fails())
    assert seen.stacks is not None
    assert (10.0, BETWEEN_LOOKS, "") == (seen.stacks.seconds, BETWEEN_LOOKS, seen.stacks.moved)


def test_who_is_busy_gets_its_clock_once_more(tmp_path: Path) -> None:
    """And then ends by it all the same."""
    seen = observed(tmp_path, fails(busy=True))
    assert Why.SILENT is seen.why
    assert 120 < seen.quiet < 160


def test_who_speaks_between_the_looks_goes_on(tmp_path: Path) -> None:
    """The clock starts again; nothing of the looks is kept."""
    seen = observed(tmp_path, Behaviour(lines=((1, "loading"), (65, "capturing"), (70, READY))))
    assert (Why.SERVED, None) == (seen.why, seen.stacks)


def test_a_server_that_takes_the_request_and_says_nothing_is_looked_at(tmp_path: Path) -> None:
    """Before it is ended."""
    seen = observed(tmp_path, serves(deaf=True))
    assert seen.stacks is not None
    assert (Why.SERVED, 2) == (seen.why, len(seen.stacks.looks))


def test_whoever_cannot_be_heard_is_not_silent(tmp_path: Path) -> None:
    """A lost target is no hang, however long nothing came from it."""
    seen = observed(tmp_path, serves(silent=(0.2, 10**6)))
    assert seen.trouble is not None
    assert (Reason.GUARDED, None) == (seen.trouble.reason, seen.stacks)


class Silent(LocalHost):
    """A host that was lost."""

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Raises what a lost host raises."""
        raise Unreachable(f"gpu-box: no answer to {argv[0]} ({timeout} s, {len(stdin)} bytes)")


def test_a_hang_is_verified_with_its_looks(tmp_path: Path) -> None:
    """A run whose `bad` hangs is computed again from its folder, and a look that was changed is named."""

    def stack(configuration: Configuration, _: int) -> Behaviour:
        return serves("mode is safe") if configuration == PLAYBOOK.good else fails("mode is fast")

    with Lab(tmp_path / "run", PLAYBOOK, stack) as lab:
        verdict = lab.begin().engine.run().verdict
        assert (True, verdict) == (verdict.established, verify(lab.folder).verdict)
        look = lab.folder.path / "trials/t02-bad/1/stacks-2.txt"
        look.write_bytes(look.read_bytes() + b"and more\n")
        with pytest.raises(DamagedRun, match=r"t02-bad/1/stacks-2\.txt"):
            verify(lab.folder)


def test_a_look_that_cannot_be_had_is_said_to_be_missing(tmp_path: Path) -> None:
    """The clock alone has decided then, and nothing is said to have stood still."""
    standstill = Standstill(Launcher(Silent(), str(tmp_path)), 0.0, Masker(()))
    assert [False, True] == [standstill.looked("t01-1", lambda: 0.0) for _ in range(2)]
    told = standstill.told(())
    assert told is not None
    assert ("", True) == (told.moved, "no answer" in told.missing)
