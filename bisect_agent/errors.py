"""Every error a person may meet: whose fault it is, what happened, where, what to do; and its exit code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command; the README says what each means."""

    CONCLUDED = 0
    NOT_ESTABLISHED = 1
    USAGE = 2
    NOTHING_TO_BISECT = 3
    TARGET = 4
    BUDGET = 5
    NOT_RESTORED = 6
    BUG = 70
    INTERRUPTED = 130


RANK = (
    ExitCode.BUG,
    ExitCode.NOT_RESTORED,
    ExitCode.INTERRUPTED,
    ExitCode.TARGET,
    ExitCode.USAGE,
    ExitCode.BUDGET,
    ExitCode.NOTHING_TO_BISECT,
    ExitCode.NOT_ESTABLISHED,
    ExitCode.CONCLUDED,
)
"""Which code wins when several hold, of a run or of a night: the first.

A playbook that is wrong does not go on by itself, as a spent budget does with `resume`; but it stands
alone, where a target that is lost may have cost all that were to run there.
"""


RESUMABLE = frozenset(
    {ExitCode.TARGET, ExitCode.BUDGET, ExitCode.NOT_RESTORED, ExitCode.INTERRUPTED, ExitCode.BUG}
)
"""How a run ends that `resume` takes up."""


class BisectError(Exception):
    """A sentence for a person, and the exit code it ends with."""

    code = ExitCode.BUG

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.remedy}" if self.remedy else self.message


@dataclass(frozen=True)
class Problem:
    """One mistake in a file: where, what was found, what to write instead."""

    file: str
    line: int
    column: int
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.found}\n  try: {self.remedy}"


class PlaybookError(BisectError):
    """The playbook cannot be used; every mistake found is in `problems`."""

    code = ExitCode.USAGE

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = problems


class UsageError(BisectError):
    """The command line cannot be carried out as given."""

    code = ExitCode.USAGE


class TargetError(BisectError):
    """The target cannot be used now; the run can be taken up again."""

    code = ExitCode.TARGET


class Unreachable(TargetError):
    """No answer from the target: nothing is known about what happens there."""


class RunFolderFull(BisectError):
    """Nothing more can be recorded here, so nothing more may be done; the run can be taken up again."""

    code = ExitCode.TARGET


class DamagedRun(BisectError):
    """A run folder does not hold what it should; the message names the place."""

    code = ExitCode.NOT_ESTABLISHED
