"""The suspect: the kernel of `mma`, whose sizes Triton searches at the first call of each shape.

That search compiles, synchronises and times. In a server that captures CUDA graphs, a first call inside the
capture ends it (`cudaErrorStreamCaptureInvalidated`, then `...Unsupported`). `mma` has a table instead.
Shapes, units and the bound of the error: `reference`. Run this file for its witness; it needs a
GPU, to time on.
"""

from __future__ import annotations

import sys

import mma
import torch
import triton
from reference import LATENT, ROPE, testify
from tiles import Parts, result_for

_tile = triton.autotune(
    configs=[
        triton.Config({"N": n, "STAGES": stages}, num_warps=warps)
        for n in (32, 64)
        for stages in (1, 2)
        for warps in (4, 8)
    ],
    key=["HEADS", "SPLITS", "H", "FP8"],
)(mma.tile)


def attend(query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float) -> torch.Tensor:
    """The attention of `reference.attend`; the first call of a shape searches its sizes, for seconds.

    Raises:
        ValueError: an argument is not as `reference` says.
    """
    out = result_for(query, cache, indices)
    batch, heads, _ = query.shape
    count = indices.shape[1]
    cut = mma.sizes(batch, heads, count)
    parts = Parts(out, cut.splits)
    _tile[triton.cdiv(heads, cut.heads), cut.splits, batch](
        query,
        cache,
        indices,
        parts.results,
        parts.logs,
        scale,
        count,
        HEADS=heads,
        SPLITS=cut.splits,
        H=cut.heads,
        D=LATENT,
        R=ROPE,
        FP8=cache.dtype == torch.uint8,
    )
    return parts.combined()


def forget() -> None:
    """Drop what was measured: the next call of each shape searches its sizes again."""
    _tile.cache.clear()


if __name__ == "__main__":
    sys.exit(testify(attend))
