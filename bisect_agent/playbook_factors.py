"""The part of a playbook that says what is varied: factors, `good`, `bad`, suspects, hypotheses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from bisect_agent import library, variables
from bisect_agent.model import Configuration, EnvFactor, Factor, FlagsFactor, Hypothesis, LogWitness
from bisect_agent.playbook_observe import refuse_bad
from bisect_agent.yamlmarks import Field, ScalarNode, nearest

_KINDS_LATER = ("option", "file", "script")
_LATER = (*_KINDS_LATER, "ordered", "requires", "excludes")

_NAME = re.compile(r"\w[\w.+-]{0,63}")
_LEVEL = re.compile(r"[^\s=,/]{1,64}")

FACTORS_EXAMPLE = "factors: {kernel: {env: MY_KERNEL, levels: {new: 1, old: 0}}}"
_WITNESS = 'log: "my kernel: {level}"'

Levels = Mapping[str, Sequence[str]]
"""The names of each factor's levels, the default first. Empty where they could not be read."""


def read_factors(field: Field | None, ours: Mapping[str, str]) -> tuple[Factor, ...]:
    """The value of `factors`; a factor that could not be read has no levels."""
    if field is None:
        return ()
    entries = field.entries(FACTORS_EXAMPLE)
    if field.is_mapping and not entries:
        field.refuse("`factors` names no factor", FACTORS_EXAMPLE)
    factors = tuple(_factor(name, entry, ours) for name, entry in entries.items())
    _check_one_setter_each(factors, entries)
    return factors


def read_good_and_bad(
    top: Field, keys: Mapping[str, Field], factors: Iterable[Factor]
) -> tuple[Configuration, Configuration]:
    """The two configurations: the defaults, and what `good` and `bad` have otherwise."""
    levels = {factor.name: tuple(factor.levels) for factor in factors}
    defaults = {name: next(iter(names), "") for name, names in levels.items()}
    blameless = len(top.problems.found)
    good, bad = (
        Configuration({**defaults, **(_settings(keys[side], levels) if side in keys else {})})
        for side in ("good", "bad")
    )
    # Where a level could not be read, or no factor could, it is not said what the two would be.
    if good == bad and levels and all(levels.values()) and len(top.problems.found) == blameless:
        same = ", ".join(str(setting) for setting in good.settings())
        keys.get("bad", top).refuse_key(
            f"`good` and `bad` are the same configuration: {same}",
            "name in `bad` the level that makes it fail",
        )
    return good, bad


def read_suspects(field: Field | None, good: Configuration, bad: Configuration) -> tuple[str, ...]:
    """The factors equal in both that are flipped: those named, by default all."""
    equal = tuple(setting.factor for setting in good.settings() if bad[setting.factor] == setting.level)
    if field is None:
        return equal
    named = [_factor_name(item, good.root) for item in field.items("suspects: [kernel]")]
    return tuple(name for name in equal if name in named)


def read_hypotheses(field: Field | None, factors: Collection[str]) -> tuple[Hypothesis, ...]:
    """The claims of the families named, in terms of `factors`."""
    if field is None:
        return ()
    resolved: dict[str, tuple[Hypothesis, ...]] = {}
    for item in field.items(f"hypotheses: [{library.families()[0]}]"):
        family, given = _family(item)
        if family is None:
            continue
        if family.family in resolved:
            item.refuse(f"the family `{family.family}` is named twice", "remove one of them")
        cast = {} if given is None else _given_cast(given, family, factors)
        resolved[family.family] = family.resolve(family.cast(factors, cast))
    return tuple(hypothesis for claims in resolved.values() for hypothesis in claims)


# --- one factor -------------------------------------------------------------------------------------


def _factor(name: str, field: Field, ours: Mapping[str, str]) -> Factor:
    if not _NAME.fullmatch(name):
        field.refuse_key(f"`{name}` cannot name a factor", "letters, digits and . _ + -, at most 64 in all")
    example = f"{name}: {{env: VARIABLE, levels: {{on: 1, off: 0}}}}"
    keys = field.section(("env", "levels", "flags", "witness"), later=_LATER, remedy=example)
    factor: Factor
    match keys:
        case {"flags": _, "env": extra} | {"flags": _, "levels": extra}:
            extra.refuse_key(f"`{field.path}` has `flags`, which holds its levels", "remove one of the two")
            return FlagsFactor(name=name, levels={})
        case {"flags": levels}:
            factor = FlagsFactor(name=name, levels=_flags_levels(levels))
        case {"env": variable, "levels": levels}:
            env = variable.text(example)
            variables.check_name(env, variable.mark, field.problems)
            factor = EnvFactor(name=name, env=env, levels=_env_levels(levels, env, ours))
        case _:
            if field.is_mapping and not field.has_any(_KINDS_LATER):
                field.refuse_key(f"`{field.path}` needs `env` with `levels`, or `flags`", example)
            return FlagsFactor(name=name, levels={})
    if levels.is_mapping and len(factor.levels) < 2:
        found = f"`{name}` has fewer than two levels, so there is nothing to vary"
        levels.refuse_key(found, "give it two or more levels")
    witness = _witness(keys["witness"]) if "witness" in keys else None
    return factor.model_copy(update={"witness": witness})


