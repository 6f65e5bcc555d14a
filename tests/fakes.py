"""A target and a clock that exist only here: a whole investigation of the real engine in milliseconds."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from bisect_agent.edge import Edge
from bisect_agent.engine import Engine, Listener
from bisect_agent.errors import Unreachable
from bisect_agent.events import Entry, RunStarted
from bisect_agent.folder import PLAYBOOK, RESOLVED, RunFolder, digest
from bisect_agent.hosts import Completed, Stat
from bisect_agent.journal import Journal
from bisect_agent.model import FIRST, Configuration, Playbook
from bisect_agent.playbook import secrets_of
from bisect_agent.target.launcher import ALREADY_CLAIMED, Launcher, Plan
from tests.worlds import HANGS, READY, World

FOLDER = "/srv/run"
"""Where the agent's files lie on the fake target."""
BOOT = "0b00"
PLAN = Plan(
    locks={},
    holder="a test",
    lease=1800.0,
    good=None,
    command=None,
    put_back=(),
    touched="stop.out",
    ports=(),
    health=(),
    request=(),
    start=0.0,
)
"""What the fake guardian is told; it does what a test tells it."""


class FakeClock:
    """Time that passes when somebody sleeps, and only then."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    def time(self) -> float:
        """Seconds since the epoch."""
        return 1_780_000_000 + self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Lets time pass at once."""
        with self._lock:
            self._now += seconds
        time.sleep(0.0002)  # The attempt's other thread must come to its turn as well.


class SetClock(FakeClock):
    """One whose wall clock may be set: `shift` is by how many seconds it then differs."""

    shift = 0.0

    def time(self) -> float:
        """Seconds since the epoch, as somebody has set them."""
        return super().time() + self.shift


LogFate = Literal["kept", "never written", "of another run", "shrinks", "replaced", "deleted"]


@dataclass(frozen=True)
class Behaviour:
    """What one start of the stack does. Times are seconds after the start.

    Attributes:
        lines: when a line is written, and the line.
        exit: when the script's own process ends, with what code.
        listens: who listens on the port from the beginning.
        answer: the body of the answer to the request; `status` its HTTP status.
        after_stop: lines that are written when our stop has begun.
        undying: a process stays after the stop.
        holds_port: the port stays taken after the stop.
        log: what happens to the log, at `tampered` seconds where it is not from the beginning.
        supervisor_dies: when the supervisor dies.
        silent: how many calls go unanswered, from when on.
        unheard: it starts, and nobody hears of it.
        busy: it uses all of a core, whatever it says.
        deaf: it takes requests and never answers.
    """

    lines: tuple[tuple[float, str], ...] = ()
    exit: tuple[float, int] | None = None
    listens: Literal["ours", "foreign", "nobody"] = "ours"
    answer: str = '{"text": "because"}'
    status: int = 200
    after_stop: tuple[str, ...] = ()
    undying: bool = False
    holds_port: bool = False
    log: LogFate = "kept"
    tampered: float = 1.0
    supervisor_dies: float | None = None
    silent: tuple[float, int] | None = None
    unheard: bool = False
    busy: bool = False
    deaf: bool = False


def said(*texts: str) -> tuple[tuple[float, str], ...]:
    """Lines that are written half a second apart."""
    return tuple((0.5 * (n + 1), text) for n, text in enumerate(texts))


def serves(*before: str, **more: object) -> Behaviour:
    """A start that works."""
    return Behaviour(lines=said("loading", *before, "capturing", READY), **more)  # type: ignore[arg-type]


def fails(*texts: str, **more: object) -> Behaviour:
    """A start that writes these lines and never becomes ready."""
    return Behaviour(lines=said("loading", *texts), **more)  # type: ignore[arg-type]


Stack = Callable[[Configuration, int], Behaviour]
"""What a configuration does at its n-th start, counted from 1."""


def stack_of(world: World, playbook: Playbook) -> Stack:
    """The stack of a world: it shows its levels, then works, or dies of its symptom while it captures.

    Where the symptom is a silence, it stands still in that phase.
    """

    def behave(configuration: Configuration, _: int) -> Behaviour:
        effect = {**configuration.root, **{f: playbook.bad[f] for f in world.stubborn}}
        shown = [f"{f} is {level}" for f, level in effect.items() if f not in world.silent]
        symptom = world.symptom(configuration)
        if symptom in HANGS:
            return fails(*shown, "capturing") if symptom == "hang in capture" else fails(*shown)
        return fails(*shown, "capturing", f"error: {symptom}") if symptom else serves(*shown)

    return behave


