"""Between two attempts: real ones on this machine, with an nvidia-smi that tells what the test wants."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from bisect_agent.events import Launched, OfAttempt, Stopping
from bisect_agent.hosts import Completed
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Aftermath, Failed, Fingerprint, Kind, Passed, Playbook, Reason, Unresolved
from bisect_agent.target import around
from tests import attempts
from tests.attempts import Attempted, attempt

UUID = "GPU-71cd85e7-4702-e742-7003-dfca0b17e573"
IDLE = f"{UUID}, NVIDIA H200, 580.159.04, 3, 0"
BUSY = f"{UUID}, NVIDIA H200, 580.159.04, 1554, 0"
SMI = """\
#!/bin/bash
case $1 in --query-gpu=*) cat "${0%/*}/gpus" ;; *) cat "${0%/*}/apps" ;; esac
"""


@dataclass
class Machine(LocalHost):
    """This machine, with GPUs by a program of that name; `looks` counts those around."""

    place: Path
    looks: list[Sequence[str]] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Finds that program first."""
        self.looks += [argv] if argv[1:4] == ("-I", "-S", "-") else []
        path = f"PATH={self.place}{os.pathsep}{os.environ['PATH']}"
        return super().run(("/usr/bin/env", path, *argv), timeout=timeout, stdin=stdin)

    def shows(self, gpus: str, apps: str = "") -> None:
        """What nvidia-smi prints from now on."""
        self.is_told_by(SMI)
        (self.place / "gpus").write_text(f"{gpus}\n")
        (self.place / "apps").write_text(f"{apps}\n" if apps else "")

    def is_told_by(self, script: str) -> None:
        """Another nvidia-smi, which is there at one stroke."""
        part = self.place / "part"
        part.write_text(script)
        part.chmod(0o755)
        part.rename(self.place / "nvidia-smi")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with an idle H200."""
    (tmp_path / "bin").mkdir()
    machine = Machine(tmp_path / "bin")
    machine.shows(IDLE)
    return machine


def job(folder: Path, launch: str = "true", **more: object) -> Playbook:
    """A job that starts this script."""
    plain = attempts.playbook(folder, launch)
    target = plain.target.model_copy(update={"code": more.pop("code", ())})
    return plain.model_copy(update={"kind": Kind.JOB, "target": target, **more})


def when(kind: type[OfAttempt], deed: Callable[[], object]) -> attempts.Listener:
    """Does something at an event."""

    def listen(event: OfAttempt) -> None:
        if isinstance(event, kind):
            deed()

    return listen


def same(seen: Fingerprint) -> Fingerprint:
    """All stays that was seen."""
    return seen


def carried(
    playbook: Playbook,
    machine: Machine,
    listen: attempts.Listener = lambda _: None,
    baseline: Callable[[Fingerprint], Fingerprint] = same,
) -> Attempted:
    """An attempt on a machine that was looked at before."""
    return attempt(playbook, listen, host=machine, baseline=baseline)


def unresolved(done: Attempted, reason: Reason) -> str:
    """Why an attempt says nothing."""
    assert isinstance(done.outcome, Unresolved)
    assert reason is done.outcome.reason
    return done.outcome.detail


def after(done: Attempted) -> Aftermath:
    """What it left around it."""
    assert done.seen.aftermath is not None
    return done.seen.aftermath


# --- what must stay ---------------------------------------------------------------------------------


def test_where_nothing_changed_nothing_is_said(tmp_path: Path, machine: Machine) -> None:
    """The observation is that of before; each look is one command, one before and one after."""
    done = carried(job(tmp_path), machine)
    assert isinstance(done.outcome, Passed)
    assert None is done.seen.aftermath
    assert "aftermath" not in done.text("observation.json")
    assert 3 == len(machine.looks)  # The first is that before all trials.


def test_code_that_changes_in_an_attempt_excuses_it(tmp_path: Path, machine: Machine) -> None:
    """It passed, and nobody knows with what; the lines that say so are evidence."""
    code = tmp_path / "model.py"
    code.write_text("a = 1\n")
    edit = when(Launched, lambda: code.write_text("a = 2\n"))
    done = carried(job(tmp_path, code=(str(code),)), machine, edit)
    said = unresolved(done, Reason.ENVIRONMENT)
    assert said.startswith(f"code {code}: file ")
    assert " → file " in said
    assert isinstance(done.outcome, Unresolved)
    (line,) = done.outcome.evidence
    assert ("trials/t01-good/1/environment.txt", said) == (line.path, line.text)
    assert done.has(line)


def test_a_failure_in_another_environment_says_nothing_either(tmp_path: Path, machine: Machine) -> None:
    """Rule 6: it may be the change's own."""
    change = when(Launched, lambda: machine.shows(IDLE.replace("580", "590")))
    done = carried(job(tmp_path, "exit 3"), machine, change)
    assert "gpu driver: 580.159.04 → 590.159.04" == unresolved(done, Reason.ENVIRONMENT)


