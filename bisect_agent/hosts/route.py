"""The way to a host over SSH: its address, what ssh_config says of it, whose key it shows, who we are there.

Every failure is a sentence and what to do about it. A host key that is not known is refused, and one
that has changed is refused in other words; neither is ever tried again.
"""

from __future__ import annotations

import getpass
import glob
import logging
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import IncompatiblePeer

from bisect_agent.errors import TargetError, Unreachable
from bisect_agent.hosts.address import Address

CONFIG = Path("~/.ssh/config")
KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
DEPTH = 8
"""How far files of ssh_config may include one another."""

_RSA = ("rsa-sha2-512", "rsa-sha2-256")
"""The signatures that an RSA key makes today; in the files it is still called ssh-rsa."""

# What the library logs by itself would be printed into our talk: its errors reach us as exceptions.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Hop:
    """One host on the way.

    `written` is what a person calls it; `known_hosts` begins with the user's own file. `only` says that
    no key is offered but those of `keys`, files that exist.
    """

    written: str
    host: str
    port: int
    user: str
    keys: tuple[Path, ...]
    only: bool
    known_hosts: tuple[Path, ...]

    @property
    def known_as(self) -> str:
        """Its name in the files of known hosts."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    @property
    def place(self) -> str:
        """Where we knock."""
        return f"{self.host} port {self.port}"


@dataclass(frozen=True)
class Greeted:
    """A host that has shown its key, and proven that it is its own; nothing was said to it yet."""

    hop: Hop
    transport: paramiko.Transport
    key: paramiko.PKey
    state: Literal["known", "unknown", "changed"]

    @property
    def shown(self) -> str:
        """The key as a person compares it."""
        return f"{self.key.get_name()} {self.key.fingerprint}"


# --- ssh_config -------------------------------------------------------------------------------------


def route(address: str, config: Path | None = None) -> tuple[Hop, ...]:
    """The hosts on the way, the one that was asked for last.

    Args:
        address: as a person writes it.
        config: instead of ~/.ssh/config.

    Raises:
        UsageError: it is no address.
        TargetError: ssh_config cannot be used.
    """
    path = (config or CONFIG).expanduser()
    try:
        parsed = paramiko.SSHConfig.from_text("\n".join(_lines(path, "Host *", DEPTH)))
        return _hops(address, parsed, ())
    except (paramiko.SSHException, ValueError, OSError) as error:
        raise TargetError(
            f"{path} cannot be used: {error}", "correct it; `ssh -G HOST` reads it too"
        ) from error


def _hops(written: str, config: paramiko.SSHConfig, after: tuple[str, ...]) -> tuple[Hop, ...]:
    if written in after:
        raise TargetError(
            f"{written}: in ssh_config, ProxyJump leads back to it", "write ProxyJump none for the jump host"
        )
    options = config.lookup(Address.parse(written).host)
    jump = options.get("proxyjump", "none")
    if jump.lower() == "none" and options.get("proxycommand"):
        raise TargetError(f"{written}: ProxyCommand in ssh_config is not supported", "use ProxyJump there")
    own = _hop(written, config)
    if jump.lower() == "none":
        return (own,)
    first, *rest = (name.strip() for name in jump.split(","))
    # Who stands behind another in the list is reached through that one, whatever else is said of it.
    return (*_hops(first, config, (*after, written)), *(_hop(name, config) for name in rest), own)


def _hop(written: str, config: paramiko.SSHConfig) -> Hop:
    address = Address.parse(written)
    options = config.lookup(address.host)
    files = options.get("userknownhostsfile", " ".join(KNOWN_HOSTS))
    shared = options.get("globalknownhostsfile", SYSTEM_KNOWN_HOSTS)
    keys = [Path(name).expanduser() for name in options.get("identityfile", ())]
    keys = keys or [Path(f"~/.ssh/id_{kind}").expanduser() for kind in ("ed25519", "ecdsa", "rsa")]
    return Hop(
        written=written.removeprefix("ssh://"),
        host=options["hostname"],
        port=address.port or int(options.get("port", 22)),
        user=address.user or options.get("user") or getpass.getuser(),
        keys=tuple(key for key in keys if key.is_file()),
        only=options.get("identitiesonly", "no").lower() == "yes",
        known_hosts=tuple(Path(name).expanduser() for name in shlex.split(f"{files} {shared}")),
    )


def _lines(path: Path, within: str, depth: int) -> Iterator[str]:
    """The lines of a file of ssh_config and of those that it includes, which the library does not follow.

    After an included file, what follows belongs to the same hosts as before it (`within`).
    """
    if depth == 0 or not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in {"host", "match"}:
            within = line
        if word.lower() != "include":
            yield line
            continue
        for pattern in shlex.split(rest):
            for name in sorted(glob.glob(str(path.parent / Path(pattern).expanduser()))):  # noqa: PTH207
                yield from _lines(Path(name), within, depth - 1)
                yield within


# --- the way ----------------------------------------------------------------------------------------


def travel(hops: tuple[Hop, ...], silence: float, patience: float) -> Iterator[paramiko.Transport]:
    """Goes the whole way: each host's transport, once it is who it should be and we are let in.

    Args:
        hops: the way.
        silence: seconds after which a connection on which nothing is acknowledged is dead.
        patience: seconds for each host to let us in.
    """
    through: paramiko.Transport | None = None
    for hop in hops:
        through = _enter(greet(hop, through, silence, patience), patience)
        yield through


def greet(hop: Hop, through: paramiko.Transport | None, silence: float, patience: float) -> Greeted:
    """Reaches one host, by way of the one before it, and sees its key."""
    sock = _knock(hop, silence) if through is None else _tunnel(hop, through, silence)
    ours = _known(hop)
    transport = _transport(sock, {key.get_name() for key in ours}, silence, patience)
    try:
        with within(patience, transport.close), _talking(hop, transport):
            transport.start_client(timeout=patience)
            key = transport.get_remote_server_key()
    except BaseException:
        transport.close()
        raise
    return Greeted(hop, transport, key, "known" if key in ours else "changed" if ours else "unknown")


def _known(hop: Hop) -> list[paramiko.PKey]:
    """The keys that a host may show: a name may have several, for it may be one of several machines."""
    found: list[paramiko.PKey] = []
    for file in hop.known_hosts:
        if not file.is_file():
            continue
        for line in file.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            try:
                entry = HostKeyEntry.from_line(line.strip())
            except (InvalidHostKey, paramiko.SSHException, ValueError):
                continue  # As if it were not there: what it would have allowed is unknown.
            if entry is None or entry.key is None:
                continue
            one = paramiko.HostKeys()
            for name in entry.hostnames or ():
                one.add(name, entry.key.get_name(), entry.key)
            if one.lookup(hop.known_as):
                found.append(entry.key)
    return found


def _enter(greeted: Greeted, patience: float) -> paramiko.Transport:
    hop, transport = greeted.hop, greeted.transport
    try:
        _trust(greeted)
        with within(patience, transport.close), _talking(hop, transport):
            _authenticate(hop, transport)
    except BaseException:
        transport.close()
        raise
    return transport


def _trust(greeted: Greeted) -> None:
    hop = greeted.hop
    trust = f"bisect-agent trust {shlex.quote(hop.written)}"
    if greeted.state == "unknown":
        raise TargetError(
            f"{hop.written}: the host key of {hop.known_as} is not known: {greeted.shown}", trust
        )
    if greeted.state == "changed":
        raise TargetError(
            f"{hop.written}: THE HOST KEY OF {hop.known_as} HAS CHANGED: it shows {greeted.shown}."
            " Somebody may be in between, or the machine was set up anew",
            f"ask who runs it; only then: ssh-keygen -R {shlex.quote(hop.known_as)}"
            f" -f {hop.known_hosts[0]}, then: {trust}",
        )


def _knock(hop: Hop, silence: float) -> socket.socket:
    try:
        sock = socket.create_connection((hop.host, hop.port), timeout=silence)
    except socket.gaierror as error:
        raise Unreachable(
            f"{hop.written}: there is no address of {hop.host}: {error.strerror}",
            "correct the name, or give it a HostName in ssh_config",
        ) from error
    except TimeoutError as error:
        raise Unreachable(
            f"{hop.written}: {hop.place} gave no answer within {silence:g} s",
            "see whether the machine is up, and what stands between",
        ) from error
    except OSError as error:
        raise Unreachable(
            f"{hop.written}: {hop.place} cannot be reached: {error.strerror}",
            "see whether the machine is up, and sshd on that port",
        ) from error
    # Whatever was sent and is not acknowledged in this time has not arrived; without it, that takes minutes.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence * 1000))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _tunnel(hop: Hop, through: paramiko.Transport, silence: float) -> paramiko.Channel:
    try:
        return through.open_channel("direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=silence)
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Unreachable(
            f"{hop.written}: the jump host cannot reach {hop.place}: {_said(error)}",
            "see whether the machine is up, and whether sshd of the jump host allows forwarding",
        ) from error


def _transport(
    sock: socket.socket | paramiko.Channel, known: set[str], silence: float, patience: float
) -> paramiko.Transport:
    transport = paramiko.Transport(sock)
    transport.banner_timeout = transport.auth_timeout = transport.channel_timeout = patience
    transport.clear_to_send_timeout = silence
    transport.set_keepalive(max(1, int(silence / 4)))
    # A key of a kind that is known can be compared; of another kind it would only be unknown.
    wanted = [name for kind in known for name in (_RSA if kind == "ssh-rsa" else (kind,))]
    security = transport.get_security_options()
    can = security.key_types
    security.key_types = sorted(can, key=lambda kind: kind not in wanted)
    return transport


@contextmanager
def _talking(hop: Hop, transport: paramiko.Transport) -> Iterator[None]:
    """What breaks while a host is greeted or lets us in."""
    try:
        yield
    except IncompatiblePeer as error:
        raise TargetError(
            f"{hop.written}: {hop.place} and we have no algorithm in common: {error}",
            "its sshd must be OpenSSH 7.2 or later, or know RSA with SHA-2",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        told = "" if transport.is_active() else "; the connection was ended"
        raise Unreachable(
            f"{hop.written}: {hop.place} accepts connections, but does not let us in: {_said(error)}{told}",
            f"ssh -v {shlex.quote(hop.written)} true",
        ) from error


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


@contextmanager
def within(seconds: float, give_up: Callable[[], None]) -> Iterator[None]:
    """Lets something that waits without a limit of its own be given up after so many seconds."""
    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# --- who we are -------------------------------------------------------------------------------------


def _authenticate(hop: Hop, transport: paramiko.Transport) -> None:
    """Offers our keys until one is accepted."""
    allowed = ["publickey"]
    try:
        transport.auth_none(hop.user)
    except paramiko.BadAuthenticationType as refusal:
        allowed = refusal.allowed_types
    else:
        return
    if "publickey" not in allowed:
        raise TargetError(
            f"{hop.written}: {hop.place} lets {hop.user} in only by {', '.join(allowed)}",
            "allow publickey there: nobody is here at night to type",
        )
    offered: list[str] = []
    unusable: list[str] = []
    with closing(paramiko.Agent()) as agent:
        for name, key in _keys(hop, agent, unusable):
            offered.append(name)
            try:
                further = transport.auth_publickey(hop.user, key)
            except paramiko.BadAuthenticationType as refusal:
                further = refusal.allowed_types
            except paramiko.AuthenticationException:
                if not transport.is_active():
                    raise
                continue
            if transport.is_authenticated():
                return
            raise TargetError(
                f"{hop.written}: after a key, {hop.place} wants {', '.join(further)} of {hop.user} too",
                "allow publickey alone there: nobody is here at night to type",
            )
    said = f"refused {', '.join(offered)}" if offered else "we have no key to offer"
    raise TargetError(
        "; ".join([f"{hop.written}: {hop.place} does not let {hop.user} in: {said}", *unusable]),
        "ssh-add the key that is locked" if unusable else f"ssh-copy-id {_url(hop)}",
    )


def _url(hop: Hop) -> str:
    return shlex.quote(f"ssh://{hop.user}@{hop.host}:{hop.port}")


def _keys(hop: Hop, agent: paramiko.Agent, unusable: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Our keys, each with its name: those of the agent first, for they need no passphrase.

    A server counts what it is offered, so none is offered twice.
    """
    public = {path: _public(path) for path in hop.keys}
    held: set[str] = set()
    for key in agent.get_keys():
        if not hop.only or key.get_base64() in public.values():
            held.add(key.get_base64())
            yield f"{key.comment or key.fingerprint} of the agent", key
    for path in hop.keys:
        if public[path] in held:
            continue
        try:
            own = paramiko.PKey.from_path(path)
        except TypeError:
            unusable.append(f"{path} is locked by a passphrase")
        except (paramiko.SSHException, UnknownKeyType, ValueError, OSError) as error:
            unusable.append(f"{path} cannot be used: {_said(error)}")
        else:
            yield str(path), own


def _public(path: Path) -> str | None:
    """The public half of a key, as far as a file beside it tells."""
    try:
        return Path(f"{path}.pub").read_text(encoding="utf-8").split()[1]
    except (OSError, IndexError, ValueError):
        return None
