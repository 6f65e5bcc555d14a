"""The controller's side of the target: puts the supervisor there, prepares, starts, asks and stops attempts.

What is put is verified where it will be used, before it gets its name: a script that was cut, swallowed
or never written cannot be started.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import resources
from pathlib import PurePosixPath
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bisect_agent import errors
from bisect_agent.hosts import Completed, DiskFull, Host, TimedOut
from bisect_agent.model import Death, Exit, Frozen, HttpAnswer, Process, Reason, Takeover, Trouble
from bisect_agent.stacks import Look

CALL = 30.0
"""Seconds for a call that does its work at once."""
DISCARD = 120.0
"""Seconds for removing a folder, which may hold many files."""
ALREADY_CLAIMED = 75
"""The exit status of a start of an attempt that was claimed before."""
PAPER = 1 << 24
"""The most bytes taken of a file of an attempt's that is not its log."""
LOG = "log"
"""The name of the log in an attempt's folder."""

_SHA256 = """
import hashlib, os, sys
for path in sys.argv[1:]:
    print(hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.exists(path) else "missing")
"""
# Python, not sha256sum: it is what the target must have anyway, and the supervisor itself is verified
# by it before it can be asked anything.


_KEEP = """
[ -d "$1" ] && [ ! -L "$1" ] && { echo "$1 is a folder" >&2; exit 1; }
[ -e "$2.kept" ] && exit 0
mkdir -p -m 700 -- "${2%/*}" || exit 1
if [ -e "$1" ] || [ -L "$1" ]; then cp -a -- "$1" "$2" || exit 1; fi
: >"$2.kept"
"""
_PUT_BACK = """
[ -e "$2.kept" ] || exit 0
if [ -e "$2" ] || [ -L "$2" ]; then
  cp -a -- "$2" "$1.put-back" && mv -fT -- "$1.put-back" "$1" || exit 1
else
  rm -f -- "$1" || exit 1
fi
rm -f -- "$2.kept" "$2"
"""
# The mark is made last and removed last: whatever crashes, what is kept is what was there before us.


class Setback(Exception):
    """Something of ours failed; the attempt says nothing about its configuration."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.trouble = Trouble(reason=reason, detail=detail)


@dataclass(frozen=True)
class Order:
    """What to start.

    Attributes:
        script: the launch script; bash runs it.
        arguments: its `"$@"`.
        env: its environment, all of it.
        files: what is written before the start, by absolute path; None: there will be no such file.
        cwd: the folder on the target it runs in.
        tag: what names this attempt and no other, in the log and in the environment of its processes.
        purpose: what it is for; the guardian keeps a restored server, and a question disturbs nobody.
        grace: seconds between TERM and KILL.
        bound: seconds after that in which all must be gone.
    """

    script: bytes
    arguments: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    tag: str
    grace: float
    bound: float
    files: Mapping[str, str | None] = field(default_factory=dict)
    purpose: Literal["trial", "restore", "question"] = "trial"


@dataclass(frozen=True)
class Request:
    """One request to 127.0.0.1 on the target: GET, or POST of a JSON `body`; all within `timeout` seconds."""

    port: int
    path: str
    timeout: float
    body: str | None = None


class Started(Frozen):
    """Who runs now: the supervisor, and the script's own process."""

    supervisor: Process
    main: Process


class MemoryKills(Frozen):
    """What the kernel says of its out-of-memory kills since the start; None where it cannot be read.

    `counted` is by how much `counter`, a file on the target, rose; `logged` are the lines of the
    kernel's log that name a process of the attempt.
    """

    counter: str = ""
    counted: int | None = None
    logged: tuple[str, ...] | None = None


class Stopped(Frozen):
    """How an attempt ended. `exit` is None where nobody saw it; `time` is seconds since the epoch.

    `stopped` is False where the whole tree ended by itself. `left` did not die: the target is dirty.
    `deaths` are processes that a signal ended before our stop began. `suspects` live, and may be of an
    attempt whose supervisor was killed: they were born when nobody looked, and were left alone.
    """

    exit: Exit | None
    stopped: bool
    killed: int
    left: tuple[Process, ...]
    deaths: tuple[Death, ...] = ()
    memory: MemoryKills = MemoryKills()
    suspects: tuple[Process, ...] = ()
    time: float
    supervisor: Literal["alive", "dead"]