@dataclass
class _Run:
    """A start of the stack on the fake target."""

    number: int
    began: float
    tag: str
    behaviour: Behaviour
    stopped: float | None = None
    unheard: bool = False
    guarded: bool = False

    @property
    def main(self) -> dict[str, object]:
        """The record of the script's own process."""
        return {"pid": 1000 + self.number, "start": self.number, "boot": BOOT, "name": "serve"}

    @property
    def supervisor(self) -> dict[str, object]:
        """The record of the supervisor."""
        return {"pid": 2000 + self.number, "start": self.number, "boot": BOOT, "name": "python3"}


@dataclass
class FakeHost:
    """A target that interprets the commands which the real launcher sends.

    Attributes:
        clock: its time.
        playbook: tells which configuration an environment stands for.
        stack: what a start does.
        strangers: ports that somebody else listens on.
        unanswered: how many of the next calls are lost on the way, after `answered` more.
        free_kib: the free space.
        around: what a look around shows, beside the boot.
        looked: how often somebody looked around.
        taken_over: what the guardian did, once it has.
        before_run: is called before a start, with the attempt's folder.
        starts: the configurations started, in order.
        calls: the commands that were sent, in order.
    """

    clock: FakeClock
    playbook: Playbook
    stack: Stack
    strangers: frozenset[int] = frozenset()
    unanswered: int = 0
    answered: int = 0
    free_kib: int = 1 << 30
    around: Mapping[str, object] = field(default_factory=lambda: {"kernel": "6.8"})
    looked: int = 0
    taken_over: dict[str, object] | None = None
    before_run: Callable[[str], None] = lambda _: None
    starts: list[Configuration] = field(default_factory=list)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    name: str = "fake"
    home: str = "/home/me"
    python: str = "python3"
    environment: Mapping[str, str] = field(default_factory=dict)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _counts: Counter[Configuration] = field(default_factory=Counter)

    # --- the host ---------------------------------------------------------------------------------------

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Carries out one of the commands that the agent knows."""
        del timeout
        self._answer()
        self.calls.append(tuple(argv))
        match tuple(argv):
            case (_, "-I", "-S", "-", _):
                self.looked += 1
                return _said({"boot": BOOT, **self.around})
            case (_, "-I", "-S", "-c", _, *paths):
                known = [self.files.get(path) for path in paths]
                return _printed("\n".join(hashlib.sha256(k).hexdigest() if k else "missing" for k in known))
            case (_, "-I", "-S", _, "run" | "probe", _, _) if self.taken_over:
                return _said({"fault": "fenced", "detail": "the guardian has taken over"})
            case (_, "-I", "-S", _, "run", folder, _):
                return self._start(folder)
            case (_, "-I", "-S", _, "status", folder, _):
                return _said(self._status(folder))
            case (_, "-I", "-S", _, "probe", folder, _):
                return _said(self._probe(folder, json.loads(stdin)))
            case (_, "-I", "-S", _, "stacks", folder, _):
                return _said(self._stacks(folder))
            case (_, "-I", "-S", _, "stop", folder, _):
                return _said(self._stop(folder))
            case (_, "-I", "-S", _, verb, *_) if argv[3].endswith("/guardian.py"):
                return _said(self._guardian(verb))
            case ("df", *_):
                return _printed(f"Filesystem 1024-blocks Used Available\n/dev/fake 0 0 {self.free_kib} 0% /")
            case ("cat", *_):
                return _printed(BOOT)
            case _:
                return _printed("")

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """Keeps the part of a file."""
        del mode
        self._answer()
        self.files[path + ".part"] = data
        return path + ".part"

    def rename(self, source: str, target: str) -> None:
        """Gives a file its name."""
        self._answer()
        self.files[target] = self.files.pop(source)

    def read(self, path: str, offset: int, size: int) -> bytes | None:
        """Some bytes of a file."""
        self._answer()
        data = self._content(path)
        return None if data is None else data[offset : offset + size]

    def stat(self, path: str) -> Stat | None:
        """A file as it is now."""
        self._answer()
        data = self._content(path)
        run = self._runs.get(path.rpartition("/")[0])
        other = run is not None and run.behaviour.log == "replaced" and self._tampered(run)
        return None if data is None else Stat(len(data), f"{path}:{other}", 0.0)

    def lose(self, number: int) -> None:
        """Loses the call of that number from now, counted from 1, with its repetition, and no other."""
        self.answered, self.unanswered = number - 1, 2

    # --- the target -------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Loses the call, where calls are lost."""
        for run in self._runs.values():
            silent = run.behaviour.silent
            if silent and not run.unheard and self._age(run) >= silent[0]:
                run.unheard = True
                self.unanswered += silent[1]
        if self.unanswered and self.answered:
            self.answered -= 1
        elif self.unanswered:
            self.unanswered -= 1
            raise Unreachable(f"{self.name}: no answer")

    def _age(self, run: _Run) -> float:
        return self.clock.monotonic() - run.began

    def _tampered(self, run: _Run) -> bool:
        return self._age(run) >= run.behaviour.tampered

    def _ended(self, run: _Run) -> bool:
        """Whether the script's process has ended by itself, before any stop of ours."""
        until = self.clock.monotonic() if run.stopped is None else run.stopped
        return run.behaviour.exit is not None and until - run.began >= run.behaviour.exit[0]

    def _alive(self, run: _Run) -> bool:
        return run.stopped is None and not self._ended(run)

    def _content(self, path: str) -> bytes | None:
        folder, _, name = path.rpartition("/")
        run = self._runs.get(folder)
        if run is None or name not in {"log", "main_exit", "guarded", "result"}:
            return self.files.get(path)
        if name == "log":
            return self._log(run)
        if name == "guarded":
            return b"" if run.guarded else None
        if name == "result" and (self._ended(run) or run.stopped is not None):
            return json.dumps(self._stop(folder)).encode()
        return b"{}" if self._ended(run) else None

    def _log(self, run: _Run) -> bytes | None:
        done = run.behaviour
        until = self._age(run) if run.stopped is None else run.stopped - run.began
        if done.exit is not None:
            until = min(until, done.exit[0])
        lines = [text for at, text in done.lines if at <= until]
        lines += done.after_stop if run.stopped is not None else ()
        first = "# another log" if done.log == "of another run" else f"# bisect-agent attempt {run.tag}"
        data = "".join(f"{line}\n" for line in (first, *lines)).encode()
        if done.log == "never written" or (done.log == "deleted" and self._tampered(run)):
            return None
        return data[:10] if done.log == "shrinks" and self._tampered(run) else data

    def _start(self, folder: str) -> Completed:
        self.before_run(folder)
        order = json.loads(self.files[f"{folder}/order.json"])
        if hashlib.sha256(self.files[f"{folder}/launch.sh"]).hexdigest() != order["sha256"]:
            return _said({"claimed": False, "fault": "script", "detail": "not the script that was ordered"})
        if folder in self._runs:
            return _said({"claimed": False, "fault": "claimed", "detail": "claimed before"}, ALREADY_CLAIMED)
        env = order["env"]
        configuration = Configuration({f.name: env[f.name.upper()] for f in self.playbook.factors})
        self.starts.append(configuration)
        self._counts[configuration] += 1
        behaviour = self.stack(configuration, self._counts[configuration])
        run = _Run(len(self.starts), self.clock.monotonic(), order["tag"], behaviour)
        self._runs[folder] = run
        if behaviour.unheard:
            raise Unreachable(f"{self.name}: no answer")
        return _said({"claimed": True, "supervisor": run.supervisor, "main": run.main})

    def _status(self, folder: str) -> dict[str, object]:
        run = self._runs[folder]
        dies = run.behaviour.supervisor_dies
        dead = not self._alive(run) or (dies is not None and self._age(run) >= dies)
        return {
            "claimed": True,
            "guarded": run.guarded,
            "supervisor": "dead" if dead else "alive",
            "main": "alive" if self._alive(run) else "dead",
            "processes": {"supervisor": run.supervisor, "main": run.main},
            "main_exit": self._exit(run),
            "result": None,
            "log": None,
        }

    def take_over(self) -> None:
        """What the guardian does when the lease has ended: what runs is ended, and `good` is up."""
        for run in self._runs.values():
            if self._alive(run):
                run.stopped, run.guarded = self.clock.monotonic(), True
        why, ended = "nothing was heard of the agent", [f for f, run in self._runs.items() if run.guarded]
        report = {"fence": 1, "why": why, "time": self.clock.time(), "ended": ended, "good": "guard-0"}
        self.taken_over = {**report, "restored": True}

    def _guardian(self, verb: str) -> dict[str, object]:
        reports = [self.taken_over] if self.taken_over else []
        match verb:
            case "guard":
                guardian = {"pid": 3000, "start": 1, "boot": BOOT, "name": "python3"}
                return {"fence": 1, "guardian": guardian, "reports": reports}
            case "reports":
                return {"reports": reports, "watching": not reports}
            case _ if self.taken_over:
                return {"fault": "fenced", "detail": "the guardian has taken over"}
            case _:
                return {"until": True}

    def _exit(self, run: _Run) -> dict[str, int] | None:
        if run.behaviour.exit is None or not self._ended(run):
            return None
        code = run.behaviour.exit[1]
        return {"signal": -code} if code < 0 else {"code": code}

    def _probe(self, folder: str, wanted: dict[str, list[object]]) -> dict[str, object]:
        run = self._runs.get(folder)
        return {
            "ports": {str(port): self._listeners(int(str(port)), folder) for port in wanted["ports"]},
            "http": [self._response(run, request) for request in wanted["http"]],
        }

    def _stacks(self, folder: str) -> dict[str, object]:
        run = self._runs[folder]
        cpu = self._age(run) if run.behaviour.busy else 0.0
        thread = {"tid": 1000 + run.number, "name": "serve", "state": "S", "wait": "futex_wait"}
        given = json.loads(self.files[f"{folder}/order.json"])["env"].values()
        state = {"process": run.main, "command": f"serve {' '.join(given)}", "cpu": cpu, "threads": [thread]}
        return {"time": self.clock.monotonic(), "processes": [state] if self._alive(run) else []}

    def _listeners(self, port: int, asking: str) -> list[dict[str, object]]:
        if port in self.strangers:
            return [_listener(77, "redis", ours=False)]
        for folder, run in self._runs.items():
            mine = folder == asking and run.behaviour.listens == "ours"
            if (self._alive(run) and run.behaviour.listens != "nobody") or run.behaviour.holds_port:
                return [_listener(1000 + run.number, "serve", ours=mine)]
        return []

    def _response(self, run: _Run | None, request: object) -> dict[str, object]:
        assert isinstance(request, dict)
        if run is None or not self._alive(run):
            return {"status": None, "body": "", "error": "connection refused"}
        if run.behaviour.deaf:
            return {"status": None, "body": "", "error": "TimeoutError: no whole answer in time"}
        if request["body"] is None:
            return {"status": 200, "body": "ok", "error": ""}
        return {"status": run.behaviour.status, "body": run.behaviour.answer, "error": ""}

    def _stop(self, folder: str) -> dict[str, object]:
        run = self._runs.get(folder)
        by_itself = run is not None and self._ended(run)
        if run is not None and run.stopped is None:
            run.stopped = self.clock.monotonic()
        return {
            "exit": self._exit(run) if run else None,
            "stopped": not by_itself,
            "killed": 0,
            "left": [run.main] if run and run.behaviour.undying else [],
            "time": self.clock.time(),
            "supervisor": "alive",
        }

    def alive(self) -> list[Configuration]:
        """What still runs on the target."""
        return [self.starts[run.number - 1] for run in self._runs.values() if self._alive(run)]


