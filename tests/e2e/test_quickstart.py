"""One real investigation of the quickstart, looked at from every side; then its mutations."""

import json
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bisect_agent.claims import HypothesisResult
from bisect_agent.errors import DamagedRun, ExitCode
from bisect_agent.folder import RunFolder
from bisect_agent.model import Setting
from bisect_agent.tree import Node
from bisect_agent.verdict import TrialResult, Verdict
from bisect_agent.verify import verify
from tests.e2e.agent import QUICKSTART, Agent, Finished, listens, post, processes_of

COMPILE = Setting(factor="compile", level="on")
CAPTURE = Setting(factor="capture", level="on")
TUNED = Setting(factor="kernel", level="tuned")
REPORT = re.compile(r"^\[(?P<stamp>\S+ \S+) (?P<rank>TP\d)\] Scheduler hit an exception", re.MULTILINE)


# --- what it says -----------------------------------------------------------------------------------


def test_it_concludes_with_nothing_but_the_verdict_on_stdout(run: Finished) -> None:
    """Exit code 0, and the bytes of verdict.json."""
    assert run.code == ExitCode.CONCLUDED
    assert (run.folder / "verdict.json").read_bytes() == run.stdout


def test_the_talk_is_on_stderr(run: Finished) -> None:
    """What goes on, where the record is, and how to stop the good server."""
    assert "t02      fails with capture-dependency in capture" in run.stderr
    assert f"to stop it: bisect-agent stop {run.folder}" in run.stderr


def test_compile_and_capture_together_are_the_cause(run: Finished) -> None:
    """Each is needed, the two are enough, and a pair stands for each."""
    verdict = run.verdict()
    assert {COMPILE, CAPTURE} == set(verdict.cause)
    assert {COMPILE, CAPTURE} == {pair.setting for pair in verdict.pairs}
    assert verdict.established


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("kernel-specific", "refuted"),
        ("double-capture", "refuted"),
        ("compile-against-capture", "supported"),
        ("compile-alone", "refuted"),
        ("capture-alone", "refuted"),
        ("stack-wide", "supported"),
        ("environment", "refuted"),
    ],
)
def test_every_hypothesis_is_decided(run: Finished, name: str, state: str) -> None:
    """The seven claims of the family, each by trials that were run."""
    result = _hypothesis(run.verdict(), name)
    assert state == result.state
    assert set(result.by) <= {trial.id for trial in run.verdict().trials}


@pytest.mark.parametrize(
    ("name", "flip", "witness"),
    [
        ("kernel-specific", Setting(factor="kernel", level="stock"), "attention kernel: stock"),
        ("double-capture", Setting(factor="inner_graphs", level="off"), "inner graphs: off"),
    ],
)
def test_an_innocent_flip_refutes_with_its_witness(
    run: Finished, name: str, flip: Setting, witness: str
) -> None:
    """Decided by `bad` and by the flip that fails the same, seen to take effect: the line is in the tree."""
    bad, flipped = (_trial(run.verdict(), by) for by in _hypothesis(run.verdict(), name).by)
    assert (None, (flip,)) == (bad.change, flipped.change and flipped.change.settings())
    assert ("failed", bad.symptom) == (flipped.outcome, flipped.symptom)
    node = next(n for n in _nodes(run.verdict().tree) if n.text.startswith(f"refuted: {name}:"))
    lines = [e for e in node.evidence if e.text.endswith(witness)]
    assert [f"trials/{flipped.id}-{flip}/1/server.log"] == [line.path for line in lines]


def test_the_first_failing_rank_is_the_one_with_the_earliest_stamp(run: Finished) -> None:
    """Read from the log by another way: and it is not the rank printed first."""
    log = (run.folder / "trials/t02-bad/1/server.log").read_text(encoding="utf-8")
    reports = [(_seconds(m["stamp"]), m["rank"]) for m in REPORT.finditer(log)]
    assert len(reports) == 4
    symptom = run.verdict().symptom
    assert symptom is not None
    assert (min(reports)[1], "shown") == (symptom.first_rank, symptom.order)
    assert reports[0][1] != symptom.first_rank


def test_no_trial_changes_two_factors(run: Finished) -> None:
    """Each trial with a parent differs from it in the one factor that its change names."""
    verdict = run.verdict()
    children = [trial for trial in verdict.trials if trial.parent]
    changed = [t.configuration.differs(_trial(verdict, str(t.parent)).configuration) for t in children]
    assert [t.change and t.change.settings() for t in children] == changed
    assert {1} == {len(settings) for settings in changed}


