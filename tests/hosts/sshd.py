"""A real OpenSSH server on the loopback, with keys, users and an ssh_config of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisect_agent.hosts.ssh import SshHost

SILENCE = 2.0
"""Seconds after which these tests call a link dead."""
_ENV = ("/usr/bin/env",)


@dataclass
class Sshd:
    """A server that runs. `folder` can be entered by every user; `process` is the listener."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    address: str = "127.0.0.1"
    hosts: list[SshHost] = field(default_factory=list)

    def config(self, name: str = "config", user: str = "", **options: str) -> Path:
        """An ssh_config that calls the server `box`."""
        settings = {
            "HostName": self.address,
            "Port": str(self.port),
            "User": user or getpass.getuser(),
            "IdentityFile": str(self.folder / "id"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            **options,
        }
        path = self.folder / name
        path.write_text("Host box inner\n" + "".join(f"  {key} {value}\n" for key, value in settings.items()))
        return path

    def host(self, config: Path | None = None, address: str = "box", silence: float = SILENCE) -> SshHost:
        """A host on it, closed in the end."""
        host = SshHost(address, config=config or self.config(), silence=silence)
        self.hosts.append(host)
        return host

    def sessions(self) -> list[int]:
        """The processes that serve connections, in the order in which they began."""
        known, found = {self.process.pid}, []
        for pid in sorted(int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
            name, parent = _name_and_parent(pid)
            if parent in known and name.startswith("sshd"):
                known.add(pid)
                found.append(pid)
        return found

    def cut(self) -> None:
        """Ends every connection, as a crash would."""
        self._signal(self.sessions(), signal.SIGKILL)

    @contextmanager
    def hole(self, sessions: list[int] | None = None, *, everybody: bool = False) -> Iterator[None]:
        """Lets what serves connections stand still: whatever is sent arrives, and nothing comes back.

        With `everybody`, nobody is let in either.
        """
        sessions = self.sessions() if sessions is None else sessions
        sessions = [self.process.pid, *sessions] if everybody else sessions
        self._signal(sessions, signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(sessions, signal.SIGCONT)

    def _signal(self, sessions: list[int], number: signal.Signals) -> None:
        for pid in sessions:
            with suppress(ProcessLookupError):  # it may have ended by itself meanwhile
                os.kill(pid, number)

    def stop(self) -> None:
        """Ends hosts, connections and server."""
        for host in self.hosts:
            host.close()
        self.process.terminate()
        self.process.wait()
        self.cut()


def _name_and_parent(pid: int) -> tuple[str, int]:
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return "", 0
    return before.partition("(")[2], int(after.split()[1])


@dataclass(frozen=True)
class Network:
    """A network of its own, behind a wire that can be broken; `address` is the far end's."""

    name: str
    near: str
    address: str

    @property
    def inside(self) -> tuple[str, ...]:
        """What a command is begun with that is to run in it."""
        return ("nsenter", f"--net=/run/netns/{self.name}")  # not `ip netns exec`: that hides later mounts

    @contextmanager
    def hole(self) -> Iterator[None]:
        """Lets whatever is answered from there vanish."""
        route = (*_ENV, *self.inside, "ip", "route")
        subprocess.run((*route, "add", "blackhole", f"{self.near}/32"), check=True)
        try:
            yield
        finally:
            subprocess.run((*route, "del", "blackhole", f"{self.near}/32"), check=True)


@contextmanager
def network() -> Iterator[Network]:
    """A new network; only root can make one, with iproute2, where the kernel lets it."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("only root, with iproute2, can make a network")
    number = os.getpid() % 60000
    name, wire, end = f"bisect-{number}", f"ba{number}", f"bb{number}"
    third, fourth = divmod(number % 16000, 64)
    near, far = (f"10.213.{third}.{4 * fourth + host}" for host in (1, 2))
    net = Network(name, near, far)
    steps = (
        ("ip", "netns", "add", name),
        ("ip", "link", "add", wire, "type", "veth", "peer", "name", end, "netns", name),
        ("ip", "addr", "add", f"{near}/30", "dev", wire),
        ("ip", "link", "set", wire, "up"),
        (*net.inside, "ip", "addr", "add", f"{far}/30", "dev", end),
        (*net.inside, "ip", "link", "set", end, "up"),
        (*net.inside, "ip", "link", "set", "lo", "up"),
    )
    try:
        for step in steps:
            made = subprocess.run((*_ENV, *step), capture_output=True, check=False)
            if made.returncode:
                pytest.skip(f"no network can be made here: {made.stderr.decode().strip()}")
        yield net
    finally:
        subprocess.run((*_ENV, "ip", "netns", "del", name), capture_output=True, check=False)


@contextmanager
def server(net: Network | None = None, **options: str) -> Iterator[Sshd]:
    """A server with further settings of sshd_config; skips the test where there is none.

    It listens on the loopback, or at the far end of a network.
    """
    address = net.address if net else "127.0.0.1"
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("there is no sshd here: apt-get install openssh-server")
    folder = Path(tempfile.mkdtemp(prefix="bisect-agent-sshd-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Where a server of root locks itself in.
    for name in ("hostkey", "id"):
        keygen(folder / name)
    shutil.copy(folder / "id.pub", folder / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "Port": str(port),
        "ListenAddress": address,
        "HostKey": str(folder / "hostkey"),
        "AuthorizedKeysFile": str(folder / "authorized"),
        "PidFile": "none",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "StrictModes": "no",
        "MaxStartups": "100",
        "SetEnv": "SHLVL=9",  # bash then reads no ~/.bashrc: what a person has there may take a second
        **options,
    }
    (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    know(folder / "known_hosts", port, folder / "hostkey.pub", address)
    with (folder / "log").open("wb") as log:
        inside = (*_ENV, *net.inside) if net else ()
        command = (*inside, program, "-D", "-e", "-f", str(folder / "sshd_config"))
        process = subprocess.Popen(command, stderr=log)
    sshd = Sshd(folder, port, process, address)
    try:
        _await(sshd)
        yield sshd
    finally:
        sshd.stop()
        shutil.rmtree(folder)


def _await(sshd: Sshd) -> None:
    while sshd.process.poll() is None:
        try:
            socket.create_connection((sshd.address, sshd.port), timeout=1).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    pytest.skip(f"sshd does not start here: {(sshd.folder / 'log').read_text()}")


def keygen(path: Path, passphrase: str = "") -> None:
    """A new key and its public half."""
    command = (*_ENV, "ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path))
    subprocess.run(command, check=True)


def know(known_hosts: Path, port: int, key: Path, address: str = "127.0.0.1") -> None:
    """Writes whose key the server has."""
    known_hosts.write_text(f"[{address}]:{port} {' '.join(key.read_text().split()[:2])}\n")


@contextmanager
def plain_user(sshd: Sshd) -> Iterator[str]:
    """A new user without rights; only root can make one."""
    if os.geteuid():
        pytest.skip("only root can make another user; all other tests run as a plain one")
    name, home = f"bisect-{os.getpid()}", sshd.folder / "home"
    shell = shutil.which("bash") or "/bin/sh"
    make = (
        *_ENV,
        "useradd",
        "--create-home",
        "--home-dir",
        str(home),
        "--shell",
        shell,
        "--password",
        "*",
        name,
    )
    made = subprocess.run(make, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no user can be made here: {made.stderr.decode().strip()}")
    try:
        yield name
    finally:
        sshd.cut()
        subprocess.run((*_ENV, "userdel", "--force", name), capture_output=True, check=False)
