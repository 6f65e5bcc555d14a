"""The launcher and the supervisor together, with real processes on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import rmtree, which

import pytest

from bisect_agent import errors
from bisect_agent.hosts import Completed, Host
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Exit, Reason
from bisect_agent.target.launcher import Launcher, Order, Request, Setback, Started, Status, first_line

NASTY = Path(__file__).with_name("nasty.py").read_text()
KINDS = (
    "plain",
    "setsid",
    "orphan",
    "deaf",
    "renamed",
    "port",
    "cleared",
    "forker",
    "zombie",
    "headless",
    "wiped",
)
NOBODY = 65534


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for a condition; the test's own time limit is the bound."""
    while not holds():
        time.sleep(0.01)


def lives(pid: int) -> bool:
    """Whether a pid belongs to a process with a thread that runs."""
    states = []
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(task.read_text(errors="replace").rpartition(")")[2].split()[0])
        except OSError:
            continue
    return any(state not in "ZX" for state in states)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Lab:
    """A launcher, a folder where the scripts run, and the attempts made; they are stopped at the end."""

    folder: Path
    host: Host = field(default_factory=LocalHost)
    python: str = sys.executable
    port: int = field(default_factory=free_port)
    attempts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.launcher = Launcher(self.host, f"{self.folder}/run", self.python)
        self.launcher.install()
        (self.folder / "nasty.py").write_text(NASTY)

    def order(self, script: str, *arguments: str) -> Order:
        """An order for a script that ends quickly when it is told to."""
        env = {"PATH": "/usr/bin:/bin", "NASTY_PORT": str(self.port)}
        tag = f"{os.getpid()}-{time.monotonic_ns()}"
        return Order(script.encode(), arguments, env, str(self.folder), tag, grace=0.3, bound=5)

    def prepare(self, order: Order) -> str:
        """Prepares the next attempt."""
        self.attempts.append(self.launcher.prepare(f"trials/t{len(self.attempts)}/1", order))
        return self.attempts[-1]

    def start(self, script: str, *arguments: str) -> tuple[str, Started]:
        """Prepares and starts the next attempt."""
        folder = self.prepare(self.order(script, *arguments))
        return folder, self.launcher.start(folder)

    def start_nasty(self, *kinds: str) -> tuple[str, Started]:
        """The same with a tree of these kinds, all of which are up."""
        folder, started = self.start(f'exec {self.python} nasty.py "$@"', *kinds)
        eventually(lambda: self.log(folder).endswith(b"up\n"))
        return folder, started

    def log(self, folder: str) -> bytes:
        """The attempt's log so far."""
        return Path(folder, "log").read_bytes()

    def ended(self, folder: str) -> Status:
        """The status of an attempt that ends by itself, after its end."""
        eventually(lambda: self.launcher.status(folder).result is not None)
        return self.launcher.status(folder)

    def survivors(self) -> list[int]:
        """Those of the nasty tree that live now."""
        return [int(pid) for pid in (self.folder / "pids").read_text().split() if lives(int(pid))]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab of the user who runs the tests."""
    lab = Lab(tmp_path)
    yield lab
    for folder in filter(os.path.isdir, lab.attempts):
        lab.launcher.stop(folder)


class PlainUser(LocalHost):
    """This machine, as seen by a user without rights."""

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Runs it with no rights at all."""
        drop = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
        return super().run((*drop, *argv), timeout=timeout, stdin=stdin)

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """Leaves it to that user."""
        part = super().put(path, data, mode)
        made = Path(part)
        while made.stat().st_uid != NOBODY:
            os.chown(made, NOBODY, NOBODY)
            made = made.parent
        return part


@pytest.fixture
def plain_lab() -> Iterator[Lab]:
    """A lab of a user without rights, which only root can set up."""
    python = which("python3", path="/usr/bin:/bin")  # the tests' own may be in a folder of root's
    if os.geteuid() or not which("setpriv") or python is None:
        pytest.skip("only root, with setpriv and a system Python, can run the target's side as another user")
    folder = Path(tempfile.mkdtemp(prefix="nobody-lab-"))
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)
    lab = Lab(folder, PlainUser(), python)
    yield lab
    for attempt in lab.attempts:
        lab.launcher.stop(attempt)
    rmtree(folder)


