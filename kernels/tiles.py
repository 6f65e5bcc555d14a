"""What the kernels share: how latents are gathered, and how the parts of a split are put together."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from reference import LATENT, PACKED, WIDTH
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
PROCESSORS = 132  # of an H200, for which sizes are chosen


def overlap() -> dict[str, bool]:
    """Arguments of a launch that may begin while the kernel before it ends; a GPU can from sm_90 on.

    The kernel must wait (`gdc_wait`) before it touches memory: what it reads may not be written yet, what it
    writes may still be read. torch's compiler would take that wait for a write to every argument, and copy
    them: where it traces a launch, nothing overlaps.
    """
    if torch.compiler.is_compiling() or INTERPRETED.value or not torch.version.cuda:
        return {"OVERLAP": False}
    if torch.cuda.get_device_capability() < (9, 0):
        return {"OVERLAP": False}
    return {"OVERLAP": True, "launch_pdl": True}


@triton.jit
def bf16(x):
    """To the nearest bfloat16. Triton's interpreter cuts off: it is given bits that are rounded already."""
    if INTERPRETED:
        bits = x.to(tl.int32, bitcast=True)
        x = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).to(tl.float32, bitcast=True)
    return x.to(tl.bfloat16)


@triton.jit
def product(a, b, total):
    """The sum total + a @ b, in float32. Triton's interpreter would go through float16, and fail near 0."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total)


@triton.jit
def log_sum(top, sum_):
    """The base-2 log of a sum of exponentials: -inf where nothing was summed, NaN where NaN was."""
    return tl.where(sum_ == 0, float("-inf"), top + tl.log2(tl.where(sum_ == 0, 1.0, sum_)))


@triton.jit
def over(x, sum_):
    """The mean x / sum_, and 0 where nothing was summed."""
    return x / tl.where(sum_ == 0, 1.0, sum_)


@triton.jit
def latents(
    cache,
    slots,
    used,
    begin,
    COLUMNS: tl.constexpr,
    FP8: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
):
    """The latents of some slots, from column `begin` on: [tokens, COLUMNS] in bfloat16; 0 where not `used`.

    What is not used is never read: a page that holds NaN would spoil the sum through 0 × NaN.
    """
    if FP8:
        n: tl.constexpr = slots.shape[0]
        groups: tl.constexpr = COLUMNS // 128
        row = cache + slots.to(tl.int64) * (D + D // 32 + 2 * R)
        g = tl.arange(0, groups)
        numbers = row[:, None, None] + begin + g[None, :, None] * 128 + tl.arange(0, 128)[None, None, :]
        bits = tl.load(numbers, mask=used[:, None, None], other=0)
        factors = (row + D + begin // 32).to(tl.pointer_type(tl.float32), bitcast=True)
        scales = tl.load(factors[:, None] + g[None, :], mask=used[:, None], other=0.0)
        exact = bits.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scales[:, :, None]
        latent = tl.reshape(bf16(exact), [n, COLUMNS])
    else:
        row = cache + slots.to(tl.int64) * (D + R) + begin
        latent = tl.load(row[:, None] + tl.arange(0, COLUMNS)[None, :], mask=used[:, None], other=0.0)
    return latent


@triton.jit
def rotaries(cache, slots, used, FP8: tl.constexpr, D: tl.constexpr, R: tl.constexpr):
    """The rotary parts of some slots: [tokens, R] in bfloat16; 0 where not `used`."""
    if FP8:
        row = cache + slots.to(tl.int64) * (D + D // 32 + 2 * R) + D + D // 32
        row = row.to(tl.pointer_type(tl.bfloat16), bitcast=True)
    else:
        row = cache + slots.to(tl.int64) * (D + R) + D
    return tl.load(row[:, None] + tl.arange(0, R)[None, :], mask=used[:, None], other=0.0)


@triton.jit
def _combine(
    parts,
    weights,
    out,
    HEADS,
    SPLITS: tl.constexpr,
    POWER: tl.constexpr,
    COLUMNS: tl.constexpr,
    D: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Weighs some columns of the parts of one head by 2^(log-sum-exp).

    `POWER` is SPLITS, rounded up to a power of two.
    """
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    head, batch = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, POWER), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    row = (batch * SPLITS + s) * HEADS + head
    weight = tl.load(weights + row, mask=s < SPLITS, other=float("-inf"))
    part = tl.load(parts + row.to(tl.int64)[:, None] * D + d[None, :], mask=(s < SPLITS)[:, None], other=0.0)
    # The bound keeps -inf - -inf out where every index of a query is padding.
    weight = tl.exp2(weight - tl.maximum(tl.max(weight, 0), -1e30))
    total = over(tl.sum(part.to(tl.float32) * weight[:, None], 0), tl.sum(weight, 0))
    tl.store(out + (batch * HEADS + head).to(tl.int64) * D + d, bf16(total))


class Parts:
    """Where the programs of a split write: a mean of each, and the base-2 log of its sum of exponentials.

    The results are rounded to bfloat16, which halves the traffic; `reference.BOUND` allows for it.
    """

    def __init__(self, out: torch.Tensor, splits: int) -> None:
        batch, heads, width = out.shape
        self.out = out
        self.splits = splits
        if splits == 1:
            self.results, self.logs = out, out  # nothing to combine, and no log is written
        else:
            self.results = out.new_empty(batch, splits, heads, width)
            self.logs = out.new_empty(batch, splits, heads, dtype=torch.float32)

    def combined(self) -> torch.Tensor:
        """The result of the whole."""
        if self.splits > 1:
            batch, heads, width = self.out.shape
            # Where heads alone are too few for the GPU, four programs share the columns of one.
            columns, warps = (width // 4, 1) if batch * heads <= PROCESSORS else (width, 2)
            _combine[heads, batch, width // columns](
                self.results,
                self.logs,
                self.out,
                heads,
                self.splits,
                triton.next_power_of_2(self.splits),
                columns,
                width,
                num_warps=warps,
                **overlap(),
            )
        return self.out


def result_for(query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Room for the result, where the arguments are what `reference` says.

    Raises:
        ValueError: a shape, a type or a layout in memory is another one; the sentence says which.
    """
    packed = cache.dtype == torch.uint8
    expected = {
        "query": (query, 3, WIDTH, torch.bfloat16),
        "cache": (cache, 3, PACKED if packed else WIDTH, torch.uint8 if packed else torch.bfloat16),
        "indices": (indices, 2, indices.shape[-1], torch.int32),
    }
    for name, (tensor, rank, width, dtype) in expected.items():
        if (tensor.dim(), tensor.shape[-1], tensor.dtype) != (rank, width, dtype):
            raise ValueError(
                f"{name}: {rank} dimensions, the last of {width}, of {dtype} are needed; "
                f"found {tuple(tensor.shape)} of {tensor.dtype}"
            )
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: must be contiguous; call .contiguous() before")
    if len(indices) != len(query):
        raise ValueError(f"indices: a row per query is needed; found {len(indices)} for {len(query)}")
    return query.new_empty(*query.shape[:2], LATENT)
