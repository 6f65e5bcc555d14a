"""A playbook's YAML made into `model.Playbook`, or every mistake in it with its place and its remedy.

A reader that meets a mistake notes it and returns something empty of the right type: `load` raises in
the end, so nothing empty ever leaves this module.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from bisect_agent import codefiles, credentials, library, notify, profiles, variables, yamlmarks
from bisect_agent.errors import UsageError
from bisect_agent.hosts.address import Address
from bisect_agent.launches import complaints, left_behind, words
from bisect_agent.model import (
    FIRST,
    Cached,
    Command,
    Configuration,
    EnvFactor,
    Factor,
    FileFactor,
    FlagsFactor,
    Kind,
    Observe,
    OptionFactor,
    Playbook,
    ScriptFactor,
    Setting,
    Signature,
    Target,
)
from bisect_agent.playbook_factors import (
    FACTORS_EXAMPLE,
    read_factors,
    read_good_and_bad,
    read_hypotheses,
    read_suspects,
)
from bisect_agent.playbook_kinds import text_beside
from bisect_agent.playbook_observe import read_limits, read_observe
from bisect_agent.profiles import Loaded, argument_witness, further_ports
from bisect_agent.rates import LEAST_ERROR, MOST_ERROR
from bisect_agent.secrets import SHORTEST
from bisect_agent.signature_files import read_folder
from bisect_agent.yamlmarks import Field, Problems, describe, nearest

VERSION = "1"
HOME = "~"
"""The home folder on the target, where nothing else is said of another machine."""

INHERITED = ("HOME", "PATH", "LANG")
"""What every attempt gets of our environment without being asked."""

DEFAULT_RESTORE: Mapping[Kind, Literal["good", "none"]] = MappingProxyType(
    {Kind.SERVER: "good", Kind.JOB: "none"}
)
FLAKY_LIMITS: Mapping[str, float] = MappingProxyType({"trials": 120})
"""The defaults where a failure may be flaky, and runs are repeated."""
PLAIN = "torch"
"""The profile whose caches are isolated where a playbook asks for that and names no profile, and that
says what is left behind."""

_KEYS = (
    "playbook",
    "title",
    "kind",
    "profile",
    "target",
    "targets",
    "pass",
    "secrets",
    "launch",
    "launch_file",
    "factors",
    "good",
    "bad",
    "suspects",
    "hypotheses",
    "observe",
    "causes",
    "confidence",
    "caches",
    "limits",
    "restore",
    "notify",
)

_TARGETS = "targets: [{host: ssh://gpu-1, ports: [30000]}, {host: ssh://gpu-2, ports: [30000]}]"
_TARGETS_APART = "another host, another port (told by `env`, say), or another `cwd`"
_LAUNCH = 'launch: exec python3 server.py "$@"'
_RESTORE = "restore: {command: systemctl start my-server}"
_CONFIDENCE = "confidence: {error: 0.01}"
_NOTIFY = 'notify: ["${MY_NOTIFY_URL}"]'


def load(
    path: Path,
    *,
    pins: Mapping[str, str] = MappingProxyType({}),
    signatures: Path | None = None,
    ours: Mapping[str, str] | None = None,
) -> Playbook:
    """The playbook at `path`, with every default, family and launch file resolved.

    Args:
        path: the YAML file.
        pins: factor → level, set in both `good` and `bad` and no longer suspected.
        signatures: a folder of further signatures, which stand for shipped ones of the same id.
        ours: our environment, in which every `${NAME}` must be set; by default the process's own.

    Raises:
        PlaybookError: the file cannot be used; every mistake found is in it.
        UsageError: a pin does not fit the playbook, or there are no signatures in that folder.
    """
    problems = Problems(str(path))
    try:
        text = codefiles.read(path)
    except codefiles.UnusableFile as error:
        problems.fail(error.mark, f"the playbook {error.found}", error.remedy)
    top = yamlmarks.parse(text, problems)
    playbook = _playbook(top, path, os.environ if ours is None else ours)
    _refuse_lookalikes(top)
    problems.check()
    folder = read_folder(signatures) if signatures is not None else ()
    return _pinned(_with_signatures(playbook, folder), pins)


def _with_signatures(playbook: Playbook, folder: Sequence[Signature]) -> Playbook:
    """The playbook with further signatures. Its own stand for those of the folder, both for shipped ones."""
    own = {s.id for s in playbook.observe.signatures}
    further = [s for s in folder if s.id not in own]
    own |= {s.id for s in further}
    shipped = [s for s in playbook.signatures if s.id not in own]
    return playbook.model_copy(update={"signatures": (*further, *shipped)})


# --- what an attempt gets ---------------------------------------------------------------------------


def environment(playbook: Playbook, configuration: Configuration, ours: Mapping[str, str]) -> dict[str, str]:
    """All variables of an attempt: inherited, then `target.env`, passed, levels; the later ones win.

    Raises:
        UsageError: a `${NAME}` is not set in `ours`.
    """
    values = plain_environment(playbook, ours)
    for factor in _env_factors(playbook):
        level = factor.levels[configuration[factor.name]]
        if level is None:
            values.pop(factor.env, None)
        else:
            values[factor.env] = variables.filled(level, ours)
    return values


def plain_environment(playbook: Playbook, ours: Mapping[str, str]) -> dict[str, str]:
    """The variables of an attempt before any factor's level.

    Raises:
        UsageError: a `${NAME}` is not set in `ours`.
    """
    values = {name: ours[name] for name in INHERITED if name in ours}
    values |= {name: variables.filled(value, ours) for name, value in playbook.target.env.items()}
    return values | {name: ours[name] for name in playbook.target.passed if name in ours}


def environment_for(target: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """What attempts may take: ours, but what every attempt inherits is the target's own."""
    values = {name: value for name, value in ours.items() if name not in INHERITED}
    return values | {name: target[name] for name in INHERITED if name in target}


