r"""Reads a log's bytes as they arrive and tells which of the playbook's patterns each line matches.

A line ends at `\n`. Parts of a line separated by `\r` (progress bars) are matched one by one; all have
the line's number. A line longer than 64 KiB is matched in windows of that size which overlap by 4 KiB,
so memory stays bounded and a match shorter than the overlap is found wherever it stands.

Most lines of a log match nothing. One set of all patterns, loosened so that it matches wherever one of
them could, is run over chunks of many lines; only where it hits are lines looked at one at a time.

A log can be read in parts: a `Place` is one from which reading goes on exactly as it would have, had all
before it been read. After at most `FOLLOWED` bytes there is another one, whatever the log holds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import re2

from bisect_agent.lines import SHOWN, Line, clean, excerpt, parse, printable
from bisect_agent.model import (
    ArgumentWitness,
    HttpWitness,
    LastLine,
    LogWitness,
    Match,
    MatchKind,
    Playbook,
    Reading,
    Role,
)
from bisect_agent.tracebacks import TRIGGERS, Seen, Tracebacks

__all__ = ["News", "Place", "Scanner", "Watch", "check_pattern", "printable", "watches"]

WINDOW = 64 * 1024
OVERLAP = 4 * 1024
FOLLOWED = 1024 * 1024
"""Bytes that lines before a line can matter for it: a traceback that goes on for longer is forgotten."""
_CHUNK = 16 * 1024
_ASKED = 8  # lines of a chunk that are asked for progress before all are read
_SPACING = 8 * 1024  # bytes between two places that are told
_KEPT_EACH = 4  # matches kept per pattern and rank: the first ones are the evidence
_KEPT_ALL = 4096  # matches kept in all, however many ranks a log claims to have
_BEFORE = 512  # bytes kept of the line before, for its prefix
_WEIGHTY = frozenset({Role.ROOT, Role.INFRA})  # roles that no record below an error can have
_CUT = "…"  # stands at a window's edge, so that `^` and `$` do not match there


@dataclass(frozen=True)
class Watch:
    """A pattern to look for, and what a line that matches it would be."""

    kind: MatchKind
    id: str
    pattern: str
    role: Role | None = None


def watches(playbook: Playbook) -> tuple[Watch, ...]:
    """Every pattern of a playbook, its own signatures first."""
    signatures = (*playbook.observe.signatures, *playbook.signatures)
    return (
        *(Watch(MatchKind.SIGNATURE, s.id, s.pattern, s.role) for s in signatures),
        *_marks(MatchKind.READY, playbook.observe.ready_log),
        *_marks(MatchKind.DONE, playbook.observe.done),
        *(Watch(MatchKind.PHASE, p.name, p.begin) for p in playbook.observe.phases),
        *_progress(playbook),
        *_witnesses(playbook),
        *(Watch(MatchKind.CONTRADICTION, h.id, p) for h in playbook.hypotheses for p in h.contradicted_by),
    )


def _marks(kind: MatchKind, pattern: str | None) -> Iterator[Watch]:
    if pattern is not None:
        yield Watch(kind, str(kind), pattern)


def _progress(playbook: Playbook) -> Iterator[Watch]:
    for phase in playbook.observe.phases:
        if phase.progress is not None:
            yield Watch(MatchKind.PROGRESS, phase.name, phase.progress, Role.PROGRESS)


def _witnesses(playbook: Playbook) -> Iterator[Watch]:
    """A pattern for every level of every factor whose witness is in the log.

    A level with nothing to fill in (a variable that is unset, no flags) gets none: without its text
    the pattern would match the lines of the other levels.
    """
    for factor in playbook.factors:
        match factor.witness:
            case LogWitness(log=template):
                values = {level: factor.value(level) for level in factor.levels}
                patterns = {
                    level: _filled(_filled(template, "{level}", level), "{value}", value)
                    for level, value in values.items()
                    if value or "{value}" not in template
                }
            case ArgumentWitness(patterns=given):
                patterns = dict(given)
                for level, pattern in factor.witness.denied.items():
                    yield Watch(MatchKind.DENIAL, f"{factor.name}={level}", pattern)
            case HttpWitness() | None:
                continue
        for level, pattern in patterns.items():
            yield Watch(MatchKind.WITNESS, f"{factor.name}={level}", pattern)


def _filled(template: str, place: str, text: str) -> str:
    r"""The template with a text in its place, escaped.

    At an end of the template a word's edge is asked for, so that `1` is not seen in `16`.
    """
    escaped = re2.escape(text)
    if template.endswith(place) and text[-1:].isalnum():
        template = template + r"\b"
    if template.startswith(place) and text[:1].isalnum():
        template = r"\b" + template
    return template.replace(place, escaped)


# --- patterns ---------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)"  # quoted text
    r"|\\."  # an escape
    r"|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]])*\]"  # a class
    r"|.",
    re.DOTALL,
)
_UNSET_MULTILINE = re.compile(r"\(\?[a-zA-Z]*-[a-zA-Z]*m")

_REMEDIES = {
    r"\A": "write ^, which is the start of a line",
    r"\z": "write $, which is the end of a line",
    r"\C": "write a dot",
    "(?=": "RE2 has no look-around: match the text around it too",
    "(?!": "RE2 has no look-around: name the lines that do match, or list the others under `ignore`",
    "(?<": "RE2 has no look-around; a group is named (?P<name>...)",
    r"\Z": "write $, which is the end of a line",
    r"\1": "RE2 has no back-references: write the text again",
    "(?P=": "RE2 has no back-references: write the text again",
}


def check_pattern(pattern: str) -> str | None:
    """What is wrong with a pattern and what to write instead; None if nothing is."""
    tokens = [t[0] for t in _TOKEN.finditer(pattern)]
    for token in (r"\A", r"\z", r"\C"):
        if token in tokens:
            return f"{token} cannot be used, patterns are matched line by line; {_REMEDIES[token]}"
    if _UNSET_MULTILINE.search("".join(t for t in tokens if len(t) == 1)):
        return "(?-m) cannot be used, patterns are matched line by line; leave it out"
    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        return _explained(pattern, error)
    if compiled.search("") is not None:
        return "it matches the empty string, so every line; write what must be there, for example .+ for .*"
    return None


def _explained(pattern: str, error: re2.error) -> str:
    reason = error.args[0]
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    remedy = next((r for token, r in _REMEDIES.items() if token in pattern), "see the syntax of RE2")
    return f"not a pattern of RE2: {printable(text)}; {remedy}"


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 64 << 20
    return options


@lru_cache(maxsize=4)
def _pattern_sets(patterns: tuple[str, ...]) -> tuple[re2.Set, re2.Set]:
    """For a line, and for a chunk of lines; each attempt of a run, and each reading again, uses the same."""
    return _pattern_set(patterns), _pattern_set((*map(_loosened, patterns), *TRIGGERS))


def _pattern_set(patterns: Sequence[str]) -> re2.Set:
    """One set of all patterns."""
    made = re2.Set.SearchSet(_options())
    for pattern in patterns:
        made.Add(pattern)
    made.Compile()
    return made


def _loosened(pattern: str) -> str:
    r"""A pattern that matches in a chunk of lines wherever `pattern` would in one of its lines.

    A line is matched twice, whole and after its prefix; the rest after a prefix is a suffix of the line.
    So a match in a line is a match at the same place of the chunk, if what a pattern asserts about its
    place holds there too: `$` does by (?m); `\b` and `\B` do, since the line break, the start of the
    text and the last character of a prefix are all no part of a word; `^` need not (after a prefix),
    so it is taken out, and dropping an assertion can only add matches. What else could tell the end
    of the text from the end of a line, `check_pattern` refuses.
    """
    tokens = ("(?:)" if t[0] == "^" else t[0] for t in _TOKEN.finditer(pattern))
    return "(?m)" + "".join(tokens)


# --- lines ------------------------------------------------------------------------------------------

_SEGMENT = re.compile(rb"([^\r\n]*)([\r\n])")


@dataclass
class _Long:
    """The line longer than a window that is being read: what its start said, and what it matched."""

    line: Line
    seen: Seen
    matched: set[tuple[MatchKind, str]] = field(default_factory=set)


@dataclass(frozen=True)
class Place:
    """A place from which a log can be read on: nothing before it says how to read what follows.

    `newlines` counts those before it. `inside`: it is a window of a line longer than one, and that
    line's first window must have been read.
    """

    offset: int
    newlines: int
    inside: bool = False

    @property
    def end(self) -> int:
        """Where reading can end, so that all before this place was read: windows overlap."""
        return self.offset + OVERLAP if self.inside else self.offset


@dataclass(frozen=True)
class News:
    """What a scanner has come by: places, where something that it keeps was met, and its last line."""

    places: list[Place]
    notes: list[int]
    last: int


class Scanner:
    """Matches a log's lines as its bytes arrive. However they are split, the matches are the same.

    Of progress, one line of each kind is told where many come at once: nobody asks how many there were.
    `ignore` are patterns of lines that match nothing. Every pattern must have passed `check_pattern`.
    """

    def __init__(self, watches: Sequence[Watch], ignore: Sequence[str] = ()) -> None:
        self._watches = tuple(watches)
        self._exact, self._loose = _pattern_sets((*(w.pattern for w in self._watches), *ignore))
        self._passing = frozenset((w.kind, w.id) for w in self._watches if w.role is Role.PROGRESS)
        self._progress = frozenset(i for i, w in enumerate(self._watches) if w.role is Role.PROGRESS)
        self._hints = frozenset(i for i, w in enumerate(self._watches) if w.role is Role.HINT)
        self._tracebacks = Tracebacks()
        self._pending = bytearray()
        self._offset = 0  # of the first pending byte
        self._newlines = 0  # before the first pending byte
        self._before = b""  # how the last line that was not empty began
        self._last = (0, 0)  # that line's number and offset
        self._alone = True  # that line says nothing about the next one
        self._rested = 0  # the last place at the beginning of a line
        self._places: list[Place] = []
        self._spaced = Place(0, 0)  # the last one told
        self._notes: list[int] = []
        self._long: _Long | None = None
        self._kept: list[Match] = []
        self._counts: Counter[tuple[MatchKind, str, str | None]] = Counter()

    def feed(self, data: bytes) -> list[Match]:
        """The matches on the lines that these bytes complete."""
        self._pending += data
        found: list[Match] = []
        at = 0
        while (end := self._next(at)) is not None:
            raw = bytes(self._pending[at:end])
            offset = self._offset + at
            if raw.endswith((b"\n", b"\r")) and self._long is None:
                found += self._chunk(raw, offset)
                at = end
            elif raw.endswith((b"\n", b"\r")):
                found += self._window(raw[:-1], offset, last=True)
                self._newlines += raw.endswith(b"\n")
                at = end
            else:
                found += self._window(raw, offset, last=False)
                at = end - OVERLAP
        del self._pending[:at]
        self._offset += at
        return found

    def finish(self) -> list[Match]:
        """The matches on the last line, which no line break ended. Nothing may be fed afterwards."""
        raw = bytes(self._pending)
        if self._long is None:
            return self._line(raw, self._offset)
        return self._window(raw, self._offset, last=True)

    def skip(self, place: Place) -> None:
        """Goes on at a later place; what was fed must have reached to the end of an earlier one."""
        if self._pending:
            self._window(bytes(self._pending), self._offset, last=False)
            self._pending.clear()
        self._offset, self._newlines = place.offset, place.newlines
        if not place.inside:
            self._long = None
            self._forget()
            self._rested = place.offset

    def news(self) -> News:
        """What came since the last call."""
        news = News(self._places, self._notes, self._last[1])
        self._places, self._notes = [], []
        return news

    def reading(self) -> Reading:
        """All that was kept of the log so far; an unterminated last line counts as a line."""
        return Reading(
            size=self._offset + len(self._pending),
            lines=self._newlines + bool(self._pending),
            last=self._last_line(),
            matches=tuple(self._kept),
            raised=tuple(self._tracebacks.raised()),
        )

    def _last_line(self) -> LastLine | None:
        number, offset = self._last
        return (
            LastLine(line=number, offset=offset, text=excerpt(clean(self._before).decode()))
            if number
            else None
        )

    def _note(self, raw: bytes, number: int, offset: int) -> None:
        """Remembers a line that is not empty as the last one."""
        self._before, self._last, self._alone = raw[:_BEFORE], (number, offset), False

    def _context(self) -> bytes:
        """How the line before begins, if it says something about this one."""
        return b"" if self._alone else self._before

    def _forget(self) -> None:
        """The next line is read as if none had been before it."""
        self._tracebacks.forget()
        self._alone = True

    def _enter(self, offset: int) -> bool:
        """Begins a line that is not empty; whether no traceback is open there."""
        if offset - self._rested > FOLLOWED:
            self._forget()
        return not self._tracebacks.waiting(offset)

    def _rest(self, offset: int, newlines: int) -> None:
        """A line that needs none before it, and after which none is needed, begins here."""
        self._rested = offset
        self._tell(Place(offset, newlines))

    def _tell(self, place: Place) -> None:
        """Tells a place, unless one was told just before; every long line's own beginning is told."""
        last = self._spaced
        if last.inside or place.inside or place.offset - last.offset >= _SPACING:
            self._places.append(place)
            self._spaced = place

    def _next(self, at: int) -> int | None:
        """Where the next piece ends: lines up to a chunk, a longer line, or a window without an end.

        None if more bytes are needed to tell.
        """
        pending = self._pending
        if self._long is None:
            limit = at + _CHUNK
            end = 1 + max(pending.rfind(b"\n", at, limit), pending.rfind(b"\r", at, limit))
            if end:
                return end
        breaks = [pending.find(b, at, at + WINDOW + 1) for b in (b"\n", b"\r")]
        if ends := [b + 1 for b in breaks if b >= 0]:
            return min(ends)
        return at + WINDOW if len(pending) - at > WINDOW else None

    def _chunk(self, raw: bytes, offset: int) -> list[Match]:
        """Whole lines. Where no pattern can match and no traceback is open, none is looked at.

        Where nothing but progress can be, the last lines are enough if they show it.
        """
        if not self._tracebacks.waiting(offset):
            possible = frozenset(self._loose.Match(clean(raw)) or ())
            told = self._told(raw, offset, possible) if possible <= self._progress else None
            if told is not None:
                self._pass(raw, offset)
                return told
        found: list[Match] = []
        for segment in _SEGMENT.finditer(raw):
            found += self._line(segment[1], offset + segment.start())
            self._newlines += segment[2] == b"\n"
        return found

    def _pass(self, raw: bytes, offset: int) -> None:
        """Goes past whole lines that nothing has to be noted of."""
        kept = raw.rstrip(b"\r\n")
        if kept:
            begin = 1 + max(kept.rfind(b"\n"), kept.rfind(b"\r"))
            newlines = self._newlines + kept.count(b"\n")
            self._note(kept[begin:], newlines + 1, offset + begin)
            self._rest(offset + begin, newlines)
        elif offset - self._rested > FOLLOWED:
            self._tell(Place(offset, self._newlines))
        self._newlines += raw.count(b"\n")

    def _told(self, raw: bytes, offset: int, possible: frozenset[int]) -> list[Match] | None:
        """The progress that the last of these lines tell of; None where that is not all there may be.

        The first line is not asked: how it is to be read depends on the one before it.
        """
        wanted = {(self._watches[hit].kind, self._watches[hit].id) for hit in possible}
        found: list[Match] = []
        matched: set[tuple[MatchKind, str]] = set()
        for segment in reversed(list(_SEGMENT.finditer(raw))[1:][-_ASKED:] if wanted else ()):
            if matched == wanted:
                break
            begin, number = segment.start(), self._newlines + raw.count(b"\n", 0, segment.start()) + 1
            text, end = clean(segment[1]).decode(), offset + segment.end(1)
            line = parse(text, number=number, offset=offset + begin, end=end)
            found += self._matches(line, Seen(), matched)
        return found[::-1] if matched == wanted else None

    def _line(self, raw: bytes, offset: int) -> list[Match]:
        """One line, or one part of a line with carriage returns."""
        if not raw:
            return []
        found: list[Match] = []
        text = clean(raw)
        free = self._enter(offset)
        if not free or self._loose.Match(text) is not None:
            line = parse(text.decode(), number=self._newlines + 1, offset=offset, end=offset + len(raw))
            found = self._keep(self._matches(line, self._read(line), set()), offset)
        self._leave(raw, offset, free=free)
        return found

    def _read(self, line: Line) -> Seen:
        """What the tracebacks say about a line."""
        told = self._tracebacks.told
        seen = self._tracebacks.read(line, self._context())
        if self._tracebacks.told > told:
            self._notes.append(line.offset)
        return seen

    def _leave(self, raw: bytes, offset: int, *, free: bool) -> None:
        """A line, or the first window of a long one, was read; `free`: no traceback was open before it."""
        if free and (self._alone or not self._tracebacks.waiting(offset)):
            self._rest(offset, self._newlines)
        self._note(raw, self._newlines + 1, offset)

    def _window(self, raw: bytes, offset: int, *, last: bool) -> list[Match]:
        """A window of a long line; the first one says what the line is."""
        text = clean(raw).decode() + ("" if last else _CUT)
        end = offset + len(raw)
        if self._long is None:
            free = self._enter(offset)
            line = parse(text, number=self._newlines + 1, offset=offset, end=end)
            self._long = _Long(line, self._read(line))
            self._leave(raw, offset, free=free)
        else:
            text = _CUT + text
            line = replace(self._long.line, text=text, rest=text)
            if not self._tracebacks.waiting(offset):
                self._tell(Place(offset, self._newlines, inside=True))
        found = self._keep(self._matches(line, self._long.seen, self._long.matched), offset)
        if last:
            self._long = None
            self._forget()
        return found

    def _matches(self, line: Line, seen: Seen, matched: set[tuple[MatchKind, str]]) -> list[Match]:
        """What a line matches, each id once; `matched` is what it matched in windows before."""
        hits = set(self._exact.Match(line.text) or ())
        if line.rest != line.text:
            hits.update(self._exact.Match(line.rest) or ())
        if any(hit >= len(self._watches) for hit in hits):
            seen.ignore(line)
            return []
        found: list[Match] = []
        for watch in (self._watches[hit] for hit in sorted(hits & self._hints or hits)):
            if (watch.kind, watch.id) not in matched and _counts(watch, line, seen):
                matched.add((watch.kind, watch.id))
                found.append(_match(watch, line, seen))
        return found

    def _keep(self, found: list[Match], offset: int) -> list[Match]:
        """Note the first matches of each pattern and rank; progress is told and not noted."""
        for match in found:
            key = (match.kind, match.id, match.rank)
            if (match.kind, match.id) in self._passing or len(self._kept) >= _KEPT_ALL:
                continue
            self._counts[key] += 1
            if self._counts[key] <= _KEPT_EACH:
                self._kept.append(match)
                self._notes.append(offset)
        return found


def _counts(watch: Watch, line: Line, seen: Seen) -> bool:
    """Whether a line can be what a pattern looks for: quoted code is but a hint, a warning is no root.

    Nor is it trouble of the machine: what its writer goes on after excuses nobody.
    """
    if watch.role is Role.HINT:
        return True
    return not seen.quoted and not (watch.role in _WEIGHTY and line.below_error)


def _match(watch: Watch, line: Line, seen: Seen) -> Match:
    """A match, with the rank and time of the traceback's chain where the line itself has none."""
    chain = seen.chain
    return Match(
        kind=watch.kind,
        id=watch.id,
        line=line.number,
        offset=line.offset,
        text=excerpt(line.text, _position(watch.pattern, line)),
        time=chain.time if line.time is None and chain else line.time,
        rank=chain.rank if line.rank is None and chain else line.rank,
    )


def _position(pattern: str, line: Line) -> int:
    """Where in the line the pattern matched; told for long lines only, short ones are shown whole."""
    if len(line.text) <= SHOWN:
        return 0
    regex = re2.compile(pattern, _options())
    whole, rest = regex.search(line.text), regex.search(line.rest)
    if whole is not None:
        return int(whole.start())
    return len(line.text) - len(line.rest) + int(rest.start())
