"""One factor of a playbook: of which kind it is, its levels, its witness, and what its levels go with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bisect_agent import codefiles, credentials, variables
from bisect_agent.model import (
    Bounds,
    EnvFactor,
    Factor,
    FileFactor,
    FlagsFactor,
    HttpWitness,
    Kind,
    LogWitness,
    OptionFactor,
    ScriptFactor,
    Witness,
)
from bisect_agent.playbook_observe import refuse_bad, url_path
from bisect_agent.yamlmarks import Field, MappingNode, ScalarNode, SequenceNode, nearest

_KINDS = ("env", "flags", "option", "file", "script")
_COMMON = ("witness", "ordered", "requires", "excludes")

_NAME = re.compile(r"\w[\w.+-]{0,63}")
_LEVEL = re.compile(r"[^\s=,/]{1,64}")
_OPTION = re.compile(r"--?[A-Za-z0-9][\w.-]*")

_OPTION_EXAMPLE = "option: {name: --attention-backend, levels: [triton, flashinfer]}"
_FILE_EXAMPLE = "file: {path: config.json, levels: {a: {from: a.json}, b: {from: b.json}}}"
_SCRIPT_EXAMPLE = "script: {old: old.sh, new: new.sh}"
_WITNESS = 'log: "my kernel: {level}"'
_HTTP_WITNESS = "http: /server_info, contains: 'kernel {level}'"

Levels = Mapping[str, Sequence[str]]
"""The names of each factor's levels, the default first. Empty where they could not be read."""


def read_factor(name: str, field: Field, kind: Kind, folder: Path, ours: Mapping[str, str]) -> Factor:
    """A factor without its bounds; it has no levels where they could not be read.

    Args:
        name: its name.
        field: its entry in `factors`.
        kind: what the launch script is: a job has no answers to look into.
        folder: where the files that it names are.
        ours: our environment.
    """
    blameless = len(field.problems.found)
    if not _NAME.fullmatch(name):
        field.refuse_key(f"`{name}` cannot name a factor", "letters, digits and . _ + -, at most 64 in all")
    example = f"{name}: {{env: VARIABLE, levels: {{on: 1, off: 0}}}}"
    keys = field.section((*_KINDS, "levels", *_COMMON), remedy=example)
    kinds = [kind for kind in _KINDS if kind in keys]
    if len(kinds) != 1 or ("levels" in keys) != (kinds == ["env"]):
        _refuse_kind(field, keys, kinds, example)
        return FlagsFactor(name=name, levels={})
    value = keys[kinds[0]]
    factor: Factor
    match kinds[0]:
        case "flags":
            factor = FlagsFactor(name=name, levels=_flags(value))
        case "option":
            factor = _option(name, value)
        case "file":
            factor = _file(name, value, folder)
        case "script":
            factor = ScriptFactor(name=name, levels=_scripts(value, folder))
        case _:
            variable = value.text(example)
            variables.check_name(variable, value.mark, field.problems)
            factor = EnvFactor(name=name, env=variable, levels=_env_levels(keys["levels"], variable, ours))
    ordered = "ordered" in keys and keys["ordered"].truth()
    if len(field.problems.found) == blameless and not ordered:
        _refuse_same(value if kinds != ["env"] else keys["levels"], factor)
    return factor.model_copy(
        update={
            "witness": _witness(keys["witness"], kind) if "witness" in keys else None,
            "ordered": ordered,
        }
    )


def read_bounds(field: Field, factor: Factor, levels: Levels) -> Factor:
    """The factor with its `requires` and `excludes`, which name levels of the others."""
    if not field.has_any(("requires", "excludes")) or not factor.levels:
        return factor
    entries = field.entries("")
    return factor.model_copy(
        update={
            name: _bounds(entries[name], factor, levels)
            for name in ("requires", "excludes")
            if name in entries
        }
    )


def _refuse_kind(field: Field, keys: Mapping[str, Field], kinds: Sequence[str], example: str) -> None:
    match kinds:
        case []:
            if field.is_mapping:
                wanted = "`env` with `levels`, or `flags`, `option`, `file` or `script`"
                field.refuse_key(f"`{field.path}` needs {wanted}", example)
        case [_, second, *_]:
            both = " and ".join(f"`{kind}`" for kind in kinds)
            keys[second].refuse_key(f"`{field.path}` has {both}, and is of one kind", "make it two factors")
        case ["env"]:
            field.refuse_key(f"`{field.path}` has no `levels`", example)
        case [kind]:
            found = f"`{field.path}` has `{kind}`, which holds its levels"
            keys["levels"].refuse_key(found, "remove `levels`, or move it in there")


