"""What a person sees while a run goes on, and the verdict tree at its end."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from bisect_agent.events import Entry, Judged, PhaseEntered, ReadySeen, TrialPlanned
from bisect_agent.report.words import clock_time, place, quote, told
from bisect_agent.signatures import printable
from bisect_agent.tree import Node
from bisect_agent.verdict import Verdict

_STYLE = {"supported": "green", "refuted": "red", "undecided": "yellow", "passed": "green", "failed": "red"}


class Lines:
    """Progress as plain lines, one an event: for logs, pipes and files."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, entry: Entry) -> None:
        """Prints the event, if a person wants to read it."""
        if (sentence := told(entry.event)) is not None:
            who, what = sentence
            line = f"{clock_time(entry.at)} {who:8} {what}"
            self._console.print(Text(line), soft_wrap=True)

    def close(self) -> None:
        """Nothing to put back."""


class Board:
    """Progress as a table that is drawn again in place: for a terminal."""

    def __init__(self, console: Console) -> None:
        self._rows: dict[str, tuple[str, Text]] = {}
        self._began: dict[str, float] = {}
        self._last = ""
        self._live = Live(self._draw(), console=console, auto_refresh=False)
        self._live.start()

    def __call__(self, entry: Entry) -> None:
        """Takes the event into the table."""
        event = entry.event
        match event:
            case TrialPlanned(trial=trial):
                self._rows[trial.id] = trial.label, Text("starting", style="dim")
            case PhaseEntered(trial=name, match=found):
                self._set(name, Text(found.id, style="dim"))
            case ReadySeen(trial=name):
                self._set(name, Text("ready, asking", style="dim"))
            case Judged(settled=settled):
                sentence = told(event)
                text = printable(sentence[1]) if sentence else ""
                style = _STYLE.get(settled.outcome.kind, "yellow")
                self._rows[settled.trial.id] = settled.trial.label, Text(text, style=style)
            case _:
                pass
        if (sentence := told(event)) is not None:
            self._last = f"{clock_time(entry.at)} {sentence[0]} {sentence[1]}"
        self._live.update(self._draw(), refresh=True)

    def _set(self, name: str, text: Text) -> None:
        label = self._rows[name][0] if name in self._rows else name
        self._rows[name] = label, text

    def _draw(self) -> RenderableType:
        table = Table("trial", "change", "outcome", box=None, pad_edge=False)
        for name, (label, text) in self._rows.items():
            table.add_row(name, Text(label), text)
        return Group(table, Text(printable(self._last), style="dim", no_wrap=True, overflow="ellipsis"))

    def close(self) -> None:
        """Leaves the table as it is and gives the terminal back."""
        self._live.stop()


def verdict_tree(verdict: Verdict) -> Tree:
    """The verdict as a tree; every line of a log is shown with its place."""
    root = Tree(Text(printable(verdict.tree.text), style="bold"))
    for child in verdict.tree.children:
        _grow(root, child)
    return root


def _grow(tree: Tree, node: Node) -> None:
    word = node.text.split(":")[0]
    branch = tree.add(Text(printable(node.text), style=_STYLE.get(word, "")))
    for evidence in node.evidence:
        line = Text(place(evidence), style="cyan")
        branch.add(line.append(f"  {quote(evidence)}", style="dim"))
    for child in node.children:
        _grow(branch, child)
