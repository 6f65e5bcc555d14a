"""A night: a queue of playbooks, one after another on each target, the targets side by side.

What ends one run ends that run alone. Each has its own run folder and journal; of all of them there is a
digest, written anew whenever something of it changes, so that it is there in the morning if we are not.
"""

from __future__ import annotations

import os
import secrets
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisect_agent import library, playbook
from bisect_agent.clock import Clock
from bisect_agent.engine import LEAVE, Engine, Listener, ending
from bisect_agent.errors import BisectError, DamagedRun, ExitCode
from bisect_agent.events import RunState
from bisect_agent.folder import RunFolder, run_name
from bisect_agent.hosts.address import Address
from bisect_agent.hosts.reach import LOCAL
from bisect_agent.hour import Hour
from bisect_agent.investigation import Means, open_again, open_new, stop_left
from bisect_agent.model import Command, Playbook, Reason, Target, Unresolved
from bisect_agent.notify import Message, send
from bisect_agent.report.commands import word
from bisect_agent.report.digest import Brief, Digest
from bisect_agent.report.files import brief, write_digest, write_reports
from bisect_agent.report.message import of_night, of_run
from bisect_agent.secrets import Masker

TURN = 0.2
"""Seconds between two looks at whether all targets are through."""

Tell = Callable[[str], AbstractContextManager[Listener]]
"""Opens what shows the progress of the run of that name."""


# --- the queue --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Queued:
    """A playbook of the queue: what lines call it, where it lies, and what reading it came to."""

    name: str
    path: Path
    read: Playbook | BisectError


def listed(names: Iterable[str]) -> list[Path]:
    """The playbooks that these names stand for: files, shipped ones, and every `*.yaml` of a folder.

    Each is there once, where it was named first.
    """
    found: dict[Path, Path] = {}
    for path in (path for name in names for path in _stands_for(name)):
        found.setdefault(path.resolve(), path)
    return list(found.values())