class Cutting(LocalHost):
    """This machine, which loses the last byte of the files of a name."""

    def __init__(self, cut: str) -> None:
        self.cut = cut

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """Says nothing about what was lost."""
        return super().put(path, data[:-1] if path.endswith(self.cut) else data, mode)


def reason_of(deed: Callable[[], object]) -> Reason:
    """Why a deed could not be done."""
    with pytest.raises(Setback) as setback:
        deed()
    return setback.value.trouble.reason


# --- what is started --------------------------------------------------------------------------------


def test_the_script_gets_its_arguments_and_nothing_but_its_environment(lab: Lab) -> None:
    """The order's environment, the tag, SPT_NOENV, and what bash itself sets."""
    folder, _ = lab.start('printf "%s|" "$@"; exec env', "a b", "ä", "")
    lab.ended(folder)
    arguments, variables = lab.log(folder).decode().split("\n", 1)[1].rsplit("|", 1)
    assert arguments.split("|") == ["a b", "ä", ""]
    names = {line.split("=")[0] for line in variables.split()}
    ours = {"BISECT_AGENT_TAG", "SPT_NOENV", "PATH", "NASTY_PORT"}
    assert ours == names - {"PWD", "SHLVL", "_", "OLDPWD"}


def test_the_script_ignores_no_signal_and_reads_no_input(lab: Lab) -> None:
    """What the supervisor does to signals and input stays with the supervisor.

    Signals 32 and 33 are the C library's own; make starts its children with both ignored, and nobody
    can set them.
    """
    folder, _ = lab.start("grep SigIgn /proc/self/status; cat; echo end")
    lab.ended(folder)
    ignored, end = lab.log(folder).splitlines()[1:]
    assert (0, b"end") == (int(ignored.split()[1], 16) & ~(0b11 << 31), end)


def test_the_script_hears_what_our_own_caller_ignored(lab: Lab) -> None:
    """A shell starts its background jobs deaf to SIGQUIT, by which servers end their children."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        folder, _ = lab.start("exec python3 -c 'import os; os.kill(os.getpid(), 3)'")
    finally:
        signal.signal(signal.SIGQUIT, before)
    lab.ended(folder)
    assert Exit(signal=signal.SIGQUIT) == lab.launcher.stop(folder).exit


def test_the_log_begins_with_the_attempts_own_line(lab: Lab) -> None:
    """A log that another attempt wrote cannot be taken for this one's."""
    order = lab.order("true")
    folder = lab.prepare(order)
    lab.launcher.start(folder)
    assert first_line(order.tag) == lab.log(folder)


def test_what_holds_secrets_is_for_the_owner_alone(lab: Lab) -> None:
    """order.json holds the environment: 0600, in a folder of mode 0700."""
    folder = Path(lab.prepare(lab.order("true")))
    assert (folder / "order.json").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_exit_code_survives_whoever_started_it(lab: Lab) -> None:
    """A script that ends by itself leaves its code, and was not stopped."""
    folder, _ = lab.start("exit 42")
    result = lab.ended(folder).result
    assert result is not None
    assert (Exit(code=42), False, 0, ()) == (result.exit, result.stopped, result.killed, result.left)


def test_a_death_by_signal_is_told_from_an_exit_code(lab: Lab) -> None:
    """128 + n of a shell and a signal are two things."""
    folder, _ = lab.start("kill -s SEGV $$")
    assert Exit(signal=signal.SIGSEGV) == lab.ended(folder).main_exit


def test_a_second_install_writes_nothing(lab: Lab) -> None:
    """A supervisor that is there, with the right hash, is left alone."""
    before = (lab.folder / "run" / "supervisor.py").stat()
    lab.launcher.install()
    after = (lab.folder / "run" / "supervisor.py").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


# --- what is not started ----------------------------------------------------------------------------


def test_a_second_start_starts_nothing(lab: Lab) -> None:
    """An attempt is started at most once."""
    folder, started = lab.start("sleep 60")
    assert Reason.NOT_LAUNCHED is reason_of(lambda: lab.launcher.start(folder))
    assert started.main == lab.launcher.status(folder).processes.main


