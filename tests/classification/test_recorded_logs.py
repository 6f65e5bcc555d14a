"""Every recorded log, read with all shipped signatures and its stack's profile, and judged.

`logs.yaml` says for each log how its start ended, what is to be made of it, and why.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from bisect_agent import library
from bisect_agent.model import Failed, SymptomKind
from tests.classification.starts import REFUSED, SAMPLES, Row, content, outcome, seen, told

ROWS = TypeAdapter(tuple[Row, ...]).validate_python(
    YAML(typ="safe").load(Path(__file__).with_name("logs.yaml"))
)
EACH = [pytest.param(row, id=row.log) for row in ROWS]
HEALTHY = [pytest.param(row, id=row.log) for row in ROWS if row.ended == "answered"]
FAILED = [pytest.param(row, id=row.log) for row in ROWS if row.outcome == "failed" and row.ended != "cut"]


def test_every_recorded_log_has_a_row() -> None:
    """No log is left out, and none is told of twice."""
    logs = [str(f.relative_to(SAMPLES)) for f in SAMPLES.rglob("*.log*")]
    assert sorted(logs) == sorted(row.log for row in ROWS)


@pytest.mark.parametrize("row", EACH)
def test_a_recorded_log_is_what_a_person_reads_in_it(row: Row) -> None:
    """Outcome, root, phase and line are those written down by hand."""
    assert (row.outcome, row.root, row.phase, row.line) == told(outcome(row, seen(row, content(row.log))))


@pytest.mark.parametrize("row", HEALTHY)
def test_a_healthy_log_names_no_failure(row: Row) -> None:
    """Even where the request went wrong, nothing in the whole log, the stop included, would be blamed."""
    found = outcome(row, seen(row, content(row.log)).model_copy(update={"serving": REFUSED}))
    assert isinstance(found, Failed)
    assert (SymptomKind.ANSWER, "http-500") == (found.symptom.kind, found.symptom.id)


@pytest.mark.parametrize("row", FAILED)
def test_the_first_fatal_line_is_late_enough(row: Row) -> None:
    """An attempt that is stopped at the first fatal line has the same root in its log."""
    fatal = {s.id for s in library.signatures() if s.fatal}
    data = content(row.log)
    whole = seen(row, data)
    ends = [data.find(b"\n", m.offset) + 1 for m in whole.reading.matches if m.id in fatal]
    begun = data[: min(ends, default=len(data)) or len(data)]
    assert told(outcome(row, whole)) == told(outcome(row, seen(row, begun)))