class Processes(Frozen):
    """What the attempt's files say of who was started."""

    supervisor: Process | None
    main: Process | None


class LogStat(Frozen):
    """The log as it is now: bytes, and what tells it from another file of its name."""

    size: int
    identity: str


Life = Literal["alive", "dead", "none"]


class Status(Frozen):
    """What the target knows of an attempt now. A zombie is dead; `none` never was.

    `guarded`: the guardian has ended it.
    """

    claimed: bool
    guarded: bool = False
    supervisor: Life
    main: Life
    processes: Processes
    main_exit: Exit | None
    result: Stopped | None
    log: LogStat | None


class Listener(BaseModel):
    """Who holds a listening socket. `pid` is None where the target does not let us see its owner.

    `attempt` is the folder of the attempt, of any run, that it is of.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: int | None
    start: int = 0
    name: str = ""
    user: str
    ours: bool
    attempt: str = ""


class Probe(Frozen):
    """Who listens on each port, and what each request got, in the order they were asked."""

    ports: Mapping[int, tuple[Listener, ...]]
    http: tuple[HttpAnswer, ...]


class _Fault(Frozen):
    """A verb's answer that says why it could not do its work."""

    claimed: bool = False
    fault: Literal["script", "claimed", "disk", "launch", "missing", "fenced", "unguarded"]
    detail: str


class _Claimed(Started):
    claimed: Literal[True]


@dataclass(frozen=True)
class Plan:
    """What a guardian holds, and what it brings up when the agent is heard no more.

    Attributes:
        locks: the files to lock, by what they stand for.
        holder: who we are, for a person who finds them taken.
        lease: seconds without a word of ours after which our lease ends.
        good: the name of the prepared attempt to start; None where that is not what is restored.
        command: the shell script that brings the owners' server back.
        put_back: commands that give the files which factors write back what they held.
        touched: the name of a file in the run's folder that shows that the owners' server was ended.
        ports, health, request: how the restored server is seen to answer.
        start: seconds that it gets for it.
    """

    locks: Mapping[str, str]
    holder: str
    lease: float
    good: str | None
    command: str | None
    put_back: Sequence[Sequence[str]]
    touched: str
    ports: Sequence[int]
    health: Sequence[Request]
    request: Sequence[Request]
    start: float


class Guarded(Frozen):
    """The target is ours, with a fencing number; or who holds it, or a guardian that acts at this moment.

    `reports` are what guardians of this run have done before.
    """

    fence: int | None = None
    guardian: Process | None = None
    reports: tuple[Takeover, ...] = ()
    held: Mapping[str, str] = Field(default_factory=dict)
    acting: Takeover | None = None


class Takeovers(Frozen):
    """What guardians of a run have done, and whether one watches now."""

    reports: tuple[Takeover, ...]
    watching: bool


