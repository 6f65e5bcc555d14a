"""Verdict and digest as Markdown, for a ticket; it can be read raw, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote as urlquote

from bisect_agent.claims import HypothesisResult
from bisect_agent.lines import printable
from bisect_agent.model import Evidence, State
from bisect_agent.report.digest import Brief, Digest
from bisect_agent.report.dossier import Background, ByHand, Dossier, Near
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
from bisect_agent.tree import Node, SymptomResult
from bisect_agent.verdict import Verdict

_MARKS = re.compile(r"[\\`*\[\]<>~|#]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])|!(?=\[)")
"""What Markdown obeys within a line. An underscore inside a word is not obeyed, and stays as it is."""
_BEGINS = re.compile(r"^(?=[-+](?:\s|$|--))|^\d{1,9}(?=[.)](?:\s|$))")
"""What it obeys where a text begins."""
_SPAN = re.compile(r"(`[^`|]+`)")


def markdown(verdict: Verdict, dossier: Dossier) -> str:
    """The whole verdict; log lines are escaped, so that they cannot become markup."""
    page = _Page(verdict, dossier)
    return "\n".join(page.lines()) + "\n"


def digest_markdown(digest: Digest) -> str:
    """A night's runs, each with a link to its verdict."""
    return "\n".join(_night(digest)) + "\n"


def _night(digest: Digest) -> Iterator[str]:
    began = f"{day(digest.began)}, {lasting(digest.at - digest.began)}"
    yield from (f"# {_plain(counted(digest.runs))}", "")
    yield f"- the night of {began}{f', until {digest.until}' if digest.until else ''}"
    yield f"- exit code {digest.code}" if digest.over else f"- it goes on; this is as of {day(digest.at)}"
    yield from (f"- **{_plain(note)}**" for note in digest.notes)
    for run in digest.runs:
        yield from ("", f"## {_plain(outcome(run))}: {_plain(run.title or run.name)}", "", *_brief(run))


def _brief(run: Brief) -> Iterator[str]:
    if run.found:
        found = _plain(run.found.replace("\n", " "))
        yield f"- [{found}](./{urlquote(run.page)})" if run.page else f"- {found}"
    if run.code is not None:
        yield f"- exit code {run.code}: {_plain(outcome(run))}"
    if run.folder:
        yield f"- good restored: {f'**{_plain(back(run))}**' if run.restored is False else _plain(back(run))}"
    if run.began is not None:
        took = f", {lasting(run.ended - run.began)}, {run.attempts} attempts" if run.ended else ""
        yield f"- {day(run.began)}{took}"
    where = {"playbook": run.playbook, "target": run.target, "run folder": run.folder}
    yield from (f"- {name}: {_code(value)}" for name, value in where.items() if value)
    yield from (f"- {_plain(note)}" for note in run.notes)
    if run.commands:
        yield from ("", *_fenced(run.commands, "bash"))


