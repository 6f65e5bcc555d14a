"""Lets a server of sglang run on a CPU, and fail there on demand. Python reads this file when it starts.

The folder is put on PYTHONPATH; nothing of sglang is edited. Each part acts when a process of the server
imports the module that it is about, and says so in the log.

PLUGIN_KERNEL     `custom`: Llama's down projection is an operator of our own; `stock`: it is left as it is
PLUGIN_FAULT      what is wrong with that operator: `no-fake`, `nan` or `segfault`; unset: nothing
PLUGIN_CPU_GRAPH  `1`: the attention backend gets the hooks without which sglang cannot capture on this CPU
"""

import os
import sys
from types import ModuleType

from sglang_cpu.imports import AfterImport


def say(what: str) -> None:
    """One line in the server's log."""
    print(f"[plugin] {what}", flush=True)


def describe_operators(module: ModuleType) -> None:
    """Give torchvision the schemas that it expects of its compiled part, where that was built for a GPU."""
    from sglang_cpu import vision

    if vision.describe(module):
        say("torchvision: two operators have a schema, and no code")


def route_kernel(module: ModuleType) -> None:
    """Take the down projection of Llama from the kernel that was asked for."""
    from sglang_cpu import kernel

    if os.environ["PLUGIN_KERNEL"] != "custom":
        say("kernel: stock")
        return
    fault = os.environ.get("PLUGIN_FAULT")
    kernel.route(module, fault)
    say("kernel: custom")
    if fault:
        say(f"fault: {fault}")


def add_graph_hooks(module: ModuleType) -> None:
    """Let the attention backend of this CPU take part in a capture."""
    from sglang_cpu import graph

    graph.add_hooks(module)
    say("CPU graph: the attention backend has hooks that do nothing")


def skip_fake_operators(module: ModuleType) -> None:
    """Leave out fake implementations of operators that only compiled kernels bring."""
    from sglang_cpu import graph

    graph.skip_fake_operators(module)


hooks = {"torchvision.extension": describe_operators}
if "PLUGIN_KERNEL" in os.environ:
    hooks["sglang.srt.models.llama"] = route_kernel
if os.environ.get("PLUGIN_CPU_GRAPH") == "1":
    hooks["sglang.srt.layers.attention.torch_native_backend"] = add_graph_hooks
    hooks["sglang.srt.model_executor.cpu_graph_runner"] = skip_fake_operators
sys.meta_path.insert(0, AfterImport(hooks))
