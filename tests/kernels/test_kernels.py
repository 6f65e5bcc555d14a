"""The kernels against their witness: on a GPU, or interpreted by Triton (`make kernels`)."""

import os
from collections.abc import Iterator
from functools import partial

import pytest

pytest.importorskip("torch", reason="the kernels' tests need torch: make kernels")
pytest.importorskip("triton", reason="the kernels' tests need triton: make kernels")
import torch
import triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("no GPU here, and TRITON_INTERPRET=1 is not set: make kernels", allow_module_level=True)

import mma  # noqa: E402
import reference  # noqa: E402
import simt  # noqa: E402
import tiles  # noqa: E402
import tuned  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
KERNELS = {
    "simt": simt.attend,
    "simt, split": partial(simt.attend, splits=3),
    "mma": mma.attend,
    "mma, split": partial(mma.attend, cut=mma.Sizes(16, 16, 3, 4, 1)),
    "mma, shared": partial(mma.attend, cut=mma.Sizes(16, 16, 3, 4, 1, 256)),
}
case = partial(reference.case, device=DEVICE)


@pytest.fixture(autouse=True, scope="module")
def _poison() -> Iterator[None]:
    """Memory that nobody has written holds NaN: results, and the parts of a split."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=before)


@pytest.fixture(params=KERNELS)
def attend(request: pytest.FixtureRequest) -> reference.Attend:
    """Each kernel."""
    kernel: reference.Attend = KERNELS[request.param]
    return kernel


@pytest.fixture(params=[False, True], ids=["bf16", "fp8"])
def packed(request: pytest.FixtureRequest) -> bool:
    """Each form of the cache."""
    return bool(request.param)


def expected(one: reference.Case) -> torch.Tensor:
    """What the witness makes of a call."""
    return reference.attend(one.query, one.cache, one.indices, one.scale)


def error(attend: reference.Attend, one: reference.Case) -> float:
    """The error of a kernel on a call."""
    return float(reference.error(attend(one.query, one.cache, one.indices, one.scale), expected(one)))


@pytest.mark.parametrize(
    ("batch", "heads", "count", "padding"),
    [(1, 1, 1, 0), (1, 3, 33, 0), (3, 2, 64, 21), (2, 5, 30, 29), (1, 2, 16, 16)],
)
def test_the_error_is_within_the_bound(
    attend: reference.Attend, packed: bool, batch: int, heads: int, count: int, padding: int
) -> None:
    """Odd counts, heads that fill no tile, padding, and none but padding; unused pages hold NaN."""
    one = case(batch, heads, count, padding=padding, packed=packed)
    assert error(attend, one) < reference.BOUND


@pytest.mark.parametrize("heads", [16, 64, 128])
def test_the_shapes_of_the_models_are_within_the_bound(heads: int, packed: bool) -> None:
    """DeepSeek's heads on one GPU, on two, and on eight."""
    assert error(mma.attend, case(1, heads, 130, padding=3, packed=packed)) < reference.BOUND


def test_what_the_search_finds_is_within_the_bound() -> None:
    """Interpreted, the sizes are timed by the host's clock; on the second call they are known."""
    one = case(1, 3, 33)
    assert [True, True] == [error(tuned.attend, one) < reference.BOUND for _ in range(2)]


def test_a_full_row_of_indices_is_within_the_bound() -> None:
    """2048 of them, in the splits of the table."""
    assert error(mma.attend, case(1, 16, 2048, padding=100)) < reference.BOUND


