"""What the server is told: arguments of the command line, and two variables of the environment."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KERNEL = "QUICKSTART_KERNEL"
INNER_GRAPHS = "QUICKSTART_INNER_GRAPHS"


@dataclass(frozen=True)
class ServerArgs:
    """The command line."""

    port: int
    enable_compile: bool
    disable_graph: bool

    @classmethod
    def parse(cls, argv: Sequence[str]) -> ServerArgs:
        """Read the command line, or say what is wrong with it and exit with code 2."""
        parser = argparse.ArgumentParser("server.py", description="A small inference server of four ranks.")
        parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
        parser.add_argument("--enable-compile", action="store_true", help="compile the pointwise work")
        parser.add_argument("--disable-graph", action="store_true", help="decode without a captured graph")
        options = parser.parse_args(argv)
        return cls(options.port, options.enable_compile, options.disable_graph)

    def argv(self) -> list[str]:
        """The command line that says the same."""
        flags = {"--enable-compile": self.enable_compile, "--disable-graph": self.disable_graph}
        return ["--port", str(self.port), *(flag for flag, given in flags.items() if given)]


@dataclass(frozen=True)
class Environment:
    """The variables that the server reads. It cannot know of a name that is spelt otherwise."""

    kernel: str
    inner_graphs: bool

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        """Read the variables.

        Raises:
            ValueError: a variable has a value that means nothing.
        """
        kernel = _one_of(KERNEL, variables.get(KERNEL, "tuned"), ("tuned", "stock"))
        inner_graphs = _one_of(INNER_GRAPHS, variables.get(INNER_GRAPHS, "1"), ("1", "0"))
        return cls(kernel, inner_graphs == "1")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{name} is {value!r}: set it to {' or '.join(known)}, or leave it unset")
    return value
