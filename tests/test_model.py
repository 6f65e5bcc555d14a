"""The types: what they forbid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bisect_agent.model import Configuration, Group, Pair, Playbook, Single, Trial
from tests.strategies import FEW, playbooks
from tests.worlds import playbook_of, setting, symptom

HERE = Configuration({"a": "1", "b": "0"})
LEVELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("01"), min_size=3)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"parent": "t02"},
        {"change": Single(setting=setting("a=0"))},
        {"control": "bad", "parent": "t02", "change": Single(setting=setting("a=0"))},
    ],
)
def test_a_trial_is_a_control_or_a_change(parts: dict[str, object]) -> None:
    """Nothing in between, and never both."""
    with pytest.raises(ValidationError, match="a control, or it has a parent and a change"):
        Trial.model_validate({"id": "t03", "configuration": HERE, **parts})


def test_a_pair_has_no_room_for_a_group() -> None:
    """What steers the search cannot accuse (rule 1)."""
    group = Group(group=(setting("a=0"), setting("b=1")))
    with pytest.raises(ValidationError):
        Pair.model_validate({"setting": group, "failing": "t02", "passing": "t03", "again": "t04"})


def test_a_value_cannot_be_changed() -> None:
    """What was recorded stays."""
    with pytest.raises(ValidationError, match="frozen"):
        setting("a=1").level = "2"  # type: ignore[misc]


def test_a_trial_is_called_by_its_change() -> None:
    """What a person reads."""
    one = Trial(id="t03", parent="t02", change=Single(setting=setting("a=0")), configuration=HERE)
    assert ["good", "a=0"] == [Trial(id="t01", control="good", configuration=HERE).label, one.label]


@FEW
@given(LEVELS, LEVELS)
def test_what_differs_makes_one_configuration_the_other(one: dict[str, str], other: dict[str, str]) -> None:
    """`differs` and `replace` undo each other, and equal configurations are one key."""
    first, second = Configuration(one), Configuration(other)
    made = second.replace(first.differs(second))
    assert (first, hash(first)) == (made, hash(made))


@FEW
@given(playbooks())
def test_a_playbook_survives_its_own_json(playbook: Playbook) -> None:
    """What the run folder keeps is all there was, in its order."""
    again = Playbook.model_validate_json(playbook.model_dump_json())
    assert playbook == again
    assert [list(f.levels) for f in playbook.factors] == [list(f.levels) for f in again.factors]


def test_a_playbook_knows_its_factors_by_name() -> None:
    """As everything else names them."""
    assert "a" == playbook_of({"a": "01"}, {"a": "1"}).factor("a").name


def test_another_symptom_is_another_failure() -> None:
    """By class and id; by phase only where that matters (rule 5)."""
    one = symptom("boom", "load")
    matters = one.model_copy(update={"phase_matters": True})
    assert [True, False, False] == [
        one.same_as(symptom("boom", "capture")),
        one.same_as(symptom("bang", "load")),
        matters.same_as(symptom("boom", "capture")),
    ]