def prelude(variables_of: Mapping[str, str], cwd: str) -> str:
    """Shell lines that set up an environment and go to a folder.

    They are given on standard input, where no list of processes shows what secrets they hold.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables_of.items())
    return f"{exports}cd -- {shlex.quote(cwd)} || exit 127\n"


def arguments(playbook: Playbook, configuration: Configuration) -> tuple[str, ...]:
    """The launch script's `"$@"`: the flags and options of all factors, in the playbook's order."""
    return tuple(
        argument
        for factor in playbook.factors
        for argument in arguments_of(factor, configuration[factor.name])
    )


def arguments_of(factor: Factor, level: str) -> tuple[str, ...]:
    """The part of `"$@"` that one factor sets."""
    match factor:
        case FlagsFactor():
            return factor.levels[level]
        case OptionFactor():
            value = factor.levels[level]
            return () if value is None else (factor.option, value)
        case _:
            return ()


def script(playbook: Playbook, configuration: Configuration) -> str:
    """The launch script."""
    scripts = (f.levels[configuration[f.name]] for f in playbook.factors if isinstance(f, ScriptFactor))
    return next(scripts, playbook.launch)


def scripts(playbook: Playbook) -> tuple[str, ...]:
    """Every launch script that may be run."""
    found = [text for f in playbook.factors if isinstance(f, ScriptFactor) for text in f.levels.values()]
    return tuple(found) or (playbook.launch,)


def takes_arguments(script: str) -> bool:
    """Whether a launch script gives what it is given to what it starts."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    quoted = '"$@"' in code or '"${@}"' in code
    return quoted and any("$@" in word or "${@}" in word for word in words(script))


