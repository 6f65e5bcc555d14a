"""Follows the Python tracebacks of a log: which lines are quoted code, which exception came first.

Python prints chained exceptions first cause first, joined by a sentence; only the first one of a chain
is a symptom. Writers that put their name before every line are followed apart, all others together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import assert_never

from bisect_agent.lines import Line, clean, mask, parse, printable, shorten
from bisect_agent.model import Raised

KEPT = 64
"""The most chains that are kept of one log."""

TRIGGERS = (
    r"Traceback \(most recent call last\):",
    r'File "[^"\n]*", line \d',
    r"Warning: ",
)
"""RE2 patterns, one of which is in every line after which the next lines read differently."""

_PATIENCE = 32 * 1024  # bytes after its last line of structure that a traceback is still waited for
_STREAMS = 64  # writers followed at a time

_HEADER = re.compile(r"Traceback \(most recent call last\):\s*$")
_GROUP = re.compile(r"^\s*\+ Exception Group Traceback ")
_MARGIN = re.compile(r"^ *(?:\+-)?[|+](?:-+(?: [\d.]+ -+)?$)? ?")
_FRAME = re.compile(
    r'^\s+File "(?P<file>[^"]*)", line \d+(?:, in (?P<function>.*)| in (?P<dumped>.*))?$', re.ASCII
)
_CARETS = re.compile(r"^\s*[~^][~^ ]*$")
_WHAT = re.compile(r"^\s*what\(\):")
_JOINT = re.compile(
    r"^\s*(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:<locals>\.[\w.]+)*(?:: |:?\s*$)")
_MASKED = 4000  # characters of an exception's line that make its fingerprint
_ANNOUNCES = re.compile(r":$|\bvalidation errors? for [\w.]+$")
_ANNOUNCED = 2  # lines after such an exception's line that are told with it
_THEN = " | "


@dataclass
class Chain:
    """The tracebacks that Python printed for one exception, and when and by whom.

    `quiet`: its writer calls it less than an error, so nothing was raised that matters. `more` is what
    follows an exception's line that only announces it.
    """

    begins: int
    ends: int
    rank: str | None
    time: float | None
    quiet: bool = False
    first: Line | None = None
    exception: str = ""
    more: str = ""
    frame: str = ""

    def raised(self) -> Raised | None:
        """The first exception of the chain; None while its line was not seen, or where it does not matter."""
        if self.first is None or self.quiet:
            return None
        return Raised(
            exception=shorten(printable(self.exception)),
            frame=shorten(printable(self.frame.strip())),
            fingerprint=shorten(printable(mask(f"{self.exception}{self.more}"[:_MASKED])))
            + shorten(printable(_own(self.frame))),
            line=self.first.number,
            offset=self.first.offset,
            begins=self.begins,
            ends=self.ends,
            time=self.time if self.first.time is None else self.first.time,
            rank=self.first.rank or self.rank,
        )


class _Place(Enum):
    """Where in its chain a writer is."""

    OUTSIDE = auto()
    BODY = auto()  # after the header: frames
    TOLD = auto()  # after the exception's line: the rest of its message
    JOINED = auto()  # after the sentence that joins: another header follows


@dataclass
class _Stream:
    """What one writer's next line may be. `code`: indented lines are quoted until one is not."""

    place: _Place = _Place.OUTSIDE
    chain: Chain | None = None
    code: bool = False
    group: bool = False
    frame: str = ""
    until: int = 0


@dataclass(frozen=True)
class Seen:
    """What the tracebacks say about a line."""

    quoted: bool = False
    chain: Chain | None = None

    def ignore(self, line: Line) -> None:
        """The playbook ignores the line: if it was what its chain raised, nothing was raised."""
        if self.chain is not None and self.chain.first is line:
            self.chain.quiet = True


