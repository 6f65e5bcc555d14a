"""The verdict as Markdown, for a ticket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote as urlquote

from bisect_agent.model import Evidence, State
from bisect_agent.report.words import Quoted, change, clock_time, place, quote, titled, who
from bisect_agent.signatures import printable
from bisect_agent.tree import Node
from bisect_agent.verdict import TrialResult, Verdict

_MARKS = "\\`*_{}[]<>#|~"


def markdown(verdict: Verdict, title: str) -> str:
    """The whole verdict; log lines are escaped, so that they cannot become markup."""
    quoted = Quoted()
    lines = [f"# {_plain(title)}", "", f"**{_plain(verdict.tree.text)}**", ""]
    lines += [line for child in verdict.tree.children for line in _node(child, 0, quoted)]
    lines += ["", "## Trials", "", "| trial | change | outcome | phase | started (UTC) | seconds |"]
    lines += ["|---|---|---|---|---|---|", *(_row(trial) for trial in verdict.trials)]
    lines += ["", "## Confidence", "", f"{_plain(verdict.confidence.statement)}.", ""]
    return "\n".join(lines)


def _node(node: Node, depth: int, quoted: Quoted) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}- {_sentence(node.text)}"
    fresh, known = quoted.split(node.evidence)
    for evidence in fresh:
        whose = f" {_plain(who(evidence))}" if who(evidence) else ""
        yield f"{indent}  - {_link(evidence)}{whose}: {_code(evidence)}"
    if known:
        yield f"{indent}  - quoted above: {', '.join(map(_link, known))}"
    for child in node.children:
        yield from _node(child, depth + 1, quoted)


def _sentence(text: str) -> str:
    """A sentence with the state that it begins with, if it does, in bold."""
    word, rest = titled(text)
    return f"**{word}**: {_plain(rest)}" if word in set(State) else _plain(text)


def _link(evidence: Evidence) -> str:
    """The place of a line, leading to its file."""
    return f"[{_plain(place(evidence))}](./{urlquote(evidence.path)})"


def _row(trial: TrialResult) -> str:
    said = trial.symptom or trial.reason or ""
    outcome = f"{trial.outcome}: {said}" if said else trial.outcome
    cells = [
        f"{trial.id}/{trial.attempt}",
        change(trial),
        outcome,
        trial.phase or "-",
        clock_time(trial.started),
        f"{trial.seconds:.1f}",
    ]
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text that stays text in Markdown."""
    return "".join(f"\\{c}" if c in _MARKS else c for c in printable(text))


def _code(evidence: Evidence) -> str:
    """A log line as a code span, with a fence longer than any run of backticks in it."""
    text = quote(evidence)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"
