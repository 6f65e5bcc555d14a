"""The log of one process: stamped lines on stderr, each record in a single write."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime


def now() -> str:
    """The time of a record, UTC, to the millisecond."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


class Log:
    """Writes records as `[stamp TPn] text`; the parent process has no rank."""

    def __init__(self, rank: int | None = None) -> None:
        self._who = "" if rank is None else f" TP{rank}"

    def write(self, text: str, stamp: str | None = None) -> None:
        """Write one record, stamped now or with the time at which it was made.

        A record goes out in one `write`, so that those of several processes never mix.
        """
        record = f"[{stamp or now()}{self._who}] {text}\n".encode()
        while record:
            record = record[os.write(sys.stderr.fileno(), record) :]
