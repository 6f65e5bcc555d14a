"""Heads in tiles on the tensor cores: a gathered tile of latents serves them all; splits share the indices.

A program takes up to 64 heads of one query, gathers N latents at a time, and uses each twice from shared
memory: as keys and as values. Where queries and head tiles are too few for the GPU, several programs share
the indices of one, and `tiles` combines their parts; where they still are, two share the columns of the
values, and each works out all scores. Which sizes are used is a table, measured once: nothing is tuned at
run time. Shapes, units and the bound of the error: `reference`. Run this file for its witness.
"""

from __future__ import annotations

import dataclasses
import sys

import torch
import triton
import triton.language as tl
from reference import LATENT, ROPE, testify
from tiles import PROCESSORS, Parts, bf16, latents, log_sum, over, overlap, product, result_for, rotaries
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOG2E = tl.constexpr(1.4426950408889634)
ANY = 1 << 40


@triton.jit
def tile(
    query,
    cache,
    indices,
    results,
    logs,
    scale,
    COUNT: tl.constexpr,
    HEADS: tl.constexpr,
    SPLITS: tl.constexpr,
    H: tl.constexpr,
    N: tl.constexpr,
    STAGES: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
    FP8: tl.constexpr,
    V: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """V columns of the means over the indices of one split, for H heads of one query, N tokens at a time."""
    if OVERLAP:
        gdc_wait()
    # The tiles of heads come first: those of one query run side by side, and share its latents in L2.
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    SHARE: tl.constexpr = D // V  # programs that share the columns: one or two
    begin = block % SHARE * V
    v, r, n = tl.arange(0, V), tl.arange(0, R), tl.arange(0, N)
    head = block // SHARE * H + tl.arange(0, H)
    known = head < HEADS
    row = query + (batch * HEADS + head) * (D + R)
    q_latent = tl.load(row[:, None] + begin + v[None, :], mask=known[:, None], other=0.0)
    if SHARE == 2:  # the other columns are keys alone
        q_other = tl.load(row[:, None] + (V - begin) + v[None, :], mask=known[:, None], other=0.0)
    q_rotary = tl.load(row[:, None] + D + r[None, :], mask=known[:, None], other=0.0)
    # torch.compile hands a Python float over as float64; the accumulator must not follow it.
    factor = tl.full([], scale, tl.float32) * LOG2E
    top = tl.full([H], -1e30, tl.float32)  # not -inf: where all is padding, -inf - -inf would be NaN
    sum_ = tl.zeros([H], tl.float32)
    mean = tl.zeros([H, V], tl.float32)
    EACH: tl.constexpr = (COUNT + SPLITS * N - 1) // (SPLITS * N) * N  # indices of a split, whole tiles
    for start in tl.range(0, EACH, N, num_stages=STAGES):
        index = split * EACH + start + n
        slots = tl.load(indices + batch * COUNT + index, mask=index < COUNT, other=-1)
        used = slots >= 0
        latent = latents(cache, slots, used, begin, V, FP8, D, R)
        if SHARE == 2:
            other = latents(cache, slots, used, V - begin, V, FP8, D, R)
        rotary = rotaries(cache, slots, used, FP8, D, R)
        scores = product(q_rotary, tl.trans(rotary), tl.zeros([H, N], tl.float32))
        if SHARE == 2:
            scores = product(q_other, tl.trans(other), scores)
        scores = product(q_latent, tl.trans(latent), scores) * factor
        scores = tl.where(used[None, :], scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(top - new)
        sum_ = sum_ * shrink + tl.sum(weights, 1)
        mean = product(bf16(weights), latent, mean * shrink[:, None])
        top = new
    part = (batch * SPLITS + split) * HEADS + head
    if SPLITS > 1:
        tl.store(logs + part, log_sum(top, sum_), mask=known & (begin == 0))
    mean = over(mean, sum_[:, None])
    at = results + part.to(tl.int64)[:, None] * D + begin + v[None, :]
    tl.store(at, bf16(mean), mask=known[:, None])
    if OVERLAP:
        gdc_launch_dependents()  # not before: programs that wait would crowd onto the few idle processors


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How a call is cut: heads and tokens of a tile, programs per tile of heads, warps, stages of loads.

    Where a program has half of the 512 `columns`, there are twice as many.
    """

    heads: int
    tokens: int
    splits: int
    warps: int
    stages: int
    columns: int = LATENT


TOKENS, STAGES, HALF = 64, 2, LATENT // 2
# Measured on an H200 (README.md). A row: heads of a call up to which it holds; heads of a tile; programs up
# to which the splits are doubled; and by how many there are then, up to which it holds: warps and columns.
TABLE: tuple[tuple[int, int, int, tuple[tuple[int, int, int], ...]], ...] = (
    (16, 16, 2 * PROCESSORS, ((PROCESSORS // 4, 8, HALF), (PROCESSORS, 8, LATENT), (ANY, 4, LATENT))),
    (ANY, 64, PROCESSORS, ((PROCESSORS // 2, 4, HALF), (ANY, 8, LATENT))),
)


def sizes(batch: int, heads: int, count: int) -> Sizes:
    """The sizes for a shape, from the table."""
    _, tile_heads, most, by_programs = next(row for row in TABLE if heads <= row[0])
    programs = batch * triton.cdiv(heads, tile_heads)
    splits = 1
    while 2 * splits * programs <= most and 2 * splits * TOKENS <= count:
        splits *= 2
    _, warps, columns = next(row for row in by_programs if splits * programs <= row[0])
    return Sizes(tile_heads, TOKENS, splits, warps, STAGES, columns)


def attend(
    query: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    scale: float,
    cut: Sizes | None = None,
) -> torch.Tensor:
    """The attention of `reference.attend`, cut as `cut` says, or else the table.

    Raises:
        ValueError: an argument is not as `reference` says.
    """
    out = result_for(query, cache, indices)
    batch, heads, _ = query.shape
    count = indices.shape[1]
    cut = cut or sizes(batch, heads, count)
    parts = Parts(out, cut.splits)
    tile[triton.cdiv(heads, cut.heads) * (LATENT // cut.columns), cut.splits, batch](
        query,
        cache,
        indices,
        parts.results,
        parts.logs,
        scale,
        count,
        heads,
        cut.splits,
        cut.heads,
        cut.tokens,
        cut.stages,
        LATENT,
        ROPE,
        cache.dtype == torch.uint8,
        cut.columns,
        num_warps=cut.warps,
        **overlap(),
    )
    return parts.combined()


if __name__ == "__main__":
    sys.exit(testify(attend))
