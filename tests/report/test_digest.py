"""What a night looks like in the morning, as files that a person can read; and what is told of it."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bisect_agent.errors import RANK, ExitCode
from bisect_agent.report.digest import Brief, Digest
from bisect_agent.report.html import digest_html
from bisect_agent.report.markdown import digest_markdown
from bisect_agent.report.message import of_night, of_run
from bisect_agent.report.terminal import show_digest
from bisect_agent.report.words import ENDS, counted
from tests.conftest import GOLDEN, Golden
from tests.report.night import NIGHT

OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
"""The characters that a terminal or a browser acts upon, but for the newline."""
GOES_ON = NIGHT.model_copy(
    update={"over": False, "runs": (NIGHT.runs[0], Brief(name="now", state="running"), Brief(name="next"))}
)


def terminal(digest: Digest) -> str:
    """What is printed where there is no terminal."""
    out = io.StringIO()
    show_digest(digest, Console(file=out))
    return out.getvalue()


def test_the_terminal(golden: Golden) -> None:
    """A branch a run."""
    golden("digest.txt", terminal(NIGHT))


def test_the_markdown(golden: Golden) -> None:
    """A part a run, with a link to its verdict."""
    golden("digest.md", digest_markdown(NIGHT))


def test_the_page(golden: Golden) -> None:
    """The same as one page without scripts."""
    golden("digest.html", digest_html(NIGHT))


def test_the_message(golden: Golden) -> None:
    """What is sent of the whole night, and of the run that does not wait for its end."""
    night, run = of_night(NIGHT, NIGHT.runs, "/runs/digest.html"), of_run(NIGHT.runs[1])
    golden(
        "messages.txt", "\n\n---\n\n".join(f"{m.tone}: {m.title}\n\n{m.body}" for m in (night, run)) + "\n"
    )


@pytest.mark.parametrize("name", ["digest.txt", "digest.md", "digest.html", "messages.txt"])
def test_nothing_of_it_is_obeyed(name: str) -> None:
    """No escape sequence, no control character, no reversed text reaches the reader's machine."""
    assert [] == OBEYED.findall((GOLDEN / name).read_text(encoding="utf-8"))


def test_the_page_leads_to_the_verdicts_and_nowhere_else() -> None:
    """They lie in the folders beside it."""
    links = re.findall(r"""(?:href|src|url)\s*[=(]\s*["']?([^"'>)]*)""", digest_html(NIGHT))
    assert [] == [link for link in links if not link.startswith(("./", "#"))]
    assert "./20261129T140736Z-compile-3f9a/verdict.html" in links
    assert "./%3Ci%3Ex%3C/i%3E/verdict.html" in links


def test_a_night_that_goes_on_says_so() -> None:
    """What is waiting, what runs; and when that was."""
    for said in (digest_html(GOES_ON), digest_markdown(GOES_ON)):
        assert "it goes on; this is as of" in said
    assert "1 × a cause is established · 1 × running · 1 × not begun yet" == counted(GOES_ON.runs)


def test_a_long_night_is_told_in_short() -> None:
    """Many services cut what is long."""
    many = NIGHT.model_copy(update={"runs": NIGHT.runs * 10})
    told = of_night(many, many.runs, "/runs/digest.html")
    assert "and 20 more" in told.body


@given(st.lists(st.sampled_from(ExitCode), min_size=1))
def test_the_gravest_code_is_the_night_s(codes: list[ExitCode]) -> None:
    """Whatever the order of the queue; and every code has its rank, and its words."""
    digest = NIGHT.model_copy(update={"runs": tuple(Brief(name="a", code=code) for code in codes)})
    assert min(codes, key=RANK.index) == digest.code
    assert set(ExitCode) == set(RANK) == set(ENDS)
