"""YAML read so that every mistake can be pointed at, and every word stays as it was written.

The tree is built from parser events, not from loaded values: a scalar is its text (`on`, `007`, `0.50`
are not made into something else), and each node knows its line and column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NoReturn, assert_never

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StreamMark
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.reader import ReaderError

from bisect_agent.errors import PlaybookError, Problem
from bisect_agent.secrets import Masker

MAX_DEPTH = 32
"""Deeper nesting than this is refused, so that no input can exhaust the stack."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_COUNT = re.compile(r"0*[1-9][0-9]{0,8}")
_SHARE = re.compile(r"0?\.[0-9]{1,9}")
_LONGEST_QUOTE = 60
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
"""A zero byte ends a text wherever the system reads it; half of a character cannot be written at all."""

_SYNTAX_REMEDIES = (
    ("'\\t'", "indent with spaces"),
    ("but got '{'", 'put `${NAME}` in double quotes: "${NAME}"'),
    ("mapping values are not allowed", 'put a text that holds ": " in single quotes'),
    ("cannot start any token", "put the text in single quotes"),
    ("unknown escape character", "put a pattern in single quotes: there a backslash is a backslash"),
    ("quoted scalar", "close the quote"),
)
"""What to do about the parser's own complaints, by a part of their wording; the first that fits."""

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


@dataclass(frozen=True)
class Mark:
    """A place in the file; both count from 1."""

    line: int
    column: int

    @classmethod
    def of(cls, mark: StreamMark) -> Mark:
        """The parser's mark, which counts from 0."""
        return cls(mark.line + 1, mark.column + 1)

    @classmethod
    def at(cls, text: str) -> Mark:
        """The place right after `text`, which is the beginning of the file."""
        return cls(text.count("\n") + 1, len(text) - text.rfind("\n"))


START = Mark(1, 1)


@dataclass(frozen=True)
class ScalarNode:
    """A word, number or text, as written. `plain` means that it stands without quotes.

    `block` means that its lines stand as they are, below the line of its mark.
    """

    mark: Mark
    text: str
    plain: bool
    block: bool = False

    @property
    def null(self) -> bool:
        """Whether YAML takes it for no value at all."""
        return self.plain and self.text in _NULL


@dataclass(frozen=True)
class SequenceNode:
    """A list."""

    mark: Mark
    items: tuple[Node, ...]


@dataclass(frozen=True)
class MappingNode:
    """Keys and values, in the order written; a key may still be there twice."""

    mark: Mark
    entries: tuple[tuple[ScalarNode, Node], ...]


Node = ScalarNode | SequenceNode | MappingNode


@dataclass(frozen=True)
class Problems:
    """The mistakes found in one file so far."""

    file: str
    found: list[Problem] = field(default_factory=list)

    def add(self, mark: Mark, found: str, remedy: str) -> None:
        """Note a mistake and go on reading. What is quoted of the file may look like a secret."""
        found, remedy = (Masker(()).mask(text) for text in (found, remedy))
        self.found.append(Problem(self.file, mark.line, mark.column, found, remedy))

    def check(self) -> None:
        """Raise PlaybookError with everything noted, in the order of the file, if there is anything."""
        if self.found:
            raise self._error()

    def fail(self, mark: Mark, found: str, remedy: str) -> NoReturn:
        """Note a mistake after which nothing more can be read, and raise."""
        self.add(mark, found, remedy)
        raise self._error()

    def _error(self) -> PlaybookError:
        return PlaybookError(tuple(sorted(self.found, key=lambda p: (p.line, p.column))))


# --- text → nodes -----------------------------------------------------------------------------------


def parse(text: str, problems: Problems, *, what: str = "the playbook", begin: str = "playbook: 1") -> Field:
    """The one document of `text`; `what` it is, and how such a file begins, is said where it is empty.

    Raises:
        PlaybookError: it is not YAML, or YAML with aliases, tags or several documents.
    """
    try:
        root = _document(YAML(typ="safe", pure=True).parse(text), problems)
        if root is None:
            problems.fail(START, f"{what} is empty", f"begin with: {begin}")
    except MarkedYAMLError as error:
        problems.fail(*_syntax(error))
    except ReaderError as error:
        found = f"the character U+{ord(text[error.position]):04X} cannot stand in YAML"
        problems.fail(Mark.at(text[: error.position]), found, "remove it")
    problems.check()
    return Field(path="", key=START, node=root, problems=problems)


def _syntax(error: MarkedYAMLError) -> tuple[Mark, str, str]:
    found = ", ".join(part for part in (error.context, error.problem) if part)
    remedies = (remedy for wording, remedy in _SYNTAX_REMEDIES if wording in found)
    mark = error.problem_mark or error.context_mark
    return (
        Mark.of(mark) if mark else START,
        f"this is not YAML: {found}",
        next(remedies, "look at the indentation, quotes and brackets here and in the line before"),
    )


