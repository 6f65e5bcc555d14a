"""How evidence is worded."""

import pytest

from bisect_agent.model import Evidence
from bisect_agent.report.words import called, lasting, place


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


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (29_520, "8 h 12 min")]
)
def test_a_length_of_time_is_said_in_the_units_that_it_has(seconds: float, said: str) -> None:
    """A night is read in hours, a start in seconds."""
    assert said == lasting(seconds)


def test_the_first_attempt_has_its_trials_name() -> None:
    """Most trials have one."""
    assert ("t03", "t03/2") == (called("t03", 1), called("t03", 2))
