"""Mistakes of stopping: killing by pattern, our own kill taken for a crash, a restore that nobody saw."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.events import Launched, OfAttempt
from bisect_agent.model import MatchKind, Reason, SymptomKind
from tests.mistakes.scene import READY, Scene, Seen

CRASH = "Subprocess scheduler_0 (pid=7) crashed with exit code -15"
"""What a server says of a child that we have asked to end."""
KILLED = "Subprocess scheduler_0 (pid=7) crashed with exit code -9"
"""What it says of one that we have ended: it reads like a failure, and a signature knows it."""
SECOND_START = '[ "$(echo >> starts; wc -l < starts)" = 1 ] ||'

# --- 6: `pkill -9 -f`, and the triage's own kill taken for a crash ------------------------------------


@pytest.fixture
def bystander(scene: Scene, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process, of the very command line of the scene's server."""
    variables = {**os.environ, "BYSTANDER": "1"}
    with subprocess.Popen(scene.command(), cwd=tmp_path, env=variables, start_new_session=True) as process:
        yield process
        process.kill()


def test_a_process_of_the_same_command_line_lives_on(
    scene: Scene, bystander: subprocess.Popen[bytes]
) -> None:
    """What is ended is what was started, not what looks like it."""
    scene.server("exec $server\n")
    seen = scene.attempt()
    assert (seen.passed().kind, [], None) == ("passed", scene.alive(), bystander.poll())


def test_a_later_process_with_a_recorded_pid_lives_on(
    scene: Scene, bystander: subprocess.Popen[bytes]
) -> None:
    """The supervisor is dead, and a pid in its files has been given to somebody else since."""

    def reuse(event: OfAttempt) -> None:
        if isinstance(event, Launched):
            os.kill(event.supervisor.pid, signal.SIGKILL)
            record = event.main.model_copy(update={"pid": bystander.pid})
            (next(scene.target.glob("t01-1-*")) / "pid").write_text(record.model_dump_json())

    scene.server("exec $server --ready-after 60\n")
    seen = scene.attempt(on_event=reuse)
    assert (Reason.SUPERVISOR_LOST, []) == (seen.unresolved().reason, scene.alive())
    assert bystander.poll() is None


def test_what_our_stop_brings_about_is_no_failure(scene: Scene) -> None:
    """A hang is a hang, whatever the server says when it is ended for it."""
    scene.job(
        f"trap 'echo \"{KILLED}\"; exit 1' TERM\necho up\nsleep 60 & wait\n",
        limits={"start": "1s"},
    )
    seen = scene.attempt()
    assert (SymptomKind.HANG, True) == (seen.symptom().kind, KILLED in log(scene, seen))


def test_a_pass_that_we_stop_is_a_pass(scene: Scene) -> None:
    """Its last words are in the log, for a person to read, and are nobody's evidence."""
    scene.server("exec $server\n")
    seen = scene.attempt()
    signatures = [m.id for m in seen.observation.reading.matches if m.kind is MatchKind.SIGNATURE]
    assert ("passed", [], True) == (seen.passed().kind, signatures, CRASH in log(scene, seen))


def log(scene: Scene, seen: Seen) -> str:
    """The copy of an attempt's log."""
    assert seen.observation.log is not None
    return (scene.folder / "run" / seen.observation.log.path).read_text()


# --- 14: the restore ran in the same breath, and nobody saw "ready" -----------------------------------


def test_a_restore_that_takes_its_time_is_seen_to_serve(scene: Scene) -> None:
    """It listens at once and is healthy at once; that it answers is asked when it says that it is ready."""
    scene.server(f"{SECOND_START} set -- --ready-after 2\nexec $server $*\n", limits={"trials": 1})
    restored = scene.run().verdict.good_restored
    assert (True, [READY]) == (restored.ok, [e.text for e in restored.evidence if READY in e.text])
    assert b'{"text": "four"}' == post(scene.port)


def test_a_restore_that_is_never_ready_is_said_and_not_left(scene: Scene) -> None:
    """Exit 6 outranks all that the run has found: a person must look."""
    scene.server(f"{SECOND_START} exec sleep 60\nexec $server\n", limits={"trials": 1, "quiet": "2s"})
    run = scene.run()
    assert (ExitCode.NOT_RESTORED, False) == (run.code, run.verdict.good_restored.ok)
    assert [] == scene.alive()


def post(port: int) -> bytes:
    """What the server on a port answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with closing(connection):
        connection.request("POST", "/generate", "{}")
        return connection.getresponse().read()
