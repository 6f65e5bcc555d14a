"""A small decode server around the kernels: what a playbook needs of a real one, in seconds, without a model.

    python3 kernels/decode_engine.py --kernel mma --compile
    TRITON_INTERPRET=1 python3 kernels/decode_engine.py --kernel tuned --no-warm-up --cpu-graph

It warms up, captures its decode steps, and answers on 127.0.0.1 (`decode_server`). What is in effect stands
in its log before any of it is used, and under /server_info. On a GPU the defaults are DeepSeek-V3's
dimensions on one GPU of eight, with four layers; on a CPU the kernels are interpreted, and the sizes small.
What the options mean for a capture: `decode_steps`; for the model: `decode_model`.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

import decode_model
import decode_steps
import torch
import triton
from decode_server import Scheduler, Server

LARGE = decode_model.Config(
    hidden=7168,
    heads=16,
    head=128,
    rank=1536,
    mlp=2304,
    index_heads=64,
    index_width=128,
    count=2048,
    context=8192,
    page=64,
    batch=64,
)

log = decode_steps.log


def parser() -> argparse.ArgumentParser:
    """The command line."""
    said = argparse.ArgumentParser(description="A small decode server around the kernels.")
    said.add_argument(
        "--port", type=int, default=31920, help="on 127.0.0.1; 0: a free one, which the log names"
    )
    said.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU, where there is one")
    said.add_argument(
        "--kernel", choices=decode_steps.KERNELS, default="mma", help="the file of the attention"
    )
    said.add_argument("--compile", action="store_true", help="the step goes through torch.compile")
    said.add_argument("--no-warm-up", action="store_true", help="nothing is called before it is captured")
    said.add_argument("--no-cuda-graph", action="store_true", help="on a GPU, steps are not captured")
    said.add_argument("--cpu-graph", action="store_true", help="on a CPU, steps are captured, by make_fx")
    said.add_argument("--scale-as-tensor", action="store_true", help="the scale of the scores is a weight")
    said.add_argument("--context-length", type=int, help="places that the indexer scores in each step")
    said.add_argument("--max-running-requests", type=int, help="the largest batch of a step")
    said.add_argument("--index-topk", type=int, help="tokens that the indexer picks")
    for size in ("layers", "heads", "hidden"):
        said.add_argument(f"--{size}", type=int)
    return said


def config(arguments: argparse.Namespace, device: str) -> decode_model.Config:
    """The sizes for a device, with those that were given in their place.

    Raises:
        ValueError: they do not fit each other.
    """
    given = {
        "context": arguments.context_length,
        "batch": arguments.max_running_requests,
        "layers": arguments.layers,
        "heads": arguments.heads,
        "hidden": arguments.hidden,
        "count": arguments.index_topk,
    }
    defaults = LARGE if device == "cuda" else decode_model.Config()
    return dataclasses.replace(defaults, **{name: n for name, n in given.items() if n is not None})


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Starts the engine, and serves until it is ended. Who fails, fails with a traceback and exit code 1."""
    said = parser()
    arguments = said.parse_args(argv)
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu" and not triton.knobs.runtime.interpret:
        said.error("on a CPU the kernels are interpreted: set TRITON_INTERPRET=1")
    if device == "cuda" and arguments.cpu_graph:
        said.error("--cpu-graph: on a GPU, steps are captured in CUDA graphs; try --device cpu")
    try:
        sizes = config(arguments, device)
    except ValueError as reason:
        said.error(str(reason))
    graphs = "cuda" if device == "cuda" and not arguments.no_cuda_graph else "off"
    if arguments.cpu_graph:
        graphs = "cpu"
    logging.basicConfig(format="[%(asctime)s] %(message)s", level=logging.INFO, stream=sys.stdout)
    log.info("torch %s, triton %s, %s", torch.__version__, triton.__version__, device)
    log.info("load weights begin")
    weights = decode_model.weights(sizes, device, scale_as_tensor=arguments.scale_as_tensor)
    steps = decode_steps.Steps(
        sizes, weights, device=device, kernel=arguments.kernel, compiled=arguments.compile, graphs=graphs
    )
    effect = {
        "kernel": arguments.kernel,
        "compile": "on" if arguments.compile else "off",
        "graphs": graphs,
        "warm-up": "off" if arguments.no_warm_up else "on",
        "context length": sizes.context,
    }
    for name, value in effect.items():
        log.info("%s: %s", name, value)
    if not arguments.no_warm_up:
        log.info("warm-up begin")
        steps.warm_up()
    if graphs != "off":
        log.info("capture begin")
        steps.capture()
    scheduler = Scheduler(steps, batch=sizes.batch, pages=sizes.pages, page=sizes.page)
    info = {"arguments": vars(arguments), "effect": effect, "sizes": dataclasses.asdict(sizes)}
    listening = Server(("127.0.0.1", arguments.port), scheduler, sizes.context, info)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    log.info("the engine is ready to answer on port %d", listening.server_port)
    while True:
        scheduler.step()


if __name__ == "__main__":
    main()
