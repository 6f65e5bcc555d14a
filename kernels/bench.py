"""Errors and times of the kernels on this GPU, beside FlashMLA's sparse attention where it can be imported.

    python3 kernels/bench.py

A time is the median over replays of a CUDA graph that holds several calls, each with queries and indices of
its own; the latents are drawn from a million tokens, so that no call finds those of another in the L2
cache. Two fractions follow: of the bandwidth of a copy, if every latent were read once, and of the rate of
a bfloat16 matrix product, both measured here first. FlashMLA comes with the wheel `sglang-kernel`; our
results and its are of the same call.

Then whole decode steps of `decode_model`, with DeepSeek-V3's dimensions and four layers. What attention takes
of a step is the difference to a step in which nothing is computed in its place.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import statistics
from collections.abc import Callable
from functools import partial
from types import ModuleType

import decode_model
import hopper
import mma
import reference
import simt
import torch
import triton
import tuned

PAGE = 64
TOKENS = 1 << 20
COUNT = 2048
SCALE = 192**-0.5
CALLS = {1: 40, 4: 20, 16: 6, 64: 3, 256: 2}  # in a graph, by batch: their latents exceed the L2 cache
CHECKED = 4  # queries of a call that are held to the witness

Call = Callable[[int], torch.Tensor]


def median(calls: list[Callable[[], object]], replays: int = 9) -> float:
    """The median time of a call, in µs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # else it could read inputs that are still being made
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(replays + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / len(calls))
    return statistics.median(times[2:])


def copied() -> float:
    """Bytes per µs, read and written, of a large copy by a kernel."""
    source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    return 2 * source.nbytes / median([lambda: torch.add(source, 1.0, out=target)] * 3)


def multiplied() -> float:
    """Operations per µs of a large bfloat16 matrix product."""
    one, other = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / median([lambda: one @ other] * 3)


@functools.cache
def flash_mla() -> ModuleType | None:
    """FlashMLA's module; None where it cannot be imported, which is said once."""
    try:
        importlib.import_module("sgl_kernel.flashmla_ops")
        return importlib.import_module("sgl_kernel.flash_mla")
    except ImportError as reason:
        print(f"FlashMLA is not measured: {reason}")
        return None


def flash(queries: list[torch.Tensor], cache: torch.Tensor, packed: torch.Tensor, slots: list[torch.Tensor]):  # noqa: ANN201
    """FlashMLA's two sparse kernels: the bfloat16 one, made for prefill, and the FP8 one, for decode."""
    mla = flash_mla()
    if mla is None:
        return {}
    batch, heads, _ = queries[0].shape
    plans = [mla.get_mla_metadata()[0] for _ in queries]
    rows = cache.view(-1, 1, reference.WIDTH)
    pages = packed.view(torch.float8_e4m3fn).view(-1, PAGE, 1, reference.PACKED)

    def bf16(i: int) -> torch.Tensor:
        return mla.flash_mla_sparse_fwd(queries[i], rows, slots[i][:, None], SCALE)[0]

    def fp8(i: int) -> torch.Tensor:
        query, picked = queries[i][:, None], slots[i][:, None]
        form = {"is_fp8_kvcache": True, "indices": picked}
        result = mla.flash_mla_with_kvcache(
            query, pages, None, None, reference.LATENT, plans[i], None, SCALE, causal=False, **form
        )
        return result[0].view(batch, heads, -1)

    return {"FlashMLA": bf16, "FlashMLA fp8": fp8}


@dataclasses.dataclass(frozen=True)
class Work:
    """What a call must do at least, and what this GPU can do in a µs."""

    latents: int
    products: int
    bandwidth: float
    rate: float

    def row(self, call: Call, expected: torch.Tensor, calls: int, width: int) -> str:
        """Time, error and the two fractions of a kernel, or why it has none. A latent has `width` bytes."""
        try:
            error = reference.error(call(0)[:CHECKED], expected)
            for i in range(calls):
                call(i)  # some kernels plan at the first call of an input, which a capture would forbid
            time = median([partial(call, i) for i in range(calls)])
        except (RuntimeError, ValueError, AssertionError) as reason:
            return f"none: {str(reason).splitlines()[0][:60]}"
        copy = self.latents * width / time / self.bandwidth
        product = self.products / time / self.rate
        return f"{time:9.1f}  {error:.1e}  {copy:4.0%}  {product:4.0%}"


