"""The target's file by itself: what it may use, and whom it takes for whom."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from bisect_agent.target import supervisor

SOURCE = resources.files("bisect_agent.target").joinpath("supervisor.py").read_text()


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that belongs to no attempt."""
    with subprocess.Popen(("/bin/sleep", "60")) as process:
        yield process.pid
        process.kill()


def test_it_is_python_3_6() -> None:
    """The oldest Python of a target can read it."""
    assert ast.parse(SOURCE, feature_version=(3, 6))


def test_it_needs_the_standard_library_alone() -> None:
    """It is the only file that is put on the target."""
    nodes = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert set() == {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def test_a_record_finds_its_own_process_only(stranger: int) -> None:
    """Another start time or another boot is another process."""
    process = supervisor.look(stranger)
    assert process is not None
    record = process.record()
    assert process == supervisor.find(record)
    assert None is supervisor.find({**record, "start": record["start"] - 1})
    assert None is supervisor.find({**record, "boot": "another"})


def test_a_reused_pid_is_not_touched(stranger: int, tmp_path: Path) -> None:
    """Files of a dead attempt that name a living pid harm nobody."""
    process = supervisor.look(stranger)
    assert process is not None
    earlier = {**process.record(), "start": process.start - 1}
    elsewhere = {**process.record(), "boot": "another"}
    for name, content in {"pid": earlier, "super": earlier, "tree": [earlier, elsewhere]}.items():
        (tmp_path / name).write_text(json.dumps(content))
    result = json.loads(_stop(tmp_path))
    assert (result["killed"], result["left"]) == (0, [])
    assert process == supervisor.find(process.record())


def test_a_recorded_process_is_ended_without_tag_or_supervisor(stranger: int, tmp_path: Path) -> None:
    """The same files with the right start time name exactly who is to end."""
    process = supervisor.look(stranger)
    assert process is not None
    (tmp_path / "tree").write_text(json.dumps([process.record()]))
    assert json.loads(_stop(tmp_path))["left"] == []
    assert None is supervisor.find(process.record())


def test_a_signal_to_an_earlier_process_reaches_nobody(stranger: int) -> None:
    """It is looked at again when the process is pinned."""
    process = supervisor.look(stranger)
    assert process is not None
    assert not supervisor.send(process._replace(start=process.start - 1), 9)
    assert process == supervisor.look(stranger)


def test_a_zombie_is_dead() -> None:
    """It has a pid and answers kill -0, and is dead all the same."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    found = supervisor.look(child)
    os.waitpid(child, 0)
    assert found is not None
    assert not found.alive


def test_a_result_that_names_survivors_is_looked_at_again(stranger: int, tmp_path: Path) -> None:
    """What could not be ended may be ended later; the last answer counts."""
    process = supervisor.look(stranger)
    assert process is not None
    left = {
        "exit": None,
        "stopped": True,
        "killed": 1,
        "left": [process.record()],
        "time": 0,
        "supervisor": "alive",
    }
    (tmp_path / "result").write_text(json.dumps(left))
    assert json.loads(_stop(tmp_path))["left"] == []
    assert None is supervisor.find(process.record())


def _stop(folder: Path) -> bytes:
    argv = (sys.executable, supervisor.__file__, "stop", str(folder))
    return subprocess.run(argv, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("line", "pid"),
    [
        ("[ 1234.567890] Out of memory: Killed process 336943 (python) total-vm:20061840kB", 336943),
        ("[ 1234.567890] Memory cgroup out of memory: Killed process 1043 (python3) total-vm:1kB", 1043),
        ("[   99.000001] Out of memory: Kill process 77 (python) score 900 or sacrifice child", None),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,cpuset=/,task_memcg=/a,task=python,pid=1076,uid=0", 1076),
        ("python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", None),
        ("[    1076]     0  1076   101438    22421    20960     1461         0   233472    0 python", None),
    ],
)
def test_the_kernels_lines_name_whom_it_killed(line: str, pid: int | None) -> None:
    """As recorded from kernels 4 to 6; who asked for memory, was there, or may yet be spared is not meant."""
    assert pid == supervisor.victim(line)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("oom_kill_disable 0\nunder_oom 0\n", None),
    ],
)
def test_the_counter_is_read_in_both_of_its_forms(tmp_path: Path, text: str, count: int | None) -> None:
    """memory.events, memory.oom_control, and that of a kernel that does not count."""
    counter = tmp_path / "counter"
    counter.write_text(text)
    assert count == supervisor.counted(str(counter))


def test_without_a_counter_nothing_is_counted() -> None:
    """Nobody knows; that is not none."""
    assert None is supervisor.counted("")


def test_whoever_was_killed_and_not_waited_for_tells_of_it() -> None:
    """The status of a zombie is in /proc, for those who may see it."""
    child = os.fork()
    if not child:
        os.kill(os.getpid(), 9)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    found = supervisor.look(child)
    _, status = os.waitpid(child, 0)
    assert found is not None
    assert status == found.status
