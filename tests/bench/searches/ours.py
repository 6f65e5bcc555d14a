"""Our search in a world: pure, by `search.step` alone, and as the command with real processes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bisect_agent import search
from bisect_agent.evidence import Table
from bisect_agent.model import (
    Configuration,
    Failed,
    Outcome,
    Passed,
    Playbook,
    Reason,
    Setting,
    Settled,
    StoppedBy,
    Symptom,
    SymptomKind,
    Trial,
    Unresolved,
)
from bisect_agent.playbook import load
from tests.bench.searches.oracle import LOST, OK, RUNS, SAYS, World, written
from tests.bench.searches.scenarios import Claim, Declined, Named, Placement, Scenario, Side

ROOT = Path(__file__).parents[3]
ORACLE = Path(__file__).with_name("oracle.py")
ATTEMPTS = 3
"""So many attempts the engine gives a trial while they are lost on the way."""
VERSION = "version"
SIDES: dict[StoppedBy, Side] = {StoppedBy.GOOD_FAILS: "good", StoppedBy.BAD_PASSES: "bad"}
_SIGNATURES = """\
observe:
  signatures:
    - {id: target, role: root, pattern: an illegal memory access}
    - {id: refused, role: root, pattern: this option requires another}
    - {id: second, role: root, pattern: CppCompileError}
    - {id: lost, role: infra, pattern: Connection timed out}
"""

Shown = tuple[frozenset[str], str]
"""What was on in a run, and what it showed."""
Ask = Callable[[Playbook, Sequence[Settled], Sequence[Trial], int], search.Next | search.Finished]


@dataclass(frozen=True)
class Searched:
    """All runs that a searcher made, in their order, and what it says in the end."""

    runs: tuple[Shown, ...]
    claim: Claim


# --- the playbook ---------------------------------------------------------------------------------------


def playbook_text(placement: Placement, command: str) -> str:
    """The playbook of a world, as a user would write it."""
    scenario = placement.scenario
    lines = ["playbook: 1", f"title: {json.dumps(scenario.name)}", "kind: job", "launch: |"]
    lines += [f"  exec {command}", "factors:", *_factors(placement)]
    if scenario.ordered:
        lines += [f"good: {{{VERSION}: v0}}", f"bad: {{{VERSION}: v{scenario.size}}}"]
    else:
        names = scenario.factors
        lines += [f"{side}: {{{', '.join(f'{x}: {v}' for x in names)}}}" for side, v in _LEVELS.items()]
    lines += [f"limits: {{trials: {100 * scenario.size}, wall: 100h}}", "restore: none"]
    lines += ["causes: all"] * scenario.every
    lines += [f"confidence: {{error: {scenario.error}}}"] * scenario.flaky
    return "\n".join([*lines, _SIGNATURES])


_LEVELS = {"good": "off", "bad": "on"}


def _factors(placement: Placement) -> list[str]:
    if placement.scenario.ordered:
        levels = ", ".join(f"v{n}: {n}" for n in range(placement.scenario.size + 1))
        return [f"  {VERSION}: {{env: VERSION, ordered: true, levels: {{{levels}}}}}"]
    needs = {one: other for (one,), (other,) in _declared(placement)}
    return [
        f"  {name}: {{env: {name.upper()}, levels: {{off: 0, on: 1}}{_requires(needs.get(name))}}}"
        for name in placement.scenario.factors
    ]


def _requires(other: str | None) -> str:
    return f", requires: {{on: {{{other}: on}}}}" if other else ""


def _declared(placement: Placement) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Which factor needs which, where that is said beforehand."""
    if not placement.scenario.declared:
        return []
    return [(needs, lacks) for needs, lacks, _, _ in placement.world.rules if lacks]


@lru_cache
def _loaded(text: str) -> Playbook:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "playbook.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path, ours={})


# --- pure -----------------------------------------------------------------------------------------------


