"""Configurations as elements that are on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.course import Course
from tests.worlds import playbook_of, setting

BOOK = playbook_of(
    {"a": "01", "v": ("v0", "v1", "v2", "v3", "v4"), "b": "012", "s": "01"},
    {"a": "1", "v": "v0", "b": "2"},
    good={"v": "v3"},
    ordered="v",
)
COURSE = Course(BOOK, BOOK.bad)


def test_an_order_has_a_step_for_each_level_towards_bad() -> None:
    """Whichever way that is; any other factor has one, and a suspect none."""
    assert ["a=1", "v=v2", "v=v1", "v=v0", "b=2"] == [str(step) for step in COURSE.steps]
    assert (0, 1, 1, 1, 2) == COURSE.chains


def test_good_has_nothing_on_and_bad_everything() -> None:
    """They are the ends of the way."""
    assert (0, 0b11111) == (COURSE.on(BOOK.good), COURSE.on(BOOK.bad))


@given(st.integers(0, 0b11111))
def test_a_configuration_has_its_elements_on(on: int) -> None:
    """With the steps before them."""
    assert COURSE.closed(on) == COURSE.on(COURSE.configuration(on))
    assert COURSE.closed(on) & on == on
    assert COURSE.closed(COURSE.closed(on)) == COURSE.closed(on)


def test_what_lies_beside_the_way_has_no_elements() -> None:
    """A suspect that is changed, a third level, a version beyond the ends."""
    beside = [BOOK.bad.replace([setting(x)]) for x in ("s=1", "b=1", "v=v4")]
    assert [None] * 3 == [COURSE.on(c) for c in beside]


def test_what_is_held_is_no_step() -> None:
    """It stays as it is where the way begins."""
    course = Course(BOOK, BOOK.bad, ["v"])
    assert ["a=1", "b=2"] == [str(step) for step in course.steps]
    assert course.on(BOOK.good) is None
    assert "v0" == course.configuration(0)["v"]