def test_every_line_of_evidence_is_really_there(run: Finished) -> None:
    """Path, line, offset, text and sha256 of each, against the files."""
    found = list(_evidence(json.loads(run.stdout)))
    assert len(found) > 50
    assert found == [_reread(run.folder, evidence) for evidence in found]


# --- what it leaves ---------------------------------------------------------------------------------


def test_the_record_is_for_its_owner_alone(run: Finished) -> None:
    """Folders 0700, files 0600, also on the target."""
    target = run.agent.home / ".bisect-agent" / run.folder.name
    assert {0o700} == _modes(run.folder, target, wanted=Path.is_dir)
    assert {0o600} == _modes(run.folder, target, wanted=Path.is_file)


def test_every_attempt_leaves_its_four_files(run: Finished) -> None:
    """The script, the environment, the log and what was observed; an answer where one was given."""
    attempts = sorted((run.folder / "trials").glob("*/*"))
    names = [{path.name for path in attempt.iterdir()} - {"response.txt"} for attempt in attempts]
    assert len([*run.verdict().trials, "restore"]) == len(attempts)
    assert [{"launch.sh", "env", "server.log", "observation.json"}] * len(attempts) == names


def test_the_verdict_can_be_computed_again(run: Finished) -> None:
    """`verify` agrees, and says what it went through."""
    command = run.command("verify")
    assert command.end() == ExitCode.CONCLUDED
    assert b"it follows" in command.stdout


@pytest.mark.parametrize("form", ["markdown", "html", "json"])
def test_a_report_is_what_the_run_has_written(run: Finished, form: str) -> None:
    """The same bytes as the file in the folder."""
    written = run.folder / {"markdown": "verdict.md"}.get(form, f"verdict.{form}")
    assert written.read_bytes() == run.command("report", "--format", form).stdout


def test_the_terminal_report_begins_with_the_cause(run: Finished) -> None:
    """A tree whose root is the conclusion."""
    first = run.command("report").stdout.decode().splitlines()[0]
    assert "compile=on × capture=on is the cause" in first


def test_the_run_is_listed(run: Finished) -> None:
    """With its exit code and its conclusion."""
    runs = run.agent.start("runs", "--runs", run.agent.runs)
    assert runs.end() == ExitCode.CONCLUDED
    assert f"{run.folder}: concluded, exit 0: compile=on × capture=on is the cause\n" == runs.stdout.decode()


def test_the_good_server_answers_until_it_is_stopped(mutations: dict[str, Finished]) -> None:
    """It outlives the agent; after `stop` the port is free and no process has the run's tags."""
    run = mutations["none"]
    assert run.verdict().good_restored.ok is True
    status, _ = post(run.port, "/generate", {"prompt": "Do you live?", "max_new_tokens": 4})
    assert status == 200
    assert b"nothing of this run is left running" in run.command("stop").stdout
    assert not listens(run.port)
    assert [] == processes_of(run.folder)


# --- tampering --------------------------------------------------------------------------------------

Tamper = Callable[[bytes], bytes]


