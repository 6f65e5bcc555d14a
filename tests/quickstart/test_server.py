import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "playbooks" / "quickstart"
RANKS = ["TP0", "TP1", "TP2", "TP3"]
READY = "The server is ready to answer."
DEPENDENCY = "CaptureError: dependency created on uncaptured work in another thread"
LOST = "CaptureError: operation failed due to a previous error during capture"
PATIENCE_S = 20.0

CRASH = re.compile(
    r"^\[(?P<stamp>[^]]+) (?P<rank>TP\d)\] Scheduler hit an exception: Traceback", re.MULTILINE
)

Answer = tuple[int, dict[str, Any]]


class Server:
    """A server started as a process of its own, with its log in a file."""

    def __init__(self, folder: Path, log: Path, arguments: list[str], variables: Mapping[str, str]) -> None:
        self.port = _free_port()
        self._log = log
        environment = {"PATH": os.environ["PATH"], **variables}
        command = [sys.executable, "server.py", "--port", str(self.port), *arguments]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def log(self) -> str:
        """What is in the log by now."""
        return self._log.read_text(encoding="utf-8")

    def ready(self) -> bool:
        """Wait for the ready line; False when the server ended without one."""
        self.wait(lambda: READY in self.log)
        return READY in self.log

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds or the server has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and self.process.poll() is None:
            assert time.monotonic() < deadline, self.log
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)

    def end(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(PATIENCE_S)

    def ranks(self) -> list[int]:
        """The pids of its children."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def get(self, path: str) -> Answer:
        """The status and the body."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: str) -> Answer:
        """The status and the body."""
        return self._ask("POST", path, body)

    def generate(self, prompt: str, max_new_tokens: int = 16) -> dict[str, Any]:
        """The body of an answer that is one."""
        status, body = self.post(
            "/generate", json.dumps({"prompt": prompt, "max_new_tokens": max_new_tokens})
        )
        assert status == 200
        return body

    def _ask(self, method: str, path: str, body: str | None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has collected yet counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _all_gone(pids: list[int]) -> bool:
    """Whether the processes are gone, or go within a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while not all(map(_gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return all(map(_gone, pids))


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()


def _ranks_that_say(text: str, log: str) -> list[str]:
    return sorted(re.findall(rf"^\[[^]]+ (TP\d)\] {re.escape(text)}", log, re.MULTILINE))


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers: `start("--enable-compile", folder=…, QUICKSTART_KERNEL="stock")`."""
    servers: list[Server] = []

    def start(*arguments: str, folder: Path = FOLDER, **variables: str) -> Server:
        log = tmp_path / f"server-{len(servers)}.log"
        servers.append(Server(folder, log, list(arguments), variables))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server in its working configuration, for tests that only ask."""
    server = Server(FOLDER, tmp_path_factory.mktemp("good") / "server.log", [], {})
    assert server.ready()
    yield server
    server.process.terminate()
    server.process.wait()


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log of a server that compiles and captures."""
    server = Server(FOLDER, tmp_path_factory.mktemp("crash") / "server.log", ["--enable-compile"], {})
    assert server.end() == 1
    return server.log


@pytest.fixture
def copy(tmp_path: Path) -> Callable[..., Path]:
    """Copies the playbook's folder and replaces lines in it: `copy(("file", "old", "new"), …)`."""

    def copy(*edits: tuple[str, str, str]) -> Path:
        folder = tmp_path / "copy"
        shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for name, old, new in edits:
            text = (folder / name).read_text(encoding="utf-8")
            assert text.count(f"\n{old}\n") == 1
            (folder / name).write_text(text.replace(old, new), encoding="utf-8")
        return folder

    return copy


ON_CALLERS_THREAD = (
    "compiled.py",
    "STREAM: type[Stream] = SideStream",
    "STREAM: type[Stream] = CallersStream",
)
PADDED = ("compiled.py", "ROW_MULTIPLE = 64", "ROW_MULTIPLE = 48")
COLD = ("rank.py", "WARM_UP_AS_CONFIGURED = True", "WARM_UP_AS_CONFIGURED = False")

LEVELS = list(itertools.product(("tuned", "stock"), ("on", "off")))
"""Of the kernel, and of the inner graphs."""


def _variables(kernel: str, inner_graphs: str) -> dict[str, str]:
    return {"QUICKSTART_KERNEL": kernel, "QUICKSTART_INNER_GRAPHS": {"on": "1", "off": "0"}[inner_graphs]}


def _witnessed(log: str, kernel: str, inner_graphs: str, capture: str) -> list[list[str]]:
    """The ranks whose log proves each level."""
    levels = {"attention kernel": kernel, "inner graphs": inner_graphs, "graph capture": capture}
    return [_ranks_that_say(f"{factor}: {level}", log) for factor, level in levels.items()]


# --- what works and what fails ----------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "inner_graphs"), LEVELS)
def test_compiling_fails_at_capture_whatever_else_is_set(
    start: Start, kernel: str, inner_graphs: str
) -> None:
    """Every rank fails with the recorder's refusal, after every level was seen in effect."""
    server = start("--enable-compile", **_variables(kernel, inner_graphs))
    assert server.end() == 1
    assert server.log.count(f"recorder.{DEPENDENCY}\n") == len(RANKS)
    assert _witnessed(server.log, kernel, inner_graphs, "on") == [RANKS] * 3


@pytest.mark.parametrize(("kernel", "inner_graphs"), LEVELS)
@pytest.mark.parametrize(
    ("flags", "capture"),
    [([], "on"), (["--disable-graph"], "off"), (["--enable-compile", "--disable-graph"], "off")],
)
def test_without_compiling_or_without_capture_it_works(
    start: Start, good: Server, flags: list[str], capture: str, kernel: str, inner_graphs: str
) -> None:
    """Every level is seen in effect, and the answer is `good`'s."""
    server = start(*flags, **_variables(kernel, inner_graphs))
    assert server.ready()
    assert _witnessed(server.log, kernel, inner_graphs, capture) == [RANKS] * 3
    assert server.generate("the same question") == good.generate("the same question")


def test_a_misspelt_variable_is_ignored(start: Start) -> None:
    """The server cannot know of it: it starts, with the kernel that nobody asked for."""
    server = start(QUICKSTART_KERNAL="stock")
    assert server.ready()
    assert _ranks_that_say("attention kernel: tuned", server.log) == RANKS


@pytest.mark.parametrize("variable", ["QUICKSTART_KERNEL", "QUICKSTART_INNER_GRAPHS"])
def test_a_value_that_means_nothing_is_an_error(start: Start, variable: str) -> None:
    """It ends with code 2 and says which variable and what to write."""
    server = start(**{variable: "fast"})
    assert server.end() == 2
    assert f"{variable} is 'fast': set it to" in server.log


def test_an_unknown_flag_is_an_error(start: Start) -> None:
    """It ends with argparse's code 2."""
    server = start("--enable-torch-compile")
    assert server.end() == 2


# --- mutations (README) -----------------------------------------------------------------------------


def test_compiled_work_on_the_callers_thread_passes(start: Start, copy: Callable[..., Path]) -> None:
    """Without the side stream nothing is left that capture could refuse."""
    server = start("--enable-compile", folder=copy(ON_CALLERS_THREAD))
    assert server.ready()


@pytest.mark.parametrize(
    ("flags", "kernel"),
    [
        (["--enable-compile"], "stock"),
        (["--enable-compile", "--disable-graph"], "tuned"),
        ([], "tuned"),
    ],
)
def test_a_cold_tuner_does_no_harm_unless_tuned_compiled_and_captured(
    start: Start, good: Server, copy: Callable[..., Path], flags: list[str], kernel: str
) -> None:
    """One of the three set otherwise, and the padded server works and answers as `good` does."""
    server = start(*flags, folder=copy(ON_CALLERS_THREAD, PADDED, COLD), QUICKSTART_KERNEL=kernel)
    assert server.ready()
    assert server.generate("padded") == good.generate("padded")


def test_a_tuner_that_is_cold_at_capture_fails(start: Start, copy: Callable[..., Path]) -> None:
    """The padded shape is new at capture; the recorder refuses the tuner's work by the same rule."""
    server = start("--enable-compile", folder=copy(ON_CALLERS_THREAD, PADDED, COLD))
    assert server.end() == 1
    assert server.log.count(f"recorder.{DEPENDENCY}\n") == len(RANKS)


# --- the log ----------------------------------------------------------------------------------------


def test_the_phases_are_logged_in_order(good: Server) -> None:
    """Each rank goes through all phases, between the parent's first and last line."""
    phases = ["Load weight", "Warm-up", "Capture decode graph"]
    marks = [f"{phase} {edge}." for phase in phases for edge in ("begin", "end")]
    own = [line.partition("] ")[2] for line in good.log.splitlines() if " TP3] " in line]
    first, *_, last = good.log.splitlines()
    assert [line for line in own if line in marks] == marks
    assert "server_args=ServerArgs(port=" in first
    assert last.endswith(READY)


def test_every_line_is_stamped(good: Server) -> None:
    """Date, time to the millisecond and, in a rank's line, the rank."""
    stamp = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}( TP[0-3])?\] ")
    assert [line for line in good.log.splitlines() if not stamp.match(line)] == []


