"""Runs the playbooks of real servers, and holds each verdict against what its file expects.

    python tests/real/run.py [PLAYBOOK ...]     by default all of playbooks/{decode-engine,sglang-cpu}
    python tests/real/run.py --over-ssh         natural.yaml, over a real sshd, as a plain user made for it

It prints a line for each: what came, in how many attempts and seconds, and the overhead: the most seconds of
an attempt in which the stack neither started nor ran nor was ended, but we prepared, decided and recorded.
Exit code 1 where a verdict is another one, where `good` was not restored, or where `verify` does not agree.

Over SSH the server's environment must be one that everybody can read, with a Python that everybody can run;
SGLANG_CPU_HOME names its folder, for `setup.sh` and for this program.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.hosts.sshd import plain_user, server  # noqa: E402

SGLANG = ROOT / "playbooks" / "sglang-cpu"
PLAYBOOKS = (ROOT / "playbooks" / "decode-engine", SGLANG)
AGENT = (sys.executable, "-m", "bisect_agent")
SERVERS = Path(".cache/bisect-agent/sglang-cpu")
"""Where the playbooks look for a server's environment, in the home folder."""
OVERHEAD = 3.0
"""Seconds of overhead that an attempt may have."""
NOT_RUN = re.compile(r"untestable|cannot be tested")


@dataclass
class Expected:
    """What a playbook's comments say that its verdict is: each line `# expect KEY: VALUE`."""

    values: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, playbook: Path) -> Expected:
        """The expectations of a file."""
        found: dict[str, list[str]] = {}
        for key, value in re.findall(r"^# expect ([\w-]+): *(.+)$", playbook.read_text(), re.MULTILINE):
            found.setdefault(key, []).append(value.strip())
        return cls(found)

    def all(self, key: str) -> list[str]:
        """Every value of a key."""
        return self.values.get(key, [])

    def one(self, key: str, default: str) -> str:
        """The only value of a key."""
        return self.all(key)[0] if self.all(key) else default


