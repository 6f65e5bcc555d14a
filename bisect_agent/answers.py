"""Whether an answer is one: not empty, no NaN, not degenerate, and what the playbook expects. Pure.

A server can be up, healthy, and wrong. What is compared are the answer's own words or tokens (`text`,
`content`, `output_ids`, `token_ids`, wherever they stand in the JSON), not the ids and times around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import re2

from bisect_agent.model import HttpAnswer, HttpRequest, Serving

_KEYS = frozenset({"text", "content", "output_ids", "token_ids"})
_REPEATS = 8
"""So many equal words, tokens or characters in a row, and nothing else, are a degenerate answer."""


@dataclass(frozen=True)
class Complaint:
    """What is wrong with what a server answered."""

    id: str
    text: str


def complaint(serving: Serving, request: HttpRequest | None, good: str | None) -> Complaint | None:
    """What is wrong with a server that said it was ready; None when nothing is.

    `good` is the body that `good` answered to the same request, where it was asked.
    """
    if serving.listener == "nobody":
        return Complaint("nobody-listens", "ready by its log, but no process of ours listens on the port")
    if serving.health and (wrong := _status(serving.health, "the health check")):
        return wrong
    if request is None:
        return None
    if serving.request is None:
        return Complaint("not-asked", "the request was never sent")
    return _status(serving.request, f"the request {request.path}") or _content(serving.request, request, good)


def _status(answer: HttpAnswer, what: str) -> Complaint | None:
    if answer.status is None:
        return Complaint("no-answer", f"{what} was not answered: {answer.error}")
    if not 200 <= answer.status < 300:
        return Complaint(f"http-{answer.status}", f"{what} was answered with {answer.status}")
    return None


def _content(answer: HttpAnswer, request: HttpRequest, good: str | None) -> Complaint | None:
    body = answer.body
    if not any(_parts(body)):
        return Complaint("answer-empty", "the answer is empty")
    if _has_nan(body):
        return Complaint("answer-nan", "the answer holds NaN or infinity")
    if degenerate(body) and not (good and degenerate(good)):
        return Complaint("answer-degenerate", "the answer repeats one token and nothing else")
    if request.expect and not re2.search(request.expect, body):
        return Complaint("answer-unexpected", f"the answer does not match {request.expect}")
    if request.same_as_good and good is not None and _parts(body) != _parts(good):
        return Complaint("answer-differs", "the answer is not the one that `good` gave")
    return None


def degenerate(body: str) -> bool:
    """Whether every part of an answer is one word, token or character over and over."""
    parts = [part for part in _parts(body) if part]
    return bool(parts) and all(_repeats(part) for part in parts)


def _repeats(part: str | list[object]) -> bool:
    if isinstance(part, list):
        return len(part) >= _REPEATS and len({repr(token) for token in part}) == 1
    words = part.split()
    one_word = len(words) >= _REPEATS and len(set(words)) == 1
    one_character = len(part.strip()) >= _REPEATS and len(set(part.strip())) == 1
    return one_word or one_character


def _parts(body: str) -> list[str | list[object]]:
    """The words or tokens of an answer; the whole body where it is not JSON or names none."""
    try:
        found = list(_walk(json.loads(body)))
    except (ValueError, RecursionError):
        found = []
    return [p.strip() if isinstance(p, str) else p for p in found] or [body.strip()]


def _walk(value: object) -> Iterator[str | list[object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _KEYS and isinstance(inner, str | list) and not _nested(inner):
                yield inner
            else:
                yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)


def _nested(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value)


def _has_nan(body: str) -> bool:
    constants: list[str] = []
    try:
        json.loads(body, parse_constant=constants.append)
    except (ValueError, RecursionError):
        return re.search(r"(?i)\bnan\b", body) is not None
    return bool(constants)
