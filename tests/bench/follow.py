"""How far behind a fast log over SSH we are: `python tests/bench/follow.py`.

A real sshd on 127.0.0.1; a job there writes 20 MB a second, each line with its time. A whole attempt follows
it: our reads, masking, the scan for all signatures, our copy, and the looks at the processes in between.
Prints how old the last line was when the agent was done with it and asked for more (the lag), how much the
memory grew meanwhile, and how fast the same file can be read by us and by plain sequential reads over SFTP.
Exits with 1 where the lag is more than is promised, or the memory grows.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import paramiko

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bisect_agent import tail  # noqa: E402  (the checkout is what is measured)
from bisect_agent.hosts.ssh import SshHost  # noqa: E402
from tests.hosts.sshd import Sshd, server  # noqa: E402
from tests.mistakes.scene import Scene  # noqa: E402

RATE = 20_000_000
SECONDS = 20
WARM = 3.0  # seconds after which lag and memory count: buffers are filled by then
PROMISED = 2.0
GROWTH = 16  # MiB
READ = 64 << 20  # bytes of the comparison
PIECE = 32768  # bytes of a plain read
WRITER = """
import sys, time
rest = b" [2026-06-17 23:46:56 TP0] Decode batch, #running-req: 1, #token: 512, token usage: 0.01, gen: 90\\n"
rate, begun, written = int(sys.argv[1]), time.time(), 0
with open(1, "ab", buffering=0) as log:
    while (now := time.time()) < begun + float(sys.argv[2]):
        line = b"%.6f" % now + rest
        written += log.write(line * (int((now - begun) * rate - written) // len(line)))
        time.sleep(0.01)
"""


class Measured(SshHost):
    """Notes how old the last line handed out is whenever more of the log is asked for."""

    begun = 0.0
    stamp = 0.0
    lags: list[float]
    memory: list[float]

    def read(self, path: str, offset: int, size: int) -> bytes | None:
        """Reads as ever."""
        follows = path.endswith("/log") and size == tail.LIMIT
        self.begun = self.begun or time.monotonic()
        if follows and self.stamp and time.monotonic() > self.begun + WARM:
            self.lags.append(time.time() - self.stamp)
            self.memory.append(_held())
        data = super().read(path, offset, size)
        last = (data or b"").rpartition(b"\n")[0].rpartition(b"\n")[2].partition(b" ")[0]
        if follows and last.replace(b".", b"").isdigit():
            self.stamp = float(last)
        elif follows:
            self.stamp = 0.0
        return data


def _held() -> float:
    """What this process holds now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def follow(sshd: Sshd, scene: Scene) -> tuple[Measured, int]:
    """Carries the attempt out: what was measured, and the bytes of the log."""
    host = Measured("box", config=sshd.config())
    host.lags, host.memory = [], []
    sshd.hosts.append(host)
    (scene.stack / "writer.py").write_text(WRITER)
    scene.job(f"exec python3 writer.py {RATE} {SECONDS}\n", limits={"start": "5m", "wall": "10m"})
    log = scene.attempt(host=host).observation.log
    assert log is not None
    return host, log.size


def ours(host: SshHost, log: Path) -> float:
    """MB a second of our reads."""
    begun, offset = time.monotonic(), 0
    while offset < READ and (data := host.read(str(log), offset, tail.LIMIT)):
        offset += len(data)
    return offset / 1e6 / (time.monotonic() - begun)


def plain(sshd: Sshd, log: Path) -> float:
    """MB a second of reads over SFTP, one after another."""
    client, offset = paramiko.SSHClient(), 0
    client.load_host_keys(str(sshd.folder / "known_hosts"))
    client.connect("127.0.0.1", sshd.port, key_filename=str(sshd.folder / "id"), look_for_keys=False)
    with client, client.open_sftp() as sftp, sftp.open(str(log), "rb") as file:
        begun = time.monotonic()
        while offset < READ // 4 and (data := file.read(PIECE)):
            offset += len(data)
        return offset / 1e6 / (time.monotonic() - begun)


def main() -> int:
    """Follow, then read, and say so."""
    with server(Subsystem="sftp internal-sftp") as sshd, tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        scene = Scene(Path(folder), 0)
        measured, size = follow(sshd, scene)
        (log,) = scene.target.glob("*/log")
        speeds = [(ours(sshd.host(), log), plain(sshd, log)) for _ in range(3)]
    lags, memory = sorted(measured.lags), measured.memory
    mine, theirs = (statistics.median(column) for column in zip(*speeds, strict=True))
    late, growth = lags[int(len(lags) * 0.95)], max(memory) - memory[0]
    print(f"a log of {size / 1e6:.0f} MB, written at {RATE / 1e6:g} MB/s, followed over SSH by an attempt")
    print(f"lag      median {statistics.median(lags):.3f} s, p95 {late:.3f} s, max {lags[-1]:.3f} s", end="")
    print(f", promised {PROMISED:g} s ({len(lags)} looks)")
    print(f"memory   grew by {growth:.1f} MiB from {memory[0]:.0f} MiB, allowed {GROWTH} MiB")
    print(f"reads    ours {mine:.0f} MB/s, plain SFTP {theirs:.0f} MB/s, ratio {mine / theirs:.1f}")
    return 0 if lags[-1] <= PROMISED and growth <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
