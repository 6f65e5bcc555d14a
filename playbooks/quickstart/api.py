"""The HTTP side: GET /health, POST /generate."""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any

import tokens
from ranks import RankGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from ranks import Ranks

MAX_NEW_TOKENS = 32
MAX_BODY = 1 << 16


class Api(ThreadingTCPServer):
    """Listens on 127.0.0.1 from the moment it is made; answers once `serve_forever` runs."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, ranks: Ranks, healthy: Callable[[], bool]) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.ranks = ranks
        self.healthy = healthy

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """A client that hangs up is no news; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class BadRequest(ValueError):
    """The request is not one we can answer; the message says what to send."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Api

    def do_GET(self) -> None:
        """Health: 200 while every rank is up."""
        if self.path != "/health":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"no such page: {self.path}; try /health"})
        elif self.server.healthy():
            self._answer(HTTPStatus.OK, {"status": "healthy"})
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unhealthy"})

    def do_POST(self) -> None:
        """Generate."""
        if self.path != "/generate":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"no such page: {self.path}; try /generate"})
            return
        try:
            prompt, max_new_tokens = self._request()
            ids = self.server.ranks.generate(prompt, max_new_tokens)
        except BadRequest as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except RankGone as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        else:
            self._answer(HTTPStatus.OK, {"text": tokens.decode(ids), "output_ids": ids})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Requests are not logged."""

    def _request(self) -> tuple[str, int]:
        wanted = 'send {"prompt": "text", "max_new_tokens": 16}'
        length = int(self.headers.get("Content-Length") or 0)
        try:
            body = json.loads(self.rfile.read(min(length, MAX_BODY)))
        except ValueError as error:
            raise BadRequest(f"the body is not JSON: {wanted}") from error
        match body:
            case {"prompt": str(prompt), "max_new_tokens": int(count)} if 1 <= count <= MAX_NEW_TOKENS:
                return prompt, count
            case {"prompt": str(prompt), **others} if "max_new_tokens" not in others:
                return prompt, MAX_NEW_TOKENS // 2
            case _:
                raise BadRequest(f"{wanted}, with 1 to {MAX_NEW_TOKENS} new tokens")

    def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
