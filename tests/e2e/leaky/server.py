"""A server that tells its secrets to whoever can hear: `--fail` makes it die of a child's death.

It shows them in its log, whole and in two writes, in the answers to health and request, in its arguments and
in the names of its processes. Three are in its environment; the fourth, which only looks like one, is in a
file beside it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

PR_SET_NAME = 15
NAMES = ("MY_API_TOKEN", "HIDDEN", "MARKED")
SECRETS = [*(os.environ[name] for name in NAMES), Path("token.txt").read_text(encoding="utf-8").strip()]


class Handler(BaseHTTPRequestHandler):
    """Answers everything with all it knows."""

    def do_GET(self) -> None:
        """Health, and the report of its arguments."""
        self._answer()

    def do_POST(self) -> None:
        """A request."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    def _answer(self) -> None:
        body = json.dumps({"text": "hello", "args": sys.argv, "secrets": SECRETS}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: only what `say` writes is in the log."""


def say(text: str) -> None:
    """A part of the log."""
    sys.stdout.write(text)
    sys.stdout.flush()


def named(secret: str) -> None:
    """Gives this process a secret's beginning as its name, as far as the kernel has room."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, secret.encode(), 0, 0, 0)


def die_named(secret: str) -> None:
    """Bears a child of that name that a signal ends."""
    child = os.fork()
    if not child:
        named(secret)
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(0.5)  # so long it stays a zombie, for whoever looks
    os.waitpid(child, 0)


def main() -> int:
    """Tell, then fail or serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--told", action="append", default=[])
    options = parser.parse_args()
    if not options.told:  # So that its arguments tell them as well.
        told = [f"--told={secret}" for secret in SECRETS]
        os.execv(sys.executable, [sys.executable, *sys.argv, *told])  # noqa: S606 - itself, once more
    named(SECRETS[0])
    for secret in SECRETS:
        say(f"the secret is {secret}\n")
        say(f"in two pieces: {secret[: len(secret) // 2]}")
        time.sleep(0.2)  # longer than the agent waits between two looks
        say(f"{secret[len(secret) // 2 :]}\n")
    if options.fail:
        for secret in SECRETS:
            die_named(secret)
        say(f"FATAL: told to fail, with {' and '.join(SECRETS)}\n")
        raise RuntimeError(*SECRETS)
    server = HTTPServer(("127.0.0.1", options.port), Handler)
    say("ready to answer\n")
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
