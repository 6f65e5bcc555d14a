"""The suspect: the kernel of `mma`, whose sizes Triton searches at the first call of each shape.

That search compiles, synchronises and times. In a server that captures CUDA graphs, a first call inside the
capture ends it (`cudaErrorStreamCaptureInvalidated`, then `...Unsupported`). `mma` has a table instead.
Shapes, units and the bound of the error: `reference`. Run this file for its witness.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import mma
import torch
import triton
from reference import LATENT, ROPE, testify
from tiles import INTERPRETED, Parts, overlap, result_for


def _clocked(call: Callable[[], object], quantiles: Sequence[float]) -> list[float]:
    """Milliseconds of a call by the host's clock, as if they were all quantiles: events need a GPU."""
    call()
    begin = time.perf_counter()
    call()
    return [1000 * (time.perf_counter() - begin)] * len(quantiles)


_tile = triton.autotune(
    configs=[
        triton.Config({"N": n, "STAGES": stages}, num_warps=warps)
        for n in (32, 64)
        for stages in (1, 2)
        for warps in (4, 8)
    ],
    key=["HEADS", "SPLITS", "H", "FP8", "V"],
    do_bench=_clocked if INTERPRETED.value else None,
)(mma.tile)

_found: dict[tuple[mma.Sizes, int, bool], mma.Sizes] = {}


@torch.compiler.disable  # a compiler would take the search for a part of the program
def sizes(query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float) -> mma.Sizes:
    """The sizes for the shape of these arguments; its first call searches them, for seconds.

    Raises:
        ValueError: an argument is not as `reference` says.
    """
    batch, heads, _ = query.shape
    count = indices.shape[1]
    packed = cache.dtype == torch.uint8
    cut = mma.sizes(batch, heads, count)
    if (cut, heads, packed) not in _found:
        parts = Parts(result_for(query, cache, indices), cut.splits)
        _tile[triton.cdiv(heads, cut.heads) * (LATENT // cut.columns), cut.splits, batch](
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
            FP8=packed,
            V=cut.columns,
            **overlap(),
        )
        best = _tile.best_config
        _found[cut, heads, packed] = mma.Sizes(
            cut.heads, best.kwargs["N"], cut.splits, best.num_warps, best.kwargs["STAGES"], cut.columns
        )
    return _found[cut, heads, packed]


def attend(query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float) -> torch.Tensor:
    """The attention of `reference.attend`; the first call of a shape searches its sizes, for seconds.

    Raises:
        ValueError: an argument is not as `reference` says.
    """
    return mma.attend(query, cache, indices, scale, sizes(query, cache, indices, scale))


def forget() -> None:
    """Drop what was measured: the next call of each shape searches its sizes again."""
    _tile.cache.clear()


if __name__ == "__main__":
    sys.exit(testify(attend))
