"""What it saves to know the times of runs: `python tests/bench/costs.py`.

Searches the eleven scenarios of sixteen factors twice, in the same worlds: once as if all runs took the same
time, and once knowing that one that passes takes ten times as long as one that fails. Prints the mean of the
expected seconds, a failing run being one second, how many verdicts are right, and what could be saved at
best: the seconds that a bit takes where a run tells most bits, against those where it tells most a second.
For a single cause it also prints what the best possible search takes, its proof included. Exits with 1 where
less is saved over all than is promised.
"""

from __future__ import annotations

import argparse
import sys
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bisect_agent import search  # noqa: E402  (the checkout is what is measured)
from bisect_agent.steer import EQUAL, Costs  # noqa: E402
from tests.bench.searches import ours  # noqa: E402
from tests.bench.searches.oracle import OK  # noqa: E402
from tests.bench.searches.scenarios import RATE, SCENARIOS, Scenario, Verdict  # noqa: E402
from tests.bench.searches.scores import aligned  # noqa: E402

DEAR = 10.0
PROMISED = 0.25
KNOWN = Costs(fails=1.0, passes=DEAR)
FORCED = {"good fails", "bad is fine"}
"""Scenarios in which there is nothing to choose."""
ELEVEN = [s for s in SCENARIOS if s.size == 16 and not s.declared]


def spent(scenario: Scenario, count: int, costs: Costs) -> tuple[float, int]:
    """The mean of seconds over so many worlds, and how many verdicts are right."""
    placements = [scenario.placed(f"0.{number}") for number in range(count)]
    found = [ours.pure(placement, partial(search.step, costs=costs)) for placement in placements]
    seconds = mean(sum(DEAR if shows == OK else 1.0 for _, shows in it.runs) for it in found)
    pairs = zip(placements, found, strict=True)
    return seconds, sum(placement.held(it.claim) is Verdict.RIGHT for placement, it in pairs)


def savable(scenario: Scenario) -> float:
    """The share of the seconds that knowing the times can save at best, as if nothing of them were proof.

    How many bits a run tells depends on the share of the possible causes that it holds. Who takes all runs
    alike gets the most bits a run; who knows better, the most bits a second.
    """
    if scenario.name in FORCED:
        return 0.0
    rate = RATE if scenario.flaky else 1.0
    tells = {held: EQUAL.seconds(held / 100, rate) for held in range(1, 100)}
    alike = KNOWN.seconds(min(tells, key=tells.__getitem__) / 100, rate)
    return 1 - KNOWN.bit(rate) / alike


def least(count: int) -> float:
    """The seconds of the best search for one cause of so many: every way to split is tried.

    `good` passes, `bad` fails; then each run holds some of the candidates. The cause alone must fail twice.
    """

    @lru_cache(None)
    def best(left: int, *, failed: bool) -> float:
        if left == 1:
            return 0.0 if failed else 1.0
        return min(
            held / left * (1 + best(held, failed=True))
            + (1 - held / left) * (DEAR + best(left - held, failed=False))
            for held in range(1, left)
        )

    return DEAR + 1 + best(count, failed=True) + 1


def main() -> int:
    """Measure and say so."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--placements", type=int, default=40, help="worlds a scenario")
    count = parser.parse_args().placements
    titles = ["seconds", "all the same", "known", "saved", "at best", "right", "right"]
    rows, totals = [titles], [0.0, 0.0, 0.0]
    for scenario in ELEVEN:
        (same, right), (known, also) = (spent(scenario, count, costs) for costs in (EQUAL, KNOWN))
        best = savable(scenario)
        totals = [total + more for total, more in zip(totals, (same, known, best * same), strict=True)]
        saved = f"{1 - known / same:.0%}"
        cells = (f"{same:.1f}", f"{known:.1f}", saved, f"{best:.0%}", str(right), str(also))
        rows.append([scenario.name, *cells])
    over_all = 1 - totals[1] / totals[0]
    shares = [f"{over_all:.0%}", f"{totals[2] / totals[0]:.0%}"]
    rows.append(["sum", f"{totals[0]:.1f}", f"{totals[1]:.1f}", *shares, "", ""])
    print(aligned(rows))
    print(f"a single cause of 16 takes {least(16):.1f} at least; promised over all: {PROMISED:.0%}")
    return 0 if over_all >= PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
