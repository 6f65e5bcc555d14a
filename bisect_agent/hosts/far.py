# It runs on Python 3.6 and later, and starts with few imports.
# ruff: noqa: PTH102, PTH105, PTH110, PTH111, PTH112, PTH116, PTH120, PTH123, UP006, UP031, UP035
"""Runs on the far side of an SSH connection: does there, one request at a time, what a `Host` is asked.

    python3 -c LOADER SIZE TOKEN BEAT IDLE        SIZE bytes of source, then requests, on stdin

Linux, Python 3.6 or later, standard library only. Nothing of a request stands in a command line: no
shell reads it, and no pattern of anybody's finds it.

It says TOKEN backwards and a line of JSON about itself. A request is a line with two numbers, the sizes
of a JSON object and of a body, and then both; after each PIECE of them but the last it says "+". While
it works it says "." every BEAT seconds: whoever hears nothing knows that the link is dead. The answer
is "=", a line as that of a request, a JSON object and a body. So an answer is whole, or it is none.

It ends with its input, or after IDLE seconds without a request.
"""

import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Tuple

PIECE = 32768
"""The most bytes sent before the other side is heard: every buffer on the way has room for them."""
LOADER = (
    'import sys; sys.version_info < (3, 6) and sys.exit("Python 3.6 or later is needed, not " + sys.version);'
    " exec(sys.stdin.buffer.read(int(sys.argv[1])))"
)
"""What a command line holds of this program. Between single quotes, every shell passes it on as it is."""
LEFT = 1 << 20
"""The most bytes taken of an output after its command has ended: what a pipe can hold."""
GONE = 2.0
"""Seconds that a killed process gets to be gone."""

Request = Dict[str, Any]
Answer = Tuple[Dict[str, Any], bytes]


def main() -> None:
    """Answers requests until there is no one to answer."""
    token, beat, idle = sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    ended = _children()
    try:
        _say(token[::-1].encode() + json.dumps(_myself()).encode() + b"\n")
        while select.select([0], [], [], idle)[0]:
            head = sys.stdin.buffer.readline().split()
            if not head:
                return
            sizes = [int(size) for size in head]
            payload = _payload(sum(sizes))
            request = json.loads(payload[: sizes[0]].decode())
            answer, body = _beating(beat, request, payload[sizes[0] :], ended)
            said = json.dumps(answer).encode()
            _say(b"=%d %d\n" % (len(said), len(body)) + said + body)
    except BrokenPipeError:
        return


