"""A playbook's YAML made into `model.Playbook`, or every mistake in it with its place and its remedy.

A reader that meets a mistake notes it and returns something empty of the right type: `load` raises in
the end, so nothing empty ever leaves this module.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from bisect_agent import library, variables, yamlmarks
from bisect_agent.errors import UsageError
from bisect_agent.model import Configuration, EnvFactor, Factor, FlagsFactor, Kind, Playbook, Setting, Target
from bisect_agent.playbook_factors import (
    FACTORS_EXAMPLE,
    read_factors,
    read_good_and_bad,
    read_hypotheses,
    read_suspects,
)
from bisect_agent.playbook_observe import read_limits, read_observe
from bisect_agent.yamlmarks import START, Field, Mark, Problems, describe, nearest

VERSION = "1"
MAX_BYTES = 1024 * 1024

INHERITED = ("HOME", "PATH", "LANG")
"""What every attempt gets of our environment without being asked."""

DEFAULT_RESTORE: Mapping[Kind, Literal["good", "none"]] = MappingProxyType(
    {Kind.SERVER: "good", Kind.JOB: "none"}
)

_KEYS = (
    "playbook",
    "title",
    "kind",
    "target",
    "pass",
    "launch",
    "launch_file",
    "factors",
    "good",
    "bad",
    "suspects",
    "hypotheses",
    "observe",
    "limits",
    "restore",
)
_LATER = ("profile", "confidence", "causes", "caches", "lease", "notify")

_LAUNCH = 'launch: exec python3 server.py "$@"'


def load(
    path: Path, *, pins: Mapping[str, str] = MappingProxyType({}), ours: Mapping[str, str] | None = None
) -> Playbook:
    """The playbook at `path`, with every default, family and launch file resolved.

    Args:
        path: the YAML file.
        pins: factor → level, set in both `good` and `bad` and no longer suspected.
        ours: our environment, in which every `${NAME}` must be set; by default the process's own.

    Raises:
        PlaybookError: the file cannot be used; every mistake found is in it.
        UsageError: a pin does not fit the playbook.
    """
    problems = Problems(str(path))
    try:
        text = _code(path)
    except _UnusableFileError as error:
        problems.fail(error.mark, f"the playbook {error.found}", error.remedy)
    top = yamlmarks.parse(text, problems)
    playbook = _playbook(top, path, os.environ if ours is None else ours)
    problems.check()
    return _pinned(playbook, pins)


# --- what an attempt gets ---------------------------------------------------------------------------


def environment(playbook: Playbook, configuration: Configuration, ours: Mapping[str, str]) -> dict[str, str]:
    """All variables of an attempt: inherited, then `target.env`, passed, levels; the later ones win.

    Raises:
        UsageError: a `${NAME}` is not set in `ours`.
    """
    values = {name: ours[name] for name in INHERITED if name in ours}
    values |= {name: variables.filled(value, ours) for name, value in playbook.target.env.items()}
    values |= {name: ours[name] for name in playbook.target.passed if name in ours}
    for factor in _env_factors(playbook):
        level = factor.levels[configuration[factor.name]]
        if level is None:
            values.pop(factor.env, None)
        else:
            values[factor.env] = variables.filled(level, ours)
    return values


def arguments(playbook: Playbook, configuration: Configuration) -> tuple[str, ...]:
    """The launch script's `"$@"`: the flags of all factors, in the playbook's order."""
    flags = (factor for factor in playbook.factors if isinstance(factor, FlagsFactor))
    return tuple(flag for factor in flags for flag in factor.levels[configuration[factor.name]])


def secrets_of(playbook: Playbook, ours: Mapping[str, str]) -> dict[str, str]:
    """The values that must never be shown, by the names they have in `ours`.

    These are all that a `${NAME}` brings in, and what is passed under a secret-looking name. The
    inherited variables are none: masking HOME would hide every path of a log.
    """
    levels = (value for factor in _env_factors(playbook) for value in factor.levels.values())
    written = [*playbook.target.env.values(), *(value for value in levels if value is not None)]
    names = [name for value in written for name in variables.references(value)]
    names += [name for name in playbook.target.passed if variables.looks_secret(name)]
    return {name: ours[name] for name in names if name not in INHERITED and ours.get(name)}


def _env_factors(playbook: Playbook) -> Iterator[EnvFactor]:
    return (factor for factor in playbook.factors if isinstance(factor, EnvFactor))


# --- the file ---------------------------------------------------------------------------------------


class _UnusableFileError(Exception):
    """Why a file is not read: the rest of a sentence that begins with its name."""

    def __init__(self, found: str, remedy: str, mark: Mark = START) -> None:
        super().__init__(found)
        self.found = found
        self.remedy = remedy
        self.mark = mark


def _code(path: Path) -> str:
    """The text of a file that says what will be run, once it is sure that no one else can write it."""
    try:
        _check_status(path, path.stat())
        data = path.read_bytes()
    except OSError as error:
        found = f"cannot be read: {error.strerror}"
        raise _UnusableFileError(found, "give the path of a file that you can read") from error
    if b"\0" in data:
        raise _UnusableFileError("is a binary file", "give a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mark = Mark.at(data[: error.start].decode("utf-8-sig", "replace"))
        found = f"is not UTF-8: line {mark.line} holds the byte 0x{data[error.start]:02x}"
        raise _UnusableFileError(found, "save it as UTF-8", mark) from error


def _check_status(path: Path, status: os.stat_result) -> None:
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise _UnusableFileError("is a folder", f"give the file in it, such as {path / 'playbook.yaml'}")
    if not stat.S_ISREG(mode):
        raise _UnusableFileError("is not a regular file", "give a text file")
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private_group(status)):
        raise _UnusableFileError(
            f"can be written by others (mode {stat.S_IMODE(mode):04o}), and what it says will be run",
            f"chmod go-w {shlex.quote(str(path))}",
        )
    if status.st_size > MAX_BYTES:
        raise _UnusableFileError(f"has {status.st_size} bytes, more than {MAX_BYTES}", "make it smaller")


def _is_private_group(status: os.stat_result) -> bool:
    """Whether a file's group is its owner's own and has no other member, as many systems set it up.

    Where that is so, files are made writable by the group, and that group is one person.
    """
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == group.gr_gid and set(group.gr_mem) <= {owner.pw_name}


# --- the whole --------------------------------------------------------------------------------------


def _playbook(top: Field, path: Path, ours: Mapping[str, str]) -> Playbook:
    required = {"playbook": f"playbook: {VERSION}", "factors": FACTORS_EXAMPLE}
    keys = top.section(_KEYS, later=_LATER, required=required, remedy=f"begin with: playbook: {VERSION}")
    if not top.is_mapping:
        top.problems.check()
    _check_version(keys.get("playbook"), top.problems)
    folder = path.parent.resolve()
    kind = Kind(keys["kind"].choice(tuple(Kind))) if "kind" in keys else Kind.SERVER
    factors = read_factors(keys.get("factors"), ours)
    good, bad = read_good_and_bad(top, keys, factors)
    return Playbook(
        title=keys["title"].text("title: what this is about") if "title" in keys else path.stem,
        kind=kind,
        target=_target(top, keys, kind, folder, ours),
        launch=_launch(top, keys, folder, factors),
        factors=factors,
        good=good,
        bad=bad,
        suspects=read_suspects(keys.get("suspects"), good, bad),
        observe=read_observe(top, keys.get("observe"), kind),
        signatures=library.signatures(),
        hypotheses=read_hypotheses(keys.get("hypotheses"), [factor.name for factor in factors]),
        limits=read_limits(keys.get("limits"), kind),
        restore=_restore(keys.get("restore"), DEFAULT_RESTORE[kind]),
    )


def _check_version(version: Field | None, problems: Problems) -> None:
    """Another version's mistakes are not ours to name: nothing else is said about such a file."""
    if version is not None and version.scalar() != VERSION:
        problems.found.clear()
        found = f"`playbook` is the version of the format and must be {VERSION}"
        remedy = f"playbook: {VERSION}, or a release that knows the other version"
        problems.fail(version.mark, f"{found}, found {describe(version.node)}", remedy)


