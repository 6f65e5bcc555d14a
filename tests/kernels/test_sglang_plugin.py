"""The plug-in of sglang: what it hands to our kernels, and what it leaves alone (`make kernels`)."""

import os
from configparser import ConfigParser
from contextlib import nullcontext
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the kernels' tests need torch: make kernels")
pytest.importorskip("triton", reason="the kernels' tests need triton: make kernels")
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("no GPU here, and TRITON_INTERPRET=1 is not set: make kernels", allow_module_level=True)

import mla_plugin  # noqa: E402
import reference  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
PLUGIN = Path(__file__).parents[2] / "kernels" / "sglang_plugin"


def refused(*_given: object, **_named: object) -> None:
    """Sglang's own kernel, where it must not be called."""
    pytest.fail("sglang's kernel was called")


def arguments(one: reference.Case) -> list[Any]:
    """The positional arguments of `decode_attention_fwd` for a case, its padding left out.

    The cache is one slot a page; what follows the last request's slots names poisoned ones.
    """
    rows = [row[row >= 0] for row in one.indices]
    begins = torch.tensor([0, *(len(row) for row in rows)], device=DEVICE).cumsum(0).int()
    slots = torch.cat([*rows, torch.zeros(5, dtype=torch.int32, device=DEVICE)])
    cache = one.cache.flatten(0, 1)[:, None]
    out = torch.full((*one.query.shape[:2], reference.LATENT), torch.nan, device=DEVICE).bfloat16()
    return [
        one.query,
        cache,
        cache[..., : reference.LATENT],
        out,
        begins,
        slots.long(),
        *[None] * 4,
        one.scale,
        1.0,
        1.0,
    ]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=5), count=st.integers(1, 12)
)
def test_each_request_gets_its_own_slots(rows: list[list[int]], count: int) -> None:
    """In their order, as many as fit, and -1 for the rest."""
    begins = torch.tensor([0, *map(len, rows)]).cumsum(0).int()
    slots = torch.tensor([slot for row in rows for slot in row] + [7])
    found = mla_plugin.slots_of(begins, slots, count)
    assert [(row + [-1] * count)[:count] for row in rows] == found.tolist()
    assert found.dtype == torch.int32


@pytest.mark.parametrize("kernel", ["mma", "simt"])
def test_the_result_is_that_of_the_reference(kernel: str) -> None:
    """Requests of different lengths; sglang's own kernel is not called."""
    one = reference.case(3, 4, 40, padding=17, device=DEVICE)
    given_ = arguments(one)
    mla_plugin.DecodeAttention(kernel, None, context=64)(refused, *given_, has_mla=True)
    expected = reference.attend(one.query, one.cache, one.indices, one.scale)
    assert reference.error(given_[3], expected) < reference.BOUND


def test_the_stock_kernel_gets_what_it_was_called_with() -> None:
    """All of it, once a call."""
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = []
    attention = mla_plugin.DecodeAttention("stock", "nan")
    attention(lambda *given, **named: calls.append((given, named)), 1, 2, page_size=1)
    assert calls == [((1, 2), {"page_size": 1})]


def test_the_first_call_says_which_kernel_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Once a process, however often it is called."""
    attention = mla_plugin.DecodeAttention("stock", None)
    attention(lambda: None)
    attention(lambda: None)
    assert capsys.readouterr().out == "[mla-plugin] decode attention: stock\n"


def test_a_fault_of_nan_leaves_no_number() -> None:
    """Only the answer can show it."""
    given_ = arguments(reference.case(1, 2, 20, device=DEVICE))
    mla_plugin.DecodeAttention("mma", "nan", context=64)(refused, *given_)
    assert given_[3].isnan().all()


@pytest.mark.parametrize("compiled", [True, False])
def test_only_a_compiled_forward_is_wrapped(compiled: bool) -> None:
    """The other one is given out as it came."""
    plain = nullcontext(len)
    patched = mla_plugin.CompiledForward()(lambda *_given, **_named: plain, None, compiled, num_tokens=1)
    assert (patched is plain) is not compiled


def test_sglang_finds_the_entry_point() -> None:
    """By the folder alone, as it looks for plug-ins; the function is there."""
    (found,) = distributions(path=[str(PLUGIN)])
    (entry,) = found.entry_points
    assert (entry.group, entry.module) == ("sglang.srt.plugins", mla_plugin.__name__)
    assert entry.load() is mla_plugin.register
    parser = ConfigParser()
    parser.read(PLUGIN / "mla_plugin-1.dist-info" / "entry_points.txt")
    assert parser["sglang.srt.plugins"]["mla"] == f"{entry.module}:{entry.attr}"


def test_a_tuner_that_forgets_has_measured_nothing() -> None:
    """The fault `cold-tuner`: the next call of each shape searches again."""
    import tuned

    tuned._tile.cache["a shape"] = "its sizes"
    tuned.forget()
    assert not tuned._tile.cache
