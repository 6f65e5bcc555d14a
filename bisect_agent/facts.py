"""Read-only facts of a target: each a command and a pure parser of what it prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """A command to run on the target and the value its output stands for."""

    command: tuple[str, ...]
    parse: Callable[[str], str]


def first_line(output: str) -> str:
    """The first line printed."""
    return output.strip().splitlines()[0].strip() if output.strip() else ""


def free_mebibytes(output: str) -> str:
    """The free space of `df -Pk`: the fourth column of its last line, in MiB."""
    columns = output.strip().splitlines()[-1].split() if output.strip() else []
    return str(int(columns[3]) // 1024) if len(columns) > 3 and columns[3].isdecimal() else ""


def facts(folder: str, python: str) -> Mapping[str, Fact]:
    """What is asked before anything is started; `folder` is the nearest folder that exists there."""
    return {
        "system": Fact(("uname", "-srm"), first_line),
        "bash": Fact(("bash", "--version"), first_line),
        "python": Fact((python, "--version"), first_line),
        "free_mib": Fact(("df", "-Pk", folder), free_mebibytes),
        "boot": Fact(("cat", "/proc/sys/kernel/random/boot_id"), first_line),
    }
