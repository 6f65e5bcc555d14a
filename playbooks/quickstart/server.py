"""A small inference server of four ranks: `python3 server.py --port 31847 [--enable-compile] …`.

This is the parent process: it starts the ranks, brings them together, serves HTTP, and ends everything
when a rank fails or when it is told to stop.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from queue import Empty, SimpleQueue
from typing import assert_never

from api import Api
from link import Kind
from log import Log
from ranks import COUNT, Gone, Ranks, Said
from settings import Environment, ServerArgs

PEERS_END_S = 1.5
"""After a rank has failed: how long the others have to say what they saw, before they are ended."""
FIRST_REQUEST_S = 20.0


@dataclass(frozen=True)
class Signalled:
    """A signal has arrived."""

    number: int


Event = Said | Gone | Signalled


class Parent:
    """Turns what happens to the ranks and to this process into what is done about it."""

    def __init__(self, args: ServerArgs, log: Log) -> None:
        self._args = args
        self._log = log
        self._events: SimpleQueue[Event] = SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, lambda number, _: self._events.put(Signalled(number)))
        self._ranks = Ranks(args, self._events.put)
        self._said: dict[Kind, list[int]] = {kind: [] for kind in Kind}
        self._gone: set[int] = set()
        self._deadline: float | None = None

    def run(self) -> int:
        """Serve until a rank fails (1) or until told to stop (0)."""
        try:
            while (code := self._next()) is None:
                pass
        finally:
            ended = self._ranks.end()
        if ended:
            self._crashed(*ended)
        return code

    def _next(self) -> int | None:
        """Wait for the next event and act on it; an exit code when it is the last one."""
        wait = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            event = self._events.get(timeout=wait)
        except Empty:
            return 1
        match event:
            case Said():
                self._said[event.kind].append(event.rank)
                return self._answer(event)
            case Gone():
                return self._bury(event.rank)
            case Signalled(signal.SIGQUIT):
                self._await_the_end()
                return None
            case Signalled():
                return 0
            case _:
                assert_never(event)

    def _answer(self, event: Said) -> int | None:
        match event.kind:
            case Kind.JOINED if self._all(Kind.JOINED):
                self._ranks.broadcast({"kind": Kind.START})
            case Kind.READY if self._all(Kind.READY):
                return self._open()
            case Kind.FAILED | Kind.READY | Kind.REPORTED:
                self._call_for_reports()
            case _:
                pass
        return None

    def _all(self, kind: Kind) -> bool:
        return len(self._said[kind]) == COUNT

    def _call_for_reports(self) -> None:
        """Let ranks that failed report: the first to fail only when every other has settled.

        Its peers may still see more than it did, and a reader finds the whole story in one place.
        """
        if not self._said[Kind.FAILED]:
            return
        first, *later = self._said[Kind.FAILED]
        settled = {*self._said[Kind.REPORTED], *self._said[Kind.READY], *self._gone, first}
        for rank in [*later, *([first] if len(settled) == COUNT else [])]:
            self._ranks.send(rank, {"kind": Kind.REPORT})

    def _bury(self, rank: int) -> int | None:
        self._gone.add(rank)
        # Its link closes a moment before its process ends.
        pid, code = self._ranks.wait(rank)
        if rank not in self._said[Kind.REPORTED]:
            self._crashed(rank, pid, code)
            os.kill(os.getpid(), signal.SIGQUIT)
        self._call_for_reports()
        return 1 if len(self._gone) == COUNT else None

    def _crashed(self, rank: int, pid: int, code: int) -> None:
        self._log.write(
            f"Subprocess scheduler_{rank} (pid={pid}) crashed with exit code {code}. "
            "Triggering SIGQUIT for cleanup..."
        )

    def _await_the_end(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + PEERS_END_S
            self._log.write("Received sigquit from a child process. It usually means the child failed.")

    def _healthy(self) -> bool:
        return self._all(Kind.READY) and not self._gone and self._deadline is None

    def _open(self) -> int | None:
        """Listen, and let the first request through before anybody is told."""
        try:
            api = Api(self._args.port, self._ranks, self._healthy)
        except OSError as error:
            self._log.write(f"Cannot listen on 127.0.0.1:{self._args.port}: {error.strerror}.")
            return 1
        threading.Thread(target=api.serve_forever, name="http", daemon=True).start()
        threading.Thread(target=self._first_request, name="first-request", daemon=True).start()
        return None

    def _first_request(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._args.port, timeout=FIRST_REQUEST_S)
        try:
            connection.request("POST", "/generate", json.dumps({"prompt": "hello", "max_new_tokens": 4}))
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            self._give_up(f"The first request was not answered: {error}.")
        else:
            if status == HTTPStatus.OK:
                self._log.write("The server is ready to answer.")
            else:
                self._give_up(f"The first request was answered with HTTP status {status}.")

    def _give_up(self, why: str) -> None:
        self._log.write(why)
        os.kill(os.getpid(), signal.SIGQUIT)


def main() -> int:
    """Run the server; its exit code."""
    args = ServerArgs.parse(sys.argv[1:])
    try:
        Environment.read()
    except ValueError as error:
        print(f"server.py: error: {error}", file=sys.stderr)
        return 2
    log = Log()
    log.write(f"server_args={args}")
    return Parent(args, log).run()


if __name__ == "__main__":
    sys.exit(main())
