"""The program that looks around on the target: what it tells, takes away, and leaves alone."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from shutil import which
from typing import Any
from uuid import uuid4

import pytest

from bisect_agent.target import around, supervisor

SOURCE = resources.files("bisect_agent.target").joinpath("around.py").read_text()
NOBODY = 65534
LIMITS = {"seconds": 10, "files": 1000}


def told(
    asked: Mapping[str, object],
    path: str = os.environ["PATH"],
    command: Sequence[str] = (sys.executable, "-I", "-S"),
) -> dict[str, Any]:
    """What the program answers, run as the agent runs it."""
    ended = subprocess.run(
        [*command, "-", json.dumps(asked)],
        input=SOURCE.encode(),
        env={"PATH": path, "HOME": "/nowhere"},
        capture_output=True,
        check=False,
    )
    assert (0, b"") == (ended.returncode, ended.stderr)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_it_is_python_3_6() -> None:
    """The oldest Python of a target can read it."""
    assert ast.parse(SOURCE, feature_version=(3, 6))


def test_it_needs_the_standard_library_alone() -> None:
    """Nothing is put on the target for it."""
    nodes = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert set() == {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def test_what_is_not_asked_for_is_not_looked_at() -> None:
    """Boot and kernel are told in any case."""
    assert {"boot", "kernel", "tagged"} == set(told({}))


# --- packages ---------------------------------------------------------------------------------------


def test_installed_packages_are_told_with_their_versions(tmp_path: Path) -> None:
    """By the names of the folders that pip makes; the time is that of the list of files."""
    record = tmp_path / "torch-2.9.1.dist-info" / "RECORD"
    record.parent.mkdir()
    record.touch()
    os.utime(record, (1_700_000_000, 1_700_000_000))
    (tmp_path / "torch").mkdir()
    (tmp_path / "idna-3.egg-info").touch()
    os.utime(tmp_path / "idna-3.egg-info", (5, 5))
    found = told({"folders": [str(tmp_path), "/nowhere"]})["packages"]
    assert {"torch": ["2.9.1", 1_700_000_000], "idna": ["3", 5]} == found


def test_the_package_that_python_would_find_is_told(tmp_path: Path) -> None:
    """The first on its path hides the others."""
    for folder, version in (("a", "1"), ("b", "2")):
        (tmp_path / folder / f"x-{version}.dist-info").mkdir(parents=True)
    found = told({"folders": [str(tmp_path / "a"), str(tmp_path / "b")]})["packages"]
    assert "1" == found["x"][0]


# --- code -------------------------------------------------------------------------------------------


def code(path: Path, *skip: Path, **limits: float) -> str:
    """The state of some code, or why there is none."""
    asked = {"paths": [str(path)], "skip": list(map(str, skip)), **LIMITS, **limits}
    found = told({"code": asked})["code"]
    said: str = {**found["state"], **found["wrong"]}[str(path)]
    return said


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("a = 1\n")
    (folder / "sub" / "b.py").write_text("b = 1\n")
    (folder / ".gitignore").write_text("build/\n")
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def git(folder: Path, *command: str) -> None:
    """Runs git, as somebody who has set up nothing."""
    quiet = ("-c", "gc.auto=0", "-c", "maintenance.auto=false")  # Nothing of it goes on afterwards.
    who = (*quiet, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(
        ["/usr/bin/env", "git", "-C", str(folder), *who, *command], check=True, capture_output=True
    )


def commit(folder: Path) -> None:
    """Commits all that is there."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "x")


