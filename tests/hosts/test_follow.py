"""A log over SSH that grows faster than most: every byte of it comes, in order, and its last line is seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from bisect_agent import tail
from tests.hosts.sshd import Sshd, server

FIRST = b"# the first line\n"
LAST = b"the last line\n"
FLOOD = """
import sys, time
begin, end, path = sys.argv[1].encode(), sys.argv[2].encode(), sys.argv[3]
with open(path, "wb", buffering=0) as log:
    log.write(begin)
    for n in range(150):
        log.write(b"".join(b"%06d %06d " % (n, line) + b"." * 85 + b"\\n" for line in range(2000)))
        time.sleep(0.01)
    log.write(end)
"""


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """A server."""
    with server() as running:
        yield running


def test_a_flood_over_ssh_comes_whole(sshd: Sshd, tmp_path: Path) -> None:
    """30 MB, at up to 20 MB a second, followed from its first line to its last."""
    path = tmp_path / "log"
    follower = tail.Tail(sshd.host(), str(path), FIRST)
    digest, size, last = sha256(), 0, b""
    command = (sys.executable, "-c", FLOOD, FIRST.decode(), LAST.decode(), str(path))
    with subprocess.Popen(command) as writer:
        while not last.endswith(LAST):
            poll = follower.poll()
            assert isinstance(poll, tail.NewBytes | tail.Nothing | tail.Missing), poll
            if isinstance(poll, tail.NewBytes):
                assert poll.offset == size
                digest.update(poll.data)
                size += len(poll.data)
                last = (last + poll.data)[-len(LAST) :]
    assert writer.returncode == 0
    assert sha256(path.read_bytes()).hexdigest() == digest.hexdigest()
