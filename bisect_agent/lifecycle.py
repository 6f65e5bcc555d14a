"""The three machines, as tables: an attempt, an investigation, a hypothesis.

They guard the order of what is recorded and explain themselves; they call nothing. An impossible
move means that the record is damaged (or that we have a bug), never something to be worked around.
"""

from __future__ import annotations

from typing import Final

from transitions import Machine, MachineError

from bisect_agent.errors import DamagedRun

Table = dict[str, tuple[tuple[str, str], ...]]
"""Move -> the (from, to) states it joins. The first state of the first move is the initial one."""

ATTEMPT: Final[Table] = {
    "intend": (("planned", "launching"),),
    "launch": (("launching", "launched"),),
    "take_up": tuple(
        (state, "launched") for state in ("launching", "launched", "watched", "ready", "ending", "stopping")
    ),
    "see_log": (("launched", "watched"),),
    "enter_phase": (("watched", "watched"), ("ready", "ready")),
    "see_ready": (("watched", "ready"),),
    "begin_end": (("launched", "ending"), ("watched", "ending"), ("ready", "ending")),
    "begin_stop": (("ending", "stopping"),),
    "close": (
        ("planned", "closed"),
        ("launching", "closed"),
        ("ending", "closed"),
        ("stopping", "closed"),
    ),
    "judge": (("closed", "judged"),),
}

INVESTIGATION: Final[Table] = {
    "survey": (("opened", "searching"),),
    "plan": (("searching", "searching"),),
    "conclude": (("opened", "concluded"), ("searching", "concluded")),
    "restore": (("concluded", "restoring"),),
    "seal": (("concluded", "sealed"), ("restoring", "sealed")),
    "resume": tuple((state, state) for state in ("opened", "searching", "concluded", "restoring")),
    "reopen": tuple(
        (state, "opened") for state in ("opened", "searching", "concluded", "restoring", "sealed")
    ),
}

HYPOTHESIS: Final[Table] = {
    "test": (("open", "testing"),),
    "support": (("testing", "supported"), ("undecided", "supported")),
    "refute": (("open", "refuted"), ("testing", "refuted"), ("undecided", "refuted")),
    "leave": (
        ("open", "undecided"),
        ("testing", "undecided"),
        ("supported", "undecided"),
        ("refuted", "undecided"),
    ),
}

TABLES: Final = {"attempt": ATTEMPT, "investigation": INVESTIGATION, "hypothesis": HYPOTHESIS}


def _states(table: Table) -> list[str]:
    return list(dict.fromkeys(state for joins in table.values() for join in joins for state in join))


class _Model:
    """What a machine moves; one is made for each move."""

    state: str


def _machine(table: Table) -> Machine:
    return Machine(
        model=None,
        states=_states(table),
        initial=_states(table)[0],
        transitions=[
            {"trigger": move, "source": source, "dest": target}
            for move, joins in table.items()
            for source, target in joins
        ],
        auto_transitions=False,
    )


_MACHINES: Final = {id(table): _machine(table) for table in TABLES.values()}


def initial(table: Table) -> str:
    """The state in which every subject of a machine begins."""
    return _states(table)[0]


def move(subject: str, table: Table, state: str, name: str) -> str:
    """The state after a move of the table.

    Raises:
        DamagedRun: no such move leaves this state; the sentence says who wanted what.
    """
    machine, model = _MACHINES[id(table)], _Model()
    machine.add_model(model, initial=state)
    try:
        machine.events[name].trigger(model)
    except MachineError as error:
        raise DamagedRun(f"{subject} is {state}: it cannot {name.replace('_', ' ')} now") from error
    finally:
        machine.remove_model(model)
    return model.state


def diagram(table: Table) -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {_states(table)[0]}"]
    lines += [
        f"    {source} --> {target}: {move}" for move, joins in table.items() for source, target in joins
    ]
    return "\n".join(lines)
