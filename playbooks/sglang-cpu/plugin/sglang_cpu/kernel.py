"""The custom kernel: a matrix product as an operator of our own, and what can be wrong with it."""

import ctypes
import math
from types import ModuleType
from typing import Any, Protocol

import torch


class Mlp(Protocol):
    """What is used of sglang's `LlamaMLP`."""

    gate_up_proj: Any
    act_fn: Any
    down_proj: Any


def route(llama: ModuleType, fault: str | None) -> None:
    """Let Llama's down projection call the operator.

    Args:
        llama: `sglang.srt.models.llama`.
        fault: `no-fake`: the compiler is not told what the operator gives back, so it fails only under
            torch.compile. `nan`: it gives back no numbers. `segfault`: it reads where no memory is.
    """

    def multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if fault == "segfault":
            ctypes.string_at(0)
        product = x @ weight.t()
        return product * math.nan if fault == "nan" else product

    down_proj = torch.library.custom_op("plugin::down_proj", multiply, mutates_args=())
    if fault != "no-fake":
        down_proj.register_fake(lambda x, weight: x.new_empty(x.shape[0], weight.shape[0]))

    def forward(self: Mlp, x: torch.Tensor, *_args: object, **_named: object) -> torch.Tensor:
        gate_up, _bias = self.gate_up_proj(x)
        return down_proj(self.act_fn(gate_up), self.down_proj.weight)

    llama.LlamaMLP.forward = forward