def _document(events: Iterator[Event], problems: Problems) -> Node | None:
    """The first document, None where there is none; a second one is a mistake."""
    next(events)  # the stream starts
    if isinstance(next(events), StreamEndEvent):
        return None
    root = _node(next(events), events, problems, 1)
    for event in events:
        if isinstance(event, DocumentStartEvent):
            problems.fail(Mark.of(event.start_mark), "a second document begins here", "remove the line ---")
    return root


def _node(event: Event, events: Iterator[Event], problems: Problems, depth: int) -> Node:
    mark = Mark.of(event.start_mark)
    if depth > MAX_DEPTH:
        problems.fail(mark, f"nested more than {MAX_DEPTH} deep", "write it flatter")
    _refuse_cleverness(event, mark, problems)
    match event:
        case ScalarEvent():
            return ScalarNode(mark, event.value, plain=not event.style, block=event.style == "|")
        case SequenceStartEvent():
            return SequenceNode(mark, tuple(_items(events, problems, depth)))
        case MappingStartEvent():
            return MappingNode(mark, tuple(_entries(events, problems, depth)))
        case _:  # an alias: already a problem
            return ScalarNode(mark, "", plain=True)


def _refuse_cleverness(event: Event, mark: Mark, problems: Problems) -> None:
    if isinstance(event, AliasEvent):
        problems.add(mark, f"the alias *{event.anchor}", "write the value out")
    elif isinstance(event, NodeEvent) and event.anchor:
        problems.add(mark, f"the anchor &{event.anchor}", "write the value out where it is needed")
    elif isinstance(event, ScalarEvent) and (broken := _UNUSABLE.search(event.value)):
        problems.add(mark, f"the character U+{ord(broken[0]):04X} can stand in no text", "remove it")
    elif isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent) and event.tag:
        problems.add(mark, "a tag before the value", "remove it; text that must stay text goes in quotes")


def _items(events: Iterator[Event], problems: Problems, depth: int) -> Iterator[Node]:
    while not isinstance(event := next(events), SequenceEndEvent):
        yield _node(event, events, problems, depth + 1)


def _entries(events: Iterator[Event], problems: Problems, depth: int) -> Iterator[tuple[ScalarNode, Node]]:
    while not isinstance(event := next(events), MappingEndEvent):
        key = _node(event, events, problems, depth + 1)
        value = _node(next(events), events, problems, depth + 1)
        if isinstance(key, ScalarNode):
            yield key, value
        else:
            problems.add(key.mark, f"a key must be a word, found {describe(key)}", "write `word: value`")


# --- nodes → values ---------------------------------------------------------------------------------


def describe(node: Node) -> str:
    """What a person would call it."""
    match node:
        case SequenceNode():
            return "a list"
        case MappingNode():
            return "a mapping"
        case ScalarNode(text="", plain=True):
            return "nothing"
        case ScalarNode(text=text) if not text.strip():
            return "an empty text"
        case ScalarNode(text=text, plain=True) if _NUMBER.fullmatch(text):
            return f"the number {text}"
        case ScalarNode(text=text):
            kind = "text" if " " in text or len(text) > _LONGEST_QUOTE else "word"
            return f'the {kind} "{shorten(text)}"'
        case _:
            assert_never(node)


def shorten(text: str) -> str:
    """The first line of `text`, cut to a length that fits a message."""
    line = text.partition("\n")[0]
    return line if line == text and len(line) <= _LONGEST_QUOTE else f"{line[:_LONGEST_QUOTE]}…"


