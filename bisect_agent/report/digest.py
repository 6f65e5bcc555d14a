"""What is told of a night in the morning: each of its runs in a few words. Pure."""

from __future__ import annotations

from typing import Literal

from bisect_agent.errors import RANK, ExitCode
from bisect_agent.model import Frozen


class Brief(Frozen):
    """One run in a few words, as far as it has come. Times are in seconds since the epoch.

    Attributes:
        name: what the lines of its progress call it; empty where it is alone.
        playbook: where the playbook was read.
        title: what it is about.
        target: where it runs.
        state: how far it is.
        code: its exit code, once it is over.
        found: what was found, or why nothing was, in one sentence.
        restored: whether `good` was brought back, None where that was not tried.
        why: the reason of that.
        began: when it began, None where it did not.
        ended: when it was over.
        attempts: how many attempts were made, the restore not counted.
        folder: the absolute path of its run folder, empty where there is none.
        page: its verdict's page as a link from beside the run folder, empty where there is none.
        serves: whether its good server was left running.
        commands: what a person types to go on, or to end what was left running.
        notes: what else is to be known.
    """

    name: str
    playbook: str = ""
    title: str = ""
    target: str = ""
    state: Literal["waiting", "running", "over"] = "waiting"
    code: ExitCode | None = None
    found: str = ""
    restored: bool | None = None
    why: str = ""
    began: float | None = None
    ended: float | None = None
    attempts: int = 0
    folder: str = ""
    page: str = ""
    serves: bool = False
    commands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Digest(Frozen):
    """A night: its runs in the order of the queue, as they stood at `at`.

    `until` is the hour by which all was to be over, empty where none was named; `over` says that nothing
    more will come; `notes` tell what befell the night itself.
    """

    began: float
    at: float
    runs: tuple[Brief, ...]
    until: str = ""
    over: bool = False
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> ExitCode:
        """The first by rank of the runs' codes."""
        held = {run.code for run in self.runs}
        return next((code for code in RANK if code in held), ExitCode.CONCLUDED)
