"""Runs on the target, one for a run: holds the target for it, and brings `good` up when its agent is lost.

    python3 guardian.py guard -               takes the target; answers a fencing number, or who holds it
    python3 guardian.py renew FENCE SECONDS   the agent will be silent for so long
    python3 guardian.py release FENCE|-       lets the target go: the run is over, and `good` is up
    python3 guardian.py hand-over FENCE       lets the guardian do now what it does when a lease ends
    python3 guardian.py reports -             answers what it did

Linux, Python 3.6 or later, standard library only. It lies beside supervisor.py, whose calls renew the
lease. An answer is one JSON object on stdout with exit status 0. All truth is in files of `guard`, beside it:

    plan.json   what to hold, and what to bring up
    fence       the number of the agent that took the run up last
    lease       when the lease of that agent ends, by the clock since boot
    gate        held by whoever starts an attempt, and by whoever ends a lease: never both
    guardian    who watches: pid, start time, boot
    report-N    the lease of agent N has ended, so it starts nothing more; and what was done then

The locks are held by the guardian's own process: they are free when it is gone, however that came.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

if __package__:
    from bisect_agent.target import supervisor
else:
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import supervisor  # type: ignore[no-redef, import-not-found, unused-ignore]

JSON = Dict[str, Any]

TICK = 0.5
"""Seconds between two looks at the lease."""
LOOK = 1.0
"""Seconds between two looks at a server that is coming up."""
CALL = 60.0
"""Seconds for a call of the supervisor's beside the time that its work may take."""
LEAVE = 10.0
"""Seconds that a guardian gets to be gone."""
MOST = 1024 * 1024
"""The most bytes taken of what a command prints."""
SUPERVISOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")
RUN = os.path.dirname(SUPERVISOR)


def path(name: str) -> str:
    """A file of the guardian's."""
    return os.path.join(supervisor.GUARD, name)


# --- the calls --------------------------------------------------------------------------------------


def guard(_: str) -> int:
    """Takes the target for an agent, or up from one: a living guardian goes on for the new one.

    Its answer is one of: the fencing number with all reports up to now; `held`, who has what; `acting`, the
    report of a guardian that is at work at this moment.
    """
    plan = supervisor.load(path("plan.json"))
    with supervisor.gate(fcntl.LOCK_EX):
        fence = supervisor.load(path("fence")) or 0
        watching = supervisor.find(supervisor.load(path("guardian")))
        if watching is not None and os.path.exists(supervisor.report_of(fence)):
            return supervisor.answer({"acting": supervisor.load(supervisor.report_of(fence))})
        locks = []  # type: List[int]
        if watching is None:
            held = take(plan, locks)
            if held:
                return supervisor.answer({"held": held})
        supervisor.write(path("fence"), fence + 1)
        supervisor.write(path("lease"), {"seconds": plan["lease"], "until": 0.0})
        supervisor.renew(fence + 1)
        if watching is None:
            watching = begin(locks)
    return supervisor.answer({"fence": fence + 1, "guardian": watching.record(), "reports": past(fence)})


def take(plan: JSON, locks: List[int]) -> Dict[str, str]:
    """Takes every lock of the plan, or none: then who holds which."""
    held = {}  # type: Dict[str, str]
    for name, lock in plan["locks"].items():
        os.makedirs(os.path.dirname(lock), 0o700, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        locks.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
            held[name] = said or "a process that has not yet said who it is"
    if held:
        for descriptor in locks:
            os.close(descriptor)
        return held
    for descriptor in locks:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, plan["holder"].encode("utf-8", "surrogateescape"), 0)
    return {}