def test_of_starts_at_the_same_time_one_starts(lab: Lab) -> None:
    """The claim decides, not who looked first."""
    folder = lab.prepare(lab.order("echo started; sleep 60"))
    run = (sys.executable, f"{lab.folder}/run/supervisor.py", "run", folder)
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda _: lab.host.run(run, timeout=30).returncode, range(4)))
    assert sorted(ended) == [0, 75, 75, 75]
    eventually(lambda: b"started" in lab.log(folder))
    assert lab.log(folder).count(b"started") == 1


def test_a_script_that_is_missing_is_not_launched(lab: Lab) -> None:
    """Nothing is claimed for a script that is not there."""
    folder = lab.prepare(lab.order("true"))
    Path(folder, "launch.sh").unlink()
    assert Reason.SCRIPT is reason_of(lambda: lab.launcher.start(folder))
    assert not lab.launcher.status(folder).claimed


def test_a_script_that_was_changed_is_not_launched(lab: Lab) -> None:
    """The target compares the hash right before the start."""
    folder = lab.prepare(lab.order("true"))
    Path(folder, "launch.sh").write_text("echo something else")
    assert Reason.SCRIPT is reason_of(lambda: lab.launcher.start(folder))


@pytest.mark.parametrize("name", ["launch.sh", "order.json"])
def test_what_was_cut_on_its_way_gets_no_name(lab: Lab, name: str) -> None:
    """Neither of the two files: the target tells a hash of each."""
    lab.host = Cutting(name)
    lab.launcher = Launcher(lab.host, f"{lab.folder}/run", lab.python)
    assert Reason.SCRIPT is reason_of(lambda: lab.prepare(lab.order("true")))
    written = {path.name for path in (lab.folder / "run" / "trials").rglob("*.*")}
    assert {"launch.sh.part", "order.json.part"} == written


@pytest.mark.parametrize("script", ["if true; then", "cat <<END\necho swallowed\n  END\n"])
def test_a_script_that_bash_cannot_read_whole_gets_no_name(lab: Lab, script: str) -> None:
    """A syntax error, and a here-document that swallows what follows it."""
    assert Reason.SCRIPT is reason_of(lambda: lab.prepare(lab.order(script)))
    assert list((lab.folder / "run" / "trials").glob("*/*/launch.sh")) == []


def test_a_folder_that_is_not_there_is_told_at_once(lab: Lab) -> None:
    """A launch that fails is reported with its reason, not waited for."""
    folder = lab.prepare(replace(lab.order("true"), cwd=f"{lab.folder}/nowhere"))
    with pytest.raises(Setback, match="nowhere") as setback:
        lab.launcher.start(folder)
    assert Reason.NOT_LAUNCHED is setback.value.trouble.reason


def test_a_supervisor_that_hangs_is_reported_and_after_a_stop_starts_nothing(lab: Lab) -> None:
    """The answer comes within two seconds; a late supervisor finds that a stop was ordered."""
    folder = lab.prepare(lab.order("true"))
    os.mkfifo(Path(folder, "supervisor.log"))  # to open it waits for a reader
    begun = time.monotonic()
    run = (sys.executable, f"{lab.folder}/run/supervisor.py", "run", folder)
    answer = lab.host.run(run, timeout=30).stdout
    assert b"did not start within 2 s" in answer
    assert time.monotonic() - begun < 4
    lab.launcher.stop(folder)
    with Path(folder, "supervisor.log").open("rb") as reader:
        reader.read()
    assert not Path(folder, "log").exists()


def test_after_a_stop_before_the_start_nothing_is_started(lab: Lab) -> None:
    """A start that was on its way when the stop was answered comes too late."""
    folder = lab.prepare(lab.order("true"))
    assert lab.launcher.stop(folder).left == ()
    assert Reason.NOT_LAUNCHED is reason_of(lambda: lab.launcher.start(folder))


# --- what is ended ----------------------------------------------------------------------------------


SETS = (*((kind,) for kind in KINDS), KINDS, (*KINDS, "leave"))
"""Each kind by itself, all at once, and all at once with a parent that is gone."""