def _one_byte(data: bytes) -> bytes:
    """Another digit, somewhere in the middle."""
    place = next(i for i in range(len(data) // 2, len(data)) if chr(data[i]).isdigit())
    return data[:place] + (b"1" if data[place : place + 1] != b"1" else b"2") + data[place + 1 :]


def _another_time(data: bytes) -> bytes:
    """The third event of a journal, at another time."""
    lines = data.split(b"\n")
    return b"\n".join([*lines[:2], lines[2].replace(b'"at":1', b'"at":2', 1), *lines[3:]])


def _without_the_last_line(data: bytes) -> bytes:
    return data[: data.rstrip(b"\n").rindex(b"\n") + 1]


def _within_the_last_line(data: bytes) -> bytes:
    return data[:-10]


@pytest.mark.parametrize(
    ("name", "tamper", "place"),
    [
        ("trials/t02-bad/1/server.log", _one_byte, "trials/t02-bad/1/server.log: it is not the file"),
        ("trials/t01-good/1/response.txt", _one_byte, "trials/t01-good/1/response.txt: it is not the file"),
        ("trials/t02-bad/1/observation.json", _one_byte, "trials/t02-bad/1/observation.json: it is not"),
        ("trials/t02-bad/1/launch.sh", _one_byte, "trials/t02-bad/1/launch.sh: it is not the file"),
        ("verdict.json", _one_byte, "verdict.json: it is not the file"),
        ("resolved.json", _one_byte, "resolved.json: it is not the file"),
        ("playbook.yaml", _one_byte, "playbook.yaml: it is not the file"),
        ("journal.jsonl", _another_time, "journal.jsonl:3: the line is not as it was written"),
        ("journal.jsonl", _without_the_last_line, "journal.jsonl:{cut}: the run is not sealed"),
        ("journal.jsonl", _within_the_last_line, "journal.jsonl:{lines}: the line is torn"),
    ],
)
def test_what_was_changed_is_named(
    run: Finished, tmp_path: Path, name: str, tamper: Tamper, place: str
) -> None:
    """Verifying ends with exit code 1 and the file, and for the journal the line."""
    copy = tmp_path / "run"
    shutil.copytree(run.folder, copy)
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(tamper(data))
    with pytest.raises(DamagedRun) as caught:
        verify(RunFolder(copy))
    assert caught.value.code == ExitCode.NOT_ESTABLISHED
    lines = data.count(b"\n")
    assert caught.value.message.startswith(place.format(lines=lines, cut=lines - 1))


def test_verify_says_what_was_changed(run: Finished, tmp_path: Path) -> None:
    """The command: exit code 1, and one sentence on stderr."""
    shutil.copytree(run.folder, tmp_path / "run")
    log = tmp_path / "run" / "trials/t02-bad/1/server.log"
    log.write_bytes(_one_byte(log.read_bytes()))
    command = Agent(tmp_path).start("verify", tmp_path / "run")
    assert command.end() == ExitCode.NOT_ESTABLISHED
    assert command.stderr.startswith(
        "error: trials/t02-bad/1/server.log: it is not the file that the journal"
    )


# --- mutations (the quickstart's README) ------------------------------------------------------------


def test_compiled_work_on_the_callers_thread_leaves_nothing_to_bisect(
    mutations: dict[str, Finished],
) -> None:
    """`bad` passes three times: that is said, and nothing is accused."""
    run = mutations["on the caller's thread"]
    assert run.code == ExitCode.NOTHING_TO_BISECT
    assert run.verdict().stopped_by == "`bad` does not fail: `bad` passed 3 times"
    assert [] == [trial for trial in run.verdict().trials if trial.change]


def test_a_cold_tuner_is_found_though_the_recorder_is_the_same(mutations: dict[str, Finished]) -> None:
    """The tuned kernel is part of the cause then, with the same symptom from the same recorder."""
    run = mutations["cold tuner"]
    assert run.code == ExitCode.CONCLUDED
    assert {COMPILE, CAPTURE, TUNED} == set(run.verdict().cause)
    assert _hypothesis(run.verdict(), "kernel-specific").state == "supported"
    recorder = run.agent.home / "quickstart" / "recorder.py"
    assert (QUICKSTART / "recorder.py").read_bytes() == recorder.read_bytes()


def test_a_misspelt_variable_decides_nothing_about_the_kernel(mutations: dict[str, Finished]) -> None:
    """The cause stands; what rests on the kernel's flip stays open, because nobody saw it happen."""
    verdict = mutations["misspelt"].verdict()
    assert {COMPILE, CAPTURE} == set(verdict.cause)
    kernel = _hypothesis(verdict, "kernel-specific")
    assert kernel.state == "undecided"
    assert "not witnessed" in kernel.because
    assert _hypothesis(verdict, "stack-wide").state == "undecided"


# --- reading ----------------------------------------------------------------------------------------


def _hypothesis(verdict: Verdict, name: str) -> HypothesisResult:
    return next(h for h in verdict.hypotheses if h.id == name)


def _trial(verdict: Verdict, name: str) -> TrialResult:
    return next(t for t in verdict.trials if t.id == name)


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _evidence(value: object) -> Iterator[dict[str, Any]]:
    """Everything in the verdict that points to a line, wherever it stands."""
    if isinstance(value, dict):
        if "sha256" in value:
            yield {key: value[key] for key in ("path", "line", "offset", "text", "sha256")}
        for inner in value.values():
            yield from _evidence(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _evidence(inner)


def _reread(folder: Path, evidence: dict[str, Any]) -> dict[str, Any]:
    """The same evidence, read from the file."""
    data = (folder / evidence["path"]).read_bytes()
    offset = evidence["offset"]
    return {
        "path": evidence["path"],
        "line": 1 + data[:offset].count(b"\n"),
        "offset": offset,
        "text": data[offset:].partition(b"\n")[0].decode(),
        "sha256": sha256(data).hexdigest(),
    }


def _modes(*folders: Path, wanted: Callable[[Path], bool]) -> set[int]:
    paths = [path for folder in folders for path in (folder, *folder.rglob("*")) if wanted(path)]
    return {stat.S_IMODE(path.stat().st_mode) for path in paths}


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