def placed(playbook: Playbook, *homes: str) -> Playbook:
    """The playbook with the home folder of each of its targets in place of `~`.

    Raises:
        UsageError: a file would have another path on another target.
    """
    first, *others = map(_placed_target, playbook.targets.values(), homes)
    for factor in playbook.factors:
        if isinstance(factor, FileFactor) and len({_under(factor.path, home) for home in homes}) > 1:
            found = f"`{factor.path}` of {factor.name} is another path on each target: {', '.join(homes)}"
            raise UsageError(found, "name it from the folder that the launch script runs in, or from /")
    return playbook.model_copy(
        update={
            "target": first,
            "others": tuple(others),
            "factors": tuple(
                factor.model_copy(update={"path": _under(factor.path, homes[0])})
                if isinstance(factor, FileFactor)
                else factor
                for factor in playbook.factors
            ),
        }
    )


def _placed_target(target: Target, home: str) -> Target:
    folder = None if target.folder is None else _under(target.folder, home)
    code = tuple(_under(path, home) for path in target.code)
    return target.model_copy(update={"cwd": _under(target.cwd, home), "folder": folder, "code": code})


def _under(path: str, home: str) -> str:
    """A path with the home folder in place of `~`."""
    return home + path[len(HOME) :] if path == HOME or path.startswith(f"{HOME}/") else path


def files(playbook: Playbook, configuration: Configuration) -> dict[str, str | None]:
    """The files to write before the start, by their absolute paths; None: there must be no such file."""
    return {
        str(Path(playbook.target.cwd) / factor.path): factor.levels[configuration[factor.name]]
        for factor in playbook.factors
        if isinstance(factor, FileFactor)
    }


def secrets_of(playbook: Playbook, ours: Mapping[str, str]) -> dict[str, str]:
    """The values that must never be shown, by the names they have in `ours`.

    These are all that a `${NAME}` brings in, also under `notify`, what is passed under a secret-looking
    name, and what the playbook says. The inherited variables are none: masking HOME would hide every path
    of a log. Nor is what only turns something on.
    """
    levels = (value for factor in _env_factors(playbook) for value in factor.levels.values())
    targets = playbook.targets.values()
    written = [value for target in targets for value in target.env.values()]
    written += [value for value in levels if value is not None]
    names = [name for value in written for name in variables.references(value)]
    names += [name for target in targets for name in target.passed if variables.looks_secret(name)]
    names += [*(name for target in targets for name in target.secrets), *playbook.notify]
    return {
        name: ours[name]
        for name in names
        if name not in INHERITED and not variables.is_switch(ours.get(name, ""))
    }


def notified(playbook: Playbook, ours: Mapping[str, str]) -> dict[str, str]:
    """The addresses of those who are told of the end, by the names they have in `ours`."""
    return {name: ours[name] for name in playbook.notify if ours.get(name)}


def _env_factors(playbook: Playbook) -> Iterator[EnvFactor]:
    return (factor for factor in playbook.factors if isinstance(factor, EnvFactor))


# --- the whole --------------------------------------------------------------------------------------


