"""A run folder as one file that travels: a `.tar.gz`, the same bytes whenever it is made."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from bisect_agent.errors import UsageError

SUFFIX = ".tar.gz"
LARGEST = 1 << 30
"""The most bytes unpacked of one archive: a run of fifty attempts has half of it."""
MOST = 10_000
"""The most files unpacked of one."""


def pack(folder: Path, name: str, to: Path) -> None:
    """Writes the files of a folder into a new archive, below one folder of that name."""
    part = to.with_name(f"{to.name}.part")
    with (
        part.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(folder).as_posix()}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    part.rename(to)


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The run folder at a path: itself, or, of an archive, a copy that is there until we leave.

    Raises:
        UsageError: the file is no archive of a run folder.
    """
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="bisect-agent-") as place:
        yield _unpack(path, Path(place))


def _unpack(path: Path, place: Path) -> Path:
    """Unpacks an archive whose writer nobody knows; returns the one folder that it holds.

    Only files are made, only below our own folder, and no more than there is a use for.
    """
    tops, files, size = set(), 0, 0
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            for entry in archive:
                name = PurePosixPath(entry.name)
                if entry.isdir():
                    continue
                if not entry.isfile() or name.is_absolute() or ".." in name.parts or len(name.parts) < 2:
                    raise _unusable(path, f"{entry.name!r} is not a file of a run folder")
                files, size = files + 1, size + entry.size
                if files > MOST or size > LARGEST:
                    raise _unusable(path, f"it holds more than {MOST} files, or more than {LARGEST} bytes")
                tops.add(name.parts[0])
                content = archive.extractfile(entry)
                assert content is not None, "it is a file"
                target = place / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise _unusable(path, str(error)) from error
    if len(tops) != 1:
        raise _unusable(path, f"it holds {len(tops)} folders")
    return place / tops.pop()


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path}: this is no archive of one run folder: {why}",
        f"give a run folder, or what `bisect-agent export --redact RUN --to FILE{SUFFIX}` has written",
    )
