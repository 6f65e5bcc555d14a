"""How many runs a right verdict takes: `python tests/bench/search.py`.

Worlds of known truth are drawn anew for each scenario and searched by ours, by other tools where they are
installed, and by hand (ddmin, one factor at a time), all against the same stack, which counts its own runs.
Ours is played through the pure search, its proof included; some placements are searched by the command too,
with a process for every attempt, and then the runs must be the same, one by one. Prints ours in full, then
all beside the fewest runs that are possible. `--json` prints the figures instead.

Exits with 1 where ours was wrong more often than is stated, or the command made other runs. A bar that is
missed is said in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import reduce
from itertools import zip_longest
from operator import add
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.searches import ours, peers  # noqa: E402  (the checkout is what is measured)
from tests.bench.searches.ours import Searched, Shown  # noqa: E402
from tests.bench.searches.scenarios import SCENARIOS, Placement, Scenario, Verdict  # noqa: E402
from tests.bench.searches.scores import Score, of_all, of_ours, overall  # noqa: E402

Search = Callable[[Placement], Searched]

PURE: dict[str, Search] = {
    "ours": ours.pure,
    "ddmin": peers.ddmin,
    "one at a time": peers.one_at_a_time,
}
TOOLS = {tool.name: tool for tool in peers.TOOLS}
CHUNK = 25


def scenario_of(name: str) -> Scenario:
    """The scenario of that name."""
    return next(s for s in SCENARIOS if s.name == name)


def seeds(options: argparse.Namespace, count: int) -> list[str]:
    """The seeds of the first placements. All searchers get the same."""
    return [f"{options.seed}.{number}" for number in range(count)]


# --- what is done in processes --------------------------------------------------------------------------


def play(searcher: str, name: str, numbers: Sequence[str]) -> Score:
    """Some placements, without processes."""
    scenario = scenario_of(name)
    placements = [scenario.placed(seed) for seed in numbers]
    return Score.of(searcher, [(p, PURE[searcher](p)) for p in placements], name)


def use(searcher: str, name: str, seed: str, tools: Path) -> Score:
    """One placement with a tool of others."""
    scenario, tool = scenario_of(name), TOOLS[searcher]
    placement = scenario.placed(seed)
    return Score.of(searcher, [(placement, tool(placement, tools))], name)


def differs(name: str, seed: str) -> str:
    """What the command does otherwise than the pure search; empty where it is the same."""
    placement = scenario_of(name).placed(seed)
    expected = ours.pure(placement)
    try:
        difference = first_difference(expected, ours.command(placement))
    except AssertionError as error:
        difference = str(error)
    return difference and f"{name} {seed}: {difference}"


def first_difference(pure: Searched, command: Searched) -> str:
    """Where two searches that ought to be one part ways."""
    for number, (one, other) in enumerate(zip_longest(pure.runs, command.runs), start=1):
        if one != other:
            return f"run {number} is {_run(one)}, and by the command {_run(other)}"
    return "" if pure.claim == command.claim else f"{pure.claim}, and by the command {command.claim}"


def _run(shown: Shown | None) -> str:
    return f"{' '.join(sorted(shown[0])) or 'good'}: {shown[1]}" if shown else "none"


def misled(scenarios: Sequence[Scenario], scores: Sequence[Score]) -> list[str]:
    """Where ours is wrong more often than is stated, as far as the placements show."""
    pairs = zip(scenarios, scores, strict=True)
    return [
        f"{scenario.name}: ours is wrong in {score.verdicts[Verdict.WRONG]} of {len(score.runs)} worlds"
        for scenario, score in pairs
        if score.runs and score.wrong[0] > scenario.error
    ]


# --- all of it ------------------------------------------------------------------------------------------


def played(
    options: argparse.Namespace, pool: ProcessPoolExecutor, searcher: str
) -> list[list[Future[Score]]]:
    """A searcher in all scenarios."""
    found = []
    for scenario in options.scenarios:
        numbers = seeds(options, options.placements)
        if searcher != "ours" and not peers.sets(scenario):
            found.append([_said(Score(searcher, scenario.name, note="-"))])
            continue
        chunks = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
        found.append([pool.submit(play, searcher, scenario.name, chunk) for chunk in chunks])
    return found


def used(
    options: argparse.Namespace, pool: ThreadPoolExecutor, tool: peers.Tool
) -> list[list[Future[Score]]]:
    """A tool in the scenarios that can be put to it."""
    try:
        tool.program(options.tools)
    except peers.Missing as missing:
        note = f"not installed: {missing}"
        return [[_said(Score(tool.name, scenario.name, note=note))] for scenario in options.scenarios]
    found = []
    for scenario in options.scenarios:
        count = min(options.peers, 1) if scenario.alike else options.peers
        numbers = seeds(options, count if tool.expresses(scenario) else 0)
        cell = [pool.submit(use, tool.name, scenario.name, seed, options.tools) for seed in numbers]
        found.append(cell or [_said(Score(tool.name, scenario.name, note="-"))])
    return found


def _said(score: Score) -> Future[Score]:
    future: Future[Score] = Future()
    future.set_result(score)
    return future


def compared(options: argparse.Namespace, pool: ThreadPoolExecutor) -> dict[str, list[Future[str]]]:
    """Our command in the scenarios that are small enough for it."""
    small = [s for s in options.scenarios if s.ordered or s.size <= options.command_size]
    numbers = seeds(options, options.command)
    return {s.name: [pool.submit(differs, s.name, seed) for seed in numbers] for s in small if numbers}


def verdicts(futures: Sequence[Future[str]], complaints: list[str]) -> str:
    """How many of the command's searches were the same."""
    found = [future.result() for future in futures]
    complaints += filter(None, found)
    return f"{found.count('')}/{len(found)} same"


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_option = parser.add_argument
    add_option("--seed", default="0", help="draw other worlds")
    add_option("--placements", type=int, default=200, help="a scenario, for ours and by hand")
    add_option("--command", type=int, default=1, help="placements a scenario that our command searches too")
    add_option("--command-size", type=int, default=16, help="up to so many factors, or an order of them")
    add_option("--peers", type=int, default=2, help="placements a scenario for tools of others")
    add_option("--tools", type=Path, default=Path(".peers"), help="where these are: NAME/bin/NAME below it")
    add_option("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    add_option("--only", action="append", choices=[s.name for s in SCENARIOS], help="this scenario alone")
    add_option("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    options.tools = options.tools.absolute()
    options.scenarios = [s for s in SCENARIOS if not options.only or s.name in options.only]
    return options


def main() -> int:
    """Search all worlds, and say so."""
    options = parsed()
    complaints: list[str] = []
    print("some minutes, most of them for what has processes", file=sys.stderr)
    with ProcessPoolExecutor(options.jobs) as processes, ThreadPoolExecutor(options.jobs) as threads:
        rows = [played(options, processes, searcher) for searcher in PURE]
        same = compared(options, threads)
        rows += [used(options, threads, tool) for tool in TOOLS.values()]
        scores = [[reduce(add, [f.result() for f in cell]) for cell in row] for row in rows]
        agreed = {name: verdicts(futures, complaints) for name, futures in same.items()}
    scenarios = options.scenarios
    complaints += misled(scenarios, scores[0])
    if options.json:
        figures = [
            {**score.plain(), "bar": s.bar, "bound": s.bound}
            for row in scores
            for s, score in zip(scenarios, row, strict=True)
        ]
        print(json.dumps({"scores": figures, "command": agreed, "complaints": complaints}, indent=1))
    else:
        print(of_ours(scenarios, scores[0], agreed), overall(scores[0]), sep="\n", end="\n\n")
        print(of_all(scenarios, scores), end="\n\n")
        print("R right, P a part of the causes, N not established, W wrong; a mean alone: all are right")
        notes = {score.note for row in scores for score in row if ": " in score.note}
        print("\n".join(sorted(notes)))
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