# --- the kinds --------------------------------------------------------------------------------------


def _env_levels(field: Field, variable: str, ours: Mapping[str, str]) -> dict[str, str | None]:
    levels: dict[str, str | None] = {}
    for level, entry in _levels(field, "levels: {on: 1, off: 0}").items():
        value = levels[level] = entry.scalar()
        if value is not None:
            variables.check_value(entry, variable, value, ours)
        elif not isinstance(entry.node, ScalarNode):
            entry.wrong("text, or null to unset the variable", f"{level}: 1")
    return levels


def _flags(field: Field) -> dict[str, tuple[str, ...]]:
    levels: dict[str, tuple[str, ...]] = {}
    for level, entry in _levels(field, "flags: {off: [], on: [--enable-it]}").items():
        items = entry.items(f"{level}: [--a-flag, its-value]")
        variables.refuse_secrets(items)
        levels[level] = tuple(
            item.text("one argument, in single quotes if it holds a colon") for item in items
        )
    return levels


def _option(name: str, field: Field) -> OptionFactor:
    required = {"name": "name: --attention-backend", "levels": "levels: [triton, flashinfer]"}
    keys = field.section(tuple(required), required=required, remedy=_OPTION_EXAMPLE)
    option = keys["name"].text(required["name"]) if "name" in keys else ""
    if option and not _OPTION.fullmatch(option):
        keys["name"].refuse(
            f"`{option}` cannot be an option", "its name with its dashes, such as --page-size"
        )
    levels = _option_levels(keys["levels"]) if "levels" in keys else {}
    if "name" in keys:
        variables.refuse_secrets_of(keys["name"], option, levels.values())
    return OptionFactor(name=name, option=option, levels=levels)


def _option_levels(field: Field) -> dict[str, str | None]:
    """A list of values that are their own names, or names with values; null: the option is not given."""
    levels: dict[str, str | None] = {}
    if isinstance(field.node, SequenceNode):
        for item in field.items(""):
            value = item.text("a value, such as triton")
            if value in levels:
                item.refuse(f"the level `{value}` is there twice", "remove one of them")
            elif value and not _LEVEL.fullmatch(value):
                item.refuse(f"`{value}` cannot name a level", f"give it a name: levels: {{a: {value}}}")
            levels[value] = value
        _refuse_few(field, len(field.items("")))
        return levels
    for level, entry in _levels(field, "levels: [triton, flashinfer]").items():
        levels[level] = entry.scalar()
        if not isinstance(entry.node, ScalarNode):
            entry.wrong("a value, or null to leave the option out", f"{level}: triton")
    return levels


def _file(name: str, field: Field, folder: Path) -> FileFactor:
    required = {"path": "path: config.json", "levels": "levels: {a: {text: …}, b: {from: b.json}}"}
    keys = field.section(tuple(required), required=required, remedy=_FILE_EXAMPLE)
    path = keys["path"].text(required["path"]) if "path" in keys else ""
    entries = _levels(keys["levels"], required["levels"]) if "levels" in keys else {}
    return FileFactor(
        name=name,
        path=path,
        levels={level: _file_text(level, entry, folder) for level, entry in entries.items()},
    )


def _file_text(level: str, field: Field, folder: Path) -> str | None:
    example = f"{level}: {{from: {level}.json}}"
    if isinstance(field.node, ScalarNode) and field.node.null:
        return None
    keys = field.section(("text", "from"), remedy=f"{example}, or null for no file")
    match keys:
        case {"text": _, "from": second}:
            second.refuse_key("both `text` and `from` are given", "remove one of the two")
        case {"text": text}:
            return text.scalar() if text.scalar() is not None else text.text(f"{level}: {{text: '…'}}")
        case {"from": source}:
            return text_beside(source, folder, "file")
        case _ if field.is_mapping:
            field.refuse_key(f"`{field.path}` has neither `text` nor `from`", example)
    return ""


def _scripts(field: Field, folder: Path) -> dict[str, str]:
    return {
        level: text_beside(entry, folder, "launch file")
        for level, entry in _levels(field, _SCRIPT_EXAMPLE).items()
    }


