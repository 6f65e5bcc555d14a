"""How soon a fatal line is noticed: `python tests/bench/latency.py`.

Servers that die at a random moment, each with the time in its fatal line, are watched by the agent and
by a loop that looks at the same log every 30 s, both in one run. Prints the median time from the line's
own stamp to the agent's `ending` event in the journal, and to the loop's look; and their ratio. Exits
with 1 where the agent's median is above what is promised.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bisect_agent.events import Ending, Entry, LogSeen  # noqa: E402  (the checkout is what is measured)
from bisect_agent.investigation import open_new  # noqa: E402

PROMISED = 0.2
SERVERS = 24
INTERVAL = 30.0  # seconds between two looks of the loop
DIES = (10.0, 20.0)  # seconds after the start of all; the launches, which take the machine, are over then
FATAL = re.compile(r"FATAL at (\d+\.\d+)")
PLAYBOOK = """\
playbook: 1
title: it dies at {dies}
kind: job
launch: |
  export LC_ALL=C  # a point in the times
  echo started
  until [[ $EPOCHREALTIME > {dies} ]]; do sleep 0.1; done
  echo "FATAL at $EPOCHREALTIME"
  sleep 600
factors:
  nothing: {{env: NOTHING, levels: {{a: 1, b: 2}}}}
good: {{nothing: a}}
bad: {{nothing: b}}
observe:
  signatures: [{{id: fatal, role: root, pattern: "FATAL at", fatal: true}}]
"""


@dataclass(frozen=True)
class Noticed:
    """Seconds from the stamp in the fatal line to its being noticed."""

    agent: float
    loop: float


def watch(home: Path, dies: float, phase: float) -> Noticed:
    """One server, watched by both; `phase` is when the loop first looks, in seconds since the epoch."""
    home.mkdir()
    playbook = home / "playbook.yaml"
    playbook.write_text(PLAYBOOK.format(dies=f"{dies:.6f}"), encoding="utf-8")
    found: dict[str, float] = {}
    log: list[Path] = []
    log_known = threading.Event()

    def listen(entry: Entry) -> None:
        if isinstance(entry.event, LogSeen):
            log.append(Path(entry.event.path))
            log_known.set()
        if isinstance(entry.event, Ending) and entry.event.match:
            found["agent"] = entry.at - stamp(entry.event.match.text)
            investigation.engine.interrupt()

    def poll() -> None:
        look = phase
        log_known.wait()
        while "loop" not in found:
            time.sleep(max(0.0, look - time.time()))
            text = log[0].read_text(encoding="utf-8")
            if FATAL.search(text):
                found["loop"] = time.time() - stamp(text)
            look += INTERVAL

    loop = threading.Thread(target=poll)
    loop.start()
    with open_new(playbook, home / "runs", {}, listen) as investigation:
        investigation.engine.run()
    loop.join()
    return Noticed(**found)


def stamp(text: str) -> float:
    """The time in a fatal line."""
    match = FATAL.search(text)
    assert match is not None, text
    return float(match[1])


def main() -> int:
    """Watch all servers at once, and say so."""
    chance = random.Random()  # noqa: S311  # moments, not secrets
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(SERVERS) as pool:
        os.environ["HOME"] = folder
        now = time.time()
        watched = [
            pool.submit(
                watch,
                Path(folder) / str(number),
                now + chance.uniform(*DIES),
                now + chance.uniform(0, INTERVAL),
            )
            for number in range(SERVERS)
        ]
        noticed = [future.result() for future in watched]
    agent, loop = [n.agent for n in noticed], [n.loop for n in noticed]
    print(f"{SERVERS} fatal lines, each watched by both; seconds from its own stamp to its being noticed")
    print(f"agent             median {statistics.median(agent):7.3f}   latest {max(agent):7.3f}")
    print(f"loop every {INTERVAL:g} s   median {statistics.median(loop):7.3f}   latest {max(loop):7.3f}")
    print(f"ratio             {statistics.median(loop) / statistics.median(agent):14.0f}")
    print(f"promised          median {PROMISED:7.3f}")
    return 0 if statistics.median(agent) <= PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
