"""How a person writes which host is meant."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bisect_agent.errors import UsageError

_ADDRESS = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^\s@:/]+)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s@:/\[\]-][^\s@:/\[\]]*)"
    r"(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True)
class Address:
    """A host as a person writes it; what is None is left to ssh_config."""

    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads `ssh://[user@]host[:port]`, or the same without `ssh://`.

        Raises:
            UsageError: it is no such thing.
        """
        found = _ADDRESS.fullmatch(text)
        port = int(found["port"]) if found and found["port"] else None
        if found is None or port == 0 or (port or 1) > 65535:
            raise UsageError(
                f"`{text}` is no address of a host", "ssh://[user@]host[:port], or a name of ~/.ssh/config"
            )
        return cls(found["host"].strip("[]"), found["user"], port)
