"""Time, as a parameter."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time, and lets it pass."""

    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        ...


class SystemClock:
    """The machine's own time."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        time.sleep(seconds)
