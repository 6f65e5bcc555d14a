"""A decode step of a small DeepSeek-V3.2 with random weights: sparse latent attention, its indexer, an MLP.

A step takes one token of each running request to the next. All that it reads and writes has a fixed shape and
place, so that a CUDA graph can hold it: the cache of the longest context is indexed through a table of pages,
and the indexer scores every place of that context, used or not. Its cost follows the context that is
configured, whatever the requests' lengths: `[batch, context, index heads]` scores in each layer.

| name      | shape                              | type     | meaning                                        |
|-----------|------------------------------------|----------|------------------------------------------------|
| tokens    | batch                              | int64    | the last token of each request                 |
| positions | batch                              | int64    | its place in the context, from 0               |
| pages     | batch, context / page              | int64    | the page of the cache for each part of it      |
| latents   | layers of pages, page, 576         | bfloat16 | what `reference` calls the cache               |
| keys      | layers of pages, page, index width | bfloat16 | what the indexer compares with                 |

The design is that of arXiv:2512.02556, made small: one expert, no rotary part in the indexer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import torch
from reference import LATENT, ROPE, WIDTH
from torch.nn.functional import rms_norm, silu

Scale: TypeAlias = float | torch.Tensor
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Scale], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the model and of its cache. The defaults start in seconds on a CPU.

    `head` is the part of a head that knows no position, `rank` that of the compressed query; `count` is how
    many tokens the indexer picks, `context` how many a request can have, `batch` how many run at once.
    """

    layers: int = 4
    hidden: int = 256
    heads: int = 4
    head: int = 32
    rank: int = 128
    mlp: int = 512
    index_heads: int = 4
    index_width: int = 32
    vocabulary: int = 256
    count: int = 32
    context: int = 256
    page: int = 16
    batch: int = 2

    def __post_init__(self) -> None:
        if min(dataclasses.astuple(self)) < 1:
            raise ValueError(f"sizes: each must be 1 at least; found {self}")
        if self.context % self.page or self.count > self.context:
            raise ValueError(
                f"context: a multiple of the page ({self.page}) and at least the tokens that are picked "
                f"({self.count}) is needed; found {self.context}"
            )

    @property
    def pages(self) -> int:
        """Pages of the cache: those of `batch` whole contexts, and page 0, which belongs to no request."""
        return 1 + self.batch * self.context // self.page


class Layer(NamedTuple):
    """The weights of a layer: matrices of bfloat16 that are multiplied from the right."""

    norm_attention: torch.Tensor
    norm_query: torch.Tensor
    norm_latent: torch.Tensor
    norm_mlp: torch.Tensor
    down_query: torch.Tensor  # hidden, rank
    up_query: torch.Tensor  # rank, heads * (head + rotary)
    down_latent: torch.Tensor  # hidden, latent + rotary
    up_key: torch.Tensor  # heads, head, latent: absorbed into the query
    up_value: torch.Tensor  # heads, latent, head
    out: torch.Tensor  # heads * head, hidden
    index_query: torch.Tensor  # rank, index heads * index width
    index_key: torch.Tensor  # hidden, index width
    index_weight: torch.Tensor  # hidden, index heads
    gate_up: torch.Tensor  # hidden, 2 * mlp
    down: torch.Tensor  # mlp, hidden
    scale: Scale  # of the scores; a tensor where the checkpoint holds it beside the matrices


class Weights(NamedTuple):
    """The weights of the model."""

    embedding: torch.Tensor  # vocabulary, hidden
    norm: torch.Tensor
    unembedding: torch.Tensor  # hidden, vocabulary
    layers: list[Layer]


class Cache(NamedTuple):
    """What the model remembers of each token, by layer."""

    latents: list[torch.Tensor]
    keys: list[torch.Tensor]


class Batch(NamedTuple):
    """The requests of a step."""

    tokens: torch.Tensor
    positions: torch.Tensor
    pages: torch.Tensor


