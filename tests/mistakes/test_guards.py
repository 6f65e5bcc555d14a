"""Each mistake's test fails when the line that prevents the mistake is switched off.

A test that passes either way guards nothing. So every row takes a copy of the package, makes one edit
in it, and runs one test of this folder against the copy: that test, and it alone, must notice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("bisect_agent", "hypotheses", "tests/mistakes")
WORKERS = 2
RUN = """
import sys, bisect_agent, pytest
print(bisect_agent.__file__, flush=True)
sys.exit(pytest.main(sys.argv[1:]))
"""
PLUGINS = ("-p", "pytest_socket", "-p", "pytest_timeout")
"""Those that the configuration speaks of; loading the others would take half of the time."""


@dataclass(frozen=True)
class Guard:
    """A line that prevents a mistake of the incident, what switches it off, and the test that must see it.

    Attributes:
        mistake: its number in the list of the incident's mistakes.
        file: of the package, or beside it.
        text: found in it exactly once.
        off: what stands there instead.
        test: `module::name` in this folder.
    """

    mistake: int
    file: str
    text: str
    off: str
    test: str

    def __str__(self) -> str:
        return (
            f"{self.mistake:02}-{Path(self.file).stem}-{self.test.partition('::')[2].removeprefix('test_')}"
        )


GUARDS = (
    Guard(
        1,
        "hypotheses/signatures/sglang.yaml",
        "- id: sglang-advice\n  role: hint\n",
        "- id: sglang-advice\n  role: root\n",
        "test_reading.py::test_no_line_of_advice_is_evidence",
    ),
    Guard(
        1,
        "bisect_agent/signatures.py",
        "sorted(hits & self._hints or hits)",
        "sorted(hits)",
        "test_reading.py::test_a_root_of_the_users_own_that_reads_advice_has_no_say",
    ),
    Guard(
        3,
        "bisect_agent/target/launcher.py",
        "if found.get(part) != hashlib.sha256(data).hexdigest():",
        "if False:",
        "test_starting.py::test_a_script_gets_its_name_only_when_the_target_has_all_of_it",
    ),
    Guard(
        3,
        "bisect_agent/target/supervisor.py",
        "    if wrong:\n",
        "    if False:\n",
        "test_starting.py::test_a_script_that_is_not_there_as_written_is_not_started[removed]",
    ),
    Guard(
        3,
        "bisect_agent/target/supervisor.py",
        'if found != order["sha256"]:',
        "if False:",
        "test_starting.py::test_a_script_that_is_not_there_as_written_is_not_started[exchanged]",
    ),
    Guard(
        3,
        "bisect_agent/target/launcher.py",
        "if ended.returncode or ended.stderr:",
        "if ended.returncode:",
        "test_starting.py::test_a_heredoc_that_swallows_the_launch_is_refused",
    ),
    Guard(
        4,
        "bisect_agent/watching.py",
        "if waited > LOG_WITHIN else None",
        "if False else None",
        "test_starting.py::test_a_log_that_is_missing_is_told_soon",
    ),
    Guard(
        4,
        "bisect_agent/tail.py",
        "return Unreachable(error.message)",
        "return Missing()",
        "test_starting.py::test_a_host_that_gives_no_answer_is_not_a_missing_log",
    ),
    Guard(
        4,
        "bisect_agent/watching.py",
        'if status.supervisor == "dead":',
        "if False:",
        "test_starting.py::test_a_supervisor_that_died_is_not_waited_for",
    ),
    Guard(
        5,
        "bisect_agent/target/supervisor.py",
        "os.O_CREAT | os.O_EXCL | os.O_APPEND",
        "os.O_CREAT | os.O_APPEND",
        "test_reading.py::test_nothing_is_started_over_a_log_that_is_there",
    ),
    Guard(
        5,
        "bisect_agent/tail.py",
        "if not self._first_line.startswith(begin):",
        "if False:",
        "test_reading.py::test_a_log_with_another_attempts_tag_is_stale",
    ),
    Guard(
        6,
        "bisect_agent/target/supervisor.py",
        "return descendants([os.getpid()], living())",
        "line = self.order['cwd'].encode() + b'/launch_server.py'\n"
        "        return [p for p in living() if line in open('/proc/%d/cmdline' % p.pid, 'rb').read()]",
        "test_stopping.py::test_a_process_of_the_same_command_line_lives_on",
    ),
    Guard(
        6,
        "bisect_agent/target/supervisor.py",
        "(p.pid, p.start) in self.known",
        "p.pid in dict(self.known)",
        "test_stopping.py::test_a_later_process_with_a_recorded_pid_lives_on",
    ),
    Guard(
        6,
        "bisect_agent/attempt.py",
        "self.record.cut(offset)",
        "pass",
        "test_stopping.py::test_what_our_stop_brings_about_is_no_failure",
    ),
    Guard(
        7,
        "bisect_agent/target/supervisor.py",
        "    os.dup2(sink, 1)\n",
        "",
        "test_starting.py::test_a_child_in_the_background_holds_nothing_up[nohup]",
    ),
    Guard(
        7,
        "bisect_agent/target/supervisor.py",
        "        adopt_orphans()\n",
        "",
        "test_starting.py::test_a_child_in_the_background_holds_nothing_up[setsid]",
    ),
    Guard(
        8,
        "bisect_agent/judge.py",
        "if m.rank == failure.rank] or before",
        "] or before",
        "test_reading.py::test_the_phase_of_death_is_the_failing_ranks_own",
    ),
    Guard(
        9,
        "bisect_agent/evidence.py",
        "s.applied.get(factor) in VOTES",
        "True",
        "test_concluding.py::test_a_variable_that_nobody_reads_has_no_vote",
    ),
    Guard(
        9,
        "bisect_agent/judge.py",
        "if wrong is not None:",
        "if False:",
        "test_concluding.py::test_a_level_that_the_log_contradicts_was_not_tried",
    ),
    Guard(
        10,
        "bisect_agent/search.py",
        "_good(playbook, table) or _bad(playbook, table)",
        "_bad(playbook, table)",
        "test_concluding.py::test_nothing_is_bisected_from_a_good_that_does_not_work",
    ),
    Guard(
        2,
        "hypotheses/signatures/system.yaml",
        "- id: arguments-rejected\n  role: root\n",
        "- id: arguments-rejected\n  role: progress\n",
        "test_concluding.py::test_a_flag_that_the_stack_does_not_know_is_called_that",
    ),
    Guard(
        11,
        "bisect_agent/evidence.py",
        "return (*self.differences, *suspects)",
        "return self.differences",
        "test_concluding.py::test_every_suspect_is_flipped_and_none_argued_away",
    ),
    Guard(
        12,
        "bisect_agent/evidence.py",
        "if not again or again[-1] is failing[0]:",
        "if not again:",
        "test_concluding.py::test_a_failure_that_does_not_come_back_accuses_nobody",
    ),
    Guard(
        13,
        "bisect_agent/judge.py",
        'return (where.time if where.time is not None else float("inf"), where.offset)',
        "return (0.0, where.offset)",
        "test_reading.py::test_the_first_rank_is_the_first_by_its_stamp[printed-second-failed-first]",
    ),
    Guard(
        13,
        "bisect_agent/judge.py",
        "or stamps[0] == stamps[1]:",
        "or False:",
        "test_reading.py::test_the_first_rank_is_the_first_by_its_stamp[stamps-tie]",
    ),
    Guard(
        14,
        "bisect_agent/watching.py",
        "(self.progress.ready or by_http)",
        "True",
        "test_stopping.py::test_a_restore_that_takes_its_time_is_seen_to_serve",
    ),
    Guard(
        14,
        "bisect_agent/verdict.py",
        "ok = isinstance(run.outcome, Passed)",
        "ok = True",
        "test_stopping.py::test_a_restore_that_is_never_ready_is_said_and_not_left",
    ),
    Guard(
        14,
        "bisect_agent/engine.py",
        "if verdict.good_restored.ok is False or",
        "if",
        "test_stopping.py::test_a_restore_that_is_never_ready_is_said_and_not_left",
    ),
)


@dataclass(frozen=True)
class Ended:
    """A run of one test against a copy of the package."""

    copy: Path
    returncode: int
    output: str


def run_against_copy(folder: Path, guard: Guard, *, off: bool = True) -> Ended:
    """Runs a guard's test in a copy of the package, with the guard switched off."""
    copy = folder / "copy"
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name)
    shutil.copy2(ROOT / "pyproject.toml", copy)
    file = copy / guard.file
    text = file.read_text(encoding="utf-8")
    assert 1 == text.count(guard.text), f"{guard.file} must hold this exactly once: {guard.text}"
    if off:
        file.write_text(text.replace(guard.text, guard.off), encoding="utf-8")
    options = (*PLUGINS, "-p", "no:cacheprovider", "-rf", f"--basetemp={folder / 'tmp'}")
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *options, f"tests/mistakes/{guard.test}"],
        cwd=copy,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "1000"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Ended(copy, ended.returncode, ended.stdout)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[Guard, Future[Ended]]]:
    """The runs of all guards that were asked for, some at a time: they mostly wait."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = [call.params["guard"] for call in calls if call and "guard" in call.params]
    pool = ThreadPoolExecutor(WORKERS)
    yield {guard: pool.submit(run_against_copy, tmp_path_factory.mktemp("guard"), guard) for guard in wanted}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_without_its_guard_the_mistake_is_made_again(
    guard: Guard, runs: Mapping[Guard, Future[Ended]]
) -> None:
    """The test of the mistake runs against the copy, and it is its assertion that fails."""
    ended = runs[guard].result()
    assert f"{ended.copy}/bisect_agent/__init__.py" == ended.output.splitlines()[0]
    assert 1 == ended.returncode, ended.output
    failures = [line for line in ended.output.splitlines() if line.startswith("FAILED ")]
    begin = f"FAILED tests/mistakes/{guard.test} - "
    assert [True] == [line.startswith((f"{begin}assert", f"{begin}AssertionError")) for line in failures], (
        ended.output
    )


def test_with_its_guard_it_is_not(tmp_path: Path) -> None:
    """It is the edit that makes a test fail, not the copy."""
    assert 0 == run_against_copy(tmp_path, GUARDS[0], off=False).returncode