def _children() -> int:
    """A descriptor that can be read when a child has ended."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing)
    return reading


def _myself() -> Dict[str, Any]:
    return {
        "pid": os.getpid(),
        "start": _start(os.getpid()),
        "node": os.uname().nodename,
        "home": os.path.expanduser("~"),
        "python": sys.executable,
        "environment": dict(os.environ),
    }


def _payload(size: int) -> bytes:
    payload = bytearray()
    while len(payload) < size:
        piece = sys.stdin.buffer.read(min(PIECE, size - len(payload)))
        if not piece:
            raise BrokenPipeError
        payload += piece
        if len(payload) < size:
            _say(b"+")
    return bytes(payload)


def _say(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _beating(beat: float, request: Request, body: bytes, ended: int) -> Answer:
    """Carries a request out, and is heard meanwhile."""
    done = threading.Event()

    def say() -> None:
        try:
            while not done.wait(beat):
                _say(b".")
        except OSError:
            return  # Nobody listens any more. A command that runs keeps its time limit all the same.

    beater = threading.Thread(target=say, daemon=True)
    beater.start()
    try:
        return _carry_out(request, body, ended)
    except (OSError, ValueError) as error:
        name = errno.errorcode.get(getattr(error, "errno", None) or 0, "")
        return {"error": name, "text": getattr(error, "strerror", None) or str(error)}, b""
    finally:
        done.set()
        beater.join()


def _carry_out(request: Request, body: bytes, ended: int) -> Answer:
    do = request["do"]
    if do == "run":
        return _run([word.encode("latin-1") for word in request["argv"]], body, request["timeout"], ended)
    if do == "bury":
        return _bury(request["pid"], request["start"])
    path = request["path"].encode("latin-1")
    if do == "read":
        return _read(path, request["offset"], request["size"])
    if do == "stat":
        return _stat(path)
    if do == "put":
        return _put(path, body, request["mode"])
    if do == "rename":
        return _rename(path, request["target"].encode("latin-1"))
    raise ValueError("there is no request " + do)


# --- files ------------------------------------------------------------------------------------------


def _read(path: bytes, offset: int, size: int) -> Answer:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return {"missing": True}, b""
    try:
        return {}, os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)


def _stat(path: bytes) -> Answer:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"missing": True}, b""
    identity = "%d:%d" % (found.st_dev, found.st_ino)
    return {"size": found.st_size, "identity": identity, "mtime": found.st_mtime}, b""


def _put(part: bytes, data: bytes, mode: int) -> Answer:
    _make_folder(os.path.dirname(part))
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    return {}, b""


def _rename(source: bytes, target: bytes) -> Answer:
    os.replace(source, target)
    folder = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return {}, b""


def _make_folder(folder: bytes) -> None:
    missing = []  # type: List[bytes]
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for new in reversed(missing):
        try:
            os.mkdir(new, 0o700)
        except FileExistsError:
            if not os.path.isdir(new):
                raise


def _bury(pid: int, start: int) -> Answer:
    """Ends an earlier one of us whose connection was lost: it may not have heard of that yet."""
    deadline = time.monotonic() + GONE
    while _start(pid) == start and time.monotonic() < deadline:
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return {}, b""


def _start(pid: int) -> int:
    """The start time of a process, in ticks since the boot; 0 where none of that number lives."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in b"ZX" else int(fields[19])


# --- commands ---------------------------------------------------------------------------------------


def _run(argv: List[bytes], given: bytes, timeout: float, ended: int) -> Answer:
    """Runs a command until it has ended; what it left behind may hold its output for ever."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except (FileNotFoundError, PermissionError) as error:
        said = "%s: %s\n" % (os.fsdecode(argv[0]), error.strerror)
        return {"returncode": 127, "stdout": 0}, os.fsencode(said)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    outputs = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with process.stdin, process.stdout, process.stderr:
        for descriptor in (process.stdin.fileno(), *outputs):
            os.set_blocking(descriptor, False)
        if not _feed(process, given, outputs, time.monotonic() + timeout, ended):
            # The group is that of a child that was not waited for: its number cannot be another's.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return {"late": True}, b""
        for descriptor, output in outputs.items():
            limit = len(output) + LEFT
            while len(output) < limit and _take(descriptor, output):
                pass
    out, err = (bytes(output) for output in outputs.values())
    return {"returncode": process.returncode, "stdout": len(out)}, out + err


def _feed(
    process: "subprocess.Popen[bytes]",
    given: bytes,
    outputs: Dict[int, bytearray],
    deadline: float,
    ended: int,
) -> bool:
    """Gives a command its input and takes its outputs until it has ended; False when its time is over."""
    assert process.stdin
    rest = memoryview(given)
    open_outputs = dict(outputs)
    while process.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if not rest and not process.stdin.closed:
            process.stdin.close()
        hungry = [] if process.stdin.closed else [process.stdin.fileno()]
        readable, writable, _ = select.select([ended, *open_outputs], hungry, [], left)
        if ended in readable:
            os.read(ended, 4096)
        for descriptor in [d for d in readable if d in open_outputs]:
            if not _take(descriptor, open_outputs[descriptor]):
                del open_outputs[descriptor]
        if writable:
            try:
                rest = rest[os.write(writable[0], rest[:PIECE]) :]
            except BrokenPipeError:
                rest = memoryview(b"")
    return True


def _take(descriptor: int, output: bytearray) -> bool:
    """Takes what is there of an output; False where there is nothing, or nothing will ever be again."""
    try:
        data = os.read(descriptor, 65536)
    except BlockingIOError:
        return False
    output += data
    return bool(data)


if __name__ == "__main__":
    main()
