"""What a script may use: `load` a playbook, `run` one to its `Verdict`. Prints nothing and never exits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bisect_agent import playbook
from bisect_agent.events import Entry
from bisect_agent.investigation import open_new
from bisect_agent.model import Playbook
from bisect_agent.report.files import write_reports
from bisect_agent.verdict import Verdict

__all__ = ["Verdict", "load", "run"]

NO_PINS: Mapping[str, str] = {}


def load(path: str | Path, pins: Mapping[str, str] = NO_PINS) -> Playbook:
    """A playbook as it is understood; `pins` are levels by factor, set in `good` and in `bad`.

    Raises:
        PlaybookError: it cannot be used; `problems` names every mistake with its line and column.
    """
    return playbook.load(Path(path), pins=pins)


def run(path: str | Path, runs: str | Path = "logs", pins: Mapping[str, str] = NO_PINS) -> Verdict:
    """Runs a playbook to its verdict; the record goes into a new folder of `runs`.

    Signals are the caller's: what interrupts it here ends the run as a crash does, and
    `bisect-agent resume` takes it up.

    Raises:
        PlaybookError: the playbook cannot be used.
        TargetError: another investigation holds the target.
    """

    def silent(entry: Entry) -> None:
        del entry

    with open_new(Path(path), Path(runs), pins, silent) as investigation:
        verdict = investigation.engine.run().verdict
    write_reports(investigation.folder, verdict)
    return verdict
