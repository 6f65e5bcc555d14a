"""What a report shows beside the verdict, of investigations of a target that exists only in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.events import Entry, Stopping
from bisect_agent.journal import NAME, decode
from bisect_agent.model import Cached, Configuration, Playbook
from bisect_agent.report.dossier import Checked, Dossier, Fact, Meaning, Move
from bisect_agent.report.files import read_dossier, reports
from bisect_agent.report.gather import gather
from bisect_agent.verdict import Verdict
from tests.fakes import Behaviour, Lab, Stack, fails, serves, stack_of
from tests.worlds import Rule, World, claim, playbook_of, setting

CLASH = World((Rule(frozenset({setting("compile=on"), setting("capture=on")})),))
INCIDENT = playbook_of(
    {"compile": ("off", "on"), "kernel": ("mma", "stock"), "capture": ("on", "off")},
    {"compile": "on"},
    hypotheses=(
        claim("stack-wide", "compile capture", "kernel", because="The two meet.", advice="Give one up."),
        claim("kernel-specific", "compile capture kernel"),
        claim("about-another-factor", missing=("graphs",)),
    ),
)
ONE = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"})
FAST = Configuration({"mode": "fast"})
OURS: Mapping[str, str] = {"HOME": "/root", "PATH": "/bin"}


@dataclass(frozen=True)
class Ran:
    """An investigation that is over, and what is shown of it."""

    lab: Lab
    code: ExitCode
    verdict: Verdict

    def dossier(self) -> Dossier:
        """What is shown beside the verdict, as the run folder is now."""
        return read_dossier(self.lab.folder, self.verdict)

    def checked(self, trial: str) -> Checked:
        """The first attempt at a trial."""
        return next(checked for checked in self.dossier().checked if checked.trial == trial)

    def fact(self, trial: str, name: str) -> Fact:
        """What was looked at in it."""
        return next(fact for fact in self.checked(trial).facts if fact.name == name)


Run = Callable[[Playbook, Stack], Ran]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Investigates a stack to the end."""
    with ExitStack() as labs:
        yield lambda playbook, stack: _investigated(labs, tmp_path, playbook, stack)


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """One that several tests look at: two settings are the cause, a third one is innocent."""
    with ExitStack() as labs:
        yield _investigated(labs, tmp_path_factory.mktemp("incident"), INCIDENT, stack_of(CLASH, INCIDENT))


def _investigated(labs: ExitStack, folder: Path, playbook: Playbook, stack: Stack) -> Ran:
    lab = labs.enter_context(Lab(folder / "run", playbook, stack, ours=OURS))
    outcome = lab.begin().engine.run()
    return Ran(lab, outcome.code, outcome.verdict)


def bad_does(behaviour: Behaviour) -> Stack:
    """A stack whose good works, and whose bad does this."""
    return lambda configuration, _: behaviour if configuration == FAST else serves()


def test_a_hypothesis_is_shown_with_its_way(incident: Ran) -> None:
    """Which trial began to test it, which decided it, and what was never decided."""
    dossier = incident.dossier()
    assert {
        "stack-wide": (Move("testing", "t01"), Move("supported", "t05")),
        "kernel-specific": (Move("testing", "t01"), Move("refuted", "t03")),
        "about-another-factor": (Move("undecided", None),),
    } == {name: background.path for name, background in dossier.backgrounds.items()}
    assert dossier.background("stack-wide").mechanism == "The two meet."


def test_the_decisive_pairs_can_be_run_by_hand(incident: Ran) -> None:
    """The failing side first, and each passing side with the one line that tells it apart."""
    failing, *passing = incident.dossier().by_hand
    assert (failing.title, frozenset()) == ("bad", failing.changed)
    assert f"  bash {incident.lab.folder.path}/trials/t02-bad/1/launch.sh" == failing.lines[-1]
    assert ["good", "bad with capture=off"] == [block.title for block in passing]
    assert [["  COMPILE=off \\"], ["  CAPTURE=off \\"]] == [
        [block.lines[place] for place in block.changed] for block in passing
    ]


