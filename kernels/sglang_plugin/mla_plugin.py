"""Decode attention of a real server of sglang, by one of the kernels in the folder above.

This is a plug-in of sglang, which finds it by its entry point once both folders are on PYTHONPATH; nothing of
sglang is edited. It takes models with multi-head latent attention (DeepSeek-V2 and V3) under
`--attention-backend triton`, latents of 512 + 64 numbers in bfloat16, and requests of at most `CONTEXT`
tokens.

MLA_KERNEL   `stock` (the default): sglang's own kernel; or `simt`, `mma`, `hopper`, `tuned`: ours
MLA_FAULT    what is wrong: a name of `FAULTS`; unset: nothing. It is a fault of our kernel, and does nothing
             under the stock one; `compiled-side-stream` alone is of the compiled forward, with either.

At the first call the log says which kernel is called. All shapes and units are those of `reference`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CONTEXT = 2048  # slots that a call looks at, for each query: a graph's shapes are fixed
KERNELS = ("hopper", "mma", "simt", "tuned")
FAULTS = {
    "side-stream": "the kernel waits for a stream whose work no graph holds",
    "cold-tuner": "within a capture, `tuned` knows nothing of what it measured before",
    "read-back": "the kernel reads a value back to the host",
    "shared-memory": "the tile needs more shared memory than a program can have",
    "illegal-address": "the kernel reads where no memory is",
    "out-of-memory": "within a capture, the kernel asks for more memory than any device has",
    "nan": "the result holds no numbers",
    "slow": "a call takes ten milliseconds more",
    "compiled-side-stream": "the compiled forward waits for a stream whose work no graph holds",
}
ATTENTION = "sglang.kernels.ops.attention.decode_attention.decode_attention_fwd"
COMPILED = "sglang.srt.compilation.torch_compile_decoration.patch_model"

Attend = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor", float], "torch.Tensor"]


def register() -> None:
    """Called by sglang in each of its processes, before anything else of it runs.

    Raises:
        ValueError: the environment names a kernel or a fault that there is not.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    kernel, fault = os.environ.get("MLA_KERNEL", "stock"), os.environ.get("MLA_FAULT")
    if kernel not in {"stock", *KERNELS}:
        raise ValueError(f"MLA_KERNEL: stock, or one of {', '.join(KERNELS)}; found {kernel}")
    if fault is not None and fault not in FAULTS:
        raise ValueError(f"MLA_FAULT: one of {', '.join(FAULTS)}; found {fault}")
    HookRegistry.register(ATTENTION, DecodeAttention(kernel, fault), HookType.AROUND)
    if fault == "compiled-side-stream":
        HookRegistry.register(COMPILED, CompiledForward(), HookType.AROUND)


def say(what: str) -> None:
    """One line in the server's log."""
    print(f"[mla-plugin] {what}", flush=True)


class SideStream:
    """A stream of our own, which the current one is made to wait for.

    Within a capture that is `cudaErrorStreamCaptureIsolation`: the graph would depend on work that it does
    not hold. Outside of one it is only slow.
    """

    def __init__(self) -> None:
        self._stream: Any = None
        self._number: Any = None

    def join(self) -> None:
        """Do some work there, and wait for it."""
        import torch

        if self._stream is None:
            self._stream, self._number = torch.cuda.Stream(), torch.zeros(1024, device="cuda")
        with torch.cuda.stream(self._stream):
            self._number.add_(1)
        torch.cuda.current_stream().wait_stream(self._stream)


def slots_of(begins: torch.Tensor, slots: torch.Tensor, count: int) -> torch.Tensor:
    """The slots of each request in a row of its own, as the kernels take them; the rest of a row is -1.

    Args:
        begins: int32 [batch + 1], where the slots of each request begin, and where the last ones end.
        slots: int [any], the slots of all requests, one request after another; what follows is not looked at.
        count: the length of a row; what a request has beyond is left out.

    Returns:
        int32 [batch, count].
    """
    import torch

    place = begins[:-1, None] + torch.arange(count, device=begins.device)
    found = slots[place.clamp(max=len(slots) - 1)]
    return torch.where(place < begins[1:, None], found, -1).int()


class DecodeAttention:
    """Stands around sglang's `decode_attention_fwd`, and calls it, or one of our kernels in its place."""

    def __init__(self, kernel: str, fault: str | None, context: int = CONTEXT) -> None:
        self._kernel = kernel
        self._fault = fault
        self._context = context
        self._attend: Attend | None = None
        self._side = SideStream()
        self._said = False

    def __call__(self, original: Callable[..., None], *given: Any, **named: Any) -> None:  # noqa: ANN401
        """Write the attention of a decode step to its fourth argument."""
        if not self._said:
            say(f"decode attention: {self._kernel}")
            self._said = True
        if self._kernel == "stock":
            original(*given, **named)
            return
        query, cache, _values, out, begins, slots, *_room, scale, key_scale, _value_scale = given
        indices = slots_of(begins[: len(query) + 1], slots, self._context)
        out.copy_(self._called(query.contiguous(), cache, indices, scale * key_scale))

    def _called(
        self, query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """The result of our kernel, with what is wrong with it."""
        import torch

        if self._attend is None:
            self._attend = self._loaded()
        match self._fault:
            case "side-stream":
                self._side.join()
            case "cold-tuner" if self._kernel == "tuned" and torch.cuda.is_current_stream_capturing():
                importlib.import_module("tuned").forget()
            case "read-back":
                query.sum().item()
            case "illegal-address":
                indices = torch.where(indices < 0, indices, indices + (1 << 30))
            case "out-of-memory" if torch.cuda.is_current_stream_capturing():
                torch.empty(1 << 42, dtype=torch.uint8, device=query.device)
            case "slow":
                torch.cuda._sleep(20_000_000)  # noqa: SLF001 - cycles; there is no public name
        result = self._attend(query, cache, indices, scale)
        return torch.full_like(result, torch.nan) if self._fault == "nan" else result

    def _loaded(self) -> Attend:
        kernel = importlib.import_module(self._kernel)
        if self._fault != "shared-memory":
            attend: Attend = kernel.attend
            return attend
        mma = importlib.import_module("mma")
        large = mma.Sizes(heads=16, tokens=256, splits=1, warps=8, stages=2)
        return lambda query, cache, indices, scale: mma.attend(query, cache, indices, scale, large)


class CompiledForward:
    """Stands around sglang's `patch_model`, which gives out the forward of a model, compiled or not."""

    def __init__(self) -> None:
        self._side = SideStream()

    def __call__(
        self, original: Callable[..., AbstractContextManager[Any]], *given: object, **named: object
    ) -> AbstractContextManager[Any]:
        """The compiled forward joins our stream before it runs; the other one is left alone."""
        compiled = named["enable_compile"] if "enable_compile" in named else given[1]
        patched = original(*given, **named)
        return self._joining(patched) if compiled else patched

    @contextmanager
    def _joining(self, patched: AbstractContextManager[Any]) -> Iterator[Callable[..., Any]]:
        with patched as forward:

            def joined(*given: object, **named: object) -> object:
                self._side.join()
                return forward(*given, **named)

            say("the compiled forward waits for a side stream")
            yield joined
