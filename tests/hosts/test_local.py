"""What only this machine can be asked; the rest of its promises are those of every host."""

import subprocess
import sys
from pathlib import Path

from bisect_agent.hosts.local import LocalHost

HOST = LocalHost()


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
