"""A rank's part of a small decoder: weights from a seed, and one decode step as launches.

The model is split by heads: each rank runs its own heads through every layer, and the ranks' logits
are added at the end of the step.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from attention import Arguments, Attention, Shape
from recorder import Buffer, Operation, Recorder
from tokens import ALPHABET

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiled import Pointwise

CONTEXT = 64
"""Tokens of prompt and answer together."""

LAYERS = 2
HEADS = 2
"""Heads of one rank."""
HEAD_WIDTH = 8
WIDTH = HEADS * HEAD_WIDTH

Matrix = list[list[float]]


@dataclass(frozen=True)
class Layer:
    """The weights of a layer."""

    qkv: Matrix
    project: Matrix
    up: Matrix
    down: Matrix


class Weights:
    """A rank's shard, the same for the same rank in every process."""

    def __init__(self, rank: int) -> None:
        self._random = random.Random(rank)  # noqa: S311 - repeatable, not secret
        self.embedding = self._matrix(len(ALPHABET), WIDTH, 1.0)
        self.layers = [
            Layer(
                qkv=self._matrix(3 * WIDTH, WIDTH),
                project=self._matrix(WIDTH, WIDTH),
                up=self._matrix(2 * WIDTH, WIDTH),
                down=self._matrix(WIDTH, 2 * WIDTH),
            )
            for _ in range(LAYERS)
        ]
        self.head = self._matrix(len(ALPHABET), WIDTH)

    def _matrix(self, rows: int, columns: int, deviation: float | None = None) -> Matrix:
        spread = deviation or columns**-0.5
        return [[self._random.gauss(0, spread) for _ in range(columns)] for _ in range(rows)]


class DecodeStep:
    """One token in, logits out, on buffers of its own: the unit that is run, captured and replayed."""

    def __init__(
        self, weights: Weights, recorder: Recorder, attention: Attention, pointwise: Pointwise
    ) -> None:
        self._recorder = recorder
        self._attention = attention
        self._pointwise = pointwise
        self._token = Buffer("token", 1)
        self._position = Buffer("position", 1)
        self._length = Buffer("length", 1)
        self._logits = Buffer("logits", len(ALPHABET))
        self._launches = self._build(weights)

    def set_input(self, token: int, position: int) -> None:
        """The next token and its place; everything before it has been through this step."""
        self._token.data[0] = token
        self._position.data[0] = position
        self._length.data[0] = position + 1

    def launch(self) -> None:
        """Launch the operations of the step in order."""
        for launch in self._launches:
            launch()

    def output(self) -> list[float]:
        """This rank's share of the logits."""
        return list(self._logits.data)

    def _build(self, weights: Weights) -> list[Callable[[], None]]:
        hidden, normed = Buffer("hidden", WIDTH), Buffer("normed", WIDTH)
        place = (self._token, self._position)
        embed = Operation("embed", partial(_embed, weights.embedding, *place, hidden), place, (hidden,))
        launches = [self._one(embed), self._many(_norm(hidden, normed))]
        for layer in weights.layers:
            launches += self._layer(layer, hidden, normed)
        return [*launches, self._one(_multiply("head", weights.head, normed, self._logits))]

    def _layer(self, layer: Layer, hidden: Buffer, normed: Buffer) -> list[Callable[[], None]]:
        shape = Shape(HEADS, HEAD_WIDTH, self._pointwise.rows(CONTEXT))
        qkv, out, delta = Buffer("qkv", 3 * WIDTH), Buffer("attention", WIDTH), Buffer("delta", WIDTH)
        keys, values = Buffer("keys", shape.rows * WIDTH), Buffer("values", shape.rows * WIDTH)
        inner = Buffer("inner", 2 * WIDTH)
        cache = Operation(
            "cache", partial(_cache, qkv, self._position, keys, values), (qkv, self._position), (keys, values)
        )
        attend = Arguments(qkv, keys, values, self._length, out)
        return [
            self._one(_multiply("qkv", layer.qkv, normed, qkv)),
            self._one(cache),
            partial(self._attention.launch, shape, attend),
            self._one(_multiply("project", layer.project, out, delta)),
            self._many(_add(delta, hidden), _norm(hidden, normed)),
            self._one(_multiply("up", layer.up, normed, inner)),
            self._many(_silu(inner)),
            self._one(_multiply("down", layer.down, inner, delta)),
            self._many(_add(delta, hidden), _norm(hidden, normed)),
        ]

    def _one(self, operation: Operation) -> Callable[[], None]:
        return partial(self._recorder.launch, operation)

    def _many(self, *operations: Operation) -> Callable[[], None]:
        return partial(self._pointwise.launch, operations)


def _embed(table: Matrix, token: Buffer, position: Buffer, out: Buffer) -> None:
    place = position.data[0]
    row = table[int(token.data[0])]
    out.data[:] = [x + math.sin(place / 50 ** (i / WIDTH) + i) for i, x in enumerate(row)]


def _cache(qkv: Buffer, position: Buffer, keys: Buffer, values: Buffer) -> None:
    at = int(position.data[0]) * WIDTH
    keys.data[at : at + WIDTH] = qkv.data[WIDTH : 2 * WIDTH]
    values.data[at : at + WIDTH] = qkv.data[2 * WIDTH :]


def _multiply(name: str, matrix: Matrix, vector: Buffer, out: Buffer) -> Operation:
    def run() -> None:
        out.data[:] = [sum(w * x for w, x in zip(row, vector.data, strict=True)) for row in matrix]

    return Operation(name, run, (vector,), (out,))


def _add(delta: Buffer, hidden: Buffer) -> Operation:
    def run() -> None:
        hidden.data[:] = [x + d for x, d in zip(hidden.data, delta.data, strict=True)]

    return Operation("add", run, (delta, hidden), (hidden,))


def _norm(hidden: Buffer, normed: Buffer) -> Operation:
    def run() -> None:
        scale = (sum(x * x for x in hidden.data) / WIDTH + 1e-6) ** -0.5
        normed.data[:] = [x * scale for x in hidden.data]

    return Operation("norm", run, (hidden,), (normed,))


def _silu(inner: Buffer) -> Operation:
    def run() -> None:
        inner.data[:] = [x / (1 + math.exp(-x)) for x in inner.data]

    return Operation("silu", run, (inner,), (inner,))
