"""What users would pick instead: other tools, where they are installed, and what people do by hand."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.searches.oracle import LOST, OK, SAYS, TARGET
from tests.bench.searches.ours import Searched, Shown, made, started
from tests.bench.searches.scenarios import Claim, Declined, Named, Placement, Scenario, Side

PATIENCE = 60.0
"""Seconds after which a tool is said not to end."""
NO_END = "it does not end"
NEVER = "(?!)"
"""What nothing says: `good` is not looked at."""


# --- by hand --------------------------------------------------------------------------------------------


class _Declines(Exception):  # it is an answer
    def __init__(self, side: Side | None, why: str) -> None:
        super().__init__(why)
        self.claim = Declined(side, why)


class _Asked:
    """The world, asked as a patient person asks: a lost run is made again, nothing is asked twice.

    Only the failure of the side that fails counts; any other one, and a start refused, is "does not fail".
    """

    def __init__(self, placement: Placement) -> None:
        self.names = frozenset(placement.scenario.factors)
        self._world = placement.world
        self._known: dict[frozenset[str], str] = {}
        self.runs: list[Shown] = []

    def shows(self, on: frozenset[str]) -> str:
        """What it shows with these on."""
        while on not in self._known:
            shows = self._world.answer(on, len(self.runs))
            self.runs.append((on, shows))
            if shows != LOST:
                self._known[on] = shows
        return self._known[on]

    def fails(self, on: frozenset[str]) -> bool:
        """Whether it fails with these on."""
        return self.shows(on) == TARGET

    def sides(self) -> None:
        """Both ends, before the middle."""
        if self.shows(frozenset()) != OK:
            raise _Declines("good", "`good` fails")
        if not self.fails(self.names):
            raise _Declines("bad", "`bad` does not fail")


def _ddmin(asked: _Asked) -> Claim:
    """Zeller and Hildebrandt's minimizing delta debugging: subsets, complements, finer."""
    asked.sides()
    left, parts = sorted(asked.names), 2
    while len(left) > 1:
        cut = [len(left) * n // parts for n in range(parts + 1)]
        chunks = [left[a:b] for a, b in itertools.pairwise(cut)]
        rests = [[x for x in left if x not in chunk] for chunk in chunks] if parts > 2 else []
        if found := next((chunk for chunk in chunks if asked.fails(frozenset(chunk))), None):
            left, parts = found, 2
        elif found := next((rest for rest in rests if asked.fails(frozenset(rest))), None):
            left, parts = found, max(parts - 1, 2)
        elif parts == len(left):
            break
        else:
            parts = min(len(left), 2 * parts)
    return Named(frozenset({frozenset(left)}))


def _one_at_a_time(asked: _Asked) -> Claim:
    """From `good` each factor on alone; where none fails, from `bad` each off alone."""
    asked.sides()
    if alone := [x for x in sorted(asked.names) if asked.fails(frozenset({x}))]:
        return Named(frozenset(frozenset({x}) for x in alone))
    if heal := [x for x in sorted(asked.names) if not asked.fails(asked.names - {x})]:
        return Named(frozenset({frozenset(heal)}))
    return Declined(None, "no factor causes or heals it alone")


def _by_hand(way: Callable[[_Asked], Claim]) -> Callable[[Placement], Searched]:
    def search(placement: Placement) -> Searched:
        asked = _Asked(placement)
        try:
            claim = way(asked)
        except _Declines as declined:
            claim = declined.claim
        return Searched(tuple(asked.runs), claim)

    return search


ddmin = _by_hand(_ddmin)
one_at_a_time = _by_hand(_one_at_a_time)


# --- tools ----------------------------------------------------------------------------------------------


class Missing(Exception):  # nothing went wrong
    """A tool is not installed; the text says how to install it."""


@dataclass(frozen=True)
class Bench:
    """Where a tool is at work: a folder of its own, and the stack that it may start."""

    placement: Placement
    folder: Path
    oracle: Sequence[str]
    tools: Path

    def file(self, name: str, text: str) -> Path:
        """Writes a file there; a program where it begins with `#!`."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o700 if text.startswith("#!") else 0o600)
        return path

    def stack(self, way: str, *more: str) -> list[str]:
        """The command of the stack that exits as a tool expects it."""
        return [*self.oracle, "--exit", way, *more]

    def script(self, way: str, source: str) -> Path:
        """A program that starts the stack with what a file names."""
        return self.file("test.sh", f"#!/bin/sh\nexec {shlex.join(self.stack(way))} --from {source}\n")

    def sides(self) -> tuple[Path, Path]:
        """`good` and `bad` as files of variables."""
        names = [name.upper() for name in self.placement.scenario.factors]
        good, bad = ("".join(f"{name}={value}\n" for name in names) for value in (0, 1))
        return self.file("good.env", good), self.file("bad.env", bad)

    def run(self, *command: str | Path, cwd: Path | None = None) -> tuple[int, str]:
        """Exit code and all that a command says. It ends with what it started when patience does."""
        git = dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull)
        who = {f"GIT_{role}_{what}": "bench@localhost" for role in ("AUTHOR", "COMMITTER") for what in _WHO}
        with subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd or self.folder,
            env={**os.environ, **git, **who, "NO_COLOR": "1", "COLUMNS": "200", "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise _Declines(None, NO_END) from None
        return process.returncode, said


_WHO = ("NAME", "EMAIL")


def _named(*sets: Sequence[str]) -> Named:
    return Named(frozenset(frozenset(name.lower() for name in found) for found in sets))


def _side(said: str, good: str, bad: str) -> _Declines:
    """Why a tool gives up, by its own words."""
    side: Side | None = None
    if re.search(good, said):
        side = "good"
    elif re.search(bad, said):
        side = "bad"
    return _Declines(side, said.strip()[-200:])


def _envcause(bench: Bench, exe: Path) -> Claim:
    good, bad = bench.sides()
    report = bench.folder / "report.json"
    flags = ("--matches", SAYS[TARGET].partition(": ")[2], "--report-json", report)
    code, said = bench.run(exe, "--good", good, "--bad", bad, *flags, "--", *bench.oracle)
    if code or not report.exists():
        raise _side(said, "Known-good .* already", "Known-bad .* does not")
    found = json.loads(report.read_text(encoding="utf-8"))["changes"]
    return _named([change["key"] for change in found])


def _envbisect(bench: Bench, exe: Path) -> Claim:
    good, bad = bench.sides()
    flags = ("--quiet", "--no-color", "--", *bench.oracle)
    code, said = bench.run(exe, "diagnose", "--pass", good, "--fail", bad, *flags)
    if code:
        raise _side(said, r"FAIL \(FAIL \d/\d\); .* FAIL \(", r"PASS \(PASS \d/\d\); .* PASS \(")
    return _named(re.findall(r"\bT\d+\b", said))


def _mlbisect(bench: Bench, exe: Path) -> Claim:
    names = bench.placement.scenario.factors
    axes = "".join(f"  - {{name: {x}, old: '0', new: '1'}}\n" for x in names)
    manifest = bench.file(
        "manifest.yaml",
        "version: 1\nname: bench\nmetric: {name: ok, direction: higher_is_better, min_effect: 0.5}\n"
        f"run: {{command: {json.dumps(shlex.join(bench.stack('metric')))}, timeout_s: 60}}\n"
        f"axes:\n{axes}budget: {{max_runs: 2000}}\n",
    )
    report = bench.folder / "report.json"
    code, said = bench.run(exe, "run", manifest, "--json", report, "--out", bench.folder / "report.md")
    if not report.exists():
        raise _Declines(None, said.strip()[-200:])
    found = json.loads(report.read_text(encoding="utf-8"))
    if found["result"] == "no reproducible regression":
        raise _Declines("bad" if found["baseline"]["mean"] else "good", found["result"])
    if code or not found["culprit_sets"]:
        raise _Declines(None, found["result"])
    return _named(*found["culprit_sets"])


def _picire(bench: Bench, exe: Path) -> Claim:
    names = bench.placement.scenario.factors
    bench.file("on.txt", "\n".join(names) + "\n")
    test = bench.script("interesting", '"$1"')
    code, said = bench.run(exe, "-i", "on.txt", "--test", test, "-o", "out", "-q")
    reduced = bench.folder / "out" / "on.txt"
    if code or not reduced.exists():
        raise _side(said, NEVER, "AssertionError")
    return _named(reduced.read_text(encoding="utf-8").split())


def _bayesect(bench: Bench, exe: Path) -> Claim:
    """One commit turns on one factor more."""
    names, repository = bench.placement.scenario.factors, bench.folder / "repository"
    stream = ""
    for number in range(len(names) + 1):
        text, message = "\n".join(names[:number]), names[number - 1] if number else "good"
        stream += (
            f"commit refs/heads/main\nmark :{number + 1}\ncommitter b <b@localhost> {10**9 + number} +0000\n"
        )
        stream += f"data {len(message)}\n{message}\n" + (f"from :{number}\n" if number else "")
        stream += f"M 644 inline on\ndata {len(text)}\n{text}\n"
    bench.run("git", "init", "-q", "-b", "main", repository)
    commits = bench.file("commits", stream)
    load = f"git fast-import --quiet <{shlex.quote(str(commits))} && git checkout -q main"
    bench.run("sh", "-c", load, cwd=repository)
    _, good = bench.run("git", "rev-list", "--max-parents=0", "HEAD", cwd=repository)
    _, said = bench.run(exe, "start", "--old", good.strip(), "--new", "main", cwd=repository)
    _, said = bench.run(exe, "run", bench.script("target", "on"), cwd=repository)
    likely = re.findall(r"(?i)(?:most likely|found|best).*?\b([0-9a-f]{7,40})\b", said)
    if not likely:
        raise _Declines(None, said.strip()[-200:])
    _, title = bench.run("git", "log", "-1", "--format=%s", likely[-1], cwd=repository)
    return _named([title.strip()])


@dataclass(frozen=True)
class Tool:
    """A tool by others.

    Attributes:
        name: of its program, and of the package that holds it.
        search: what it says of the cause.
        expresses: whether a scenario can be put to it at all.
    """

    name: str
    search: Callable[[Bench, Path], Claim]
    expresses: Callable[[Scenario], bool]

    def program(self, tools: Path) -> Path:
        """Its program, in the environment for tools or on the path.

        Raises:
            Missing: there is none.
        """
        found = shutil.which(self.name, path=f"{tools}/{self.name}/bin:{tools}/bin:{os.environ['PATH']}")
        if not found:
            where = tools / self.name
            raise Missing(f"python3 -m venv {where} && {where}/bin/pip install {self.name}")
        return Path(found)

    def __call__(self, placement: Placement, tools: Path) -> Searched:
        """Lets it search a world."""
        program = self.program(tools)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            bench = Bench(placement, folder, started(placement.world, folder / "world"), tools)
            try:
                claim = self.search(bench, program)
            except _Declines as declined:
                claim = declined.claim
            return Searched(made(folder / "world"), claim)


def sets(scenario: Scenario) -> bool:
    """Factors that are on or off, and none of them declared impossible with another."""
    return not scenario.ordered and not scenario.declared


def an_order(scenario: Scenario) -> bool:
    """One cause of one factor, found along an order."""
    return scenario.sizes == 1 and not scenario.every and not scenario.declared


TOOLS = (
    Tool("envcause", _envcause, sets),
    Tool("envbisect", _envbisect, sets),
    Tool("mlbisect", _mlbisect, sets),
    Tool("git-bayesect", _bayesect, an_order),
    Tool("picire", _picire, sets),
)