def _said(answer: dict[str, object], code: int = 0) -> Completed:
    return Completed(code, json.dumps(answer).encode(), b"")


def _printed(text: str) -> Completed:
    return Completed(0, text.encode() + b"\n", b"")


def _listener(pid: int, name: str, *, ours: bool) -> dict[str, object]:
    return {"pid": pid, "start": pid, "boot": BOOT, "name": name, "user": "somebody", "ours": ours}


class Lab:
    """An investigation of a fake target, in a run folder of its own.

    `further` are the stacks of further targets, where the playbook has some: what is run there.
    """

    def __init__(
        self,
        path: Path,
        playbook: Playbook,
        stack: Stack,
        listener: Listener | None = None,
        ours: Mapping[str, str] = MappingProxyType({"HOME": "/root"}),
        clock: FakeClock | None = None,
        further: Sequence[Stack] = (),
    ) -> None:
        self.clock = clock or FakeClock()
        self.hosts = {
            number: FakeHost(self.clock, playbook.at(number), there)
            for number, there in enumerate((stack, *further), FIRST)
        }
        self.host = self.hosts[FIRST]
        self.folder = RunFolder.create(path, b"playbook: 1\n", playbook)
        self.journal = Journal(path, self.clock.time)
        self.listener = listener
        self.edges = {
            number: Edge(
                host=host,
                launcher=Launcher(host, FOLDER),
                folder=FOLDER,
                python="python3",
                clock=self.clock,
                ours=ours,
                secrets=tuple(secrets_of(playbook, ours).values()),
            )
            for number, host in self.hosts.items()
        }
        self.edge = self.edges[FIRST]
        for edge in self.edges.values():
            edge.launcher.guard(PLAN)
        tags = iter(range(10**6))
        self.engine = Engine(
            playbook, self.folder, self.journal, self.edges, "0", self._tell, lambda: f"{next(tags):08}"
        )

    def begin(self) -> Self:
        """Writes the first line of the journal."""
        self.engine.begin(
            RunStarted(
                run="lab",
                playbook=digest(self.folder.read(PLAYBOOK)),
                resolved=digest(self.folder.read(RESOLVED)),
                versions={"bisect_agent": "0"},
            )
        )
        return self

    def _tell(self, entry: Entry) -> None:
        if self.listener is not None:
            self.listener(entry)

    def kinds(self, trial: str | None = None) -> list[str]:
        """The kinds of all events, or of those of one trial."""
        return [
            e.event.kind
            for e in self.journal.entries
            if trial is None or trial == getattr(e.event, "trial", None)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.journal.close()
