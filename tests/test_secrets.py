"""Masking: the length stays, the value goes, however the bytes arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.credentials import LONGEST
from bisect_agent.model import Death, HttpAnswer, Process, Reason, Trouble
from bisect_agent.secrets import SHORTEST, Masker
from tests.strategies import FEW
from tests.test_credentials import TOKENS

SECRETS = st.lists(st.text("abcd", min_size=SHORTEST, max_size=9), min_size=1, max_size=3)
LINES = st.lists(st.text("hfsk_-abcd \r", max_size=8).map(lambda text: text + "\n"), max_size=8)


LOOKALIKES = [f" {token} " for token in TOKENS.values()]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[str], list[bytes]]:
    """Secrets, and a stream that holds some of them, cut anywhere."""
    secrets = draw(SECRETS)
    text = "".join(
        draw(
            st.lists(
                st.sampled_from(secrets) | st.sampled_from(LOOKALIKES) | st.text("abcd \n", max_size=8),
                max_size=8,
            )
        )
    ).encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    bounds = [0, *cuts, len(text)]
    return secrets, [text[a:b] for a, b in pairwise(bounds)]


def shown(secrets: list[str], chunks: list[bytes]) -> bytes:
    """What is let through of a stream."""
    masker = Masker(secrets)
    return b"".join(map(masker.feed, chunks)) + masker.finish()


@FEW
@given(streams())
def test_the_length_stays(stream: tuple[list[str], list[bytes]]) -> None:
    """Every offset is true of the original as well."""
    secrets, chunks = stream
    assert len(b"".join(chunks)) == len(shown(secrets, chunks))


@FEW
@given(streams())
def test_no_value_gets_through(stream: tuple[list[str], list[bytes]]) -> None:
    """Not at the edge of a chunk either, nor in pieces of one byte."""
    secrets, chunks = stream
    out = [shown(secrets, chunks), shown(secrets, [bytes([b]) for b in b"".join(chunks)])]
    hidden = [*secrets, *TOKENS.values()]
    assert [] == [s for s in hidden for o in out if s.encode() in o]


@FEW
@given(streams())
def test_every_other_byte_stays(stream: tuple[list[str], list[bytes]]) -> None:
    """What is shown is a star or the byte that was there."""
    secrets, chunks = stream
    pairs = zip(b"".join(chunks), shown(secrets, chunks), strict=True)
    assert all(after in (before, ord("*")) for before, after in pairs)


@FEW
@given(LINES)
def test_a_whole_line_is_not_held_back(lines: list[str]) -> None:
    """A log that holds no secret arrives as it was, when it was: no line is seen later for the masking."""
    chunks = [line.encode() for line in lines]
    masker = Masker(["xyzxyz"])
    assert chunks == [masker.feed(chunk) for chunk in chunks]


def test_a_value_cut_by_the_end_of_a_chunk_is_masked() -> None:
    """A line waits for its end."""
    masker = Masker(["hunter2"])
    assert [b"", b"key=*******!\n"] == [masker.feed(b"key=hunt"), masker.feed(b"er2!\n")]


@pytest.mark.parametrize("size", [1, 7, 4096, 100_000])
def test_no_secret_gets_through_a_line_without_an_end(size: int) -> None:
    """Little of it is held, and what is cut anywhere is found; what it stands in is shown."""
    line = b"".join(
        b"." * gap + secret.encode()
        for gap, secret in zip(
            (LONGEST - 20, 5, LONGEST, 1, 3 * LONGEST), ["hunter2", *list(TOKENS.values())[:4]], strict=True
        )
    )
    masker = Masker(["hunter2"])
    out, most = b"", 0
    for at in range(0, len(line), size):
        out += masker.feed(line[at : at + size])
        most = max(most, min(len(line), at + size) - len(out))
    out += masker.finish()
    assert [] == [secret for secret in ("hunter2", *TOKENS.values()) if secret.encode() in out]
    assert (len(line), True) == (len(out), most <= 2 * LONGEST)
    assert line.count(b".") - out.count(b".") <= 2  # those of the token that has some


def test_what_stands_before_a_word_is_known_in_the_next_chunk() -> None:
    """`task-…` is no token, wherever a long line is cut."""
    word = b"ta" + b"sk-" + b"a1" * 12
    for gap in range(LONGEST - 30, LONGEST + 4):
        line = b"." * gap + word + b" " * LONGEST
        masker = Masker(())
        assert line == masker.feed(line[: gap + 2 + LONGEST]) + masker.feed(line[gap + 2 + LONGEST :]) + (
            masker.finish()
        )


def test_the_beginning_of_a_value_alone_is_shown_at_the_end() -> None:
    """Nothing is lost."""
    masker = Masker(["hunter2"])
    assert [b"", b"hunt"] == [masker.feed(b"hunt"), masker.finish()]


def test_a_short_value_is_not_masked() -> None:
    """To star out every `1` would leave no log."""
    assert "a=1" == Masker(["1", ""]).mask("a=1")


def test_a_value_beyond_ascii_is_masked_byte_by_byte() -> None:
    """The length is that of the bytes."""
    assert "k=********" == Masker(["pässwör"[:6]]).mask("k=pässwö")


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param('k="p\\u00e4ss\\"w\\/+=1"'.replace("\\/", "/"), id="json"),
        pytest.param('k="päss\\"w/+=1"', id="json-unicode"),
        pytest.param("k='päss\"w/+=1'", id="python"),
        pytest.param("k=p%C3%A4ss%22w%2F%2B%3D1", id="url"),
    ],
)
def test_a_value_is_masked_as_others_write_it(shown: str) -> None:
    """In an answer of a server, in the repr of its arguments, in a URL."""
    masked = Masker(['päss"w/+=1']).mask(shown)
    assert {"*"} == set(masked.removeprefix("k=").strip("\"'"))
    assert len(shown.encode()) == len(masked.encode())


def test_a_value_of_several_lines_is_masked_line_by_line() -> None:
    """Their ends stay, so that lines count as before; a log may say them one by one, with a prefix."""
    key = "-----BEGIN KEY-----\nabcdefgh\nijklmnop\n"
    masker = Masker([key])
    assert "k: " + "*" * 19 + "\n" + "*" * 8 + "\n" + "*" * 8 + "\n" == masker.mask(f"k: {key}")
    assert "[TP0] ********" == masker.mask("[TP0] ijklmnop")
    assert "  }," == Masker(['{\n  "key": "abc"\n  },\n}']).mask("  },")


@FEW
@given(streams())
def test_twice_is_as_once(stream: tuple[list[str], list[bytes]]) -> None:
    """What was masked where it was seen may be masked again where it is recorded."""
    secrets, chunks = stream
    once = Masker(secrets).mask(b"".join(chunks).decode())
    assert once == Masker(secrets).mask(once)


def test_what_others_say_is_masked_in_every_text_of_it() -> None:
    """And no word of ours, though a secret should be spelt like one."""
    masker = Masker(["hunter2", "unreachable", "dirty"])
    trouble = Trouble(reason=Reason.DIRTY, detail="hunter2 does not die")
    assert Trouble(reason=Reason.DIRTY, detail="******* does not die") == masker.said(trouble)
    death = Death(process=Process(pid=1, start=2, boot="b", name="hunter2"), signal=9, time=0.0)
    assert "*******" == masker.said((death,))[0].process.name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("server hunter2", "server *******"),
        ("a server hunte", "a server *****"),
        ("ends with hun", "ends with hun"),
        ("hf_" + "aZ3bY4cX5dW6", "*" * 15),
        ("sglang::detoken", "sglang::detoken"),
        ("hf_config_loade", "hf_config_loade"),
    ],
)
def test_a_name_that_the_kernel_has_cut_does_not_tell_how_a_secret_begins(name: str, shown: str) -> None:
    """It has room for fifteen bytes; three of a secret tell nothing."""
    assert shown == Masker(["hunter2"]).said(Process(pid=1, start=2, boot="b", name=name)).name


def test_an_answer_that_was_cut_does_not_tell_how_a_secret_begins() -> None:
    """The target takes so many bytes of an answer, and no more."""
    assert "token: *****" == Masker(["hunter2"]).said(HttpAnswer(status=200, body="token: hunte")).body
