"""Decode attention, twice: the stock kernel, and tuned ones with a tuner that picks among them.

Both kinds attend with every head over the first `length` rows of the cache. The cache holds `rows`
rows of `heads * width` numbers.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from recorder import Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recorder import Buffer, Recorder

BLOCKS = (4, 8, 16)
"""Rows in a tile: the variants of the tuned kernel."""


class Shape(NamedTuple):
    """What a kernel is tuned for."""

    heads: int
    width: int
    rows: int


@dataclass(frozen=True)
class Arguments:
    """The buffers of one attention: `length[0]` rows of the cache are valid."""

    query: Buffer
    keys: Buffer
    values: Buffer
    length: Buffer
    out: Buffer


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def stock(shape: Shape, a: Arguments) -> None:
    """Head by head; every head reads the whole cache again."""
    line = shape.heads * shape.width
    length = int(a.length.data[0])
    for head in range(shape.heads):
        low, high = head * shape.width, (head + 1) * shape.width
        query = a.query.data[low:high]
        scores = [_dot(query, a.keys.data[r * line + low : r * line + high]) for r in range(length)]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        for i in range(low, high):
            weighted = sum(w * a.values.data[r * line + i] for r, w in enumerate(weights))
            a.out.data[i] = weighted / sum(weights)


class _Partial:
    """The softmax of one head over the rows seen so far, kept relative to its largest score."""

    def __init__(self, width: int) -> None:
        self.top = -math.inf
        self.total = 0.0
        self.weighted = [0.0] * width

    def add(self, scores: Sequence[float], values: Sequence[Sequence[float]]) -> None:
        """Take in a tile: rescale what was summed to the new largest score, then add."""
        top = max(self.top, *scores)
        scale = math.exp(self.top - top)
        weights = [math.exp(score - top) for score in scores]
        self.top = top
        self.total = self.total * scale + sum(weights)
        self.weighted = [
            old * scale + _dot(weights, column)
            for old, column in zip(self.weighted, zip(*values, strict=True), strict=True)
        ]


def tuned(shape: Shape, a: Arguments, block: int) -> None:
    """Tile by tile; a tile is gathered once and shared by the heads, whose partial results are combined."""
    line = shape.heads * shape.width
    length = int(a.length.data[0])
    heads = [_Partial(shape.width) for _ in range(shape.heads)]
    for begin in range(0, length, block):
        tile = range(begin, min(begin + block, length))
        keys = [a.keys.data[r * line : (r + 1) * line] for r in tile]
        values = [a.values.data[r * line : (r + 1) * line] for r in tile]
        for head, seen in enumerate(heads):
            own = slice(head * shape.width, (head + 1) * shape.width)
            query = a.query.data[own]
            seen.add([_dot(query, key[own]) for key in keys], [value[own] for value in values])
    a.out.data[:] = [x / seen.total for seen in heads for x in seen.weighted]


class Tuner:
    """Finds the fastest variant for a shape the first time that shape is seen, and remembers it.

    The variants are timed on a thread of the tuner's own, so that nothing the caller has queued is in
    the measurement. They are timed on the caller's buffers; the result is overwritten by the real run.
    """

    def __init__(self, recorder: Recorder, say: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._say = say
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tuner")
        self._winners: dict[Shape, int] = {}

    def winner(self, shape: Shape, variants: dict[int, Operation]) -> Operation:
        """The variant to use for this shape."""
        if shape not in self._winners:
            self._winners[shape] = self._thread.submit(self._fastest, variants).result()
            self._say(f"tuned attention for {shape}: block {self._winners[shape]}")
        return variants[self._winners[shape]]

    def _fastest(self, variants: dict[int, Operation]) -> int:
        return min(variants, key=lambda block: self._seconds(variants[block]))

    def _seconds(self, variant: Operation) -> float:
        begin = time.perf_counter()
        self._recorder.launch(variant)
        return time.perf_counter() - begin


class Attention:
    """The attention of a rank: the kernel asked for, and a line in the log when it is first used."""

    def __init__(self, kernel: str, recorder: Recorder, say: Callable[[str], None]) -> None:
        self._kernel = kernel
        self._recorder = recorder
        self._say = say
        self._tuner = Tuner(recorder, say)
        self._used = False

    def launch(self, shape: Shape, arguments: Arguments) -> None:
        """Attend, or record that."""
        self._recorder.launch(self._operation(shape, arguments))
        if not self._used:
            self._used = True
            self._say(f"attention kernel: {self._kernel}")

    def _operation(self, shape: Shape, a: Arguments) -> Operation:
        reads = (a.query, a.keys, a.values, a.length)
        if self._kernel == "stock":
            return Operation("attention", partial(stock, shape, a), reads, (a.out,))
        variants = {
            block: Operation(f"attention[{block}]", partial(tuned, shape, a, block), reads, (a.out,))
            for block in BLOCKS
        }
        return self._tuner.winner(shape, variants)
