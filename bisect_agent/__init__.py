"""An automated diagnostic bisection agent for LLM inference stacks.

from bisect_agent import run
print(run("playbook.yaml").cause)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bisect_agent.api import Verdict, load, run

__all__ = ["Verdict", "load", "run"]


def __getattr__(name: str) -> object:
    # Late, so that the command line starts without what it does not need.
    if name in __all__:
        return getattr(import_module("bisect_agent.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
