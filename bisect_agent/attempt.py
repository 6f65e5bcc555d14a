"""One attempt, from preflight to "nothing left", as events.

The order is fixed: ports free, script on the target and verified, launch, proof of launch, proof of a
fresh log, watching, the end, the stop, nothing left. Each step is announced or reported by an event
before the next begins. An attempt has opinions on nothing: it ends in an `Observation`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import re2

from bisect_agent import between, stacks, surroundings
from bisect_agent.answers import complaint
from bisect_agent.edge import CACHES, Edge, Emit, Task, learn, order
from bisect_agent.errors import TargetError, Unreachable
from bisect_agent.events import Attempt as Begun
from bisect_agent.events import (
    Closed,
    Ending,
    Launched,
    Launching,
    Stopping,
    TakenUp,
)
from bisect_agent.facts import facts
from bisect_agent.folder import ENV, LOG, SCRIPT, RunFolder, attempt_path, canonical, digest
from bisect_agent.hosts import DiskFull
from bisect_agent.model import (
    Aftermath,
    Before,
    Exhibit,
    Exit,
    FileLine,
    Fingerprint,
    Observation,
    OutOfMemory,
    Process,
    Reason,
    Role,
    Stacks,
    Trouble,
    Why,
)
from bisect_agent.phases import idle
from bisect_agent.playbook import files
from bisect_agent.record import Record
from bisect_agent.secrets import Masker, encode
from bisect_agent.serving import busy, held
from bisect_agent.signatures import Scanner, watches
from bisect_agent.surroundings import Answer
from bisect_agent.target.launcher import LOG as TARGET_LOG
from bisect_agent.target.launcher import Order, Setback, Stopped
from bisect_agent.watching import ALIVE_EVERY, POLL, End, Watch, pause

OTHER_RANKS = 2.0
"""Seconds given to the other ranks after a fatal line, or the script's end, to say what they saw."""
PORTS_FREE_WITHIN = 5.0
"""Seconds after the stop in which the ports must be free."""
LEAVING = 60.0
"""Seconds without an answer from the target after which an attempt that was cancelled is left."""
MEMORY_UNSURE_AFTER = 2.0
"""Seconds after which no more is waited for memory that may be another attempt's."""
MEMORY_AGAIN = 0.5
"""Seconds between two looks at that memory."""
STACKS = ("stacks-1.txt", "stacks-2.txt")
"""The files beside the log that hold the two looks at the stacks."""
KERNEL = "kernel.txt"
"""The file beside the log that holds what the kernel says of memory kills."""
ENVIRONMENT = "environment.txt"
"""The file beside the log that holds what makes an attempt's surroundings other ones than before."""
KERNEL_LINES = 8
"""The lines of it that an observation holds: two or three tell of one kill."""
BY_KILL = (Exit(signal=9), Exit(code=137))
"""How a script ends that was killed, or whose own script was: by whom is the question."""


Done = TypeVar("Done")


