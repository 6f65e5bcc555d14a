"""The host that an address stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bisect_agent.hosts import Host
from bisect_agent.hosts.local import LocalHost

LOCAL = LocalHost.name


@contextmanager
def reach(address: str) -> Iterator[Host]:
    """`local`, or a host over SSH, whose connection ends when we leave.

    Raises:
        UsageError: it is no address.
        TargetError: ssh_config cannot be used.
    """
    if address == LOCAL:
        yield LocalHost()
        return
    from bisect_agent.hosts.ssh import SshHost  # What it imports takes a while to start.

    host = SshHost(address)
    try:
        yield host
    finally:
        host.close()
