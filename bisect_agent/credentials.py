"""What looks like a secret, wherever it stands: the one list of shapes. Pure.

A shape is enough where nobody else's texts have it: the tokens of model hubs and clouds, what follows
`Bearer` or `api_key=`, the password in a URL. Names of classes, hashes, identifiers and numbers of versions
have none of these shapes, so a log that holds no secret has nothing to hide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import re2

LONGEST = 16 * 1024
"""The most bytes of a secret, with what tells that it is one; whatever is longer is data."""

TOKEN = (
    rb"(?:hf|gh[opsur])_[0-9A-Za-z]{30,}"
    rb"|(?:AKIA|ASIA)[0-9A-Z]{16}"
    rb"|AIza[\w-]{35}"
    rb"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*"
    rb"|(?:github_pat_|glpat-|nvapi-|sk-|xox[abeoprs]-)[\w-]{20,}"
)
"""Tokens that are known by how they begin. A pattern of both engines; no letter or digit may stand before."""
BEFORE = 2
"""The bytes before a token that tell whether it is one."""
HINT = rb"hf_|gh[opsur]_|AKIA|ASIA|AIza|eyJ|github_pat_|glpat-|nvapi-|sk-|xox"
"""What every such token has; most lines have none of it."""

_VALUE = rb"[\w.~+/-]{8,}=*"
_SHAPES = re2.compile(
    rb"(?:\A|[^0-9A-Za-z]|[\d;\[]m|\\[nrt])(" + TOKEN + rb")"  # behind a colour, too, or an escaped line end
    rb"|\b[Bb]earer[ \t]+(" + _VALUE + rb")"
    rb"|[Aa]uthorization['\"]?[:=] ?['\"]?(?:Basic|Token|Key) (" + _VALUE + rb")"
    rb"|(?i:api[_-]?key|passw(?:or)?d|secret(?:[_-](?:access[_-])?key)?|(?:access|api|auth|hf|refresh)[_-]token)"
    rb"['\"]?[ ]?[:=][ ]?['\"]?(" + _VALUE + rb")(?:[^\w(\[.~+/=-]|\z)"
    rb"|://[^\s/?#@:'\"<>]*:([^\s/?#@'\"<>]+)@[\w\[]"
)
_PASSWORD = 5
"""The number of the group that is a URL's; every group is one kind of secret."""
_PLACEHOLDER = re.compile(rb"[$%{*].*|\d{1,5}", re.DOTALL)
"""What stands for a password in a URL, or is a port."""
_RANDOM = re.compile(rb"\d|[a-z][A-Z]")
"""What a token has, and a word has not."""


def spans(data: bytes) -> Iterator[tuple[int, int]]:
    """Where something in the data looks like a secret: begin and end of each, in their order."""
    for found in _SHAPES.finditer(data):
        group = next(number for number in range(1, _PASSWORD + 1) if found[number] is not None)
        if found.end() - found.start() <= LONGEST and _is_one(group, found[group]):
            yield found.span(group)


def _is_one(group: int, value: bytes) -> bool:
    if group == _PASSWORD:
        return _PLACEHOLDER.fullmatch(value) is None
    return _RANDOM.search(value) is not None


def looks_like_one(text: str) -> bool:
    """Whether there is something in a text that looks like a secret."""
    return next(spans(text.encode(errors="surrogateescape")), None) is not None