@dataclass
class Tracebacks:
    """Reads a log's lines in order and tells of each whether it is quoted code, and in which chain.

    `chains` are those kept, and `told` counts all that were ever taken among them.
    """

    chains: list[Chain] = field(default_factory=list)
    told: int = 0
    _streams: dict[str, _Stream] = field(default_factory=dict)

    def waiting(self, offset: int) -> bool:
        """Whether every line from this byte on must be read; if not, those that match `TRIGGERS` suffice."""
        for name in [n for n, s in self._streams.items() if s.until <= offset]:
            del self._streams[name]
        return bool(self._streams)

    def forget(self) -> None:
        """The next line is read as if none had been before it."""
        self._streams.clear()

    def read(self, line: Line, before: bytes = b"") -> Seen:
        """Take in the next line. `before` is how the line before it begins, whoever wrote that."""
        self.waiting(line.offset)
        stream = self._streams.pop(line.stream, None) or _Stream()
        rest = _MARGIN.sub("", line.rest) if stream.group else line.rest
        if _HEADER.search(rest):
            seen = self._header(stream, line, before)
        elif line.record and stream.place is _Place.BODY:
            seen = Seen()  # another process's record between two lines of a traceback
        else:
            seen = _follow(stream, line, rest)
            if seen.chain is not None and seen.chain.first is line:
                self._keep(seen.chain)
        if stream.code or stream.place is not _Place.OUTSIDE:
            self._streams[line.stream] = stream
        if len(self._streams) > _STREAMS:
            del self._streams[next(iter(self._streams))]
        return seen

    def raised(self) -> Iterator[Raised]:
        """The first exception of every chain kept, in the log's order."""
        return (r for c in sorted(self.chains, key=lambda c: c.begins) if (r := c.raised()))

    def _keep(self, chain: Chain) -> None:
        """Keeps a chain whose exception was just read, if it matters and there is room."""
        self.chains = [kept for kept in self.chains if not kept.quiet]
        if not chain.quiet and len(self.chains) < KEPT:
            self.chains.append(chain)
            self.told += 1

    def _header(self, stream: _Stream, line: Line, before: bytes) -> Seen:
        """The chain goes on where it was joined; else a new one begins."""
        if stream.chain is None or stream.place is not _Place.JOINED:
            stream.chain = _begin(stream, line, before)
        stream.place, stream.code, stream.frame = _Place.BODY, True, ""
        stream.group = stream.group or _GROUP.search(line.rest) is not None
        return _take(stream, line, structure=True)


def _begin(stream: _Stream, line: Line, before: bytes) -> Chain:
    """A new chain. What its header does not say, the record or the chain that holds it does."""
    chain = Chain(begins=line.offset, ends=line.end, rank=line.rank, time=line.time, quiet=line.below_error)
    around: Line | Chain | None = stream.chain
    if stream.place is _Place.OUTSIDE:
        record = parse(clean(before).decode())
        around = record if record.stream == line.stream else None
    if around is not None:
        chain.rank = chain.rank or around.rank
        chain.time = around.time if chain.time is None else chain.time
    return chain


def _follow(stream: _Stream, line: Line, rest: str) -> Seen:
    """Any line but a header."""
    if line.record:
        stream.place, stream.group = _Place.OUTSIDE, False
    frame = _FRAME.match(rest)
    if frame or _CARETS.match(rest) or (stream.code and _indented(rest)):
        stream.code = True
        stream.frame = rest if frame else stream.frame
        return _take(stream, line, structure=True, quoted=True)
    match stream.place:
        case _Place.OUTSIDE:
            stream.code = line.warns
            return _take(stream, line, structure=line.warns)
        case _Place.BODY:
            if not _EXCEPTION.match(rest) or (line.below_error and not (stream.chain and stream.chain.quiet)):
                return Seen()  # a line of another process between two lines of a traceback
            stream.place, stream.code = _Place.TOLD, False
            return _told(stream, line, rest)
        case _Place.TOLD:
            stream.code = line.warns
            joins = _JOINT.match(rest) is not None
            stream.place = _Place.JOINED if joins else _Place.TOLD
            if not joins and not line.record:
                _announced(stream.chain, rest)
            return _take(stream, line, structure=joins)
        case _Place.JOINED:
            return _take(stream, line)
        case _:
            assert_never(stream.place)


def _told(stream: _Stream, line: Line, rest: str) -> Seen:
    """The exception's own line: the chain's first one is what was raised."""
    chain = stream.chain
    if chain is not None and chain.first is None:
        chain.first, chain.exception, chain.frame = line, rest.strip(), stream.frame
    return _take(stream, line, structure=True)


def _announced(chain: Chain | None, rest: str) -> None:
    """Takes what an exception's line has announced: without it, different failures would read the same."""
    if chain is None or chain.first is None or not _ANNOUNCES.search(chain.exception):
        return
    if rest.strip() and chain.more.count(_THEN) < _ANNOUNCED:
        chain.more += f"{_THEN}{rest.strip()}"


def _take(stream: _Stream, line: Line, *, structure: bool = False, quoted: bool = False) -> Seen:
    """Count the line to its chain; a line of structure keeps the stream waited for."""
    if structure:
        stream.until = line.end + _PATIENCE
    chain = None if stream.place is _Place.OUTSIDE else stream.chain
    if chain is not None and line.rest.strip():
        chain.ends = line.end
    return Seen(quoted=quoted, chain=chain)


def _indented(rest: str) -> bool:
    """Whether the line is indented as quoted code is; a C++ exception's message is not code."""
    return rest[:1] in (" ", "\t") and not _WHAT.match(rest)


def _own(frame: str) -> str:
    """` @ file.py:function` of a frame's line."""
    found = _FRAME.match(frame)
    if found is None:
        return ""
    function = found["function"] or found["dumped"] or ""
    return f" @ {found['file'].rpartition('/')[2]}:{function.strip()}"
