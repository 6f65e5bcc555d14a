"""Sparse decode attention over compressed latents, in plain torch, and how a kernel is held to it.

This is the attention of DeepSeek-V3.2 at decode: all query heads of a token share one latent of each cached
token (multi-head latent attention, arXiv:2405.04434, with the key projection absorbed into the query), and
an indexer has already picked the tokens that each query looks at (arXiv:2512.02556).

| name    | shape               | type     | meaning                                                     |
|---------|---------------------|----------|-------------------------------------------------------------|
| query   | batch, heads, 576   | bfloat16 | 512 for the latent, then 64 for the rotary part             |
| cache   | pages, page, 576    | bfloat16 | the same 512 + 64 of each cached token; its value is the 512 |
| cache   | pages, page, 656    | uint8    | the FP8 form: see `pack`                                    |
| indices | batch, count        | int32    | slots in the cache (page number × page + row); < 0 is padding |
| scale   |                     | float    | factor of the scores, before the softmax                    |
| result  | batch, heads, 512   | bfloat16 | mean of the values; 0 where a query has padding alone       |

A slot that is named twice counts twice. A slot beyond the cache is the caller's mistake, and no kernel
looks for it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator

import torch

LATENT = 512
ROPE = 64
WIDTH = LATENT + ROPE
GROUP = 128  # latent numbers that share a scale in the FP8 form
PACKED = LATENT + 4 * (LATENT // GROUP) + 2 * ROPE  # bytes of a token in the FP8 form
LARGEST = 448.0  # of float8 e4m3

# One rounding to bfloat16 is an error of 1.7e-3, in the norm: that of `simt`. Weights and parts of a split,
# rounded too, make it 2.3e-3; latents from FP8, rounded once more in scores and in values, 3.6e-3.
BOUND = 4e-3

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of the attention, on one device."""

    name: str
    query: torch.Tensor
    cache: torch.Tensor
    indices: torch.Tensor
    scale: float = 192**-0.5


def pack(cache: torch.Tensor) -> torch.Tensor:
    """The FP8 form of a bfloat16 cache, as FlashMLA reads it.

    A token is 656 bytes: 512 numbers of e4m3, 4 scales of float32 (one per 128), 64 numbers of bfloat16.
    """
    groups = cache[..., :LATENT].float().unflatten(-1, (-1, GROUP))
    scales = (groups.abs().amax(-1) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    numbers = (groups / scales[..., None]).to(torch.float8_e4m3fn).flatten(-2)
    parts = (numbers, scales, cache[..., LATENT:].contiguous())
    return torch.cat([part.view(torch.uint8) for part in parts], -1)


def unpack(cache: torch.Tensor) -> torch.Tensor:
    """The latents of a cache of either form, in float64."""
    if cache.dtype != torch.uint8:
        return cache.double()
    numbers, scales, rope = cache.split((LATENT, 4 * (LATENT // GROUP), 2 * ROPE), -1)
    groups = numbers.contiguous().view(torch.float8_e4m3fn).double().unflatten(-1, (-1, GROUP))
    latent = (groups * scales.contiguous().view(torch.float32).double()[..., None]).flatten(-2)
    return torch.cat([latent, rope.contiguous().view(torch.bfloat16).double()], -1)


def attend(
    query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float | torch.Tensor
) -> torch.Tensor:
    """The result in float64, from the latents as the cache holds them.

    No shape depends on what the tensors hold: it can be compiled, and captured.
    """
    used = indices >= 0
    latents = unpack(cache.flatten(0, 1)[indices.clamp(min=0).long()]).where(used[..., None], 0)
    scores = (query.double() @ latents.mT * scale).masked_fill(~used[:, None], float("-inf"))
    weights = torch.softmax(scores, -1).where(used.any(-1)[:, None, None], 0)
    return weights @ latents[..., :LATENT]


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """‖found - expected‖ / ‖expected‖ of what is finite; infinite if NaN or ±inf lie in different places."""
    found = found.double()
    places = [(x.isnan(), x == torch.inf, x == -torch.inf) for x in (found, expected)]
    if not all(torch.equal(one, other) for one, other in zip(*places, strict=True)):
        return float("inf")
    finite = expected.isfinite()
    distance = (found - expected)[finite].norm()
    return float(distance / expected[finite].norm()) if distance else 0.0


def case(  # noqa: PLR0913
    batch: int,
    heads: int,
    count: int,
    *,
    pages: int = 8,
    page: int = 64,
    padding: int = 0,
    packed: bool = False,
    device: str = "cpu",
    seed: int = 0,
) -> Case:
    """A call with random numbers, in which every page that no index names is poisoned.

    Half of the pages are used, the others hold NaN; so does slot 0, on which a padding of -1 could fall.
    The last `padding` indices of each query are -1.
    """
    chance = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=chance, device=device, dtype=torch.bfloat16)

    cache = normal(pages, page, WIDTH)
    cache = pack(cache) if packed else cache
    used = torch.arange(pages * page, device=device).view(pages, page)[1::2].flatten()
    drawn = torch.randint(len(used), (batch, count), generator=chance, device=device)
    indices = used[drawn].int()
    indices[:, count - padding :] = -1
    cache.view(torch.uint8)[::2] = 0xFF  # NaN in every type that a cache holds
    name = f"batch {batch}, heads {heads}, indices {count}, padding {padding}, {'fp8' if packed else 'bf16'}"
    return Case(name, normal(batch, heads, WIDTH), cache, indices)


def witness(attention: Attend, forms: tuple[bool, ...]) -> Iterator[tuple[str, float]]:
    """Each case, and the error of `attention` on it. Triton's interpreter is given small ones."""
    device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
    shapes = [(1, 3, 40, 0), (2, 20, 70, 30)]
    if device == "cuda":
        shapes += [
            (1, 128, 2048, 0),
            (3, 64, 2048, 700),
            (16, 128, 2047, 1),
            (64, 16, 512, 512),
            (256, 128, 2048, 5),
        ]
    for batch, heads, count, padding in shapes:
        for packed in forms:
            one = case(batch, heads, count, pages=4 * batch, padding=padding, packed=packed, device=device)
            found = attention(one.query, one.cache, one.indices, one.scale)
            yield one.name, error(found, attend(one.query, one.cache, one.indices, one.scale))


def testify(attention: Attend, *, forms: tuple[bool, ...] = (False, True)) -> int:  # noqa: PT028
    """Prints what the witness saw; the exit code says whether every error is within the bound.

    `forms` are those that the kernel reads: bfloat16 (False), FP8 (True).
    """
    worst = 0.0
    for name, found in witness(attention, forms):
        print(f"{found:.1e}  {name}")
        worst = max(worst, found)
    print(f"{'within' if worst < BOUND else 'BEYOND'} the bound of {BOUND:.0e}")
    return int(worst >= BOUND)
