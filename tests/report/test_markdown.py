"""Whatever a text holds, a reader of Markdown shows that text and nothing else."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bisect_agent.lines import printable
from bisect_agent.report.markdown import _code, _fenced, _plain

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TEXTS = st.text(st.sampled_from("\\`*_{}[]<>#+-.!|~&=:/()1aé \t\n\x1b\u202e\"'"), max_size=30)


@given(TEXTS)
@example("1. not a list")
@example("--- # ![a](b) [c](javascript:d) <script>e</script> &lt; **f** _g_ ~~h~~")
@example("a `name` of our own, and ``two`` and `")
@example("``<b>``")
def test_a_sentence_stays_a_sentence(text: str) -> None:
    """Only `…` means something: it is code, as in our own sentences."""
    (start, sentence, end) = READER.parse(f"## t\n\n{_plain(text)} end")[3:]
    assert ("paragraph_open", "paragraph_close") == (start.type, end.type)
    assert {child.type for child in sentence.children or ()} <= {"text", "text_special", "code_inline"}
    shown = "".join(child.content for child in sentence.children or ())
    assert _words(f"{printable(text)} end") == _words(shown)


@given(TEXTS)
@example("```")
def test_a_cell_stays_a_cell(text: str) -> None:
    """A row has as many cells as were written."""
    tokens = READER.parse(f"| a | b |\n|---|---|\n| {_plain(text)} | end |")
    assert 4 == sum(token.type in {"th_open", "td_open"} for token in tokens)
    assert "end" == [token for token in tokens if token.type == "inline"][-1].content


@given(TEXTS.filter(str.strip))
def test_code_stays_code(text: str) -> None:
    """To the last backtick."""
    (_, inline, _) = READER.parse(f"x {_code(text)} y")
    before, code, after = inline.children or []
    assert ("text", "code_inline", "text") == (before.type, code.type, after.type)
    assert printable(text).strip(" ") == code.content.strip(" ")


@given(st.lists(TEXTS))
def test_a_fence_holds_what_is_in_it(lines: list[str]) -> None:
    """It is longer than any run of backticks inside."""
    (fence,) = READER.parse("\n".join(_fenced(lines)))
    assert "".join(f"{printable(line)}\n" for line in lines) == fence.content


def _words(text: str) -> list[str]:
    """The words of a text, without the backticks around code."""
    return text.replace("`", "").split()
