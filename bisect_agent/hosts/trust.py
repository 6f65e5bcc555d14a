"""Accepting a host key, once, by a person who compares its fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bisect_agent.errors import TargetError
from bisect_agent.hosts.route import greet, route, travel

SILENCE = 12.0
"""Seconds in which the host answers."""


@dataclass(frozen=True)
class Offer:
    """The key that a host shows.

    Attributes:
        host: its name in the file of known hosts.
        key: kind and fingerprint, as `ssh-keygen -l` prints them.
        state: whether that file knows it, does not, or holds another key of this host.
        file: where it would be written.
        line: what would be written.
    """

    host: str
    key: str
    state: Literal["known", "unknown", "changed"]
    file: Path
    line: str


def offered(address: str, config: Path | None = None) -> Offer:
    """Asks a host for its key. Nothing is written, and nobody is let in.

    Raises:
        UsageError: it is no address.
        TargetError: it cannot be reached; or the key of a jump host before it is not accepted yet.
    """
    *jumps, hop = route(address, config)
    transports = []
    try:
        for transport in travel(tuple(jumps), SILENCE, SILENCE):
            transports.append(transport)  # noqa: PERF402, to be closed even where the way breaks
        greeted = greet(hop, transports[-1] if transports else None, SILENCE, SILENCE)
        transports.append(greeted.transport)
    finally:
        for transport in reversed(transports):
            transport.close()
    key = greeted.key
    line = f"{hop.known_as} {key.get_name()} {key.get_base64()}\n"
    return Offer(hop.known_as, greeted.shown, greeted.state, hop.known_hosts[0], line)


def accept(offer: Offer) -> None:
    """Writes the key to the file of known hosts.

    Raises:
        TargetError: another key of this host is there; or the file cannot be written.
    """
    if offer.state == "known":
        return
    if offer.state == "changed":
        raise TargetError(
            f"{offer.file} holds another key of {offer.host} than {offer.key}",
            f"ask who runs it; only then: ssh-keygen -R '{offer.host}' -f {offer.file}",
        )
    try:
        offer.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = offer.file.read_bytes() if offer.file.exists() else b""
        with offer.file.open("ab") as file:
            file.write(b"" if old.endswith(b"\n") or not old else b"\n")
            file.write(offer.line.encode())
    except OSError as error:
        raise TargetError(
            f"cannot write {offer.file}: {error.strerror}", "make it writable for you"
        ) from error
