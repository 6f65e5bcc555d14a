"""One line of a log: what its prefix says, and how it is shown, masked and cleaned.

Inference stacks put different things before a line: a time, a rank, a process, a container, a level.
They nest in any order, so prefixes are taken off one after the other until none is left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

SHOWN = 400
"""The most characters of a line that are kept as evidence."""

_ELLIPSIS = "…"

_ANSI = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor moves
    rb"|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?"  # titles and links
    rb"|[ -/]*[0-~])"  # the rest
)

_LEVELS = {
    "V": "DEBUG",
    "D": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
    "C": "CRITICAL",
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
}
_BELOW_ERROR = frozenset({"DEBUG", "INFO", "WARNING"})

_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_DAY = r"\d{4}-\d\d-\d\d"
_TRT = r"\[(?P<level>[VDIWEFC])\]"
_TAGS = r"(?: \[[\w/.:-]{1,40}\])*"
_WORDS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"

# `who` is written before every line of its writer, `record` only before the first line of a message.
# Stamps without a year (vLLM, torch) are taken off but not read: they name no moment.
_PREFIXES = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"(?P<who>[A-Za-z][\w.-]{0,80}) {2,40}\| ?",  # docker compose
        r"\((?P<who>[A-Za-z_][\w.:-]{0,80})(?: rank=\d+)? pid=\d+(?:, ip=[\da-fA-F.:]+)?\) ?",  # vLLM, Ray
        r"\[(?P<who>rank\d+)\]: ?",  # torchrun
        r"(?P<who>[A-Za-z][\w.-]{0,80}):\d+:\d+ \[(?P<device>\d{1,4})\] (?=(?:\S{1,120}:\d+ )?NCCL )",  # NCCL
        rf"\[(?P<record>{_DAY} {_TIME})(?P<rank>(?: [A-Z]{{2,4}}\d+)*)\] ?",  # sglang
        rf"(?P<record>{_DAY} {_TIME})(?![\d:]) ?",  # Python's logging
        rf"(?P<stamp>{_DAY}T{_TIME})Z (?: (?=(?:INFO|WARN) ))?",  # kubectl, docker with times, TGI
        rf"\[(?P<record>\d\d/\d\d/\d{{4}}-{_TIME})\] \[TRT-LLM\](?: \[(?P<rank>RANK \d+)\])? {_TRT} ?",
        rf"\[TensorRT-LLM\]\[(?P<level>{_WORDS})\] ?",  # the same, from C++
        rf"(?P<level>{_WORDS}) \d\d-\d\d {_TIME} \[[^\]\s]{{1,120}}\] ?",  # vLLM
        rf"\[?(?P<level>[VDIWEFC])\d{{4}} {_TIME}(?: {{1,8}}\d+)? [^\]\s]{{1,200}}:\d+\]{_TAGS} ?",  # torch
    )
)
_NESTED = 8

_LEVEL_WORD = re.compile(
    rf"(?:- )?(?:[\w.]{{1,80}} - |NCCL (?=INFO))?(?P<level>{_WORDS})(?=[:\s])",  # an error is a WARN to NCCL
    re.ASCII,
)
_JSON_LEVEL = re.compile(r'"(?:level|levelname|severity|lvl)" ?: ?"(?P<level>[A-Za-z]{4,8})"', re.ASCII)
_WARNING = re.compile(r"\b[A-Z]\w*Warning: ", re.ASCII)

_PATH = re.compile(r"(?<![\w./])/[\w.+@~%-]+(?:/[\w.+@~%-]+)*/?", re.ASCII)
_NUMBER = re.compile(
    r"\b0[xX][0-9a-fA-F]+\b"
    r"|\b(?=[0-9a-f-]*\d)(?=[0-9-]*[a-f])[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b"  # identifiers in hexadecimal
    r"|(?<![A-Za-z_\d])\d+(?:[.,:]\d+)*(?:[eE][+-]?\d+)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Line:
    """A line taken apart.

    `rest` is what follows the prefix, with its indentation. `stream` names the writer where every
    line of the writer carries its name; `record` says that a stamp begins a message of one or more
    lines. `number`, `offset` and `end` are the line's place in the log.
    """

    text: str
    rest: str
    number: int
    offset: int
    end: int
    stream: str = ""
    record: bool = False
    rank: str | None = None
    time: float | None = None
    level: str | None = None

    @property
    def below_error(self) -> bool:
        """Whether the writer itself says that this is less than an error."""
        return self.level in _BELOW_ERROR

    @property
    def warns(self) -> bool:
        """Whether this is a warning of Python's `warnings`, which quotes its own source line."""
        return _WARNING.search(self.rest) is not None


