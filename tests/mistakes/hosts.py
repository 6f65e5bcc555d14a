"""This machine with something wrong with it: each host does what the incident's did."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from bisect_agent.clock import SystemClock
from bisect_agent.errors import Unreachable
from bisect_agent.hosts import Completed, Stat, TimedOut
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Kind
from bisect_agent.playbook_observe import DEFAULT_LIMITS

SCRIPT = "launch.sh"


class CutsScripts(LocalHost):
    """Writes the first line of a script, and loses the rest."""

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """Says nothing about what was lost."""
        lost = Path(path).name == SCRIPT
        return super().put(path, data.splitlines(keepends=True)[0] if lost else data, mode)


class NeverNames(LocalHost):
    """Leaves a script under the name of its part."""

    def rename(self, source: str, target: str) -> None:
        """Claims to have done it."""
        if Path(target).name != SCRIPT:
            super().rename(source, target)


class Meddler(LocalHost):
    """Somebody does something to the attempt's folder right before, or right after, it is started."""

    def __init__(
        self, before: Callable[[Path], None] = lambda _: None, after: Callable[[Path], None] = lambda _: None
    ) -> None:
        self._before, self._after = before, after

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Does the deed in time."""
        if "run" not in argv:
            return super().run(argv, timeout=timeout, stdin=stdin)
        self._before(Path(argv[-1]))
        ended = super().run(argv, timeout=timeout, stdin=stdin)
        self._after(Path(argv[-1]))
        return ended


class ServesAnEarlierLog(LocalHost):
    """Answers with an earlier run's file where an attempt's log is asked for."""

    def __init__(self, earlier: Path) -> None:
        self._earlier = str(earlier)

    def read(self, path: str, offset: int, size: int) -> bytes | None:
        """The earlier one's bytes."""
        return super().read(self._of(path), offset, size)

    def stat(self, path: str) -> Stat | None:
        """The earlier one's state."""
        return super().stat(self._of(path))

    def _of(self, path: str) -> str:
        return self._earlier if Path(path).name == "log" else path


class Channel(LocalHost):
    """Runs a command as over SSH: it is over when nobody holds its output any more."""

    PATIENCE = 4.0

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Hangs, as the incident's launch did, for as long as something it left holds the channel."""
        try:
            ended = subprocess.run(
                argv,
                input=stdin,
                capture_output=True,
                timeout=min(timeout, self.PATIENCE),
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise TimedOut(f"channel: `{argv[-2]}` held it for {self.PATIENCE:g} s") from error
        return Completed(ended.returncode, ended.stdout, ended.stderr)


class Skipping(SystemClock):
    """A clock that can be put forward."""

    skipped = 0.0

    def monotonic(self) -> float:
        """The machine's time, and what was skipped."""
        return super().monotonic() + self.skipped


class FallsSilent(LocalHost):
    """Gives no answer while it is `silent`; each question in vain takes as long as the agent's patience."""

    def __init__(self, clock: Skipping) -> None:
        self._clock = clock
        self.silent = False

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """What it is asked to run."""
        self._answer()
        return super().run(argv, timeout=timeout, stdin=stdin)

    def read(self, path: str, offset: int, size: int) -> bytes | None:
        """What it is asked to read."""
        self._answer()
        return super().read(path, offset, size)

    def stat(self, path: str) -> Stat | None:
        """What it is asked to look at."""
        self._answer()
        return super().stat(path)

    def _answer(self) -> None:
        if self.silent:
            self._clock.skipped += DEFAULT_LIMITS[Kind.SERVER].lease
            raise Unreachable("silent: no answer")
