"""What a verdict looks like, as files that a person can read: `pytest tests/report --update` writes them."""

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from bisect_agent.report.dossier import Dossier
from bisect_agent.report.html import html
from bisect_agent.report.markdown import markdown
from bisect_agent.report.terminal import show, verdict_tree
from bisect_agent.verdict import Verdict
from tests.conftest import GOLDEN, Golden
from tests.report.scene import DOSSIER

OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
"""The characters that a terminal or a browser acts upon, but for the newline."""


@pytest.fixture
def verdict() -> Verdict:
    """A small verdict, made by hand, whose log lines want to be more than text."""
    return Verdict.model_validate_json((GOLDEN / "verdict.json").read_bytes())


def _terminal(verdict: Verdict, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(verdict_tree(verdict))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal(verdict: Verdict, golden: Golden) -> None:
    """A tree, each line quoted once with its place, and named by it afterwards."""
    golden("verdict.txt", _terminal(verdict, 100))


def test_the_markdown(verdict: Verdict, golden: Golden) -> None:
    """A list and a table; what a log says stays text in a ticket."""
    golden("verdict.md", markdown(verdict, DOSSIER))


def test_the_page(verdict: Verdict, golden: Golden) -> None:
    """One page without scripts and outside links; what a log says stays text in it."""
    golden("verdict.html", html(verdict, DOSSIER))


@pytest.mark.parametrize("width", [20, 40, 80, 100])
def test_no_place_is_cut_on_a_narrow_terminal(verdict: Verdict, width: int) -> None:
    """A place may be broken over two lines; it is never shortened."""
    text = re.sub(r"[│├└─\s]", "", _terminal(verdict, width))
    assert "trials/t03-kernel=stock/1/server.log:120" in text


def test_a_pipe_gets_every_line_whole(verdict: Verdict) -> None:
    """Where there is no terminal nothing is broken or shortened."""
    out = io.StringIO()
    show(verdict, Console(file=out))
    assert verdict.trials[1].evidence[1].text.strip() in out.getvalue()


@pytest.mark.parametrize("name", ["verdict.txt", "verdict.md", "verdict.html"])
def test_nothing_in_a_report_is_obeyed(name: str) -> None:
    """No escape sequence, no control character, no reversed text reaches the reader's machine."""
    assert [] == OBEYED.findall((GOLDEN / name).read_text(encoding="utf-8"))


def test_the_page_asks_nobody_for_anything(verdict: Verdict) -> None:
    """No script, no image, no style sheet, and no link but to the files beside it."""
    page = html(verdict, DOSSIER)
    links = re.findall(r"""(?:href|src|url)\s*[=(]\s*["']?([^"'>)]*)""", page)
    assert [] == [link for link in links if not link.startswith(("./trials/", "#"))]
    assert "<script" not in page


@pytest.mark.parametrize("form", [html, markdown])
def test_a_run_that_started_nothing_has_a_report_too(
    verdict: Verdict, form: Callable[[Verdict, Dossier], str]
) -> None:
    """It says what came of it, and has no empty parts."""
    nothing = {"established": False, "cause": (), "causes": (), "pairs": (), "trials": (), "hypotheses": ()}
    bare = verdict.model_copy(update={**nothing, "symptom": None, "stopped_by": "the target cannot be used"})
    text = form(bare, Dossier(title="nothing"))
    assert "the target cannot be used" in text
    assert [] == re.findall(r"(?:## |<h2>)(?:The failure|The pairs|By hand|Hypotheses)", text)


def test_every_link_within_the_page_leads_somewhere_and_to_one_place(verdict: Verdict) -> None:
    """No anchor is missing, and none is there twice."""
    page = html(verdict, DOSSIER)
    anchors = re.findall(r'id="([^"]*)"', page)
    assert sorted(set(anchors)) == sorted(anchors)
    assert set() == set(re.findall(r'href="#([^"]*)"', page)) - set(anchors)