def text_beside(field: Field, folder: Path, what: str) -> str:
    """The text of a file beside the playbook."""
    name = field.text("the name of a file beside the playbook")
    try:
        text = codefiles.read(folder / name) if name else ""
    except codefiles.UnusableFile as error:
        field.refuse(f"the {what} {name} {error.found}", error.remedy)
        return ""
    if credentials.looks_like_one(text):
        field.refuse(f"the {what} {name} holds what looks like a secret", variables.KEEP_OUT)
    return text


def _levels(field: Field, example: str) -> dict[str, Field]:
    entries = field.entries(example)
    if isinstance(field.node, MappingNode):
        _refuse_few(field, len(field.node.entries))
    for level, entry in entries.items():
        if not _LEVEL.fullmatch(level):
            entry.refuse_key(f"`{level}` cannot name a level", "one word without = , or /, at most 64 long")
    return entries


def _refuse_same(field: Field, factor: Factor) -> None:
    """Two levels of one value: to change one for the other changes nothing, and shows nothing."""
    first: dict[object, str] = {}
    for level, value in factor.levels.items():
        other = first.setdefault(value, level)
        if other != level:
            field.refuse_key(
                f"the levels `{other}` and `{level}` of `{factor.name}` are the same", "remove one"
            )


def _refuse_few(field: Field, levels: int) -> None:
    if levels < 2:
        found = f"`{field.path}` has fewer than two levels, so there is nothing to vary"
        field.refuse_key(found, "give it two or more levels")


# --- witness and bounds -----------------------------------------------------------------------------


def _witness(field: Field, kind: Kind) -> Witness:
    keys = field.section(("log", "http", "contains"), remedy=f"witness: {{{_WITNESS}}}")
    match keys:
        case {"log": _, "http": second} | {"log": _, "contains": second}:
            second.refuse_key("a witness is in the log or in an answer, not both", "remove one of the two")
        case {"http": http} if kind is Kind.JOB:
            http.refuse_key(
                "a job answers no request, so its witness is in the log", f"witness: {{{_WITNESS}}}"
            )
        case {"log": log}:
            return LogWitness(log=_filled_in(log, _WITNESS, refuse_bad))
        case {"http": http, "contains": contains}:
            return HttpWitness(http=url_path(http), contains=_filled_in(contains, _HTTP_WITNESS))
        case _ if field.is_mapping:
            found = "a witness needs `log`, or `http` with `contains`"
            field.refuse_key(found, f"witness: {{{_WITNESS}}}, or witness: {{{_HTTP_WITNESS}}}")
    return LogWitness(log="")


def _filled_in(field: Field, example: str, complain: Callable[[str, Field], None] | None = None) -> str:
    """A text with `{level}` or `{value}` in it."""
    text = field.text(example)
    filled = text.replace("{level}", "x").replace("{value}", "x")
    if complain:
        complain(filled, field)
    if text and filled == text:
        field.refuse("a witness without {level} or {value} reads the same for every level", example)
    return text


def _bounds(field: Field, factor: Factor, levels: Levels) -> Bounds:
    """What is said of each level: `{level: {factor: levels}}`.

    Without a level, `{factor: levels}`, it is said of every level but the default.
    """
    example = f"{field.path.rpartition('.')[2]}: {{{list(factor.levels)[-1]}: {{other_factor: its_level}}}}"
    said: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, entry in field.entries(example).items():
        if isinstance(entry.node, MappingNode):
            if name not in factor.levels:
                entry.refuse_key(
                    f"`{factor.name}` has no level `{name}`", f"one of: {', '.join(factor.levels)}"
                )
                continue
            bounds = {
                other: _bound(other, inner, factor, levels) for other, inner in entry.entries(example).items()
            }
            said[name] = {**said.get(name, {}), **bounds}
        else:
            bound = _bound(name, entry, factor, levels)
            for level in list(factor.levels)[1:]:
                said[level] = {**said.get(level, {}), name: bound}
    return said


def _bound(other: str, field: Field, factor: Factor, levels: Levels) -> tuple[str, ...]:
    """The levels of another factor: one, or a list."""
    if other not in levels or other == factor.name:
        known = [name for name in levels if name != factor.name]
        field.refuse_key(f"no other factor is called `{other}`", nearest(other, known))
        return ()
    items = field.items("") if isinstance(field.node, SequenceNode) else (field,)
    named = tuple(item.text(f"one of: {', '.join(levels[other])}") for item in items)
    for item, level in zip(items, named, strict=True):
        if level and level not in levels[other] and levels[other]:
            item.refuse(f"`{other}` has no level `{level}`", f"one of: {', '.join(levels[other])}")
    return named
