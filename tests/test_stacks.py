"""What moved between two looks at some processes, and which line of a look tells most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.stacks import CAP, Look, ProcessState, ThreadState, capped, lines, moved, render, telling
from tests.strategies import FEW

PYTHON = """\
Process 12: python3 serve.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 12 (idle): "MainThread"
    wait (threading.py:327)
    load (serve.py:{line})
    <module> (serve.py:9)"""
"""What py-spy prints."""


def process(**state: object) -> ProcessState:
    """A process that waits in a lock; `pid` is its number."""
    pid = state.pop("pid", 12)
    thread = {"tid": pid, "name": "python3", "state": "S", "wait": "futex_wait"}
    whole: dict[str, object] = {"command": "python3 serve.py", "threads": (thread,), **state}
    whole["process"] = {"pid": pid, "start": pid, "boot": "b", "name": "python3"}
    return ProcessState.model_validate(whole)


def looks(before: ProcessState, after: ProcessState) -> tuple[Look, Look]:
    """Two looks, ten seconds apart."""
    return Look(time=100, processes=(before,)), Look(time=110, processes=(after,))


@pytest.mark.parametrize("state", [{}, {"python": PYTHON.format(line=7)}, {"cpu": 3.0}])
def test_what_does_nothing_has_not_moved(state: dict[str, object]) -> None:
    """With a Python stack or without, and whatever it did before."""
    assert "" == moved(*looks(process(**state), process(**state)))


def test_a_label_is_no_movement() -> None:
    """py-spy calls the same waiting thread active or idle by turns."""
    idle = PYTHON.format(line=7)
    assert "" == moved(*looks(process(python=idle), process(python=idle.replace("idle", "active+gil"))))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"cpu": 1}, {"cpu": 9.5}, "process 12 python3 used 8.5 s of CPU in 10.0 s"),
        ({"python": PYTHON.format(line=7)}, {"python": PYTHON.format(line=8)}, "the stack of process 12"),
        ({}, {"threads": ()}, "the stack of process 12 python3 changed"),
        ({}, {"pid": 13}, "process 13 python3 was born, process 12 python3 ended"),
    ],
)
def test_whatever_moves_is_named(before: dict[str, object], after: dict[str, object], expected: str) -> None:
    """CPU, a frame, a thread, a process."""
    assert moved(*looks(process(**before), process(**after))).startswith(expected)


def test_a_little_cpu_is_no_movement() -> None:
    """Threads that wake now and then do so in a server that is stuck, too."""
    assert "" == moved(*looks(process(cpu=1.0), process(cpu=1.4)))


@FEW
@given(st.integers(4, 40))
def test_of_many_that_move_some_are_named(count: int) -> None:
    """A sentence stays one."""
    said = moved(
        Look(time=0, processes=()), Look(time=9, processes=tuple(process(pid=n) for n in range(1, 1 + count)))
    )
    assert said.endswith(f"process 3 python3 was born, and {count - 3} more")


def test_a_look_tells_of_the_same_threads_once() -> None:
    """A process of a hundred threads that wait alike is a line."""
    threads = tuple(
        ThreadState(tid=n, name="worker", state="S", wait="futex_wait", kernel=("futex_wait+1/2",), cpu=0.5)
        for n in (20, 21)
    )
    text = render(Look(time=0, processes=(process(cpu=1, threads=threads, error="no py-spy"),)))
    assert text == (
        "process 12 python3, 1.00 s of CPU: python3 serve.py\n"
        "  no Python stack: no py-spy\n"
        "  2 threads: state S, waits in futex_wait: 20 worker (0.50 s), 21 worker (0.50 s)\n"
        "      futex_wait+1/2\n"
        "\n"
    )


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([{"python": PYTHON.format(line=7)}], "load (serve.py:7)"),
        ([{}], "1 thread: state S, waits in futex_wait: 12 python3 (0.00 s)"),
        (
            [{"threads": (ThreadState(tid=9, name="bash", state="S", wait="do_wait"),)}, {}],
            "waits in futex_wait",
        ),
    ],
)
def test_the_telling_line_is_where_the_stacks_own_code_waits(
    states: list[dict[str, object]], expected: str
) -> None:
    """Not the library's lock that it waits in, nor the shell that waits for it."""
    look = Look(time=0, processes=tuple(process(**state) for state in states))
    data = capped(render(look))
    line = telling(data)
    assert line is not None
    assert expected in line.text
    assert line in lines(data)
    assert data[line.offset :].startswith(line.text.encode())


def test_a_look_at_nobody_has_no_telling_line() -> None:
    """The processes may have ended meanwhile."""
    assert None is telling(capped(render(Look(time=0, processes=()))))


@FEW
@given(st.integers(0, 300))
def test_a_look_is_cut_between_two_lines(extra: int) -> None:
    """The file has a bound, and no half line."""
    data = capped("".join(f"{'x' * (extra + 700)}\n" for _ in range(400)))
    assert len(data) <= CAP
    assert data.endswith(b"x\n")
