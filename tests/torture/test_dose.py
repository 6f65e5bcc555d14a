"""A small dose of the torture, in every test run: one run, three dead agents, one dead supervisor."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.torture.lab import Lab, Undisturbed, answer_of
from tests.torture.test_bad_night import supervisors_die


@pytest.mark.timeout(300)
def test_a_small_dose(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """It comes to the verdict of the run that nobody disturbed."""
    lab = Lab.make(tmp_path / "dose")
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        plague = pool.submit(supervisors_die, lab, over)
        process = lab.begin("append", str(undisturbed.appends // 4))
        process.communicate()
        for _ in range(2):
            assert -signal.SIGKILL == process.returncode
            process = lab.victim("resume", lab.run(), "append", str(undisturbed.appends // 4))
            process.communicate()
        code = lab.concluded(lab.resume())
        over.set()
    assert 1 == plague.result()
    assert undisturbed.answer == answer_of(lab, code)