def decode_step(heads: int, batch: int, context: int) -> Callable[[decode_model.Attend], float]:
    """The time of a decode step in µs, given its attention; every request is at the end of its context."""
    config = decode_model.Config(
        hidden=7168,
        heads=heads,
        head=128,
        rank=1536,
        mlp=18432 * heads // 128,
        index_heads=64,
        index_width=128,
        vocabulary=16160,
        count=COUNT,
        context=context,
        page=PAGE,
        batch=batch,
    )
    weights = decode_model.weights(config, "cuda")
    cache = decode_model.cache(config, "cuda")
    for room in (*cache.latents, *cache.keys):
        room.normal_()
    rows = decode_model.batch(config, batch, "cuda")
    rows.positions.fill_(context - 1)
    rows.pages.copy_(1 + torch.randperm(config.pages - 1, device="cuda").view(batch, -1))
    return lambda attend: median([lambda: decode_model.step(config, attend, weights, cache, rows)])


def decode_row(heads: int, batch: int, context: int) -> str:
    """For each kernel, the time of a decode step and what share of it is attention."""
    step = decode_step(heads, batch, context)
    nothing = torch.zeros(batch, heads, reference.LATENT, device="cuda", dtype=torch.bfloat16)
    without = step(lambda *_: nothing)
    kernels: dict[str, decode_model.Attend] = {
        "simt": partial(simt.attend, splits=16),
        "mma": mma.attend,
        "hopper": hopper.attend,
    }
    times = {name: step(kernel) for name, kernel in kernels.items()}
    shares = [f"{name} {time:8.0f} {1 - without / time:4.0%}" for name, time in times.items()]
    return f"{heads:5} {batch:5} {context:8}  {'  '.join(shares)}  without {without:8.0f}"


def calls() -> None:
    """Prints the two ceilings, and a table with a row for each kernel and shape."""
    bandwidth, rate = copied(), multiplied()
    print(f"copy {bandwidth / 1e6:.2f} TB/s, bf16 matrix product {rate / 1e6:.0f} TFLOP/s")
    print(f"{COUNT} indices of a query, {TOKENS} tokens in the cache")
    print(f"{'':16}{'µs':>9}  error    copy  product")
    cache = torch.randn(TOKENS // PAGE, PAGE, reference.WIDTH, device="cuda", dtype=torch.bfloat16)
    packed = torch.cat([reference.pack(pages) for pages in cache.chunk(16)])
    for heads in (128, 64, 16):
        for batch, count in CALLS.items():
            queries = [
                torch.randn(batch, heads, reference.WIDTH, device="cuda").bfloat16() for _ in range(count)
            ]
            slots = [
                torch.randint(TOKENS, (batch, COUNT), device="cuda", dtype=torch.int32) for _ in range(count)
            ]
            few = queries[0][:CHECKED], slots[0][:CHECKED], SCALE
            exact = reference.attend(few[0], cache, *few[1:])
            rounded = reference.attend(few[0], packed, *few[1:])
            kernels: dict[str, Call] = {
                "hopper": lambda i: hopper.attend(queries[i], cache, slots[i], SCALE),  # noqa: B023
                "mma": lambda i: mma.attend(queries[i], cache, slots[i], SCALE),  # noqa: B023
                "mma fp8": lambda i: mma.attend(queries[i], packed, slots[i], SCALE),  # noqa: B023
                "tuned": lambda i: tuned.attend(queries[i], cache, slots[i], SCALE),  # noqa: B023
                **flash(queries, cache, packed, slots),
            }
            if batch <= 64:
                kernels["simt, split"] = lambda i: simt.attend(queries[i], cache, slots[i], SCALE, 16)  # noqa: B023
            products = 2 * batch * heads * COUNT * (reference.WIDTH + reference.LATENT)
            work = Work(batch * COUNT, products, bandwidth, rate)
            print(f"{heads} heads, batch {batch}")
            for name, call in kernels.items():
                fp8 = "fp8" in name
                expected, width = (rounded, reference.PACKED) if fp8 else (exact, 2 * reference.WIDTH)
                print(f"  {name:14}{work.row(call, expected, count, width)}", flush=True)


def decode_steps() -> None:
    """Prints the times of whole decode steps."""
    print("whole decode steps, 4 layers: µs, and attention's share")
    print("heads batch  context")
    for heads in (128, 64, 16):
        for batch in (1, 16, 64):
            print(decode_row(heads, batch, 8192), flush=True)
    for context in (65_536, 262_144):
        print(decode_row(16, 16, context), flush=True)


def main() -> None:
    """Prints all tables."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    calls()
    decode_steps()


if __name__ == "__main__":
    main()
