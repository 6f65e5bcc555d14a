"""Public failures of inference stacks: what each log can tell is told, and nobody is accused falsely.

The table is `cases/incidents/cases.jsonl`; its README says what the columns mean. A log is built around a
case's lines as the stack would write it, in several styles, read by the real scanner with all shipped
signatures, and judged. `-s` shows the figures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter
from ruamel.yaml import YAML

from bisect_agent.judge import Known, judge
from bisect_agent.library import signatures
from bisect_agent.model import (
    Exit,
    Failed,
    HttpAnswer,
    HttpRequest,
    LogCopy,
    Observation,
    Observe,
    Outcome,
    Passed,
    Reading,
    Role,
    Serving,
    SymptomKind,
    Trial,
    Unresolved,
    Why,
)
from bisect_agent.signatures import Scanner, watches
from tests.worlds import playbook_of

FOLDER = Path(__file__).parent / "cases" / "incidents"
TABLE = FOLDER / "cases.jsonl"
DECIDABLE = 60
"""So many cases of the table must be decidable, or it is not the log that is put to the test."""
RIGHT = 0.95
"""The share of built logs of decidable cases whose class must be told."""
UNKNOWN = frozenset({"", "engine-exit"})
"""The topics that name no cause: nothing is said, or that a process ended."""


# --- the table --------------------------------------------------------------------------------------


class Expected(BaseModel):
    """What must be said of a decidable case. An exception's `symptom` is how its fingerprint begins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: str
    by: Literal["signature", "exception"]
    symptom: str
    topic: str


class Case(BaseModel):
    """A row of the table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    url: str
    system: str
    outcome_class: str
    symptom_class: str
    log_lines: tuple[str, ...]
    noise_lines: tuple[str, ...]
    decidable: bool
    reason: str
    expected: Expected | None


CASES = tuple(
    Case.model_validate_json(line) for line in TABLE.read_text(encoding="utf-8").splitlines() if line
)


# --- a log as the stack would write it --------------------------------------------------------------


class Stack(BaseModel):
    """How a stack writes, as `stacks.yaml` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    record: str
    every: bool
    banner: tuple[str, ...]
    fails: str
    wraps: str
    ends: tuple[str, ...]


STACKS = TypeAdapter(dict[str, Stack]).validate_python(YAML(typ="safe").load(FOLDER / "stacks.yaml"))
NOISE = (FOLDER / "noise.txt").read_text(encoding="utf-8").splitlines()
HOSTS = {"flashinfer": ("sglang", "vllm"), "pytorch": ("job",), "triton": ("job",), "nccl": ("job",)}
"""A library's failures are printed by the stack that uses it."""
TRACEBACK = "Traceback (most recent call last):"
CHAINED = "During handling of the above exception, another exception occurred:"
FRAMES = (
    ("/opt/site/torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)"),
    ("/opt/site/engine/runner.py", "load", 'raise RuntimeError("CUDA error: out of memory")'),
    ("/opt/site/engine/net.py", "connect", 'raise OSError("[Errno 98] Address already in use")'),
    ("/opt/site/engine/graph.py", "capture", "# dependency created on uncaptured work in another stream"),
)
"""Frames quote code, and the code may quote any message."""


class Style(NamedTuple):
    """What stands before every line, and whether there is noise, and a wrapper around the exceptions."""

    before: str
    noise: bool
    wrapped: bool


STYLES = (
    Style("", noise=False, wrapped=False),
    Style("server-1  | ", noise=True, wrapped=True),
    Style("2026-01-01T00:00:30.123456789Z ", noise=True, wrapped=False),
    Style("\x1b[36m(RayWorker pid=4711, ip=10.0.0.7)\x1b[0m ", noise=False, wrapped=True),
)

_RAISED = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|OutOfResources)(?:: |$)")


