"""The parent's side of the ranks: starts them, listens to them, asks them for logits, ends them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import tokens
from link import Kind, Link, Message
from model import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from settings import ServerArgs

COUNT = 4
END_S = 0.5
"""How long the ranks have to end after SIGTERM, before SIGKILL."""


class RankGone(Exception):
    """A rank has ended; no answer can be computed."""


@dataclass(frozen=True)
class Said:
    """A rank has sent a message that is not the result of a step."""

    rank: int
    kind: Kind


@dataclass(frozen=True)
class Gone:
    """A rank's end of the link has closed: its process has ended, or is about to."""

    rank: int


class RankProcess:
    """One rank's process, as the parent holds it."""

    def __init__(self, rank: int, args: ServerArgs, heard: Callable[[Said | Gone], None]) -> None:
        self._rank = rank
        self._heard = heard
        self._results: SimpleQueue[list[float] | None] = SimpleQueue()
        program = str(Path(__file__).with_name("rank.py"))
        self.process = subprocess.Popen(
            [sys.executable, program, str(rank), *args.argv()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.link = Link(self.process.stdout, self.process.stdin, self._received, self._closed)

    def result(self) -> list[float]:
        """The logits of the step sent last.

        Raises:
            RankGone: the process ended first.
        """
        logits = self._results.get()
        if logits is None:
            raise RankGone(f"rank TP{self._rank} is gone")
        return logits

    def _received(self, message: Message) -> None:
        if message["kind"] == Kind.LOGITS:
            self._results.put(message["logits"])
        else:
            self._heard(Said(self._rank, message["kind"]))

    def _closed(self) -> None:
        self._results.put(None)
        self._heard(Gone(self._rank))


class Ranks:
    """All ranks. `heard` is called from other threads."""

    def __init__(self, args: ServerArgs, heard: Callable[[Said | Gone], None]) -> None:
        self._one_at_a_time = threading.Lock()
        self._ranks = [RankProcess(rank, args, heard) for rank in range(COUNT)]

    def send(self, rank: int, message: Message) -> None:
        """Send one rank a message."""
        self._ranks[rank].link.send(message)

    def broadcast(self, message: Message) -> None:
        """Send all ranks a message."""
        for rank in self._ranks:
            rank.link.send(message)

    def wait(self, rank: int) -> tuple[int, int]:
        """The pid and exit code (negative: signal) of a rank that is gone."""
        process = self._ranks[rank].process
        return process.pid, process.wait()

    def generate(self, prompt: str, max_new_tokens: int) -> list[int]:
        """Decode greedily; the end of a prompt that is too long counts.

        Raises:
            RankGone: a rank has ended.
        """
        known = tokens.encode(prompt)[-(CONTEXT - max_new_tokens) :] or tokens.encode(" ")
        answer: list[int] = []
        with self._one_at_a_time:
            for position, token in enumerate(known[:-1]):
                self._step(token, position)
            token = known[-1]
            for position in range(len(known) - 1, len(known) - 1 + max_new_tokens):
                token = tokens.choose(self._step(token, position), answer)
                answer.append(token)
        return answer

    def end(self) -> tuple[int, int, int] | None:
        """End what still runs. Returns rank, pid and exit code of the first that was ended so."""
        running = [number for number, rank in enumerate(self._ranks) if rank.process.poll() is None]
        for number in running:
            self._ranks[number].process.terminate()
        deadline = time.monotonic() + END_S
        for number in running:
            self._end_by(self._ranks[number].process, deadline)
        return (running[0], *self.wait(running[0])) if running else None

    @staticmethod
    def _end_by(process: subprocess.Popen[str], deadline: float) -> None:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _step(self, token: int, position: int) -> list[float]:
        self.broadcast({"kind": Kind.STEP, "token": token, "position": position})
        shares = [rank.result() for rank in self._ranks]
        return [sum(logits) for logits in zip(*shares, strict=True)]
