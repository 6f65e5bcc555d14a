"""The reports in a run folder, written and read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bisect_agent import events
from bisect_agent.errors import RESUMABLE, DamagedRun, ExitCode
from bisect_agent.folder import VERDICT, RunFolder, canonical
from bisect_agent.journal import NAME as JOURNAL
from bisect_agent.journal import decode, intact, is_written
from bisect_agent.lines import printable
from bisect_agent.report.commands import word
from bisect_agent.report.digest import Brief, Digest
from bisect_agent.report.dossier import Dossier
from bisect_agent.report.gather import Read, gather
from bisect_agent.report.html import digest_html, html
from bisect_agent.report.markdown import digest_markdown, markdown
from bisect_agent.verdict import Verdict

PAGE: Final = "verdict.html"


def reports(folder: RunFolder, verdict: Verdict) -> Mapping[str, bytes]:
    """Every form in which a verdict can be read; what it rests on is read from the run folder.

    Raises:
        DamagedRun: the run folder is not whole.
    """
    dossier = read_dossier(folder, verdict)
    return {
        "json": canonical(verdict),
        "markdown": markdown(verdict, dossier).encode(),
        "html": html(verdict, dossier).encode(),
    }


def read_dossier(folder: RunFolder, verdict: Verdict) -> Dossier:
    """What a report shows beside a verdict, as the run folder has it.

    Raises:
        DamagedRun: its journal or its playbook cannot be read.
    """
    entries = decode(folder.read(JOURNAL))
    return gather(folder.resolved(), entries, verdict, str(folder.path.resolve()), _reader(folder))


def _reader(folder: RunFolder) -> Read:
    """A file of a run folder, or None: a report is made of what there is, and `verify` tells the rest."""

    def read(name: str) -> bytes | None:
        try:
            return folder.read(name)
        except DamagedRun:
            return None

    return read


def write_reports(folder: RunFolder, verdict: Verdict) -> None:
    """Puts the reports for people beside `verdict.json`, which the engine has written and sealed."""
    made = reports(folder, verdict)
    folder.write("verdict.md", made["markdown"])
    folder.write(PAGE, made["html"])


def read_verdict(folder: RunFolder) -> Verdict:
    """The verdict of a run.

    Raises:
        DamagedRun: there is none yet, or it cannot be read.
    """
    try:
        return Verdict.model_validate_json(folder.read(VERDICT))
    except ValueError as error:
        raise DamagedRun(f"{VERDICT}: {str(error).splitlines()[0]}") from error


def read_state(folder: RunFolder) -> events.RunState:
    """How far a run has come, by its journal.

    Raises:
        DamagedRun: the folder does not hold what it should.
    """
    return events.fold(_entries(folder))


def _entries(folder: RunFolder) -> Sequence[events.Entry]:
    """What the journal holds up to its first damage."""
    entries, _, _ = intact(folder.read(JOURNAL))
    return entries


def brief(path: Path, run: Brief) -> Brief:
    """A run, as its run folder tells it now.

    Raises:
        DamagedRun: the folder does not hold what it should.
    """
    folder = RunFolder(path.resolve())
    entries = _entries(folder)
    state = events.fold(entries)
    resolved = folder.resolved()
    known = run.model_copy(
        update={
            "title": resolved.title,
            "target": resolved.target.host,
            "playbook": state.started.source if state.started else run.playbook,
            "began": entries[0].at if entries else run.began,
            "attempts": sum(s.trial.control != "restore" for s in state.judged()),
            "folder": str(folder.path),
        }
    )
    if state.sealed is None:
        return known.model_copy(update={"commands": (_command("resume", folder),)})
    verdict, code = read_verdict(folder), ExitCode(state.sealed.exit_code)
    goes_on = (_command("resume", folder),) if code in RESUMABLE else ()
    serves = state.serving is not None
    to_end = (_command("stop", folder),) if serves else ()
    return known.model_copy(
        update={
            "state": "over",
            "code": code,
            "found": verdict.tree.text,
            "restored": verdict.good_restored.ok,
            "why": verdict.good_restored.reason,
            "ended": entries[-1].at,
            "page": f"{folder.path.name}/{PAGE}" if (folder.path / PAGE).is_file() else "",
            "serves": serves,
            "commands": (*goes_on, *to_end),
        }
    )


def _command(name: str, folder: RunFolder) -> str:
    return f"bisect-agent {name} {word(str(folder.path))}"


def write_digest(runs: Path, name: str, digest: Digest) -> Path:
    """Puts the digest of a night beside its run folders; returns where its page is."""
    runs.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(runs)
    folder.write(f"{name}.md", digest_markdown(digest).encode())
    folder.write(f"{name}.html", digest_html(digest).encode())
    return runs / f"{name}.html"


def listing(runs: Path) -> Iterator[str]:
    """A line for each run folder: its name, whether it runs or how it ended, and what was found.

    Only the end of a journal is read, and nothing is verified: `verify` does that.
    """
    for path in sorted(journal.parent for journal in runs.glob(f"*/{JOURNAL}")):
        yield f"{path}: {printable(_standing(path))}"


def _standing(path: Path) -> str:
    try:
        if is_written(path):
            return "running"
        last = _last_event(path / JOURNAL)
        if last.get("kind") != "sealed":
            return f"crashed: nobody carries it out; bisect-agent resume {word(str(path))}"
        code = ExitCode(int(last["exit_code"]))
        found = json.loads(RunFolder(path).read(VERDICT))["tree"]["text"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DamagedRun) as error:
        return f"damaged: {error}"
    return f"{_ENDED.get(code, 'ended early')}, exit {code}: {found}"


_ENDED = {
    ExitCode.CONCLUDED: "concluded",
    ExitCode.NOT_ESTABLISHED: "concluded",
    ExitCode.NOTHING_TO_BISECT: "concluded",
    ExitCode.INTERRUPTED: "interrupted",
}


def _last_event(journal: Path) -> dict[str, Any]:
    """The last event of a journal; a line without its end was cut by a crash, and is none."""
    with journal.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        reach = TAIL
        lines: list[bytes] = []
        while len(lines) < 3:  # what is before the last line but one, that line, and what follows it
            file.seek(max(0, size - reach))
            lines = file.read().split(b"\n")
            if reach >= size:
                break
            reach *= 8
    event = json.loads(lines[-2])["event"] if len(lines) > 1 else {}
    return dict(event)


TAIL = 4096
"""Bytes of a journal's end in which its last line is looked for first; the line that seals it is short."""
