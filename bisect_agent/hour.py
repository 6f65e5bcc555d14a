"""The hour by which a run is to be over, its restore included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from bisect_agent.clock import Clock
from bisect_agent.errors import UsageError

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_REMEDY = "--until 07:00, or a date with it: --until 2026-11-30T07:00"


@dataclass(frozen=True)
class Hour:
    """An hour of the wall clock, which nothing that was begun before goes past.

    Whoever names an hour means the clock on the wall, so that is asked each time, and it may be set while
    we run. A length of time is the monotonic clock's, which nobody can set (and which stands still while
    the machine sleeps): by it, no more time may pass than lay before the hour when it was named. The
    earlier of the two counts. So a clock that is set back, or right only afterwards, costs time of ours,
    which `resume` makes good, and never lets a run go past the hour that was named. `limits.wall` is a
    length alone.

    Attributes:
        at: in seconds since the epoch.
        latest: the same moment by the monotonic clock, as it was when the hour was named.
        kept: seconds before it that are kept back for something else.
    """

    at: float
    latest: float
    kept: float = 0.0

    @classmethod
    def named(cls, at: float, clock: Clock) -> Hour:
        """The hour that is this moment, in seconds since the epoch, as the clocks stand now."""
        return cls(at, clock.monotonic() + at - clock.time())

    def left(self, clock: Clock) -> float:
        """Seconds before it; none are left where this is negative."""
        return min(self.at - clock.time(), self.latest - clock.monotonic()) - self.kept

    def __str__(self) -> str:
        return datetime.fromtimestamp(self.at).astimezone().strftime("%Y-%m-%d %H:%M (UTC%z)")


def moment(text: str, now: float) -> float:
    """What `--until` says, in seconds since the epoch: HH:MM of today, else of tomorrow, or an ISO time.

    Both are local time, where an ISO time does not say otherwise. `now` is in seconds since the epoch.

    Raises:
        UsageError: it is no such thing, or is over.
    """
    if found := _TIME_OF_DAY.fullmatch(text):
        hour, minute = map(int, found.groups())
        # Without a zone, so that the one which holds here on that day is looked up, and not today's.
        today = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)  # noqa: DTZ006
        days = (today, today + timedelta(days=1))
        return next(at for day in days if (at := day.astimezone().timestamp()) > now)
    try:
        at = datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"--until {text}: this is no time", _REMEDY) from None
    if ":" not in text:
        raise UsageError(f"--until {text}: this is no time of day", _REMEDY)
    if at <= now:
        raise UsageError(f"--until {text}: this is over", _REMEDY)
    return at