def test_nothing_is_started_in_another_environment(tmp_path: Path, machine: Machine) -> None:
    """A start of minutes would say nothing."""
    events: list[OfAttempt] = []
    older = {"kernel": "5.4"}

    def other(seen: Fingerprint) -> Fingerprint:
        return seen.model_copy(update={"parts": {**seen.parts, **older}})

    done = carried(job(tmp_path), machine, events.append, other)
    assert "nothing was started: kernel: 5.4 → " in unresolved(done, Reason.ENVIRONMENT)
    assert ["closed"] == [event.kind for event in events]


def test_a_memory_error_of_a_gpu_excuses_the_attempt(tmp_path: Path, machine: Machine) -> None:
    """What it computed may be anything."""
    change = when(Launched, lambda: machine.shows(IDLE.replace(", 0", ", 2")))
    said = unresolved(carried(job(tmp_path), machine, change), Reason.ENVIRONMENT)
    assert f"gpu {UUID}: uncorrected memory errors: 0 → 2" == said


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ("exec ./server", "the launch script does not tell which Python it starts"),
        ("pip install x\nexec python3 -m x", "the launch script installs some itself"),
        (
            "exec /nowhere/python3 -m x",
            "/nowhere/python3 does not tell where they are: there is no /nowhere/py",
        ),
    ],
)
def test_why_packages_are_not_looked_at_is_said(
    tmp_path: Path, machine: Machine, launch: str, said: str
) -> None:
    """And nothing of them can then change."""
    told: list[Fingerprint] = []

    def baseline(seen: Fingerprint) -> Fingerprint:
        told.append(seen)
        return seen

    carried(job(tmp_path, launch), machine, baseline=baseline)
    assert told[0].unread["package"].startswith(said)
    assert [] == [name for name in told[0].parts if name.startswith("package")]


def test_a_package_that_is_installed_in_an_attempt_excuses_it(tmp_path: Path, machine: Machine) -> None:
    """In any folder in which the script's Python looks for them."""
    launch = f"export PYTHONPATH={tmp_path}/site\nexec python3 -m json.tool --help"
    engine = tmp_path / "site" / "engine-1.0.dist-info"
    engine.mkdir(parents=True)
    upgrade = when(Launched, lambda: engine.rename(engine.with_name("engine-2.0.dist-info")))
    done = carried(job(tmp_path, launch), machine, upgrade)
    said = unresolved(done, Reason.ENVIRONMENT)
    assert said.startswith("package engine: 1.0 of ")
    assert " → 2.0 of " in said


# --- memory of GPUs ---------------------------------------------------------------------------------


def test_memory_that_does_not_come_back_makes_the_target_dirty(tmp_path: Path, machine: Machine) -> None:
    """It is said how much, and whose, and nothing else may be started there."""
    user = f"{UUID}, {os.getpid()}, 1542, /usr/bin/python3"
    keep = when(Launched, lambda: machine.shows(BUSY, user))
    said = unresolved(carried(job(tmp_path), machine, keep), Reason.DIRTY)
    assert said.startswith("GPU memory, ")
    assert f" s after the stop: NVIDIA H200 {UUID}: 1554 MiB used, 3 MiB before;" in said
    assert said.endswith(f" by {os.getpid()} python3")


def test_memory_is_waited_for(tmp_path: Path, machine: Machine) -> None:
    """The driver takes its time."""
    script = f"""\
#!/bin/bash
case $1 in --query-gpu=*) ;; *) exit ;; esac
echo asked >>{tmp_path}/asked
if [ $(wc -l <{tmp_path}/asked) -gt 1 ]; then echo '{IDLE}'; else echo '{BUSY}'; fi
"""
    late = when(Launched, lambda: machine.is_told_by(script))
    assert isinstance(carried(job(tmp_path), machine, late).outcome, Passed)
    assert 2 == len((tmp_path / "asked").read_text().split())