def _stands_for(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        return sorted(path.glob("*.yaml")) or [path]  # Reading it says that a folder is no playbook.
    if not path.exists() and name in library.playbooks():
        return [library.playbook(name)]
    return [path]


def queue(paths: Sequence[Path], pins: Mapping[str, str], signatures: Path | None) -> tuple[Queued, ...]:
    """Reads every playbook; one that cannot be used has its place in the queue as well."""
    return tuple(
        Queued(name, path, _read(path, pins, signatures))
        for name, path in zip(_called(paths), paths, strict=True)
    )


def _read(path: Path, pins: Mapping[str, str], signatures: Path | None) -> Playbook | BisectError:
    try:
        return playbook.load(path, pins=pins, signatures=signatures)
    except BisectError as error:
        return error


def _called(paths: Sequence[Path]) -> list[str]:
    """A short name for each, unlike the others; a `playbook.yaml` is called by its folder's name."""
    short = [path.resolve().parent.name if path.stem == "playbook" else path.stem for path in paths]
    count = Counter(short)
    return [name if count[name] == 1 else str(path) for name, path in zip(short, paths, strict=True)]


def queues(queued: Sequence[Queued]) -> list[list[int]]:
    """The places of the playbooks that can be used, those together that share a machine.

    A playbook of several targets makes one queue of theirs.
    """
    found: list[tuple[set[object], list[int]]] = []
    for place, item in enumerate(queued):
        if isinstance(item.read, Playbook):
            machines = {_machine(target.host) for target in item.read.targets.values()}
            joined = [queue for queue in found if queue[0] & machines]
            found = [queue for queue in found if not queue[0] & machines]
            places = sorted([place, *(p for _, theirs in joined for p in theirs)])
            found.append((machines.union(*(theirs for theirs, _ in joined)), places))
    return [places for _, places in found]


# --- one run ----------------------------------------------------------------------------------------


def ended(run: Brief, folder: Path | None, error: Exception | None, now: float) -> Brief:
    """A run that is over: by its folder, as far as there is one, and by the error that has ended it."""
    try:
        run = brief(folder, run) if folder is not None else run
    except DamagedRun as damage:
        error = error or damage
    if error is None:
        return run
    said = str(error) if isinstance(error, BisectError) else f"{type(error).__name__}: {error}"
    if run.code is not None:
        return run.model_copy(update={"notes": (*run.notes, said)})
    code = error.code if isinstance(error, BisectError) else ExitCode.BUG
    return run.model_copy(update={"ended": now, **_over(run, code, said)})


def _over(run: Brief, code: ExitCode, found: str) -> dict[str, object]:
    """What changes of a run that ends without a verdict; one that was not begun can be begun again."""
    again = f"bisect-agent run {word(run.playbook)}" if run.playbook and code is not ExitCode.USAGE else ""
    commands = run.commands or ((again,) if again else ())
    return {"state": "over", "code": code, "found": found, "commands": commands}


def _hidden(asked: Iterable[Playbook]) -> list[str]:
    """The secrets of some playbooks."""
    return [value for one in asked for value in playbook.secrets_of(one, os.environ).values()]


def _masked(run: Brief, hidden: Iterable[str]) -> Brief:
    """A run without secrets, whatever an error may have quoted."""
    masker = Masker(hidden)
    notes = tuple(map(masker.mask, run.notes))
    return run.model_copy(
        update={"found": masker.mask(run.found), "why": masker.mask(run.why), "notes": notes}
    )


def tell(run: Brief, asked: Playbook) -> tuple[str, ...]:
    """Tells whom the playbook names how its run has ended; returns a sentence for each that was not told."""
    return _sent(of_run(run), playbook.notified(asked, os.environ), [asked])


def _sent(message: Message, addresses: Mapping[str, str], asked: Iterable[Playbook]) -> tuple[str, ...]:
    return send(message, addresses, _hidden(asked))


# --- the night --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """What holds for every run of a night."""

    runs: Path
    pins: Mapping[str, str]
    signatures: Path | None = None
    hour: Hour | None = None


@dataclass
class _Queue:
    """What is run one after another: the places in the night of those that share a machine.

    `serving` are those whose good server was left running, with the seconds that its restore took;
    `stopped` are those whose was ended since a later run needed the port, in the order of that. `dirty`
    says why nothing more may be started.
    """

    places: list[int]
    serving: dict[int, float] = field(default_factory=dict)
    stopped: dict[int, float] = field(default_factory=dict)
    dirty: str = ""


class Night:
    """One night.

    Args:
        queued: the playbooks, in their order.
        terms: what holds for all of them.
        clock: tells the time.
        show: opens what shows the progress of a run.
        say: tells a person, at once.
    """

    def __init__(
        self, queued: Sequence[Queued], terms: Terms, clock: Clock, show: Tell, say: Callable[[str], None]
    ) -> None:
        self._queued = queued
        self._terms = terms
        self._clock = clock
        self._show = show
        self._say = say
        self._lock = threading.Lock()
        self._name = run_name("digest", clock.time(), secrets.token_hex(2))
        self._digest = Digest(
            began=clock.time(),
            at=clock.time(),
            runs=tuple(map(_waiting, queued)),
            until=str(terms.hour) if terms.hour else "",
        )
        self.interrupts = 0
        self._engines: list[Engine] = []
        self._steering = threading.RLock()  # A signal may come while another one is heeded.

    @property
    def page(self) -> Path:
        """Where the digest's page is."""
        return self._terms.runs.resolve() / f"{self._name}.html"

    def interrupt(self) -> None:
        """Ends the night: nothing more is begun, and every run ends as one alone would.

        Safe to call from a signal handler of the main thread.
        """
        self.interrupts += 1
        with self._steering:
            for engine in self._engines:
                self._steer(engine)

    def _steer(self, engine: Engine) -> None:
        while engine.interrupts < self.interrupts:
            engine.interrupt()

    def run(self) -> Digest:
        """Carries out all of it; what is wrong with a playbook is said before the first one begins."""
        for place, item in enumerate(self._queued):
            if isinstance(item.read, BisectError):
                self._say(f"{item.name}: {item.read}")
                self._end(place, item.read.code, str(item.read))
        self._write()
        threads = [
            threading.Thread(target=self._work, args=(_Queue(places),), daemon=True)
            for places in queues(self._queued)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(TURN)  # Not for ever: signals are heeded in between.
        self._change(over=True)
        self._change(notes=(*self._digest.notes, *self._tell()))
        return self._digest

    # --- one target -----------------------------------------------------------------------------------

    def _work(self, queue: _Queue) -> None:
        for place in queue.places:
            self._guarded(self._one, place, queue)
        for place in reversed(queue.stopped):
            self._guarded(self._bring_back, place, queue)

    def _guarded(self, deed: Callable[[int, _Queue], None], place: int, queue: _Queue) -> None:
        """An error of this room's own is its run's; no other must suffer from it."""
        try:
            deed(place, queue)
        except Exception as error:
            self._say(traceback.format_exc())
            found = self._digest.runs[place].found or f"{type(error).__name__}: {error}"
            self._end(place, ExitCode.BUG, found)

    def _one(self, place: int, queue: _Queue) -> None:
        """One run, from its turn to its place in the digest."""
        item, run = self._queued[place], self._digest.runs[place]
        assert isinstance(item.read, Playbook)
        if held_back := self._held_back(item.read, queue):
            self._end(place, *held_back)
            return
        run = run.model_copy(update={"state": "running", "began": self._clock.time()})
        self._put(place, run)
        folder: Path | None = None
        failed: Exception | None = None
        engine: Engine | None = None
        terms, hour = self._terms, self._terms.hour
        try:
            with (
                self._show(item.name) as listener,
                open_new(
                    item.path, terms.runs, terms.pins, listener, self._means(item.name), terms.signatures
                ) as opened,
            ):
                folder, engine = opened.folder.path, opened.engine
                self._put(place, run := run.model_copy(update={"folder": str(folder.resolve())}))
                kept = self._make_room(opened.playbook, queue, item.name)
                with self._steered(engine):
                    outcome = engine.run(hour=replace(hour, kept=kept) if hour else None)
                write_reports(opened.folder, outcome.verdict)
        except BisectError as error:
            failed = error
            self._say(f"{item.name}: {error}")
        except Exception as error:
            failed = error
            self._say(f"{item.name}: {traceback.format_exc()}")
        run = _masked(ended(run, folder, failed, self._clock.time()), _hidden([item.read]))
        if engine is not None:
            queue.dirty = _dirt(engine.state, item.name)
            if run.serves:
                queue.serving[place] = _took(engine.state)
        if run.code is ExitCode.NOT_RESTORED:  # What cannot wait until the morning.
            run = run.model_copy(update={"notes": (*run.notes, *self._warned(run, item.read))})
        self._put(place, run)

    def _held_back(self, asked: Playbook, queue: _Queue) -> tuple[ExitCode, str] | None:
        """Why a run is not begun, and what that comes to."""
        hour = self._terms.hour
        if self.interrupts:
            return ExitCode.INTERRUPTED, "not begun: the night was interrupted"
        needed = ending(asked.limits)
        needed += sum(queue.serving[place] for place in self._in_the_way(asked, queue))
        if isinstance(asked.restore, Command):
            needed += asked.limits.start  # People use what runs there, and nobody knows how long it takes.
        if hour and hour.left(self._clock) <= needed:
            return ExitCode.BUDGET, f"not begun: --until {hour}"
        if queue.dirty:
            return ExitCode.TARGET, f"not begun: {queue.dirty}"
        return None

    def _in_the_way(self, asked: Playbook, queue: _Queue) -> list[int]:
        """The earlier runs of this night whose good servers have a port that is needed now."""
        wanted = {port for target in asked.targets.values() for port in _ports(target)}
        return [place for place in queue.serving if wanted & self._served(place)]

    def _served(self, place: int) -> set[_Port]:
        """The ports of the good server that a run leaves running."""
        read = self._queued[place].read
        return _ports(read.target) if isinstance(read, Playbook) else set()

    def _make_room(self, asked: Playbook, queue: _Queue, name: str) -> float:
        """Ends the good servers that are in the way; returns how long it takes to bring them up again."""
        kept = 0.0
        for place in self._in_the_way(asked, queue):
            run = self._digest.runs[place]
            try:
                stop_left(RunFolder(Path(run.folder)))
            except BisectError as error:
                self._say(f"{name}: {error}")  # Its port is taken, which ends the run that needs it.
                continue
            queue.stopped[place] = queue.serving.pop(place)
            kept += queue.stopped[place]
            note = f"its good server was stopped, since {name} needed the port"
            told = {"notes": (*run.notes, note), "serves": False, "commands": ()}
            self._put(place, run.model_copy(update=told))
        return kept

    def _bring_back(self, place: int, queue: _Queue) -> None:
        """Brings a good server up again that was stopped for a later run which has left none in its place."""
        run = self._digest.runs[place]
        taken = {port for other in queue.serving for port in self._served(other)}
        if taken & self._served(place) or queue.dirty or self.interrupts >= LEAVE:
            return
        path, failed = Path(run.folder), None
        try:
            with (
                self._show(run.name) as listener,
                open_again(path, listener, self._means(run.name), answered=True) as opened,
                self._steered(opened.engine),
            ):
                write_reports(opened.folder, opened.engine.run().verdict)
        except BisectError as error:
            failed = error
            self._say(f"{run.name}: {error}")
        run = ended(run, path, failed, self._clock.time())
        if run.serves:
            queue.serving[place] = 0.0
            note = "its good server was brought up again, since no later run has left one"
        else:
            note = "its good server could not be brought up again"
            run = run.model_copy(update={"code": ExitCode.NOT_RESTORED, "restored": False, "why": note})
        self._put(place, run.model_copy(update={"notes": (*run.notes, note)}))

    def _means(self, name: str) -> Means:
        """A run's own target; what it waits for is said with its name."""
        return Means(say=lambda text: self._say(f"{name}: {text}"))

    @contextmanager
    def _steered(self, engine: Engine) -> Iterator[None]:
        """While it runs, an engine is interrupted when the night is."""
        with self._steering:
            self._engines.append(engine)
            self._steer(engine)
        try:
            yield
        finally:
            with self._steering:
                self._engines.remove(engine)

    # --- what is told ---------------------------------------------------------------------------------

    def _warned(self, run: Brief, asked: Playbook) -> tuple[str, ...]:
        failed = tell(run, asked)
        for sentence in failed:
            self._say(f"{run.name}: {sentence}")
        return failed

    def _tell(self) -> tuple[str, ...]:
        """One message a person: of all the runs whose playbooks name that person, when the night is over."""
        asked = [item.read for item in self._queued if isinstance(item.read, Playbook)]
        failed: list[str] = []
        for name in dict.fromkeys(name for one in asked for name in one.notify):
            runs = [
                run
                for item, run in zip(self._queued, self._digest.runs, strict=True)
                if isinstance(item.read, Playbook) and name in item.read.notify
            ]
            message = of_night(self._digest, runs, str(self.page))
            failed += _sent(message, {name: os.environ[name]}, asked)
        for sentence in failed:
            self._say(sentence)
        return tuple(failed)

    def _end(self, place: int, code: ExitCode, found: str) -> None:
        run = self._digest.runs[place]
        self._put(place, run.model_copy(update=_over(run, code, found)))

    def _put(self, place: int, run: Brief) -> None:
        """Gives a run its new words."""
        with self._lock:
            runs = list(self._digest.runs)
            runs[place] = run
            self._digest = self._digest.model_copy(update={"runs": tuple(runs)})
        self._write()

    def _change(self, **told: object) -> None:
        with self._lock:
            self._digest = self._digest.model_copy(update=told)
        self._write()

    def _write(self) -> None:
        """Writes the digest. Where that fails, it is said, and the night goes on."""
        with self._lock:
            self._digest = self._digest.model_copy(update={"at": self._clock.time()})
            try:
                write_digest(self._terms.runs, self._name, self._digest)
            except (OSError, BisectError) as error:
                self._say(f"the digest could not be written: {error}")


def _waiting(item: Queued) -> Brief:
    if isinstance(item.read, BisectError):
        return Brief(name=item.name, playbook=str(item.path))
    return Brief(name=item.name, playbook=str(item.path), title=item.read.title, target=item.read.target.host)


_Port = tuple[object, int]
"""A machine, and a port of it."""


def _ports(target: Target) -> set[_Port]:
    return {(_machine(target.host), port) for port in target.ports}


def _machine(host: str) -> object:
    """What tells one target from another: two users of a host are on the same one."""
    if host == LOCAL:
        return LOCAL
    address = Address.parse(host)
    return address.host, address.port


def _took(state: RunState) -> float:
    """Seconds that the restore of a run has taken."""
    last = state.last(state.restore.trial.id) if state.restore else None
    return max(0.0, last.ended - last.began) if last else 0.0


def _dirt(state: RunState, name: str) -> str:
    """Why nothing more may be started on a target after this run; empty where it left nothing behind."""
    outcomes = [settled.outcome for settled in state.judged()]
    found = [o for o in outcomes if isinstance(o, Unresolved) and o.reason is Reason.DIRTY]
    return f"{name} has left the target dirty: {found[-1].detail}" if found else ""
