"""The stack of a world: what it does with the factors that are on. Also the program that peers start.

The same answers for all: a run's outcome depends on the world, on what is on, and on the number of the run.
As a program it writes down each of its starts, so runs are counted by the target and by nobody else. It
imports little, for it is started thousands of times.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Sequence

OK, TARGET, REFUSED, SECOND, LOST = "ok", "target", "refused", "second", "lost"
"""What a run shows: it works; the failure in question; a start refused; another failure; nothing."""
SAYS = {
    OK: "INFO: Application startup complete.",
    TARGET: "RuntimeError: CUDA error: an illegal memory access was encountered",
    REFUSED: "ValueError: this option requires another option that is off",
    SECOND: "torch._inductor.exc.InductorError: CppCompileError",
    LOST: "ssh: connect to host gpu01 port 22: Connection timed out",
}
EXITS = {
    "plain": {OK: 0, LOST: 255},  # as a launch script gives them
    "target": {OK: 0, REFUSED: 0, SECOND: 0, LOST: 0},  # of a wrapper that knows the one failure
    "interesting": {TARGET: 0},  # the same for reducers, which keep what gives 0
    "metric": {OK: 0, TARGET: 0, REFUSED: 3, SECOND: 3, LOST: 3},  # a number is printed
}
"""The exit code of each outcome, by what a tool expects; of others it is 1."""
RUNS = "runs.jsonl"
MOST = 3000
"""A tool that wants more runs does not end."""

Rule = tuple[Sequence[str], Sequence[str], str, float]
"""Where all of the first are on and none of the second, a run shows this, at this rate."""


class World:
    """What is true of a stack.

    Attributes:
        factors: what can be on.
        rules: the first that applies says what a run shows; with none it works.
        lost: the share of runs of which nothing is seen.
        seed: of the chance in it.
    """

    def __init__(self, factors: Sequence[str], rules: Sequence[Rule], lost: float, seed: str) -> None:
        self.factors = list(factors)
        self.rules = [(list(needs), list(lacks), shows, rate) for needs, lacks, shows, rate in rules]
        self.lost, self.seed = lost, seed

    def answer(self, on: frozenset[str], number: int) -> str:
        """What the run of this number shows."""
        dice = _Dice(f"{self.seed} {number}")
        if dice.happens(self.lost):
            return LOST
        for needs, lacks, shows, rate in self.rules:
            if on.issuperset(needs) and on.isdisjoint(lacks) and dice.happens(rate):
                return shows
        return OK


class _Dice:
    """Chance that is the same each time; made only where something is uncertain."""

    def __init__(self, seed: str) -> None:
        self._seed, self._thrown = seed, 0

    def happens(self, rate: float) -> bool:
        """Whether something of that rate happens now."""
        if rate in {0.0, 1.0}:
            return bool(rate)
        import random  # half of the start of this program

        self._thrown += 1
        return random.Random(f"{self._seed} {self._thrown}").random() < rate  # noqa: S311


def written(world: World) -> str:
    """A world as text."""
    return json.dumps(vars(world))


def on_at(world: World, arguments: Sequence[str]) -> frozenset[str]:
    """What is on: by the names in a file, by a version, which holds all before it, or by the environment."""
    names = world.factors
    if "--from" in arguments:
        try:
            with open(arguments[arguments.index("--from") + 1], encoding="utf-8") as file:  # noqa: PTH123
                return frozenset(file.read().split()) & frozenset(names)
        except FileNotFoundError:
            return frozenset()
    if "--until" in arguments:
        return frozenset(names[: int(arguments[arguments.index("--until") + 1])])
    found = ((name, os.environ.get(name.upper())) for name in names)
    axes = ((name, os.environ.get("MLBISECT_AXIS_" + name.upper())) for name in names)
    return frozenset(name for name, value in (*found, *axes) if value == "1")


def main(folder: str, arguments: Sequence[str]) -> int:
    """One start of the stack."""
    with open(folder + "/world.json", encoding="utf-8") as file:  # noqa: PTH123
        world = World(**json.load(file))
    on = on_at(world, arguments)
    with open(f"{folder}/{RUNS}", "a+", encoding="utf-8") as file:  # noqa: PTH123
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = sum(1 for _ in file)
        shows = world.answer(on, number)
        if number < MOST:
            file.write(json.dumps([sorted(on), shows]) + "\n")
    print(SAYS[shows], flush=True)
    way = arguments[arguments.index("--exit") + 1] if "--exit" in arguments else "plain"
    if way == "metric" and shows in {OK, TARGET}:
        print(json.dumps({"metric": float(shows == OK)}))
    return EXITS[way].get(shows, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