class Writer:
    """Writes the log of one case in one style; what is picked depends on the case's name alone."""

    def __init__(self, case: Case, style: Style) -> None:
        self.case, self.style = case, style
        self.dice = Random(case.id)  # noqa: S311  # a choice, not a secret
        self.stack = STACKS[self.dice.choice(HOSTS.get(case.system, (case.system,)))]
        self.rank = self.dice.randrange(8)
        self.lines: list[str] = []

    def log(self) -> str:
        """The whole log: the start, the noise, the case's lines, what follows any failure."""
        for text in self.stack.banner:
            self.record(text, level="INFO")
        noise = [*self.case.noise_lines]
        self.dice.shuffle(noise)
        early = noise[: len(noise) // 2]
        if self.style.noise:
            self.raw(*NOISE, *early)
        self.failure()
        if self.style.noise:
            self.raw(*noise[len(early) :])
        if self.case.outcome_class not in ("ready_but_wrong", "ready_but_slow"):
            self.raw(*(end.format(t=40, rank=(self.rank + 1) % 8) for end in self.stack.ends))
        return "".join(f"{self.style.before}{line}\n" for line in self.lines)

    def raw(self, *lines: str) -> None:
        """Lines as they are."""
        self.lines += lines

    def record(self, text: str, level: str = "ERROR") -> None:
        """A record of one or more lines."""
        before = self.stack.record.format(t=20, rank=self.rank, level=level)
        first, *others = text.splitlines()
        self.raw(before + first, *(before + line if self.stack.every else line for line in others))

    def failure(self) -> None:
        """The case's own lines: exceptions after their frames; others bare, or as records."""
        frames: list[str] = []
        for line in self.case.log_lines:
            if line.startswith("  "):
                frames.append(line)
            elif _RAISED.match(line):
                self.raised(line, frames)
                frames = []
            elif self.style.wrapped:
                self.record(line)
            else:
                self.raw(line)
        self.raw(*frames)

    def raised(self, exception: str, frames: Sequence[str]) -> None:
        """A traceback, whose innermost frames are the case's own; around it, in some styles, another one."""
        inner = exception.partition(": ")[2] or exception
        first, last = exception, self.stack.wraps.format(inner=inner)
        if self.style.wrapped and exception.startswith("Exception: "):
            first, last = inner if _RAISED.match(inner) else f"RuntimeError: {inner}", exception
        told = [self.stack.fails.format(inner=inner), *self.frames(), *frames, first]
        if self.style.wrapped:
            told += ["", CHAINED, "", TRACEBACK, *self.frames(), last]
        self.record("\n".join(told))

    def frames(self) -> Iterator[str]:
        """Some frames with the source lines that Python quotes."""
        for path, function, source in self.dice.sample(FRAMES, 3):
            yield f'  File "{path}", line {self.dice.randrange(1, 4000)}, in {function}'
            yield f"    {source}"


# --- what the product says of it --------------------------------------------------------------------

PLAYBOOK = playbook_of({"mode": ("safe", "fast")}, {"mode": "fast"}).model_copy(
    update={
        "signatures": signatures(),
        "observe": Observe(request=HttpRequest(path="/generate", body="{}", same_as_good=True)),
    }
)
WATCHES = watches(PLAYBOOK)
BAD = Trial(id="t02", control="bad", configuration=PLAYBOOK.bad)
GOOD_ANSWER = '{"text": "four"}'


def served(answer: str) -> Serving:
    """A server that is ready and answers."""
    request = HttpAnswer(status=200, body=answer)
    return Serving(listener="ours", health=HttpAnswer(status=200), request=request)


ENDS: dict[str, dict[str, object]] = {
    "failed_with_signature": {"why": Why.EXITED, "exit": Exit(code=1)},
    "never_started": {"why": Why.EXITED, "exit": Exit(code=1)},
    "ready_then_crash": {"why": Why.EXITED, "exit": Exit(code=1)},
    "infra_error": {"why": Why.EXITED, "exit": Exit(code=137)},
    "oom_killed": {"why": Why.EXITED, "exit": Exit(signal=9)},
    "hung": {"why": Why.SILENT, "quiet": 300.0},
    "ready_then_hang": {"why": Why.SILENT, "quiet": 300.0},
    "ready_but_wrong": {"why": Why.SERVED, "serving": served('{"text": "!!!!"}')},
    "ready_but_slow": {"why": Why.SERVED, "serving": served(GOOD_ANSWER)},
}
"""How an attempt of each class ends. The kernel is not asked: what it says in the log is all there is."""


class Said(NamedTuple):
    """What the product says of a log, in the words of the table; `by` is the kind of the symptom."""

    outcome: str
    by: str
    symptom: str
    topic: str


def read(log: str) -> Reading:
    """The reading of a whole log with all shipped signatures."""
    scanner = Scanner(WATCHES)
    scanner.feed(log.encode())
    scanner.finish()
    return scanner.reading()


def said(log: str, outcome_class: str) -> Said:
    """What is made of an attempt that has this log and ends as its class does."""
    reading = read(log)
    copy = LogCopy(path="trials/t02-bad/1/server.log", size=len(log), sha256="1" * 64, original="2" * 64)
    seen = Observation.model_validate({"reading": reading, "log": copy, **ENDS[outcome_class]})
    return _said(judge(PLAYBOOK, BAD, 1, seen, Known(answer=GOOD_ANSWER)).outcome, reading)


def _said(outcome: Outcome, reading: Reading) -> Said:
    match outcome:
        case Passed():
            return Said("passed", "", "", "")
        case Failed(symptom=symptom):
            topics = {s.id: s.topic for s in PLAYBOOK.signatures}
            topic = topics[symptom.id] if symptom.kind is SymptomKind.SIGNATURE else ""
            return Said("failed", symptom.kind, symptom.id, topic)
        case Unresolved(reason=reason):
            infra = [s for s in PLAYBOOK.signatures if s.role is Role.INFRA]
            first = next(s for m in reading.matches for s in infra if s.id == m.id)
            return Said(f"unresolved:{reason.name.lower()}", "signature", first.id, first.topic)


def is_right(case: Case, found: Said) -> bool:
    """Whether that is what the table expects; of an exception it has the beginning."""
    wanted = case.expected
    return wanted is not None and (
        (found.outcome, found.by, found.topic) == (wanted.outcome, wanted.by, wanted.topic)
        and (
            found.symptom.startswith(wanted.symptom)
            if wanted.by == "exception"
            else found.symptom == wanted.symptom
        )
    )


def accuses_falsely(case: Case, found: Said) -> bool:
    """Whether a cause is named that is not the case's."""
    return found.topic not in UNKNOWN | ({case.expected.topic} if case.expected else set())


@cache
def verdicts() -> tuple[tuple[Case, int, Said], ...]:
    """What is said of every case in every style."""
    return tuple(
        (case, n, said(Writer(case, style).log(), case.outcome_class))
        for case in CASES
        for n, style in enumerate(STYLES)
    )


def shown(wrong: Iterable[tuple[Case, int, Said]]) -> str:
    """A line for each verdict, for a person."""
    return "\n".join(f"{case.id} style {n}: {found} instead of {case.expected}" for case, n, found in wrong)


def test_enough_cases_are_decidable() -> None:
    """A table of silences would prove nothing."""
    decidable = [case for case in CASES if case.decidable]
    assert [case.id for case in decidable] == [case.id for case in CASES if case.expected]
    assert DECIDABLE <= len(decidable)


def test_what_the_log_can_tell_is_told() -> None:
    """Of decidable cases, nearly every log gets the class that a person reads in it."""
    asked = [(case, n, found) for case, n, found in verdicts() if case.decidable]
    wrong = [(case, n, found) for case, n, found in asked if not is_right(case, found)]
    told = Counter(case.expected.by for case, n, found in asked if n == 0 and case.expected)
    print(
        f"\n{len(CASES)} cases, {sum(told.values())} decidable ({dict(told)}); "
        f"{len(asked) - len(wrong)} of {len(asked)} logs told right\n{shown(wrong)}"
    )
    assert RIGHT <= 1 - len(wrong) / len(asked), shown(wrong)


def test_nobody_is_accused_falsely() -> None:
    """No log, decidable or not, is given a class that is not its case's."""
    false = [(case, n, found) for case, n, found in verdicts() if accuses_falsely(case, found)]
    print(f"\n{len(false)} false accusations in {len(verdicts())} logs")
    assert [] == false, shown(false)


@pytest.mark.parametrize("system", sorted(STACKS))
@pytest.mark.parametrize("style", range(len(STYLES)))
def test_a_start_noise_and_cascades_alone_name_no_cause(system: str, style: int) -> None:
    """What surrounds every case's lines tells of no class of failure."""
    bare = CASES[0].model_copy(update={"system": system, "log_lines": (), "noise_lines": ()})
    found = said(Writer(bare, STYLES[style]).log(), "failed_with_signature")
    assert found.topic in UNKNOWN
