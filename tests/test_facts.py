"""Facts: what commands print, and what is read in it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.facts import facts, first_line, free_mebibytes
from bisect_agent.hosts.local import LocalHost
from tests.strategies import FEW

DF = """\
Filesystem     1024-blocks      Used Available Capacity Mounted on
/dev/nvme0n1p2   959786032 301046256 609914324      34% /
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (DF, "595619"),
        ("", ""),
        ("a b c ²\n", ""),
        ("df: /nowhere: No such file or directory\n", ""),
        ("a b\n", ""),
    ],
)
def test_free_space_is_read_in_mebibytes(output: str, expected: str) -> None:
    """What is not a table of `df` says nothing."""
    assert expected == free_mebibytes(output)


@FEW
@given(st.text())
def test_any_output_can_be_read(output: str) -> None:
    """A target may print what it likes."""
    assert isinstance(free_mebibytes(output) + first_line(output), str)


def test_the_first_line_is_the_fact() -> None:
    """Versions are told in the first line, licences in the others."""
    assert ("GNU bash, version 5.2", "") == (
        first_line("GNU bash, version 5.2\nCopyright\n"),
        first_line("\n"),
    )


def test_this_machine_has_facts() -> None:
    """Each command exists here and prints what its parser reads."""
    host = LocalHost()
    found = {
        name: fact.parse(host.run(fact.command, timeout=30).stdout.decode())
        for name, fact in facts("/", sys.executable).items()
    }
    assert {"system", "bash", "python", "free_mib", "boot"} == {
        name for name, value in found.items() if value
    }
    assert found["free_mib"].isdigit()