def weights(config: Config, device: str, *, scale_as_tensor: bool = False) -> Weights:
    """Random weights, the same for the same config and device.

    With `scale_as_tensor` the factor of the scores is a tensor without dimensions, as checkpoints hold the
    scales of what they have quantised; it lies on the host, where a launch needs the number.
    """
    chance = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=chance, device=device, dtype=torch.bfloat16)

    def matrix(*shape: int) -> torch.Tensor:
        return normal(*shape) * shape[-2] ** -0.5

    def ones(width: int) -> torch.Tensor:
        return torch.ones(width, device=device, dtype=torch.bfloat16)

    c, exact = config, (config.head + ROPE) ** -0.5
    layers = [
        Layer(
            norm_attention=ones(c.hidden),
            norm_query=ones(c.rank),
            norm_latent=ones(LATENT),
            norm_mlp=ones(c.hidden),
            down_query=matrix(c.hidden, c.rank),
            up_query=matrix(c.rank, c.heads * (c.head + ROPE)),
            down_latent=matrix(c.hidden, WIDTH),
            up_key=matrix(c.heads, c.head, LATENT),
            up_value=matrix(c.heads, LATENT, c.head),
            out=matrix(c.heads * c.head, c.hidden),
            index_query=matrix(c.rank, c.index_heads * c.index_width),
            index_key=matrix(c.hidden, c.index_width),
            index_weight=matrix(c.hidden, c.index_heads),
            gate_up=matrix(c.hidden, 2 * c.mlp),
            down=matrix(c.mlp, c.hidden),
            scale=torch.tensor(exact) if scale_as_tensor else exact,
        )
        for _ in range(c.layers)
    ]
    return Weights(normal(c.vocabulary, c.hidden), ones(c.hidden), matrix(c.hidden, c.vocabulary), layers)


def cache(config: Config, device: str) -> Cache:
    """An empty cache."""

    def rooms(width: int) -> Iterator[torch.Tensor]:
        for _ in range(config.layers):
            yield torch.zeros(config.pages, config.page, width, device=device, dtype=torch.bfloat16)

    return Cache(list(rooms(WIDTH)), list(rooms(config.index_width)))


def batch(config: Config, size: int, device: str) -> Batch:
    """Room for the requests of a step; as it is, each of them writes into page 0."""

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=device, dtype=torch.int64)

    return Batch(zeros(size), zeros(size), zeros(size, config.context // config.page))


def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary embedding (arXiv:2104.09864): halves of the last dimension, turned by the position."""
    half = x.shape[-1] // 2
    speeds = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = (positions[:, None] * speeds).view(len(x), *[1] * (x.dim() - 2), half)
    one, other = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1).to(x.dtype)


def picked(
    config: Config, layer: Layer, keys: torch.Tensor, batch: Batch, hidden: torch.Tensor, query: torch.Tensor
) -> torch.Tensor:
    """The indexer: slots of the `count` tokens of each request that score best, -1 where it has fewer.

    int32, [batch, count]. The score of a token is the sum over index heads of weight × relu(query · key).
    """
    keys = keys[batch.pages].flatten(1, 2)
    query = (query @ layer.index_query).unflatten(-1, (config.index_heads, config.index_width))
    scores = torch.relu(keys @ query.mT)  # batch, context, index heads
    score = (scores @ (hidden @ layer.index_weight)[..., None]).squeeze(-1)
    place = torch.arange(config.context, device=score.device)
    score = score.masked_fill(place > batch.positions[:, None], float("-inf"))
    best = score.topk(config.count, sorted=False).indices
    slots = batch.pages.gather(1, best // config.page) * config.page + best % config.page
    return slots.where(best <= batch.positions[:, None], -1).int()


def step(config: Config, attend: Attend, weights: Weights, cache: Cache, batch: Batch) -> torch.Tensor:
    """The most likely next token of each request, int64, [batch]. The given ones go into the cache."""
    page = batch.pages.gather(1, (batch.positions // config.page)[:, None]).squeeze(1)
    row = batch.positions % config.page
    x = weights.embedding[batch.tokens]
    for layer, latents, keys in zip(weights.layers, cache.latents, cache.keys, strict=True):
        hidden = rms_norm(x, x.shape[-1:], layer.norm_attention)
        low = rms_norm(hidden @ layer.down_query, (config.rank,), layer.norm_query)
        query, rotary = (
            (low @ layer.up_query)
            .unflatten(-1, (config.heads, config.head + ROPE))
            .split((config.head, ROPE), -1)
        )
        absorbed = torch.bmm(query.transpose(0, 1), layer.up_key).transpose(0, 1)
        query = torch.cat([absorbed, rotated(rotary, batch.positions)], -1)
        latent, rotary = (hidden @ layer.down_latent).split((LATENT, ROPE), -1)
        latent = rms_norm(latent, (LATENT,), layer.norm_latent)
        latents[page, row] = torch.cat([latent, rotated(rotary, batch.positions)], -1)
        keys[page, row] = hidden @ layer.index_key
        indices = picked(config, layer, keys, batch, hidden, low)
        means = attend(query, latents, indices, layer.scale).to(x.dtype)
        values = torch.bmm(means.transpose(0, 1), layer.up_value).transpose(0, 1).flatten(1)
        x = x + values @ layer.out
        gate, up = (rms_norm(x, x.shape[-1:], layer.norm_mlp) @ layer.gate_up).chunk(2, -1)
        x = x + (silu(gate) * up) @ layer.down
    return (rms_norm(x, x.shape[-1:], weights.norm) @ weights.unembedding).argmax(-1)
