"""How soon the command answers: `python tests/bench/startup.py`.

Runs `--help` and a Python that does nothing in turn, so that both meet the same machine, and prints both
medians and their ratio. Exits with 1 above the ratio that is promised.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PROMISED = 20
RUNS = 10
NOTHING = (sys.executable, "-c", "pass")
HELP = (sys.executable, "-m", "bisect_agent", "--help")


def seconds(command: tuple[str, ...]) -> float:
    """How long a command takes from its start to its end."""
    begun = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def main() -> int:
    """Measure both and say so."""
    pairs = [(seconds(NOTHING), seconds(HELP)) for _ in range(RUNS)]
    nothing, helped = (median(taken) for taken in zip(*pairs, strict=True))
    print(f"python -c pass       {nothing * 1000:6.0f} ms")
    print(f"bisect-agent --help  {helped * 1000:6.0f} ms")
    print(f"ratio                {helped / nothing:6.1f}  (promised: at most {PROMISED})")
    return 0 if helped / nothing <= PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