def test_a_crash_is_the_chain_that_python_prints(crash: str) -> None:
    """The recorder's refusal comes first, its consequences after it, each in a traceback of its own."""
    report = crash[CRASH.search(crash).start() :].partition("\n[")[0]  # type: ignore[union-attr]
    joint = "\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback"
    refused, lost, failed = report.split(joint)
    assert refused.endswith(f"\nrecorder.{DEPENDENCY}")
    assert lost.endswith(f"\nrecorder.{LOST}")
    assert "\nRuntimeError: Capture decode graph failed: operation failed due to a previous" in failed


def test_every_rank_gives_eight_lines_of_advice(crash: str) -> None:
    """They follow whatever has failed, and name compilation too."""
    advice = re.findall(r"^(?:Possible solutions:|[1-7]\. .*)$", crash, re.MULTILINE)
    assert len(advice) == 8 * len(RANKS)
    assert advice.count("3. disable torch compile by not using --enable-compile") == len(RANKS)


def test_the_rank_printed_first_is_not_the_one_that_failed_first(crash: str) -> None:
    """TP1 fails well before the others, and is printed after them."""
    printed = [(match["rank"], _seconds(match["stamp"])) for match in CRASH.finditer(crash)]
    failed = sorted(printed, key=lambda crash: crash[1])
    assert printed[-1] == failed[0]
    assert sorted(rank for rank, _ in printed) == RANKS
    assert failed[0][0] == "TP1"
    assert failed[1][1] - failed[0][1] >= 0.080
    assert failed[-1][1] - failed[0][1] >= 0.150


