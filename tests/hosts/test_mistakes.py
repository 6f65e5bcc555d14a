"""The mistakes of starting and stopping over SSH, as a plain user: a verdict or a refusal, never a hang."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.errors import PlaybookError, UsageError
from bisect_agent.hosts.ssh import SshHost
from bisect_agent.model import Exit, Reason, SymptomKind
from tests.e2e.agent import free_port
from tests.hosts.sshd import Sshd, plain_user, server
from tests.mistakes.scene import Scene, Seen

SOON = 2.0
"""Seconds in which a launch must return."""
SWALLOWING = "touch started\ncat > start.sh <<'EOF'\nexec serve\n  EOF\nbash start.sh\n"
IN_BACKGROUND = {
    "and": "cd . && sleep 60 &\n",
    "nohup": "cd . && nohup sleep 60 &\n",
    "setsid": "(setsid sleep 60 &)\n",
    "inherited-pipe": "exec 3>&1 4>&2\nsleep 60 >&3 2>&4 &\ndisown\n",
}


@dataclass(frozen=True)
class There:
    """A user of that machine, and the way to it."""

    sshd: Sshd
    user: str

    def host(self) -> SshHost:
        """A host of that user's."""
        return self.sshd.host(self.sshd.config(user=self.user))


@pytest.fixture(scope="module")
def there() -> Iterator[There]:
    """A server of OpenSSH with a plain user."""
    with server() as sshd, plain_user(sshd) as user:
        yield There(sshd, user)


@pytest.fixture
def scene(there: There, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A scene in a folder of that user's; nothing of it is left at the end."""
    folder = there.sshd.folder / request.node.name.replace("[", "-").rstrip("]")
    folder.mkdir()
    scene = Scene(folder, free_port(), "python3")
    for path in (folder, scene.stack):
        shutil.chown(path, there.user)
    yield scene
    left = scene.alive()
    scene.clear()
    assert [] == left


def attempt(scene: Scene, there: There) -> Seen:
    """An attempt over SSH; if it was launched, that took no time."""
    seen = scene.attempt(host=there.host())
    if "launched" in seen.kinds():
        assert seen.seconds("launching", "launched") < SOON
    return seen


def log(scene: Scene, seen: Seen) -> str:
    """The copy of an attempt's log."""
    assert seen.observation.log is not None
    return (scene.folder / "run" / seen.observation.log.path).read_text()


# --- starting ---------------------------------------------------------------------------------------


def test_a_heredoc_that_swallows_the_launch_is_refused(scene: Scene, there: There) -> None:
    """Its end is indented, so it is none; nothing is started, and bash's own word is given."""
    scene.job(SWALLOWING)
    seen = attempt(scene, there)
    assert (Reason.SCRIPT, []) == (seen.unresolved().reason, sorted(scene.stack.glob("start*")))
    assert "here-document" in seen.unresolved().detail


def test_a_heredoc_that_swallows_the_launch_is_refused_before_the_run(scene: Scene, there: There) -> None:
    """A person can correct it now."""
    scene.job(SWALLOWING)
    with pytest.raises(UsageError, match="here-document"):
        scene.run(there.host())
    assert not scene.target.exists()


@pytest.mark.parametrize("leave", IN_BACKGROUND.values(), ids=IN_BACKGROUND)
def test_what_holds_the_launchs_output_holds_nothing_up(scene: Scene, there: There, leave: str) -> None:
    """The start returns, the script's end is seen while its child lives, and the child is ended."""
    scene.job(f"{leave}echo left one behind\n")
    seen = attempt(scene, there)
    assert (seen.passed().kind, True) == ("passed", "left one behind" in log(scene, seen))
    assert seen.seconds("launched", "closed") < 20


def test_a_server_in_the_background_is_refused(scene: Scene) -> None:
    """`cd … && server &` and no more: the script would end, and with it the attempt. That is said first."""
    scene.server("cd . && $server &\n")
    with pytest.raises(PlaybookError, match="sent to the background, and the script ends without waiting"):
        scene.run()


def test_a_server_in_the_background_that_is_waited_for_passes(scene: Scene, there: There) -> None:
    """The same with `wait`: it is ready, answers, and is ended."""
    scene.server("cd . && $server &\nwait\n")
    assert "passed" == attempt(scene, there).passed().kind


# --- stopping ---------------------------------------------------------------------------------------


def pkill(pattern: str) -> str:
    """Kills by pattern, and never another user's processes."""
    if shutil.which("pkill") is None:
        pytest.skip("there is no pkill here")
    return f'[ "$(id -u)" != 0 ] && pkill -KILL -u "$(id -u)" -f {pattern}\n'


def test_a_script_that_kills_its_own_pattern_lives_on(scene: Scene, there: There) -> None:
    """The words of the script stand in no command line, so the pattern finds what was meant."""
    scene.job(f"sleep 4242 & \n{pkill('sleep.4242')}wait\necho survived\n")
    seen = attempt(scene, there)
    assert ("passed", True) == (seen.passed().kind, "survived" in log(scene, seen))


def test_a_script_that_kills_itself_by_pattern_has_died_of_a_signal(scene: Scene, there: There) -> None:
    """That is a failure like any other: it is told by what ended it."""
    scene.job(pkill("launch[.]sh"))
    seen = attempt(scene, there)
    assert (SymptomKind.SIGNAL, Exit(signal=9)) == (seen.symptom().kind, seen.observation.exit)


def test_a_script_that_kills_every_python_of_its_user_gives_no_verdict(scene: Scene, there: There) -> None:
    """Our supervisor and the program at the far end go with it: the attempt is lost, its rest is ended."""
    scene.job(f"sleep 60 &\n{pkill('python')}sleep 60\n")
    seen = scene.attempt(host=there.host())
    assert seen.unresolved().reason in {Reason.SUPERVISOR_LOST, Reason.UNREACHABLE, Reason.NOT_LAUNCHED}


def test_the_folder_of_the_attempts_is_that_users_own(scene: Scene, there: There) -> None:
    """Nothing of it is root's, though it may be root who asks."""
    scene.job("echo hello\n")
    attempt(scene, there)
    owners = {path.owner() for path in scene.target.rglob("*")}
    assert {there.user} == owners
    assert {0o700} == {path.stat().st_mode & 0o777 for path in _folders(scene.target)}


def _folders(top: Path) -> list[Path]:
    return [path for path in (top, *top.rglob("*")) if path.is_dir()]
