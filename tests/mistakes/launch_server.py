"""A server for the scenes: it listens and is healthy at once, and answers requests once it is ready.

Told to end, it says what real servers then say: lines that read like a crash, and are our own doing. With
the variable BYSTANDER set it is somebody else's process of the same command line: it listens nowhere.
"""

import argparse
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

READY = threading.Event()
LAST_WORDS = (
    "[2026-06-17 23:46:56] Subprocess scheduler_0 (pid=7) crashed with exit code -15. Triggering SIGQUIT",
    "Killed",
)


class Handler(BaseHTTPRequestHandler):
    """Answers /health always, anything else with 503 until the server is ready."""

    def do_GET(self) -> None:
        """The health check."""
        self._answer(200, b"ok")

    def do_POST(self) -> None:
        """The request."""
        self._answer(200 if READY.is_set() else 503, b'{"text": "four"}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
        """Writes no line for each request."""


def die(number: int, frame: FrameType | None) -> None:
    """Complains, and ends."""
    del number, frame
    print(*LAST_WORDS, sep="\n", flush=True)
    os._exit(1)


def main() -> None:
    """Serves until it is told to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready-after", type=float, default=0.0)
    options = parser.parse_args()
    if "BYSTANDER" in os.environ:
        time.sleep(60)
        sys.exit()
    signal.signal(signal.SIGTERM, die)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("loading", flush=True)
    time.sleep(options.ready_after)
    READY.set()
    print("The server is fired up and ready to roll!", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