def test_what_helps_is_said_first(incident: Ran) -> None:
    """The advice of what is supported, then what was seen to heal, then what still runs."""
    first, *rest = incident.dossier().advice
    assert ("Give one up.", "stack-wide") == (first.text, first.hypothesis)
    assert ["compile=off heals it (t01)", "capture=off heals it (t04)"] == [
        advice.text.partition(";")[0] for advice in rest[:-1]
    ]
    assert f"bisect-agent stop {incident.lab.folder.path}" == rest[-1].command


def test_a_server_that_does_not_run_comes_before_all_advice(run: Run) -> None:
    """`good` works once, and then no more."""

    def stack(configuration: Configuration, start: int) -> Behaviour:
        return serves() if configuration != FAST and start == 1 else fails("capturing", "error: boom")

    ran = run(ONE, stack)
    assert ran.code is ExitCode.NOT_RESTORED
    first, *_, last = ran.dossier().advice
    assert first.text.startswith("`good` does not run again")
    assert f"bisect-agent resume {ran.lab.folder.path}" == last.command


def test_without_a_pair_the_controls_can_be_run_by_hand(run: Run) -> None:
    """Where the budget was too small, `bad` and `good` are all there is."""
    limits = ONE.limits.model_copy(update={"trials": 2})
    ran = run(ONE.model_copy(update={"limits": limits}), bad_does(fails("error: boom")))
    assert ran.code is ExitCode.BUDGET
    assert ["bad", "good"] == [block.title for block in ran.dossier().by_hand]


def test_what_was_verified_is_said_step_by_step(run: Run) -> None:
    """Script, process, log, readiness, listener, answers, levels, end, remains: in their order."""
    ran = run(ONE, bad_does(fails("capturing", "error: boom")))
    names = [fact.name for fact in ran.checked("t01").facts]
    assert ["script", "process", "log", "ready", "listener on 30000"] == names[:5]
    assert ["health", "request", "sent", "answer"] == names[5:9]
    assert ["mode=safe", "why it ended", "left", "ports", "environment"] == names[9:]
    assert set() == {fact.ok for fact in ran.checked("t01").facts} - {True, None}
    assert ["script", "process", "log"] == [fact.name for fact in ran.checked("t02").facts][:3]


@pytest.mark.parametrize(
    ("behaviour", "name", "said"),
    [
        (serves(listens="foreign"), "listener on 30000", "a process that is not of this attempt"),
        (serves(log="of another run"), "log", "not seen to begin with this attempt's tag"),
        (serves(undying=True), "left", "still alive: "),
        (serves(holds_port=True), "ports", "30000 still taken"),
        (serves(status=500), "answer", "500 "),
    ],
)
def test_what_is_amiss_is_said(run: Run, behaviour: Behaviour, name: str, said: str) -> None:
    """And marked as such."""
    fact = run(ONE, bad_does(behaviour)).fact("t02", name)
    assert (False, said) == (fact.ok, fact.said[: len(said)])


