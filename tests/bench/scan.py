"""How fast a log is read: `python tests/bench/scan.py`.

Reads the same bytes twice in one run, with the scanner and with one alternation of all shipped patterns
in Python's `re`, and prints both speeds and their ratio. Exits with 1 below the ratio that is promised.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bisect_agent import library  # noqa: E402  (the checkout is what is measured)
from bisect_agent.model import MatchKind  # noqa: E402
from bisect_agent.signatures import Scanner, Watch  # noqa: E402

PROMISED = 30
SIZE = 30_000_000
READ = 1 << 20  # bytes a read of a log brings
SAMPLES = sorted((ROOT / "logs" / "samples").glob("*.log"))


def log() -> bytes:
    """Mostly what healthy servers write until they are stopped, and among it every recorded log once."""
    healthy = [
        line
        for sample in SAMPLES
        if "good" in sample.name
        for line in sample.read_bytes().partition(b" Subprocess ")[0].splitlines(keepends=True)
        if line.startswith((b"[2026", b"INFO:")) and line.endswith(b"\n")
    ]
    share = SIZE // len(SAMPLES) // (sum(map(len, healthy)) // len(healthy))
    lines = cycle(healthy)
    return b"".join(b"".join(islice(lines, share)) + sample.read_bytes() for sample in SAMPLES)


def scanner_finds(data: bytes) -> int:
    """Lines matched by the scanner, which also reads prefixes, levels and tracebacks."""
    scanner = Scanner([Watch(MatchKind.SIGNATURE, s.id, s.pattern, s.role) for s in library.signatures()])
    found = sum(len(scanner.feed(data[at : at + READ])) for at in range(0, len(data), READ))
    return found + len(scanner.finish())


def alternation_finds(data: bytes) -> int:
    """Places where one of the patterns matches, with `re`; inline flags are made local to their pattern."""
    patterns = (re.sub(r"^\(\?i\)(.*)", r"(?i:\1)", s.pattern) for s in library.signatures())
    alternation = re.compile("|".join(f"(?:{p})" for p in patterns).encode(), re.MULTILINE)
    return sum(1 for _ in alternation.finditer(data))


def speed(find: Callable[[bytes], int], data: bytes, runs: int) -> tuple[float, int]:
    """The best of several runs in MB/s, and how much was found."""
    best, found = float("inf"), 0
    for _ in range(runs):
        begun = time.perf_counter()
        found = find(data)
        best = min(best, time.perf_counter() - begun)
    return len(data) / best / 1e6, found


def main() -> int:
    """Measure both and say so."""
    data = log()
    fast, matches = speed(scanner_finds, data, runs=3)
    slow, places = speed(alternation_finds, data, runs=1)
    print(f"{len(data) / 1e6:.0f} MB, {len(library.signatures())} signatures")
    print(f"scanner      {fast:7.1f} MB/s  {matches} matches")
    print(f"alternation  {slow:7.1f} MB/s  {places} places")
    print(f"ratio        {fast / slow:7.1f}  (promised: {PROMISED})")
    return 0 if fast / slow >= PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
