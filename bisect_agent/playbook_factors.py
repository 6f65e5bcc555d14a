"""The part of a playbook that says what is varied: factors, `good`, `bad`, suspects, hypotheses."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from bisect_agent import library
from bisect_agent.model import (
    Configuration,
    EnvFactor,
    Factor,
    FileFactor,
    Hypothesis,
    Kind,
    OptionFactor,
    ScriptFactor,
)
from bisect_agent.playbook_kinds import Levels, read_bounds, read_factor
from bisect_agent.yamlmarks import Field, ScalarNode, nearest

FAMILY = "torch-compile-capture"
"""The family in examples."""
FACTORS_EXAMPLE = "factors: {kernel: {env: MY_KERNEL, levels: {new: 1, old: 0}}}"


def read_factors(
    field: Field | None, kind: Kind, folder: Path, ours: Mapping[str, str]
) -> tuple[Factor, ...]:
    """The value of `factors`; a factor that could not be read has no levels."""
    if field is None:
        return ()
    entries = field.entries(FACTORS_EXAMPLE)
    if field.is_mapping and not entries:
        field.refuse("`factors` names no factor", FACTORS_EXAMPLE)
    factors = [read_factor(name, entry, kind, folder, ours) for name, entry in entries.items()]
    _check_one_setter_each(factors, entries)
    levels = levels_of(factors)
    return tuple(read_bounds(entries[factor.name], factor, levels) for factor in factors)


def levels_of(factors: Iterable[Factor]) -> Levels:
    """The names of each factor's levels."""
    return {factor.name: tuple(factor.levels) for factor in factors}


def read_good_and_bad(
    top: Field, keys: Mapping[str, Field], factors: Sequence[Factor]
) -> tuple[Configuration, Configuration]:
    """The two configurations: the defaults, and what `good` and `bad` have otherwise."""
    levels = levels_of(factors)
    defaults = {name: next(iter(names), "") for name, names in levels.items()}
    blameless = len(top.problems.found)
    good, bad = (
        Configuration({**defaults, **(_settings(keys[side], levels) if side in keys else {})})
        for side in ("good", "bad")
    )
    # Where a level could not be read, or no factor could, it is not said what the two would be.
    if not levels or not all(levels.values()) or len(top.problems.found) > blameless:
        return good, bad
    if good == bad:
        same = ", ".join(str(setting) for setting in good.settings())
        keys.get("bad", top).refuse_key(
            f"`good` and `bad` are the same configuration: {same}",
            "name in `bad` the level that makes it fail",
        )
    for side, configuration in (("good", good), ("bad", bad)):
        for factor in factors:
            if not factor.allows(configuration):
                keys.get(side, top).refuse_key(
                    f"`{side}` cannot be run: {factor.name}={configuration[factor.name]} does not go with"
                    " the rest of it, as its `requires` and `excludes` say",
                    f"change `{side}`, or the bounds of {factor.name}",
                )
    return good, bad


def read_suspects(field: Field | None, good: Configuration, bad: Configuration) -> tuple[str, ...]:
    """The factors equal in both that are flipped: those named, by default all."""
    equal = tuple(setting.factor for setting in good.settings() if bad[setting.factor] == setting.level)
    if field is None:
        return equal
    named = [_factor_name(item, good.root) for item in field.items("suspects: [kernel]")]
    return tuple(name for name in equal if name in named)


def read_hypotheses(
    field: Field | None, factors: Sequence[Factor], varied: Collection[str], default: Sequence[str]
) -> tuple[Hypothesis, ...]:
    """The claims of the families named, in terms of the factors.

    Where none is named, the claims of the families in `default` of which a factor that is `varied` plays
    a role: those whose every role is played, and only as far as they speak of the failure that is seen.
    """
    names = [factor.name for factor in factors]
    resolved: dict[str, tuple[Hypothesis, ...]] = {}
    if field is None:
        for known in map(library.family, default):
            cast = known.cast(factors, {})
            if set(cast.values()) & set(varied):
                resolved[known.family] = tuple(
                    claim.model_copy(update={"topics": known.topics})
                    for claim in known.resolve(cast)
                    if not claim.missing
                )
        return tuple(hypothesis for claims in resolved.values() for hypothesis in claims)
    for item in field.items(f"hypotheses: [{FAMILY}]"):
        family, given = _family(item)
        if family is None:
            continue
        if family.family in resolved:
            item.refuse(f"the family `{family.family}` is named twice", "remove one of them")
        cast = family.cast(factors, {} if given is None else _given_cast(given, family, names, varied))
        if not cast and given is None and names:
            item.refuse(
                f"no factor plays a role of the family `{family.family}`: none of its claims can be tested",
                f"say which factor plays which: with: {{{next(iter(family.roles))}: {names[0]}}}"
                f" (its roles: {', '.join(family.roles)})",
            )
        resolved[family.family] = family.resolve(cast)
    return tuple(hypothesis for claims in resolved.values() for hypothesis in claims)


def _check_one_setter_each(factors: Iterable[Factor], entries: Mapping[str, Field]) -> None:
    """Two factors that set one thing could not be varied one at a time."""
    setters: dict[str, str] = {}
    for factor in factors:
        what = _sets(factor)
        first = setters.setdefault(what, factor.name) if what else factor.name
        if first != factor.name:
            entries[factor.name].refuse_key(
                f"the factors `{first}` and `{factor.name}` both set {what}",
                "make them one factor with more levels",
            )


def _sets(factor: Factor) -> str:
    """The one thing that a factor sets; empty where flags may set several, or none is named."""
    match factor:
        case FileFactor(path=path):
            return posixpath.normpath(path)
        case OptionFactor(option=name):
            return name.replace("_", "-")
        case EnvFactor(env=name):
            return name
        case ScriptFactor():
            return "the launch script"
        case _:
            return ""


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
    example = f"family: {FAMILY}"
    if item.is_mapping:
        keys = item.section(("family", "with"), required={"family": example}, remedy=example)
    else:
        keys = {"family": item}
    name = keys["family"].text(example) if "family" in keys else ""
    if name in known:
        return library.family(name), keys.get("with")
    if name:
        keys["family"].refuse(f"no family of hypotheses is called `{name}`", nearest(name, known))
    return None, None


def _given_cast(
    field: Field, family: library.Family, factors: Collection[str], varied: Collection[str]
) -> dict[str, str]:
    cast: dict[str, str] = {}
    for role, entry in field.entries("with: {role: factor}").items():
        if role not in family.roles:
            entry.refuse_key(f"`{family.family}` has no role `{role}`", f"one of: {', '.join(family.roles)}")
            continue
        factor = _factor_name(entry, factors)
        if factor in cast.values():
            entry.refuse(f"`{factor}` already plays another role", "give each role a factor of its own")
        elif factor in factors and factor not in varied:
            entry.refuse(
                f"`{factor}` is the same in `good` and `bad` and no suspect: no run tests the role `{role}`",
                f"name `{factor}` under `suspects`, or set it otherwise in `bad`",
            )
        cast[role] = factor
    return cast
