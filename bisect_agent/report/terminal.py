"""What a person sees while a run goes on, and the verdict tree at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from bisect_agent.errors import ExitCode
from bisect_agent.events import Entry, Judged, PhaseEntered, ReadySeen, RestorePlanned, TrialPlanned
from bisect_agent.model import Evidence
from bisect_agent.report.digest import Brief, Digest
from bisect_agent.report.words import (
    FAILED,
    Quoted,
    back,
    clock_time,
    counted,
    lasting,
    outcome,
    place,
    quote,
    shorter,
    titled,
    told,
    who,
)
from bisect_agent.signatures import printable
from bisect_agent.tree import Node, said
from bisect_agent.verdict import Verdict

_STYLE = {"supported": "green", "refuted": "red", "undecided": "yellow", "passed": "green", "failed": "red"}

_LEAST = 40
"""Columns that a quoted line has at least; it goes to a line of its own where the place leaves fewer."""
_UNBROKEN = 10_000
"""Columns where nothing is to be broken: in pipes and files, which are searched and cut by other tools."""


class Lines:
    """Progress as plain lines, one an event: for logs, pipes and files; each begins with `name`, if any."""

    def __init__(self, console: Console, name: str = "") -> None:
        self._console = console
        self._name = f"{name} " if name else ""

    def __call__(self, entry: Entry) -> None:
        """Prints the event, if a person wants to read it."""
        if (sentence := told(entry.event)) is not None:
            who, what = sentence
            line = f"{clock_time(entry.at)} {self._name}{who:8} {what}"
            self._console.print(Text(printable(line)), soft_wrap=True)

    def close(self) -> None:
        """Nothing to put back."""


@dataclass(frozen=True)
class _Row:
    """A trial on the board; `ended` is None while it runs. Times in seconds since the epoch."""

    label: str
    began: float
    text: Text
    ended: float | None = None


class Board:
    """Progress as a table that is drawn again in place: for a terminal."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._rows: dict[str, _Row] = {}
        self._last = ""
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=2)
        self._live.start()

    def __call__(self, entry: Entry) -> None:
        """Takes the event into the table."""
        event = entry.event
        match event:
            case TrialPlanned(trial=trial) | RestorePlanned(trial=trial):
                row = _Row(trial.label, entry.at, Text("starting", style="dim"))
                self._rows = {**self._rows, trial.id: row}
            case PhaseEntered(trial=name, match=found):
                self._change(name, Text(f"in {printable(found.id)}", style="dim"))
            case ReadySeen(trial=name):
                self._change(name, Text("ready, asking it", style="dim"))
            case Judged(settled=settled):
                style = _STYLE.get(settled.outcome.kind, "yellow")
                self._change(settled.trial.id, Text(printable(said(settled)), style=style), entry.at)
            case _:
                pass
        if (sentence := told(event)) is not None:
            self._last = f"{clock_time(entry.at)} {sentence[0]} {sentence[1]}"
        self._live.refresh()

    def _change(self, name: str, text: Text, ended: float | None = None) -> None:
        # A new mapping each time: the thread that draws may be reading the old one.
        self._rows = {**self._rows, name: replace(self._rows[name], text=text, ended=ended)}

    def _draw(self) -> RenderableType:
        table = Table("trial", "change", "seconds", "outcome", box=None, pad_edge=False)
        table.columns[2].justify = "right"
        for name, row in self._rows.items():
            seconds = (row.ended or self._clock()) - row.began
            table.add_row(Text(name), Text(printable(row.label)), f"{max(seconds, 0):.0f}", row.text)
        return Group(table, Text(printable(self._last), style="dim", no_wrap=True, overflow="ellipsis"))

    def close(self) -> None:
        """Leaves the table as it is and gives the terminal back."""
        self._live.stop()


class _Line:
    """A line of a log with its place: the place whole, the line as far as there is room."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The place, whose line it is, and what it says; on two lines where one is too short."""
        line = Text(place(self._evidence), style="cyan", overflow="fold")
        if whose := who(self._evidence):
            line.append(f"  {whose}", style="default")
        room = options.max_width - line.cell_len - 2
        text = Text(quote(self._evidence), style="dim")
        text.truncate(room if room >= _LEAST else options.max_width, overflow="ellipsis")
        yield line.append("  " if room >= _LEAST else "\n").append_text(text)


def show(verdict: Verdict, console: Console) -> None:
    """Prints the verdict tree: as wide as the terminal, and with every line whole where there is none."""
    if not console.is_terminal:
        console.width = _UNBROKEN
    console.print(verdict_tree(verdict))


def show_digest(digest: Digest, console: Console) -> None:
    """Prints a night's runs: as wide as the terminal, and with every line whole where there is none."""
    if not console.is_terminal:
        console.width = _UNBROKEN
    until = f", until {digest.until}" if digest.until else ""
    took = lasting(digest.at - digest.began)
    root = Tree(Text(f"{counted(digest.runs)} ({took}{until})", style="bold"), guide_style="dim")
    for note in digest.notes:
        root.add(Text(printable(note), style="red"))
    for run in digest.runs:
        about = ": ".join(filter(None, (run.name, outcome(run), run.title)))
        branch = root.add(Text(printable(about), style=_tone(run)))
        for line in _brief(run):
            branch.add(Text(printable(line)))
    console.print(root)


def _tone(run: Brief) -> str:
    if run.code is None:
        return "default"
    return "red" if run.code in FAILED else "green" if run.code is ExitCode.CONCLUDED else "yellow"


def _brief(run: Brief) -> Iterator[str]:
    yield from (line for line in run.found.splitlines() if line)
    if run.code is not None:
        took = f", {lasting(run.ended - run.began)}" if run.began is not None and run.ended else ""
        attempts = f", {run.attempts} attempts" if run.folder else ""
        yield f"exit code {run.code}{took}{attempts}"
    if run.folder:
        yield f"good restored: {back(run)}"
        yield f"run folder: {run.folder}"
    yield from (*run.notes, *run.commands)


def verdict_tree(verdict: Verdict) -> Tree:
    """The verdict as a tree. A line of a log is quoted once, with its place, and named by it afterwards."""
    root = Tree(Text(printable(verdict.tree.text), style="bold"), guide_style="dim")
    quoted = Quoted()
    for child in verdict.tree.children:
        _grow(root, child, quoted)
    return root


def _grow(tree: Tree, node: Node, quoted: Quoted) -> None:
    branch = tree.add(_sentence(node.text))
    fresh, known = quoted.split(node.evidence)
    for evidence in fresh:
        branch.add(_Line(evidence))
    if known:
        places = ", ".join(map(shorter, known))
        branch.add(Text(f"quoted above: {places}", style="dim cyan"))
    for child in node.children:
        _grow(branch, child, quoted)


def _sentence(text: str) -> Text:
    """A sentence with its first word, where that is a state, in the state's colour."""
    word, rest = titled(printable(text))
    style = _STYLE.get(word)
    return Text(f"{word}: ", style=style).append(rest, style="default") if style else Text(printable(text))
