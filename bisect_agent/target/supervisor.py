"""Runs on the target: starts one attempt, watches its whole tree of processes, ends exactly that tree.

    python3 supervisor.py run DIR            starts DIR/launch.sh as DIR/order.json says, at most once
    python3 supervisor.py status DIR         what is known of the attempt now
    python3 supervisor.py probe DIR|- <JSON  who listens on a port; what a server on 127.0.0.1 answers
    python3 supervisor.py stacks DIR         what every process of the attempt does at this moment
    python3 supervisor.py stop DIR           ends what is left of the attempt, and says what did not die

A further argument is the fencing number of an agent that holds the run's lease (see guardian.py): each call
renews the lease, and once it is lost, `run` and `probe` only say so.

Linux, Python 3.6 or later, standard library only. An answer is one JSON object on stdout with exit
status 0; `run` exits 75 where the attempt was claimed before. All truth is in files of DIR:

    order.json   what to start (tag, first_line, sha256, cwd, env, arguments, files, purpose, grace, bound)
    launch.sh    the script
    claim/       made by who may start it: an attempt is started at most once, whatever crashes
    stop         a stop was ordered: what has not started yet never will
    guarded      the guardian ordered it, since the agent was heard no more
    super, pid   the supervisor and the script's own process: pid, start time, boot
    log          output of the tree; its first line names this attempt
    tree         the tree when it last changed; its time is that of the last look at the tree
    began        what was true before the start: who takes our orphans, the kernel's count of memory kills
    main_exit    how the script's own process ended
    result       written last: how it ended, how many had to be killed, what is left

The supervisor is a child subreaper: whatever the tree does (double fork, setsid, another name, a
cleared environment), an orphan of it becomes the supervisor's own child. So the tree is what descends
from the supervisor, and it is empty exactly when the kernel says that the supervisor has no child.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import select
import signal
import sys
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

ALREADY_CLAIMED = 75
TICK = 0.2
"""Seconds between two looks at the tree; more where looking takes long, to leave the machine to the trial."""
START = 2.0
"""Seconds that `run` waits for the script's process."""
MARGIN = 2.0
"""Seconds that a supervisor gets, over grace and bound, to write its result."""
BODY = 256 * 1024
"""The most bytes taken of an HTTP answer."""
LOOK = 15.0
"""Seconds in which `stacks` answers, whatever is asked of how many processes."""
SPY = 5.0
"""Seconds that py-spy gets for one process."""
THREADS = 1024
"""The most threads that `stacks` tells of."""
FRAMES = 8
"""The most frames told of a thread's stack in the kernel."""
TEXT = 64 * 1024
"""The most bytes taken of what py-spy says of one process."""
PLACED = 0o644
"""The mode of a file that a factor writes: another user may be the one who reads it."""
DEATHS = 64
"""The most deaths that are remembered: the first ones matter."""
TAG = "BISECT_AGENT_TAG"
PR_SET_CHILD_SUBREAPER = 36

JSON = Dict[str, Any]


# --- processes --------------------------------------------------------------------------------------


class Process(NamedTuple):
    """A process as /proc shows it. The start time (clock ticks since boot) tells a reused pid.

    `status` is its wait status, once it has ended and where we may see it; else 0.
    """

    pid: int
    start: int
    name: str
    parent: int
    session: int
    alive: bool
    status: int

    def record(self) -> JSON:
        """What files and answers say of it."""
        return {"pid": self.pid, "start": self.start, "boot": boot_id(), "name": self.name}


HIDDEN = {"pid": 0, "start": 0, "boot": "", "name": "(a process that this user may not see)"}


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """What tells this boot's pids and start times from another's."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def look(pid: int) -> Optional[Process]:
    """The process of that pid, a zombie too; None where there is none that we may see."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read()
    except OSError:
        return None
    # A name may hold anything, `) R 1` too: the fields begin after the last parenthesis.
    before, _, after = text.rpartition(b")")
    fields = after.split()
    ended = fields[0] in (b"Z", b"X", b"x")
    # A first thread that ended reads as a zombie while the other threads run on: that is not dead.
    alive = not ended or int(fields[17]) > 1
    name = before.partition(b"(")[2].decode("utf-8", "replace")
    status = int(fields[49]) if ended and len(fields) > 49 else 0
    return Process(pid, int(fields[19]), name, int(fields[1]), int(fields[3]), alive, status)


def everyone() -> List[Process]:
    """Every process that we may see, those too that ended and were not waited for."""
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def living() -> List[Process]:
    """Every living process that we may see."""
    return [process for process in everyone() if process.alive]


def descendants(roots: Iterable[int], processes: List[Process]) -> List[Process]:
    """Those of `processes` whose line of parents leads to one of the roots."""
    children = {}  # type: Dict[int, List[Process]]
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found = []  # type: List[Process]
    parents = list(roots)
    while parents:
        born = children.pop(parents.pop(), [])
        found.extend(born)
        parents.extend(child.pid for child in born)
    return found


def find(record: Optional[JSON]) -> Optional[Process]:
    """The living process that a record speaks of; never a later one with its pid, nor another boot's."""
    if record is None or record["boot"] != boot_id():
        return None
    process = look(record["pid"])
    if process is None or not process.alive or process.start != record["start"]:
        return None
    return process