def test_the_parent_says_that_a_child_failed(crash: str) -> None:
    """Once, whichever ranks fail."""
    assert crash.count("] Received sigquit from a child process. It usually means the child failed.\n") == 1
    assert "crashed with exit code" not in crash


# --- answers ----------------------------------------------------------------------------------------


def test_an_answer_depends_on_the_prompt_and_on_nothing_else(good: Server) -> None:
    """Other prompts get other answers, the same one gets the same."""
    prompts = ["hello", "hello ", "Hello!", "what is a graph?", "x", "", "a long prompt " * 20]
    answers = [good.generate(prompt)["text"] for prompt in prompts]
    assert len(set(answers)) == len(prompts)
    assert [good.generate(prompt)["text"] for prompt in prompts] == answers


def test_an_answer_has_as_many_tokens_as_were_asked_for(good: Server) -> None:
    """And they are not all the same."""
    ids = good.generate("how many?", 32)["output_ids"]
    assert len(ids) == 32
    assert len(set(ids)) > 8


def test_health_is_served(good: Server) -> None:
    """It answers 200 while the ranks are up."""
    assert good.get("/health") == (200, {"status": "healthy"})


@pytest.mark.parametrize(
    "body", ["", "no json", "[]", "{}", '{"prompt": 1}', '{"prompt": "", "max_new_tokens": 0}']
)
def test_a_request_that_is_none_is_refused(good: Server, body: str) -> None:
    """The answer is 400 and says what to send."""
    status, answer = good.post("/generate", body)
    assert status == 400
    assert 'send {"prompt": "text", "max_new_tokens": 16}' in answer["error"]


def test_an_unknown_page_is_not_found(good: Server) -> None:
    """With a hint at what there is."""
    assert good.get("/heath") == (404, {"error": "no such page: /heath; try /health"})


# --- ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_takes_its_ranks_with_it(start: Start, number: signal.Signals) -> None:
    """It says what became of them, ends with code 0 within a second, and leaves nothing."""
    server = start()
    assert server.ready()
    ranks = server.ranks()
    server.process.send_signal(number)
    assert server.process.wait(1.0) == 0
    assert [pid for pid in ranks if not _gone(pid)] == []
    assert f"Subprocess scheduler_0 (pid={ranks[0]}) crashed with exit code -15. Triggering" in server.log


def test_a_server_that_is_stopped_while_it_starts_leaves_nothing(start: Start) -> None:
    """Nor does it wait for the start to come to its end."""
    server = start()
    server.wait(lambda: "Load weight begin." in server.log)
    ranks = server.ranks()
    server.process.terminate()
    assert server.process.wait(1.0) == 0
    assert [pid for pid in ranks if not _gone(pid)] == []


def test_ranks_do_not_outlive_a_killed_parent(start: Start) -> None:
    """They see its end of the pipe close."""
    server = start()
    assert server.ready()
    ranks = server.ranks()
    server.process.kill()
    assert server.end() == -signal.SIGKILL
    assert _all_gone(ranks)


def test_a_killed_rank_ends_the_server(start: Start) -> None:
    """The parent names the rank and the signal, and ends with code 1."""
    server = start()
    assert server.ready()
    ranks = server.ranks()
    os.kill(ranks[2], signal.SIGKILL)
    assert server.end() == 1
    assert f"Subprocess scheduler_2 (pid={ranks[2]}) crashed with exit code -9. Triggering" in server.log
    assert "Received sigquit from a child process." in server.log
    assert [pid for pid in ranks if not _gone(pid)] == []


def test_a_port_that_is_taken_ends_the_server(start: Start, good: Server) -> None:
    """It says which port, ends with code 1, and leaves nothing."""
    server = start("--port", str(good.port))
    server.wait(lambda: "Load weight begin." in server.log)
    ranks = server.ranks()
    assert server.end() == 1
    assert f"Cannot listen on 127.0.0.1:{good.port}: Address already in use." in server.log
    assert [pid for pid in ranks if not _gone(pid)] == []
