"""What is around an attempt: what a look at it shows, and what has changed since another look. Pure.

Trials can be compared only while the machine stays as it is. What must stay (GPUs and their driver, kernel,
packages, code) is the `Fingerprint`, taken before the first trial. What happens in one attempt and says
nothing of the others (a restart of the machine, a fault of a GPU) is told from `Before`, taken before each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bisect_agent.model import Before, Fingerprint, Frozen, Kept, Profile

TOLERANCE = 128
"""MiB of a GPU that may be used after an attempt beside what was used before: less than any process takes."""
LINES = 20
"""The most lines that tell what has changed."""
KERNEL, GPU, PACKAGE, CODE = "kernel", "gpu", "package", "code"
"""What the names of a fingerprint's parts begin with."""
_DRIVER = "driver"
_NONE = "none"

_Row = TypeVar("_Row")


# --- what is said on the target -----------------------------------------------------------------------


class _Said(BaseModel):
    """A part of the answer; what it does not hold was not asked for, or is not there."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Smi(_Said):
    """What nvidia-smi printed; `wrong` says why that is no answer."""

    text: str
    wrong: str


class _Log(_Said):
    last: int | None
    lines: tuple[str, ...]


class _Code(_Said):
    state: Mapping[str, str]
    wrong: Mapping[str, str]


class Left(_Said):
    """What an attempt had left: what was removed, what stays and why, and how many more files stay."""

    removed: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    more: int = 0


class Answer(_Said):
    """All that one look has shown.

    `tagged` are the processes of attempts, by pid: the tag of each. `unseen` are pids that nvidia-smi tells
    of and that are no process there: those of another space of pids.
    """

    boot: str
    kernel: str
    packages: Mapping[str, tuple[str, int]] = Field(default_factory=dict)
    code: _Code = _Code(state={}, wrong={})
    tagged: Mapping[int, str] = Field(default_factory=dict)
    unseen: tuple[int, ...] = ()
    gpus: Smi | None = None
    apps: Smi | None = None
    log: _Log = _Log(last=None, lines=())
    left: Left = Left()


# --- GPUs ---------------------------------------------------------------------------------------------


class Gpu(Frozen):
    """A GPU by nvidia-smi; `used` in MiB and `faults`, its uncorrected memory errors, None where not told."""

    uuid: str
    name: str
    driver: str
    used: int | None
    faults: int | None


class App(Frozen):
    """A process that uses a GPU, and how many MiB of it."""

    uuid: str
    pid: int
    used: int
    name: str


class Gpus(Frozen):
    """The GPUs of a machine and who uses them; `wrong` says why they are not known."""

    gpus: tuple[Gpu, ...] = ()
    apps: tuple[App, ...] = ()
    wrong: str = ""

    def of(self, uuid: str) -> Gpu | None:
        """The GPU of that name."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


def gpus_of(answer: Answer) -> Gpus:
    """The GPUs that a look has shown; none where there is no nvidia-smi."""
    if answer.gpus is None or answer.apps is None:
        return Gpus()
    if wrong := answer.gpus.wrong or answer.apps.wrong:
        return Gpus(wrong=wrong)
    try:
        return Gpus(gpus=tuple(_rows(answer.gpus.text, _gpu)), apps=tuple(_rows(answer.apps.text, _app)))
    except ValueError as error:
        return Gpus(wrong=f"nvidia-smi printed what is no table of GPUs: {error}")


def _rows(text: str, row: Callable[[str], _Row]) -> Iterator[_Row]:
    return (row(line) for line in text.splitlines() if line.strip())


def _gpu(line: str) -> Gpu:
    uuid, name, driver, used, faults = _cells(line, 5)
    if not uuid.startswith(("GPU-", "MIG-")):
        raise ValueError(repr(line[:80]))
    return Gpu(uuid=uuid, name=name, driver=driver, used=_number(used), faults=_number(faults))


def _app(line: str) -> App:
    uuid, pid, used, name = _cells(line, 4)
    return App(uuid=uuid, pid=_number(pid) or 0, used=_number(used) or 0, name=name.rpartition("/")[2])


