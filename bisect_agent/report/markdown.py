"""The verdict as Markdown, for a ticket."""

from __future__ import annotations

from collections.abc import Iterator

from bisect_agent.evidence import accused
from bisect_agent.model import Evidence
from bisect_agent.report.words import clock_time, place, quote
from bisect_agent.signatures import printable
from bisect_agent.tree import Node
from bisect_agent.verdict import TrialResult, Verdict

_MARKS = "\\`*_{}[]<>#|~"


def markdown(verdict: Verdict, title: str) -> str:
    """The whole verdict; log lines are escaped, so that they cannot become markup."""
    lines = [f"# {_plain(title)}", "", f"**{_plain(verdict.tree.text)}**", ""]
    lines += [line for child in verdict.tree.children for line in _node(child, 0)]
    lines += ["", "## Trials", "", "| trial | change | outcome | phase | started (UTC) | seconds |"]
    lines += ["|---|---|---|---|---|---|", *(_row(trial) for trial in verdict.trials)]
    lines += ["", "## Confidence", "", f"{_plain(verdict.confidence.statement)}.", ""]
    return "\n".join(lines)


def _node(node: Node, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}- {_plain(node.text)}"
    for evidence in node.evidence:
        yield f"{indent}  - [{_plain(place(evidence))}]({evidence.path}): {_code(evidence)}"
    for child in node.children:
        yield from _node(child, depth + 1)


def _row(trial: TrialResult) -> str:
    change = accused(trial.change.settings()) if trial.change else "none"
    said = trial.symptom or trial.reason or ""
    outcome = f"{trial.outcome}: {said}" if said else trial.outcome
    cells = [
        f"{trial.id}/{trial.attempt}",
        change,
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
    longest = max((len(run) for run in text.replace("`", " ` ").split(" ") if set(run) == {"`"}), default=0)
    fence = "`" * (longest + 1 + text.count("``"))
    return f"{fence} {text} {fence}"
