"""Serves, or dies while its graphs are captured when it compiles with the first attention backend."""

from __future__ import annotations

import argparse
import json
import os
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

KERNEL = os.environ.get("SGLANG_KERNEL", "stock")


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
        body = json.dumps({"text": " 10, 11, 12"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: only what `say` writes is in the log."""


def say(text: str) -> None:
    """A line of the log."""
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", flush=True)


def main() -> None:
    """Says its arguments, captures, serves."""
    parser = argparse.ArgumentParser(prog="launch_server.py")
    parser.add_argument("--port", type=int, default=30000, help="The port.")
    parser.add_argument("--attention-backend", choices=["triton", "flashinfer"], help="Attention kernels.")
    parser.add_argument("--enable-torch-compile", action="store_true", help="Compile the model.")
    parser.add_argument("--cuda-graph-max-bs-decode", type=int, help="The largest captured batch.")
    parser.add_argument("--cuda-graph-max-bs-prefill", type=int, help="The largest captured prefill.")
    options = parser.parse_args()
    options.attention_backend = options.attention_backend or "triton"
    shown = ", ".join(f"{name}={value!r}" for name, value in vars(options).items())
    say(f"server_args=ServerArgs(model_path='tiny', {shown})")
    say("Load weight begin. avail mem=1.00 GB")
    say("Capture cuda graph begin. This can take up to several minutes. avail mem=1.00 GB")
    if options.enable_torch_compile and options.attention_backend == "triton":
        raise RuntimeError("CUDA error: dependency created on uncaptured work in another stream")
    server = HTTPServer(("127.0.0.1", options.port), Handler)
    say("The server is fired up and ready to roll!")
    server.serve_forever()


if __name__ == "__main__":
    main()