def begin(locks: List[int]) -> supervisor.Process:
    """Starts a guardian that keeps the locks, and returns it once it has said who it is."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        pid = int(os.read(reader, 64))
        found = supervisor.look(pid)
        assert found is not None
        supervisor.write(path("guardian"), found.record())
        return found
    os.setsid()
    if os.fork():
        os._exit(0)
    # A write of one number: it cannot be late, nor in two parts.
    os.write(writer, b"%d" % os.getpid())
    supervisor.detach(path("guardian.log"), set(locks))
    watch()
    os._exit(0)


def past(fence: int) -> List[JSON]:
    """What was done when the leases up to that number ended, in order."""
    found = (supervisor.load(supervisor.report_of(number)) for number in range(1, fence + 1))
    return [report for report in found if report is not None]


def reports(_: str) -> int:
    """Answers everything that was done, and whether somebody watches."""
    fence = supervisor.load(path("fence")) or 0
    return supervisor.answer({"reports": past(fence), "watching": not supervisor.unguarded()})


def renew(fence: str, seconds: str) -> int:
    """Lets the agent be silent for so long, and its lease last as ever after that."""
    return heard(supervisor.renew(int(fence), float(seconds)))


def release(fence: str) -> int:
    """Ends the guardian; its locks are free when this answers. `-` is the agent that came last."""
    with supervisor.gate(fcntl.LOCK_EX):
        lost = supervisor.renew(supervisor.load(path("fence")) if fence == "-" else int(fence))
        watching = supervisor.find(supervisor.load(path("guardian")))
        if watching is not None and not lost:
            supervisor.send(watching, signal.SIGKILL)  # It has nothing to tidy up, and must not act now.
            supervisor.wait_for_end(watching, LEAVE)
    return heard(lost)


def hand_over(fence: str) -> int:
    """Ends the lease at once; what is to be done then is done while nobody waits."""
    with supervisor.gate(fcntl.LOCK_EX):
        lost = supervisor.renew(int(fence))
        if not lost and supervisor.unguarded():
            return supervisor.answer({"fault": "unguarded", "detail": "the guardian is gone"})
        if not lost:
            end_lease(int(fence), "the agent left it to the guardian")
    return heard(lost)


def heard(lost: str) -> int:
    """Answers an agent that it was heard, or why it has no lease any more."""
    return supervisor.answer({"fault": "fenced", "detail": lost} if lost else {"until": True})


# --- the watch --------------------------------------------------------------------------------------


def watch() -> None:
    """Returns when a lease has ended, and all was done that is done then."""
    signal.signal(signal.SIGHUP, lambda *_: None)
    while True:
        time.sleep(TICK)
        fence = ended()
        if fence:
            Takeover(fence).carry_out()
            return


def ended() -> int:
    """The agent whose lease has ended, and who is told so from now on; 0 while there is none."""
    fence = supervisor.load(path("fence")) or 0
    if os.path.exists(supervisor.report_of(fence)):
        return int(fence)
    if not overdue():
        return 0
    with supervisor.gate(fcntl.LOCK_EX):
        fence = supervisor.load(path("fence"))
        if not overdue():  # It was heard of, or another took the run up, while we came to our turn.
            return 0
        seconds = supervisor.load(path("lease"))["seconds"]
        end_lease(fence, "nothing was heard of the agent for %g s" % seconds)
    return int(fence)


def overdue() -> bool:
    """Whether the lease's time is over."""
    lease = supervisor.load(path("lease"))
    return lease is not None and bool(lease["until"] < supervisor.uptime())


def end_lease(fence: int, why: str) -> None:
    """Ends a lease, whose agent starts nothing more. The gate is held."""
    report = {"fence": fence, "why": why, "time": time.time(), "ended": [], "good": None}
    supervisor.write(supervisor.report_of(fence), dict(report, restored=None, wrong="", done=False))