@pytest.mark.parametrize("kinds", SETS, ids="+".join)
def test_after_a_stop_nothing_of_the_tree_lives(lab: Lab, kinds: tuple[str, ...]) -> None:
    """Whatever a child does to hide, it ends, and its port is free."""
    folder, _ = lab.start_nasty(*kinds)
    assert lab.survivors()
    assert lab.launcher.stop(folder).left == ()
    assert lab.survivors() == []
    assert {lab.port: ()} == lab.launcher.probe(None, [lab.port]).ports


@pytest.mark.parametrize("kinds", SETS, ids="+".join)
def test_a_user_without_rights_ends_the_whole_tree_too(plain_lab: Lab, kinds: tuple[str, ...]) -> None:
    """No cgroup, no root: the supervisor is enough."""
    folder, _ = plain_lab.start_nasty(*kinds)
    assert plain_lab.launcher.stop(folder).left == ()
    assert plain_lab.survivors() == []


def test_a_stop_after_the_supervisors_death_ends_what_is_known(lab: Lab) -> None:
    """By the recorded tree, the tag, sessions and descent; the exit is then unknown."""
    check_after_the_supervisors_death(lab)


def test_a_user_without_rights_ends_it_after_the_supervisors_death_too(plain_lab: Lab) -> None:
    """Nothing of that needs root."""
    check_after_the_supervisors_death(plain_lab)


def check_after_the_supervisors_death(lab: Lab) -> None:
    """Every kind at once; the one that clears its environment was in the tree when it was last looked at."""
    folder, started = lab.start_nasty(*KINDS)
    eventually(lambda: Path(folder, "tree").read_text().count("sleep") == 1)
    os.kill(started.supervisor.pid, signal.SIGKILL)
    eventually(lambda: lab.launcher.status(folder).supervisor == "dead")
    assert lab.launcher.status(folder).main == "alive"
    stopped = lab.launcher.stop(folder)
    assert (stopped.supervisor, stopped.exit, stopped.left) == ("dead", None, ())
    assert lab.survivors() == []


def test_who_was_born_when_nobody_looked_is_named_and_left_alone(lab: Lab) -> None:
    """An orphan without environment, born between the supervisor's last look and its death, is nobody's.

    It cannot be shown to be ours, so it is not killed; it cannot be shown not to be, so it is named.
    """
    folder, started = lab.start_nasty("swarm")
    os.kill(started.supervisor.pid, signal.SIGSTOP)
    (lab.folder / "swarm").touch()
    eventually(lambda: len(lab.survivors()) == 2)
    os.kill(started.supervisor.pid, signal.SIGKILL)
    eventually(lambda: lab.launcher.status(folder).supervisor == "dead")
    stopped = lab.launcher.stop(folder)
    survivors = lab.survivors()
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert ((), 1) == (stopped.left, len(survivors))
    assert set(survivors) <= {process.pid for process in stopped.suspects}


def test_who_is_older_than_the_attempt_is_not_named(lab: Lab) -> None:
    """Also where the supervisor died before its first look at the tree."""
    orphan = int(subprocess.check_output(("/bin/bash", "-c", "sleep 60 >/dev/null & echo $!")))
    folder, started = lab.start("sleep 60")
    os.kill(started.supervisor.pid, signal.SIGKILL)
    eventually(lambda: lab.launcher.status(folder).supervisor == "dead")
    Path(folder, "tree").unlink(missing_ok=True)
    stopped = lab.launcher.stop(folder)
    os.kill(orphan, signal.SIGKILL)
    assert orphan not in {process.pid for process in stopped.suspects}


def test_a_supervisor_that_does_not_act_is_replaced(lab: Lab) -> None:
    """The stop does its work itself, and leaves no supervisor either."""
    folder = lab.prepare(replace(lab.order("sleep 60"), grace=0.1, bound=0.4))
    started = lab.launcher.start(folder)
    os.kill(started.supervisor.pid, signal.SIGSTOP)
    assert lab.launcher.stop(folder).left == ()
    eventually(lambda: not lives(started.supervisor.pid))
    assert not lives(started.main.pid)


def test_a_daemon_is_left_alone_until_the_stop(lab: Lab) -> None:
    """That the script has ended does not end what it started."""
    folder, _ = lab.start_nasty("orphan", "leave")
    eventually(lambda: lab.launcher.status(folder).main_exit == Exit(code=7))
    status = lab.launcher.status(folder)
    assert (status.supervisor, status.main, status.result) == ("alive", "dead", None)
    assert lab.survivors()