class _Guarding(Guarded):
    """An answer must say one of the three."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.fence is None and not self.held and self.acting is None:
            raise ValueError("neither ours, nor held, nor at work")
        return self


class _Heard(Frozen):
    until: Literal[True]


class _Bounds(BaseModel):
    """The part of an order that says how long a stop may take."""

    grace: float = Field(ge=0)
    bound: float = Field(ge=0)


_REASON = {
    "script": Reason.SCRIPT,
    "claimed": Reason.NOT_LAUNCHED,
    "disk": Reason.DISK,
    "launch": Reason.NOT_LAUNCHED,
    "missing": Reason.SCRIPT,
    "fenced": Reason.GUARDED,
    "unguarded": Reason.UNGUARDED,
}

_Answer = TypeVar("_Answer", bound=BaseModel)
_Done = TypeVar("_Done")


def first_line(tag: str) -> bytes:
    """What the log of the attempt with this tag begins with."""
    return f"# bisect-agent attempt {tag}\n".encode()


_PARSE = ("env", "-u", "BASH_ENV", "LC_ALL=C", "bash", "-n")


def bash_complaint(host: Host, script: bytes) -> str:
    """What bash says against a launch script before anything is put there; empty where it can read it."""
    return _bash_complaint(host.run((*_PARSE, "/dev/stdin"), stdin=script, timeout=CALL))


def _bash_complaint(ended: Completed) -> str:
    if ended.returncode or ended.stderr:
        return _text(ended.stderr) or f"bash ended with exit status {ended.returncode}"
    return ""


class Launcher:
    """Attempts on one host.

    Args:
        host: the target.
        folder: absolute path there; the supervisor and every attempt's folder go into it.
        python: the target's Python, 3.6 or later.

    Raises:
        Setback: from every method, when our side failed; `errors.TargetError` when the target cannot
            be used at all.
    """

    def __init__(self, host: Host, folder: str, python: str = "python3") -> None:
        self._host = host
        self._folder = folder
        self._python = python
        self._supervisor = f"{folder}/supervisor.py"
        self._guardian = f"{folder}/guardian.py"
        self._plan: Plan | None = None
        self._fence: int | None = None

    def install(self) -> None:
        """Puts the supervisor and the guardian on the target, unless they are there."""
        with _setbacks():
            for place in (self._supervisor, self._guardian):
                source = resources.files("bisect_agent.target").joinpath(PurePosixPath(place).name)
                _twice(partial(self._install, place, source.read_bytes()))

    def _install(self, place: str, source: bytes) -> None:
        if self._sha256(place).get(place) != hashlib.sha256(source).hexdigest():
            self._put(place, source)

    # --- the guardian ---------------------------------------------------------------------------------

    def guard(self, plan: Plan) -> Guarded:
        """Takes the target for this run, and has it guarded from now on; or says why not.

        From then on every call renews the lease, and nothing is started without it.
        """
        paper = json.dumps(asdict(plan)).encode()
        place = f"{self._folder}/guard/plan.json"
        with _setbacks():
            _twice(lambda: self._put(place, paper))
            found = self._answer(self._call_guardian("guard"), _Guarding, "guard")
        if found.fence is not None:
            self._plan, self._fence = plan, found.fence
        return found

    def renew(self, silence: float) -> None:
        """Says that nothing may be heard of us for so many seconds."""
        if self._fence is not None:
            self._told("renew", str(self._fence), str(silence))

    def release(self) -> None:
        """Lets the target go; nobody guards it any more. A second call does nothing."""
        if self._fence is not None:
            self._told("release", str(self._fence))
            self._fence = None

    def dismiss(self) -> None:
        """Ends a guardian that watches over a run which has ended."""
        if self.takeovers().watching:
            self._told("release", "-")

    def hand_over(self) -> bool:
        """Leaves the target to its guardian, which at once does what it does when a lease ends."""
        if self._fence is None:
            return False
        self._told("hand-over", str(self._fence))
        self._fence = None
        return True

    def takeovers(self) -> Takeovers:
        """What guardians have done on this run's target."""
        with _setbacks():
            return self._answer(self._call_guardian("reports"), Takeovers, "reports")

    def _told(self, *words: str) -> None:
        with _setbacks():
            self._answer(self._call_guardian(*words), _Heard, words[0])

    def _call_guardian(self, verb: str, *words: str) -> Completed:
        argv = (self._python, "-I", "-S", self._guardian, verb, *(words or ("-",)))
        return _twice(lambda: self._host.run(argv, timeout=CALL))

    # --- attempts -------------------------------------------------------------------------------------

    def prepare(self, name: str, order: Order) -> str:
        """Writes an attempt's folder and returns its path. Nothing is started.

        The script gets its name last, when its hash was seen on the target and bash can parse it.
        """
        folder = f"{self._folder}/{name}"
        with _setbacks():
            _twice(lambda: self._write(folder, order))
        return folder

    def _write(self, folder: str, order: Order) -> None:
        contents = {f"{folder}/launch.sh": order.script, f"{folder}/order.json": _paper(order)}
        script, paper = self._put_verified(contents)
        self._parse(script)
        self._host.rename(paper, f"{folder}/order.json")
        self._host.rename(script, f"{folder}/launch.sh")

    def keep(self, path: str) -> None:
        """Keeps what a file holds, or that there is none, until `put_back`. A second call does nothing."""
        with _setbacks():
            _twice(lambda: self._move(_KEEP, path))

    def put_back(self, path: str) -> None:
        """Gives a file back what it held before `keep`; where nothing is kept, it does nothing."""
        with _setbacks():
            _twice(lambda: self._move(_PUT_BACK, path))

    def discard(self, folder: str) -> None:
        """Removes a folder of an attempt with all that is in it."""
        with _setbacks():
            _twice(lambda: self._must(["rm", "-rf", "--", folder], folder, timeout=DISCARD))

    def start(self, folder: str) -> Started:
        """Starts a prepared attempt, at most once ever.

        The target itself compares the script with the order's hash right before it takes the claim.
        After a `Setback` whose reason is not SCRIPT something may run all the same: `stop` tells.
        """
        try:
            return self._start(folder)
        except Setback as setback:
            if setback.trouble.reason is not Reason.UNGUARDED or self._plan is None:
                raise
        # The guardian is gone, and this start came to nothing for that: another takes its place first.
        if self.guard(self._plan).fence is None:
            detail = f"{self._host.name}: its guardian is gone, and another run has the target"
            raise Setback(Reason.GUARDED, detail)
        return self._start(folder)

    def _start(self, folder: str) -> Started:
        with _setbacks():
            ended = self._call("run", folder, once=True)
            try:
                claimed = self._answer(ended, _Claimed, "run")
            except Setback as setback:
                if setback.trouble.reason is Reason.NOT_LAUNCHED and ended.returncode != ALREADY_CLAIMED:
                    raise Setback(
                        Reason.NOT_LAUNCHED, self._with_log(setback.trouble.detail, folder)
                    ) from None
                raise
            return Started(supervisor=claimed.supervisor, main=claimed.main)

    def status(self, folder: str) -> Status:
        """What the target knows of an attempt."""
        with _setbacks():
            return self._answer(self._call("status", folder), Status, "status")

    def probe(self, folder: str | None, ports: Sequence[int], requests: Sequence[Request] = ()) -> Probe:
        """Who listens on the ports, and what a server on 127.0.0.1 answers.

        Args:
            folder: the attempt whose processes are ours; None before any, when nobody's are.
            ports: TCP ports.
            requests: sent one after another.
        """
        wanted = {"ports": list(ports), "http": [asdict(request) for request in requests]}
        timeout = CALL + sum(request.timeout for request in requests)
        with _setbacks():
            ended = self._call("probe", folder or "-", timeout=timeout, stdin=json.dumps(wanted).encode())
            return self._answer(ended, Probe, "probe")

    def stacks(self, folder: str) -> Look:
        """What every process of an attempt does at this moment."""
        with _setbacks():
            return self._answer(self._call("stacks", folder), Look, "stacks")

    def stop(self, folder: str) -> Stopped:
        """Ends all of an attempt. Afterwards it cannot be started any more, and what is `left` did not die.

        Right at any moment: before the start, after the end, after the supervisor's death, a second time.
        What has a result was claimed, and nothing of it is left: then there is nothing to do but to read it.
        """
        with _setbacks():
            result = self._result(folder)
            if result is not None and not result.left:
                return result
            bounds = self._bounds(folder)
            # Once through the supervisor, and once more without it should it not act.
            timeout = CALL + 2 * (bounds.grace + bounds.bound)
            return self._answer(self._call("stop", folder, timeout=timeout), Stopped, "stop")

    def _call(
        self, verb: str, place: str, *, timeout: float = CALL, stdin: bytes = b"", once: bool = False
    ) -> Completed:
        # Isolated and without site-packages: nothing of the target's Python set-up is run, and it is quicker.
        fence = () if self._fence is None else (str(self._fence),)
        argv = (self._python, "-I", "-S", self._supervisor, verb, place, *fence)

        def call() -> Completed:
            return self._host.run(argv, timeout=timeout, stdin=stdin)

        return call() if once else _twice(call)

    def _answer(self, ended: Completed, kind: type[_Answer], verb: str) -> _Answer:
        """The one object a verb said; a fault, or anything else, as a setback."""
        try:
            return kind.model_validate_json(ended.stdout)
        except ValidationError as unexpected:
            fault = _fault(ended.stdout)
            if fault is not None:
                raise Setback(_REASON[fault.fault], f"{self._host.name}: {fault.detail}") from None
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()[-2000:]
            message = f"{self._host.name}: `{verb}` gave no answer (exit status {ended.returncode}): {said}"
            raise Setback(Reason.UNREACHABLE, message) from unexpected

    def _move(self, script: str, path: str) -> None:
        """Runs one of the two scripts about what a file held before us."""
        self._must(self._moving(script, path), path)

    def putting_back(self, path: str) -> Sequence[str]:
        """The command that does what `put_back` does."""
        return self._moving(_PUT_BACK, path)

    def _moving(self, script: str, path: str) -> Sequence[str]:
        kept = f"{self._folder}/kept/{hashlib.sha256(path.encode()).hexdigest()[:16]}"
        return ["bash", "-c", script, "bash", path, kept]

    def _must(self, argv: Sequence[str], path: str, timeout: float = CALL) -> None:
        """Runs a command that the target can carry out, unless something is wrong there."""
        ended = self._host.run(argv, timeout=timeout)
        if ended.returncode:
            message = f"{self._host.name}: {_text(ended.stderr) or f'{path}: {argv[0]} failed'}"
            raise errors.TargetError(message, f"look at {path} there")

    def _put(self, path: str, data: bytes) -> None:
        """Gives a file this content, when the target has seen our hash there."""
        (part,) = self._put_verified({path: data})
        self._host.rename(part, path)

    def _put_verified(self, contents: Mapping[str, bytes]) -> list[str]:
        """Writes the part of each file; returns their names when the target has seen our hashes there."""
        parts = [self._host.put(path, data) for path, data in contents.items()]
        found = self._sha256(*parts)
        for part, data in zip(parts, contents.values(), strict=True):
            if found.get(part) != hashlib.sha256(data).hexdigest():
                message = f"{self._host.name}:{part} does not hold the {len(data)} bytes written to it"
                raise Setback(Reason.SCRIPT, message)
        return parts

    def _sha256(self, *paths: str) -> dict[str, str]:
        """The hash of what each file holds, and of a file that is not there the word `missing`."""
        ended = self._host.run((self._python, "-I", "-S", "-c", _SHA256, *paths), timeout=CALL)
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip()[-500:]
            message = f"{self._host.name}: `{self._python}` cannot read {' '.join(paths)}: {said}"
            raise errors.TargetError(message, "the target needs Python 3.6 or later, as python3 on its PATH")
        return dict(zip(paths, ended.stdout.decode().split(), strict=False))

    def _parse(self, script: str) -> None:
        """Lets bash parse the script. Its warnings count: a here-document that swallows the rest is one."""
        if complaint := _bash_complaint(self._host.run((*_PARSE, script), timeout=CALL)):
            raise Setback(Reason.SCRIPT, f"bash cannot read the launch script: {complaint}")

    def _result(self, folder: str) -> Stopped | None:
        """The result of an attempt that has ended; None where there is none that can be read."""
        paper = self._host.read(f"{folder}/result", 0, PAPER)
        try:
            return None if paper is None else Stopped.model_validate_json(paper)
        except ValidationError:
            return None

    def _bounds(self, folder: str) -> _Bounds:
        paper = self._host.read(f"{folder}/order.json", 0, PAPER)
        if paper is None:
            return _Bounds(grace=0, bound=0)
        try:
            return _Bounds.model_validate_json(paper)
        except ValidationError as error:
            message = f"{self._host.name}:{folder}/order.json is damaged: {error}"
            raise Setback(Reason.SCRIPT, message) from error

    def _with_log(self, detail: str, folder: str) -> str:
        said = self._host.read(f"{folder}/supervisor.log", 0, 1 << 16)
        return f"{detail}\n{_text(said)}" if said else detail


