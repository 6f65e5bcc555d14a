"""What a look around an attempt costs: `python tests/bench/between.py`.

An environment of 300 packages and a repository of 2000 files, one of them changed, are looked at in one
command, and by one command for each thing, in turn; on this machine, and over SSH where there is a server.
Prints both medians, and from what round trip on the one command is the quicker way. Exits with 1 where a look
on this machine takes longer than is promised.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bisect_agent import between  # noqa: E402  (the checkout is what is measured)
from bisect_agent.clock import SystemClock  # noqa: E402
from bisect_agent.edge import Edge  # noqa: E402
from bisect_agent.hosts import Host  # noqa: E402
from bisect_agent.model import Fingerprint  # noqa: E402
from bisect_agent.target.launcher import Launcher  # noqa: E402
from tests.hosts.conformance import hosts  # noqa: E402
from tests.worlds import playbook_of  # noqa: E402

PROMISED = 0.1
RUNS = 20
PACKAGES, FILES = 300, 2000


def made(place: Path) -> None:
    """The environment and the repository."""
    for number in range(PACKAGES):
        folder = place / "site" / f"package{number}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "RECORD").touch()
    for number in range(FILES):
        file = place / "code" / f"{number % 50}" / f"{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"a = {number}\n")
    git = ("/usr/bin/env", "git", "-C", str(place / "code"), "-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "--all"), ("commit", "-q", "-m", "x")):
        subprocess.run((*git, *command), check=True)
    (place / "code" / "0" / "0.py").write_text("a = 1\n")


def seconds(deed: Callable[[], object]) -> float:
    """How long something takes."""
    begun = time.perf_counter()
    deed()
    return time.perf_counter() - begun


def measured(host: Host, place: Path) -> tuple[float, float, float]:
    """The median of a look, that of one command for each thing, and the round trip that makes them equal."""
    plain = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
    target = plain.target.model_copy(update={"cwd": str(place), "code": (str(place / "code"),)})
    playbook = plain.model_copy(update={"target": target})
    edge = Edge(host, Launcher(host, str(place)), str(place / "ours"), host.python, SystemClock(), {}, ())
    baseline = Fingerprint(folders=(str(place / "site"),))
    git = ("git", "-C", str(place / "code"))
    commands = (
        ("uname", "-r"),
        ("cat", "/proc/sys/kernel/random/boot_id"),
        ("bash", "-c", f"stat -c '%n %Y' {place}/site/*/RECORD"),
        (*git, "rev-parse", "HEAD"),
        (*git, "diff", "HEAD"),
        (*git, "ls-files", "--others", "--exclude-standard"),
    )
    pairs = [
        (
            seconds(lambda: between.look(playbook, edge, None, baseline)),
            seconds(lambda: [host.run(command, timeout=30) for command in commands]),
        )
        for _ in range(RUNS)
    ]
    one, each = (median(taken) for taken in zip(*pairs, strict=True))
    return one, each, max(0.0, one - each) / (len(commands) - 1)


def main() -> int:
    """Measure on each host and say so."""
    there = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    looks = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made(Path(folder))
        for kind in ("local", "ssh") if there else ("local",):
            host, _ = stack.enter_context(hosts(kind))
            looks[kind], each, equal = measured(host, Path(folder))
            print(f"{kind:5}  one look {looks[kind] * 1000:4.0f} ms", end="   ")
            print(f"a command for each thing {each * 1000:4.0f} ms", end="   ")
            print(f"ratio {each / looks[kind]:3.1f}, 1 at a round trip of {equal * 1000:.0f} ms")
    print(f"promised at most   {PROMISED * 1000:4.0f} ms on this machine")
    return 0 if looks["local"] <= PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