def _cells(line: str, count: int) -> list[str]:
    """The cells of a row; the last may hold what it likes."""
    cells = [cell.strip() for cell in line.split(",", count - 1)]
    if len(cells) < count:
        raise ValueError(repr(line[:80]))
    return cells


def _number(cell: str) -> int | None:
    """A number; None for `[N/A]` and its like."""
    if cell.isdecimal():
        return int(cell)
    if cell.startswith("["):
        return None
    raise ValueError(repr(cell[:80]))


# --- what must stay -----------------------------------------------------------------------------------


def read(stdout: bytes) -> Answer | None:
    """The answer that was printed; None where it is none."""
    try:
        return Answer.model_validate_json(stdout)
    except ValidationError:
        return None


def fingerprint(answer: Answer, folders: tuple[str, ...], unread: Mapping[str, str]) -> Fingerprint:
    """What must stay; `unread` says why a part is not known, beside what the look itself could not read."""
    gpus = gpus_of(answer)
    parts = {KERNEL: answer.kernel}
    parts |= {f"{GPU} {_DRIVER}": gpu.driver for gpu in gpus.gpus[:1]}
    parts |= {f"{GPU} {gpu.uuid}": gpu.name for gpu in gpus.gpus}
    parts |= {f"{PACKAGE} {name}": _package(*told) for name, told in sorted(answer.packages.items())}
    parts |= {f"{CODE} {path}": state for path, state in answer.code.state.items()}
    wrong = {f"{CODE} {path}": why for path, why in answer.code.wrong.items()}
    wrong |= {GPU: gpus.wrong} if gpus.wrong else {}
    return Fingerprint(parts=parts, folders=folders, unread={**unread, **wrong})


def _package(version: str, installed: int) -> str:
    """A version, and when it was installed: the same one may be put there again with other files."""
    return f"{version} of {datetime.fromtimestamp(installed, UTC):%Y-%m-%dT%H:%M:%SZ}"


def changes(was: Fingerprint, now: Fingerprint) -> tuple[str, ...]:
    """What is another environment, a line each; what was not known before has not changed."""
    found: dict[str, str] = {}
    for name in dict.fromkeys((*was.parts, *now.parts)):
        before, after, group = was.parts.get(name, _NONE), now.parts.get(name, _NONE), _group(name)
        if before == after or group in was.unread:
            continue
        if group in now.unread:
            found[group] = f"{group}: known before, and now not: {now.unread[group]}"
        else:
            found[name] = f"{name}: {before} → {after}"
    return _few(tuple(found.values()))


def _few(lines: tuple[str, ...]) -> tuple[str, ...]:
    more = len(lines) - LINES
    return (*lines[:LINES], f"and {more} more") if more > 0 else lines


def unlike(first: Fingerprint, other: Fingerprint) -> tuple[str, ...]:
    """In what another target differs from the first, a line each; what one of them does not tell is left out.

    Which GPUs they are, and when a package was installed, is each target's own.
    """
    one, two = _kinds(first), _kinds(other)
    hidden = first.unread.keys() | other.unread.keys()
    names = [name for name in dict.fromkeys((*one, *two)) if _group(name) not in hidden]
    return _few(
        tuple(
            f"{name}: {one.get(name, _NONE)} on the first, {two.get(name, _NONE)} here"
            for name in names
            if one.get(name) != two.get(name)
        )
    )


def _kinds(seen: Fingerprint) -> dict[str, str]:
    """A fingerprint without what tells one machine from another that is like it."""
    own = (f"{GPU} GPU-", f"{GPU} MIG-")
    gpus = sorted(kind for name, kind in seen.parts.items() if name.startswith(own))
    parts = {
        name: told.partition(" of ")[0] if _group(name) == PACKAGE else told
        for name, told in seen.parts.items()
        if not name.startswith(own)
    }
    return {**parts, GPU: ", ".join(gpus)}


def _group(name: str) -> str:
    """The part of a fingerprint that is read, or cannot be read, as one."""
    return name if name.startswith(f"{CODE} ") else name.partition(" ")[0]