def test_term_comes_first_and_the_script_may_tidy_up(lab: Lab) -> None:
    """Who ends within the grace is not killed."""
    folder, _ = lab.start('trap "echo tidy; exit 3" TERM; echo up; while :; do sleep 0.01; done')
    eventually(lambda: lab.log(folder).endswith(b"up\n"))
    stopped = lab.launcher.stop(folder)
    assert (Exit(code=3), True, 0) == (stopped.exit, stopped.stopped, stopped.killed)
    assert lab.log(folder).endswith(b"tidy\n")


def test_a_second_stop_gives_the_same_answer(lab: Lab) -> None:
    """The result is written once."""
    folder, _ = lab.start("sleep 60")
    assert lab.launcher.stop(folder) == lab.launcher.stop(folder)


def test_an_end_that_was_written_down_is_read_without_a_command(lab: Lab) -> None:
    """What has a result was started, so it is never started again, and nothing of it is left."""
    folder, _ = lab.start("exit 42")
    lab.ended(folder)
    assert Exit(code=42) == Launcher(Silent(), f"{lab.folder}/run").stop(folder).exit


def test_who_was_left_by_a_stop_is_ended_by_the_next(lab: Lab) -> None:
    """A result that names somebody is not the end."""
    folder, started = lab.start("sleep 60")
    os.kill(started.supervisor.pid, signal.SIGKILL)
    result = {"exit": None, "stopped": True, "killed": 0, "left": [started.main.model_dump()], "time": 0.0}
    Path(folder, "result").write_text(json.dumps({**result, "supervisor": "dead"}))
    assert () == lab.launcher.stop(folder).left
    assert not lives(started.main.pid)


def test_a_result_that_cannot_be_read_is_found_out_again(lab: Lab) -> None:
    """A full disk may have left it empty."""
    folder, _ = lab.start("exit 42")
    lab.ended(folder)
    Path(folder, "result").write_text("")
    stopped = lab.launcher.stop(folder)
    assert (Exit(code=42), "dead") == (stopped.exit, stopped.supervisor)


def test_a_removed_folder_does_not_end_the_watch(lab: Lab) -> None:
    """The supervisor still ends the tree when it is told to."""
    folder, started = lab.start_nasty("deaf", "orphan")
    rmtree(folder)
    os.kill(started.supervisor.pid, signal.SIGTERM)
    eventually(lambda: not lives(started.supervisor.pid))
    assert lab.survivors() == []


def test_a_full_disk_does_not_save_anything_from_the_stop(lab: Lab) -> None:
    """What cannot be written is done and answered all the same."""
    disk = lab.folder / "run" / "trials"
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", str(disk))
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root, where it may mount, can make a small disk")
    try:
        folder, _ = lab.start_nasty("deaf", "cleared")
        with pytest.raises(OSError, match="No space"):
            (disk / "ballast").write_bytes(bytes(1 << 20))
        stopped = lab.launcher.stop(folder)
        assert Reason.DISK is reason_of(lambda: lab.prepare(lab.order("true" + " " * (1 << 16))))
    finally:
        lab.attempts.clear()
        subprocess.run(("/bin/umount", "-l", str(disk)), check=True)
    assert stopped.left == ()
    assert lab.survivors() == []


# --- what is seen -----------------------------------------------------------------------------------


def test_a_listener_of_the_tree_is_ours_wherever_it_hides(lab: Lab) -> None:
    """An orphan in another session that listens is the attempt's; without the attempt it is a stranger."""
    folder, _ = lab.start_nasty("port")
    (ours,) = lab.launcher.probe(folder, [lab.port]).ports[lab.port]
    (theirs,) = lab.launcher.probe(None, [lab.port]).ports[lab.port]
    assert (ours.ours, theirs.ours) == (True, False)
    assert ours.pid == theirs.pid


def test_a_strangers_listener_is_named_and_not_ours(lab: Lab) -> None:
    """A busy port comes with the pid and the user of who holds it."""
    folder, _ = lab.start("sleep 60")
    with socket.create_server(("127.0.0.1", lab.port)):
        (listener,) = lab.launcher.probe(folder, [lab.port]).ports[lab.port]
    assert (os.getpid(), False) == (listener.pid, listener.ours)
    assert listener.user