def nearest(word: str, known: Collection[str]) -> str:
    """A remedy for a word nobody knows: the nearest known one, or all of them."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean `{close[0]}`?" if close else f"one of: {', '.join(known) or '(there is none)'}"


@dataclass(frozen=True)
class Field:
    """A value with its path in the file (`limits.start`, empty for the whole) and the mark of its key.

    The readers note a problem and return an empty value where the node is not what they want; the
    caller goes on, and `Problems.check` raises in the end.
    """

    path: str
    key: Mark
    node: Node
    problems: Problems

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"`{self.path}`" if self.path else "the file"

    @property
    def mark(self) -> Mark:
        """Where the value stands; where nothing stands, its key."""
        match self.node:
            case ScalarNode(text="", plain=True):
                return self.key
            case node:
                return node.mark

    def refuse(self, found: str, remedy: str) -> None:
        """Note a problem at the value."""
        self.problems.add(self.mark, found, remedy)

    def refuse_key(self, found: str, remedy: str) -> None:
        """Note a problem at the key."""
        self.problems.add(self.key, found, remedy)

    def place(self, line: int) -> Mark:
        """Where a line of the text stands, counted from 1; without lines of its own, where the text does."""
        block = isinstance(self.node, ScalarNode) and self.node.block
        return Mark(self.mark.line + line, 1) if block else self.mark

    def refuse_line(self, line: int, found: str, remedy: str) -> None:
        """Note a problem at a line of the text, counted from 1."""
        self.problems.add(self.place(line), found, remedy)

    def wrong(self, wanted: str, remedy: str) -> None:
        """Note that the value is of another type."""
        self.refuse(f"{self.label} must be {wanted}, found {describe(self.node)}", remedy)

    def scalar(self) -> str | None:
        """The text as written, or None where a list, a mapping or nothing stands."""
        return self.node.text if isinstance(self.node, ScalarNode) and not self.node.null else None

    def text(self, remedy: str) -> str:
        """The text as written; a number or a word is text too."""
        text = self.scalar()
        if text is None or not text.strip():
            self.wrong("text", remedy)
            return ""
        return text

    def truth(self) -> bool:
        """`true` or `false`."""
        match self.node:
            case ScalarNode(text=text, plain=True) if text in _BOOLEANS:
                return _BOOLEANS[text]
        self.wrong("true or false", f"{self.path.rpartition('.')[2]}: true")
        return False

    def count(self, example: str) -> int:
        """A whole number, 1 or more."""
        text = self.scalar() or ""
        if _COUNT.fullmatch(text):
            return int(text)
        self.wrong("a whole number, 1 or more", example)
        return 1

    def share(self, least: float, most: float, example: str) -> float:
        """A decimal number between 0 and 1, within these limits."""
        text = self.scalar() or ""
        if _SHARE.fullmatch(text) and least <= float(text) <= most:
            return float(text)
        self.wrong(f"a number from {least:g} to {most:g}", example)
        return most

    def choice(self, options: tuple[str, ...]) -> str:
        """One of the words in `options`; after a mistake the nearest, so that less is misread for it."""
        text = self.scalar() or ""
        if text in options:
            return text
        self.wrong(f"one of {', '.join(options)}", nearest(text, options))
        return next(iter(get_close_matches(text, options, n=1)), options[0])

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys at all."""
        return isinstance(self.node, MappingNode)

    @property
    def is_empty_list(self) -> bool:
        """Whether it is a list with nothing in it."""
        return isinstance(self.node, SequenceNode) and not self.node.items

    def scalars(self) -> Iterator[Field]:
        """Every word, number and text in it, the keys of mappings too."""
        match self.node:
            case MappingNode(entries=entries):
                nodes = [node for entry in entries for node in entry]
            case SequenceNode(items=items):
                nodes = list(items)
            case _:
                yield self
                return
        for node in nodes:
            yield from Field(self.path, node.mark, node, self.problems).scalars()

    def has_any(self, names: Collection[str]) -> bool:
        """Whether it is a mapping with one of these keys."""
        return isinstance(self.node, MappingNode) and any(k.text in names for k, _ in self.node.entries)

    def items(self, remedy: str) -> tuple[Field, ...]:
        """The items of a list, counted from 1 in their paths."""
        if not isinstance(self.node, SequenceNode):
            self.wrong("a list", remedy)
            return ()
        return tuple(
            Field(f"{self.path}[{number}]", node.mark, node, self.problems)
            for number, node in enumerate(self.node.items, 1)
        )

    def entries(self, remedy: str) -> dict[str, Field]:
        """The entries of a mapping, whatever its keys; of a key written twice, the first."""
        if not isinstance(self.node, MappingNode):
            self.wrong("a mapping", remedy)
            return {}
        entries: dict[str, Field] = {}
        for key, node in self.node.entries:
            path = f"{self.path}.{key.text}" if self.path else key.text
            entry = Field(path, key.mark, node, self.problems)
            if entries.setdefault(key.text, entry) is not entry:
                first = entries[key.text].key.line
                entry.refuse_key(f"`{path}` is written twice, first in line {first}", "remove one of them")
        return entries

    def section(
        self,
        known: Collection[str],
        *,
        required: Mapping[str, str] | None = None,
        remedy: str,
    ) -> dict[str, Field]:
        """The entries of a mapping whose keys are fixed.

        Args:
            known: the keys that may be there.
            required: the keys that must be there, each with an example.
            remedy: what to write where no mapping stands.
        """
        entries = self.entries(remedy)
        meant: set[str] = set()
        for name, entry in entries.items():
            if name not in known:
                entry.refuse_key(f"unknown key `{entry.path}`", nearest(name, known))
                meant.update(get_close_matches(name, known, n=1))
        if self.is_mapping:
            # A key that is only misspelt is not missing as well.
            self._demand(entries, {k: v for k, v in (required or {}).items() if k not in meant})
        return {name: entry for name, entry in entries.items() if name in known}

    def _demand(self, entries: Mapping[str, Field], required: Mapping[str, str]) -> None:
        for name, example in required.items():
            if name not in entries:
                self.refuse_key(f"{self.label} has no `{name}`", f"add: {example}")

    def json(self) -> JSON:
        """The value as JSON has it: only numbers, true, false and null without quotes are not text."""
        match self.node:
            case SequenceNode():
                return [item.json() for item in self.items("")]
            case MappingNode():
                return {name: entry.json() for name, entry in self.entries("").items()}
            case ScalarNode(text=text, plain=plain):
                return _json_scalar(text) if plain else text
            case _:
                assert_never(self.node)


def _json_scalar(text: str) -> JSON:
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _NUMBER.fullmatch(text):
        number: int | float = json.loads(text)
        return number
    return text