def test_a_clean_repository_is_its_commit(repository: Path) -> None:
    """And nothing else; what it ignores, and what Python compiles, is none of its state."""
    before = code(repository)
    assert before.startswith("commit ")
    assert before.endswith(", clean")
    for name in ("build/x.so", "__pycache__/a.pyc", "sub/__pycache__/b.pyc"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_bytes(b"x")
    assert before == code(repository)


def test_another_commit_is_another_state(repository: Path) -> None:
    """Though all files are clean in both."""
    before = code(repository)
    (repository / "a.py").write_text("a = 2\n")
    commit(repository)
    assert before != code(repository)


def edited(repository: Path) -> None:
    """A tracked file has another content."""
    (repository / "a.py").write_text("a = 2\n")


def staged(repository: Path) -> None:
    """A change that is in the index."""
    edited(repository)
    git(repository, "add", "a.py")


def added(repository: Path) -> None:
    """A file that git does not know."""
    (repository / "sub" / "c.py").write_text("c = 1\n")


def removed(repository: Path) -> None:
    """A tracked file is gone."""
    (repository / "a.py").unlink()


def executable(repository: Path) -> None:
    """A tracked file can be run."""
    (repository / "a.py").chmod(0o755)


@pytest.mark.parametrize("change", [edited, staged, added, removed, executable])
def test_what_differs_from_the_commit_is_told(repository: Path, change: Callable[[Path], None]) -> None:
    """How many files, their first names, and a hash of what is in them."""
    change(repository)
    before = code(repository)
    assert "1 changed (sub/c.py)" in before or "1 changed (a.py)" in before
    assert before == code(repository)


def test_the_content_of_what_differs_counts(repository: Path) -> None:
    """The names alone would hide a second edit."""
    edited(repository)
    first = code(repository)
    (repository / "a.py").write_text("a = 3\n")
    assert first != code(repository)


def test_a_folder_in_a_repository_is_looked_at_alone(repository: Path) -> None:
    """What differs beside it says nothing of it."""
    edited(repository)
    assert code(repository / "sub").endswith(", clean")
    (repository / "sub" / "b.py").write_text("b = 2\n")
    before = code(repository / "sub")
    assert "1 changed (b.py)" in before
    (repository / "sub" / "b.py").write_text("b = 3\n")
    assert before != code(repository / "sub")
    added(repository)
    assert "2 changed (b.py, c.py)" in code(repository / "sub")


def test_a_folder_that_its_repository_ignores_is_read(repository: Path) -> None:
    """Such as an environment with the stack in it: the commit tells nothing of that."""
    (repository / "build").mkdir()
    (repository / "build" / "x.py").write_text("x = 1\n")
    before = code(repository / "build")
    assert before.startswith("tree ")
    (repository / "build" / "x.py").write_text("x = 2\n")
    assert before != code(repository / "build")


def test_nothing_of_a_repository_is_written(repository: Path) -> None:
    """Not even its index, which git would refresh."""
    (repository / "a.py").touch()
    before = {path: path.stat().st_mtime_ns for path in (repository / ".git").rglob("*")}
    code(repository)
    assert before == {path: path.stat().st_mtime_ns for path in (repository / ".git").rglob("*")}


def test_the_environment_of_git_does_not_lead_astray(repository: Path, tmp_path: Path) -> None:
    """The agent may have been started by a hook of another repository."""
    asked = {"code": {"paths": [str(repository)], "skip": [], **LIMITS}}
    command = ("/usr/bin/env", f"GIT_DIR={tmp_path}", sys.executable, "-I", "-S")
    assert told(asked) == told(asked, command=command)


def test_code_in_no_repository_is_read_whole(tmp_path: Path) -> None:
    """Names, contents and links; not what Python compiles."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.py").write_text("a = 1\n")
    (tmp_path / "x" / "b").symlink_to("a.py")
    before = code(tmp_path)
    assert before.endswith(" (2 files)")
    (tmp_path / "x" / "__pycache__").mkdir()
    (tmp_path / "x" / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert before == code(tmp_path)
    (tmp_path / "x" / "a.py").chmod(0o755)
    executable = code(tmp_path)
    assert before != executable
    (tmp_path / "x" / "a.py").write_text("a = 2\n")
    changed = code(tmp_path)
    assert executable != changed
    (tmp_path / "x" / "b").unlink()
    (tmp_path / "x" / "b").symlink_to("c.py")
    assert changed != code(tmp_path)


def test_one_file_is_code_too(tmp_path: Path) -> None:
    """By what is in it, a link by where it leads."""
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.py").symlink_to("a.py")
    before = code(tmp_path / "a.py")
    assert before.startswith("file ")
    assert before == code(tmp_path / "b.py")


def test_what_the_run_writes_itself_is_no_code(repository: Path, tmp_path: Path) -> None:
    """Its own folders, and the files that factors write, tracked or not."""
    ours = (repository / "a.py", repository / "logs")
    before = code(repository, *ours)
    edited(repository)
    (repository / "logs").mkdir()
    (repository / "logs" / "x").write_text("x")
    assert before == code(repository, *ours)
    assert before != code(repository)
    bare = code(tmp_path, repository)
    edited(repository)
    (repository / "sub" / "new").write_text("x")
    assert bare == code(tmp_path, repository)


def test_code_that_is_not_there_is_said(tmp_path: Path) -> None:
    """It is no empty folder."""
    assert "there is no such file or folder" == code(tmp_path / "none")


def test_a_name_that_is_no_text_can_be_told(repository: Path) -> None:
    """The answer is JSON all the same."""
    (repository / os.fsdecode(b"a\xff.py")).touch()
    assert "1 changed (a?.py)" in code(repository)


def test_too_much_is_said(tmp_path: Path) -> None:
    """A folder of models is no code."""
    for number in range(11):
        (tmp_path / str(number)).touch()
    assert "it has more than 10 files" == code(tmp_path, files=10)


def test_too_slow_is_said(tmp_path: Path) -> None:
    """Every look has its time."""
    (tmp_path / "a.py").touch()
    assert "it could not be read within 0 s" == code(tmp_path, seconds=0)


# --- GPUs -------------------------------------------------------------------------------------------


def smi(folder: Path, script: str) -> str:
    """A PATH with this script as its nvidia-smi."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_without_nvidia_smi_no_gpu_is_told_of(tmp_path: Path) -> None:
    """Nothing is amiss with that."""
    assert not {"gpus", "apps"} & set(told({"gpus": {"seconds": 5}}, path=str(tmp_path)))


def test_nvidia_smi_is_quoted_word_by_word(tmp_path: Path) -> None:
    """What it is asked is what `surroundings` reads."""
    found = told({"gpus": {"seconds": 5}}, path=smi(tmp_path, 'echo "$@"'))
    ending = "--format=csv,noheader,nounits\n"
    assert {"text": f"{around.QUERIES['gpus']} {ending}", "wrong": ""} == found["gpus"]
    assert {"text": f"{around.QUERIES['apps']} {ending}", "wrong": ""} == found["apps"]


def test_nvidia_smi_that_fails_is_said(tmp_path: Path) -> None:
    """With its own words."""
    found = told({"gpus": {"seconds": 5}}, path=smi(tmp_path, "echo 'No devices were found'; exit 6"))
    assert "nvidia-smi ended with exit status 6: No devices were found" == found["gpus"]["wrong"]


def test_nvidia_smi_that_hangs_is_said_and_ended(tmp_path: Path) -> None:
    """With all that it has started: the look ends in its time."""
    script = f"echo $$ >>{tmp_path}/pids; sleep 600 & echo $! >>{tmp_path}/pids; wait"
    found = told({"gpus": {"seconds": 0.5}}, path=smi(tmp_path, script))
    assert "nvidia-smi gave no answer within 0.5 s" == found["gpus"]["wrong"]
    assert found["gpus"] == found["apps"]
    pids = map(int, (tmp_path / "pids").read_text().split())
    assert [] == [pid for pid in pids if (seen := supervisor.look(pid)) and seen.alive]


def test_pids_of_another_space_are_told(tmp_path: Path) -> None:
    """In a container nvidia-smi may name those of the host."""
    row = f"echo 'GPU-1, {os.getpid()}, 5, a'; echo 'GPU-1, 4194304, 5, b'"
    assert [4194304] == told({"gpus": {"seconds": 5}}, path=smi(tmp_path, row))["unseen"]


def test_processes_of_attempts_are_told_by_their_tags(tmp_path: Path) -> None:
    """So that nobody takes another attempt's memory for what is left of this one."""
    with subprocess.Popen(("/bin/sleep", "60"), env={"BISECT_AGENT_TAG": "abc"}) as process:
        found = told({"gpus": {"seconds": 5}}, path=smi(tmp_path, "true"))
        process.kill()
    assert "abc" == found["tagged"][str(process.pid)]


XID = "3,1843,99,-;NVRM: Xid (PCI:0000:9c:00): 31, pid=123, name=python, MMU Fault\n SUBSYSTEM=pci\n"
KERNEL_LOG = ("6,1841,97,-;usb 1-1: new device\n", XID.replace("1843", "1842"), XID, "6,1844,99,-;eth0: up\n")


@pytest.mark.parametrize(("first", "count"), [(-1, 2), (1841, 2), (1842, 1), (1843, 0)])
def test_faults_are_told_from_a_record_on(first: int, count: int) -> None:
    """Each once; an attempt is not told of those before it."""
    line = "NVRM: Xid (PCI:0000:9c:00): 31, pid=123, name=python, MMU Fault"
    assert (1844, [line] * count) == around.faults(KERNEL_LOG, first)


def test_a_storm_of_faults_is_cut() -> None:
    """The first ones tell."""
    assert around.XIDS == len(around.faults([XID] * 1000, -1)[1])


def test_the_kernels_log_is_read_where_it_may_be() -> None:
    """Its last number only grows; without a number to begin with nothing of it is new."""
    boot = supervisor.boot_id()
    first = around.kernel_log(None, boot)
    later = around.kernel_log({"boot": boot, "last": first["last"]}, boot)
    assert [] == first["lines"]
    assert (first["last"] or 0) <= (later["last"] or 0)


# --- what is left -----------------------------------------------------------------------------------


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """The folder of an attempt that has just begun."""
    with subprocess.Popen(("/bin/sleep", "60")) as process:
        begun = supervisor.look(process.pid)
        process.kill()
    assert begun is not None
    folder = tmp_path / "attempt"
    folder.mkdir()
    (folder / "super").write_text(json.dumps(begun.record()))
    return folder


@pytest.fixture
def segment(attempt: Path) -> Iterator[Path]:
    """A piece of shared memory that this user made after the attempt began, and that nobody has open."""
    assert attempt.exists()
    path = Path(around.SHARED_MEMORY) / f"bisect-agent-test-{uuid4().hex}"
    path.write_bytes(b"x")
    path.chmod(0o600)
    yield path
    path.unlink(missing_ok=True)


def left(attempt: Path, path: Path, others: Sequence[str] = ()) -> dict[str, Any]:
    """What becomes of a file after the attempt."""
    found: dict[str, Any] = around.left([str(path)], str(attempt), list(others))
    return found


def kept(attempt: Path, path: Path, others: Sequence[str] = ()) -> str:
    """Why a file stays."""
    found = left(attempt, path, others)
    assert path.exists()
    assert ([], [str(path)]) == (found["removed"], [each["path"] for each in found["kept"]])
    why: str = found["kept"][0]["why"]
    return why


@contextmanager
def holding(code: str, path: Path) -> Iterator[int]:
    """A process that does something with a file first, and then lives."""
    program = f"import ctypes, sys; f = open(sys.argv[1], 'r+b'); {code}; print(flush=True); sys.stdin.read()"
    command = (sys.executable, "-c", program, str(path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_what_an_attempt_left_is_removed(attempt: Path, segment: Path) -> None:
    """It is ours, new, and open in no process."""
    assert {"removed": [str(segment)], "kept": [], "more": 0} == left(attempt, segment)
    assert not segment.exists()


def test_what_is_older_than_the_attempt_stays(segment: Path, attempt: Path) -> None:
    """Whatever its owner does with it, it is not this attempt's."""
    os.utime(segment, (1, 1))
    assert "it is older than the attempt" == kept(attempt, segment)


def test_what_was_there_before_the_attempt_stays(attempt: Path, segment: Path) -> None:
    """By the times that the file system has noted, whatever the file's own time was set to."""
    record = json.loads((attempt / "super").read_text())
    (attempt / "super").write_text(json.dumps({**record, "start": record["start"] + 100}))
    os.utime(segment, (2**31 - 1, 2**31 - 1))
    assert "it is older than the attempt" == kept(attempt, segment)


def test_what_is_another_users_stays(attempt: Path, segment: Path) -> None:
    """Root could remove it."""
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(segment, NOBODY, NOBODY)
    assert f"it is user {NOBODY}'s" == kept(attempt, segment)


def test_what_is_open_stays(attempt: Path, segment: Path) -> None:
    """A living process has it."""
    with holding("pass", segment) as pid:
        assert f"process {pid} has it open" == kept(attempt, segment)


def test_what_is_mapped_stays(attempt: Path, segment: Path) -> None:
    """The file itself closed: that is how semaphores and segments are used."""
    # Not Python's own `mmap`, which keeps a descriptor: to read, shared.
    code = (
        "m = ctypes.CDLL(None).mmap; m.restype = ctypes.c_void_p; m(None, 1, 1, 1, f.fileno(), 0); f.close()"
    )
    with holding(code, segment) as pid:
        descriptors = [os.path.realpath(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        assert str(segment) not in descriptors
        assert f"process {pid} has it open" == kept(attempt, segment)


def test_what_has_its_name_by_now_stays(segment: Path) -> None:
    """Between the look and the removal another program may have made its own."""
    looked_at = segment.lstat()
    segment.rename(segment.with_suffix(".old"))
    segment.touch()
    assert not around.remove(str(segment), looked_at)
    assert segment.exists()
    segment.with_suffix(".old").unlink()


def test_nothing_is_removed_while_another_attempt_lives(attempt: Path, segment: Path) -> None:
    """Its files may be closed at the moment."""
    said = "process 7 of another attempt lives, and it may be its"
    assert said == kept(attempt, segment, others=["11", "7"])


def test_a_link_is_no_file_of_an_attempt(attempt: Path, segment: Path) -> None:
    """Nor is a folder."""
    link = segment.with_name(f"{segment.name}-link")
    link.symlink_to(segment)
    try:
        assert {"removed": [], "kept": [], "more": 0} == left(attempt, link)
    finally:
        link.unlink()
    assert segment.exists()
    assert {"removed": [], "kept": [], "more": 0} == left(attempt, attempt)


@pytest.mark.parametrize("record", [None, "", '{"pid": 1, "start": 0, "boot": "another"}'])
def test_without_a_beginning_nothing_is_removed(attempt: Path, segment: Path, record: str | None) -> None:
    """What never began, or began before the machine was started again, has left nothing here."""
    (attempt / "super").unlink()
    if record is not None:
        (attempt / "super").write_text(record)
    assert {"removed": [], "kept": [], "more": 0} == left(attempt, segment)
    assert segment.exists()


def test_a_file_system_of_several_machines_is_told_from_our_own(attempt: Path, tmp_path: Path) -> None:
    """What is open on another machine is not seen here."""
    place = tmp_path / "a place"
    place.mkdir()
    mount = ("/usr/bin/env", "mount", "-t", "ramfs", "none", str(place))
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (place / "lock").touch()
        assert "ramfs" == around.file_system(str(place / "lock"))
        assert "processes that are not seen from here may have it open" == kept(attempt, place / "lock")
    finally:
        subprocess.run(("/usr/bin/env", "umount", "--lazy", str(place)), check=True)


def test_what_other_containers_share_stays(attempt: Path, segment: Path) -> None:
    """With its own processes and everybody's shared memory, a container sees too few."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(around.__file__).parent)!r}); import around;"
        f"print(around.left([{str(segment)!r}], {str(attempt)!r}, []))"
    )
    command = ("/usr/bin/env", "unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", script)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode or str(Path("/proc/self/ns/ipc").readlink()) != around.INITIAL_IPC:
        pytest.skip("no space of pids can be made here")
    assert "processes that are not seen from here may have it open" in ended.stdout
    assert segment.exists()


@pytest.mark.parametrize(("mode", "stays"), [(0o600, False), (0o604, True)])
def test_what_an_unseen_process_could_open_stays(
    attempt: Path, segment: Path, mode: int, *, stays: bool
) -> None:
    """A user without rights does not see what others have open."""
    python = which("python3", path="/usr/bin:/bin")
    if os.geteuid() or not which("setpriv") or python is None:
        pytest.skip("only root, with setpriv and a system Python, can run it as another user")
    segment.chmod(mode)
    os.chown(segment, NOBODY, NOBODY)
    record = segment.with_suffix(".attempt")
    record.mkdir()
    try:
        (record / "super").write_text((attempt / "super").read_text())
        drop = ("/usr/bin/env", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
        asked = {"left": {"globs": [str(segment)], "folder": str(record), "tag": "t"}}
        found = told(asked, command=(*drop, python, "-I", "-S"))["left"]
    finally:
        (record / "super").unlink()
        record.rmdir()
    assert stays is segment.exists()
    assert (["a process that this user may not see could have it open"] if stays else []) == [
        each["why"] for each in found["kept"]
    ]


def test_a_few_of_many_are_named(attempt: Path, tmp_path: Path) -> None:
    """The others are counted."""
    for number in range(around.KEPT + 3):
        (tmp_path / f"{number}.old").touch()
        os.utime(tmp_path / f"{number}.old", (1, 1))
    found = around.left([f"{tmp_path}/*.old"], str(attempt), [])
    assert (around.KEPT, 3) == (len(found["kept"]), found["more"])
