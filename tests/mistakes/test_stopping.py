"""Mistakes of stopping: killing by pattern, our own kill taken for a crash, a restore that nobody saw."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import SymptomKind
from tests.mistakes.scene import READY, Scene

# --- 6: `pkill -9 -f`, and the triage's own kill taken for a crash ------------------------------------


@pytest.fixture
def bystander(scene: Scene, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process, of the very command line of the scene's server."""
    scene.server("exec $server\n")
    variables = {**os.environ, "BYSTANDER": "1"}
    with subprocess.Popen(scene.command(), cwd=tmp_path, env=variables, start_new_session=True) as process:
        yield process
        process.kill()
