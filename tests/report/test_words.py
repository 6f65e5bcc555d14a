"""How evidence is worded."""

import pytest

from bisect_agent.model import Evidence
from bisect_agent.report.words import place


@pytest.mark.parametrize(
    ("copy_line", "said"),
    [
        (None, "trials/t02-bad/1/server.log:120034"),
        (120034, "trials/t02-bad/1/server.log:120034"),
        (5321, "trials/t02-bad/1/server.log:5321 (line 120034 of the whole log)"),
    ],
)
def test_a_place_is_the_files_own_line(copy_line: int | None, said: str) -> None:
    """It can be opened there; where the file is a part of the log, the log's own number stands beside it."""
    path = "trials/t02-bad/1/server.log"
    evidence = Evidence(path=path, line=120034, offset=1, text="x", sha256="0", copy_line=copy_line)
    assert said == place(evidence)
