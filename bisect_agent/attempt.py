"""One attempt, from preflight to "nothing left", as events.

The order is fixed: ports free, script on the target and verified, launch, proof of launch, proof of a
fresh log, watching, the end, the stop, nothing left. Each step is announced or reported by an event
before the next begins. An attempt has opinions on nothing: it ends in an `Observation`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TypeVar, assert_never

from bisect_agent import stacks, tail
from bisect_agent.answers import complaint
from bisect_agent.clock import Clock
from bisect_agent.errors import TargetError, Unreachable
from bisect_agent.events import Attempt as Begun
from bisect_agent.events import (
    Closed,
    Ending,
    Launched,
    Launching,
    LogSeen,
    OfAttempt,
    PhaseEntered,
    ReadySeen,
    Stopping,
    TakenUp,
)
from bisect_agent.facts import facts
from bisect_agent.folder import ENV, LOG, SCRIPT, RunFolder, attempt_path, canonical, digest
from bisect_agent.hosts import DiskFull, Host
from bisect_agent.judge import RESPONSE, answer_file
from bisect_agent.model import (
    Exhibit,
    Exit,
    FileLine,
    HttpAnswer,
    Kind,
    Match,
    MatchKind,
    Observation,
    OutOfMemory,
    Playbook,
    Process,
    Reason,
    Role,
    Serving,
    Stacks,
    Trial,
    Trouble,
    Why,
)
from bisect_agent.phases import Progress, idle, spare, stuck
from bisect_agent.playbook import arguments, environment, files, script
from bisect_agent.record import Record
from bisect_agent.secrets import Masker, encode
from bisect_agent.serving import ask, busy, held
from bisect_agent.signatures import Scanner, watches
from bisect_agent.standstill import BETWEEN_LOOKS, Standstill
from bisect_agent.target.launcher import CALL, Launcher, Order, Setback, Stopped, first_line
from bisect_agent.target.launcher import LOG as TARGET_LOG

POLL = 0.05
"""Seconds between two looks at the log."""
LOG_WITHIN = 2.0
"""Seconds after the launch in which the log must be there, beginning with this attempt's tag."""
OTHER_RANKS = 2.0
"""Seconds given to the other ranks after a fatal line, or the script's end, to say what they saw."""
ALIVE_EVERY = 1.0
"""Seconds between two looks at the processes."""
BOUND = 10.0
"""Seconds after the kill in which all must be gone; what is not makes the target dirty."""
HEALTH_EVERY = 0.2
"""Seconds between two health checks of a server that is not healthy yet."""
PORTS_FREE_WITHIN = 5.0
"""Seconds after the stop in which the ports must be free."""
CACHES = "caches"
"""The folder, in the attempt's own on the target, for the caches that are to be empty at its start."""
STACKS = ("stacks-1.txt", "stacks-2.txt")
"""The files beside the log that hold the two looks at the stacks."""
KERNEL = "kernel.txt"
"""The file beside the log that holds what the kernel says of memory kills."""
KERNEL_LINES = 8
"""The lines of it that an observation holds: two or three tell of one kill."""
BY_KILL = (Exit(signal=9), Exit(code=137))
"""How a script ends that was killed, or whose own script was: by whom is the question."""
UNREACHABLE_AFTER = 60.0
"""Seconds without an answer from the target after which the attempt is given up."""


@dataclass(frozen=True)
class Edge:
    """What an attempt touches the world with.

    `folder` and `python` are the target's; `ours` is our own environment, `secrets` what is masked.
    `between_looks` are the seconds between two looks at the stacks of an attempt whose time is over.
    """

    host: Host
    launcher: Launcher
    folder: str
    python: str
    clock: Clock
    ours: Mapping[str, str]
    secrets: tuple[str, ...]
    between_looks: float = BETWEEN_LOOKS


@dataclass(frozen=True)
class Task:
    """What is to be carried out.

    `keep` leaves a server that answers running, for the restore; `answer` is what `good` answered.
    `begun` is how far an earlier process of ours came with this very attempt.
    """

    playbook: Playbook
    trial: Trial
    attempt: int
    tag: str
    keep: bool = False
    answer: str | None = None
    begun: Begun | None = None


