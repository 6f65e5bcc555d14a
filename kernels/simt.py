"""The stock way: one program per query and head, no tensor cores; every head gathers all latents anew.

Heads × 2048 × 1152 bytes are read per query, 128 times what there is. It is here to be measured against,
and as the other level of the factor *kernel*. Shapes, units and the bound of the error: `reference`. Run
this file for its witness.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from reference import LATENT, ROPE, testify
from tiles import Parts, bf16, latents, log_sum, over, result_for, rotaries

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _simt(
    query,
    cache,
    indices,
    results,
    logs,
    scale,
    COUNT: tl.constexpr,
    HEADS: tl.constexpr,
    SPLITS: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
    FP8: tl.constexpr,
):
    """The mean over the indices of one split, for one head of one query, N tokens at a time."""
    head, batch, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    d, r, n = tl.arange(0, D), tl.arange(0, R), tl.arange(0, N)
    row = query + (batch * HEADS + head) * (D + R)
    # torch.compile hands a Python float over as float64; the scores must not follow it.
    factor = tl.full([], scale, tl.float32) * LOG2E
    q_latent = tl.load(row + d).to(tl.float32) * factor
    q_rotary = tl.load(row + D + r).to(tl.float32) * factor
    top = -1e30  # not -inf: where all is padding, -inf - -inf would be NaN
    sum_ = 0.0
    mean = tl.zeros([D], tl.float32)
    EACH: tl.constexpr = (COUNT + SPLITS * N - 1) // (SPLITS * N) * N  # indices of a split, whole tiles
    for start in range(0, EACH, N):
        index = split * EACH + start + n
        slots = tl.load(indices + batch * COUNT + index, mask=index < COUNT, other=-1)
        used = slots >= 0
        latent = latents(cache, slots, used, 0, D, FP8, D, R)
        rotary = rotaries(cache, slots, used, FP8, D, R)
        latent = latent.to(tl.float32)
        scores = tl.sum(latent * q_latent[None, :], 1) + tl.sum(rotary.to(tl.float32) * q_rotary[None, :], 1)
        scores = tl.where(used, scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, 0))
        weights = tl.exp2(scores - new)
        shrink = tl.exp2(top - new)
        sum_ = sum_ * shrink + tl.sum(weights, 0)
        mean = mean * shrink + tl.sum(weights[:, None] * latent, 0)
        top = new
    mean = over(mean, sum_)
    if SPLITS == 1:
        tl.store(results + (batch * HEADS + head) * D + d, bf16(mean))
    else:
        part = (batch * SPLITS + split) * HEADS + head
        tl.store(results + part.to(tl.int64) * D + d, bf16(mean))
        tl.store(logs + part, log_sum(top, sum_))


def attend(
    query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float, splits: int = 1
) -> torch.Tensor:
    """The attention of `reference.attend`; with `splits`, that many programs share a head's indices.

    Raises:
        ValueError: an argument is not as `reference` says.
    """
    parts = Parts(result_for(query, cache, indices), splits)
    batch, heads, _ = query.shape
    packed = cache.dtype == torch.uint8
    _simt[heads, batch, splits](
        query,
        cache,
        indices,
        parts.results,
        parts.logs,
        scale,
        indices.shape[1],
        heads,
        splits,
        2,
        LATENT,
        ROPE,
        packed,
        num_warps=1,
    )
    return parts.combined()


if __name__ == "__main__":
    sys.exit(testify(attend))
