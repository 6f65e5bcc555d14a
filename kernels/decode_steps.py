"""How decode steps are carried out: as they are, compiled by torch, or replayed from what was captured.

As sglang does it, steps are captured for a few sizes of the batch, the largest first, and a batch is filled
up to the next of them with rows that write into page 0. There are two kinds of graphs:

- `cuda`: CUDA graphs. A capture records launches and runs none; who synchronises in it, or copies to the
  host, ends it.
- `cpu`: torch records the operators that a step calls, with tensors that hold no data (`make_fx`). Nothing is
  run either, so that who looks into a tensor, or times a call, ends the capture; the rules of CUDA's streams
  do not hold. A replay runs the operators one after another and gains nothing.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import decode_model
import mma
import reference
import torch
import tuned
from torch.fx.experimental.proxy_tensor import make_fx

KERNELS = ("reference", "simt", "mma", "tuned", "hopper")

log = logging.getLogger("decode_engine")


@torch.library.custom_op("decode_engine::attend", mutates_args=())
def _attend(
    query: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    scale: float,
    kernel: str,
    cut: Sequence[int],
) -> torch.Tensor:
    """A kernel as an operator: one call to who compiles or captures, whatever Triton does in it."""
    sizes = (mma.Sizes(*cut),) if cut else ()
    return importlib.import_module(kernel).attend(query, cache, indices, scale, *sizes)


@_attend.register_fake
def _(query: torch.Tensor, *_: object) -> torch.Tensor:
    return query.new_empty(*query.shape[:2], reference.LATENT)


def attention(kernel: str) -> decode_model.Attend:
    """The attention of a kernel, by its file's name. `reference` is plain torch and needs no operator."""
    if kernel == "reference":
        return reference.attend

    def attend(
        query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: decode_model.Scale
    ) -> torch.Tensor:
        cut: tuple[int, ...] = ()
        file = kernel
        if kernel == "tuned":
            file, cut = "mma", dataclasses.astuple(tuned.sizes(query, cache, indices, scale))
        return torch.ops.decode_engine.attend(query, cache, indices, scale, file, cut)

    return attend


@dataclasses.dataclass(frozen=True)
class Row:
    """What a request brings to a step: its last token, the place of that, and its pages of the cache."""

    token: int
    position: int
    pages: Sequence[int]


class Steps:
    """The model, ready to carry out steps of up to `config.batch` requests."""

    def __init__(
        self,
        config: decode_model.Config,
        weights: decode_model.Weights,
        *,
        device: str,
        kernel: str,
        compiled: bool,
        graphs: str,
    ) -> None:
        self._graphs = graphs
        # As sglang has it: 1, 2, 4, … and the largest.
        self.sizes = sorted({min(1 << i, config.batch) for i in range(config.batch.bit_length() + 1)})
        if device == "cuda":
            # It is made at its first use, which a capture forbids; a real server has used it before.
            torch.cuda.current_blas_handle()
        self._weights = weights
        self._cache = decode_model.cache(config, device)
        self._batch = decode_model.batch(config, config.batch, device)
        self._host = decode_model.batch(config, config.batch, "cpu")
        step = partial(decode_model.step, config, attention(kernel))
        self._step: Callable[..., torch.Tensor] = step
        if compiled:
            # Beyond its limit, torch runs further sizes as they are, and only a warning tells.
            limit = torch._dynamo.config.recompile_limit  # noqa: SLF001
            torch._dynamo.config.recompile_limit = max(limit, len(self.sizes))  # noqa: SLF001
            self._step = torch.compile(step, dynamic=False)
        self._replays: dict[int, Callable[[], torch.Tensor]] = {}

    def _arguments(self, size: int) -> tuple[Any, ...]:
        """What a step of that size works on: always the same memory, as a graph needs it."""
        batch = decode_model.Batch(*(tensor[:size] for tensor in self._batch))
        return self._weights, self._cache, batch

    def warm_up(self) -> None:
        """Calls the step twice for each size: what compiles, tunes or allocates at first does so here."""
        for size in reversed(self.sizes):
            for _ in range(2):
                self._step(*self._arguments(size))
            log.info("warmed up: batch %d", size)

    def capture(self) -> None:
        """Captures the step for each size."""
        pool = torch.cuda.graph_pool_handle() if self._graphs == "cuda" else None
        for size in reversed(self.sizes):
            arguments = self._arguments(size)
            if self._graphs == "cuda":
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    result = self._step(*arguments)
                self._replays[size] = partial(_replayed, graph, result)
            else:
                self._replays[size] = partial(
                    make_fx(self._step, tracing_mode="fake")(*arguments), *arguments
                )
            log.info("captured: batch %d", size)

    def __call__(self, rows: Sequence[Row]) -> list[int]:
        """The next token of each request."""
        size = next(size for size in self.sizes if size >= len(rows))
        for values in self._host:
            values[:size] = 0
        # NumPy fills single rows in a fraction of the time that torch takes.
        tokens, positions, pages = (values.numpy() for values in self._host)
        for i, row in enumerate(rows):
            tokens[i], positions[i] = row.token, row.position
            pages[i, : len(row.pages)] = row.pages
        for room, values in zip(self._batch, self._host, strict=True):
            room[:size].copy_(values[:size])
        run = self._replays.get(size) or partial(self._step, *self._arguments(size))
        found: list[int] = run()[: len(rows)].tolist()
        return found


def _replayed(graph: torch.cuda.CUDAGraph, result: torch.Tensor) -> torch.Tensor:
    """What the graph gives out, which lies where it lay at the capture."""
    graph.replay()
    return result
