"""The README's transcript is what the quickstart really prints."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.agent import Finished

README = Path(__file__).parents[2] / "README.md"
ELIDED = "…"


def transcript() -> list[str]:
    """The quoted lines, without the command and what is elided."""
    text = README.read_text(encoding="utf-8")
    quoted = text.split("<!-- transcript -->")[1].split("<!-- /transcript -->")[0]
    return [line for line in quoted.strip().splitlines()[2:-1] if line != ELIDED]


def masked(line: str) -> str:
    """A line without what differs from run to run: numbers, and the branches of the tree beside elisions."""
    return re.sub(r"\d+", "#", line).replace("└", "├")


def test_the_transcript_is_what_is_printed(run: Finished) -> None:
    """Every line of it is printed, in that order."""
    report = run.command("report").stdout.decode()
    printed = iter(masked(line) for line in (*run.stderr.splitlines(), *report.splitlines()))
    assert [] == [line for line in transcript() if masked(line) not in printed]