HANGS = "#!/bin/bash\nsleep 600\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (HANGS, "nvidia-smi gave no answer within 2 s"),
        ("#!/bin/bash\necho '<html>'\n", "nvidia-smi printed what is no table of GPUs: '<html>'"),
        ("#!/bin/bash\necho lost; exit 15\n", "nvidia-smi ended with exit status 15: lost"),
    ],
    ids=["hangs", "nonsense", "fails"],
)
def test_a_driver_that_is_lost_in_an_attempt_makes_the_target_dirty(
    tmp_path: Path, machine: Machine, script: str, said: str
) -> None:
    """Whether its memory is free is not known; the look ends all the same."""
    done = carried(job(tmp_path), machine, when(Launched, lambda: machine.is_told_by(script)))
    assert unresolved(done, Reason.DIRTY).endswith(f"what is used cannot be seen: {said}")
    assert f"gpu: known before, and now not: {said}\n" == done.text("environment.txt")


@pytest.mark.parametrize("script", [HANGS, "#!/bin/bash\necho '<html>'\n"], ids=["hangs", "nonsense"])
def test_a_driver_that_never_answered_holds_nothing_up(tmp_path: Path, machine: Machine, script: str) -> None:
    """It is said before the first trial, and no trial is judged by it."""
    machine.is_told_by(script)
    told: list[Fingerprint] = []

    def baseline(seen: Fingerprint) -> Fingerprint:
        told.append(seen)
        return seen

    done = carried(job(tmp_path, "exit 3"), machine, baseline=baseline)
    assert isinstance(done.outcome, Failed)
    assert told[0].unread["gpu"].startswith("nvidia-smi ")


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process of another attempt."""
    with subprocess.Popen(("/bin/sleep", "60"), env={"BISECT_AGENT_TAG": "another"}) as process:
        yield process.pid
        process.kill()


def test_memory_of_another_attempt_is_not_ours(tmp_path: Path, machine: Machine, neighbour: int) -> None:
    """It came while ours ran, and stays: nobody is wrong."""
    come = when(Launched, lambda: machine.shows(BUSY, f"{UUID}, {neighbour}, 1542, python3"))
    done = carried(job(tmp_path), machine, come)
    assert isinstance(done.outcome, Passed)
    assert None is done.seen.aftermath


def test_where_nobody_is_named_memory_may_be_another_attempts(
    tmp_path: Path, machine: Machine, neighbour: int
) -> None:
    """That is said, and the target is not called dirty for it."""
    assert neighbour
    done = carried(job(tmp_path), machine, when(Launched, lambda: machine.shows(BUSY)))
    assert isinstance(done.outcome, Passed)
    assert f"s after the stop: NVIDIA H200 {UUID}: 1554 MiB used, 3 MiB before" in after(done).unsure


# --- what is left -----------------------------------------------------------------------------------


def test_shared_memory_that_an_attempt_left_is_told(tmp_path: Path, machine: Machine) -> None:
    """It is removed; or kept, where another attempt lives here at this moment."""
    segment = Path(around.SHARED_MEMORY) / f"bisect-agent-test-{uuid4().hex}"
    launch = f"umask 077; echo x >{segment}; sleep 600"
    leaves = (f"{segment}*",)
    stop = attempts.LIMITS.model_copy(update={"start": 1.0})
    done = carried(job(tmp_path, launch, leaves=leaves, limits=stop), machine)
    try:
        told = {*after(done).removed, *(each.path for each in after(done).kept)}
        assert {str(segment)} == told
        assert segment.exists() is (str(segment) not in after(done).removed)
    finally:
        segment.unlink(missing_ok=True)


def test_what_a_stop_interrupts_is_looked_at_too(tmp_path: Path, machine: Machine) -> None:
    """Whatever ends an attempt, the next one starts where it was."""
    change = when(Stopping, lambda: machine.shows(IDLE.replace("H200", "H100")))
    limits = attempts.LIMITS.model_copy(update={"start": 1.0})
    done = carried(job(tmp_path, "sleep 600", limits=limits), machine, change)
    assert f"gpu {UUID}: NVIDIA H200 → NVIDIA H100" == unresolved(done, Reason.ENVIRONMENT)
