"""The run that nobody disturbs: what every other one must come to."""

from __future__ import annotations

import time

import pytest

from tests.torture.lab import Lab, Undisturbed, answer_of


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """What every other run must come to."""
    lab = Lab.make(tmp_path_factory.mktemp("torture") / "undisturbed")
    begun = time.monotonic()
    process = lab.begin("append", "0")  # a doom that never comes: the steps are counted
    out, _ = process.communicate()
    appends, changes = map(int, out.split())
    seconds = time.monotonic() - begun
    return Undisturbed(answer_of(lab, process.returncode), appends, changes, seconds)
