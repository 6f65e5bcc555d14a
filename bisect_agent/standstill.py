"""Two looks at the stacks of an attempt whose time is over, so that a hang is shown and not assumed."""

from __future__ import annotations

from collections.abc import Callable

from bisect_agent.model import Exhibit, Stacks
from bisect_agent.secrets import Masker
from bisect_agent.stacks import Look, moved, render
from bisect_agent.target.launcher import Launcher, Setback

BETWEEN_LOOKS = 10.0
"""Seconds between the two looks."""


class Standstill:
    """The looks taken since the time was over.

    Args:
        launcher: what looks.
        between: seconds between the two looks.
        masker: a command line may hold a secret.
    """

    def __init__(self, launcher: Launcher, between: float, masker: Masker) -> None:
        self._launcher = launcher
        self._between = between
        self._masker = masker
        self._looks: list[Look] = []
        self._missing = ""
        self._taken = 0
        self._next = 0.0

    def forget(self) -> None:
        """The attempt goes on: the next two looks are new ones."""
        self._looks, self._missing, self._taken = [], "", 0

    def looked(self, attempt: str, now: Callable[[], float]) -> bool:
        """Takes the look that is due; whether both have been taken. One that cannot be had counts too."""
        if self._taken and now() < self._next:
            return False
        try:
            self._looks.append(self._masker.said(self._launcher.stacks(attempt)))
        except Setback as setback:
            self._missing = self._masker.mask(setback.trouble.detail)
        self._taken += 1
        self._next = now() + self._between
        return self._taken == 2

    def moved(self) -> str:
        """What moved between the two looks; empty where nothing did, or where it cannot be told."""
        return moved(*self._looks) if len(self._looks) == 2 else ""

    def texts(self) -> list[str]:
        """The looks, for people."""
        return [render(look) for look in self._looks]

    def told(self, exhibits: tuple[Exhibit, ...]) -> Stacks | None:
        """What the two looks came to, kept in these files; None where none was wanted."""
        if not self._taken:
            return None
        seconds = self._looks[1].time - self._looks[0].time if len(self._looks) == 2 else 0.0
        return Stacks(looks=exhibits, seconds=round(seconds, 1), moved=self.moved(), missing=self._missing)
