"""The verdict as one HTML page without scripts or outside links, to open from a ticket."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from bisect_agent.report.words import came_true, change, clock_time, place, quote, titled, who
from bisect_agent.signatures import printable
from bisect_agent.verdict import Verdict


def html(verdict: Verdict, title: str) -> str:
    """The whole verdict. Everything that comes from a log is escaped."""
    environment = Environment(
        loader=PackageLoader("bisect_agent.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        printable=printable,
        place=place,
        quote=quote,
        who=who,
        titled=titled,
        time=clock_time,
        change=change,
        came_true=came_true,
    )
    claims = {hypothesis.id: hypothesis.claim for hypothesis in verdict.hypotheses}
    return environment.get_template("verdict.html.jinja").render(verdict=verdict, title=title, claims=claims)