Done = TypeVar("Done")

Emit = Callable[[OfAttempt], None]
"""Records an event; returns when it is on the disk, so that no deed comes before its record."""


def carry_out(task: Task, edge: Edge, folder: RunFolder, emit: Emit, cancel: threading.Event) -> None:
    """Carries out one attempt; its last event is `Closed`, whatever the target does on the way."""
    attempt = _Attempt(task, edge, folder, emit, cancel)
    try:
        attempt.run()
    except Exception:
        attempt.abandon()
        raise


@dataclass(frozen=True)
class _End:
    """Why the attempt is to end, and the line that says so.

    `quiet` and `cut` are set where an earlier process of ours had come that far: how long the log had
    stood still, and the byte at which its stop began.
    """

    why: Why
    match: Match | None = None
    trouble: Trouble | None = None
    quiet: float | None = None
    cut: int | None = None


class _Attempt:
    """The steps of one attempt, in their order."""

    def __init__(
        self, task: Task, edge: Edge, folder: RunFolder, emit: Emit, cancel: threading.Event
    ) -> None:
        self.task = task
        self.playbook = task.playbook
        self.edge = edge
        self.folder = folder
        self.emit = emit
        self.cancel = cancel
        self.trial, self.number = task.trial.id, task.attempt
        self.path = attempt_path(task.trial, task.attempt)
        self.masker = Masker(edge.secrets)
        copy = f"{self.path}/{LOG}"
        scanner = Scanner(watches(task.playbook), task.playbook.observe.ignore)
        self.record = Record(folder.grow(copy), copy, Masker(edge.secrets), scanner)
        self.target = ""
        self.tail: tail.Tail | None = None
        self.progress = Progress(began=edge.clock.monotonic(), grown=edge.clock.monotonic())
        self.serving: Serving | None = None
        self.launched = False
        self.ended = False
        self.quiet = 0.0
        self.idle = 0.0
        self.standstill = Standstill(edge.launcher, edge.between_looks)
        self.stacks: Stacks | None = None
        self.heard = True
        self.behind = False
        self.unanswered = False
        self.busy: tuple[int, ...] = ()
        self.given_up = threading.Event()

    def run(self) -> None:
        """All steps; a setback of ours ends the attempt, and what was started is ended all the same."""
        try:
            end = self.take_up(self.task.begun) if self.task.begun else self.begin()
        except (Setback, TargetError) as error:
            end = _End(Why.TROUBLE, trouble=_trouble(error))
        end = self.excused(end)
        try:
            stopped = self.finish(end)
        except (Setback, TargetError) as error:
            # Whether anything lives is not known: nothing may be started here until somebody has looked.
            detail = f"it could not be stopped: {_trouble(error).detail}"
            end, stopped = replace(end, trouble=Trouble(reason=Reason.DIRTY, detail=detail)), None
        self.close(end, stopped)

    def abandon(self) -> None:
        """After an error of our own: what was started must not outlive it."""
        self.given_up.set()
        self.record.close()
        if self.target:
            with suppress(Setback, TargetError):
                self.edge.launcher.stop(self.target)

    # --- before ---------------------------------------------------------------------------------------

    def begin(self) -> _End:
        """The attempt from its first step to what ends it."""
        self.preflight()
        self.launch()
        return self.watch()

    def take_up(self, begun: Begun) -> _End:
        """Goes on with what an earlier process of ours began. The target says how far it came.

        Nothing is started a second time: the target's claim stands, whatever our record lost. What was
        being ended is ended, with the same bytes as evidence; what was watched is read again.
        """
        self.target = f"{self.edge.folder}/{begun.folder}"
        status = self.edge.launcher.status(self.target)
        if begun.state == "launching" and not status.claimed:
            self.target = ""
            self.preflight()
            self.start(self.order())
            return self.watch()
        self.emit(TakenUp(trial=self.trial, attempt=self.number))
        self.launched = True
        if status.supervisor == "none":
            raise Setback(Reason.NOT_LAUNCHED, "it was claimed, and then nothing was started")
        if begun.ending is None:
            return self.watch()
        self.open_log()
        self.serving = begun.ending.serving
        self.idle, self.stacks = begun.ending.idle, begun.ending.stacks
        return _End(begun.ending.why, begun.ending.match, begun.ending.trouble, begun.ending.quiet, begun.cut)

    def preflight(self) -> None:
        """The ports must be free before we start, or the answers would be somebody else's."""
        if taken := busy(self.edge.launcher, self.playbook.target.ports):
            raise Setback(Reason.PORT_BUSY, taken)

    def launch(self) -> None:
        """Says what is about to be started, and starts it."""
        order = self.order()
        self.folder.write(f"{self.path}/{SCRIPT}", order.script)
        lines = "".join(f"{name}={value}\n" for name, value in sorted(order.env.items()))
        variables = encode(self.masker.mask(lines))
        self.folder.write(f"{self.path}/{ENV}", variables)
        self.emit(
            Launching(
                trial=self.trial,
                attempt=self.number,
                folder=self.target_name(),
                tag=self.task.tag,
                script=digest(order.script),
                env=digest(variables),
            )
        )
        self.start(order)

    def start(self, order: Order) -> None:
        """Puts the files and the script, shows that they are there, starts it, and shows that it runs."""
        for path, text in files(self.playbook, self.task.trial.configuration).items():
            self.edge.launcher.keep(path)
            self.edge.launcher.place(path, text)
        self.target = self.edge.launcher.prepare(self.target_name(), order)
        started = self.edge.launcher.start(self.target)
        self.launched = True
        self.emit(
            Launched(trial=self.trial, attempt=self.number, supervisor=started.supervisor, main=started.main)
        )

    def target_name(self) -> str:
        """The attempt's folder on the target: no other attempt of this run ever has its name."""
        return f"{self.trial}-{self.number}-{self.task.tag[:8]}"

    def order(self) -> Order:
        """What the target is told to start."""
        playbook, configuration = self.playbook, self.task.trial.configuration
        caches = f"{self.edge.folder}/{self.target_name()}/{CACHES}"
        return Order(
            script=script(playbook, configuration).encode(),
            arguments=arguments(playbook, configuration),
            env={
                **environment(playbook, configuration, self.edge.ours),
                **{variable: f"{caches}/{name}" for variable, name in playbook.caches.items()},
            },
            cwd=playbook.target.cwd,
            tag=self.task.tag,
            grace=playbook.limits.stop,
            bound=BOUND,
        )

    # --- watching -------------------------------------------------------------------------------------

    def watch(self) -> _End:
        """Reads the log until something ends the attempt."""
        clock = self.edge.clock
        self.open_log()
        pool = ThreadPoolExecutor(1)
        answered: Future[Serving] | None = None
        alive_at = clock.monotonic() + ALIVE_EVERY
        try:
            while True:
                if end := self.read() or self.stuck():
                    return end
                if self.cancel.is_set():
                    return _End(Why.CANCELLED)
                if answered is None and self.asks():
                    answered = pool.submit(self.ask)
                if answered is not None and answered.done() and not self.unanswered:
                    self.served(answered.result())
                    if end := self.read() or self.alive():
                        return end
                    if not self.unanswered:
                        return _End(Why.SERVED)
                if self.exited() or clock.monotonic() >= alive_at:
                    if end := self.alive():
                        return end
                    alive_at = clock.monotonic() + ALIVE_EVERY
                if not self.behind:
                    clock.sleep(POLL)
        finally:
            # Whoever still asks is not waited for: a hanging server must not delay its own end.
            self.given_up.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def open_log(self) -> None:
        """Stands before the log's first byte; the clocks of the start begin."""
        now = self.edge.clock.monotonic()
        path = f"{self.target}/{TARGET_LOG}"
        self.tail = tail.Tail(self.edge.host, path, first_line(self.task.tag))
        self.progress = Progress(began=now, grown=now)

    def read(self) -> _End | None:
        """Takes what the log has to say now; the end, if a line or the log itself demands it."""
        assert self.tail is not None
        poll = self.tail.poll()
        self.behind = isinstance(poll, tail.NewBytes) and len(poll.data) == tail.LIMIT
        self.heard = not isinstance(poll, tail.Unreachable)
        if isinstance(poll, tail.NewBytes):
            return self.heed(poll.data)
        amiss = self.amiss(poll)
        return _End(Why.TROUBLE, trouble=amiss) if amiss else None

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
                lost = Trouble(reason=Reason.UNREACHABLE, detail=detail)
                return lost if waited > UNREACHABLE_AFTER else None
            case _:
                assert_never(poll)

    def heed(self, data: bytes) -> _End | None:
        """New bytes of the log: phases, the ready line, and the first line that ends the attempt."""
        if self.record.size == 0 and not self.ended:
            self.emit(LogSeen(trial=self.trial, attempt=self.number, path=f"{self.target}/{TARGET_LOG}"))
        self.progress = self.progress.grow(self.edge.clock.monotonic())
        end: _End | None = None
        for match in self.record.take(data):
            if self.moves_on(match):
                self.progress = self.progress.advance(self.edge.clock.monotonic())
            elif match.kind is MatchKind.PHASE:
                self.enter(match)
            elif match.kind is MatchKind.READY:
                self.become_ready(match)
            elif end is None and self.fatal(match):
                end = _End(Why.FATAL, match)
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
            self.emit(PhaseEntered(trial=self.trial, attempt=self.number, match=match))

    def become_ready(self, match: Match | None) -> None:
        """The ready rule is met."""
        if self.progress.ready:
            return
        self.progress = self.progress.become_ready()
        if not self.ended:
            self.emit(ReadySeen(trial=self.trial, attempt=self.number, match=match))

    def waited(self) -> float:
        """Seconds since the log last grew, or since the launch."""
        return self.progress.quiet(self.edge.clock.monotonic())

    def stuck(self) -> _End | None:
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
            return _End(why)
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
        serving = serving.model_copy(
            update={
                "health": self.masked(serving.health),
                "request": self.masked(serving.request),
                "witnesses": {path: self.masked(answer) for path, answer in serving.witnesses.items()},
            }
        )
        if serving.request is not None:
            self.folder.write(f"{self.path}/{RESPONSE}", serving.request.body.encode())
        for path, answer in serving.witnesses.items():
            self.folder.write(f"{self.path}/{answer_file(path)}", answer.body.encode())
        self.serving = serving
        asked = (serving.health, serving.request)
        silent = any(answer is not None and answer.status is None for answer in asked)
        self.unanswered = silent or not self.progress.ready

    def masked(self, answer: HttpAnswer | None) -> HttpAnswer | None:
        """An answer without secrets: a server may tell its settings to whoever asks."""
        if answer is None:
            return None
        shown = {"body": self.masker.mask(answer.body), "error": self.masker.mask(answer.error)}
        return answer.model_copy(update=shown)

    def exited(self) -> bool:
        """Whether the script's own process has ended, or all of the attempt has."""
        host = self.edge.host
        try:
            return any(host.stat(f"{self.target}/{name}") is not None for name in ("main_exit", "result"))
        except Unreachable:
            return False  # How long that may last is decided where the log is read.

    def alive(self) -> _End | None:
        """Looks at the processes: the end, when the script or the supervisor is gone."""
        try:
            status = self.edge.launcher.status(self.target)
        except Setback as setback:
            if setback.trouble.reason is Reason.UNREACHABLE:
                return None
            raise
        if status.main_exit is not None or status.result is not None:
            return self.drained() or _End(Why.EXITED)
        if status.supervisor == "dead":
            lost = Trouble(reason=Reason.SUPERVISOR_LOST, detail="it ended without a result")
            return _End(Why.TROUBLE, trouble=lost)
        return None

    def drained(self) -> _End | None:
        """Reads to the log's end, now that nobody need be waited for.

        To the end that it has by now: a log may grow faster than anybody can read it.
        """
        end: _End | None = None
        goal: int | None = None
        before = -1
        while self.tail is not None and before != self.record.size and (goal is None or before < goal):
            before = self.record.size
            end = self.read() or end
            goal = goal or self.tail.size
        return end

    # --- the end --------------------------------------------------------------------------------------

    def excused(self, end: _End) -> _End:
        """The end, which a full disk excuses: nobody knows what the log would have said (rule 6)."""
        if end.why in {Why.SERVED, Why.CANCELLED} or not self.launched:
            return end
        fact = facts(self.target, self.edge.python)["free_mib"]
        try:
            free = fact.parse(self.edge.host.run(fact.command, timeout=CALL).stdout.decode(errors="replace"))
        except TargetError:
            return end
        if free != "0":
            return end
        detail = f"{self.edge.host.name}: no space is left in {self.target}, where the log goes"
        return replace(end, trouble=Trouble(reason=Reason.DISK, detail=detail))

    def finish(self, end: _End) -> Stopped | None:
        """Announces the end, hears the other ranks, and stops what runs; None where it goes on running."""
        self.ended = True
        self.quiet = round(self.waited(), 3) if end.quiet is None else end.quiet
        if end.quiet is None:
            self.idle = round(idle(self.progress, self.playbook, self.edge.clock.monotonic()), 3)
            self.stacks = self.kept_stacks()
        if not self.target:
            return None
        if self.launched:
            self.emit(self.ending(end))
        if end.why in {Why.FATAL, Why.EXITED} and end.cut is None:
            self.hear_other_ranks()
        if self.keeps(end):
            return None
        stopped = self.stop(end.cut)
        self.busy = self.patiently(self.busy_ports)
        if self.playbook.caches:
            with suppress(Setback, TargetError):  # What is left there takes room, and nothing else.
                self.edge.launcher.discard(f"{self.target}/{CACHES}")
        return stopped

    def ending(self, end: _End) -> Ending:
        """All that a later process of ours could not see again, should this one die now."""
        return Ending(
            trial=self.trial,
            attempt=self.number,
            why=end.why,
            match=end.match,
            trouble=end.trouble,
            serving=self.serving,
            quiet=self.quiet,
            idle=self.idle,
            stacks=self.stacks,
        )

    def hear_other_ranks(self) -> None:
        """Reads on for a moment: who failed first is told by the stamps of all ranks."""
        deadline = self.edge.clock.monotonic() + OTHER_RANKS
        while self.edge.clock.monotonic() < deadline:
            self.read()
            if self.patiently(self.result):
                return
            self.edge.clock.sleep(POLL)

    def result(self) -> bool:
        """Whether all of the attempt has ended by itself."""
        return self.edge.host.stat(f"{self.target}/result") is not None

    def keeps(self, end: _End) -> bool:
        """Whether the server is to live on: it was asked for, and it serves."""
        if not self.task.keep or end.why is not Why.SERVED or self.serving is None:
            return False
        return complaint(self.serving, self.playbook.observe.request, self.task.answer) is None

    def stop(self, cut: int | None) -> Stopped:
        """Ends all of the attempt; nothing written after we began to (or had begun to) is evidence."""
        if cut is None:
            self.drained()
        if self.launched and (cut is not None or not self.patiently(self.result)):
            offset = self.log_size() if cut is None else cut
            self.emit(Stopping(trial=self.trial, attempt=self.number, offset=offset))
            self.record.cut(offset)
        stopped = self.patiently(lambda: self.edge.launcher.stop(self.target))
        self.drained()
        return stopped

    def log_size(self) -> int:
        """The bytes of the log now, on the target."""
        log = self.patiently(lambda: self.edge.host.stat(f"{self.target}/{TARGET_LOG}"))
        return log.size if log else self.record.size

    def patiently(self, deed: Callable[[], Done]) -> Done:
        """Does what may be done twice, until the target answers: a lost call must not leave it dirty."""
        deadline = self.edge.clock.monotonic() + UNREACHABLE_AFTER
        while True:
            try:
                return deed()
            except (Setback, TargetError) as error:
                lost = _trouble(error).reason is Reason.UNREACHABLE
                if not lost or self.edge.clock.monotonic() >= deadline:
                    raise
            self.edge.clock.sleep(ALIVE_EVERY)

    def close(self, end: _End, stopped: Stopped | None) -> None:
        """Puts all that was seen into one observation."""
        reading, copy, _ = self.record.finish()
        observation = Observation(
            reading=reading,
            log=copy,
            why=end.why,
            phase="serving" if self.progress.ready else self.progress.phase,
            quiet=self.quiet,
            idle=self.idle,
            stacks=self.stacks,
            serving=self.serving,
            exit=stopped.exit if stopped and end.why is Why.EXITED else None,
            stopped=stopped is not None and stopped.stopped,
            deaths=stopped.deaths if stopped else (),
            memory=self.memory(stopped) if stopped else None,
            killed=stopped.killed if stopped else 0,
            left=(*stopped.left, *map(_doubtful, stopped.suspects)) if stopped else (),
            busy_ports=self.busy,
            trouble=end.trouble,
        )
        self.folder.write(f"{self.path}/observation.json", canonical(observation))
        self.emit(Closed(trial=self.trial, attempt=self.number, observation=observation))

    def kept_stacks(self) -> Stacks | None:
        """Keeps the looks that were taken, and says what moved between them."""
        texts = [stacks.capped(self.masker.mask(text)) for text in self.standstill.texts()]
        looks = [
            self.exhibit(name, data, [line] if (line := stacks.telling(data)) else [])
            for name, data in zip(STACKS, texts, strict=False)
        ]
        told = self.standstill.told(tuple(looks))
        if told is None or told.missing or self.idle >= told.seconds:
            return told
        return told.model_copy(update={"moved": ", ".join(filter(None, ("its log grew", told.moved)))})

    def memory(self, stopped: Stopped) -> OutOfMemory:
        """What the kernel says of memory kills; kept where there were some, or one might be thought of."""
        kills = stopped.memory
        said = [f"{kills.counter}: oom_kill rose by {kills.counted}"] if kills.counted is not None else []
        said += kills.logged or ()
        wanted = said and (kills.counted or kills.logged or stopped.exit in BY_KILL)
        data = encode(self.masker.mask("".join(f"{line}\n" for line in said)))
        return OutOfMemory(
            counted=kills.counted,
            logged=None if kills.logged is None else len(kills.logged),
            file=self.exhibit(KERNEL, data, stacks.lines(data)[:KERNEL_LINES]) if wanted else None,
        )

    def exhibit(self, name: str, data: bytes, shown: Sequence[FileLine]) -> Exhibit:
        """Keeps a file beside the log, and points to some of its lines."""
        path = f"{self.path}/{name}"
        self.folder.write(path, data)
        return Exhibit(path=path, sha256=digest(data), lines=tuple(shown))

    def busy_ports(self) -> tuple[int, ...]:
        """The ports that are still taken some time after the stop."""
        deadline = self.edge.clock.monotonic() + PORTS_FREE_WITHIN
        while True:
            taken = held(self.edge.launcher, self.playbook.target.ports)
            if not taken or self.edge.clock.monotonic() >= deadline:
                return taken
            self.edge.clock.sleep(POLL)


def _doubtful(process: Process) -> Process:
    """A process that may be of the attempt, and is said to be no more than that."""
    return process.model_copy(update={"name": f"{process.name} (perhaps of this attempt)"})


def _trouble(error: Setback | TargetError) -> Trouble:
    """What failed on our side, as a value."""
    if isinstance(error, Setback):
        return error.trouble
    if isinstance(error, Unreachable):
        return Trouble(reason=Reason.UNREACHABLE, detail=str(error))
    reason = Reason.DISK if isinstance(error, DiskFull) else Reason.UNUSABLE
    return Trouble(reason=reason, detail=str(error))
