"""What counts as an answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.answers import complaint, degenerate
from bisect_agent.model import HttpAnswer, HttpRequest, Serving
from tests.strategies import FEW

HEALTHY = HttpAnswer(status=200)
ASKED = HttpRequest(path="/generate")
SAME = HttpRequest(path="/generate", same_as_good=True)
WORDS = st.text(st.characters(categories=["L"]), min_size=1, max_size=6)


def wrong(body: str, request: HttpRequest = ASKED, good: str | None = None, **more: object) -> str | None:
    """What is wrong with an answer, by its id."""
    answer = HttpAnswer(status=200, body=body)
    serving = Serving.model_validate({"listener": "ours", "health": HEALTHY, "request": answer, **more})
    found = complaint(serving, request, good)
    return found.id if found else None


@pytest.mark.parametrize(
    "body",
    [
        '{"text": "because"}',
        "because",
        '{"choices": [{"message": {"content": "because"}}]}',
        '{"output_ids": [1, 2]}',
    ],
)
def test_an_answer_is_an_answer(body: str) -> None:
    """Whichever server's form it has, JSON or not."""
    assert None is wrong(body)


@pytest.mark.parametrize(
    "body", ["", " \n", '{"text": ""}', '{"output_ids": []}', '{"choices": [{"message": {"content": " "}}]}']
)
def test_an_empty_answer_is_none(body: str) -> None:
    """200 and a body are not enough."""
    assert "answer-empty" == wrong(body)


@pytest.mark.parametrize(
    "body", ['{"text": "a", "logprob": NaN}', '{"text": "a", "x": [-Infinity]}', "1.0 nan 2.0"]
)
def test_nan_and_infinity_are_no_numbers(body: str) -> None:
    """A model that overflows answers all the same."""
    assert "answer-nan" == wrong(body)


def test_a_word_that_holds_nan_is_a_word() -> None:
    """A text may speak of Nancy, or of NaN."""
    assert [None, None] == [wrong('{"text": "Nancy says NaN"}'), wrong("Nancy")]


@FEW
@given(st.sampled_from("!a0"), st.integers(8, 40))
def test_one_token_over_and_over_is_degenerate(token: str, times: int) -> None:
    """As characters, as words, as token ids."""
    bodies = [
        json.dumps({"text": token * times}),
        " ".join([token * 3] * times),
        json.dumps({"output_ids": [7] * times}),
    ]
    assert ["answer-degenerate"] * 3 == [wrong(body) for body in bodies]


@FEW
@given(st.lists(WORDS, min_size=2, max_size=12, unique=True))
def test_different_words_are_not_degenerate(words: list[str]) -> None:
    """However short they are."""
    assert not degenerate(json.dumps({"text": " ".join(words)}))


def test_a_degenerate_answer_passes_where_good_gives_one_too() -> None:
    """Some prompts are answered so."""
    body = '{"text": "!!!!!!!!!!"}'
    assert None is wrong(body, good='{"text": "??????????"}')


def test_only_the_words_are_compared_with_those_of_good() -> None:
    """Ids and times differ between any two answers."""
    good = '{"text": "because", "id": 1, "latency": 0.5}'
    assert None is wrong('{"id": 2, "latency": 0.7, "text": "because"}', SAME, good)
    assert "answer-differs" == wrong('{"text": "no", "id": 1, "latency": 0.5}', SAME, good)


def test_before_good_has_answered_nothing_can_differ() -> None:
    """The first answer is the measure of the others."""
    assert None is wrong("because", SAME, None)


def test_an_expected_pattern_must_match() -> None:
    """The playbook may say what a right answer holds."""
    expecting = HttpRequest(path="/generate", expect="Par[ai]s")
    assert [None, "answer-unexpected"] == [wrong("it is Paris", expecting), wrong("it is Rome", expecting)]


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        (Serving(listener="nobody"), "nobody-listens"),
        (Serving(listener="ours", health=HttpAnswer(status=503)), "http-503"),
        (Serving(listener="ours", health=HttpAnswer(error="refused")), "no-answer"),
        (Serving(listener="ours", health=HEALTHY), "not-asked"),
        (Serving(listener="ours", request=HttpAnswer(status=500, body="x")), "http-500"),
        (Serving(listener="ours", request=HttpAnswer(error="no whole answer in time")), "no-answer"),
    ],
)
def test_each_step_of_serving_is_seen(serving: Serving, expected: str) -> None:
    """Listener, health, request: a pass is seen at every one of them (rule 3)."""
    found = complaint(serving, ASKED, None)
    assert expected == (found.id if found else None)


def test_nothing_is_wrong_where_nothing_is_asked() -> None:
    """A playbook without a request trusts listener and health."""
    assert None is complaint(Serving(listener="ours", health=HEALTHY), None, None)


@FEW
@given(st.text(max_size=60))
def test_any_body_can_be_looked_at(body: str) -> None:
    """What a broken server sends breaks nothing here."""
    wrong(body, SAME, body)


def test_a_body_nested_beyond_reason_can_be_looked_at() -> None:
    """Nor does a hostile one."""
    assert None is wrong('{"a":' * 50_000)