def _playbook(top: Field, path: Path, ours: Mapping[str, str]) -> Playbook:
    required = {"playbook": f"playbook: {VERSION}", "factors": FACTORS_EXAMPLE}
    keys = top.section(_KEYS, required=required, remedy=f"begin with: playbook: {VERSION}")
    if not top.is_mapping:
        top.problems.check()
    _check_version(keys.get("playbook"), top.problems)
    folder = path.parent.resolve()
    profile = _profile(keys["profile"]) if "profile" in keys else None
    kind = _kind(keys.get("kind"), profile)
    factors = read_factors(keys.get("factors"), kind, folder, ours)
    good, bad = read_good_and_bad(top, keys, factors)
    suspects = read_suspects(keys.get("suspects"), good, bad)
    varied = [*(setting.factor for setting in bad.differs(good)), *suspects]
    launch = _launch(top, keys, kind, folder, factors)
    places = _places(keys)
    targets = [
        _with_further_ports(_target(place, top, keys, kind, folder, ours), profile, launch, factors)
        for place in places
    ]
    _keep_apart(places, targets, kind)
    target, *others = targets or [Target(host="local", cwd=str(folder))]
    families = profile.families if profile else ()
    cached = _cached(keys.get("caches"), profile)
    limits = FLAKY_LIMITS if "confidence" in keys else {}
    return Playbook(
        title=keys["title"].text("title: what this is about") if "title" in keys else path.stem,
        kind=kind,
        target=target,
        others=tuple(others),
        launch=launch,
        factors=_witnessed(factors, profile),
        good=good,
        bad=bad,
        suspects=suspects,
        observe=read_observe(top, keys.get("observe"), kind, _watched(profile, keys.get("limits"))),
        signatures=library.signatures(),
        hypotheses=read_hypotheses(keys.get("hypotheses"), factors, varied, families),
        limits=read_limits(keys.get("limits"), kind, {**limits, **(profile.limits if profile else {})}),
        restore=_restore(keys.get("restore"), DEFAULT_RESTORE[kind]),
        profile=profile.profile if profile else None,
        caches=_caches(cached, profile, targets, factors),
        cached=cached,
        leaves=(profile or profiles.load(PLAIN)).profile.leaves,
        error=_error(keys["confidence"]) if "confidence" in keys else None,
        every_cause="causes" in keys and keys["causes"].choice(("1", "all")) == "all",
        notify=_notify(keys["notify"], ours) if "notify" in keys else (),
    )


def _error(field: Field) -> float | None:
    """How often a verdict on a flaky failure may be wrong."""
    keys = field.section(("error",), required={"error": "error: 0.01"}, remedy=_CONFIDENCE)
    return keys["error"].share(LEAST_ERROR, MOST_ERROR, "error: 0.01") if "error" in keys else None


def _profile(field: Field) -> Loaded | None:
    known = profiles.names()
    name = field.text(f"profile: {known[0]}")
    if name in known:
        return profiles.load(name)
    if name:
        field.refuse(f"no profile is called `{name}`", nearest(name, known))
    return None


def _kind(field: Field | None, profile: Loaded | None) -> Kind:
    if field is not None:
        return Kind(field.choice(tuple(Kind)))
    return profile.kind if profile else Kind.SERVER


def _witnessed(factors: Sequence[Factor], profile: Loaded | None) -> tuple[Factor, ...]:
    """The factors; one without a witness gets the stack's own report of its arguments, where there is one."""
    shown = profile.profile.shown if profile else None
    if shown is None:
        return tuple(factors)
    return tuple(
        factor
        if factor.witness is not None
        else factor.model_copy(update={"witness": argument_witness(shown, factor)})
        for factor in factors
    )


def _watched(profile: Loaded | None, limits: Field | None) -> Observe | None:
    """How the profile watches its stack; a playbook that names `limits.quiet` means it of every phase."""
    if profile is None or limits is None or not limits.has_any(("quiet",)):
        return profile.observe if profile else None
    phases = tuple(phase.model_copy(update={"quiet": None}) for phase in profile.observe.phases)
    return profile.observe.model_copy(update={"phases": phases})


def _with_further_ports(
    target: Target, profile: Loaded | None, launch: str, factors: Sequence[Factor]
) -> Target:
    """The target, with the ports that the stack takes beside the declared ones."""
    if profile is None:
        return target
    given = [argument for f in factors for level in f.levels for argument in arguments_of(f, level)]
    found = further_ports(profile, launch, given)
    return target.model_copy(update={"ports": tuple(dict.fromkeys((*target.ports, *found)))})


def _cached(field: Field | None, profile: Loaded | None) -> Cached:
    """Whether every attempt has caches of its own."""
    fresh = profile is not None if field is None else field.choice(("fresh", "shared")) == "fresh"
    return "fresh" if fresh else "shared"