def test_what_is_around_an_attempt_is_said(tmp_path: Path) -> None:
    """What changed, what a GPU did not give back, what the kernel said, and what was left behind."""
    gpu = "GPU-1, NVIDIA H200, 580, {}, 0\n"
    smi = {"gpus": {"text": gpu.format(3), "wrong": ""}, "apps": {"text": "", "wrong": ""}}
    held = {**smi, "gpus": {"text": gpu.format(9000), "wrong": ""}}
    left = {"removed": ["/shm/psm_1"], "kept": [{"path": "/shm/psm_2", "why": "open"}], "more": 2}
    log = {"last": 1, "lines": ["NVRM: Xid (PCI:0000:9c:00): 31, pid=1"]}

    def listen(entry: Entry) -> None:
        if isinstance(entry.event, Stopping) and entry.event.trial == "t02":
            lab.host.around = {"kernel": "6.9", **held, "left": left, "log": log}

    with Lab(tmp_path / "run", ONE, bad_does(fails("error: boom")), listen, ours=OURS) as lab:
        lab.host.around = {"kernel": "6.8", **smi}
        outcome = lab.begin().engine.run()
        ran = Ran(lab, outcome.code, outcome.verdict)
        assert ["as before the first trial", "as before the start"] == [
            ran.fact("t01", name).said for name in ("environment", "GPU memory")
        ]
        facts = [(fact.name, fact.said, fact.ok) for fact in ran.checked("t02").facts]
    used = "NVIDIA H200 GPU-1: 9000 MiB used, 3 MiB before; nvidia-smi names no process"
    assert [
        ("environment", "kernel: 6.8 → 6.9", False),
        ("the kernel says", "NVRM: Xid (PCI:0000:9c:00): 31, pid=1", None),
        ("GPU memory", f"30 s after the stop: {used}", False),
        ("left behind", "removed: /shm/psm_1", True),
        ("left behind", "/shm/psm_2: open; 2 more", None),
    ] == facts[facts.index(("environment", "kernel: 6.8 → 6.9", False)) :]
    assert ExitCode.NOT_RESTORED is ran.code


@pytest.mark.parametrize(
    ("cached", "said"), [("fresh", "fresh, each attempt its own: TRITON_CACHE_DIR"), ("shared", "shared: ")]
)
def test_the_caches_are_said(run: Run, cached: Cached, said: str) -> None:
    """With the verdict too: what an attempt compiled may have been another one's luck."""
    caches = {"TRITON_CACHE_DIR": "triton"} if cached == "fresh" else {}
    ran = run(
        ONE.model_copy(update={"cached": cached, "caches": caches}),
        bad_does(fails("capturing", "error: boom")),
    )
    assert cached == ran.verdict.caches
    assert ran.dossier().record["caches"].startswith(said)


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        (fails("KeyError: 'x'", exit=(2.0, 3)), "named by how the launch script ended"),
        (fails("Traceback (most recent call last):", "KeyError: 'x'", exit=(2.0, 3)), "No signature knows"),
        (fails("capturing"), "did not end"),
        (serves(answer='{"text": ""}'), "did not answer as it must"),
    ],
)
def test_a_failure_that_no_signature_knows_is_explained(run: Run, behaviour: Behaviour, says: str) -> None:
    """A name alone says nothing to whoever meets it first."""
    ran = run(ONE, bad_does(behaviour))
    assert ran.verdict.symptom is not None
    assert says in ran.dossier().meanings[ran.verdict.symptom.id].text


def test_a_failure_of_the_kernels_own_may_have_no_signature(incident: Ran) -> None:
    """A kill for want of memory is named by us, whatever signatures a run has."""
    folder = incident.lab.folder
    observe = INCIDENT.observe.model_copy(update={"signatures": ()})
    bare = INCIDENT.model_copy(update={"observe": observe})
    dossier = gather(bare, decode(folder.read(NAME)), incident.verdict, "/", lambda _: None)
    assert {"boom": Meaning()} == dossier.meanings


def test_lines_around_evidence_come_from_the_file_that_was_read(run: Run) -> None:
    """Where it was changed since, or is gone, the line stands alone; the report is made all the same."""
    ran = run(ONE, bad_does(fails("capturing", "error: boom", after_stop=("too late",))))
    assert ran.verdict.symptom is not None
    (line,) = ran.verdict.symptom.evidence
    near = ran.dossier().around(line)
    assert ["capturing", "error: boom"] == [row.text for row in near if not row.late][-2:]
    assert ["too late"] == [row.text for row in near if row.late]
    log = ran.lab.folder.path / line.path
    log.write_bytes(log.read_bytes().replace(b"capturing", b"CAPTURING"))
    assert () == ran.dossier().around(line)
    log.unlink()
    assert b"error: boom" in reports(ran.lab.folder, ran.verdict)["html"]
