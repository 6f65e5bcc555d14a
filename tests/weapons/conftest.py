"""A weapon for each test, with nothing of it left at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mistakes.scene import Scene
from tests.weapons.arms import Arms


@pytest.fixture
def arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arms]:
    """A job whose locks are in its own home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    arms = Arms(Scene(tmp_path, port=0))
    yield arms
    arms.scene.clear()