def _caches(
    cached: Cached, profile: Loaded | None, targets: Sequence[Target], factors: Sequence[Factor]
) -> Mapping[str, str]:
    """The cache folders of each attempt; a variable that the playbook sets itself stays as it says."""
    if cached == "shared":
        return {}
    known = (profile or profiles.load(PLAIN)).profile.caches
    own = {name for target in targets for name in (*target.env, *target.passed)}
    own |= {factor.env for factor in factors if isinstance(factor, EnvFactor)}
    return {variable: name for variable, name in known.items() if variable not in own}


def _refuse_lookalikes(top: Field) -> None:
    """What looks like a secret may stand nowhere in a playbook: its text is copied, quoted and reported."""
    blamed = {problem.line for problem in top.problems.found if "looks like" in problem.found}
    for field in top.scalars():
        text = field.scalar() or ""
        for line, part in enumerate(text.split("\n"), 1):
            if credentials.looks_like_one(part) and field.place(line).line not in blamed:
                field.refuse_line(line, "this looks like a secret, and is written out", variables.KEEP_OUT)


def _check_version(version: Field | None, problems: Problems) -> None:
    """Another version's mistakes are not ours to name: nothing else is said about such a file."""
    if version is not None and version.scalar() != VERSION:
        problems.found.clear()
        found = f"`playbook` is the version of the format and must be {VERSION}"
        remedy = f"playbook: {VERSION}, or a release that knows the other version"
        problems.fail(version.mark, f"{found}, found {describe(version.node)}", remedy)


def _restore(field: Field | None, default: Literal["good", "none"]) -> Literal["good", "none"] | Command:
    if field is None:
        return default
    if field.is_mapping:
        keys = field.section(("command",), required={"command": "command: …"}, remedy=_RESTORE)
        return Command(command=keys["command"].text(_RESTORE)) if "command" in keys else default
    return "good" if field.choice(("good", "none")) == "good" else "none"