class _Page:
    """The parts of the page, in their order; a line is quoted once, and named by its place afterwards."""

    def __init__(self, verdict: Verdict, dossier: Dossier) -> None:
        self.verdict = verdict
        self.dossier = dossier
        self.trials = {trial.id: trial for trial in verdict.trials}
        self.quoted = Quoted()

    def lines(self) -> Iterator[str]:
        """The whole page."""
        yield from (f"# {_plain(self.verdict.tree.text)}", "", _plain(self.dossier.title), "")
        yield from self.summary()
        yield from ("", "## What to do", "", *self.advice())
        if self.verdict.symptom:
            yield from ("", "## The failure", "", *self.failure(self.verdict.symptom))
        for lead in self.verdict.leads:
            yield from ("", "## Another failure seen", "", *self.failure(lead))
        if self.verdict.pairs:
            yield from ("", "## The pairs", "", *self.pairs())
        if self.dossier.by_hand:
            yield from ("", "## By hand", "", *self.by_hand(self.dossier.by_hand))
        statement = f"{self.verdict.confidence.statement}."
        yield from ("", "## What is unknown", "")
        yield from (f"- {_plain(text)}" for text in (*self.verdict.unknown, statement))
        if self.verdict.hypotheses:
            yield from ("", "## Hypotheses", *self.hypotheses())
        yield from ("", "## The verdict tree", "", f"**{_plain(self.verdict.tree.text)}**", "")
        yield from (line for child in self.verdict.tree.children for line in self.node(child, 0))
        yield from ("", "## Attempts", "", *self.attempts())
        yield from ("", "## What was verified", *self.verified())
        yield from ("", "## The target and the record", "", *self.record())

    def summary(self) -> Iterator[str]:
        """The cause, the controls, and when all this was."""
        verdict, dossier = self.verdict, self.dossier
        for setting in (s for cause in verdict.causes for s in cause):
            how = f" ({_code(dossier.levels[str(setting)])})" if str(setting) in dossier.levels else ""
            yield f"- {_code(str(setting))}{how}"
        if not verdict.causes:
            yield f"- {_plain(verdict.stopped_by)}"
        for name, control in (("good first", verdict.good_first), ("good restored", verdict.good_restored)):
            word = {True: "yes", False: "**NO**", None: "not tried"}[control.ok]
            yield f"- {name}: {word}, {_plain(control.reason)}"
        code = "" if dossier.exit_code is None else f", exit code {dossier.exit_code}"
        began = f"{day(dossier.began)}, {lasting(dossier.ended - dossier.began)}, " if dossier.began else ""
        yield f"- {began}{len(verdict.trials)} attempts{code}"

    def advice(self) -> Iterator[str]:
        """What to do next, numbered."""
        for number, advice in enumerate(self.dossier.advice, 1):
            whose = f" (*{_plain(advice.hypothesis)}*)" if advice.hypothesis else ""
            command = f" {_code(advice.command)}" if advice.command else ""
            yield f"{number}. {_plain(advice.text)}{whose}{command}"
        if not self.dossier.advice:
            yield "No advice follows from what was seen. What is unknown says what to try."

    def failure(self, symptom: SymptomResult) -> Iterator[str]:
        """A failure: where, what it means, and its lines, the first with those around it."""
        where = f" in phase {_plain(symptom.phase)}" if symptom.phase else ""
        first = f"; {_plain(symptom.first_rank)} failed first" if symptom.first_rank else ""
        unknown = "; which rank failed first is not shown" if symptom.order == "not shown" else ""
        yield f"{_code(symptom.id)}{where}{first}{unknown}"
        meaning = self.dossier.meanings.get(symptom.id)
        if meaning and meaning.text:
            yield from ("", _plain(meaning.text))
        if meaning and meaning.topic:
            yield from ("", f"Class of failure: {_plain(meaning.topic)}")
        if untold(symptom):
            yield from ("", _code(symptom.text))
        fresh, _ = self.quoted.split(symptom.evidence)
        for line in fresh[:1]:
            near = self.dossier.around(line)
            if near:
                yield from ("", f"{_link(line)}{_whose(line)}", "", *_fenced(map(_beside, near)))
            else:
                yield from ("", f"- {_cited(line)}")
        yield ""
        yield from (f"- {_cited(line)}" for line in fresh[1:])

    def pairs(self) -> Iterator[str]:
        """A row a pair."""
        yield from ("| setting | fails | passes | fails again |", "|---|---|---|---|")
        for pair in self.verdict.pairs:
            cells = (self.trials[name] for name in (pair.failing, pair.passing, pair.again))
            yield _row(_plain(str(pair.setting)), *(f"{t.id} {_plain(change(t))}" for t in cells))
        for pair in self.verdict.pairs:
            lines = [e for n in (pair.failing, pair.passing, pair.again) for e in self.trials[n].evidence[:1]]
            yield from ("", f"{_code(str(pair.setting))}:", "", *self.cites(lines, ""))

    def by_hand(self, blocks: Sequence[ByHand]) -> Iterator[str]:
        """The commands, and what was seen when they ran."""
        if self.dossier.asks:
            yield from ("The ports must be free before.", "")
        for block in blocks:
            yield from (f"{block.trial}, {_plain(block.title)}: {_plain(block.seen)}", "")
            yield from (*_fenced(block.lines, "bash"), "")
        if self.dossier.asks:
            yield from ("In another shell, once it is ready:", "", *_fenced(self.dossier.asks, "bash"))

    def hypotheses(self) -> Iterator[str]:
        """Each claim with its state, its way there, and what it predicted."""
        for found in ranked(self.verdict.hypotheses):
            background = self.dossier.background(found.id)
            yield from ("", f"### {found.state}: {_plain(found.id)}", "", _plain(found.claim), "")
            by = f" ({', '.join(found.by)})" if found.by else ""
            yield f"- {found.state}: {_plain(found.because)}{by}"
            if background.path:
                yield f"- {_way(background)}"
            if predictions := list(self.predictions(found)):
                yield f"- predicted: {'; '.join(predictions)}"
            if background.mechanism:
                yield f"- how it could happen: {_plain(background.mechanism)}"

    def predictions(self, found: HypothesisResult) -> Iterator[str]:
        """What a hypothesis said of each attempt before it ran, and whether it came true."""
        for trial in self.verdict.trials:
            prediction = trial.predicted.get(found.id, "nothing")
            if prediction != "nothing":
                word = came_true(trial, prediction, self.verdict) or _plain(did(trial, self.verdict))
                yield f"{called(trial.id, trial.attempt)} {prediction} ({word})"

    def node(self, node: Node, depth: int) -> Iterator[str]:
        """A sentence of the tree, its lines, and what it is made of."""
        indent = "  " * depth
        yield f"{indent}- {_sentence(node.text)}"
        yield from self.cites(node.evidence, f"{indent}  ")
        for child in node.children:
            yield from self.node(child, depth + 1)

    def cites(self, evidence: Sequence[Evidence], indent: str) -> Iterator[str]:
        """The lines that were not quoted yet, and the places of those that were."""
        fresh, known = self.quoted.split(evidence)
        yield from (f"{indent}- {_cited(line)}" for line in fresh)
        if known:
            yield f"{indent}- quoted above: {', '.join(_link(line, shorter(line)) for line in known)}"

    def attempts(self) -> Iterator[str]:
        """A row an attempt."""
        yield "| trial | change | asked | outcome | phase | started (UTC) | seconds |"
        yield "|---|---|---|---|---|---|---|"
        for checked in self.dossier.checked:
            outcome = f"{checked.outcome}: {checked.said}" if checked.said else checked.outcome
            began, seconds = clock_time(checked.began), f"{checked.seconds:.1f}"
            name = called(checked.trial, checked.attempt)
            cells = (name, checked.change, checked.asked, outcome, checked.phase, began, seconds)
            yield _row(*map(_plain, cells))

    def verified(self) -> Iterator[str]:
        """What was looked at in each attempt."""
        for checked in self.dossier.checked:
            changed = f" {_plain(checked.change)}" if checked.change != checked.trial else ""
            yield from ("", f"### {called(checked.trial, checked.attempt)}{changed}", "")
            for fact in checked.facts:
                mark = {True: "✓ ", False: "✗ ", None: ""}[fact.ok]
                at = f" {_link(fact.evidence)}" if fact.evidence else ""
                said = _code(fact.said) if fact.copied else _plain(fact.said)
                yield f"- {_plain(fact.name)}: {mark}{said}{at}"

    def record(self) -> Iterator[str]:
        """The target, what was run by what, and how to hold the verdict against it."""
        for name, value in (*self.dossier.target.items(), *self.dossier.record.items()):
            yield f"- {_plain(name)}: {_code(value)}"
        yield f"- schema: {self.verdict.versions['schema']}"
        yield from (
            "",
            "Whether the verdict follows from the files beside it, the run folder tells by itself:",
        )
        yield from ("", *_fenced(("bisect-agent verify .",), "bash"))