def _restore(field: Field | None, default: Literal["good", "none"]) -> Literal["good", "none"]:
    if field is None:
        return default
    if field.is_mapping:
        field.section((), later=("command",), remedy="restore: good")
        return default
    return "good" if field.choice(("good", "none")) == "good" else "none"


def _pinned(playbook: Playbook, pins: Mapping[str, str]) -> Playbook:
    levels = {factor.name: tuple(factor.levels) for factor in playbook.factors}
    for name, level in pins.items():
        if name not in levels:
            raise UsageError(f"--set {name}={level}: no factor is called `{name}`", nearest(name, levels))
        if level not in levels[name]:
            known = ", ".join(levels[name])
            raise UsageError(f"--set {name}={level}: `{name}` has no level `{level}`", f"one of: {known}")
    settings = [Setting(factor=name, level=level) for name, level in pins.items()]
    good, bad = playbook.good.replace(settings), playbook.bad.replace(settings)
    if good == bad:
        options = " ".join(f"--set {setting}" for setting in settings)
        raise UsageError(f"with {options}, `good` and `bad` are the same", "leave one difference free")
    suspects = tuple(name for name in playbook.suspects if name not in pins)
    return playbook.model_copy(update={"good": good, "bad": bad, "suspects": suspects})


# --- target, launch ---------------------------------------------------------------------------------


