"""Files that say what will be run: a playbook, and what it takes from beside it.

A file that others can write is none of these: whoever writes it decides what runs here.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from pathlib import Path

from bisect_agent.yamlmarks import START, Mark

MAX_BYTES = 1024 * 1024


class UnusableFile(Exception):
    """Why a file is not read: the rest of a sentence that begins with its name."""

    def __init__(self, found: str, remedy: str, mark: Mark = START) -> None:
        super().__init__(found)
        self.found = found
        self.remedy = remedy
        self.mark = mark


def read(path: Path) -> str:
    """The text of a file, once it is sure that no one else can write it.

    Raises:
        UnusableFile: it cannot be read, or must not be.
    """
    try:
        _check_status(path, path.stat())
        data = path.read_bytes()
    except OSError as error:
        found = f"cannot be read: {error.strerror}"
        raise UnusableFile(found, "give the path of a file that you can read") from error
    if b"\0" in data:
        raise UnusableFile("is a binary file", "give a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mark = Mark.at(data[: error.start].decode("utf-8-sig", "replace"))
        found = f"is not UTF-8: line {mark.line} holds the byte 0x{data[error.start]:02x}"
        raise UnusableFile(found, "save it as UTF-8", mark) from error


def _check_status(path: Path, status: os.stat_result) -> None:
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise UnusableFile("is a folder", f"give the file in it, such as {path / 'playbook.yaml'}")
    if not stat.S_ISREG(mode):
        raise UnusableFile("is not a regular file", "give a text file")
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private_group(status)):
        raise UnusableFile(
            f"can be written by others (mode {stat.S_IMODE(mode):04o}), and what it says will be run",
            f"chmod go-w {shlex.quote(str(path))}",
        )
    if status.st_size > MAX_BYTES:
        raise UnusableFile(f"has {status.st_size} bytes, more than {MAX_BYTES}", "make it smaller")


def _is_private_group(status: os.stat_result) -> bool:
    """Whether a file's group is its owner's own and has no other member, as many systems set it up.

    Where that is so, files are made writable by the group, and that group is one person.
    """
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == group.gr_gid and set(group.gr_mem) <= {owner.pw_name}
