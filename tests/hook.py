"""A web hook on the loopback: keeps what it is told, and refuses what is sent to `/refuse`."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class Hook:
    """A server for notifications, in a thread of its own."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                """Takes a message, or does not."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                refused = self.path.startswith("/refuse")
                if not refused:
                    hook.got.append(json.loads(body))
                self.send_response(418 if refused else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class's
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def address(self, token: str, path: str = "take") -> str:
        """What a person would export: an address with a secret in it."""
        return f"json://user:{token}@127.0.0.1:{self.port}/{path}/{token}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
