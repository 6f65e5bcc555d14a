"""The reports in a run folder, written and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bisect_agent import events
from bisect_agent.errors import DamagedRun
from bisect_agent.folder import VERDICT, RunFolder, canonical
from bisect_agent.journal import NAME as JOURNAL
from bisect_agent.journal import decode
from bisect_agent.report.dossier import Dossier
from bisect_agent.report.gather import Read, gather
from bisect_agent.report.html import html
from bisect_agent.report.markdown import markdown
from bisect_agent.verdict import Verdict


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
    folder.write("verdict.html", made["html"])


def read_verdict(folder: RunFolder) -> Verdict:
    """The verdict of a run.

    Raises:
        DamagedRun: there is none yet, or it cannot be read.
    """
    try:
        return Verdict.model_validate_json(folder.read(VERDICT))
    except ValueError as error:
        raise DamagedRun(f"{VERDICT}: {str(error).splitlines()[0]}") from error


def listing(runs: Path) -> Iterator[str]:
    """A line for each run folder: its name, exit code, and the verdict's first sentence."""
    for path in sorted(journal.parent for journal in runs.glob(f"*/{JOURNAL}")):
        yield f"{path}: {_summary(RunFolder(path))}"


def _summary(folder: RunFolder) -> str:
    try:
        state = events.fold(decode(folder.read(JOURNAL)))
    except DamagedRun as error:
        return f"damaged: {error.message}"
    if state.sealed is None:
        return f"not sealed: {state.state}"
    return f"exit {state.sealed.exit_code}: {read_verdict(folder).tree.text}"
