"""An attempt while it runs: its log is read, its clocks kept, its server asked, its processes looked at.

All of it ends in one value, the `End`: why the attempt is to end, and the line that says so.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import assert_never

from bisect_agent import tail
from bisect_agent.edge import Edge, Emit, Task
from bisect_agent.errors import Unreachable
from bisect_agent.events import LogSeen, PhaseEntered, ReadySeen
from bisect_agent.folder import RunFolder, attempt_path
from bisect_agent.hosts import Host
from bisect_agent.judge import RESPONSE, answer_file
from bisect_agent.model import Kind, Match, MatchKind, Reason, Role, Serving, Trouble, Why
from bisect_agent.phases import Progress, spare, stuck
from bisect_agent.record import Record
from bisect_agent.secrets import Masker
from bisect_agent.serving import ask
from bisect_agent.standstill import Standstill
from bisect_agent.target.launcher import LOG as TARGET_LOG
from bisect_agent.target.launcher import Setback, first_line

POLL = 0.05
"""The most seconds between two looks at the log."""
SOON = 0.005
"""The least, right after the start: a look costs the target something as well."""
LOG_WITHIN = 2.0
"""Seconds after the launch in which the log must be there, beginning with this attempt's tag."""
ALIVE_EVERY = 1.0
"""Seconds between two looks at the processes."""
HEALTH_EVERY = 0.2
"""Seconds between two health checks of a server that is not healthy yet."""


def pause(passed: float) -> float:
    """Seconds until the next look, after so many: an end that comes soon is seen soon."""
    return min(POLL, max(SOON, passed / 4))


def ended(host: Host, folder: str) -> bool:
    """Whether the script in an attempt's folder has ended, or all of its tree."""
    return any(host.stat(f"{folder}/{name}") is not None for name in ("main_exit", "result"))


@dataclass(frozen=True)
class End:
    """Why the attempt is to end, and the line that says so.

    `quiet` and `cut` are set where an earlier process of ours had come that far: how long the log had
    stood still, and the byte at which its stop began.
    """

    why: Why
    match: Match | None = None
    trouble: Trouble | None = None
    quiet: float | None = None
    cut: int | None = None