def _beside(near: Near) -> str:
    """A line of a file with its number; the evidence itself is marked."""
    late = "  (after our stop began: no evidence)" if near.late else ""
    return f"{'>' if near.cited else ' '} {near.number:>6}  {near.text}{late}".rstrip()


def _way(background: Background) -> str:
    """The states that a hypothesis came through."""
    steps = (
        f"{move.state} {'since' if move.state == 'testing' else 'by'} {move.trial}"
        if move.trial
        else f"{move.state} at the end"
        for move in background.path
    )
    return " → ".join(steps)


def _sentence(text: str) -> str:
    """A sentence with the state that it begins with, if it does, in bold."""
    word, rest = titled(text)
    return f"**{word}**: {_plain(rest)}" if word in set(State) else _plain(text)


def _cited(evidence: Evidence) -> str:
    """A line with its place, and whose it is."""
    return f"{_link(evidence)}{_whose(evidence)}: {_code(quote(evidence))}"


def _whose(evidence: Evidence) -> str:
    return f" {_plain(who(evidence))}" if who(evidence) else ""


def _link(evidence: Evidence, name: str = "") -> str:
    """The place of a line, leading to its file."""
    return f"[{_plain(name or place(evidence))}](./{urlquote(evidence.path)})"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(text: str) -> str:
    """Text that stays text in Markdown; `…` in it is code, as it is in our own sentences."""
    shown = printable(text).strip()
    parts = _SPAN.split(shown) if shown.count("`") % 2 == 0 else [shown]
    plain = "".join(part if _SPAN.fullmatch(part) else _MARKS.sub(r"\\\g<0>", part) for part in parts)
    return _BEGINS.sub(r"\g<0>\\", plain)


def _code(text: str) -> str:
    """Text as a code span, with a fence longer than any run of backticks in it."""
    shown = printable(text)
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence, pad = "`" * (longest + 1), " " if shown[:1] in {"`", " "} or shown[-1:] in {"`", " "} else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _fenced(lines: Iterable[str], language: str = "text") -> Iterator[str]:
    """Lines as they are, between fences longer than any run of backticks in them."""
    shown = [printable(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{language}", *shown, fence)
