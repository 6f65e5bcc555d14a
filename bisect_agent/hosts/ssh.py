"""A machine reached over SSH.

Nothing is asked of it by way of a shell, nor by SFTP, which knows no inodes, no full disk, no locks and
no time limits. A small program (`far`) is started over there, once for files and as often for commands
as threads ask at a time, and answers requests: as the local host would, by the same calls of the system.
The login shell only has to start Python, so it may be any.

An answer is whole or it did not come. A command that is under way is heard of all the time, so a dead
link is noticed within `silence` seconds, wherever on the way it died.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import paramiko
import tenacity

from bisect_agent.errors import TargetError, Unreachable
from bisect_agent.hosts import Completed, DiskFull, Stat, TimedOut
from bisect_agent.hosts.far import LOADER, PIECE
from bisect_agent.hosts.route import Hop, route, travel, within

SILENCE = 12.0
"""Seconds without a sign of life after which a link is dead."""
IDLE = 1800.0
"""Seconds without a request after which the program on the far side ends."""
NOISE = 65536
"""The most bytes that a login shell may print of its own accord."""

_NO_SPACE = frozenset({"ENOSPC", "EDQUOT"})
_SOURCE = resources.files("bisect_agent.hosts").joinpath("far.py").read_bytes()

_T = TypeVar("_T")


class _Lost(Unreachable):
    """The link broke while an answer was awaited. What was asked may have been done."""


class SshHost:
    """A machine over SSH; safe for several threads.

    It connects when it is first asked, and anew when a link has broken. Reads are then repeated; what
    may have been done is not.

    Args:
        address: `ssh://[user@]host[:port]`, or a name of ssh_config, with or without `ssh://`.
        config: the file of ssh_config; ~/.ssh/config by default.
        python: the target's Python, 3.6 or later.
        silence: seconds without a sign of life after which a link is dead.

    Raises:
        UsageError: it is no address.
        TargetError: ssh_config cannot be used.
    """

    def __init__(
        self, address: str, *, config: Path | None = None, python: str = "python3", silence: float = SILENCE
    ) -> None:
        self.name = address.removeprefix("ssh://")
        self._hops = route(address, config)
        self._python = python
        self._silence = silence
        self._patience = 2.5 * silence
        self._filing = threading.Lock()
        self._linking = threading.Lock()
        self._link: _Link | None = None
        self._last: Mapping[str, Any] | None = None
        self._failure = (0.0, "", "")

    @property
    def home(self) -> str:
        """The home folder of the user there."""
        return str(self._linked().files.myself["home"])

    @property
    def python(self) -> str:
        """The absolute path of the Python there that answers us."""
        return str(self._linked().files.myself["python"])

    @property
    def environment(self) -> Mapping[str, str]:
        """What commands there inherit."""
        environment: Mapping[str, str] = self._linked().files.myself["environment"]
        return environment

    def close(self) -> None:
        """Ends the connection. Whoever asks again connects anew."""
        with self._linking:
            if self._link is not None:
                self._link.close()

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Runs a command until its exit status is known; see `Host.run`.

        It runs in the home folder, with the environment that the login shell gives. Where the link breaks
        before the answer, the command goes on there until it ends or its time is over.
        """
        request = {"do": "run", "argv": [_word(word) for word in argv], "timeout": timeout}
        link = self._linked()
        with self._losing(link, f"run {argv[0]}"), link.commands() as far:
            answer, body = far.ask(request, stdin, timeout + self._patience)
        if answer.get("late"):
            command = shlex.join(argv)
            raise TimedOut(
                f"{self.name}: no exit status of `{command[:200]}` within {timeout:g} s; it was killed"
            )
        self._refuse(f"run {argv[0]}", answer)
        out = answer["stdout"]
        return Completed(answer["returncode"], body[:out], body[out:])

    def put(self, path: str, data: bytes, mode: int = 0o600) -> str:
        """Writes `path + ".part"` durably; see `Host.put`."""
        part = path + ".part"
        self._file(f"write {part}", {"do": "put", "path": _word(part), "mode": mode}, data)
        return part

    def rename(self, source: str, target: str) -> None:
        """Gives a file its name; see `Host.rename`."""
        request = {"do": "rename", "path": _word(source), "target": _word(target)}
        self._file(f"rename {source} to {target}", request)

    def read(self, path: str, offset: int, size: int) -> bytes | None:
        """At most `size` bytes from `offset`, or None where there is no such file."""
        request = {"do": "read", "path": _word(path), "offset": offset, "size": size}
        answer, body = self._again(lambda: self._file(f"read {path}", request))
        return None if answer.get("missing") else body

    def stat(self, path: str) -> Stat | None:
        """The file as it is now, or None where there is no such file."""
        request = {"do": "stat", "path": _word(path)}
        answer, _ = self._again(lambda: self._file(f"look at {path}", request))
        if answer.get("missing"):
            return None
        return Stat(answer["size"], answer["identity"], answer["mtime"])

    # --- asking -------------------------------------------------------------------------------------

    def _file(self, deed: str, request: Mapping[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Asks something about files, once."""
        with self._filing:
            link = self._linked()
            with self._losing(link, deed):
                answer, said = link.files.ask(request, body, self._patience)
        self._refuse(deed, answer)
        return answer, said

    def _refuse(self, deed: str, answer: Mapping[str, Any]) -> None:
        """Raises what the system over there has said against it."""
        if "error" not in answer:
            return
        message = f"{self.name}: cannot {deed}: {answer['text']}"
        if answer["error"] in _NO_SPACE:
            raise DiskFull(message, "free some space there, then resume")
        raise TargetError(message)

    def _again(self, ask: Callable[[], _T]) -> _T:
        """Repeats what changes nothing where the link broke over it; not where it took long to see that."""
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Lost),
            stop=tenacity.stop_after_attempt(3) | tenacity.stop_after_delay(self._silence / 2),
            wait=tenacity.wait_exponential_jitter(multiplier=0.05, max=1),
            reraise=True,
        )(ask)

    @contextmanager
    def _losing(self, link: _Link, deed: str) -> Iterator[None]:
        """A link that gave no answer is not asked again: its next words could be that answer."""
        try:
            yield
        except BaseException as error:
            link.close()
            if not isinstance(error, (_Silence, EOFError, OSError, ValueError, paramiko.SSHException)):
                raise
            said = str(error) or "the connection was ended"
            raise _Lost(
                f"{self.name}: no answer to `{deed}`: {said}", "see whether it can be reached"
            ) from error

    # --- the link -----------------------------------------------------------------------------------

    def _linked(self) -> _Link:
        """The link, made anew where it is broken."""
        begun = time.monotonic()
        with self._linking:
            if self._link is not None and self._link.alive():
                return self._link
            failed, *failure = self._failure
            if failed > begun:  # Another thread has just tried, while we waited for our turn.
                raise Unreachable(*failure)
            try:
                self._link = self._renewed() if self._last else self._again(self._opened)
            except Unreachable as error:
                self._failure = (time.monotonic(), error.message, error.remedy)
                raise
            return self._link

    def _renewed(self) -> _Link:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unreachable),
            stop=tenacity.stop_after_delay(self._silence),
            wait=tenacity.wait_exponential_jitter(multiplier=0.1, max=2),
            reraise=True,
        )(self._opened)

    def _opened(self) -> _Link:
        link = _Link(self.name, self._python, self._silence, self._patience)
        with self._losing(link, "connect"):
            link.open(self._hops)
            self._recognize(link)
            self._bury(link)
        self._last = link.files.myself
        return link

    def _recognize(self, link: _Link) -> None:
        """One name may stand for several machines. What runs on the first would be missed on the second."""
        node = link.files.myself["node"]
        if self._last is not None and node != self._last["node"]:
            raise TargetError(
                f"{self.name}: the connection was lost, and now {node} answers, not {self._last['node']}",
                "give the name of one machine",
            )

    def _bury(self, link: _Link) -> None:
        """Ends the program of the link before this one, which may not have heard that it was given up.

        What it was asked last must not be done after what this one is asked.
        """
        if self._last is not None:
            buried = {"do": "bury", "pid": self._last["pid"], "start": self._last["start"]}
            self._refuse("end our earlier connection", link.files.ask(buried, b"", self._patience)[0])


def _word(text: str) -> str:
    """A word for the system over there, in JSON: each of its bytes as a character."""
    return os.fsencode(text).decode("latin-1")


class _Silence(Exception):
    """Nothing was heard for too long, or what was heard cannot be."""


class _Link:
    """A connection, and the programs that answer at its far end: one for files, idle ones for commands."""

    files: _Far

    def __init__(self, name: str, python: str, silence: float, patience: float) -> None:
        self._name = name
        self._python = python
        self._silence = silence
        self._patience = patience
        self._way: list[paramiko.Transport] = []
        self._turn = threading.Condition()
        self._idle: list[_Far] = []
        self._number = 0
        self._full = False

    def open(self, hops: tuple[Hop, ...]) -> None:
        """Goes the way, and starts the program for files at its end."""
        for transport in travel(hops, self._silence, self._patience):
            self._way.append(transport)
        self.files = self._start()

    def alive(self) -> bool:
        """Whether nothing is known against it."""
        return self._way[-1].is_active() and not self.files.channel.closed

    def close(self) -> None:
        """Ends it; whoever waits for an answer hears that at once."""
        for transport in reversed(self._way):
            transport.close()
        with self._turn:
            self._turn.notify_all()

    @contextmanager
    def commands(self) -> Iterator[_Far]:
        """A program that carries out one command at a time, for one thread alone."""
        far = self._take()
        yield far
        with self._turn:
            self._idle.append(far)
            self._turn.notify()

    def _take(self) -> _Far:
        """An idle one, or a new one; where the server gives no more, one that another thread gives back."""
        with self._turn:
            while self.alive():
                while self._idle:
                    far = self._idle.pop()
                    if not far.channel.closed:
                        return far
                    self._number -= 1
                if not self._full:
                    with suppress(paramiko.ChannelException):
                        far = self._start()
                        self._number += 1
                        return far
                    self._full = True
                if not self._number:
                    raise TargetError(
                        f"{self._name}: its sshd gives us one session and no second",
                        "allow more in its sshd_config: MaxSessions 10",
                    )
                self._turn.wait()
        raise EOFError

    def _start(self) -> _Far:
        """Starts the program over there once more."""
        transport = self._way[-1]
        with within(self._patience, transport.close):
            channel = transport.open_session(timeout=self._patience)
            channel.settimeout(self._patience)
            return _Far(self._name, channel, self._python, self._silence)


class _Far:
    """The program at the far end of a channel. It is asked one thing at a time."""

    def __init__(self, name: str, channel: paramiko.Channel, python: str, silence: float) -> None:
        self.channel = channel
        self._heard = bytearray()
        token = secrets.token_hex(8)
        words = (python, "-I", "-S", "-c", LOADER, str(len(_SOURCE)), token, f"{silence / 4:g}", f"{IDLE:g}")
        # In place of the shell: what was started is then the only thing that must end.
        channel.exec_command(f"exec {shlex.join(words)}")
        with suppress(OSError):  # Whoever hears nothing of it has something to say.
            channel.sendall(_SOURCE)
        self.myself: Mapping[str, Any] = self._greeting(name, python, token[::-1].encode())
        channel.settimeout(silence)

    def ask(self, request: Mapping[str, Any], body: bytes, limit: float) -> tuple[dict[str, Any], bytes]:
        """Asks one thing, and waits for the answer, `limit` seconds and never without a sign of life.

        Raises:
            _Silence: there is none.
        """
        said = json.dumps(request).encode()
        payload = memoryview(said + body)
        self.channel.sendall(b"%d %d\n" % (len(said), len(body)) + payload[:PIECE])
        for begin in range(PIECE, len(payload), PIECE):
            self._expect(b"+")
            self.channel.sendall(bytes(payload[begin : begin + PIECE]))
        deadline = time.monotonic() + limit
        while self._next() == b".":
            if time.monotonic() > deadline:
                raise _Silence(f"it is at work on that for more than {limit:g} s")
            del self._heard[:1]
        self._expect(b"=")
        sizes = [int(size) for size in self._line().split()]
        answer = json.loads(self._bytes(sizes[0]))
        return answer, self._bytes(sizes[1])

    def _greeting(self, name: str, python: str, token: bytes) -> dict[str, Any]:
        """What it says of itself. A login shell may print this and that before."""
        while token not in self._heard:
            try:
                self._fill()
            except EOFError:
                status = self.channel.recv_exit_status()
                if status < 0:
                    raise
                said = bytes(self._heard) + self.channel.recv_stderr(4096)
                raise TargetError(
                    f"{name}: `{python}` does not start there (exit status {status}):"
                    f" {said.decode(errors='replace').strip()[-1000:]}",
                    f"ssh {shlex.quote(name)} {shlex.quote(python)} --version must say 3.6 or later",
                ) from None
            if len(self._heard) > NOISE:
                raise TargetError(f"{name}: its login shell prints on and on", "let it print nothing there")
        del self._heard[: self._heard.index(token) + len(token)]
        myself: dict[str, Any] = json.loads(self._line())
        return myself

    def _next(self) -> bytes:
        while not self._heard:
            self._fill()
        return bytes(self._heard[:1])

    def _expect(self, mark: bytes) -> None:
        found = self._next()
        if found != mark:
            raise _Silence(f"it answers {bytes(self._heard[:80])!r}")
        del self._heard[:1]

    def _line(self) -> bytes:
        while b"\n" not in self._heard:
            self._fill()
        return self._bytes(self._heard.index(b"\n") + 1)

    def _bytes(self, size: int) -> bytes:
        while len(self._heard) < size:
            self._fill()
        taken = bytes(self._heard[:size])
        del self._heard[:size]
        return taken

    def _fill(self) -> None:
        """Waits for more, but not for long."""
        try:
            data = self.channel.recv(1 << 20)
        except TimeoutError:
            raise _Silence(f"nothing was heard for {self.channel.gettimeout():g} s") from None
        if not data:
            raise EOFError
        self._heard += data
