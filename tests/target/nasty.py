"""A launch script's child with every unpleasant habit of servers: `nasty.py KIND...`.

Each process that is meant to live appends its pid to the file `pids` of its folder, so that a test can
tell who survived without asking the code under test. The port of `port` is in NASTY_PORT. The last kind
may be `leave`: then the first process ends, with status 7, once every child is up.
"""

import ctypes
import os
import platform
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

PR_SET_NAME = 15
SYS_EXIT = {"x86_64": 60, "aarch64": 93}


def note() -> None:
    """Leaves word of this process."""
    descriptor = os.open("pids", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def live() -> NoReturn:
    """Notes itself and stays."""
    note()
    live_on()


def live_on() -> NoReturn:
    """Stays."""
    while True:
        time.sleep(1)


def orphan() -> None:
    """A session of its own, and no parent."""
    os.setsid()
    if os.fork():
        os._exit(0)


def deaf() -> None:
    """Does not end on TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def renamed() -> None:
    """Another name, one that looks like the fields that follow it in /proc."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"sgl) R 1 1 1", 0, 0, 0)


def port() -> None:
    """Listens, deaf and orphaned."""
    orphan()
    deaf()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(os.environ["NASTY_PORT"])))
    listener.listen()
    globals()["kept"] = listener


def cleared() -> None:
    """An orphan in its own session whose environment says nothing."""
    orphan()
    note()
    os.execve("/bin/sleep", ["sleep", "999"], {})  # noqa: S606 - no shell is what is wanted


def forker() -> None:
    """Bears orphans faster than one can look, and ignores TERM."""
    deaf()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    note()
    while True:
        if os.fork() == 0:
            os.setsid()
            note()
            time.sleep(3)
            os._exit(0)
        time.sleep(0.05)


def zombie() -> None:
    """Never takes its child's exit status."""
    if os.fork() == 0:
        os._exit(0)


def wiped() -> None:
    """An orphan that writes over the memory of its environment, as programs do that set a long title."""
    orphan()
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    ctypes.memset(begin, 0, end - begin)


def swarm() -> None:
    """Waits until it is told to, then bears an orphan in a session of its own with no environment."""
    note()
    while not Path("swarm").exists():
        time.sleep(0.005)
    if os.fork() == 0:
        cleared()
    live_on()


def headless() -> None:
    """Its first thread ends, another stays: /proc calls that a zombie."""
    threading.Thread(target=live).start()
    ctypes.CDLL(None).syscall(SYS_EXIT[platform.machine()], 0)


HABITS = {
    "plain": lambda: None,
    "setsid": os.setsid,
    "orphan": orphan,
    "deaf": deaf,
    "renamed": renamed,
    "port": port,
    "cleared": cleared,
    "forker": forker,
    "zombie": zombie,
    "headless": headless,
    "wiped": wiped,
    "swarm": swarm,
}

if __name__ == "__main__":
    kinds = [kind for kind in sys.argv[1:] if kind != "leave"]
    for kind in kinds:
        if os.fork() == 0:
            HABITS[kind]()
            live()
    while not Path("pids").exists() or len(Path("pids").read_text().split()) < len(kinds):
        time.sleep(0.01)
    print("up", flush=True)
    if "leave" in sys.argv:
        os._exit(7)
    live()
