"""What the agent takes beside the stack's own time: `python tests/bench/steps.py`.

Asks the search for one next trial after another, among 64 and among 500 factors, to the end or for half a
minute, and prints the slowest answer, in seconds of a core. Then a job that does next to nothing is
bisected, and what an attempt takes is held against that job alone. Exits with 1 where one of these is above
what is promised.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bisect_agent import search  # noqa: E402  (the checkout is what is measured)
from bisect_agent.events import Entry, Judged, TrialPlanned  # noqa: E402
from bisect_agent.investigation import open_new  # noqa: E402
from bisect_agent.model import Playbook, Settled, StoppedBy, Trial  # noqa: E402
from tests.bench.searches import ours  # noqa: E402
from tests.bench.searches.oracle import SAYS, TARGET  # noqa: E402
from tests.bench.searches.scenarios import SCENARIOS  # noqa: E402

NEXT = {64: 0.3, 500: 3.0}
"""Seconds that the next trial among so many factors may take."""
OVERHEAD = 0.3
WAITS = 30.0
ALONE = 20
SINGLE = next(s for s in SCENARIOS if s.name == "single")


def asked(size: int) -> list[float]:
    """How long each answer of the search took, in a world of that many factors."""
    placement = replace(SINGLE, size=size).placed("0")
    taken: list[float] = []

    def ask(
        playbook: Playbook, settled: Sequence[Settled], flying: Sequence[Trial], capacity: int
    ) -> search.Next | search.Finished:
        if sum(taken) > WAITS:
            return search.Finished(StoppedBy.INTERRUPTED)
        begun = time.process_time()
        step = search.step(playbook, settled, flying, capacity)
        taken.append(time.process_time() - begun)
        return step

    ours.pure(placement, ask)
    return taken


def job(home: Path) -> tuple[Path, str]:
    """A playbook, and its launch script: with one factor on it fails."""
    placement = SINGLE.placed("0")
    ((cause,),) = (needs for needs, *_ in placement.world.rules)
    script = f'if [[ "${{{cause.upper()}:-}}" == 1 ]]; then echo "{SAYS[TARGET]}"; exit 1; fi'
    text = ours.playbook_text(placement, "").replace("exec \n", script + "\n", 1)
    path = home / "playbook.yaml"
    path.write_text(text, encoding="utf-8")
    return path, script


def attempts(home: Path, path: Path) -> tuple[int, float]:
    """How many attempts an investigation made, and the seconds from the first plan to the last judgement."""
    planned: list[float] = []
    judged: list[float] = []

    def listen(entry: Entry) -> None:
        if isinstance(entry.event, TrialPlanned):
            planned.append(entry.at)
        elif isinstance(entry.event, Judged):
            judged.append(entry.at)

    with open_new(path, home / "runs", {}, listen) as investigation:
        investigation.engine.run()
    return len(judged), judged[-1] - planned[0]


def alone(script: str) -> float:
    """The job's own seconds."""
    taken = []
    for _ in range(ALONE):
        begun = time.perf_counter()
        subprocess.run(("/usr/bin/env", "bash", "-c", script), check=True)
        taken.append(time.perf_counter() - begun)
    return median(taken)


def main() -> int:
    """Measure all and say so."""
    kept = True
    for size, promised in NEXT.items():
        taken = asked(size)
        kept &= max(taken) <= promised
        print(
            f"next trial of {size:3}   slowest {max(taken):6.3f} s   median {median(taken):6.3f} s", end="   "
        )
        print(f"promised {promised:g} s   ({len(taken)} answers)")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        path, script = job(Path(folder))
        count, seconds = attempts(Path(folder), path)
    each, own = seconds / count, alone(script)
    print(
        f"attempt of a job    {each:6.3f} s   the job alone {own:6.3f} s   ours {each - own:6.3f} s",
        end="   ",
    )
    print(f"promised {OVERHEAD:g} s   ({count} attempts)")
    return 0 if kept and each - own <= OVERHEAD else 1


if __name__ == "__main__":
    sys.exit(main())
