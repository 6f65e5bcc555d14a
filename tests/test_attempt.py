"""One attempt: its steps, its files, and what it leaves on the target."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.attempt import carry_out
from bisect_agent.edge import Task
from bisect_agent.events import Closed, Launched, OfAttempt, PhaseEntered, ReadySeen
from bisect_agent.model import HttpRequest, Observation, Playbook, Reason, Trial, Why
from bisect_agent.watching import POLL, SOON
from tests.fakes import FOLDER, Behaviour, Lab, fails, said, serves
from tests.worlds import READY, playbook_of

PLAYBOOK = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
TOKEN = "hunter2hunter2"
SECRETIVE = PLAYBOOK.model_copy(
    update={"target": PLAYBOOK.target.model_copy(update={"env": {"HF_TOKEN": "${HF_TOKEN}"}})}
)
TRIAL = Trial(id="t01", control="good", configuration=PLAYBOOK.good)


@dataclass(frozen=True)
class Carried:
    """An attempt that is over."""

    lab: Lab
    events: list[OfAttempt]

    @property
    def seen(self) -> Observation:
        """What was seen in it."""
        last = self.events[-1]
        assert isinstance(last, Closed)
        return last.observation

    def text(self, name: str) -> str:
        """One of its files."""
        return self.lab.folder.read(f"trials/t01-good/1/{name}").decode()


def carried(
    tmp_path: Path,
    behaviour: Behaviour,
    playbook: Playbook = PLAYBOOK,
    *,
    keep: bool = False,
    lost: int | None = None,
    cancelled: bool = False,
) -> Carried:
    """An attempt at `good` that behaves so; `lost` is the number of a call that goes unanswered."""
    events: list[OfAttempt] = []
    cancel = threading.Event()
    with Lab(
        tmp_path / "run", playbook, lambda *_: behaviour, ours={"HOME": "/root", "HF_TOKEN": TOKEN}
    ) as lab:
        lab.edge.launcher.install()
        if lost is not None:
            lab.host.lose(lost)
        if cancelled:
            cancel.set()
        task = Task(playbook, TRIAL, 1, "tag", keep=keep)
        carry_out(task, lab.edge, lab.folder, events.append, cancel)
    return Carried(lab, events)


# --- what it keeps ----------------------------------------------------------------------------------


def test_the_attempt_keeps_its_script_and_its_environment(tmp_path: Path) -> None:
    """A person can start it again by hand."""
    done = carried(tmp_path, serves())
    assert ("exec serve\n", "HOME=/root\nMODE=safe\n") == (done.text("launch.sh"), done.text("env"))


def test_no_secret_is_kept(tmp_path: Path) -> None:
    """Not in the environment, the log, the answer, or the observation; the target had it."""
    leaky = serves(f"token is {TOKEN}", answer=f'{{"text": "it is {TOKEN}"}}')
    done = carried(tmp_path, leaky, SECRETIVE)
    kept = [path.read_bytes() for path in done.lab.folder.path.rglob("*") if path.is_file()]
    assert [] == [data for data in kept if TOKEN.encode() in data]
    assert TOKEN in done.lab.host.files[f"{FOLDER}/t01-1-tag/order.json"].decode()
    assert f"token is {'*' * len(TOKEN)}" in done.text("server.log")


def test_no_secret_is_kept_of_a_look_at_the_stacks(tmp_path: Path) -> None:
    """A command line may hold one."""
    done = carried(tmp_path, fails(), SECRETIVE)
    assert f"serve /root {'*' * len(TOKEN)} safe" in done.text("stacks-2.txt")


def test_the_copy_of_the_log_is_the_log(tmp_path: Path) -> None:
    """From its first line, which names the attempt, to its last."""
    done = carried(tmp_path, fails("error: boom", "too late"))
    assert "# bisect-agent attempt tag\nloading\nerror: boom\ntoo late\n" == done.text("server.log")


def test_other_ranks_are_heard_after_a_fatal_line(tmp_path: Path) -> None:
    """Who failed first is told by the stamps of all; what comes later than two seconds is not waited for."""
    lines = ((0.5, "error: boom"), (2.0, "error: bang"), (9.0, "error: crack"))
    assert ["boom", "bang"] == [m.id for m in carried(tmp_path, Behaviour(lines=lines)).seen.reading.matches]


def test_repeated_markers_enter_a_phase_once(tmp_path: Path) -> None:
    """Every rank prints them; no rank leads back into an earlier phase."""
    done = carried(tmp_path, serves("capturing", "loading", "capturing"))
    assert ["load", "capture"] == [e.match.id for e in done.events if isinstance(e, PhaseEntered)]


# --- how soon it is over ----------------------------------------------------------------------------


def test_the_supervisor_is_not_asked_what_its_files_tell(tmp_path: Path) -> None:
    """That the script has ended, and how: a call there takes ten times as long as all of a short job."""
    calls = carried(tmp_path, fails(exit=(0.5, 3))).lab.host.calls
    verbs = [argv[4] for argv in calls if argv[3:4] == (f"{FOLDER}/supervisor.py",)]
    assert ["probe", "run", "probe"] == verbs


@pytest.mark.parametrize("at", [0.001, 0.02, 0.1, 3.3])
def test_an_end_is_seen_soon_beside_what_the_job_took(tmp_path: Path, at: float) -> None:
    """A quarter of that later, but never sooner or later than the shortest and the longest pause."""
    done = carried(tmp_path, fails(exit=(at, 3)), PLAYBOOK)
    assert done.lab.clock.monotonic() - at < min(POLL, max(SOON, at / 4)) + 0.001


# --- ready and served -------------------------------------------------------------------------------


def test_a_server_without_a_ready_line_is_ready_when_it_is_healthy(tmp_path: Path) -> None:
    """By its health check, asked from the beginning."""
    observe = PLAYBOOK.observe.model_copy(update={"ready_log": None})
    done = carried(tmp_path, serves(), PLAYBOOK.model_copy(update={"observe": observe}))
    assert [None] == [e.match for e in done.events if isinstance(e, ReadySeen)]
    assert Why.SERVED is done.seen.why


def test_a_server_that_is_to_be_kept_lives_on(tmp_path: Path) -> None:
    """The restore leaves it, if it answers."""
    done = carried(tmp_path, serves(), keep=True)
    assert ([PLAYBOOK.good], False) == (done.lab.host.alive(), done.seen.stopped)


@pytest.mark.parametrize("behaviour", [serves(status=500), serves(listens="nobody"), fails("error: boom")])
def test_a_server_that_does_not_serve_is_not_kept(tmp_path: Path, behaviour: Behaviour) -> None:
    """A broken server is no restored one."""
    assert [] == carried(tmp_path, behaviour, keep=True).lab.host.alive()


def test_a_playbook_without_a_request_asks_for_health_only(tmp_path: Path) -> None:
    """And keeps no answer."""
    observe = PLAYBOOK.observe.model_copy(update={"request": None})
    done = carried(tmp_path, serves(), PLAYBOOK.model_copy(update={"observe": observe}))
    assert done.seen.serving is not None
    assert None is done.seen.serving.request
    assert not (done.lab.folder.path / "trials/t01-good/1/response.txt").exists()


def test_a_fatal_line_after_ready_ends_it(tmp_path: Path) -> None:
    """A server that says ready and dies of its first request has failed."""
    dying = Behaviour(lines=said("loading", READY, "error: boom"), listens="nobody")
    assert Why.FATAL is carried(tmp_path, dying).seen.why


# --- trouble of ours --------------------------------------------------------------------------------


@pytest.mark.parametrize("call", range(1, 40, 2))
def test_whatever_call_is_lost_nothing_is_left_running(tmp_path: Path, call: int) -> None:
    """Each attempt ends in an observation, and its server ends with it (rule 9)."""
    done = carried(tmp_path, fails("error: boom"), lost=call)
    assert ([], ()) == (done.lab.host.alive(), done.seen.left)
    assert done.seen.trouble is None or Reason.UNREACHABLE is done.seen.trouble.reason


def test_a_start_that_nobody_heard_of_is_ended(tmp_path: Path) -> None:
    """After a lost answer something may run all the same."""
    done = carried(tmp_path, serves(unheard=True))
    assert [] == done.lab.host.alive()
    assert ["launching", "closed"] == [event.kind for event in done.events]


def test_what_the_guardian_has_ended_did_not_exit(tmp_path: Path) -> None:
    """Its mark is on the target before what it ends has ended."""
    events: list[OfAttempt] = []
    with Lab(tmp_path / "run", PLAYBOOK, lambda *_: fails()) as lab:

        def emit(event: OfAttempt) -> None:
            events.append(event)
            if isinstance(event, Launched):
                lab.host.take_over()

        carry_out(Task(PLAYBOOK, TRIAL, 1, "tag"), lab.edge, lab.folder, emit, threading.Event())
    assert Why.TROUBLE is Carried(lab, events).seen.why


def test_a_port_that_is_taken_starts_nothing(tmp_path: Path) -> None:
    """The answers would be somebody else's."""
    with Lab(tmp_path / "run", PLAYBOOK, lambda *_: serves()) as lab:
        lab.host.strangers = frozenset(PLAYBOOK.target.ports)
        events: list[OfAttempt] = []
        carry_out(Task(PLAYBOOK, TRIAL, 1, "tag"), lab.edge, lab.folder, events.append, threading.Event())
    assert (["closed"], []) == ([event.kind for event in events], lab.host.starts)


def test_an_interrupted_attempt_is_ended(tmp_path: Path) -> None:
    """And is told apart from one that failed."""
    done = carried(tmp_path, serves(), cancelled=True)
    assert (Why.CANCELLED, True, []) == (done.seen.why, done.seen.stopped, done.lab.host.alive())


def test_a_request_is_sent_as_the_playbook_says(tmp_path: Path) -> None:
    """A request without a body asks for a page."""
    observe = PLAYBOOK.observe.model_copy(update={"request": HttpRequest(path="/model_info")})
    done = carried(tmp_path, serves(), PLAYBOOK.model_copy(update={"observe": observe}))
    assert "ok" == done.text("response.txt")
