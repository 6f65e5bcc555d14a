"""An exported run tells of no machine and no person, and is as good a run as the one it was made from."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from bisect_agent.archive import opened, pack
from bisect_agent.errors import DamagedRun, UsageError
from bisect_agent.events import Closed, Entry, Exported, Launched
from bisect_agent.export import Export, export, is_exported
from bisect_agent.folder import RunFolder
from bisect_agent.journal import decode
from bisect_agent.model import Configuration, Playbook, Role, Signature, Target
from bisect_agent.redaction import Kind, Known
from bisect_agent.verify import Verified, verify
from tests.fakes import Behaviour, Lab, Stack, serves
from tests.worlds import playbook_of

HERE = Known(
    hosts=frozenset({"gpu-box-7", "trial"}),
    users=frozenset({"Jane", "root"}),
    kernels=frozenset({"6.8.0-1-vendor9"}),
)
"""A machine whose names are hard to miss, and two that are words of every run."""
TRACES = re.compile(
    rb"(?i)jane|gpu-box|node9|team-x|nightly|10\.1\.2\.3|123fda90|vendor9|/root\b|example\.org"
)
"""What of it must not be found in an export."""
HOME = "/home/jane"
PLAYBOOK = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"}).model_copy(
    update={
        "target": Target(host="ssh://jane@gpu-box-7:22", ports=(30000,), cwd="/srv/team-x/nightly"),
        "launch": "cd /srv/team-x/nightly && exec serve --model ~/team-x/model --log /root/log\n",
    }
)
FIRST = (
    "gpu-box-7: \x1b[32mjane\x1b[0m@10.1.2.3 loads /srv/team-x/nightly/model.safetensors",
    "GPU 0 is GPU-123fda90-be2d-4b0f-8baa-b0d8594df0ce, the kernel 6.8.0-1-vendor9",
    "node9:17:18 [0] NCCL INFO Bootstrap: Using eth0:10.1.2.3<0>",
    "ask jane@example.org, or node9",
)
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/jane/team-x/kernel.py", line 7, in launch',
    "ValueError: no such kernel in /home/jane/team-x",
)


def stack(*more: str) -> Stack:
    """It tells who runs it where; in the fast mode it dies."""

    def behave(configuration: Configuration, _: int) -> Behaviour:
        shown = (*FIRST, f"mode is {configuration['mode']}")
        if configuration["mode"] == "safe":
            return serves(*shown, answer='{"by": "jane on gpu-box-7"}')
        written = enumerate(("loading", *shown, *more, *TRACEBACK))
        return Behaviour(lines=tuple((n / 10, line) for n, line in written), exit=(1.2, 1))

    return behave


def recorded(place: Path, playbook: Playbook = PLAYBOOK, behaviour: Stack | None = None) -> RunFolder:
    """The folder of a run that is over."""
    ours = {"HOME": HOME, "PATH": f"{HOME}/bin:/usr/bin"}
    with Lab(place, playbook, behaviour or stack(), ours=ours) as lab:
        lab.begin().engine.run()
        return lab.folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose files all tell of the machine."""
    return recorded(tmp_path_factory.mktemp("export") / "run")


def exported(run: RunFolder, to: Path, *also: str) -> Export:
    """A copy of a run."""
    return export(run, to, HERE, also, "1.2.3")


