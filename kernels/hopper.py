"""The work of `mma` laid out by hand for Hopper (sm_90), in Gluon; bfloat16 latents alone.

Triton's pipeliner starts to gather a tile after the products of the one before, where the latency shows.
Here the order is written down: two tiles fit into shared memory beside the queries, and while one is worked
on, the other is copied.

    tile t is there              a barrier: nobody reads tile t-1 any more
    scores of tile t start
    copies of tile t+1 start     into the place of tile t-1
    slots of tile t+2 start
    scores of tile t end         softmax
    sums of tile t               awaited: their registers cannot cross the turn of the loop

ptxas takes each product of tensor cores alone, with a wait after it, where an accumulator is under way at the
turn of the loop (C7514); that would cost more than the overlap wins.

Shapes, units and the bound of the error: `reference`. Run this file for its witness; it needs an sm_90, for
there is no interpreter of Gluon.
"""

from __future__ import annotations

import sys

import torch
import triton
from reference import LATENT, ROPE, testify
from tiles import PROCESSORS, Parts, overlap, result_for
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import async_copy
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # renamed after triton 3.6
LOG2E = gl.constexpr(1.4426950408889634)
# Heads and tokens of a tile: the rows of a warpgroup; two tiles of tokens fill shared memory.
TILE = gl.constexpr(64)


@gluon.jit
def _slots(indices, tile, end, LAYOUT: gl.constexpr):
    """The slots of a tile of tokens, -1 from `end` on."""
    index = tile * TILE + gl.arange(0, TILE, layout=LAYOUT)
    return gl.load(indices + index, mask=index < end, other=-1)


