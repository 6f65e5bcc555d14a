"""What is masked, and how: the same number of bytes, so that every offset stays true. Pure.

Masked are the values that are known to be secret, also as JSON, Python and URLs write them, and whatever
looks like a secret. A secret of several lines is masked line by line: their numbers stay true as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Literal, TypeVar, cast, get_origin

from pydantic import BaseModel

from bisect_agent.credentials import BEFORE, LONGEST, spans

SHORTEST = 4
"""A shorter value is not masked: it would star out half of an honest log."""

_TOKEN_BEGUN = re.compile(rb"(?:hf|gh[opsur])_[0-9A-Za-z]{6,}\Z|(?:sk|nvapi|glpat|xox[abeoprs])-[\w-]{6,}\Z")
"""How a text ends that was cut in the middle of a token."""
_END = 512
"""How far from its end a text is looked at for that, in bytes."""
_NESTED = 4
"""How deep secrets are found in what another one, or a URL, is made of."""
_LINE = 8
"""A shorter line of a secret of several lines is not masked: many a text has it."""
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_CUT_THERE = frozenset({"body", "command", "name", "python"})
"""Texts of a target that it may have cut anywhere."""
_WAYS = frozenset({"ended", "folder", "good", "paths"})
"""By these names a run finds its way again: they are ours."""
_BREAK = re.compile(rb"[\r\n]+")

Said = TypeVar("Said")
Event = TypeVar("Event", bound=BaseModel)


def encode(text: str) -> bytes:
    """The bytes of a text, those of an environment that are no UTF-8 too."""
    return text.encode(errors="surrogateescape")


class Masker:
    """Masks secrets in texts, and in a stream of bytes, also where one is cut by the end of a chunk.

    Args:
        values: what is known to be secret.
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value) if len(form) >= SHORTEST}
        self._values = sorted(forms, key=lambda form: (-len(form), form))
        self._most = max([LONGEST, *map(len, forms)])
        self._before = b""
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that can be shown now: whole lines, and of a long line all but its end.

        No secret goes on behind the end of a line, and none that begins before a long line's end is still
        to be completed.
        """
        text = self._before + self._known(self._held + data)
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if end < len(text) - self._most:
            end = len(text) - self._most
            end = next((begin for begin, until in spans(text) if begin < end < until), end)
        end = max(end, len(self._before))
        shown, self._held = text[:end], text[end:]
        masked = self._mask(shown)[len(self._before) :]
        self._before = shown[-BEFORE:]
        return masked

    def finish(self) -> bytes:
        """The bytes held back, when no more come."""
        held, self._held = self._held, b""
        return self._mask(self._before + held)[len(self._before) :]

    def mask(self, text: str) -> str:
        """A whole text, masked."""
        return self._mask(encode(text)).decode(errors="surrogateescape")

    def cut(self, text: str) -> str:
        """A text that may have been cut: an end of it that begins a secret is masked as well."""
        data = self._mask(encode(text))
        cut = _TOKEN_BEGUN.search(data, max(0, len(data) - _END))
        begun = max(self._begun(data), len(cut[0]) if cut else 0)
        shown = len(data) - (begun if begun >= SHORTEST else 0)
        return (data[:shown] + b"*" * (len(data) - shown)).decode(errors="surrogateescape")

    def said(self, value: Said) -> Said:
        """What others have said, masked in every text of it; words of ours and keys stay."""
        return cast("Said", self._said(value))

    def fields(self, event: Event, names: Iterable[str]) -> Event:
        """A value with some of its fields masked."""
        return event.model_copy(update={name: self.said(getattr(event, name)) for name in names})

    def _said(self, value: object) -> object:
        match value:
            case Enum():
                return value
            case str():
                return self.mask(value)
            case BaseModel():
                return value.model_copy(update=dict(self._fields(value)))
            case tuple():
                return tuple(map(self._said, value))
            case Mapping():
                return {key: self._said(inner) for key, inner in value.items()}
            case _:
                return value

    def _fields(self, value: BaseModel) -> Iterator[tuple[str, object]]:
        for name, field in type(value).model_fields.items():
            inner: object = getattr(value, name)
            if name in _CUT_THERE and isinstance(inner, str):
                yield name, self.cut(inner)
            elif name not in _WAYS and get_origin(field.annotation) is not Literal:
                yield name, self._said(inner)

    def _known(self, data: bytes) -> bytes:
        for value in self._values:
            data = data.replace(value, b"*" * len(value))
        return data

    def _mask(self, data: bytes) -> bytes:
        """Looks again where something was found: a secret may be one only without what it stood in."""
        for _ in range(_NESTED):
            masked = bytearray(self._known(data))
            for begin, end in spans(bytes(masked)):
                masked[begin:end] = b"*" * (end - begin)
            if masked == data:
                break
            data = bytes(masked)
        return data

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end of `data` are the beginning of a value."""
        longest = max(map(len, self._values), default=0)
        ends = (data[-n:] for n in range(min(longest, len(data)), 0, -1))
        return next((len(end) for end in ends if any(value.startswith(end) for value in self._values)), 0)


def _forms(value: str) -> Iterator[bytes]:
    """How a value may be printed: line by line, and as JSON, Python and URLs write it."""
    data = encode(value)
    lines = _BREAK.split(data)
    yield from lines if len(lines) == 1 else (line for line in lines if len(line.strip()) >= _LINE)
    escaped = (json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value), repr(data)[1:])
    yield from (encode(form[1:-1]) for form in escaped)
    yield b"".join(bytes([byte]) if byte in _PLAIN else b"%%%02X" % byte for byte in data)