def test_an_owner_that_may_not_be_seen_is_still_a_listener(plain_lab: Lab) -> None:
    """Another user's socket is listed without a pid: the port is busy."""
    with socket.create_server(("127.0.0.1", plain_lab.port)):
        (listener,) = plain_lab.launcher.probe(None, [plain_lab.port]).ports[plain_lab.port]
    assert (listener.pid, listener.user, listener.ours) == (None, "root", False)


class Server(BaseHTTPRequestHandler):
    """Answers what it was asked; `/drip` never comes to an end, a byte at a time."""

    def do_GET(self) -> None:
        """Tells the path; the last byte is not UTF-8."""
        self.send_response(404 if self.path == "/none" else 200)
        self.end_headers()
        self.wfile.write(b"GET " + self.path.encode() + b" \xff")
        while self.path == "/drip" and not self.server.drained.wait(0.05):  # type: ignore[attr-defined]
            self.wfile.write(b".")

    def do_POST(self) -> None:
        """Tells type and body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Content-Type"].encode() + b" " + body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(lab: Lab) -> Iterator[int]:
    """A server on the lab's port."""
    httpd = HTTPServer(("127.0.0.1", lab.port), Server)
    httpd.drained = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield lab.port
    httpd.drained.set()  # type: ignore[attr-defined]
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_requests_are_answered_with_status_and_body(lab: Lab, server: int) -> None:
    """GET without a body, POST of JSON with one; a status of failure is an answer too."""
    asked = [Request(server, "/a", 5), Request(server, "/none", 5), Request(server, "/b", 5, body='{"ä": 1}')]
    answers = lab.launcher.probe(None, [], asked).http
    said = [(200, "GET /a \ufffd"), (404, "GET /none \ufffd"), (200, 'application/json {"ä": 1}')]
    assert said == [(answer.status, answer.body) for answer in answers]


def test_an_answer_that_only_drips_is_overdue(lab: Lab, server: int) -> None:
    """The time of a request is for all of it, not for each byte."""
    (answer,) = lab.launcher.probe(None, [], [Request(server, "/drip", 0.3)]).http
    assert (answer.status, answer.error) == (None, "TimeoutError: no whole answer in time")


def test_nobody_listening_is_an_error_of_the_request(lab: Lab) -> None:
    """No status, and the reason."""
    (answer,) = lab.launcher.probe(None, [], [Request(lab.port, "/", 1)]).http
    assert answer.status is None
    assert "refused" in answer.error


def test_before_the_start_nothing_is_claimed(lab: Lab) -> None:
    """`none` is what never was; it is not `dead`."""
    status = lab.launcher.status(lab.prepare(lab.order("true")))
    assert (status.claimed, status.supervisor, status.main, status.log) == (False, "none", "none", None)


# --- when the target fails --------------------------------------------------------------------------


class Silent(LocalHost):
    """A host that was lost."""

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Raises what a lost host raises."""
        raise errors.Unreachable(f"gpu-box: no answer to {argv[0]} ({timeout} s, {len(stdin)} bytes)")


class Garbling(LocalHost):
    """A host that lets something else answer."""

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Runs a program that greets."""
        greeting = ("echo", "Welcome to gpu-box!", *argv)
        return super().run(greeting, timeout=timeout, stdin=stdin)


@pytest.mark.parametrize("host", [Silent(), Garbling()])
def test_no_answer_and_a_garbled_answer_say_nothing(host: LocalHost, tmp_path: Path) -> None:
    """Neither is read as dead, or as done."""
    launcher = Launcher(host, str(tmp_path))
    assert Reason.UNREACHABLE is reason_of(lambda: launcher.status(f"{tmp_path}/t"))
    assert Reason.UNREACHABLE is reason_of(lambda: launcher.stop(f"{tmp_path}/t"))


def test_a_target_without_python_is_said_to_be_unusable(tmp_path: Path) -> None:
    """To try again would not help."""
    with pytest.raises(errors.TargetError, match=r"Python 3\.6"):
        Launcher(LocalHost(), str(tmp_path), "no-such-python").install()