@gluon.jit
def _copy(cache, slots, target, LAYOUT: gl.constexpr, BEGIN: gl.constexpr, WIDTH: gl.constexpr):
    """Starts to copy the numbers from `BEGIN` on of some slots; 0 where a slot is padding."""
    column = BEGIN + gl.arange(0, target.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    row = cache + slots.to(gl.int64) * WIDTH
    async_copy.async_copy_global_to_shared(target, row[:, None] + column[None, :], mask=(slots >= 0)[:, None])


@gluon.jit
def _scores(q_latent, q_rotary, latent, rotary, LAYOUT: gl.constexpr):
    """Starts the products of the queries and a tile of tokens, in two groups."""
    none = gl.zeros([TILE, TILE], gl.float32, LAYOUT)
    scores = hopper.warpgroup_mma(q_rotary, rotary.permute((1, 0)), none, use_acc=False, is_async=True)
    return hopper.warpgroup_mma(q_latent, latent.permute((1, 0)), scores, is_async=True)


@gluon.jit
def _softmax(scores, used, factor, top, shared, tops, LAYOUT: gl.constexpr):
    """Puts the weights of a tile into `shared`; gives them, the new maxima, and by what old sums shrink."""
    scores = gl.where(used[None, :] >= 0, scores * factor, float("-inf"))
    # A warpgroup has half of the columns. gl.max over both would take three barriers; this takes one.
    tops.store(gl.max(scores.reshape([TILE, 2, TILE // 2]), 2))
    barrier()
    new = gl.maximum(top, gl.maximum(tops.slice(0, 1, 1).load(LAYOUT), tops.slice(1, 1, 1).load(LAYOUT)))
    weights = gl.exp2(scores - new)
    shared.store(weights.to(gl.bfloat16))
    hopper.fence_async_shared()
    barrier()
    return weights, new, gl.exp2(top - new)


@gluon.jit(do_not_specialize=["each"])
def tile(
    query,
    cache,
    indices,
    results,
    logs,
    scale,
    each,
    COUNT: gl.constexpr,
    HEADS: gl.constexpr,
    SPLITS: gl.constexpr,
    D: gl.constexpr,
    R: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """The means over the indices of one split, `each` tiles of them, for 64 heads of one query."""
    if OVERLAP:
        gdc_wait()
    # The tiles of heads come first: those of one query run side by side, and share its latents in L2.
    block, split, batch = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    WIDE: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
    NARROW: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, TILE // 2, 16])
    MEANS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, D // 2, 16])
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    q_latent = gl.allocate_shared_memory(gl.bfloat16, [TILE, D], SWIZZLED)
    q_rotary = gl.allocate_shared_memory(gl.bfloat16, [TILE, R], SWIZZLED)
    latents = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, D], SWIZZLED)
    rotaries = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, R], SWIZZLED)
    shared = gl.allocate_shared_memory(gl.bfloat16, [TILE, TILE], SWIZZLED)  # the weights
    tops = gl.allocate_shared_memory(gl.float32, [TILE, 2], PLAIN)  # of the columns of each warpgroup

    first = split * each
    end = gl.minimum((first + each) * TILE, COUNT)
    indices += batch * COUNT
    wide = _slots(indices, first, end, gl.SliceLayout(1, WIDE))
    narrow = _slots(indices, first, end, gl.SliceLayout(1, NARROW))
    _copy(cache, wide, latents.index(0), WIDE, 0, D + R)
    _copy(cache, narrow, rotaries.index(0), NARROW, D, D + R)
    # Heads beyond the last are copied as padding is.
    query += batch * HEADS * (D + R)
    head = block * TILE + gl.arange(0, TILE, layout=gl.SliceLayout(1, WIDE))
    _copy(query, gl.where(head < HEADS, head, -1), q_latent, WIDE, 0, D + R)
    head_ = block * TILE + gl.arange(0, TILE, layout=gl.SliceLayout(1, NARROW))
    _copy(query, gl.where(head_ < HEADS, head_, -1), q_rotary, NARROW, D, D + R)
    async_copy.commit_group()
    wide = _slots(indices, first + 1, end, gl.SliceLayout(1, WIDE))
    narrow = _slots(indices, first + 1, end, gl.SliceLayout(1, NARROW))

    factor = gl.to_tensor(scale).to(gl.float32) * LOG2E
    top = gl.full([TILE, 1], -1e30, gl.float32, SCORES)  # not -inf: -inf - -inf would be NaN
    sums = gl.zeros([TILE, TILE], gl.float32, SCORES)  # of each column: they are added up once, at the end
    mean = gl.zeros([TILE, D], gl.float32, MEANS)
    used = _slots(indices, first, end, gl.SliceLayout(0, SCORES))
    for t in range(each):
        buffer = t % 2
        latent, rotary = latents.index(buffer), rotaries.index(buffer)
        async_copy.wait_group(0)
        hopper.fence_async_shared()
        barrier()  # the tile is there for all, and all have read the one before
        pending = _scores(q_latent, q_rotary, latent, rotary, SCORES)
        _copy(cache, wide, latents.index(1 - buffer), WIDE, 0, D + R)
        _copy(cache, narrow, rotaries.index(1 - buffer), NARROW, D, D + R)
        async_copy.commit_group()
        wide = _slots(indices, first + t + 2, end, gl.SliceLayout(1, WIDE))
        narrow = _slots(indices, first + t + 2, end, gl.SliceLayout(1, NARROW))
        coming = _slots(indices, first + t + 1, end, gl.SliceLayout(0, SCORES))
        scores = hopper.warpgroup_mma_wait(0, deps=[pending])
        weights, top, shrink = _softmax(scores, used, factor, top, shared, tops, SCORES)
        used = coming
        sums = sums * shrink + weights
        mean = hopper.warpgroup_mma(shared, latent, mean * gl.convert_layout(shrink, MEANS))
    # Copies of zeros may still be under way to where the result will pass through.
    async_copy.wait_group(0)
    barrier()
    sum_ = gl.sum(sums, 1)
    share = gl.convert_layout(1 / gl.where(sum_ == 0, 1.0, sum_), gl.SliceLayout(1, MEANS))
    mean = gl.convert_layout((mean * share[:, None]).to(gl.bfloat16), WIDE)
    part = (batch * SPLITS + split) * HEADS
    d = gl.arange(0, D, layout=gl.SliceLayout(0, WIDE))
    gl.store(
        results + (part + head).to(gl.int64)[:, None] * D + d[None, :], mean, mask=(head < HEADS)[:, None]
    )
    if SPLITS > 1:
        head = block * TILE + gl.arange(0, TILE, layout=ROWS)
        log = gl.where(sum_ == 0, float("-inf"), gl.max(top, 1) + gl.log2(gl.where(sum_ == 0, 1.0, sum_)))
        gl.store(logs + part + head, log, mask=head < HEADS)
    if OVERLAP:
        gdc_launch_dependents()


def splits(batch: int, heads: int, count: int, processors: int = PROCESSORS) -> int:
    """Programs that share the indices of a tile of heads: one wave of them, a tile of tokens each."""
    return max(1, min(processors // (batch * triton.cdiv(heads, 64)), triton.cdiv(count, 64)))


def attend(query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float) -> torch.Tensor:
    """The attention of `reference.attend`.

    Raises:
        ValueError: an argument is not as `reference` says, or the cache is in its FP8 form.
    """
    out = result_for(query, cache, indices)
    if cache.dtype == torch.uint8:
        raise ValueError("cache: this kernel reads bfloat16; for the FP8 form, take mma.py")
    batch, heads, _ = query.shape
    count = indices.shape[1]
    cut = splits(batch, heads, count)
    each = triton.cdiv(triton.cdiv(count, 64), cut)
    parts = Parts(out, cut)
    tile[triton.cdiv(heads, 64), cut, batch](
        query,
        cache,
        indices,
        parts.results,
        parts.logs,
        scale,
        each,
        count,
        heads,
        cut,
        LATENT,
        ROPE,
        num_warps=8,
        **overlap(),
    )
    return parts.combined()


if __name__ == "__main__":
    sys.exit(testify(attend, forms=(False,)))
