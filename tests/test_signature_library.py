"""The shipped signatures: each against its own lines, all against recorded logs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bisect_agent.model import MatchKind, Reading, Role
from bisect_agent.signatures import Scanner, Watch, check_pattern

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "hypotheses" / "signatures").glob("*.yaml"))
ENTRIES: list[dict[str, Any]] = [entry for file in FILES for entry in YAML(typ="safe").load(file)]
SAMPLES = sorted((ROOT / "logs" / "samples").glob("*.log"))
WATCHES = tuple(Watch(MatchKind.SIGNATURE, e["id"], e["pattern"], Role(e["role"])) for e in ENTRIES)

TOPICS = (
    "graph-capture|compile|autotune|memory-fault|architecture|device-memory|host-memory|cache-memory"
    "|shared-memory|collectives|transfer|environment|arguments|port|hardware|disk|hub|hang|engine-exit"
)

MATCHES = [
    pytest.param(e["id"], line, id=f"{e['id']}-{n}") for e in ENTRIES for n, line in enumerate(e["matches"])
]
IGNORES = [
    pytest.param(e["id"], line, id=f"{e['id']}-{n}") for e in ENTRIES for n, line in enumerate(e["ignores"])
]


def read(log: bytes) -> Reading:
    """The reading of a whole log with all shipped signatures."""
    scanner = Scanner(WATCHES)
    scanner.feed(log)
    scanner.finish()
    return scanner.reading()


def ids(line: str) -> set[str]:
    """The signatures that a line matches, among them progress, which no reading keeps."""
    scanner = Scanner(WATCHES)
    return {m.id for m in (*scanner.feed(line.encode()), *scanner.finish())}


@pytest.mark.parametrize(("signature", "line"), MATCHES)
def test_a_signature_matches_its_lines(signature: str, line: str) -> None:
    """Every line under `matches` is this signature, among all the others."""
    assert signature in ids(line)


@pytest.mark.parametrize(("signature", "line"), IGNORES)
def test_a_signature_ignores_its_lines(signature: str, line: str) -> None:
    """No line under `ignores` is this signature."""
    assert signature not in ids(line)


@pytest.mark.parametrize("entry", ENTRIES, ids=[e["id"] for e in ENTRIES])
def test_a_signature_is_well_formed(entry: dict[str, Any]) -> None:
    """Its id is in kebab case, its pattern usable, and it says what it means."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", entry["id"])
    assert check_pattern(entry["pattern"]) is None
    assert entry["means"].endswith(".")


@pytest.mark.parametrize("entry", ENTRIES, ids=[e["id"] for e in ENTRIES])
def test_a_failure_has_a_topic(entry: dict[str, Any]) -> None:
    """What counts as a failure, or excuses one, says of which class it is; no class has two names."""
    failure = entry["role"] in ("root", "symptom", "infra")
    assert re.fullmatch(TOPICS if failure else f"|{TOPICS}", entry.get("topic", ""))


def test_ids_are_unique() -> None:
    """No two signatures share a name."""
    assert len(ENTRIES) == len({e["id"] for e in ENTRIES})


def summary(sample: Path) -> str:
    """What a recorded log shows, as the golden file writes it."""
    reading = read(sample.read_bytes())
    roles = {w.id: w.role for w in WATCHES}
    root = next((f"{m.line} {m.id}" for m in reading.matches if roles[m.id] is Role.ROOT), "none")
    raised = next((f"{r.line} {r.fingerprint}" for r in reading.raised), "none")
    return f"{sample.name}\n  root    {root}\n  raised  {raised}\n"


def test_recorded_logs_show_the_root_that_a_person_reads_in_them() -> None:
    """The first root and the first exception of each log are those written down by hand."""
    golden = (ROOT / "tests" / "golden" / "sample_roots.txt").read_text(encoding="utf-8")
    expected = golden.partition("\n\n")[2]
    assert expected == "".join(summary(sample) for sample in SAMPLES)
