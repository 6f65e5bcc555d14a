"""Verdict and digest as HTML pages without scripts or outside links, to open from a ticket or on a phone."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bisect_agent.lines import printable
from bisect_agent.model import Evidence
from bisect_agent.report.digest import Digest
from bisect_agent.report.dossier import Dossier
from bisect_agent.report.words import (
    Quoted,
    back,
    called,
    came_true,
    change,
    clock_time,
    counted,
    day,
    did,
    lasting,
    outcome,
    place,
    quote,
    ranked,
    shorter,
    titled,
    untold,
    who,
)
from bisect_agent.verdict import Verdict


class Anchors(Quoted):
    """The lines that the page has quoted, and where: each is quoted once, and linked to afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, str] = {}

    def name(self, evidence: Evidence) -> str:
        """The name of the place on the page where a line is quoted."""
        return self._names.setdefault(place(evidence), f"line-{len(self._names) + 1}")


def html(verdict: Verdict, dossier: Dossier) -> str:
    """The whole verdict. Everything that comes from a log is escaped."""
    claims = {hypothesis.id: hypothesis.claim for hypothesis in verdict.hypotheses}
    return (
        _environment()
        .get_template("verdict.html.jinja")
        .render(verdict=verdict, dossier=dossier, claims=claims, anchors=Anchors())
    )


def digest_html(digest: Digest) -> str:
    """A night's runs, each with a link to its verdict."""
    return _environment().get_template("digest.html.jinja").render(digest=digest)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("bisect_agent.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_safe,
    )
    environment.filters.update(
        place=place,
        quote=quote,
        ranked=ranked,
        who=who,
        titled=titled,
        time=clock_time,
        day=day,
        lasting=lasting,
        change=change,
        called=called,
        came_true=came_true,
        did=did,
        shorter=shorter,
        untold=untold,
        prose=_prose,
        outcome=outcome,
        back=back,
        counted=counted,
    )
    return environment


def _prose(text: str) -> Markup:
    """A sentence, in which `…` is code as it is in our own."""
    shown = str(escape(printable(text)))  # a plain `str`: `Markup` would escape the tags too
    return Markup(re.sub("(?<!`)`([^`]+)`(?!`)", r"<code>\1</code>", shown))  # noqa: S704  # escaped


def _safe(value: object) -> object:
    """Text without what a browser obeys; the page's own markup, which is no plain `str`, stays."""
    return printable(value) if type(value) is str else value
