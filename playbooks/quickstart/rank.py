"""One rank: loads its shard, warms up, captures a decode step, and decodes on request."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NoReturn

from attention import Attention
from compiled import Compiled, Eager
from link import Kind, Link, Message
from log import Log, now
from model import CONTEXT, DecodeStep, Weights
from recorder import Recorder
from settings import Environment, ServerArgs

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiled import Pointwise

SHARD_MB = (460, 60, 300, 380)
"""What each rank reads: whole experts are dealt out, so that the shards are far from equal."""
DISK_MB_PER_S = 1000
PEERS_S = 1.0
"""How long a rank that has failed waits for word from the parent before it reports."""

WARM_UP_AS_CONFIGURED = True
"""False: only the eager step is warmed up, and the configured one is first seen at capture."""

ADVICE = """\
Possible solutions:
1. start the server again, a first start may be short of memory
2. close other programs that use this machine's memory
3. disable torch compile by not using --enable-compile
4. disable graph capture by --disable-graph (not recommended, decoding gets much slower)
5. choose another attention kernel by QUICKSTART_KERNEL
6. disable the inner graphs by QUICKSTART_INNER_GRAPHS=0
7. ask in the user forum, with the whole log"""


class Rank:
    """The decoder of one rank, from nothing to a step that can be run."""

    def __init__(self, rank: int, args: ServerArgs, environment: Environment, log: Log) -> None:
        self._rank = rank
        self._args = args
        self._environment = environment
        self._say = log.write
        self._recorder = Recorder()
        self._attention = Attention(environment.kernel, self._recorder, log.write)

    def start(self) -> None:
        """Load, warm up, capture."""
        self._load()
        self._warm_up()
        if self._args.disable_graph:
            self._say("graph capture: off")
            self._run: Callable[[], None] = self._step.launch
        else:
            self._say("graph capture: on")
            self._run = self._capture()

    def decode(self, token: int, position: int) -> list[float]:
        """This rank's logits for the token that follows `token`."""
        self._step.set_input(token, position)
        self._run()
        return self._step.output()

    def _load(self) -> None:
        self._say("Load weight begin.")
        self._weights = Weights(self._rank)
        # Stands for reading the shard from disk.
        time.sleep(SHARD_MB[self._rank] / DISK_MB_PER_S)
        self._step = self._new_step(self._pointwise())
        self._say("Load weight end.")

    def _warm_up(self) -> None:
        self._say("Warm-up begin.")
        step = self._step if WARM_UP_AS_CONFIGURED else self._new_step(Eager(self._recorder))
        step.set_input(token=0, position=CONTEXT - 1)
        step.launch()
        self._say("Warm-up end.")

    def _capture(self) -> Callable[[], None]:
        self._say("Capture decode graph begin.")
        self._step.set_input(token=0, position=CONTEXT - 1)
        try:
            with self._recorder.capture() as graph:
                self._step.launch()
        except RuntimeError as error:
            _give_up(error)
        self._say("Capture decode graph end.")
        return graph.replay

    def _pointwise(self) -> Pointwise:
        inner_graphs = self._environment.inner_graphs
        if self._args.enable_compile:
            return Compiled(self._recorder, inner_graphs=inner_graphs, say=self._say)
        self._say(f"inner graphs: {'on' if inner_graphs else 'off'} (without effect: nothing is compiled)")
        return Eager(self._recorder)

    def _new_step(self, pointwise: Pointwise) -> DecodeStep:
        return DecodeStep(self._weights, self._recorder, self._attention, pointwise)


def _give_up(error: Exception) -> NoReturn:
    """Raise the error that a user is shown, with the one being handled as its context."""
    raise RuntimeError(f"Capture decode graph failed: {error}\n{ADVICE}")


class Process:
    """The process around a rank: takes orders from the parent, and reports a failure."""

    def __init__(self, rank: Rank, log: Log) -> None:
        self._rank = rank
        self._log = log
        self._parent = os.getppid()
        self._orders: SimpleQueue[Message] = SimpleQueue()
        # A rank must not outlive its parent, however that ends: the pipe closes with it.
        self._link = Link(sys.stdin, sys.stdout, self._orders.put, closed=lambda: os._exit(0))

    def run(self) -> int:
        """Start and decode until told to end by a signal; 1 after a failure."""
        try:
            self._serve()
        except Exception:
            self._report(traceback.format_exc().rstrip("\n"), stamp=now())
        return 1

    def _serve(self) -> None:
        self._link.send({"kind": Kind.JOINED})
        self._orders.get()
        self._rank.start()
        self._link.send({"kind": Kind.READY})
        while True:
            order = self._orders.get()
            logits = self._rank.decode(order["token"], order["position"])
            self._link.send({"kind": Kind.LOGITS, "logits": logits})

    def _report(self, chain: str, stamp: str) -> None:
        """Write the report when the parent says so, or when no word comes.

        The record keeps the time of the failure, whenever it is written.
        """
        self._link.send({"kind": Kind.FAILED})
        with contextlib.suppress(Empty):
            while self._orders.get(timeout=PEERS_S)["kind"] != Kind.REPORT:
                pass
        self._log.write(f"Scheduler hit an exception: {chain}\n", stamp)
        self._link.send({"kind": Kind.REPORTED})
        if os.getppid() == self._parent:
            os.kill(self._parent, signal.SIGQUIT)


def main() -> int:
    """Be the rank whose number is the first argument; the others are the server's."""
    # Ctrl-C reaches the whole terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rank = int(sys.argv[1])
    log = Log(rank)
    args = ServerArgs.parse(sys.argv[2:])
    return Process(Rank(rank, args, Environment.read(), log), log).run()


if __name__ == "__main__":
    sys.exit(main())