def called(env: Mapping[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The agent's answer to a command."""
    argv = [*AGENT, *map(str, arguments)]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env, cwd=ROOT
    )


def named(cause: Sequence[dict[str, str]]) -> str:
    """A cause, each setting as a person writes it."""
    return " × ".join(f"{setting['factor']}={setting['level']}" for setting in cause)


def wrong(expected: Expected, code: int, verdict: dict[str, Any], report: str) -> Iterator[str]:
    """Where a verdict is not what was expected."""
    if str(code) != expected.one("exit", "0"):
        yield f"exit code {code}, not {expected.one('exit', '0')}"
    causes = [named(cause) for cause in verdict["causes"]]
    if causes != expected.all("cause"):
        yield f"cause {causes}, not {expected.all('cause')}"
    symptom = verdict["symptom"] or {"id": "", "text": ""}
    for pattern in expected.all("symptom"):
        if not re.search(pattern, f"{symptom['id']}\n{symptom['text']}"):
            yield f"symptom {symptom['id']}: {symptom['text']}, not {pattern}"
    states = {h["id"]: h["state"] for h in verdict["hypotheses"]}
    for state in ("supported", "refuted", "undecided"):
        for name in expected.all(state):
            if states.get(name) != state:
                yield f"{name} is {states.get(name, 'not there')}, not {state}"
    for pattern in expected.all("note"):
        if not re.search(pattern, report):
            yield f"the report says nothing of {pattern}"
    if verdict["good_restored"]["ok"] is False:
        yield f"good not restored: {verdict['good_restored']['reason']}"


def overheads(journal: Path) -> list[float]:
    """For each attempt, the seconds that were ours.

    From the plan, or the verdict before it, to the launch; from the line that ended it to our stop, in
    which other ranks are heard; and from "nothing is left" to the judgement.
    """
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    found: list[float] = []
    before, spent = 0.0, 0.0
    for entry in entries:
        kind, at = entry["event"]["kind"], entry["at"]
        if kind in {"trial-planned", "restore-planned"}:
            before, spent = at, 0.0
        elif kind in {"launched", "stopping", "judged"}:
            spent += at - before
        if kind in {"ending", "closed"}:
            before = at
        if kind == "judged":
            found.append(spent)
    return found


@dataclass(frozen=True)
class Row:
    """What came of one playbook."""

    name: str
    cause: str
    said: str
    attempts: int
    seconds: float
    overhead: float

    def __str__(self) -> str:
        figures = f"{self.attempts:2d} attempts {self.seconds:5.0f} s, overhead {self.overhead:.1f} s"
        return f"{self.name:22} {self.cause:34} {figures}  {self.said}"


@contextmanager
def over_ssh() -> Iterator[tuple[Path, Mapping[str, str]]]:
    """A copy of natural.yaml that is carried out by a plain user over SSH, and the agent's environment."""
    servers = Path(os.environ.get("SGLANG_CPU_HOME", Path.home() / SERVERS)).absolute()
    with server() as sshd, plain_user(sshd) as user, tempfile.TemporaryDirectory() as home:
        there, link = sshd.folder / "sglang-cpu", sshd.folder / "home" / SERVERS
        shutil.copytree(SGLANG, there, ignore=shutil.ignore_patterns("__pycache__"))
        playbook = there / "natural.yaml"
        text = playbook.read_text().replace("target: {", f"target: {{host: ssh://box, cwd: {there}, ", 1)
        playbook.write_text(text)
        link.parent.mkdir(parents=True)
        link.symlink_to(servers)
        for folder in (link.parent, link.parent.parent):
            shutil.chown(folder, user)
        (Path(home) / ".ssh").mkdir(mode=0o700)
        shutil.copy(sshd.config(user=user), Path(home) / ".ssh" / "config")
        python = servers / "sglang" / "bin" / "python"
        if sshd.host(sshd.config(user=user)).run((str(python), "--version"), timeout=30).returncode:
            pytest.skip(
                f"{python}: another user cannot run it, or it is not there\n"
                "  try: PYTHON=/usr/bin/python3 SGLANG_CPU_HOME=/var/tmp/sglang-cpu"
                " playbooks/sglang-cpu/setup.sh, and the same SGLANG_CPU_HOME here"
            )
        yield playbook, {**os.environ, "HOME": home}


def carried_out(playbook: Path, runs: Path, env: Mapping[str, str]) -> Row:
    """Checks, runs, verifies and stops one playbook."""
    expected, began = Expected.read(playbook), time.monotonic()
    said: list[str] = []
    checked = called(env, "check", playbook)
    if str(checked.returncode) != expected.one("check", "0"):
        said.append(f"check ended with {checked.returncode}: {checked.stderr.strip()[-300:]}")
    ran = called(env, "run", playbook, "--runs", runs, "--json")
    seconds = time.monotonic() - began
    folders = list(runs.iterdir()) if runs.is_dir() else []
    if not ran.stdout or not folders:
        return Row(playbook.stem, "-", f"WRONG: no verdict: {ran.stderr.strip()[-300:]}", 0, seconds, 0.0)
    verdict, folder = json.loads(ran.stdout), folders[0]
    said += wrong(expected, ran.returncode, verdict, (folder / "verdict.md").read_text())
    verified = called(env, "verify", folder)
    if verified.returncode:
        said.append(f"verify: {verified.stderr.strip()}")
    if not verdict["established"] and NOT_RUN.search(verdict["stopped_by"]):
        said = [f"NOT RUN HERE: {verdict['stopped_by']}"]
    stopped = called(env, "stop", folder)
    if stopped.returncode:
        said.append(f"stop: {stopped.stderr.strip()}")
    ours = overheads(folder / "journal.jsonl")
    cause = named(verdict["cause"]) or "none"
    state = "; ".join(said) if said else "as expected"
    return Row(playbook.stem, cause, state, len(ours), seconds, max(ours, default=0.0))


def main(names: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    if list(names) != ["--over-ssh"]:
        shipped = [playbook for folder in PLAYBOOKS for playbook in sorted(folder.glob("*.yaml"))]
        return carry_out([Path(name) for name in names] or shipped, os.environ)
    try:
        with over_ssh() as (playbook, env):
            return carry_out([playbook], env)
    except pytest.skip.Exception as reason:
        print(f"NOT RUN HERE: {reason}")
        return 0


def carry_out(playbooks: Sequence[Path], env: Mapping[str, str]) -> int:
    """Runs the playbooks one after another, and prints a row for each as it comes."""
    rows = []
    for playbook in playbooks:
        with tempfile.TemporaryDirectory(prefix="real-") as runs:
            rows.append(carried_out(playbook, Path(runs) / "runs", env))
            print(rows[-1], flush=True)
            if rows[-1].said != "as expected":
                kept = ROOT / "logs" / f"real-{playbook.stem}-{int(time.time())}"
                shutil.copytree(Path(runs) / "runs", kept, dirs_exist_ok=True)
                print(f"{'':22} kept in {kept}", flush=True)
    right = sum(row.said == "as expected" for row in rows)
    slow = [row.name for row in rows if row.overhead > OVERHEAD]
    print(f"{right} of {len(rows)} as expected, {sum(row.seconds for row in rows) / 60:.0f} minutes in all")
    if slow:
        print(f"overhead above {OVERHEAD:g} s: {', '.join(slow)}")
    failed = [row for row in rows if row.said != "as expected" and not row.said.startswith("NOT RUN")]
    return 1 if failed or slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