class Watch:
    """What is seen of one attempt, from its log's first byte on.

    `ended` is set when the attempt is to end: what the log says from then on is read, and no event.
    """

    def __init__(
        self, task: Task, edge: Edge, folder: RunFolder, record: Record, emit: Emit, cancel: threading.Event
    ) -> None:
        self.task = task
        self.playbook = task.playbook
        self.edge = edge
        self.folder = folder
        self.path = attempt_path(task.trial, task.attempt)
        self.record = record
        self.emit = emit
        self.cancel = cancel
        self.masker = Masker(edge.secrets)
        self.target = ""
        self.tail: tail.Tail | None = None
        self.progress = Progress(began=edge.clock.monotonic(), grown=edge.clock.monotonic())
        self.serving: Serving | None = None
        self.standstill = Standstill(edge.launcher, edge.between_looks, self.masker)
        self.ended = False
        self.heard_at = edge.clock.monotonic()
        self.heard = True
        self.behind = False
        self.unanswered = False
        self.given_up = threading.Event()

    def open(self, target: str) -> None:
        """Stands before the first byte of the log in the attempt's folder; the clocks of the start begin."""
        self.target = target
        now = self.edge.clock.monotonic()
        path = f"{target}/{TARGET_LOG}"
        self.tail = tail.Tail(self.edge.host, path, first_line(self.task.tag))
        self.progress = Progress(began=now, grown=now)
        self.heard_at = now

    def run(self) -> End:
        """Reads the log until something ends the attempt."""
        clock = self.edge.clock
        begun = clock.monotonic()
        pool = ThreadPoolExecutor(1)
        answered: Future[Serving] | None = None
        alive_at = clock.monotonic() + ALIVE_EVERY
        try:
            while True:
                if end := self.read() or self.stuck():
                    return end
                if self.cancel.is_set():
                    return End(Why.CANCELLED)
                if answered is None and self.asks():
                    answered = pool.submit(self.ask)
                if answered is not None and answered.done() and not self.unanswered:
                    self.served(answered.result())
                    if end := self.read() or self.alive():
                        return end
                    if not self.unanswered:
                        return End(Why.SERVED)
                # While the log is behind, each question more costs a part of it.
                if not self.behind and (end := self.exited()):
                    return end
                if clock.monotonic() >= alive_at:
                    if end := self.alive():
                        return end
                    alive_at = clock.monotonic() + ALIVE_EVERY
                if not self.behind:
                    clock.sleep(pause(clock.monotonic() - begun))
        finally:
            # Whoever still asks is not waited for: a hanging server must not delay its own end.
            self.given_up.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def read(self) -> End | None:
        """Takes what the log has to say now; the end, if a line or the log itself demands it."""
        assert self.tail is not None
        poll = self.tail.poll()
        self.behind = isinstance(poll, tail.NewBytes) and len(poll.data) == tail.LIMIT
        self.heard = not isinstance(poll, tail.Unreachable)
        if self.heard:
            self.heard_at = self.edge.clock.monotonic()
        if isinstance(poll, tail.NewBytes):
            return self.heed(poll.data)
        amiss = self.amiss(poll)
        return End(Why.TROUBLE, trouble=amiss) if amiss else None

    def amiss(self, poll: tail.NoBytes) -> Trouble | None:
        """What is wrong with a log that gave nothing: missing, quiet and unreachable are three answers."""
        waited, begun = self.waited(), self.record.size > 0
        match poll:
            case tail.Nothing():
                if begun or waited <= LOG_WITHIN:
                    return None
                return Trouble(reason=Reason.LOG_MISSING, detail="its first line was not written")
            case tail.Missing():
                if begun:
                    return Trouble(reason=Reason.LOG_DAMAGED, detail="it was removed while it was read")
                detail = f"there is none {LOG_WITHIN:g} s after the launch"
                return Trouble(reason=Reason.LOG_MISSING, detail=detail) if waited > LOG_WITHIN else None
            case tail.Stale(found=found):
                begin = self.masker.mask(found.decode(errors="replace"))[:80]
                detail = f"it begins with {begin!r}, not with our tag"
                return Trouble(reason=Reason.LOG_STALE, detail=detail)
            case tail.Shrunk(size=size, offset=offset):
                detail = f"it shrank from {offset} to {size} bytes"
                return Trouble(reason=Reason.LOG_DAMAGED, detail=detail)
            case tail.Overwritten():
                return Trouble(reason=Reason.LOG_DAMAGED, detail="it was cut, and written anew")
            case tail.Replaced():
                return Trouble(reason=Reason.LOG_DAMAGED, detail="another file took its name")
            case tail.Unreachable(detail=detail):
                # As long as our lease may last, nobody else touches the attempt: its log will tell all of it.
                silent = self.edge.clock.monotonic() - self.heard_at
                lost = Trouble(reason=Reason.UNREACHABLE, detail=detail)
                return lost if silent > self.playbook.limits.lease else None
            case _:
                assert_never(poll)

    def heed(self, data: bytes) -> End | None:
        """New bytes of the log: phases, the ready line, and the first line that ends the attempt."""
        if self.record.size == 0 and not self.ended:
            self.emit(
                LogSeen(
                    trial=self.task.trial.id, attempt=self.task.attempt, path=f"{self.target}/{TARGET_LOG}"
                )
            )
        self.progress = self.progress.grow(self.edge.clock.monotonic())
        end: End | None = None
        for match in self.record.take(data):
            if self.moves_on(match):
                self.progress = self.progress.advance(self.edge.clock.monotonic())
            elif match.kind is MatchKind.PHASE:
                self.enter(match)
            elif match.kind is MatchKind.READY:
                self.become_ready(match)
            elif end is None and self.fatal(match):
                end = End(Why.FATAL, match)
        return end

    def fatal(self, match: Match) -> bool:
        """Whether a match is of a signature after which the stack cannot live on."""
        return match.kind is MatchKind.SIGNATURE and self.playbook.signature(match.id).fatal

    def moves_on(self, match: Match) -> bool:
        """Whether a match is progress: of a signature of that role, or of the phase's own pattern."""
        if match.kind is MatchKind.PROGRESS:
            return match.id == self.progress.phase
        return match.kind is MatchKind.SIGNATURE and self.playbook.signature(match.id).role is Role.PROGRESS

    def enter(self, match: Match) -> None:
        """A phase begins. Ranks repeat the markers: only the first one to come so far says something new."""
        order = ["", *(phase.name for phase in self.playbook.observe.phases)]
        if order.index(match.id) <= order.index(self.progress.phase):
            return
        self.progress = self.progress.enter(match.id, self.edge.clock.monotonic())
        if not self.ended:
            self.emit(PhaseEntered(trial=self.task.trial.id, attempt=self.task.attempt, match=match))

    def become_ready(self, match: Match | None) -> None:
        """The ready rule is met."""
        if self.progress.ready:
            return
        self.progress = self.progress.become_ready()
        if not self.ended:
            self.emit(ReadySeen(trial=self.task.trial.id, attempt=self.task.attempt, match=match))

    def waited(self) -> float:
        """Seconds since the log last grew, or since the launch."""
        return self.progress.quiet(self.edge.clock.monotonic())

    def stuck(self) -> End | None:
        """What a clock that is over comes to, once two looks at the stacks have been taken.

        Whoever was silent and moved all the same is slow: it gets that clock once more, and then ends.
        """
        now = self.edge.clock.monotonic()
        why = stuck(self.progress, self.playbook, now) or (Why.SERVED if self.unanswered else None)
        if why is None or not self.heard:
            self.standstill.forget()
            return None
        if not self.standstill.looked(self.target, self.edge.clock.monotonic):
            return None
        silent = why in {Why.SILENT, Why.STALLED} and self.standstill.moved()
        spared = spare(self.progress, self.playbook, now) if silent else None
        if spared is None:
            return End(why)
        self.progress = spared
        self.standstill.forget()
        return None

    def asks(self) -> bool:
        """Whether it is time to ask the server: after its ready line, or at once where it has none."""
        observe = self.playbook.observe
        by_http = observe.ready_http is not None and observe.ready_log is None
        if self.playbook.kind is Kind.JOB:
            return False
        return self.record.size > 0 and (self.progress.ready or by_http)

    def ask(self) -> Serving:
        """Listener, health and request, beside the reading of the log."""
        patience = self.playbook.limits.request if self.progress.ready else self.playbook.limits.start
        deadline = self.edge.clock.monotonic() + patience

        def wait() -> bool:
            self.edge.clock.sleep(HEALTH_EVERY)
            return not self.given_up.is_set() and self.edge.clock.monotonic() < deadline

        return ask(self.playbook, self.edge.launcher, self.target, wait)

    def served(self, serving: Serving) -> None:
        """Keeps what the server answered, masked; evidence can point to the file of the answer."""
        if not self.progress.ready and serving.health and serving.health.status == HTTPStatus.OK:
            self.become_ready(None)
        serving = self.masker.said(serving)  # A server may tell its settings to whoever asks.
        if serving.request is not None:
            self.folder.write(f"{self.path}/{RESPONSE}", serving.request.body.encode())
        for path, answer in serving.witnesses.items():
            self.folder.write(f"{self.path}/{answer_file(path)}", answer.body.encode())
        self.serving = serving
        asked = (serving.health, serving.request)
        silent = any(answer is not None and answer.status is None for answer in asked)
        self.unanswered = silent or not self.progress.ready

    def exited(self) -> End | None:
        """The end, when the script's own process has ended, or all of the attempt has: files tell that."""
        host = self.edge.host
        try:
            # The guardian's mark comes before what it ends.
            if ended(host, self.target):
                return self.over(guarded=host.stat(f"{self.target}/guarded") is not None)
        except Unreachable:
            return None  # How long that may last is decided where the log is read.
        return None

    def over(self, *, guarded: bool) -> End:
        """The end of an attempt that nobody here has ended: by itself, or by the guardian."""
        if guarded:
            detail = f"{self.edge.host.name}: it has ended the attempt"
            return End(Why.TROUBLE, trouble=Trouble(reason=Reason.GUARDED, detail=detail))
        return self.drained() or End(Why.EXITED)

    def alive(self) -> End | None:
        """Looks at the processes: the end, when the script or the supervisor is gone."""
        try:
            status = self.edge.launcher.status(self.target)
        except Setback as setback:
            if setback.trouble.reason is Reason.UNREACHABLE:
                return None
            raise
        if status.guarded or status.main_exit is not None or status.result is not None:
            return self.over(guarded=status.guarded)
        if status.supervisor == "dead":
            lost = Trouble(reason=Reason.SUPERVISOR_LOST, detail="it ended without a result")
            return End(Why.TROUBLE, trouble=lost)
        return None

    def drained(self) -> End | None:
        """Reads to the log's end, now that nobody need be waited for.

        To the end that it has by now: a log may grow faster than anybody can read it.
        """
        end: End | None = None
        goal: int | None = None
        before = -1
        while self.tail is not None and before != self.record.size and (goal is None or before < goal):
            before = self.record.size
            end = self.read() or end
            goal = goal or self.tail.size
        return end
