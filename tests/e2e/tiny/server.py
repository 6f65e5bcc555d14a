"""The smallest server that can be bisected: it works, or fails with `--fail`.

While a file `hold-works` or `hold-fails` lies in its folder, a start in that mode waits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 <script>alert(1)</script> `code` | cell"
TOKEN = os.environ.get("MY_API_TOKEN", "")


class Handler(BaseHTTPRequestHandler):
    """Answers everything alike."""

    def do_GET(self) -> None:
        """Health."""
        self._answer()

    def do_POST(self) -> None:
        """A request."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    def _answer(self) -> None:
        body = json.dumps({"text": f"hello {TOKEN} {HOSTILE}"}, ensure_ascii=False).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: only what `say` writes is in the log."""


def say(text: str) -> None:
    """A line of the log."""
    print(text, flush=True)


def main() -> int:
    """Hold, then fail or serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    say(f"the token is {TOKEN} and the kernel is {os.environ.get('KERNEL')}")
    say(HOSTILE)
    while Path("hold-fails" if options.fail else "hold-works").exists():
        time.sleep(0.02)
    if options.fail:
        say(f"FATAL: told to fail, with {TOKEN} {HOSTILE}")
        return 1
    server = HTTPServer(("127.0.0.1", options.port), Handler)
    say("ready to answer")
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
