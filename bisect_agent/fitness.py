"""Whether a further target may carry trials: it must itself show what the first one shows. Pure.

`good` works there and `bad` fails there, the same way, before any trial there counts. Meanwhile the first
target goes on with the search, so no time is lost. Such controls are no evidence for the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from bisect_agent import search
from bisect_agent.events import RunState
from bisect_agent.evidence import Table
from bisect_agent.model import Playbook
from bisect_agent.search import Finished, Wanted


@dataclass(frozen=True)
class Unfit:
    """A target is not to be used, for this reason."""

    why: str


Fitness = Wanted | Unfit | Literal["fit", "open"]
"""What is to be run there next; that it is unfit; that it is fit; that nobody can tell yet."""


def fitness(playbook: Playbook, state: RunState, target: int) -> Fitness:
    """How it stands with a further target, by its own controls and the first one's failure."""
    there = state.settled(shows=target)
    step = search.control(playbook, there, f"on-{target}")
    match step:
        case Wanted(why=why):
            asked = replace(step, why=f"may target {target} take part? {why}")
            return "open" if state.in_flight(shows=target) else asked
        case Finished(detail=detail):
            return Unfit(f"{detail} there")
        case None:
            here, shown = Table(playbook, state.settled()).symptom, Table(playbook, there).symptom
            assert shown is not None, "`bad` was seen to fail there"
            if here is None:
                return "open"
            if here.same_as(shown):
                return "fit"
            return Unfit(f"`bad` fails there with another symptom: {shown.text}")