def pure(placement: Placement, ask: Ask = search.step) -> Searched:
    """Asks the search for one trial after another, and the world what each shows."""
    playbook = _loaded(playbook_text(placement, "true"))
    runs: list[Shown] = []
    settled: list[Settled] = []
    while len(settled) <= 20 * placement.scenario.size:
        step = ask(playbook, settled, (), 1)
        if isinstance(step, search.Finished):
            return Searched(
                tuple(runs), claimed(placement.scenario, Table(playbook, settled).causes, step.by)
            )
        settled.append(_settle(placement, step.wanted[0].trial, runs))
    raise AssertionError(f"the search does not end: {placement.world.seed}")


def _settle(placement: Placement, trial: Trial, runs: list[Shown]) -> Settled:
    """The last word on a trial, after as many attempts as the engine would make."""
    on = on_in(placement.scenario, trial.configuration)
    attempt, shows = 0, LOST
    while shows == LOST and attempt < ATTEMPTS:
        attempt, shows = attempt + 1, placement.world.answer(on, len(runs))
        runs.append((on, shows))
    return Settled(trial=trial, attempt=attempt, outcome=_outcome(shows))


def _outcome(shows: str) -> Outcome:
    if shows == OK:
        return Passed()
    if shows == LOST:
        return Unresolved(reason=Reason.INFRA, detail=SAYS[LOST])
    return Failed(symptom=Symptom(kind=SymptomKind.SIGNATURE, id=shows, text=SAYS[shows], phase=""))


def on_in(scenario: Scenario, configuration: Configuration) -> frozenset[str]:
    """What is on in a configuration; a version holds all before it."""
    if scenario.ordered:
        return frozenset(scenario.factors[: int(configuration[VERSION].removeprefix("v"))])
    return frozenset(name for name in scenario.factors if configuration[name] == "on")


def claimed(scenario: Scenario, causes: Sequence[Sequence[Setting]], by: StoppedBy) -> Claim:
    """What a verdict says, in the names of the world."""
    if not causes:
        return Declined(side=SIDES.get(by), why=str(by))
    return Named(frozenset(frozenset(_name(scenario, s) for s in cause) for cause in causes))


def _name(scenario: Scenario, setting: Setting) -> str:
    """A setting in the world's own names: the version that the failure begins with is its newest factor.

    A level of `good` among the accused is nothing that the world knows, and so it stays as it is.
    """
    if scenario.ordered:
        number = int(setting.level.removeprefix("v"))
        return scenario.factors[number - 1] if number else str(setting)
    return setting.factor if setting.level == "on" else str(setting)


# --- the command ----------------------------------------------------------------------------------------


def started(world: World, folder: Path) -> list[str]:
    """The command that starts the stack of a world; its starts are written down in that folder."""
    folder.mkdir(exist_ok=True)
    (folder / "world.json").write_text(written(world), encoding="utf-8")
    return [sys.executable, "-I", "-S", str(ORACLE), str(folder)]


def made(folder: Path) -> tuple[Shown, ...]:
    """The runs that were written down."""
    file = folder / RUNS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return tuple((frozenset(on), shows) for on, shows in map(json.loads, lines))


def command(placement: Placement) -> Searched:
    """The same search by the command, with a process for every attempt."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        oracle = shlex.join(started(placement.world, home / "world"))
        version = ' --until "$VERSION"' if placement.scenario.ordered else ""
        text = playbook_text(placement, oracle + version)
        _loaded(text)
        (home / "playbook.yaml").write_text(text, encoding="utf-8")
        agent = (sys.executable, "-m", "bisect_agent", "run", "playbook.yaml", "--runs", "runs", "--json")
        environment = {**os.environ, "HOME": name, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            agent,
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        try:
            verdict = json.loads(done.stdout)
        except json.JSONDecodeError as error:
            raise AssertionError(f"no verdict, exit code {done.returncode}:\n{done.stderr}") from error
        causes = [[Setting(**s) for s in cause] for cause in verdict["causes"]]
        by = next(s for s in StoppedBy if verdict["stopped_by"].startswith(s))
        return Searched(made(home / "world"), claimed(placement.scenario, causes, by))