def has_gpus(seen: Fingerprint) -> bool:
    """Whether there are GPUs, whose memory is waited for after each attempt."""
    return f"{GPU} {_DRIVER}" in seen.parts


def facts(seen: Fingerprint, profile: Profile | None) -> dict[str, str]:
    """The fingerprint as a person reads it: the GPUs, the packages that matter, the code."""
    names = [name for name in seen.parts if name.startswith(f"{GPU} GPU-")]
    kinds = dict.fromkeys(seen.parts[name] for name in names)
    told = {kind: sum(seen.parts[name] == kind for name in names) for kind in kinds}
    driver = seen.parts.get(f"{GPU} {_DRIVER}", "")
    gpus = ", ".join([*(f"{count} × {kind}" for kind, count in told.items()), f"driver {driver}"])
    wanted = [package.name for package in profile.packages] if profile else []
    versions = {name: seen.parts.get(f"{PACKAGE} {name}", "").partition(" ")[0] for name in wanted}
    return {
        **({GPU: gpus} if names else {}),
        **{name: version for name, version in versions.items() if version},
        **{name: state for name, state in seen.parts.items() if name.startswith(f"{CODE} ")},
        **{name: f"not known: {why}" for name, why in seen.unread.items()},
    }


# --- what happens in one attempt ----------------------------------------------------------------------


def before(answer: Answer, tag: str) -> Before:
    """What has to be known from before a start; `tag` is the attempt's own."""
    gpus = gpus_of(answer).gpus
    return Before(
        boot=answer.boot,
        heard=answer.log.last,
        faults={gpu.uuid: gpu.faults for gpu in gpus if gpu.faults is not None},
        memory={gpu.uuid: own for gpu in gpus if (own := _own(answer, gpu, tag)) is not None},
        others=_others(answer, tag),
    )


def happened(was: Before, now: Answer) -> tuple[str, ...]:
    """What has happened to the machine in an attempt, beside what the kernel says of GPUs; a line each."""
    if was.boot != now.boot:
        return (f"the machine was started again: boot {was.boot} → {now.boot}",)
    return tuple(
        f"{GPU} {gpu.uuid}: uncorrected memory errors: {was.faults[gpu.uuid]} → {gpu.faults}"
        for gpu in gpus_of(now).gpus
        if gpu.faults is not None and gpu.faults > was.faults.get(gpu.uuid, gpu.faults)
    )


def held(was: Before, now: Answer, tag: str) -> str:
    """What of the GPUs' memory is not back, with who uses it; empty where all is.

    Memory that processes of other attempts use comes and goes by itself, and is left out of both sides.
    """
    gpus = gpus_of(now)
    if was.memory and gpus.wrong:
        return f"what is used cannot be seen: {gpus.wrong}"
    found = []
    for uuid, used in was.memory.items():
        gpu = gpus.of(uuid)
        own = _own(now, gpu, tag) if gpu else None
        if gpu and own is not None and own > used + TOLERANCE:
            users = ", ".join(f"{app.pid} {app.name}" for app in gpus.apps if app.uuid == uuid)
            found.append(
                f"{gpu.name} {uuid}: {own} MiB used, {used} MiB before;"
                f" {f'by {users}' if users else 'nvidia-smi names no process'}"
            )
    return "; ".join(found)


def unsure(was: Before, now: Answer, tag: str) -> bool:
    """Whether memory may be another attempt's, and nobody tells: in a container, no process may be named."""
    gpus = gpus_of(now)
    nobody = not gpus.wrong and (not gpus.apps or bool(now.unseen))
    return nobody and (was.others or _others(now, tag))


def _own(answer: Answer, gpu: Gpu, tag: str) -> int | None:
    """The MiB in use on a GPU without those of other attempts."""
    if gpu.used is None:
        return None
    theirs = (
        app.used
        for app in gpus_of(answer).apps
        if app.uuid == gpu.uuid and answer.tagged.get(app.pid, tag) != tag
    )
    return max(0, gpu.used - sum(theirs))


def _others(answer: Answer, tag: str) -> bool:
    """Whether processes of other attempts live."""
    return any(other != tag for other in answer.tagged.values())