@pytest.fixture(scope="module")
def made(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Export:
    """A copy of that run."""
    return exported(run, tmp_path_factory.mktemp("export") / "copy")


def files(folder: Path) -> dict[str, bytes]:
    """All of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def findings(found: Verified) -> tuple[object, ...]:
    """What was found, without the texts of lines."""
    verdict = found.verdict
    trials = [(t.id, t.outcome, t.symptom, t.seconds) for t in verdict.trials]
    lines = [(e.path, e.line, e.offset) for t in verdict.trials for e in t.evidence]
    return verdict.cause, verdict.pairs, trials, lines, found.attempts, found.log_bytes


def test_nothing_of_the_machine_or_the_person_is_left(run: RunFolder, made: Export) -> None:
    """In no file, in whatever way it was written there."""
    assert {} == {name: found for name, data in files(made.path).items() if (found := TRACES.findall(data))}
    assert TRACES.findall(b"".join(files(run.path).values()))


def test_the_copy_follows_and_says_what_it_is_a_copy_of(run: RunFolder, made: Export) -> None:
    """Its verdict, and every line that it points to, is that of the run."""
    original, copy = verify(run), verify(RunFolder(made.path))
    assert findings(original) == findings(copy)
    assert (None, sha256(run.journal.read_bytes().splitlines()[-1]).hexdigest()) == (
        original.exported,
        copy.exported and copy.exported.head,
    )


def test_every_file_is_there_and_has_its_length(run: RunFolder, made: Export) -> None:
    """What is not made anew has the same name, and as many bytes."""
    before, after = files(run.path), files(made.path)
    kept = [name for name in before if name.endswith(("log", "env", "launch.sh", "yaml", "txt"))]
    assert [len(before[name]) for name in kept] == [len(after[name]) for name in kept]
    assert before.keys() | {"verdict.md", "verdict.html"} == after.keys()


def test_what_was_replaced_is_told(made: Export) -> None:
    """By kind, to whoever exports; in the copy, by number alone."""
    (first, *_) = decode((made.path / "journal.jsonl").read_bytes())
    assert isinstance(first.event, Exported)
    assert {str(kind): len(names) for kind, names in made.found.items()} == first.event.replaced
    assert (("gpu-box-7", "node9"), ("jane",)) == (
        tuple(sorted(made.found[Kind.HOST])),
        made.found[Kind.USER],
    )
    assert "  user (1): jane" in list(made.summary())


def test_a_name_that_is_a_word_of_every_run_is_told_and_left(made: Export) -> None:
    """A host called `trial` must not make `trial-planned` something else."""
    assert ("trial",) == made.spared
    assert any("--also trial" in line for line in made.summary())


def test_what_changed_around_an_attempt_travels_too(tmp_path: Path) -> None:
    """With its file, and without what tells of the machine in it."""

    def listen(entry: Entry) -> None:
        event = entry.event
        if isinstance(event, Launched | Closed) and (event.trial, event.attempt) == ("t02", 1):
            lab.host.around = around("a" if isinstance(event, Closed) else "b")

    def around(commit: str) -> dict[str, object]:
        state = {"/home/jane/team-x": f"commit {commit}, clean"}
        return {"kernel": "6.8.0-1-vendor9", "code": {"state": state, "wrong": {}}}

    with Lab(tmp_path / "run", PLAYBOOK, stack(), listen, ours={"HOME": HOME}) as lab:
        lab.host.around = around("a")
        lab.begin().engine.run()
        made = exported(lab.folder, tmp_path / "copy")
    (kept,) = made.path.glob("trials/t02-bad/1/environment.txt")
    assert kept.read_text().endswith(": commit a, clean → commit b, clean\n")
    assert [] == [name for name, data in files(made.path).items() if TRACES.search(data)]


def test_further_words_are_replaced_everywhere(run: RunFolder, tmp_path: Path) -> None:
    """A level's name too, in every place alike."""
    exported(run, tmp_path / "copy", "fast")
    copy = files(tmp_path / "copy")
    assert [] == [name for name, data in copy.items() if b"fast" in data or "fast" in name]
    assert verify(RunFolder(tmp_path / "copy")).verdict.established


def test_the_copy_lies_beside_the_run_and_its_name_is_redacted_too(run: RunFolder, tmp_path: Path) -> None:
    """A run is named after its title."""
    shutil.copytree(run.path, tmp_path / "acme-dies")
    assert (
        tmp_path / "worA-dies-exported"
        == export(RunFolder(tmp_path / "acme-dies"), None, HERE, ["acme"], "1").path
    )


def test_what_no_event_names_is_left_out(run: RunFolder, tmp_path: Path) -> None:
    """Nobody has looked at it, so nobody can say what is in it."""
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("jane's")
    made = exported(RunFolder(tmp_path / "run"), tmp_path / "copy")
    assert (("notes.txt",), False) == (made.left_out, (tmp_path / "copy" / "notes.txt").exists())


def test_a_long_log_keeps_its_holes(tmp_path: Path) -> None:
    """The copy of a copy has the same pieces."""
    noise = "\n".join(f"step {n} of gpu-box-7 in /srv/team-x/nightly" for n in range(46_000))
    run = recorded(tmp_path / "run", behaviour=stack(noise))
    exported(run, tmp_path / "copy")
    assert findings(verify(run)) == findings(verify(RunFolder(tmp_path / "copy")))
    log = (tmp_path / "copy" / "trials/t02-bad/1/server.log").read_bytes()
    assert (True, []) == (b"are left out here" in log, TRACES.findall(log))


# --- what is refused ----------------------------------------------------------------------------------


def test_a_run_that_does_not_follow_is_not_exported(run: RunFolder, tmp_path: Path) -> None:
    """A new chain must not make an honest run of a forged one."""
    shutil.copytree(run.path, tmp_path / "run")
    log = tmp_path / "run" / "trials/t02-bad/1/server.log"
    log.write_bytes(log.read_bytes().replace(b"ValueError", b"ValueErrer"))
    with pytest.raises(DamagedRun, match=r"trials/t02-bad/1/server\.log"):
        exported(RunFolder(tmp_path / "run"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_replacement_that_changes_a_finding_is_refused(tmp_path: Path) -> None:
    """The word is what a signature looks for, and the pattern does not hold it letter by letter."""
    told = Signature(id="told", role=Role.ROOT, pattern="no such k[e]rnel", fatal=True)
    observe = PLAYBOOK.observe.model_copy(update={"signatures": (told,)})
    run = recorded(tmp_path / "run", PLAYBOOK.model_copy(update={"observe": observe}))
    with pytest.raises(UsageError, match=r"the outcome of t02/1 would be another"):
        exported(run, tmp_path / "copy", "kernel")
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


def test_a_word_of_the_record_itself_is_refused(run: RunFolder, tmp_path: Path) -> None:
    """Without `passed` there are no outcomes."""
    with pytest.raises(UsageError, match="a word of the record itself"):
        exported(run, tmp_path / "copy", "local", "passed", "single")


@pytest.mark.parametrize("word", ["", "x", "--"])
def test_a_word_that_is_none_is_refused(run: RunFolder, tmp_path: Path, word: str) -> None:
    """It would be found anywhere."""
    with pytest.raises(UsageError, match="letters and digits"):
        exported(run, tmp_path / "copy", word)


def test_nothing_is_overwritten(run: RunFolder, tmp_path: Path) -> None:
    """Not even an empty folder."""
    with pytest.raises(UsageError, match="there is something of that name"):
        exported(run, tmp_path)
    with pytest.raises(UsageError, match="its folder cannot be written, or is none"):
        exported(run, tmp_path / "none" / "copy")


def test_an_export_is_not_exported_again(run: RunFolder, made: Export, tmp_path: Path) -> None:
    """Its head would be that of a copy; the run that it was made from is elsewhere."""
    assert (False, True) == (is_exported(run), is_exported(RunFolder(made.path)))
    with pytest.raises(UsageError, match="exported run already"):
        exported(RunFolder(made.path), tmp_path / "copy")


@pytest.mark.parametrize("name", ["journal.jsonl", "trials/t02-bad/1/server.log", "trials/t01-good/1/env"])
def test_a_changed_export_is_found(made: Export, tmp_path: Path, name: str) -> None:
    """As in any other run."""
    shutil.copytree(made.path, tmp_path / "copy")
    data = (tmp_path / "copy" / name).read_bytes()
    (tmp_path / "copy" / name).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.raises(DamagedRun, match=re.escape(name)):
        verify(RunFolder(tmp_path / "copy"))


# --- archives -----------------------------------------------------------------------------------------


def test_an_archive_is_the_same_whenever_it_is_made(run: RunFolder, made: Export, tmp_path: Path) -> None:
    """So a sample in a repository changes only when the product does."""
    exported(run, tmp_path / "copy.tar.gz")
    pack(made.path, "copy", tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == (tmp_path / "copy.tar.gz").read_bytes()


def test_an_archive_holds_the_files_of_a_folder(made: Export, tmp_path: Path) -> None:
    """What is unpacked of it is gone when nobody looks any more."""
    pack(made.path, "copy", tmp_path / "copy.tar.gz")
    with opened(tmp_path / "copy.tar.gz") as path:
        assert files(made.path) == files(path)
    assert not path.exists()


def packed(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> Callable[[Path], object]:
    """An archive with one more entry."""

    def write(path: Path) -> None:
        with tarfile.open(path, "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("run/journal.jsonl"))
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "/etc/passwd", size
            archive.addfile(entry, io.BytesIO(bytes(size)))

    return write


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (packed("run/../../evil"), r"'run/\.\./\.\./evil' is not a file of a run folder"),
        (packed("/etc/evil"), "'/etc/evil' is not a file"),
        (packed("run/env", tarfile.SYMTYPE), "'run/env' is not a file"),
        (packed("run/env", tarfile.FIFOTYPE), "'run/env' is not a file"),
        (packed("loose"), "'loose' is not a file"),
        (packed("other/env"), "it holds 2 folders"),
        (packed("run/journal.jsonl/x"), "Not a directory|File exists"),
        (lambda path: path.write_bytes(b"no archive"), "not a gzip file"),
        (lambda path: pack(path.parent / "nothing", "run", path), "it holds 0 folders"),
    ],
)
def test_an_archive_of_nobody_knows_whom_is_looked_at_first(
    tmp_path: Path, write: Callable[[Path], object], why: str
) -> None:
    """It writes nowhere but below a folder of ours, and says what it is."""
    path = tmp_path / "run.tar.gz"
    write(path)
    with pytest.raises(UsageError, match=why), opened(path):
        pass


def test_the_summary_shows_no_secret(tmp_path: Path) -> None:
    """A log of an older run may hold one; it is replaced, and counted."""
    token = "ghp_" + "aZ3bY4cX5dW6eV7fU8gT9hS0iR1jQ2kP3lO4"
    found = {Kind.TOKEN: (token,), Kind.HOST: ("me:pw@pip.acme.io",), Kind.MAIL: ("jane@acme.io",)}
    told = list(Export(tmp_path, found, (), ()).summary())
    assert f"  access token (1): {'*' * len(token)}" in told
    assert {"  host (1): pip.acme.io", "  mail address (1): jane@acme.io"} <= set(told)
