"""The hour: what a person writes, and which of two clocks it goes by."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.errors import UsageError
from bisect_agent.hour import Hour, moment
from tests.fakes import FakeClock, SetClock

DAY = 24 * 3600.0
NOW = datetime(2026, 11, 30, 2, 30).astimezone().timestamp()
MOMENT = "import sys; from bisect_agent.hour import moment; print(moment(sys.argv[1], float(sys.argv[2])))"


def local(at: float) -> str:
    """A moment as a clock on the wall shows it."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("07:00", "2026-11-30 07:00:00"),
        ("7:00", "2026-11-30 07:00:00"),
        ("02:31", "2026-11-30 02:31:00"),
        ("02:30", "2026-12-01 02:30:00"),
        ("00:00", "2026-12-01 00:00:00"),
        ("2026-11-30T07:00", "2026-11-30 07:00:00"),
        ("2026-12-24 18:00:30", "2026-12-24 18:00:30"),
    ],
)
def test_an_hour_is_the_next_of_its_name(text: str, meant: str) -> None:
    """Today if it is still to come, else tomorrow; an ISO time is what it says."""
    assert meant == local(moment(text, NOW))


def test_an_iso_time_may_have_a_zone_of_its_own() -> None:
    """Then it is not local time."""
    assert datetime.fromisoformat("2026-12-01T07:00+09:00").timestamp() == moment(
        "2026-12-01T07:00+09:00", NOW
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7", "this is no time"),
        ("24:00", "this is no time"),
        ("07:60", "this is no time"),
        ("07:00 am", "this is no time"),
        ("٠٧:٠٠", "this is no time"),
        ("", "this is no time"),
        ("2026-12-01", "this is no time of day"),
        ("2026-11-30T02:30", "this is over"),
        ("9999-12-31T23:59-23:59", "this is no time"),
    ],
)
def test_what_is_no_hour_to_come_is_refused(text: str, said: str) -> None:
    """With what would be one."""
    with pytest.raises(UsageError, match=f"{said}\n  try: --until 07:00"):
        moment(text, NOW)


@given(st.integers(0, 23), st.integers(0, 59), st.floats(0, 4e9))
def test_an_hour_is_always_to_come(hour: int, minute: int, now: float) -> None:
    """It is never over, and within a day, an hour more or less where the clocks are changed."""
    ahead = moment(f"{hour:02}:{minute:02}", now) - now
    assert 0 < ahead <= DAY + 3600


def test_the_night_in_which_the_clocks_change_has_its_own_length() -> None:
    """From 22:00 to 07:00 it is ten hours where they are set back, since the hour is that of the wall."""
    evening = datetime.fromisoformat("2026-10-24T22:00+02:00").timestamp()
    zone = {**os.environ, "TZ": "CET-1CEST,M3.5.0,M10.5.0/3"}
    said = subprocess.check_output(
        [sys.executable, "-c", MOMENT, "07:00", str(evening)], env=zone, timeout=60
    )
    assert 10 * 3600 == float(said) - evening


def test_time_runs_out_as_it_passes() -> None:
    """Both clocks agree as long as nobody sets one."""
    clock = FakeClock()
    hour = Hour.named(clock.time() + 100, clock)
    clock.sleep(30)
    assert 70 == hour.left(clock)


@pytest.mark.parametrize(("shift", "left"), [(+50.0, 20.0), (-50.0, 70.0), (+200.0, -130.0)])
def test_a_clock_that_is_set_only_makes_it_earlier(shift: float, left: float) -> None:
    """Set forward, the wall clock is believed; set back, no more time passes than was named."""
    clock = SetClock()
    hour = Hour.named(clock.time() + 100, clock)
    clock.sleep(30)
    clock.shift = shift
    assert left == hour.left(clock)


def test_what_is_kept_back_is_not_left() -> None:
    """It is for something that comes after."""
    clock = FakeClock()
    assert 60 == Hour(clock.time() + 100, clock.monotonic() + 100, kept=40).left(clock)
