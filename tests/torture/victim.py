"""An agent that kills itself with SIGKILL at a step that its caller names.

    python victim.py run PLAYBOOK RUNS [append|before|after N]
    python victim.py resume RUN [append|before|after N]
    python victim.py stop RUN

`append N`: right after the N-th event of this process is on the disk. `before N`, `after N`: around the
N-th step by which it changes the target. At the end it prints how many of either there were.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bisect_agent.errors import BisectError
from bisect_agent.events import Entry
from bisect_agent.folder import RunFolder
from bisect_agent.hosts import Completed
from bisect_agent.hosts.local import LocalHost
from bisect_agent.investigation import Investigation, Means, open_again, open_new, stop_left

PLACES = {"run": 2, "resume": 1}
"""How many paths follow a verb."""
CHANGES = frozenset({"run", "stop"})
"""The supervisor's verbs that change something."""


class Doom:
    """Counts steps, and ends this process at one of them."""

    def __init__(self, at: int) -> None:
        self.count = 0
        self._at = at

    def step(self) -> None:
        """One more."""
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


class DoomedHost(LocalHost):
    """This machine, where every change has a moment before it and one after it."""

    def __init__(self, before: Doom, after: Doom) -> None:
        self._before, self._after = before, after

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """A command; the supervisor's verbs that change something are steps."""
        if not CHANGES & set(argv):
            return super().run(argv, timeout=timeout, stdin=stdin)
        self._before.step()
        completed = super().run(argv, timeout=timeout, stdin=stdin)
        self._after.step()
        return completed

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """A step."""
        self._before.step()
        part = super().put(path, data, mode)
        self._after.step()
        return part

    def rename(self, source: str, target: str) -> None:
        """A step."""
        self._before.step()
        super().rename(source, target)
        self._after.step()


def main(verb: str, *rest: str) -> int:
    """Runs, resumes or stops, and lives as long as it is let."""
    if verb == "stop":
        stop_left(RunFolder(Path(rest[0])))
        return 0
    places, (mode, at) = rest[: PLACES[verb]], rest[PLACES[verb] :] or ("", "0")
    dooms = {name: Doom(int(at) if name == mode else 0) for name in ("append", "before", "after")}
    means = Means(DoomedHost(dooms["before"], dooms["after"])) if mode else Means()

    def listener(entry: Entry) -> None:
        del entry
        dooms["append"].step()

    opened: AbstractContextManager[Investigation]
    if verb == "run":
        opened = open_new(Path(places[0]), Path(places[1]), {}, listener, means)
    else:
        opened = open_again(Path(places[0]), listener, means)
    try:
        with opened as investigation:
            outcome = investigation.engine.run()
    except BisectError as error:
        print(error, file=sys.stderr)
        return int(error.code)
    print(dooms["append"].count, dooms["before"].count)
    return int(outcome.code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
