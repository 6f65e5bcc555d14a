"""What is masked, and how: the same number of bytes, so that every offset stays true. Pure."""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 4
"""A shorter value is not masked: it would star out half of an honest log."""


def encode(text: str) -> bytes:
    """The bytes of a text, those of an environment that are no UTF-8 too."""
    return text.encode(errors="surrogateescape")


class Masker:
    """Masks values in a stream of bytes, also where a value is cut by the end of a chunk."""

    def __init__(self, values: Iterable[str]) -> None:
        encoded = {encode(value) for value in values if len(value) >= SHORTEST}
        self._values = sorted(encoded, key=len, reverse=True)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that can be shown now: all but an end that may be the beginning of a value."""
        masked = self._mask(self._held + data)
        keep = self._open_end(masked)
        self._held = masked[len(masked) - keep :]
        return masked[: len(masked) - keep]

    def finish(self) -> bytes:
        """The bytes held back, when no more come."""
        held, self._held = self._held, b""
        return held

    def mask(self, text: str) -> str:
        """A whole text, masked."""
        return self._mask(encode(text)).decode(errors="surrogateescape")

    def _mask(self, data: bytes) -> bytes:
        for value in self._values:
            data = data.replace(value, b"*" * len(value))
        return data

    def _open_end(self, data: bytes) -> int:
        """The length of the longest end of `data` that begins a value."""
        longest = max((len(value) - 1 for value in self._values), default=0)
        ends = range(min(longest, len(data)), 0, -1)
        return next((n for n in ends if any(v.startswith(data[-n:]) for v in self._values)), 0)
