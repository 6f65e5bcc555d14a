"""What is told to somebody who is not at the terminal: of a run, and of a night."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from bisect_agent.errors import ExitCode
from bisect_agent.lines import printable, shorten
from bisect_agent.notify import Message
from bisect_agent.report.digest import Brief, Digest
from bisect_agent.report.words import FAILED, back, counted, lasting, outcome

_LONGEST = 80
"""Characters of a title that are told."""
_MOST = 20
"""Runs of a night that are told one by one: many services cut a longer text, or refuse it."""
_FIRST = 5
"""Lines of what was found, which is one line but where a playbook has many mistakes."""


def of_run(run: Brief) -> Message:
    """One run: what it is about, what was found, how it ended, and where it lies."""
    return Message(f"{outcome(run)}: {_short(run)}", "\n".join(_lines(run)), _tone(run.code))


def of_night(digest: Digest, runs: Sequence[Brief], page: str) -> Message:
    """A night, to somebody who is to be told of these runs of it; `page` is where all of it is."""
    told = [f"{_short(run)}\n" + "\n".join(f"  {line}" for line in _lines(run)) for run in runs[:_MOST]]
    if len(runs) > _MOST:
        told.append(f"and {len(runs) - _MOST} more")
    whole = f"{len(digest.runs)} runs in {lasting(digest.at - digest.began)}: {counted(digest.runs)}"
    return Message(
        f"the night is over: {counted(runs)}",
        "\n\n".join((whole, *told, f"digest: {page}")),
        _tone(digest.code),
    )


def _lines(run: Brief) -> Iterator[str]:
    yield from (shorten(printable(line)) for line in run.found.splitlines()[:_FIRST])
    yield outcome(run) if run.code is None else f"exit code {run.code}: {outcome(run)}"
    if run.folder:
        yield f"good restored: {shorten(printable(back(run)))}"
        yield f"run folder: {run.folder}"
    yield from (shorten(printable(line)) for line in (*run.notes, *run.commands))


def _short(run: Brief) -> str:
    shown = printable(run.title or run.name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _tone(code: ExitCode | None) -> Literal["success", "warning", "failure"]:
    if code is ExitCode.CONCLUDED:
        return "success"
    return "failure" if code in FAILED else "warning"
