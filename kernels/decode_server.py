"""The requests of the decode engine: who runs, with which pages of the cache; and how they come, by HTTP.

| call               | what it does                                                                 |
|--------------------|------------------------------------------------------------------------------|
| `GET /health`      | 200                                                                          |
| `GET /server_info` | what is in effect: arguments, kernel, graphs, sizes                          |
| `GET /throughput`  | steps and tokens since the start, the seconds spent in them, tokens a second |
| `POST /generate`   | `{"prompt": TEXT, "max_new_tokens": N}` gives                                |
|                    | `{"ids": [TOKEN, …], "prompt_tokens": N, "seconds": S}`                      |

A token is a byte. There is no prefill: a prompt's tokens go through decode steps as well.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from decode_steps import Row

Carry = Callable[[Sequence[Row]], list[int]]


@dataclasses.dataclass(eq=False)
class Request:
    """One generation: its tokens so far, how many there are to be, and where the cache holds them."""

    tokens: list[int]
    total: int
    position: int = 0
    pages: list[int] = dataclasses.field(default_factory=list)
    done: threading.Event = dataclasses.field(default_factory=threading.Event)


class Scheduler:
    """Takes requests in their order, and carries out the steps of those that run (continuous batching)."""

    def __init__(self, carry_out: Carry, *, batch: int, pages: int, page: int) -> None:
        self._carry_out = carry_out
        self._batch = batch
        self._page = page
        self._free = list(range(pages - 1, 0, -1))  # not page 0
        self._waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._first: Request | None = None  # of those that wait, for whom there was no room yet
        self._running: list[Request] = []
        self._steps = 0
        self._tokens = 0
        self._seconds = 0.0

    def submit(self, request: Request) -> None:
        """Queues a request; its event tells of its end. Any thread may call this."""
        self._waiting.put(request)

    def throughput(self) -> dict[str, object]:
        """What was done since the start, and how fast; waiting for requests is not counted."""
        each = self._tokens / self._seconds if self._seconds else 0.0
        done = {"steps": self._steps, "tokens": self._tokens, "seconds": self._seconds}
        return {**done, "tokens_per_second": each}

    def _admit(self) -> None:
        """Lets in who fits. A request takes all of its pages at once, so that none can run out of them."""
        while len(self._running) < self._batch:
            if self._first is None:
                try:
                    self._first = self._waiting.get(block=not self._running)
                except queue.Empty:
                    return
            needed = -(-self._first.total // self._page)
            if needed > len(self._free):
                return
            self._first.pages = [self._free.pop() for _ in range(needed)]
            self._running.append(self._first)
            self._first = None

    def step(self) -> None:
        """Waits until somebody runs, and takes each who does a token further."""
        self._admit()
        began = time.monotonic()
        rows = [Row(one.tokens[one.position], one.position, one.pages) for one in self._running]
        found = self._carry_out(rows)
        self._seconds += time.monotonic() - began
        self._steps += 1
        self._tokens += len(found)
        for request, token in zip(self._running, found, strict=True):
            request.position += 1
            if request.position == len(request.tokens):
                request.tokens.append(token)
        for request in [one for one in self._running if len(one.tokens) == one.total]:
            self._running.remove(request)
            self._free += request.pages
            request.done.set()


class Server(ThreadingHTTPServer):
    """The HTTP server of a scheduler; a request and its answer can have `context` tokens."""

    daemon_threads = True
    request_queue_size = 256  # connections that wait: a load of requests comes at once

    def __init__(
        self, address: tuple[str, int], scheduler: Scheduler, context: int, info: Mapping[str, object]
    ) -> None:
        super().__init__(address, Handler)
        self.scheduler = scheduler
        self.context = context
        self.info = info


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def _answer(self, status: HTTPStatus, said: Mapping[str, object]) -> None:
        body = json.dumps(said).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """What is known of the engine."""
        known = {
            "/health": {"ok": True},
            "/server_info": self.server.info,
            "/throughput": self.server.scheduler.throughput(),
        }
        if self.path in known:
            self._answer(HTTPStatus.OK, known[self.path])
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"{self.path}: one of {', '.join(known)}"})

    def do_POST(self) -> None:
        """A generation: the answer comes at its end."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/generate":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"{self.path}: /generate is what can be posted"})
            return
        try:
            request = asked(json.loads(body), self.server.context)
        except ValueError as reason:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(reason)})
            return
        began, prompt = time.monotonic(), len(request.tokens)
        self.server.scheduler.submit(request)
        request.done.wait()
        seconds = time.monotonic() - began
        said = {"ids": request.tokens[prompt:], "prompt_tokens": prompt, "seconds": seconds}
        self._answer(HTTPStatus.OK, said)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Answers are not logged: a load of requests would bury what is."""


def asked(body: object, context: int) -> Request:
    """The request that a body asks for.

    Raises:
        ValueError: it asks for none, or for more tokens than a context holds; the sentence says which.
    """
    match body:
        case {"prompt": str(prompt), "max_new_tokens": int(count)} if prompt and count > 0:
            tokens = list(prompt.encode())
        case _:
            raise ValueError(
                'a prompt and a number of tokens are needed: {"prompt": "a", "max_new_tokens": 8}'
            )
    if len(tokens) + count > context:
        raise ValueError(f"{len(tokens)} and {count} tokens do not fit into a context of {context}")
    return Request(tokens, len(tokens) + count)
