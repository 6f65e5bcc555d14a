"""Every promise of a host, kept by each kind: this machine, a real SSH server, and that as a plain user."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bisect_agent import errors
from bisect_agent.hosts import Completed, DiskFull, Host, TimedOut
from tests.hosts.conformance import KINDS, Place, eventually, hosts, lives, place
from tests.weapons.arms import disk


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Host, Host]]:
    """Two hosts of a kind."""
    with hosts(request.param) as two:
        yield two


@pytest.fixture
def there(pair: tuple[Host, Host]) -> Iterator[Place]:
    """An empty folder on a host."""
    with place(*pair) as found:
        yield found


# --- commands ---------------------------------------------------------------------------------------


def test_a_command_gives_status_and_both_outputs(there: Place) -> None:
    """Input goes in, each output comes back by itself."""
    script = "cat; echo wrong >&2; exit 3"
    done = there.host.run(("sh", "-c", script), timeout=10, stdin=b"in\0\xff")
    assert Completed(3, b"in\0\xff", b"wrong\n") == done


def test_a_signal_is_a_negative_status(there: Place) -> None:
    """It is told from an exit status, whatever the number."""
    assert -9 == there.host.run(("sh", "-c", "kill -9 $$"), timeout=10).returncode
    assert 137 == there.host.run(("sh", "-c", "exit 137"), timeout=10).returncode


def test_a_program_that_is_not_there_is_an_exit_status(there: Place) -> None:
    """As a shell would say it; so is one that may not be run."""
    done = there.host.run(("no-such-program",), timeout=10)
    assert Completed(127, b"", b"no-such-program: No such file or directory\n") == done
    assert 127 == there.host.run((str(there.folder),), timeout=10).returncode


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_no_shell_reads_what_a_command_is_given(there: Place, words: list[str]) -> None:
    """Each word comes as it is: quotes, dollars, line ends, and words that are empty."""
    hostile = ["$(touch x)", "`id`", "'", '"', "\\", "!!", "*", "~", "; exit 1", "-", "\n", *words]
    done = there.host.run(("sh", "-c", "printf '%s\\0' \"$@\"", "sh", *hostile), timeout=10)
    assert hostile == done.stdout.decode().split("\0")[:-1]


def test_large_outputs_and_inputs_come_whole(there: Place) -> None:
    """Neither direction waits for the other, and neither output for its sibling."""
    data = os.urandom(1 << 20) * 3
    done = there.host.run(("sh", "-c", "tee /dev/stderr"), timeout=30, stdin=data)
    assert (done.stdout == data, done.stderr == data) == (True, True)


def test_input_that_nobody_reads_is_no_failure(there: Place) -> None:
    """The command has ended; that is all."""
    assert Completed(0, b"", b"") == there.host.run(("true",), timeout=10, stdin=bytes(1 << 20))


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60 & echo $!",
        "nohup sleep 60 & echo $!",
        "cd / && setsid sleep 60 >/dev/null 2>&1 </dev/null & echo $!",
    ],
)
def test_what_is_left_behind_is_not_waited_for(there: Place, script: str) -> None:
    """The exit status is what counts, not the end of the output. What was left behind lives on."""
    begun = time.monotonic()
    done = there.host.run(("sh", "-c", script), timeout=30)
    assert time.monotonic() - begun < 10
    assert lives(int(done.stdout))
    os.kill(int(done.stdout), signal.SIGKILL)


def test_what_takes_too_long_is_ended_with_its_children(there: Place) -> None:
    """Nothing that the command started in its group goes on, and the host can be asked again."""
    script = f"sleep 600 & echo $$ $! >{there.path('pids')}; wait"
    with pytest.raises(TimedOut, match=r"no exit status of `sh -c .*` within 0\.3 s; it was killed"):
        there.host.run(("sh", "-c", script), timeout=0.3)
    pids = [int(pid) for pid in (there.folder / "pids").read_text().split()]
    eventually(lambda: not any(map(lives, pids)))
    assert 0 == there.host.run(("true",), timeout=10).returncode


def test_a_pattern_of_the_command_does_not_find_its_own_messenger(there: Place) -> None:
    """No shell and no program of ours carries the words of a command in its own."""
    done = there.host.run(("pgrep", "-f", "--", "a-word-that-is-nowhere-else"), timeout=10)
    assert Completed(1, b"", b"") == done


# --- files ------------------------------------------------------------------------------------------


def test_what_is_put_has_no_name_before_the_rename(there: Place) -> None:
    """A reader sees the whole file or none; folders are made for the owner alone."""
    path = there.folder / "new" / "deep" / "file"
    part = there.host.put(str(path), b"data")
    assert (f"{path}.part", False) == (part, path.exists())
    there.host.rename(part, str(path))
    assert path.read_bytes() == b"data"
    assert (_mode(path), _mode(path.parent), _mode(path.parent.parent)) == (0o600, 0o700, 0o700)


def test_a_rename_replaces_what_had_the_name(there: Place) -> None:
    """Nobody ever finds it missing."""
    for data in (b"old", b"new"):
        there.host.rename(there.host.put(there.path("file"), data, 0o755), there.path("file"))
    assert (b"new", 0o755) == ((there.folder / "file").read_bytes(), _mode(there.folder / "file"))


def test_the_mode_of_an_old_part_does_not_stay(there: Place) -> None:
    """What another attempt left open to the world is closed again."""
    there.host.put(there.path("file"), b"", 0o666)
    there.host.put(there.path("file"), b"secret")
    assert _mode(there.folder / "file.part") == 0o600


def test_a_link_in_the_place_of_a_part_is_not_followed(there: Place) -> None:
    """Who may write in a folder cannot make us write elsewhere."""
    there.host.run(("ln", "-s", there.path("elsewhere"), there.path("file.part")), timeout=10)
    with pytest.raises(errors.TargetError, match="symbolic links"):
        there.host.put(there.path("file"), b"data")
    assert not (there.folder / "elsewhere").exists()


def test_bytes_are_read_from_an_offset(there: Place) -> None:
    """No bytes at the end, and None where there is no file: two answers."""
    there.host.put(there.path("file"), b"0123456789")
    part = there.path("file.part")
    reads = [there.host.read(part, offset, 4) for offset in (0, 8, 10, 99)]
    assert reads == [b"0123", b"89", b"", b""]
    assert [None, None] == [there.host.read(there.path(name), 0, 4) for name in ("none", "file.part/x")]


def test_ten_megabytes_come_as_they_are(there: Place) -> None:
    """In one go, and whatever bytes they are."""
    data = os.urandom(1 << 20) * 10
    part = there.host.put(there.path("file"), data)
    assert data == there.host.read(part, 0, len(data))


def test_another_file_of_the_same_name_has_another_identity(there: Place) -> None:
    """So that a log that was replaced can be told, even by one of the same size."""
    first, second = (there.host.put(there.path(name), b"12345") for name in ("one", "two"))
    before = there.host.stat(first)
    there.host.rename(second, first)
    after = there.host.stat(first)
    assert before is not None
    assert after is not None
    assert (before.size, after.size) == (5, 5)
    assert before.identity != after.identity
    assert abs(after.mtime - time.time()) < 60


def test_a_file_keeps_its_identity_while_it_grows(there: Place) -> None:
    """It is the same log."""
    script = ("sh", "-c", f"echo line >>{there.path('log')}")
    seen = [there.host.run(script, timeout=10) and there.host.stat(there.path("log")) for _ in range(2)]
    assert [5, 10] == [stat.size for stat in seen if stat]
    assert 1 == len({stat.identity for stat in seen if stat})


def test_there_is_no_stat_of_what_is_not_there(there: Place) -> None:
    """Missing is an answer."""
    there.host.put(there.path("file"), b"")
    assert [None, None] == [there.host.stat(there.path(name)) for name in ("none", "file.part/x")]


def test_a_name_may_hold_any_character(there: Place) -> None:
    """Spaces, line ends, and bytes that are no text."""
    path = there.path("a b\n'$x'\udcff")
    there.host.rename(there.host.put(path, b"data"), path)
    assert b"data" == there.host.read(path, 0, 9)


def test_the_system_s_refusal_becomes_a_sentence(there: Place) -> None:
    """It says what could not be done, and to which path."""
    part = there.host.put(there.path("file"), b"")
    with pytest.raises(errors.TargetError, match=f"cannot write {part}/x.part: Not a directory"):
        there.host.put(f"{part}/x", b"")
    with pytest.raises(errors.TargetError, match=r"cannot rename .*: No such file or directory"):
        there.host.rename(there.path("none"), there.path("file"))
    with pytest.raises(errors.TargetError, match=r"cannot read .*: Is a directory"):
        there.host.read(str(there.folder), 0, 1)


def test_what_is_not_allowed_is_said(there: Place) -> None:
    """It is neither missing nor out of reach."""
    if b"0\n" == there.host.run(("id", "-u"), timeout=10).stdout:
        pytest.skip("root may do everything")
    with pytest.raises(errors.TargetError, match=r"cannot read /etc/shadow: Permission denied") as refused:
        there.host.read("/etc/shadow", 0, 1)
    assert not isinstance(refused.value, errors.Unreachable)


def test_a_full_disk_is_told_from_other_refusals(there: Place) -> None:
    """It can be mended, and then the run goes on."""
    with disk(there.folder / "disk", 1) as small:
        small.chmod(0o777)
        with pytest.raises(DiskFull, match=r"cannot write .*: No space left on device"):
            there.host.put(str(small / "file"), bytes(2 << 20))


# --- two threads ------------------------------------------------------------------------------------


def test_who_reads_does_not_wait_for_who_asks(there: Place) -> None:
    """A log is read, and other commands run, while one command takes its time; answers find their askers."""
    part = there.host.put(there.path("file"), b"data")
    gate = there.path("gate")
    waiting = ("sh", "-c", f"until [ -e {gate} ]; do sleep 0.01; done; echo through")
    said: list[bytes] = []
    asker = threading.Thread(target=lambda: said.append(there.host.run(waiting, timeout=60).stdout))
    asker.start()
    assert {b"data"} == {there.host.read(part, 0, 9) for _ in range(20)}
    assert b"beside\n" == there.host.run(("echo", "beside"), timeout=10).stdout
    there.host.put(gate, b"")
    there.host.rename(gate + ".part", gate)
    asker.join()
    assert [b"through\n"] == said


def test_many_threads_each_get_their_own_answers(there: Place) -> None:
    """Commands and reads at once, and nobody gets another's."""
    for number in range(4):
        there.host.put(there.path(str(number)), str(number).encode())
    wrong: list[object] = []

    def ask(number: int) -> None:
        for _ in range(10):
            read = there.host.read(there.path(f"{number}.part"), 0, 9)
            ran = there.host.run(("echo", str(number)), timeout=30).stdout
            wrong.extend(found for found in (read, ran.strip()) if found != str(number).encode())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
