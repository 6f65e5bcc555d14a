"""The pages as a browser shows them: of a real run, and of texts that want to be more than text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.devtools import NAMES, Browser, installed
from tests.conftest import GOLDEN
from tests.e2e.agent import Agent, finished, quickstart

BROWSER = installed()
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed")

WIDE, PHONE = (1280, 800), (390, 844)
FIRST = 600
"""Pixels from the top in which headline and cause are read without a touch."""
READABLE = 4.5
"""The least contrast of text with what is behind it (WCAG 2, level AA)."""

BOTTOM = "document.querySelector('{}').getBoundingClientRect().bottom"

# Each text that is shown, with its contrast: the browser's own colours, layer by layer.
CONTRASTS = """
(() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const over = (front, back) => {
    const alpha = front.length > 3 ? front[3] : 1;
    return [0, 1, 2].map(i => front[i] * alpha + back[i] * (1 - alpha));
  };
  const light = rgb => {
    const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    if (!element) return [255, 255, 255];
    return over(channels(getComputedStyle(element).backgroundColor), behind(element.parentElement));
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    const back = behind(element);
    const ink = over(channels(getComputedStyle(element).color), back);
    const [dark, bright] = [light(ink), light(back)].sort((a, b) => a - b);
    found.push([texts.currentNode.data.trim().slice(0, 40), (bright + 0.05) / (dark + 0.05)]);
  }
  return JSON.stringify(found);
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of this file."""
    assert BROWSER is not None
    with Browser(BROWSER, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The page of a run of the quickstart; a hostile verdict, and a hostile night."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(GOLDEN / "verdict.html", home / "hostile.html")
    shutil.copy(GOLDEN / "digest.html", home / "night.html")
    agent = Agent(home)
    run = finished(agent, agent.run(quickstart(home)[0], "--quiet"))
    assert run.code == 0, run.stderr
    hostile = {name: home / f"{name}.html" for name in ("hostile", "night")}
    yield {"quickstart": run.folder / "verdict.html", **hostile}
    agent.leave()


@dataclass(frozen=True)
class Look:
    """What was seen of a page on one screen, with all that can be unfolded unfolded. Lengths in pixels."""

    page: str
    screen: int
    width: int
    headline: float
    cause: float
    contrasts: tuple[tuple[str, float], ...]
    scripts: int
    requests: list[str]


@pytest.fixture(scope="module", params=["quickstart", "hostile", "night"])
def page(request: pytest.FixtureRequest, pages: dict[str, Path]) -> Path:
    """Each of the pages."""
    return pages[request.param]


@pytest.fixture(
    scope="module", params=[(WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")], ids=str
)
def look(request: pytest.FixtureRequest, browser: Browser, page: Path) -> Look:
    """A page on a screen and on a phone, by day and by night."""
    (width, height), scheme = request.param
    browser.open(page, width=width, height=height, scheme=scheme)
    browser.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    return Look(
        page=page.as_uri(),
        screen=width,  # not `innerWidth`: a phone zooms out until a wide page fits
        width=browser.value("document.scrollingElement.scrollWidth"),
        headline=browser.value(BOTTOM.format("#headline")),
        cause=browser.value(BOTTOM.format("#cause, #runs")),
        contrasts=tuple(map(tuple, json.loads(browser.value(CONTRASTS)))),
        scripts=browser.value("document.scripts.length"),
        requests=browser.requests(),
    )


def test_nothing_is_wider_than_the_screen(look: Look) -> None:
    """Nobody has to move the page sideways to read a line."""
    assert look.width <= look.screen


def test_headline_and_cause_are_seen_first(look: Look) -> None:
    """Both end within the first 600 pixels; of a night, the list of its runs."""
    assert 0 < look.headline < look.cause <= FIRST


def test_every_text_can_be_read(look: Look) -> None:
    """By day and by night, what is written stands out from what is behind it."""
    assert len(look.contrasts) > 40
    assert [] == [(text, contrast) for text, contrast in look.contrasts if contrast < READABLE]


def test_the_page_is_all_there_is(look: Look) -> None:
    """No script is on it, and nothing but the file itself is asked for."""
    assert (0, [look.page]) == (look.scripts, look.requests)


@pytest.mark.parametrize(
    ("name", "text"),
    [("hostile", "<script>alert('x')</script>"), ("night", "</pre><script>alert(1)</script>")],
)
def test_what_the_log_says_is_text(browser: Browser, pages: dict[str, Path], name: str, text: str) -> None:
    """The tags of hostile lines are read as they were written, and make nothing."""
    browser.open(pages[name], width=1280, height=800, scheme="light")
    assert text in browser.value("document.body.textContent")
    assert browser.value("document.querySelectorAll('script, img, u, i, pre pre').length") == 0