def _paper(order: Order) -> bytes:
    """The order as the supervisor reads it."""
    return json.dumps(
        {
            "tag": order.tag,
            "first_line": first_line(order.tag).decode(),
            "sha256": hashlib.sha256(order.script).hexdigest(),
            "cwd": order.cwd,
            "env": dict(order.env),
            "arguments": list(order.arguments),
            "files": dict(order.files),
            "purpose": order.purpose,
            "grace": order.grace,
            "bound": order.bound,
        }
    ).encode()


def _fault(stdout: bytes) -> _Fault | None:
    try:
        return _Fault.model_validate_json(stdout)
    except ValidationError:
        return None


def _text(said: bytes) -> str:
    return said.decode(errors="replace").strip()[-2000:]


def _twice(deed: Callable[[], _Done]) -> _Done:
    """Does what may be done twice; once more where the link broke over it, for that says nothing about it."""
    try:
        return deed()
    except TimedOut:
        raise
    except errors.Unreachable:
        return deed()


@contextmanager
def _setbacks() -> Iterator[None]:
    """Turns a host that is silent, or full, into a setback of the attempt."""
    try:
        yield
    except errors.Unreachable as error:
        raise Setback(Reason.UNREACHABLE, error.message) from error
    except DiskFull as error:
        raise Setback(Reason.DISK, error.message) from error
