"""Text to tokens and back, and the choice of the next token."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ALPHABET = " abcdefghijklmnopqrstuvwxyz.,?!-"
FREQUENCY_PENALTY = 0.4
"""Logits taken off per earlier use of a token: a greedy choice alone soon repeats itself."""


def encode(text: str) -> list[int]:
    """One token a character; characters that the alphabet lacks are folded onto it."""
    return [ALPHABET.find(c) if c in ALPHABET else ord(c) % len(ALPHABET) for c in text.lower()]


def decode(ids: Sequence[int]) -> str:
    """The text of these tokens."""
    return "".join(ALPHABET[i] for i in ids)


def choose(logits: Sequence[float], used: Sequence[int]) -> int:
    """The likeliest token after the frequency penalty; the first of equals."""
    count = Counter(used)
    return max(range(len(logits)), key=lambda token: logits[token] - FREQUENCY_PENALTY * count[token])