def carry_out(task: Task, edge: Edge, folder: RunFolder, emit: Emit, cancel: threading.Event) -> None:
    """Carries out one attempt; its last event is `Closed`, whatever the target does on the way."""
    attempt = _Attempt(task, edge, folder, emit, cancel)
    try:
        attempt.run()
    except Exception:
        attempt.abandon()
        raise


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
        self.watching = Watch(task, edge, folder, self.record, emit, cancel)
        self.target = ""
        self.launched = False
        self.quiet = 0.0
        self.idle = 0.0
        self.stacks: Stacks | None = None
        self.busy: tuple[int, ...] = ()
        self.before: Before | None = None
        self.aftermath: Aftermath | None = None

    def run(self) -> None:
        """All steps; a setback of ours ends the attempt, and what was started is ended all the same."""
        try:
            end = self.take_up(self.task.begun) if self.task.begun else self.begin()
        except (Setback, TargetError) as error:
            end = End(Why.TROUBLE, trouble=_trouble(error))
        end = self.excused(end)
        try:
            stopped = self.finish(end)
        except (Setback, TargetError) as error:
            # Whether anything lives is not known: nothing may be started here until somebody has looked.
            end, stopped = replace(end, trouble=_unstopped(_trouble(error))), None
        if stopped is not None and self.launched:
            end = self.looked_around(end)
        self.close(end, stopped)

    def abandon(self) -> None:
        """After an error of our own: what was started must not outlive it."""
        self.watching.given_up.set()
        self.record.close()
        if self.target:
            with suppress(Setback, TargetError):
                self.edge.launcher.stop(self.target)

    # --- before ---------------------------------------------------------------------------------------

    def begin(self) -> End:
        """The attempt from its first step to what ends it."""
        self.preflight()
        self.launch()
        return self.watch()

    def take_up(self, begun: Begun) -> End:
        """Goes on with what an earlier process of ours began. The target says how far it came.

        Nothing is started a second time: the target's claim stands, whatever our record lost. What was
        being ended is ended, with the same bytes as evidence; what was watched is read again.
        """
        self.target, self.before = f"{self.edge.folder}/{begun.folder}", begun.before
        status = self.edge.launcher.status(self.target)
        if begun.state == "launching" and not status.claimed:
            self.target = ""
            self.preflight()
            self.start(self.order())
            return self.watch()
        self.emit(TakenUp(trial=self.trial, attempt=self.number))
        self.launched = True
        if status.guarded:
            raise Setback(Reason.GUARDED, f"{self.edge.host.name}: it has ended {begun.folder}")
        if status.supervisor == "none":
            raise Setback(Reason.NOT_LAUNCHED, "it was claimed, and then nothing was started")
        if begun.ending is None:
            return self.watch()
        self.watching.open(self.target)
        self.watching.serving = begun.ending.serving
        self.idle, self.stacks = begun.ending.idle, begun.ending.stacks
        return End(begun.ending.why, begun.ending.match, begun.ending.trouble, begun.ending.quiet, begun.cut)

    def watch(self) -> End:
        """Watches what has begun, from its log's first byte, to what ends it."""
        self.watching.open(self.target)
        return self.watching.run()

    def preflight(self) -> None:
        """The ports must be free before we start, or the answers would be somebody else's.

        And the target must be what it was, or nothing that is seen can be compared with what was seen before.
        """
        if taken := busy(self.edge.launcher, self.playbook.target.ports):
            raise Setback(Reason.PORT_BUSY, taken)
        if self.task.baseline is None:
            return
        seen = between.look(self.playbook, self.edge, self.folder, self.task.baseline)
        self.before = surroundings.before(seen, self.task.tag)
        changed = between.compared(seen, self.task.baseline)
        if changed and self.task.trial.control != "restore":  # `good` is brought back wherever it runs.
            raise Setback(Reason.ENVIRONMENT, f"nothing was started: {'; '.join(changed)}")

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
                target=self.task.target,
                folder=self.target_name(),
                tag=self.task.tag,
                script=digest(order.script),
                env=digest(variables),
                before=self.before,
            )
        )
        self.start(order)

    def start(self, order: Order) -> None:
        """Puts the script, shows that it is there, starts it, and shows that it runs."""
        for path in files(self.playbook, self.task.trial.configuration):
            self.edge.launcher.keep(path)
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
        task = self.task
        configuration = task.trial.configuration
        return order(self.playbook, self.edge, configuration, self.target_name(), task.tag, keep=task.keep)

    # --- the end --------------------------------------------------------------------------------------

    def excused(self, end: End) -> End:
        """The end, which a full disk excuses: nobody knows what the log would have said (rule 6)."""
        if end.why in {Why.SERVED, Why.CANCELLED} or not self.launched:
            return end
        try:
            free = learn(self.edge, facts(self.target, self.edge.python)["free_mib"])
        except TargetError:
            return end
        if free != "0":
            return end
        detail = f"{self.edge.host.name}: no space is left in {self.target}, where the log goes"
        return replace(end, trouble=Trouble(reason=Reason.DISK, detail=detail))

    def finish(self, end: End) -> Stopped | None:
        """Announces the end, hears the other ranks, and stops what runs; None where it goes on running."""
        self.watching.ended = True
        self.quiet = round(self.watching.waited(), 3) if end.quiet is None else end.quiet
        if end.quiet is None:
            self.idle = round(idle(self.watching.progress, self.playbook, self.edge.clock.monotonic()), 3)
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

    def ending(self, end: End) -> Ending:
        """All that a later process of ours could not see again, should this one die now."""
        return Ending(
            trial=self.trial,
            attempt=self.number,
            why=end.why,
            match=end.match,
            trouble=self.masker.said(end.trouble),
            serving=self.watching.serving,
            quiet=self.quiet,
            idle=self.idle,
            stacks=self.stacks,
        )

    def hear_other_ranks(self) -> None:
        """Reads on for a moment: who failed first is told by the stamps of all ranks."""
        begun = self.edge.clock.monotonic()
        while (passed := self.edge.clock.monotonic() - begun) < OTHER_RANKS:
            self.watching.read()
            if self.patiently(self.result):
                return
            self.edge.clock.sleep(pause(passed))

    def result(self) -> bool:
        """Whether all of the attempt has ended by itself."""
        return self.edge.host.stat(f"{self.target}/result") is not None

    def keeps(self, end: End) -> bool:
        """Whether the server is to live on: it was asked for, and it serves."""
        if not self.task.keep or end.why is not Why.SERVED or self.watching.serving is None:
            return False
        return complaint(self.watching.serving, self.playbook.observe.request, self.task.answer) is None

    def stop(self, cut: int | None) -> Stopped:
        """Ends all of the attempt; nothing written after we began to (or had begun to) is evidence."""
        if cut is None:
            self.watching.drained()
        if self.launched and (cut is not None or not self.patiently(self.result)):
            offset = self.log_size() if cut is None else cut
            self.emit(Stopping(trial=self.trial, attempt=self.number, offset=offset))
            self.record.cut(offset)
        stopped = self.masker.said(self.patiently(lambda: self.edge.launcher.stop(self.target)))
        self.watching.drained()
        return stopped

    def log_size(self) -> int:
        """The bytes of the log now, on the target."""
        log = self.patiently(lambda: self.edge.host.stat(f"{self.target}/{TARGET_LOG}"))
        return log.size if log else self.record.size

    def patiently(self, deed: Callable[[], Done]) -> Done:
        """Does what may be done twice, until the target answers: a lost call must not leave it dirty.

        It is waited for as long as our lease may last, for until then nobody else ends what runs there.
        """
        begun = self.edge.clock.monotonic()
        while True:
            try:
                return deed()
            except (Setback, TargetError) as error:
                patience = LEAVING if self.cancel.is_set() else self.playbook.limits.lease
                waited = self.edge.clock.monotonic() - begun
                if _trouble(error).reason is not Reason.UNREACHABLE or waited >= patience:
                    raise
            self.edge.clock.sleep(ALIVE_EVERY)

    def close(self, end: End, stopped: Stopped | None) -> None:
        """Puts all that was seen into one observation."""
        reading, copy, _ = self.record.finish()
        observation = Observation(
            reading=reading,
            log=copy,
            why=end.why,
            phase="serving" if self.watching.progress.ready else self.watching.progress.phase,
            quiet=self.quiet,
            idle=self.idle,
            stacks=self.stacks,
            serving=self.watching.serving,
            exit=stopped.exit if stopped and end.why is Why.EXITED else None,
            stopped=stopped is not None and stopped.stopped,
            deaths=stopped.deaths if stopped else (),
            memory=self.memory(stopped) if stopped else None,
            killed=stopped.killed if stopped else 0,
            left=(*stopped.left, *map(_doubtful, stopped.suspects)) if stopped else (),
            busy_ports=self.busy,
            trouble=self.masker.said(end.trouble),
            aftermath=self.masker.said(self.aftermath),
        )
        self.folder.write(f"{self.path}/observation.json", canonical(observation))
        self.emit(
            Closed(trial=self.trial, attempt=self.number, target=self.task.target, observation=observation)
        )

    def looked_around(self, end: End) -> End:
        """The end, which is excused where no look can be had at what is around: nobody knows what changed."""
        if self.before is None or self.task.baseline is None:
            return end
        try:
            self.aftermath = self.left_around(self.before, self.task.baseline)
        except (Setback, TargetError) as error:
            return end if end.trouble else replace(end, trouble=_trouble(error))
        return end

    def left_around(self, before: Before, baseline: Fingerprint) -> Aftermath | None:
        """What the attempt left around it, and what changed there; None where there is nothing to say."""
        playbook, leaver = self.playbook, between.Leaver(self.target, self.task.tag)
        seen = self.patiently(
            lambda: between.look(playbook, self.edge, self.folder, baseline, before, leaver)
        )
        # The signatures tell the machine's own trouble from faults of a GPU that a stack can bring about.
        infra = [s for s in (*playbook.observe.signatures, *playbook.signatures) if s.role is Role.INFRA]
        faults = [line for line in seen.log.lines if any(re2.search(s.pattern, line) for s in infra)]
        changed = (*between.compared(seen, baseline), *surroundings.happened(before, seen), *faults)
        memory, unsure = self.memory_held(before, seen)
        data = encode(self.masker.mask("".join(f"{line}\n" for line in changed)))
        found = Aftermath(
            changed=self.exhibit(ENVIRONMENT, data, stacks.lines(data)) if changed else None,
            heard=tuple(line for line in seen.log.lines if line not in faults),
            memory=memory,
            unsure=unsure,
            removed=seen.left.removed,
            kept=seen.left.kept,
            more=seen.left.more,
        )
        return found if found != Aftermath() else None

    def memory_held(self, before: Before, seen: Answer) -> tuple[str, str]:
        """Waits until the GPUs' memory is back: what of it is not in the end, or why that cannot be told."""
        begun = self.edge.clock.monotonic()
        while held := surroundings.held(before, seen, self.task.tag):
            waited = self.edge.clock.monotonic() - begun
            unsure = surroundings.unsure(before, seen, self.task.tag)
            if waited >= (MEMORY_UNSURE_AFTER if unsure else self.edge.memory_back):
                said = f"{waited:.0f} s after the stop: {held}"
                return ("", said) if unsure else (said, "")
            self.edge.clock.sleep(MEMORY_AGAIN)
            seen = self.patiently(lambda: between.gpus(self.edge))
        return "", ""

    def kept_stacks(self) -> Stacks | None:
        """Keeps the looks that were taken, and says what moved between them."""
        texts = [stacks.capped(text) for text in self.watching.standstill.texts()]
        looks = [
            self.exhibit(name, data, [line] if (line := stacks.telling(data)) else [])
            for name, data in zip(STACKS, texts, strict=False)
        ]
        told = self.watching.standstill.told(tuple(looks))
        if told is None or told.missing or self.idle >= told.seconds:
            return told
        return told.model_copy(update={"moved": ", ".join(filter(None, ("its log grew", told.moved)))})

    def memory(self, stopped: Stopped) -> OutOfMemory:
        """What the kernel says of memory kills; kept where there were some, or one might be thought of."""
        kills = stopped.memory
        said = list(kills.logged or ())
        said += [f"{kills.counter}: oom_kill rose by {kills.counted}"] if kills.counted is not None else []
        wanted = said and (kills.counted or kills.logged or stopped.exit in BY_KILL)
        data = encode("".join(f"{line}\n" for line in said))
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


def _unstopped(trouble: Trouble) -> Trouble:
    """What it means that an attempt could not be stopped.

    A target that gives no answer for as long as our lease lasts has a guardian, which then stops it.
    """
    guarded = trouble.reason in {Reason.UNREACHABLE, Reason.GUARDED}
    reason = Reason.GUARDED if guarded else Reason.DIRTY
    return Trouble(reason=reason, detail=f"it could not be stopped: {trouble.detail}")


def _trouble(error: Setback | TargetError) -> Trouble:
    """What failed on our side, as a value."""
    if isinstance(error, Setback):
        return error.trouble
    if isinstance(error, Unreachable):
        return Trouble(reason=Reason.UNREACHABLE, detail=str(error))
    reason = Reason.DISK if isinstance(error, DiskFull) else Reason.UNUSABLE
    return Trouble(reason=reason, detail=str(error))