def _target(
    top: Field, keys: Mapping[str, Field], kind: Kind, folder: Path, ours: Mapping[str, str]
) -> Target:
    field = keys.get("target")
    known = ("host", "ports", "cwd", "folder", "env", "pass")
    entries = {} if field is None else field.section(known, later=("stop",), remedy="target: {host: local}")
    if "host" in entries:
        _check_host(entries["host"])
    if "ports" not in entries and kind is Kind.SERVER and (field or top).is_mapping:
        found = "a server needs `target.ports`: the first is where health and the request go"
        (field or top).refuse_key(found, "target: {host: local, ports: [30000]}")
    # `pass` stands for the whole environment of the launch, so it is also known outside of `target`.
    passed = [name for holder in (keys, entries) if "pass" in holder for name in _passed(holder["pass"])]
    return Target(
        host="local",
        ports=_ports(entries["ports"], kind) if "ports" in entries else (),
        cwd=_path(entries["cwd"], folder) if "cwd" in entries else str(folder),
        folder=_path(entries["folder"], folder) if "folder" in entries else None,
        env=_target_env(entries["env"], ours) if "env" in entries else {},
        passed=tuple(dict.fromkeys(passed)),
    )


def _check_host(field: Field) -> None:
    host = field.text("host: local")
    if host.startswith("ssh://"):
        field.refuse(f"`{host}`: a host over SSH is not supported yet by this version", "host: local")
    elif host and host != "local":
        field.wrong("local or ssh://…", "host: local")


def _ports(field: Field, kind: Kind) -> tuple[int, ...]:
    items = field.items("ports: [30000]")
    if field.is_empty_list and kind is Kind.SERVER:
        field.refuse("a server needs at least one port", "ports: [30000]")
    ports = [item.count("ports: [30000]") for item in items]
    for item, port in zip(items, ports, strict=True):
        if port > 65535:
            item.refuse(f"there is no port {port}", "a number from 1 to 65535")
    return tuple(dict.fromkeys(ports))


def _path(field: Field, folder: Path) -> str:
    """An absolute path; a relative one is seen from the playbook's folder."""
    path = Path(field.text("the path of a folder"))
    return str(folder / (path.expanduser() if path.parts[:1] == ("~",) else path))


def _target_env(field: Field, ours: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, entry in field.entries("env: {HF_HUB_OFFLINE: 1}").items():
        variables.check_name(name, entry.key, field.problems)
        value = entry.scalar()
        if value is None:
            entry.wrong("text", f'{name}: "" for an empty value')
        else:
            variables.check_value(entry, name, value, ours)
            values[name] = value
    return values


def _passed(field: Field) -> Iterator[str]:
    for item in field.items("pass: [HF_TOKEN]"):
        name = item.text("pass: [HF_TOKEN]")
        variables.check_name(name, item.mark, field.problems)
        yield name


def _launch(top: Field, keys: Mapping[str, Field], folder: Path, factors: Iterable[Factor]) -> str:
    match keys:
        case {"launch": _, "launch_file": field}:
            field.refuse_key("both `launch` and `launch_file` are given", "remove one of the two")
            return ""
        case {"launch": field}:
            script = field.text(_LAUNCH)
        case {"launch_file": field}:
            script = _launch_file(field, folder)
        case _:
            top.refuse_key("there is neither `launch` nor `launch_file`", _LAUNCH)
            return ""
    _check_takes_flags(script, field, [f.name for f in factors if isinstance(f, FlagsFactor) and f.levels])
    return script


def _launch_file(field: Field, folder: Path) -> str:
    name = field.text("launch_file: launch.sh")
    try:
        return _code(folder / name) if name else ""
    except _UnusableFileError as error:
        field.refuse(f"the launch file {name} {error.found}", error.remedy)
        return ""


def _check_takes_flags(script: str, field: Field, factors: Collection[str]) -> None:
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    if script and factors and '"$@"' not in code and '"${@}"' not in code:
        field.refuse(
            f'the launch script has no "$@", so the flags of {", ".join(factors)} would reach nothing',
            f'put "$@", with its quotes, where the arguments go: {_LAUNCH}',
        )