def send(process: Process, number: int) -> bool:
    """Signals that very process, or nobody: False where it is gone, or another user's."""
    try:
        descriptor = pin(process.pid)
        try:
            found = look(process.pid)
            if found is None or found.start != process.start:
                return False
            if descriptor is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            if descriptor is not None:
                os.close(descriptor)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def pin(pid: int) -> Optional[int]:
    """A descriptor that stays with the process that has the pid now; None where the system has none."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # Python knows the call, the kernel does not, or a sandbox forbids it.
        return None


def end(
    members: Callable[[], List[Process]], gone: Callable[[], bool], grace: float, bound: float
) -> Tuple[int, List[JSON]]:
    """TERM, `grace` seconds, then KILL until all are gone or `bound` more seconds have passed.

    Only who is there at the first look is asked with TERM: a helper that one of them starts in order
    to tidy up is let be until the grace is over.

    Returns:
        How many were killed; who is left, which is nobody only where `gone` says so.
    """
    begun = time.monotonic()
    killed = set()  # type: Set[Tuple[int, int]]
    found = members()
    for process in found:
        send(process, signal.SIGTERM)
    while not gone():
        passed = time.monotonic() - begun
        if passed > grace + bound:
            return len(killed), [process.record() for process in found] or [HIDDEN]
        if passed > grace:
            killed.update((p.pid, p.start) for p in found if send(p, signal.SIGKILL))
        time.sleep(0.02)
        found = members()
    return len(killed), []


# --- files ------------------------------------------------------------------------------------------


def write(path: str, content: Any, durable: bool = True) -> None:
    """Gives the file this content at one stroke."""
    part = "%s.%d.tmp" % (path, os.getpid())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        json.dump(content, file)
        file.flush()
        if durable:
            os.fsync(descriptor)
    os.rename(part, path)
    if durable:
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def try_write(path: str, content: Any, durable: bool = True) -> bool:
    """Like `write`, where a full disk or a removed folder must not end the watch."""
    try:
        write(path, content, durable)
    except OSError as error:
        if durable:
            sys.stderr.write("cannot write %s: %s\n" % (path, error))
        return False
    return True


def load(path: str) -> Any:
    """The content of a file of ours, or None where there is none (or a full disk left it empty)."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def place(path: str, text: Optional[str]) -> None:
    """Gives a file of the stack's this content at one stroke; without a text there will be no such file."""
    if text is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(encoded(path))
        return
    os.makedirs(os.path.dirname(encoded(path)), 0o700, exist_ok=True)
    part = encoded(path + ".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, PLACED)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, PLACED)
        file.write(encoded(text))
        file.flush()
        os.fsync(descriptor)
    os.rename(part, encoded(path))


def claim(folder: str) -> bool:
    """Whether this call, and no other ever, got the attempt."""
    try:
        os.mkdir(os.path.join(folder, "claim"), 0o700)
    except FileExistsError:
        return False
    return True


# --- run --------------------------------------------------------------------------------------------


def run(folder: str) -> int:
    """Claims the attempt and starts it under a supervisor of its own; answers when the script runs."""
    order = load(os.path.join(folder, "order.json"))
    wrong = script_fault(folder, order)
    if wrong:
        return answer({"claimed": False, "fault": "script", "detail": wrong})
    try:
        if not claim(folder):
            detail = "%s was claimed before; nothing was started" % folder
            answer({"claimed": False, "fault": "claimed", "detail": detail})
            return ALREADY_CLAIMED
        for path, text in order["files"].items():
            place(path, text)
    except OSError as error:
        return answer({"claimed": False, "fault": fault_of(error), "detail": str(error)})
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        return answer(report_of_start(reader))
    os.setsid()
    if os.fork():
        os._exit(0)
    detach(os.path.join(folder, "supervisor.log"), {writer})
    Supervisor(folder, order, writer).run()
    return 0


def script_fault(folder: str, order: Optional[JSON]) -> str:
    """Why the script is not the one that was ordered; empty where it is."""
    import hashlib  # Not on top: `status`, which is asked often, need not wait for it.

    path = os.path.join(folder, "launch.sh")
    if order is None:
        return "%s holds no order.json that can be read" % folder
    try:
        with open(path, "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        return "%s: %s" % (path, error.strerror)
    if found != order["sha256"]:
        return "%s has the sha256 %s, not that of the script written: %s" % (path, found, order["sha256"])
    return ""


def report_of_start(reader: int) -> JSON:
    """What the supervisor said of the start; an end of the pipe without a word is an answer as well."""
    ready, _, _ = select.select([reader], [], [], START)
    said = os.read(reader, select.PIPE_BUF) if ready else b""
    if said:
        return dict(json.loads(said.decode("ascii")))
    detail = "the supervisor ended before it started the script"
    if not ready:
        detail = "the script did not start within %g s" % START
    return {"claimed": True, "fault": "launch", "detail": detail}


def detach(log: str, keep: Set[int]) -> None:
    """Lets go of the caller: no descriptor of its channel but those to keep, no folder of its file system."""
    os.chdir("/")
    source = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(source, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):  # The listing's own descriptor is closed by now.
                os.close(int(name))


class Supervisor:
    """Holds one attempt from its start until nothing of it is left."""

    def __init__(self, folder: str, order: JSON, report: int) -> None:
        self.folder = folder
        self.order = order
        self.report = report
        self.stopping = False
        self.gone = False
        self.main = 0
        self.child = None  # type: Any
        self.exit = None  # type: Optional[JSON]
        self.noted = []  # type: List[JSON]
        self.members_seen = set()  # type: Set[int]
        self.deaths = []  # type: List[JSON]
        self.kernel_log = KernelLog()
        self.counters = Counters()
        self.alarm, self.bell = os.pipe()

    def run(self) -> None:
        """Starts the script, waits for the end of the tree or for a stop, and writes the result."""
        self.listen()
        try:
            self.start()
        except (OSError, ValueError, RuntimeError) as error:
            # What was started before something failed is ended like any attempt.
            self.stopping = True
            self.tell({"claimed": True, "fault": fault_of(error), "detail": str(error)[:500]})
        os.close(self.report)
        self.watch()
        stopped = not self.gone
        deaths = list(self.deaths)  # Whoever dies from now on may have been ended by us.
        killed, left = end(self.members, lambda: self.gone, self.order["grace"], self.order["bound"])
        result = {"exit": self.exit, "stopped": stopped, "killed": killed, "left": left, "deaths": deaths}
        self.counters.count()
        result["memory"] = dict(self.counters.report(), logged=self.kernel_log.kills(self.members_seen))
        try_write(self.path("result"), dict(result, time=time.time(), supervisor="alive"))

    def path(self, name: str) -> str:
        """A file of the attempt."""
        return os.path.join(self.folder, name)

    def listen(self) -> None:
        """Lets a signal wake the watch. Handlers, not SIG_IGN: what is ignored stays so in the script."""
        hear_again()
        os.set_blocking(self.alarm, False)
        os.set_blocking(self.bell, False)
        signal.set_wakeup_fd(self.bell)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.stop())

    def stop(self) -> None:
        """Remembers that a stop was ordered."""
        self.stopping = True

    def start(self) -> None:
        """Starts the script and tells who runs, unless a stop came first."""
        import subprocess  # Not on top, as in `script_fault`.

        adopt_orphans()
        own = identity(os.getpid())
        write(self.path("super"), own)
        write(self.path("began"), surroundings(), durable=False)
        self.counters.look([own["pid"]])
        # A stop looks for `super` after it made `stop`: whoever comes second sees the other's file.
        if self.stopping or os.path.exists(self.path("stop")):
            raise RuntimeError("a stop was ordered before the script was started")
        log = os.open(self.path("log"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        os.write(log, self.order["first_line"].encode())
        # Kept, and never asked: a Popen that is dropped takes the exit status that `reap` is for.
        self.child = subprocess.Popen(
            ["bash", self.path("launch.sh")] + [encoded(text) for text in self.order["arguments"]],
            cwd=encoded(self.order["cwd"]),
            env=environment(self.order),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        os.close(log)
        self.main = self.child.pid
        self.members_seen.add(self.main)
        main = identity(self.main)
        write(self.path("pid"), main)
        self.tell({"claimed": True, "supervisor": own, "main": main})

    def tell(self, report: JSON) -> None:
        """Answers the caller, who may be gone."""
        with contextlib.suppress(OSError):
            os.write(self.report, json.dumps(report).encode("ascii"))

    def watch(self) -> None:
        """Returns when the tree is empty or a stop was ordered.

        That the script itself has ended is no reason to end the rest: it may have started a daemon.
        """
        look_again = 0.0
        while True:
            self.reap()
            if self.gone or self.stopping:
                return
            now = time.monotonic()
            if now >= look_again:
                self.note(time.time(), descendants([os.getpid()], everyone()))
                look_again = time.monotonic() + max(TICK, 9 * (time.monotonic() - now))
            select.select([self.alarm], [], [], max(0.0, look_again - time.monotonic()))
            self.hush()

    def hush(self) -> None:
        """Empties the pipe that woke us."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.alarm, 4096)

    def reap(self) -> None:
        """Takes the exit status of every child that ended; then `gone` says whether any is left."""
        ended = list(self.ended())
        if self.exit is None:  # After the script's own end the others end for many reasons.
            for process, status in ended:
                self.mourn(process, status)

    def ended(self) -> Iterable[Tuple[Process, int]]:
        """The children that ended, other than the script's own process, each with its wait status."""
        while True:
            try:
                # First who it is, as long as /proc still shows the name, then the status.
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self.gone = True
                return
            if child is None:
                return
            process = look(child.si_pid)
            pid, status = os.waitpid(child.si_pid, 0)
            if pid == self.main:
                self.exit = exit_of(status)
                try_write(self.path("main_exit"), self.exit)
            elif process is not None:
                yield process, status

    def mourn(self, process: Process, status: int) -> None:
        """Remembers a process that a signal ended.

        Seen are orphans, whose status is ours to take, and those who were dead and not yet waited for by
        their own parent when the tree was looked at. Who was waited for at once is not seen.
        """
        if not os.WIFSIGNALED(status) or process.pid == self.main or len(self.deaths) >= DEATHS:
            return
        record = process.record()
        if all(death["process"] != record for death in self.deaths):
            self.deaths.append({"process": record, "signal": os.WTERMSIG(status), "time": time.time()})

    def members(self) -> List[Process]:
        """The tree now. An orphan in between two parents may be missing; `gone` is never wrong."""
        self.reap()
        return descendants([os.getpid()], living())

    def note(self, now: float, tree: List[Process]) -> None:
        """Leaves word of the tree, and of the time, for a stop that finds no supervisor."""
        for process in tree:
            self.members_seen.add(process.pid)
            if not process.alive and self.exit is None:
                self.mourn(process, process.status)
        self.counters.look(process.pid for process in tree if process.alive)
        records = [process.record() for process in tree if process.alive]
        if records != self.noted and try_write(self.path("tree"), records, durable=False):
            self.noted = records
        with contextlib.suppress(OSError):
            os.utime(self.path("tree"), (now, now))


def hear_again() -> None:
    """Takes back what our caller had us ignore: a shell's background job must not deafen the trial.

    SIGPIPE and SIGXFSZ are Python's own doing, which it undoes for the script.
    """
    for number in set(range(1, signal.NSIG)) - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            with contextlib.suppress(OSError):  # The C library keeps two for itself.
                signal.signal(number, signal.SIG_DFL)


def adopt_orphans() -> None:
    """Makes this process the parent of every orphan among its descendants."""
    import ctypes  # Not on top: only here, and some Pythons lack it.

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, "cannot become a child subreaper: %s" % os.strerror(number))


def environment(order: JSON) -> Dict[bytes, bytes]:
    """The whole environment of the script: nothing of ours leaks into a trial.

    SPT_NOENV keeps setproctitle from writing a title over the environment, and the tag with it.
    """
    variables = dict(order["env"], SPT_NOENV="1")
    variables[TAG] = order["tag"]
    return {encoded(name): encoded(value) for name, value in variables.items()}


def encoded(text: str) -> bytes:
    """The bytes of a text, whatever this machine's locale is."""
    return text.encode("utf-8", "surrogateescape")


def identity(pid: int) -> JSON:
    """The record of a process that cannot be gone: ourselves, or a child that was not waited for."""
    process = look(pid)
    if process is None:
        raise RuntimeError("/proc does not show process %d" % pid)
    return process.record()


def exit_of(status: int) -> JSON:
    """A wait status as a code or a signal."""
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"code": os.WEXITSTATUS(status)}


def fault_of(error: Exception) -> str:
    """Whose fault a failed start is."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "disk" if full else "launch"


# --- status and stop --------------------------------------------------------------------------------


def status(folder: str) -> int:
    """Answers what is known of the attempt.

    The supervisor is looked for before its result is: one that ends in between leaves a result, so
    "dead, and no result" is never said of an attempt that ended well.
    """
    supervisor = load(os.path.join(folder, "super"))
    main = load(os.path.join(folder, "pid"))
    report = {
        "claimed": os.path.isdir(os.path.join(folder, "claim")),
        "guarded": os.path.exists(os.path.join(folder, "guarded")),
        "supervisor": life(supervisor),
        "main": life(main),
        "processes": {"supervisor": supervisor, "main": main},
    }  # type: JSON
    report["main_exit"] = load(os.path.join(folder, "main_exit"))
    report["result"] = load(os.path.join(folder, "result"))
    report["log"] = size_and_identity(os.path.join(folder, "log"))
    return answer(report)


def life(record: Optional[JSON]) -> str:
    """`alive`, `dead`, or `none` where there never was one."""
    if record is None:
        return "none"
    return "alive" if find(record) else "dead"


def size_and_identity(path: str) -> Optional[JSON]:
    """The size of a file and what tells it from another of its name."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return {"size": found.st_size, "identity": "%d:%d" % (found.st_dev, found.st_ino)}


def stop(folder: str) -> int:
    """Ends the attempt and answers its result; afterwards nothing of it can be started any more."""
    if not os.path.isdir(folder):
        return answer({"fault": "missing", "detail": "there is no folder %s" % folder})
    close_start(folder)
    order = load(os.path.join(folder, "order.json")) or {"tag": "", "grace": 0.0, "bound": MARGIN}
    supervisor = find(load(os.path.join(folder, "super")))
    if supervisor is not None:
        send(supervisor, signal.SIGTERM)
        wait_for_end(supervisor, order["grace"] + order["bound"] + MARGIN)
    result = load(os.path.join(folder, "result"))
    if result is None or result["left"]:
        result = end_without_supervisor(folder, order)
    return answer(result)


def close_start(folder: str) -> None:
    """Orders the stop and takes the claim, if nobody has: a start that is under way gives up."""
    try:
        os.close(os.open(os.path.join(folder, "stop"), os.O_WRONLY | os.O_CREAT, 0o600))
        claim(folder)
    except OSError as error:  # A full disk. A supervisor that is up needs no more than the signal.
        sys.stderr.write("cannot close %s to a later start: %s\n" % (folder, error))


def wait_for_end(supervisor: Process, seconds: float) -> None:
    """Returns when the supervisor is gone, its result written, or when the time is over."""
    deadline = time.monotonic() + seconds
    while find(supervisor.record()) is not None and time.monotonic() < deadline:
        time.sleep(0.02)


def end_without_supervisor(folder: str, order: JSON) -> JSON:
    """Ends what can be shown to belong to the attempt, after its supervisor died (or does not act)."""
    remains = Remains(folder, order["tag"])
    before = remains.strangers()
    killed, left = end(remains.members, remains.gone, order["grace"], order["bound"])
    supervisor = remains.supervisor()
    if supervisor is not None:
        send(supervisor, signal.SIGKILL)
    result = {
        "exit": load(os.path.join(folder, "main_exit")),
        "stopped": True,
        "killed": killed,
        "left": left,
        "deaths": [],
        "memory": memory_kills(folder, None),
        "suspects": [
            p.record() for p in before if find(p.record()) and (p.pid, p.start) not in remains.known
        ],
        "time": time.time(),
        "supervisor": "dead",
    }
    try_write(os.path.join(folder, "result"), result)
    return result


class Remains:
    """What can be shown to belong to an attempt by its files, its tag, and descent from those."""

    LOOKS = 3
    """Looks in a row that find nothing before it is believed: one look can miss a process that is
    born during it, of a parent that ends during it."""

    def __init__(self, folder: str, tag: str) -> None:
        self.folder = folder
        self.mark = encoded("\0%s=%s\0" % (TAG, tag)) if tag else b""
        self.known = self.recorded()
        self.empty = False

    def recorded(self) -> Set[Tuple[int, int]]:
        """Pid and start time of every process that the files name, of this boot."""
        records = list(load(os.path.join(self.folder, "tree")) or [])
        records.append(load(os.path.join(self.folder, "pid")))
        records.extend((load(os.path.join(self.folder, "result")) or {"left": []})["left"])
        boot = boot_id()
        return {(r["pid"], r["start"]) for r in records if r is not None and r["boot"] == boot}

    def supervisor(self) -> Optional[Process]:
        """The supervisor, where it lives."""
        return find(load(os.path.join(self.folder, "super")))

    def members(self) -> List[Process]:
        """Who belongs to the attempt and lives; nobody only where several looks agree."""
        for _ in range(self.LOOKS):
            found = self.look()
            if found:
                return found
            time.sleep(0.02)
        self.empty = True
        return []

    def look(self) -> List[Process]:
        """Who belongs to the attempt and is seen alive; whoever was seen once is known by then."""
        everyone = [process for process in living() if process.pid != os.getpid()]
        sure = [p for p in everyone if (p.pid, p.start) in self.known or self.tagged(p)]
        # While a member is in it, a session's number cannot become another's. Every session of the
        # tree was made by the tree: the script began with one of its own.
        sessions = {process.session for process in sure} - {0, os.getsid(0)}
        sure.extend(process for process in everyone if process.session in sessions)
        roots = [process.pid for process in sure]
        supervisor = self.supervisor()
        if supervisor is not None:
            roots.append(supervisor.pid)
        found = set(sure) | set(descendants(roots, everyone))
        self.known.update((process.pid, process.start) for process in found)
        return sorted(found)

    def strangers(self) -> List[Process]:
        """Who may belong to the attempt and cannot be shown to: none of it is ended, all of it is named.

        A process that was born, cleared its environment and lost its parent after the supervisor's last
        look at the tree (or its start, where it never looked) and before its death is nobody's: a child of
        whoever takes orphans, of our user.
        """
        began = load(os.path.join(self.folder, "began"))
        supervisor = load(os.path.join(self.folder, "super"))
        if began is None or began["boot"] != boot_id() or find(supervisor) is not None:
            return []
        since = float(supervisor["start"] if supervisor else 0)
        with contextlib.suppress(OSError):
            unseen = time.time() - os.stat(os.path.join(self.folder, "tree")).st_mtime
            since = (uptime() - unseen) * os.sysconf("SC_CLK_TCK") - 1
        orphans = [p for p in living() if p.parent == began["reaper"] and p.start >= since]
        return [p for p in orphans if p.pid != os.getpid() and alike(p, began["cgroup"]) and not other(p)]

    def gone(self) -> bool:
        """Whether nothing of it was found any more."""
        return self.empty

    def tagged(self, process: Process) -> bool:
        """Whether a process was started with this attempt's tag."""
        if not self.mark:
            return False
        try:
            with open("/proc/%d/environ" % process.pid, "rb") as file:
                return self.mark in b"\0" + file.read() + b"\0"
        except OSError:
            return False


def uptime() -> float:
    """Seconds since the boot, of the clock by which start times are told."""
    with open("/proc/uptime", encoding="ascii") as file:
        return float(file.read().split()[0])


def alike(process: Process, cgroup: str) -> bool:
    """Whether a process is of our user and in that control group: a service of the system is not."""
    try:
        same_user = os.stat("/proc/%d" % process.pid).st_uid == os.geteuid()
    except OSError:
        return False
    return same_user and text_of("/proc/%d/cgroup" % process.pid) == cgroup


def other(process: Process) -> bool:
    """Whether a process belongs to another attempt, or run: it carries a tag, or is a program of ours."""
    tagged = "\0%s=" % TAG in "\0" + text_of("/proc/%d/environ" % process.pid)
    command = text_of("/proc/%d/cmdline" % process.pid)
    return tagged or "/supervisor.py\0run\0" in command or "/guardian.py\0guard\0" in command


def text_of(path: str) -> str:
    """A small file of the kernel, empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


# --- out of memory ----------------------------------------------------------------------------------

INITIAL_PIDS = "pid:[4026531836]"
"""The kernel's name for its first space of pids, the one that its log speaks of."""
VICTIM = re.compile(r"Killed process (\d+)|oom-kill:.*\bpid=(\d+)")


def surroundings() -> JSON:
    """What has to be known before the script is started."""
    cgroup = text_of("/proc/self/cgroup")
    counter = memory_counter(cgroup)
    return {
        "boot": boot_id(),
        "reaper": os.getppid(),
        "cgroup": cgroup,
        "counter": counter,
        "counted": counted(counter),
    }


def memory_counter(cgroup: str) -> str:
    """The file in which the kernel counts the memory kills in a control group; empty without one."""
    groups = [line.split(":", 2) for line in cgroup.splitlines()]
    for second, root, point, name in memory_mounts():
        for _, controllers, path in groups:
            if not controllers if second else "memory" in controllers.split(","):
                inside = path[len(root.rstrip("/")) :] if path.startswith(root) else ""
                found = os.path.join(point, inside.strip("/"), name)
                if counted(found) is not None:
                    return found
    return ""


def memory_mounts() -> Iterable[Tuple[bool, str, str, str]]:
    """Where control groups are that count: whether of the second version, root, place, the counter's name."""
    for line in text_of("/proc/self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        root, point = mount.split()[3:5]
        kind, _, options = source.split()[:3]
        if kind == "cgroup2":
            yield True, root, point, "memory.events"
        elif kind == "cgroup" and "memory" in options.split(","):
            yield False, root, point, "memory.oom_control"


def counted(counter: str) -> Optional[int]:
    """How many processes were killed for want of memory; None where nobody counts."""
    found = re.search(r"^oom_kill (\d+)$", text_of(counter), re.MULTILINE) if counter else None
    return int(found.group(1)) if found else None


class Counters:
    """The kernel's counts of memory kills in every control group of the tree, since this was made.

    A script may start its server in another group, and neither version of control groups counts there for us:
    the first counts in the victim's own group alone, the second also in those above it.
    """

    def __init__(self) -> None:
        self.files = {}  # type: Dict[str, str]
        # Of every group there is: the script may enter one and be killed there before we look again.
        self.first = {}  # type: Dict[str, int]
        for _, _, point, name in memory_mounts():
            for folder, _, _ in os.walk(point):
                file = os.path.join(folder, name)
                self.first[file] = counted(file) or 0
        self.last = {}  # type: Dict[str, Optional[int]]
        self.rose = {}  # type: Dict[str, int]

    def look(self, pids: Iterable[int]) -> None:
        """Takes the groups that these processes are in, and counts: an empty group may be gone soon."""
        for cgroup in {text_of("/proc/%d/cgroup" % pid) for pid in pids} - set(self.files):
            self.files[cgroup] = memory_counter(cgroup)
        self.count()

    def count(self) -> None:
        """Reads every count again."""
        for file in filter(None, dict.fromkeys(self.files.values())):
            now = counted(file)
            self.last[file] = now
            if now is not None:
                self.rose[file] = now - self.first.get(file, 0)

    def report(self) -> JSON:
        """Where most kills were counted, and how many; None where some group's last count is not known."""
        if not self.rose:
            return {"counter": "", "counted": None}
        # In dict order the supervisor's own group comes first.
        file = max(self.rose, key=lambda file: self.rose[file])
        unknown = self.rose[file] == 0 and None in self.last.values()
        return {"counter": file, "counted": None if unknown else self.rose[file]}


class KernelLog:
    """The kernel's log from now on, where this user may read it."""

    def __init__(self) -> None:
        self.file = None  # type: Optional[int]
        try:
            # Elsewhere the pids of the log are not those that we see.
            if os.readlink("/proc/self/ns/pid") == INITIAL_PIDS:
                self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
                os.lseek(self.file, 0, os.SEEK_END)
        except OSError:
            self.file = None

    def kills(self, pids: Set[int]) -> Optional[List[str]]:
        """The lines that say that one of these was killed for want of memory; None where it is closed."""
        if self.file is None:
            return None
        return [line for line in self.lines() if victim(line) in pids]

    def lines(self) -> Iterable[str]:
        """What the kernel said since this was made, with its own times."""
        assert self.file is not None
        while True:
            try:
                record = os.read(self.file, 8192)
            except OSError as error:
                if error.errno == errno.EPIPE:  # Overwritten before we read it: the next ones remain.
                    continue
                return
            if not record:  # Not the kernel's: something else stands in its place here.
                return
            head, _, text = record.decode("utf-8", "replace").partition(";")
            micros = int(head.split(",")[2])
            yield "[%5d.%06d] %s" % (micros // 10**6, micros % 10**6, text.split("\n")[0])


def victim(line: str) -> Optional[int]:
    """Whom a line of the kernel's log says to be killed for want of memory."""
    found = VICTIM.search(line)
    return int(found.group(1) or found.group(2)) if found else None


def memory_kills(folder: str, logged: Optional[List[str]]) -> JSON:
    """What the kernel says of memory kills since the start: by its counter, and by its log."""
    began = load(os.path.join(folder, "began")) or {"counter": "", "counted": None}
    now = counted(began["counter"])
    rose = None if now is None or began["counted"] is None else now - began["counted"]
    return {"counter": began["counter"], "counted": rose, "logged": logged}


# --- stacks -----------------------------------------------------------------------------------------


def stacks(folder: str) -> int:
    """Answers what every process of the attempt does at this moment, in bounded time and size."""
    deadline = time.monotonic() + LOOK
    order = load(os.path.join(folder, "order.json")) or {"tag": "", "env": {}}
    members = sorted(Remains(folder, order["tag"]).look())
    report = {"time": time.monotonic(), "processes": [], "cut": False}  # type: JSON
    room = THREADS
    for process in members:
        state = process_state(process, room)
        room -= len(state["threads"])
        report["processes"].append(state)
    # The kernel's view of all first: it is quick, and py-spy's pauses must not show in it.
    spy = find_spy(order["env"].get("PATH", ""))
    for state in report["processes"]:
        pid, left = state["process"]["pid"], min(SPY, deadline - time.monotonic())
        if left > 0 and is_python(pid):
            state.update(python_stack(spy, pid, left))
        report["cut"] = report["cut"] or left <= 0
    report["cut"] = report["cut"] or room <= 0
    return answer(report)


def process_state(process: Process, room: int) -> JSON:
    """A process and its threads, as the kernel shows them."""
    place = "/proc/%d" % process.pid
    try:
        threads = sorted(int(name) for name in os.listdir(place + "/task"))[:room]
    except OSError:
        threads = []
    states = [thread_state("%s/task/%d" % (place, number), number) for number in threads]
    return {
        "process": process.record(),
        "command": text_of(place + "/cmdline")[:TEXT].rstrip("\0").replace("\0", " "),
        "cpu": seconds_of(text_of(place + "/stat")),
        "threads": [state for state in states if state is not None],
    }


def thread_state(place: str, number: int) -> Optional[JSON]:
    """A thread: what it waits in, its frames in the kernel where we may see them, the CPU it used."""
    stat = text_of(place + "/stat")
    if not stat:
        return None  # It has ended.
    frames = [line.partition(" ")[2] for line in text_of(place + "/stack").splitlines()]
    wait = text_of(place + "/wchan")
    return {
        "tid": number,
        "name": stat.partition("(")[2].rpartition(")")[0],
        "state": stat.rpartition(")")[2].split()[0],
        "wait": "" if wait == "0" else wait,
        "kernel": frames[:FRAMES],
        "cpu": seconds_of(stat),
    }


def seconds_of(stat: str) -> float:
    """The CPU time of a `stat` file."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def is_python(pid: int) -> bool:
    """Whether a process holds a Python interpreter."""
    try:
        program = os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return False
    return "python" in program or "/libpython" in text_of("/proc/%d/maps" % pid)


def find_spy(path: str) -> Optional[str]:
    """py-spy, where the script, the caller or this Python has it."""
    import shutil  # Not on top: only here.

    places = [path, os.environ.get("PATH", ""), os.path.dirname(sys.executable)]
    return shutil.which("py-spy", path=os.pathsep.join(places))


def python_stack(spy: Optional[str], pid: int, seconds: float) -> JSON:
    """What py-spy says of a process, or why it says nothing."""
    import subprocess  # Not on top, as in `script_fault`.

    if spy is None:
        return {"error": "there is no py-spy on the PATH"}
    wrong = ""
    # It cannot always stop the process that it looks at; then it looks at it running.
    for more in ([], ["--nonblocking"]):
        try:
            ended = subprocess.run(
                [spy, "dump", "--pid", str(pid), *more],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=seconds / 2,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            wrong = str(error)
            continue
        if ended.returncode == 0:
            return {"python": ended.stdout[:TEXT].decode("utf-8", "replace").rpartition("\n")[0]}
        wrong = ended.stderr.decode("utf-8", "replace").strip().split("\n")[0]
    return {"error": wrong}


# --- probe ------------------------------------------------------------------------------------------


def probe(folder: str) -> int:
    """Answers who listens on each port, and what each request got."""
    request = json.load(sys.stdin)
    ours = set()  # type: Set[Process]
    if folder != "-":
        order = load(os.path.join(folder, "order.json")) or {"tag": ""}
        ours = set(Remains(folder, order["tag"]).look())
    return answer(
        {
            "ports": {str(port): listeners(port, ours) for port in request["ports"]},
            "http": [ask(wanted) for wanted in request["http"]],
        }
    )


def listeners(port: int, ours: Set[Process]) -> List[JSON]:
    """Who holds a listening socket on a port; `pid` is None where that may not be seen."""
    sockets = dict(listening("/proc/net/tcp", port) + listening("/proc/net/tcp6", port))
    owners = owners_of(set(sockets), ours)
    return [
        dict(
            owners[inode].record() if inode in owners else {"pid": None},
            user=user_name(sockets[inode]),
            ours=owners.get(inode) in ours,
            attempt=attempt_of(owners.get(inode)),
        )
        for inode in sorted(sockets)
    ]


def attempt_of(process: Optional[Process]) -> str:
    """The folder of the attempt, of any run, that a process is of; empty where it is of none."""
    while process is not None:
        words = text_of("/proc/%d/cmdline" % process.pid).split("\0")
        at = next((n for n, word in enumerate(words) if word.endswith("/supervisor.py")), len(words))
        if words[at + 1 : at + 2] == ["run"]:
            return words[at + 2]
        process = look(process.parent)
    return ""


def listening(table: str, port: int) -> List[Tuple[int, int]]:
    """Inode and user id of every socket of a kernel table that listens on the port."""
    try:
        with open(table, encoding="ascii") as file:
            rows = [line.split() for line in file][1:]
    except OSError:
        return []  # A machine without IPv6 has no tcp6.
    return [(int(r[9]), int(r[7])) for r in rows if r[3] == "0A" and int(r[1].rpartition(":")[2], 16) == port]


def owners_of(inodes: Set[int], ours: Set[Process]) -> Dict[int, Process]:
    """One process for each socket that we may trace; ours are looked at first."""
    found = {}  # type: Dict[int, Process]
    if inodes:
        others = sorted(set(living()) - ours)
        for process in sorted(ours) + others:
            for inode in inodes & sockets_of(process):
                found.setdefault(inode, process)
            if len(found) == len(inodes):
                break
    return found


def sockets_of(process: Process) -> Set[int]:
    """Inodes of the sockets that a process holds, as far as we may see."""
    folder = "/proc/%d/fd" % process.pid
    found = set()  # type: Set[int]
    for name in names_in(folder):
        try:
            link = os.readlink(os.path.join(folder, name))
        except OSError:
            continue  # It was closed while we looked.
        if link.startswith("socket:["):
            found.add(int(link[8:-1]))
    return found


def names_in(folder: str) -> List[str]:
    """What a folder holds; nothing where it is gone, or another user's."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def user_name(uid: int) -> str:
    """What a person calls a user."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def ask(wanted: JSON) -> JSON:
    """One request to 127.0.0.1: GET, or POST of JSON where there is a body; `timeout` is for all of it."""
    import http.client  # Not on top: half of the time that `status` would take.

    connection = http.client.HTTPConnection("127.0.0.1", wanted["port"])
    # A clock over everything: a socket's own timeout starts again at each byte that drips in.
    signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, wanted["timeout"])
    try:
        if wanted["body"] is None:
            connection.request("GET", wanted["path"])
        else:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", wanted["path"], wanted["body"].encode(), headers)
        response = connection.getresponse()
        body = response.read(BODY).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return {"status": None, "body": "", "error": "%s: %s" % (type(error).__name__, error)}
    else:
        return {"status": response.status, "body": body, "error": ""}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.close()


def overdue(*_: Any) -> None:
    """Ends a request whose time is over."""
    raise TimeoutError("no whole answer in time")


# --- the lease --------------------------------------------------------------------------------------

GUARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard")
"""The folder of the run's guardian. Its files are told of in guardian.py."""
FENCED = {"run", "probe"}
"""What an agent that has lost its lease may not do, for it would act on what it sees."""


def report_of(fence: int) -> str:
    """The file that ends the lease of the agent with that number: what the guardian did then."""
    return os.path.join(GUARD, "report-%d" % fence)


@contextlib.contextmanager
def gate(how: int) -> Iterator[None]:
    """Lets starts happen beside each other (LOCK_SH), and the end of a lease beside no start (LOCK_EX)."""
    descriptor = os.open(os.path.join(GUARD, "gate"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def renew(fence: int, silence: float = 0.0) -> str:
    """Renews the lease of the agent with that number; why it has none any more, else empty.

    The lease then lasts as long as ever after a `silence` of so many seconds, by the clock since boot,
    which nobody sets and which runs on while the machine sleeps.
    """
    if load(os.path.join(GUARD, "fence")) != fence:
        return "a later agent has taken this run up"
    if os.path.exists(report_of(fence)):
        return "its agent was heard no more, and the guardian has taken over"
    lease = os.path.join(GUARD, "lease")
    seconds = load(lease)["seconds"]
    try_write(lease, {"seconds": seconds, "until": uptime() + seconds + silence}, durable=False)
    return ""


def unguarded() -> bool:
    """Whether the guardian is gone."""
    return find(load(os.path.join(GUARD, "guardian"))) is None


def fenced(name: str, folder: str, fence: int) -> int:
    """Does what an agent with that number asks for, as long as it has the lease."""
    with contextlib.ExitStack() as stack:
        if name == "run":
            stack.enter_context(gate(fcntl.LOCK_SH))
        lost = renew(fence)
        if lost and name in FENCED:
            return answer({"fault": "fenced", "detail": lost})
        if name == "run" and unguarded():
            return answer({"fault": "unguarded", "detail": "the guardian is gone"})
        return VERBS[name](folder)


# --- the command line -------------------------------------------------------------------------------


def answer(content: JSON) -> int:
    """Says the one thing this call has to say."""
    print(json.dumps(content), flush=True)
    return 0


VERBS = {"run": run, "status": status, "probe": probe, "stacks": stacks, "stop": stop}


def main(name: str, place: str, *fence: str) -> int:
    """Carries out one call."""
    folder = place if place == "-" else os.path.abspath(place)
    return fenced(name, folder, int(fence[0])) if fence else VERBS[name](folder)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # What Python tidies up in the end takes as long as many a call's own work.
