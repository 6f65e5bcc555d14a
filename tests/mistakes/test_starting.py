"""Mistakes of starting: a script that was never written, a log that never came, a launch that hangs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bisect_agent.errors import UsageError
from bisect_agent.events import Launched, OfAttempt
from bisect_agent.hosts import Host
from bisect_agent.model import Reason, SymptomKind
from tests.mistakes.hosts import SCRIPT, Channel, CutsScripts, FallsSilent, Meddler, NeverNames, Skipping
from tests.mistakes.scene import Scene

SOON = 2.0
"""Seconds in which a start, or what is wrong with it, must be told."""

# --- 3: a script was never written, and was launched all the same -------------------------------------


SWALLOWING = "touch started\ncat > start.sh <<'EOF'\nexec serve\n  EOF\nbash start.sh\n"
"""The incident's call: its heredoc takes all that follows, the launch too."""


def _remove(folder: Path) -> None:
    (folder / SCRIPT).unlink()


def _exchange(folder: Path) -> None:
    (folder / SCRIPT).write_text("touch started\n")


@pytest.mark.parametrize(
    "host",
    [
        pytest.param(CutsScripts(), id="cut"),
        pytest.param(NeverNames(), id="never-named"),
        pytest.param(Meddler(before=_remove), id="removed"),
        pytest.param(Meddler(before=_exchange), id="exchanged"),
    ],
)
def test_a_script_that_is_not_there_as_written_is_not_started(scene: Scene, host: Host) -> None:
    """Whatever became of it on the way: nothing runs, and it says nothing about the configuration."""
    scene.job("touch started\ntouch finished\n")
    seen = scene.attempt(host=host)
    assert Reason.SCRIPT == seen.unresolved().reason
    assert (["launching", "closed"], []) == (seen.kinds(), sorted(scene.stack.glob("*ed")))


def test_a_script_gets_its_name_only_when_the_target_has_all_of_it(scene: Scene) -> None:
    """What has no name cannot be launched by anybody, not even by mistake."""
    scene.job("touch started\ntouch finished\n")
    scene.attempt(host=CutsScripts())
    assert [f"{SCRIPT}.part"] == [path.name for path in scene.target.glob(f"*/{SCRIPT}*")]


def test_a_heredoc_that_swallows_the_launch_is_refused(scene: Scene) -> None:
    """Its end is indented, so it is none: bash only warns, and writes the rest of the script to the file."""
    scene.job(SWALLOWING)
    seen = scene.attempt()
    assert (Reason.SCRIPT, []) == (seen.unresolved().reason, sorted(scene.stack.glob("start*")))
    assert "here-document" in seen.unresolved().detail


def test_a_heredoc_that_swallows_the_launch_is_refused_before_the_run(scene: Scene) -> None:
    """It is a mistake in the playbook, and a person can correct it now."""
    scene.job(SWALLOWING)
    with pytest.raises(UsageError, match="here-document"):
        scene.run()
    assert [] == list(scene.target.glob("*"))


# --- 4: 330 s of polling a log that did not exist -----------------------------------------------------


def test_a_log_that_is_missing_is_told_soon(scene: Scene) -> None:
    """It is not "nothing yet": the script runs, and its log was never there to be read."""
    scene.job("exec sleep 60\n", limits={"start": "3s"})
    seen = scene.attempt(host=Meddler(after=lambda folder: (folder / "log").unlink()))
    assert Reason.LOG_MISSING == seen.unresolved().reason
    assert seen.seconds("launched", "ending") < 2 * SOON
    assert [] == scene.alive()


def test_a_log_without_a_match_is_an_answer(scene: Scene) -> None:
    """The log is there and says nothing of a failure: then it is the clock that decides."""
    scene.job("echo nothing of note\nexec sleep 60\n", limits={"start": "1s"})
    seen = scene.attempt()
    assert (SymptomKind.HANG, 2) == (seen.symptom().kind, seen.observation.reading.lines)


def test_a_host_that_gives_no_answer_is_not_a_missing_log(scene: Scene) -> None:
    """Nothing is known then, neither of the log nor of the stack."""
    clock = Skipping()
    host = FallsSilent(clock)

    def lose(event: OfAttempt) -> None:
        host.silent = isinstance(event, Launched)

    scene.job("exec sleep 60\n", limits={"start": "10m"})
    seen = scene.attempt(host=host, clock=clock, on_event=lose)
    assert (Reason.UNREACHABLE, "silent: no answer") == (seen.unresolved().reason, seen.unresolved().detail)
    assert [] == scene.alive()


def test_a_launch_that_cannot_start_is_told_at_once(scene: Scene, tmp_path: Path) -> None:
    """The folder to run in is gone: that is no server that takes its time."""
    scene.job("touch started\n", target={"folder": str(scene.target), "cwd": str(tmp_path / "gone")})
    seen = scene.attempt()
    assert (Reason.NOT_LAUNCHED, ["launching", "closed"]) == (seen.unresolved().reason, seen.kinds())
    assert seen.seconds("launching", "closed") < SOON


def test_a_supervisor_that_died_is_not_waited_for(scene: Scene) -> None:
    """Nobody would tell how the script ended, so nothing it does from now on counts."""

    def kill(event: OfAttempt) -> None:
        if isinstance(event, Launched):
            os.kill(event.supervisor.pid, signal.SIGKILL)

    scene.job("exec sleep 60\n", limits={"start": "3s"})
    seen = scene.attempt(on_event=kill)
    assert (Reason.SUPERVISOR_LOST, []) == (seen.unresolved().reason, scene.alive())
    assert seen.seconds("launched", "ending") < 2 * SOON


# --- 7: the launch held the channel -------------------------------------------------------------------


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param("cd . && nohup sleep 60 &", id="nohup"),
        pytest.param("(setsid sleep 60 &)", id="setsid"),
    ],
)
def test_a_child_in_the_background_holds_nothing_up(scene: Scene, leave: str) -> None:
    """Whoever inherits the script's output: the start returns, the run ends, nothing is left."""
    scene.job(f"{leave}\nexit 0\n")
    seen = scene.attempt(host=Channel())
    assert (seen.passed().kind, []) == ("passed", scene.alive())
    assert seen.seconds("launching", "launched") < SOON
