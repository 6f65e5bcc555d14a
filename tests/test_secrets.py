"""Masking: the length stays, the value goes, however the bytes arrive."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from bisect_agent.secrets import SHORTEST, Masker
from tests.strategies import FEW

SECRETS = st.lists(st.text("abcd", min_size=SHORTEST, max_size=9), min_size=1, max_size=3)
PIECES = st.lists(st.text("abcd \n", max_size=8), max_size=8)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[str], list[bytes]]:
    """Secrets, and a stream that holds some of them, cut anywhere."""
    secrets = draw(SECRETS)
    text = "".join(
        draw(st.lists(st.sampled_from(secrets) | st.text("abcd \n", max_size=8), max_size=8))
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
    assert [] == [s for s in secrets for o in out if s.encode() in o]


@FEW
@given(streams())
def test_every_other_byte_stays(stream: tuple[list[str], list[bytes]]) -> None:
    """What is shown is a star or the byte that was there."""
    secrets, chunks = stream
    pairs = zip(b"".join(chunks), shown(secrets, chunks), strict=True)
    assert all(after in (before, ord("*")) for before, after in pairs)


@FEW
@given(PIECES)
def test_without_a_value_nothing_is_held_back(pieces: list[str]) -> None:
    """A log that holds no secret arrives as it was, when it was."""
    chunks = [piece.encode() for piece in pieces]
    assume(b"secret" not in b"".join(chunks))
    assert chunks == [Masker(["xyzxyz"]).feed(chunk) for chunk in chunks]


def test_a_value_cut_by_the_end_of_a_chunk_is_masked() -> None:
    """The beginning waits until it is known what follows."""
    masker = Masker(["hunter2"])
    assert [b"key=", b"*******!"] == [masker.feed(b"key=hunt"), masker.feed(b"er2!")]


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
