"""A scene for each test, on a port of its own, with nothing of it left at the end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mistakes.scene import Scene


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A scene whose locks are in its own home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    scene = Scene(tmp_path, port)
    yield scene
    scene.clear()