def _env_levels(field: Field, variable: str, ours: Mapping[str, str]) -> dict[str, str | None]:
    levels: dict[str, str | None] = {}
    for level, entry in _levels(field, "levels: {on: 1, off: 0}").items():
        value = levels[level] = entry.scalar()
        if value is not None:
            variables.check_value(entry, variable, value, ours)
        elif not isinstance(entry.node, ScalarNode):
            entry.wrong("text, or null to unset the variable", f"{level}: 1")
    return levels


def _flags_levels(field: Field) -> dict[str, tuple[str, ...]]:
    return {
        level: tuple(
            item.text("one argument, in single quotes if it holds a colon")
            for item in entry.items(f"{level}: [--a-flag, its-value]")
        )
        for level, entry in _levels(field, "flags: {off: [], on: [--enable-it]}").items()
    }


def _levels(field: Field, example: str) -> dict[str, Field]:
    entries = field.entries(example)
    for level, entry in entries.items():
        if not _LEVEL.fullmatch(level):
            entry.refuse_key(f"`{level}` cannot name a level", "one word without = , or /, at most 64 long")
    return entries


def _witness(field: Field) -> LogWitness:
    keys = field.section(
        ("log",), later=("http", "contains"), required={"log": _WITNESS}, remedy=f"witness: {{{_WITNESS}}}"
    )
    if "log" not in keys:
        return LogWitness(log="")
    log = keys["log"]
    pattern = log.text(_WITNESS)
    filled = pattern.replace("{level}", "x").replace("{value}", "x")
    refuse_bad(filled, log)
    if pattern and filled == pattern:
        log.refuse("a witness without {level} or {value} reads the same for every level", _WITNESS)
    return LogWitness(log=pattern)


def _check_one_setter_each(factors: Iterable[Factor], entries: Mapping[str, Field]) -> None:
    """Two factors that set one variable could not be varied one at a time."""
    setters: dict[str, str] = {}
    for factor in factors:
        if isinstance(factor, EnvFactor) and factor.env:
            first = setters.setdefault(factor.env, factor.name)
            if first != factor.name:
                entries[factor.name].refuse_key(
                    f"the factors `{first}` and `{factor.name}` both set {factor.env}",
                    "make them one factor with more levels",
                )


# --- names of factors and levels --------------------------------------------------------------------


def _settings(field: Field, levels: Levels) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, entry in field.entries(f"{field.path}: {{factor: level}}").items():
        if name not in levels:
            entry.refuse_key(f"no factor is called `{name}`", nearest(name, levels))
        elif not isinstance(entry.node, ScalarNode):
            entry.wrong("the name of a level", f"one of: {', '.join(levels[name])}")
        elif levels[name] and entry.node.text not in levels[name]:
            entry.refuse(f"`{name}` has no level `{entry.node.text}`", f"one of: {', '.join(levels[name])}")
        else:
            settings[name] = entry.node.text
    return settings


def _factor_name(field: Field, factors: Collection[str]) -> str:
    name = field.text("the name of a factor")
    if name and name not in factors:
        field.refuse(f"no factor is called `{name}`", nearest(name, factors))
    return name


def _family(item: Field) -> tuple[library.Family | None, Field | None]:
    """The family that an item names, and its `with`."""
    known = library.families()
    example = f"family: {known[0]}"
    if item.is_mapping:
        keys = item.section(("family", "with"), required={"family": example}, remedy=example)
    else:
        keys = {"family": item}
    name = keys["family"].text(example) if "family" in keys else ""
    if name in known:
        return library.family(name), keys.get("with")
    if name:
        keys["family"].refuse(f"no family of hypotheses is called `{name}`", f"one of: {', '.join(known)}")
    return None, None


def _given_cast(field: Field, family: library.Family, factors: Collection[str]) -> dict[str, str]:
    cast: dict[str, str] = {}
    for role, entry in field.entries("with: {role: factor}").items():
        if role not in family.roles:
            entry.refuse_key(f"`{family.family}` has no role `{role}`", f"one of: {', '.join(family.roles)}")
            continue
        factor = _factor_name(entry, factors)
        if factor in cast.values():
            entry.refuse(f"`{factor}` already plays another role", "give each role a factor of its own")
        cast[role] = factor
    return cast
