"""Mistakes of reading: advice taken for evidence, stale logs, a dead rank's phase and order."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_agent.model import Reason, SymptomKind
from tests.mistakes.hosts import Meddler, ServesAnEarlierLog
from tests.mistakes.scene import Scene

RANKS = 4
ADVICE = (
    "Possible solutions:",
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)",
    "3. disable torch compile by not using --enable-torch-compile",
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)",
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose",
)
TRACEBACK = "Traceback (most recent call last):"
CAUSE = "KernelError: split count does not divide top-k"
"""What really fails. No signature knows it; the first exception of the chain is the symptom."""
FATAL = "RuntimeError: CUDA error: dependency created on uncaptured work in another stream"


def failure(rank: int, second: int = 56) -> str:
    """How one rank fails during capture, whatever the cause, and the advice that always follows."""
    lines = (
        f"[2026-06-17 23:46:{second} TP{rank}] Scheduler hit an exception: {TRACEBACK}",
        '  File "/opt/sglang/capture.py", line 12, in capture',
        "    run(batch)",
        CAUSE,
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        TRACEBACK,
        '  File "/opt/sglang/runner.py", line 409, in __init__',
        "    raise Exception(why)",
        f"Exception: Capture cuda graph failed: {CAUSE}",
        *ADVICE,
        "",
    )
    return "\n".join(lines)


def fails_with(log: str) -> str:
    """A launch script that prints a log and fails where the compiler is on."""
    return f'[ -n "$COMPILE" ] || exit 0\ncat <<"END"\n{log}\nEND\nexit 1\n'


# --- 1: the advice list was read as evidence ----------------------------------------------------------


def test_no_line_of_advice_is_evidence(scene: Scene) -> None:
    """Every rank prints the advice after every failure: the verdict stands on the cause's own lines."""
    scene.job(fails_with("".join(failure(rank) for rank in range(RANKS))))
    run = scene.run()
    assert run.verdict.symptom is not None
    assert (True, CAUSE) == (run.verdict.established, run.verdict.symptom.text)
    assert [] == [text for text in run.evidence() if text in ADVICE]


def test_a_root_of_the_users_own_that_reads_advice_has_no_say(scene: Scene) -> None:
    """A hint is a hint, whoever calls the same line a root."""
    unsupported = {"id": "unsupported", "role": "root", "pattern": "disable torch compile", "fatal": True}
    scene.job(fails_with(failure(2)), observe={"signatures": [unsupported]})
    symptom = scene.attempt().symptom()
    assert (SymptomKind.EXCEPTION, CAUSE) == (symptom.kind, symptom.text)


# --- 5: a stale log could have been read as fresh -----------------------------------------------------


def test_a_fixed_path_with_an_earlier_failure_is_not_read(scene: Scene) -> None:
    """What the stack writes elsewhere, and what stood there before, is nobody's evidence."""
    (scene.stack / "sglang.log").write_text(f"{FATAL}\n")
    scene.job("echo serving | tee -a sglang.log\n")
    seen = scene.attempt()
    assert (seen.passed().kind, ()) == ("passed", seen.observation.reading.matches)


def test_nothing_is_started_over_a_log_that_is_there(scene: Scene) -> None:
    """Two writers in one log could not be told apart, so the second one never begins."""
    scene.job("touch started\n")
    seen = scene.attempt(host=Meddler(before=lambda folder: _write(folder / "log", FATAL)))
    assert (Reason.NOT_LAUNCHED, False) == (seen.unresolved().reason, (scene.stack / "started").exists())
    assert () == seen.observation.reading.matches


def test_a_log_with_another_attempts_tag_is_stale(scene: Scene, tmp_path: Path) -> None:
    """The first line says whose log it is; what follows in another's is not read."""
    earlier = tmp_path / "earlier.log"
    _write(earlier, f"# bisect-agent attempt {'0' * 32}\n{FATAL}\n")
    scene.job("sleep 5\n")
    seen = scene.attempt(host=ServesAnEarlierLog(earlier))
    assert (Reason.LOG_STALE, ()) == (seen.unresolved().reason, seen.observation.reading.matches)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


# --- 8: nobody could say in which phase it died -------------------------------------------------------


def test_the_phase_of_death_is_the_failing_ranks_own(scene: Scene) -> None:
    """A rank that dies while it loads did not die in the phase that another has reached."""
    log = "\n".join(
        (
            "[2026-06-17 23:46:50 TP0] Load weight begin",
            "[2026-06-17 23:46:50 TP2] Load weight begin",
            "[2026-06-17 23:46:55 TP0] Capture begin",
            f"[2026-06-17 23:46:56 TP2] {FATAL}",
        )
    )
    phases = [{"name": "load", "begin": "Load weight begin"}, {"name": "capture", "begin": "Capture begin"}]
    scene.job(fails_with(log), observe={"phases": phases})
    assert "load" == scene.attempt().symptom().phase


# --- 13: the first failing rank -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second_of_tp5", "first_rank", "order", "first_line_of"),
    [
        pytest.param(50, "TP5", "shown", "TP5", id="printed-second-failed-first"),
        pytest.param(56, None, "not shown", "TP2", id="stamps-tie"),
    ],
)
def test_the_first_rank_is_the_first_by_its_stamp(
    scene: Scene, second_of_tp5: int, first_rank: str | None, order: str, first_line_of: str
) -> None:
    """That a rank's lines come first in the file says only who printed first."""
    scene.job(fails_with(failure(2, second=56) + failure(5, second=second_of_tp5)))
    symptom = scene.attempt().symptom()
    assert (first_rank, order) == (symptom.first_rank, symptom.order)
    assert first_line_of == symptom.evidence[0].rank
