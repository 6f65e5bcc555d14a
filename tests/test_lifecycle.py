"""The three machines: which moves are possible, and what is said of the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bisect_agent.errors import DamagedRun
from bisect_agent.lifecycle import ATTEMPT, TABLES, Table, diagram, initial, move

MOVES = [(table, name, *join) for table in TABLES.values() for name, joins in table.items() for join in joins]


def states(table: Table) -> set[str]:
    """Every state of a machine."""
    return {state for joins in table.values() for join in joins for state in join}


IMPOSSIBLE = [
    (table, name, state)
    for table in TABLES.values()
    for name, joins in table.items()
    for state in sorted(states(table) - {source for source, _ in joins})
]


@pytest.mark.parametrize(("table", "name", "source", "target"), MOVES)
def test_every_move_of_a_table_is_made(table: Table, name: str, source: str, target: str) -> None:
    """From each state it may leave, to the state it says."""
    assert target == move("it", table, source, name)


@pytest.mark.parametrize(("table", "name", "state"), IMPOSSIBLE)
def test_every_other_move_is_a_damaged_record(table: Table, name: str, state: str) -> None:
    """The sentence says who could not do what, and where it stood."""
    with pytest.raises(DamagedRun) as error:
        move("attempt 1 of t01", table, state, name)
    assert f"attempt 1 of t01 is {state}: it cannot {name.replace('_', ' ')} now" == error.value.message


def test_each_machine_has_a_beginning() -> None:
    """Everything starts somewhere."""
    assert ["planned", "opened", "open"] == [initial(table) for table in TABLES.values()]


def test_an_attempt_is_launched_once() -> None:
    """No state from `launched` on leads back to `launching` (rule 11)."""
    assert {"planned"} == {
        source for name in ATTEMPT for source, target in ATTEMPT[name] if target == "launching"
    }


@pytest.mark.parametrize("name", TABLES)
def test_the_diagram_in_the_architecture_is_the_table(name: str) -> None:
    """Documentation that is compared does not rot."""
    text = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text()
    found = re.search(rf"<!-- lifecycle:{name} -->\n```mermaid\n(.*?)\n```", text, re.DOTALL)
    assert diagram(TABLES[name]) == (found[1] if found else "there is no such diagram")