class Takeover:
    """What is done when a lease has ended: the attempts end, and `good` comes up again."""

    def __init__(self, fence: int) -> None:
        self.file = supervisor.report_of(fence)
        self.report = supervisor.load(self.file)  # type: JSON
        self.plan = supervisor.load(path("plan.json"))  # type: JSON

    def carry_out(self) -> None:
        """All of it; every step is in the report before the next is taken."""
        try:
            self.act()
        except Exception as error:  # Whoever takes the run up must hear of it.
            self.tell(wrong="%s: %s" % (type(error).__name__, error))
            raise
        finally:
            self.tell(done=True)

    def tell(self, **news: Any) -> None:
        """Puts news into the report."""
        self.report.update(news)
        supervisor.try_write(self.file, self.report)

    def act(self) -> None:
        """Ends what runs, then restores what the playbook says."""
        attempts = claimed()
        purposes = {purpose_of(attempt) for attempt in attempts}
        kept = next((a for a in attempts if purpose_of(a) == "restore" and self.comes_up(a)), None)
        for attempt in attempts:
            if attempt != kept and not self.end(attempt):
                return
        if kept is not None:
            self.tell(good=os.path.basename(kept), restored=True)
        elif not purposes - {"question"} and not os.path.exists(os.path.join(RUN, self.plan["touched"])):
            return  # Nothing was begun: there is nothing to restore.
        elif self.plan["good"] is not None:
            self.start_good(os.path.join(RUN, self.plan["good"]))
        else:
            self.put_back()
            if self.plan["command"] is not None:
                self.run_command(self.plan["command"])

    def end(self, attempt: str) -> bool:
        """Ends an attempt, unless it has ended; whether nothing of it is left."""
        result = supervisor.load(os.path.join(attempt, "result"))
        if result is not None and not result["left"]:
            return True
        os.close(os.open(os.path.join(attempt, "guarded"), os.O_WRONLY | os.O_CREAT, 0o600))
        result = ask("stop", attempt, seconds=CALL + 2 * time_to_stop(attempt))
        self.tell(ended=self.report["ended"] + [os.path.basename(attempt)])
        left = result.get("left", [])
        if left:
            names = ", ".join("%d %s" % (process["pid"], process["name"]) for process in left)
            self.tell(restored=False, wrong="still alive: " + names)
        return not left

    def start_good(self, folder: str) -> None:
        """Starts `good`, and waits until it answers."""
        started = ask("run", folder)
        if not started.get("claimed") or "fault" in started:
            self.tell(restored=False, wrong=started.get("detail", "it did not start"))
            self.end(folder)
            self.put_back()
            return
        self.tell(good=self.plan["good"])
        if self.comes_up(folder):
            self.tell(restored=True)
            return
        self.end(folder)
        self.tell(good=None, restored=False, wrong="`good` was started, and did not answer")
        self.put_back()

    def comes_up(self, folder: str) -> bool:
        """Whether a server answers before its time is over, or it ends."""
        deadline = time.monotonic() + self.plan["start"]
        while time.monotonic() < deadline:
            status = ask("status", folder)
            if status.get("result") is not None or status.get("main_exit") is not None:
                return False
            if self.answers(folder):
                return True
            time.sleep(LOOK)
        return False

    def answers(self, folder: Optional[str]) -> bool:
        """Whether a server listens, is healthy, and answers the request. `folder` is whose it must be."""

        def probed(requests: List[JSON]) -> bool:
            wanted = json.dumps({"ports": self.plan["ports"], "http": requests}).encode("ascii")
            seconds = CALL + sum(request["timeout"] for request in requests)
            said = ask("probe", folder or "-", wanted, seconds)
            listen = all(
                owners and (folder is None or all(owner["ours"] for owner in owners))
                for owners in said["ports"].values()
            )
            return listen and all(200 <= (answer["status"] or 0) < 300 for answer in said["http"])

        return probed(self.plan["health"]) and probed(self.plan["request"])

    def put_back(self) -> None:
        """Gives the files that factors write back what they held."""
        for argv in self.plan["put_back"]:
            ended = execute(argv, CALL)
            if ended.returncode:
                said = ended.stderr.decode("utf-8", "replace").strip()
                self.tell(restored=False, wrong=said or "%s failed" % argv[0])

    def run_command(self, script: str) -> None:
        """Brings the owners' server back by their command, and waits until it answers."""
        ended = execute(["env", "-i", "bash", "-s"], self.plan["start"], script.encode("utf-8"))
        if ended.returncode:
            self.tell(restored=False, wrong="the command ended with exit code %d" % ended.returncode)
            return
        deadline = time.monotonic() + self.plan["start"]
        while self.plan["ports"] and not self.answers(None):
            if time.monotonic() > deadline:
                self.tell(restored=False, wrong="the command was run, and no server answers")
                return
            time.sleep(LOOK)
        self.tell(restored=True)


def claimed() -> List[str]:
    """The attempts of this run that were begun."""
    folders = (os.path.join(RUN, name) for name in sorted(os.listdir(RUN)))
    return [folder for folder in folders if os.path.isdir(os.path.join(folder, "claim"))]


def purpose_of(attempt: str) -> str:
    """What an attempt is for: a trial, the restore, or a question to the stack."""
    order = supervisor.load(os.path.join(attempt, "order.json")) or {"purpose": "trial"}
    return str(order["purpose"])


def time_to_stop(attempt: str) -> float:
    """Seconds that its order gives a stop."""
    order = supervisor.load(os.path.join(attempt, "order.json")) or {"grace": 0.0, "bound": 0.0}
    return float(order["grace"] + order["bound"])


def ask(verb: str, place: str, given: bytes = b"", seconds: float = CALL) -> JSON:
    """What the supervisor answers."""
    ended = execute([sys.executable, "-I", "-S", SUPERVISOR, verb, place], seconds, given)
    if not ended.stdout:
        raise RuntimeError(ended.stderr.decode("utf-8", "replace")[-500:])
    return dict(json.loads(ended.stdout.decode("utf-8")))


def execute(argv: List[str], seconds: float, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """A command that has ended; what it left running may hold its output, so that goes to files."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        ended = subprocess.run(argv, check=False, input=given, stdout=out, stderr=err, timeout=seconds)
        ended.stdout, ended.stderr = (os.pread(file.fileno(), MOST, 0) for file in (out, err))
    return ended


CALLS = {
    "guard": guard,
    "renew": renew,
    "release": release,
    "hand-over": hand_over,
    "reports": reports,
}  # type: Dict[str, Any]

if __name__ == "__main__":
    sys.exit(CALLS[sys.argv[1]](*sys.argv[2:]))
