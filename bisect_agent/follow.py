"""A run that another process carries out, as its journal grows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from bisect_agent.clock import Clock
from bisect_agent.errors import UsageError
from bisect_agent.events import Entry, Sealed
from bisect_agent.journal import NAME, Follower, is_written

POLL = 0.2
"""Seconds between two looks at the journal."""


def follow(run: Path, clock: Clock) -> Iterator[Entry]:
    """Every entry of a run's journal, those to come as they come, until the run is sealed and let go.

    Raises:
        UsageError: it is no run folder, or nobody carries the run out, and it is not sealed.
        DamagedRun: the journal cannot be read.
    """
    if not (run / NAME).is_file():
        raise UsageError(f"{run}: this is no run folder: it has no {NAME}", "bisect-agent runs")
    follower = Follower(run)
    last: Entry | None = None
    while True:
        carried_out = is_written(run)  # Before the reading: what is written last is read when it is let go.
        for entry in follower.new():
            last = entry
            yield entry
        if carried_out:
            clock.sleep(POLL)
        elif last is not None and isinstance(last.event, Sealed):
            return
        else:
            raise UsageError(
                f"{run}: nobody carries this run out, and it has not come to its end",
                f"bisect-agent resume {shlex.quote(str(run))}",
            )
