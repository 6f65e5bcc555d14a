"""The local host, with real commands and files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bisect_agent import errors
from bisect_agent.hosts import Completed, Host, TimedOut
from bisect_agent.hosts.local import LocalHost

HOST: Host = LocalHost()


def test_a_command_gives_status_and_both_outputs() -> None:
    """Input goes in, each output comes back by itself."""
    script = "cat; echo wrong >&2; exit 3"
    assert Completed(3, b"in", b"wrong\n") == HOST.run(("sh", "-c", script), timeout=10, stdin=b"in")


def test_a_program_that_is_not_there_is_an_exit_status() -> None:
    """As a shell would say it, so that every host says the same."""
    assert HOST.run(("no-such-program",), timeout=10).returncode == 127


def test_a_grandchild_that_holds_the_output_is_not_waited_for() -> None:
    """The exit status is what counts, not the end of the output."""
    begun = time.monotonic()
    done = HOST.run(("sh", "-c", "sleep 60 & echo $!"), timeout=30)
    assert time.monotonic() - begun < 10
    os.kill(int(done.stdout), signal.SIGKILL)


def test_what_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """Nothing that the command started in its group goes on."""
    started = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! >{started}; wait"
    with pytest.raises(TimedOut, match=r"within 1 s"):
        HOST.run(("sh", "-c", script), timeout=1)
    for pid in map(int, started.read_text().split()):
        while not _ended(pid):  # the kernel takes a moment; the test's time limit is the bound
            time.sleep(0.01)


def test_no_status_in_time_means_that_nothing_is_known() -> None:
    """A caller that knows only `Unreachable` treats it rightly."""
    assert issubclass(TimedOut, errors.Unreachable)


def test_what_is_put_has_no_name_before_the_rename(tmp_path: Path) -> None:
    """A reader sees the whole file or none."""
    path = tmp_path / "new" / "deep" / "file"
    part = HOST.put(str(path), b"data")
    assert (str(path) + ".part", False) == (part, path.exists())
    HOST.rename(part, str(path))
    assert path.read_bytes() == b"data"
    assert (_mode(path), _mode(path.parent), _mode(path.parent.parent)) == (0o600, 0o700, 0o700)


def test_the_mode_of_an_old_part_does_not_stay(tmp_path: Path) -> None:
    """What another attempt left open to the world is closed again."""
    (tmp_path / "file.part").touch(mode=0o666)
    HOST.put(str(tmp_path / "file"), b"secret")
    assert _mode(tmp_path / "file.part") == 0o600


def test_bytes_are_read_from_an_offset(tmp_path: Path) -> None:
    """No bytes at the end, and None where there is no file: two answers."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    reads = [HOST.read(str(path), offset, 4) for offset in (0, 8, 10, 99)]
    assert reads == [b"0123", b"89", b"", b""]
    assert None is HOST.read(str(tmp_path / "none"), 0, 4)


def test_another_file_of_the_same_name_has_another_identity(tmp_path: Path) -> None:
    """So that a log that was replaced can be told."""
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"12345")
    other.write_bytes(b"12345")
    before = HOST.stat(str(path))
    other.rename(path)
    after = HOST.stat(str(path))
    assert before is not None
    assert after is not None
    assert (before.size, after.size) == (5, 5)
    assert before.identity != after.identity
    assert None is HOST.stat(str(tmp_path / "none"))


def test_the_system_s_refusal_becomes_a_sentence(tmp_path: Path) -> None:
    """It says what could not be done, and to which path."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.TargetError, match=f"cannot write {tmp_path}/file/x.part: Not a directory"):
        HOST.put(f"{tmp_path}/file/x", b"")


def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    """The second asker learns who is first; after the release it is the turn of the second."""
    path = str(tmp_path / "locks" / "target")
    first = HOST.lock(path, "gpu-box pid 1: good")
    assert not isinstance(first, str)
    with first:
        assert HOST.lock(path, "pid 2") == "gpu-box pid 1: good"
    second = HOST.lock(path, "pid 2")
    assert not isinstance(second, str)
    assert Path(path).read_text() == "pid 2"
    second.release()


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A server that outlives us does not keep the target locked."""
    path = str(tmp_path / "lock")
    lock = HOST.lock(path, "us")
    assert not isinstance(lock, str)
    command = ("/bin/sh", "-c", "echo up; exec sleep 60")
    with subprocess.Popen(command, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None
        child.stdout.readline()
        lock.release()
        again = HOST.lock(path, "the next")
        child.kill()
    assert not isinstance(again, str)
    again.release()


def test_a_dead_holder_s_lock_is_free(tmp_path: Path) -> None:
    """The kernel drops it; nobody has to clean up after a crash."""
    path = str(tmp_path / "lock")
    code = (
        "import os, sys; from bisect_agent.hosts.local import LocalHost;"
        "LocalHost().lock(sys.argv[1], 'dead'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run((sys.executable, "-c", code, path), check=False).returncode == -9
    lock = HOST.lock(path, "alive")
    assert not isinstance(lock, str)
    lock.release()


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"