@settings(max_examples=10)
@given(
    heads=st.integers(1, 20),
    count=st.integers(1, 70),
    splits=st.integers(1, 6),
    columns=st.sampled_from([256, 512]),
    page=st.sampled_from([1, 16, 64]),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_however_the_work_is_cut_the_result_is_the_same(
    heads: int, count: int, splits: int, columns: int, page: int, seed: int, data: st.DataObject
) -> None:
    """More splits than tiles, splits of padding alone, columns shared or not, pages of any length."""
    padding = data.draw(st.integers(0, count))
    packed = data.draw(st.booleans())
    one = case(1, heads, count, padding=padding, page=page, packed=packed, seed=seed)
    cut = mma.Sizes(16, 16, splits, 4, 1, columns)
    assert error(partial(mma.attend, cut=cut), one) < reference.BOUND


def test_a_slot_named_twice_counts_twice(attend: reference.Attend, packed: bool) -> None:
    """An indexer may repeat itself, over tiles and splits too."""
    one = case(1, 2, 40, packed=packed)
    one.indices[0, 20:] = one.indices[0, 0]
    assert error(attend, one) < reference.BOUND


def test_padding_may_lie_anywhere(attend: reference.Attend) -> None:
    """Before, between and after what is looked at; in a tile of its own too."""
    one = case(1, 2, 64)
    one.indices[0, :17] = -1
    one.indices[0, 20:64:3] = -7
    assert error(attend, one) < reference.BOUND


def test_a_query_of_padding_alone_gives_zero(attend: reference.Attend) -> None:
    """Its neighbours are not disturbed."""
    one = case(3, 2, 24)
    one.indices[1] = -1
    found = attend(one.query, one.cache, one.indices, one.scale)
    assert not found[1].any()
    assert reference.error(found, expected(one)) < reference.BOUND


def test_nan_is_where_it_belongs(attend: reference.Attend) -> None:
    """A latent that is NaN, and looked at, spoils its own query and no other."""
    one = case(2, 2, 40)
    one.cache.flatten(0, 1)[one.indices[0, 5].long()] = torch.nan
    one.indices[1][one.indices[1] == one.indices[0, 5]] = -1
    found = attend(one.query, one.cache, one.indices, one.scale)
    assert [True, False] == found.isnan().flatten(1).any(1).tolist()
    assert reference.error(found, expected(one)) < reference.BOUND


def test_large_scores_do_not_overflow(attend: reference.Attend) -> None:
    """The maximum moves from tile to tile, and far."""
    one = case(1, 2, 60)
    found = attend(one.query * 200, one.cache, one.indices, one.scale)
    assert reference.error(found, reference.attend(one.query * 200, one.cache, one.indices, one.scale)) < 4e-2


@pytest.mark.parametrize("damage", ["query", "cache", "indices", "rows", "layout"])
def test_a_wrong_argument_is_named(attend: reference.Attend, damage: str) -> None:
    """A kernel that reads beyond a tensor tells nobody."""
    one = case(2, 2, 8)
    query, cache, indices = one.query, one.cache, one.indices
    arguments = {
        "query": (query.float(), cache, indices),
        "cache": (query, cache[..., :500], indices),
        "indices": (query, cache, indices.long()),
        "rows": (query, cache, indices[:1]),
        "layout": (query.transpose(0, 1), cache, indices),
    }[damage]
    with pytest.raises(ValueError, match=r"query|cache|indices"):
        attend(*arguments, one.scale)


@given(batch=st.integers(1, 256), heads=st.sampled_from([16, 64, 128]), count=st.integers(1, 2048))
def test_the_table_splits_while_there_is_room(batch: int, heads: int, count: int) -> None:
    """A split has a tile of tokens, or else there is one split; the GPU holds them at once."""
    cut = mma.sizes(batch, heads, count)
    programs = batch * triton.cdiv(heads, cut.heads) * reference.LATENT // cut.columns
    assert cut.splits == 1 or (cut.splits * cut.tokens <= count and cut.splits * programs <= 264)


def test_the_fp8_form_says_what_it_holds() -> None:
    """Unpacked, it is the cache to within e4m3's 2^-4, and its rotary part exactly."""
    cache = torch.randn(2, 4, reference.WIDTH, device=DEVICE).bfloat16()
    found = reference.unpack(reference.pack(cache))
    scales = cache[..., : reference.LATENT].unflatten(-1, (-1, reference.GROUP)).abs().amax(-1).double()
    off = (
        (found - cache.double())[..., : reference.LATENT].unflatten(-1, (-1, reference.GROUP)).abs().amax(-1)
    )
    assert bool((off <= scales * 2**-4).all())
    assert torch.equal(found[..., reference.LATENT :], cache[..., reference.LATENT :].double())


def test_an_error_sees_nan_first() -> None:
    """NaN in the wrong place is no small number, nor is it averaged away."""
    good = torch.tensor([1.0, torch.nan, torch.inf, -torch.inf])
    assert reference.error(good, good) == 0
    assert reference.error(torch.nan_to_num(good), good) == torch.inf
    assert reference.error(-good, good) == torch.inf


def test_what_is_not_written_is_seen() -> None:
    """A kernel that writes nothing leaves the poison."""
    one = case(1, 2, 8)
    unwritten = tiles.result_for(one.query, one.cache, one.indices)
    assert bool(tiles.Parts(unwritten, 2).results.isnan().all())
    assert reference.error(unwritten, expected(one)) == torch.inf


def test_padding_is_not_read() -> None:
    """The guard against 0 × NaN: a kernel that read slot 0 for padding would be seen, for it is poisoned."""
    one = case(1, 2, 8, padding=3)
    naive = one.cache.flatten(0, 1)[one.indices.clamp(min=0).long()].double()
    weights = torch.softmax(
        torch.zeros(1, 2, 8, dtype=torch.float64, device=DEVICE).masked_fill(one.indices < 0, -torch.inf), -1
    )
    assert (weights @ naive[..., : reference.LATENT]).isnan().all()
    assert error(mma.attend, one) < reference.BOUND


@pytest.mark.parametrize(("batch", "heads"), [(1, 2), (2, 70)])
def test_parts_are_weighed_by_their_sums(batch: int, heads: int) -> None:
    """Two splits of which one saw nothing, combined: the other alone; by few programs, and by many."""
    parts = tiles.Parts(torch.empty(batch, heads, reference.LATENT, device=DEVICE).bfloat16(), 2)
    parts.results[:, 0], parts.results[:, 1] = 3.0, 5.0
    parts.logs[:, 0], parts.logs[:, 1] = float("-inf"), 7.0
    assert bool((parts.combined() == 5.0).all())


@pytest.mark.skipif(INTERPRETED, reason="without a GPU, nothing overlaps")
def test_a_call_waits_for_what_it_reads(attend: reference.Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch may begin before the one before it ends: here that one makes its queries, in a graph."""
    # Memory that is filled before each call would keep the calls apart.
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    one = case(1, 72, 2048)  # its result has as many numbers as a query of 64 heads

    def chain() -> tuple[torch.Tensor, torch.Tensor]:
        first = attend(one.query, one.cache, one.indices, one.scale)
        return first, attend(first.view(1, 64, reference.WIDTH), one.cache, one.indices, one.scale)

    first, _ = chain()
    expected = attend(first.clone().view(1, 64, reference.WIDTH), one.cache, one.indices, one.scale)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first, second = chain()
    first.fill_(torch.nan)
    graph.replay()
    assert torch.equal(second, expected)