def parse(text: str, *, number: int = 1, offset: int = 0, end: int = 0) -> Line:
    """Take the prefixes off a line.

    The rank is what the innermost prefix names; where a container or a host wraps it, both.
    """
    at = 0
    who: list[str] = []
    writer = ""
    rank = stamp = level = None
    record = False
    for _ in range(_NESTED):
        found = next((m for p in _PREFIXES if (m := p.match(text, at))), None)
        if found is None:
            break
        at = found.end()
        said = found.groupdict()
        if name := said.get("who"):
            who.append(name)
            writer += found[0].rstrip()
        rank = (said.get("rank") or "").strip() or rank
        if device := said.get("device"):
            rank = f"GPU{device}"
        stamp = said.get("record") or said.get("stamp") or stamp
        record = record or "record" in said
        level = said.get("level") or level
    rest = text[at:]
    if level is None and (word := _LEVEL_WORD.match(rest)):
        level = word["level"]
    if level is None and _WARNING.search(rest):
        level = "WARNING"
    if level is None and rest.startswith("{") and (word := _JSON_LEVEL.search(rest)):
        level = word["level"].upper()
    return Line(
        text=text,
        rest=rest,
        number=number,
        offset=offset,
        end=end,
        stream=writer,
        record=record,
        rank="/".join([*who, rank] if rank else who) or None,
        time=_seconds(stamp),
        level=_LEVELS.get(level, level) if level else None,
    )


def _seconds(stamp: str | None) -> float | None:
    """Seconds since the epoch, reading the stamp as UTC; None for no stamp or an impossible one."""
    if stamp is None:
        return None
    try:
        return datetime.fromisoformat(stamp.replace(",", ".")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def clean(raw: bytes) -> bytes:
    r"""Bytes of a log as patterns see them: no ANSI sequences, `\r` as `\n`, valid UTF-8.

    Cleaning pieces that end at `\r` or `\n` and joining them is the same as cleaning the whole: no
    ANSI sequence and no character reaches across those bytes. Broken bytes become U+FFFD, so that
    they cannot hide a line from a pattern with a dot in it.
    """
    if b"\x1b" in raw:
        raw = _ANSI.sub(b"", raw)
    if b"\r" in raw:
        raw = raw.replace(b"\r", b"\n")
    return raw if raw.isascii() else raw.decode("utf-8", "replace").encode()


def printable(text: bytes | str) -> str:
    r"""Log text that is safe to show, as one line.

    Control characters, ANSI sequences, line breaks, characters that reorder or hide text, and broken
    UTF-8 are written as escapes (`\x1b`, `\u202e`); tabs stay.
    """
    shown = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    if shown.isprintable():
        return shown
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in shown
    )


def excerpt(text: str, around: int = 0) -> str:
    """At most `SHOWN` characters of a line, printable, with the character at index `around` among them."""
    if len(text) > SHOWN:
        begin = max(0, min(around - SHOWN // 4, len(text) - SHOWN))
        end = begin + SHOWN
        text = (
            (_ELLIPSIS if begin else "")
            + text[begin + bool(begin) : end - (end < len(text))]
            + (_ELLIPSIS if end < len(text) else "")
        )
    return shorten(printable(text))


def shorten(text: str) -> str:
    """At most `SHOWN` characters; an ellipsis tells that there were more."""
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + _ELLIPSIS


def mask(text: str) -> str:
    """The text without what differs from run to run: absolute paths, numbers, addresses, identifiers.

    A digit after a letter stays (`sm_120`, `float32`): it names a thing rather than counting one.
    """
    return _NUMBER.sub("#", _PATH.sub("<path>", text))
