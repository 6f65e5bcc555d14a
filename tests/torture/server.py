"""A server that works, or fails with `--compile`. Each start leaves its attempt's tag in `starts`."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Answers everything alike."""

    def do_GET(self) -> None:
        """Health."""
        body = json.dumps({"text": "hello from here"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """A request."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: only what `say` writes is in the log."""


def main(port: str, *flags: str) -> int:
    """Starts, and either serves or fails."""
    with Path("starts").open("a", encoding="utf-8") as starts:
        starts.write(os.environ["BISECT_AGENT_TAG"] + "\n")
    print("loading", flush=True)
    print(f"the kernel is {os.environ['KERNEL']}", flush=True)
    if "--compile" in flags:
        print("FATAL: the compiled mode fails", flush=True)
        return 1
    server = HTTPServer(("127.0.0.1", int(port)), Handler)
    print("ready to answer", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