def _notify(field: Field, ours: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that say who is told of the end; what they hold is a secret, and stands in no file."""
    if not notify.installed():
        field.refuse_key(
            "`notify` needs apprise, and it is not installed", "pip install 'bisect-agent[notify]'"
        )
        return ()
    names: list[str] = []
    for item in (field,) if field.scalar() is not None else field.items(_NOTIFY):
        text = item.text(_NOTIFY)
        found = variables.references(text)
        if text and (len(found) != 1 or text != f"${{{found[0]}}}"):
            item.refuse(f"{item.label} must be one `${{NAME}}`: such an address holds a secret", _NOTIFY)
        elif found and not ours.get(found[0]):
            item.refuse(f"{text} is not set in your environment", f"export {found[0]}=… before the run")
        elif found and not notify.knows(ours[found[0]]):
            known = f"export {found[0]}=…, such as mailto://…, slack://…, json://…: apprise lists them all"
            item.refuse(f"{text} holds no address that apprise knows", known)
        else:
            names += found
    return tuple(dict.fromkeys(names))


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


def _places(keys: Mapping[str, Field]) -> list[Field | None]:
    """Where the target is described, or each of several."""
    if "targets" not in keys:
        return [keys.get("target")]
    field = keys["targets"]
    if "target" in keys:
        field.refuse_key("both `target` and `targets` are given", "remove one of the two")
    if field.is_empty_list:
        field.refuse("`targets` must name one at least", _TARGETS)
    items = field.items(_TARGETS)
    for item in items[FIRST:]:
        if item.is_mapping and (stop := item.entries("").get("stop")) is not None:
            found = f"`{stop.path}`: a server is left running in the end on the first target alone"
            stop.refuse_key(found, "leave it out: on the others nothing may run")
    return [*items]


def _keep_apart(places: Sequence[Field | None], targets: Sequence[Target], kind: Kind) -> None:
    """No two targets may get in each other's way."""
    for number, (place, here) in enumerate(zip(places, targets, strict=True), FIRST):
        for before, other in enumerate(targets[: number - FIRST], FIRST):
            ports = sorted(set(here.ports) & set(other.ports))
            shared = [f"port {port}" for port in ports[:1]]
            if kind is Kind.JOB and not (here.ports and other.ports) and here.cwd == other.cwd:
                shared = ["folder"]
            if place is not None and here.host == other.host and shared:
                found = f"targets {before} and {number} share {here.host} and its {shared[0]}"
                place.refuse(found, _TARGETS_APART)


def _target(
    field: Field | None,
    top: Field,
    keys: Mapping[str, Field],
    kind: Kind,
    folder: Path,
    ours: Mapping[str, str],
) -> Target:
    known = ("host", "ports", "cwd", "folder", "env", "pass", "secrets", "stop", "code")
    entries = {} if field is None else field.section(known, remedy="target: {host: local}")
    if "host" in entries:
        _check_host(entries["host"])
    host = entries["host"].text("host: local") if "host" in entries else "local"
    remote = host != "local"
    if "ports" not in entries and kind is Kind.SERVER and (field or top).is_mapping:
        found = "a server needs `target.ports`: the first is where health and the request go"
        (field or top).refuse_key(found, "target: {host: local, ports: [30000]}")
    # Both are about the whole environment of the launch, so they are also known outside of `target`.
    passed = [name for holder in (keys, entries) if "pass" in holder for name in _passed(holder["pass"])]
    secret = [
        name
        for holder in (keys, entries)
        if "secrets" in holder
        for name in _secrets(holder["secrets"], ours)
    ]
    return Target(
        host=host,
        ports=_ports(entries["ports"], kind) if "ports" in entries else (),
        cwd=_place(entries["cwd"], folder, remote=remote)
        if "cwd" in entries
        else (HOME if remote else str(folder)),
        folder=_place(entries["folder"], folder, remote=remote) if "folder" in entries else None,
        env=_target_env(entries["env"], ours) if "env" in entries else {},
        passed=tuple(dict.fromkeys(passed)),
        secrets=tuple(dict.fromkeys(secret)),
        stop=entries["stop"].text("stop: systemctl stop my-server") if "stop" in entries else None,
        code=_code(entries["code"], folder, remote=remote) if "code" in entries else (),
    )


def _code(field: Field, folder: Path, *, remote: bool) -> tuple[str, ...]:
    """The paths of code that is to stay as it is."""
    items = field.items("code: [/srv/sglang]")
    places = [_place(item, folder, remote=remote) for item in items]
    for number, item in enumerate(items):
        if item.scalar() and places[number] in places[:number]:
            item.refuse(f"`{item.scalar()}` is named twice", "remove one of the two")
    return tuple(places)


def _check_host(field: Field) -> None:
    host = field.text("host: local")
    if get_close_matches(host, ["local"]) and host != "local":
        field.refuse(f"`{host}` would be a host over SSH", "did you mean `local`? Else: ssh://" + host)
    elif host and host != "local":
        try:
            Address.parse(host)
        except UsageError as error:
            field.refuse(error.message, error.remedy)


def _ports(field: Field, kind: Kind) -> tuple[int, ...]:
    items = field.items("ports: [30000]")
    if field.is_empty_list and kind is Kind.SERVER:
        field.refuse("a server needs at least one port", "ports: [30000]")
    ports = [item.count("ports: [30000]") for item in items]
    for item, port in zip(items, ports, strict=True):
        if port > 65535:
            item.refuse(f"there is no port {port}", "a number from 1 to 65535")
    return tuple(dict.fromkeys(ports))


def _place(field: Field, folder: Path, *, remote: bool) -> str:
    """A folder on the target. Where that is another machine, the playbook's own folder is not there."""
    if not remote:
        return _path(field, folder)
    text = field.text("the absolute path of a folder there")
    if text and not text.startswith(("/", f"{HOME}/")) and text != HOME:
        found = f"`{text}` is no absolute path of another machine"
        field.refuse(found, "one that begins with / or with ~/, the home folder there")
    return text


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


def _secrets(field: Field, ours: Mapping[str, str]) -> Iterator[str]:
    """Names of our variables whose values are masked; whoever names one must be able to rely on it."""
    for item in field.items("secrets: [DATABASE_URL]"):
        blameless = len(field.problems.found)
        name = item.text("secrets: [DATABASE_URL]")
        variables.check_name(name, item.mark, field.problems)
        value = ours.get(name)
        if name in INHERITED:
            item.refuse(f"to mask {name} would hide half of every log", "leave it out")
        elif value is None and len(field.problems.found) == blameless:
            found = f"{name} is not set in your environment, so its value could not be masked"
            item.refuse(found, f"export {name}=… before the run, or leave it out")
        elif value is not None and len(value) < SHORTEST:
            found = f"the value of {name} is shorter than {SHORTEST} characters: it stands everywhere"
            item.refuse(found, "leave it out, or take a longer value")
        yield name


def _launch(
    top: Field, keys: Mapping[str, Field], kind: Kind, folder: Path, factors: Sequence[Factor]
) -> str:
    scripted = next((f for f in factors if isinstance(f, ScriptFactor)), None)
    if scripted is not None:
        _check_scripts(scripted, keys, kind, factors)
        return ""
    match keys:
        case {"launch": _, "launch_file": field}:
            field.refuse_key("both `launch` and `launch_file` are given", "remove one of the two")
            return ""
        case {"launch": field}:
            text = field.text(_LAUNCH)
        case {"launch_file": field}:
            text = text_beside(field, folder, "launch file")
        case _:
            top.refuse_key("there is neither `launch` nor `launch_file`", _LAUNCH)
            return ""
    _check_script(text, field, "the launch script", kind, factors)
    return text


def _check_scripts(
    factor: ScriptFactor, keys: Mapping[str, Field], kind: Kind, factors: Sequence[Factor]
) -> None:
    """The launch scripts of a factor, in place of `launch`."""
    for name in ("launch", "launch_file"):
        if name in keys:
            found = f"the factor `{factor.name}` says what is launched, and so does `{name}`"
            keys[name].refuse_key(found, f"remove `{name}`, or make it a level of `{factor.name}`")
    entry = keys["factors"].entries("")[factor.name]
    field = entry.entries("")["script"]
    for level, text in factor.levels.items():
        _check_script(text, field, f"the launch script of {factor.name}={level}", kind, factors)


def _check_script(text: str, field: Field, what: str, kind: Kind, factors: Sequence[Factor]) -> None:
    """A script must take what the factors set, and what it starts must be ours to watch and to end."""
    takers = [f.name for f in factors if isinstance(f, FlagsFactor | OptionFactor) and f.levels]
    varied = {f.env for f in factors if isinstance(f, EnvFactor)}
    if text and takers and not takes_arguments(text):
        field.refuse(
            f'{what} has no "$@", so the flags of {", ".join(takers)} would reach nothing',
            f'put "$@", with its quotes, where the arguments go: {_LAUNCH}',
        )
    for name in sorted(variables.overwritten(words(text)) & varied):
        field.refuse(
            f"{what} sets {name} itself, so a level of it would reach nothing",
            f"leave that out there, or write {name}=${{{name}:-…}}, which keeps what is given",
        )
    for line, name in variables.written_out(text):
        remedy = f"take it from your environment: pass: [{name}]"
        field.refuse_line(line, f"{what}, line {line}: {name} looks like a secret and is written out", remedy)
    behind = left_behind(text) if kind is Kind.SERVER else None
    for complaint in (*complaints(text), *([behind] if behind else [])):
        found = f"{what}, line {complaint.line}: {complaint.found}"
        field.refuse_line(complaint.line, found, complaint.remedy)
