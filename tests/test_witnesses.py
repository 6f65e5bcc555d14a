"""What shows that a level took effect, or did not: in the log, in an answer, in the stack's own report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.judge import Known, answer_file, judge
from bisect_agent.model import (
    Applied,
    ArgumentWitness,
    Configuration,
    EnvFactor,
    HttpAnswer,
    HttpWitness,
    LogCopy,
    Observation,
    Playbook,
    Reason,
    ScriptFactor,
    Serving,
    Settled,
    Trial,
    Unresolved,
    Why,
    Witness,
)
from bisect_agent.signatures import Scanner, watches
from tests.strategies import FEW
from tests.worlds import playbook_of

LEVELS = {"one": "1", "sixteen": "16", "unset": None}
HTTP = HttpWitness(http="/server_info", contains="kernel={value}")
REPORT = ArgumentWitness(
    patterns={"one": r"args: kernel=1\b", "sixteen": r"args: kernel=16\b"}, denied={"one": "sixteen is used"}
)


def playbook(witness: Witness) -> Playbook:
    """A playbook whose factor `kernel` has that witness; its third level has nothing to show."""
    plain = playbook_of({"mode": ("safe", "fast"), "kernel": tuple(LEVELS)}, {"mode": "fast"})
    kernel = EnvFactor(name="kernel", env="KERNEL", levels=LEVELS, witness=witness)
    return plain.model_copy(update={"factors": (plain.factor("mode"), kernel)})


def settled(
    witness: Witness, level: str, log: str = "", body: str | None = None, status: int = 200
) -> Settled:
    """What is made of an attempt at a level, with this log, and this answer where the witness is asked."""
    book = playbook(witness)
    scanner = Scanner(watches(book))
    scanner.feed(f"{log}\nerror: boom\n".encode())
    answers = {} if body is None else {"/server_info": HttpAnswer(status=status, body=body)}
    observation = Observation(
        reading=scanner.reading(),
        log=LogCopy(path="trials/t02-bad/1/server.log", size=99, sha256="1" * 64, original="2" * 64),
        why=Why.FATAL,
        serving=Serving(listener="ours", witnesses=answers),
    )
    configuration = Configuration({"mode": "fast", "kernel": level})
    return judge(book, Trial(id="t02", control="bad", configuration=configuration), 1, observation, Known())


def reason(found: Settled) -> Reason | None:
    """Why it says nothing, if so."""
    return found.outcome.reason if isinstance(found.outcome, Unresolved) else None


def test_an_answer_shows_a_level_with_its_line() -> None:
    """The evidence is the line of the file in which the answer is kept."""
    found = settled(HTTP, "one", body='{\n "kernel=1"\n}')
    line = found.witnesses["kernel"]
    assert Applied.WITNESSED is found.applied["kernel"]
    assert (f"trials/t02-bad/1/{answer_file('/server_info')}", 2, 2, ' "kernel=1"') == (
        line.path,
        line.line,
        line.offset,
        line.text,
    )


@pytest.mark.parametrize(("level", "expected"), [("one", Reason.NOT_APPLIED), ("sixteen", None)])
def test_a_value_is_not_seen_in_a_longer_one(level: str, expected: Reason | None) -> None:
    """`kernel=16` shows sixteen, and with one set it shows that one was not applied."""
    assert expected is reason(settled(HTTP, level, body="kernel=16"))


def test_a_level_with_nothing_to_show_is_not_seen() -> None:
    """An unset variable has no text, so no answer shows it; and what one shows is the stack's own choice."""
    assert Applied.NOT_WITNESSED is settled(HTTP, "unset", body="kernel=").applied["kernel"]
    assert None is reason(settled(HTTP, "unset", body="kernel=16"))


@pytest.mark.parametrize("status", [404, 500])
def test_an_answer_that_is_an_error_shows_nothing(status: int) -> None:
    """What an error page happens to hold is no report of the server's."""
    assert Applied.NOT_WITNESSED is settled(HTTP, "one", body="kernel=1", status=status).applied["kernel"]


def test_what_was_not_asked_shows_nothing() -> None:
    """A server that died before it was ready was never asked."""
    found = settled(HTTP, "one")
    assert (None, Applied.NOT_WITNESSED) == (reason(found), found.applied["kernel"])


def test_a_level_that_cannot_show_is_not_contradicted() -> None:
    """Where an option is not given, what the stack reports is its own choice."""
    found = settled(REPORT, "unset", "args: kernel=16")
    assert (None, Applied.NOT_WITNESSED) == (reason(found), found.applied["kernel"])


def test_a_level_that_the_report_repeats_and_a_line_denies_was_not_applied() -> None:
    """To be repeated is not to take effect."""
    found = settled(REPORT, "one", "args: kernel=1\nsixteen is used")
    assert Reason.NOT_APPLIED is reason(found)
    assert {} == found.witnesses


def test_a_line_denies_only_the_level_that_was_set() -> None:
    """With another level it is no news."""
    assert None is reason(settled(REPORT, "sixteen", "args: kernel=16\nsixteen is used"))


@FEW
@given(st.text(min_size=1).map(lambda path: f"/{path}"))
def test_an_answers_file_has_a_plain_name(path: str) -> None:
    """Whatever is asked, its answer lies beside the log."""
    assert answer_file(path).removesuffix(".txt").replace("-", "").isalnum()


def test_a_launch_script_is_its_own_witness() -> None:
    """What was started is the script of that level: its hash was compared before."""
    plain = playbook_of({"mode": ("safe", "fast"), "start": ("old", "new")}, {"mode": "fast"})
    start = ScriptFactor(name="start", levels={"old": "true", "new": "false"})
    book = plain.model_copy(update={"factors": (plain.factor("mode"), start)})
    trial = Trial(id="t02", control="bad", configuration=Configuration({"mode": "fast", "start": "old"}))
    found = judge(book, trial, 1, Observation(why=Why.OVERDUE), Known())
    assert Applied.WITNESSED is found.applied["start"]


def test_two_answers_have_two_files() -> None:
    """Paths that differ only in what a file's name leaves out are two questions."""
    assert answer_file("/a/b") != answer_file("/a-b")
