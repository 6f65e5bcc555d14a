"""The data that comes with the product: signatures, families of hypotheses, playbooks.

An installed wheel carries the folders inside the package; an editable install has them beside it.
Adding a file to them is all it takes to teach the product something (hypotheses/README.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import Field, TypeAdapter, model_validator
from ruamel.yaml import YAML

from bisect_agent.arguments import Shipped, shipped
from bisect_agent.errors import UsageError
from bisect_agent.model import (
    EnvFactor,
    Factor,
    FlagsFactor,
    Frozen,
    Hypothesis,
    OptionFactor,
    Role,
    Signature,
)

_PACKAGE = Path(__file__).parent
_NESTED = 100


class ShippedSignature(Frozen):
    """A signature with the lines that it must match and must not; tests hold it to them.

    `phase_matters` says that the same pattern in another phase is another failure; `topic` is the class
    of failure that it tells of.
    """

    id: str
    role: Role
    pattern: str
    fatal: bool = False
    phase_matters: bool = False
    topic: str = ""
    means: str
    matches: tuple[str, ...] = Field(min_length=1)
    ignores: tuple[str, ...] = ()

    def signature(self) -> Signature:
        """What a run needs of it."""
        return Signature(
            id=self.id,
            role=self.role,
            pattern=self.pattern,
            fatal=self.fatal,
            phase_matters=self.phase_matters,
            topic=self.topic,
            means=self.means,
        )


class FamilyRole(Frozen):
    """A part that a factor plays in the claims, and how such a factor is recognised.

    `factors` are names that it may have; case does not matter, nor which of - and _ is written. `sets`
    are options and variables in which its levels may differ; of an option whose value is a JSON object,
    `--option.key` too.
    """

    factors: tuple[str, ...]
    sets: tuple[str, ...] = ()
    means: str

    def is_called(self, name: str) -> bool:
        """Whether a factor of that name plays this role."""
        return _plain(name) in map(_plain, self.factors)


class FamilyHypothesis(Frozen):
    """A claim in terms of roles; `model.Hypothesis` says what its fields mean."""

    id: str
    claim: str
    involves: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    contradicted_by: tuple[str, ...] = ()
    because: str
    advice: str


class Family(Frozen):
    """Claims about one kind of failure, in terms of roles.

    `topics` are the topics of the signatures whose failures the claims speak of.
    """

    family: str
    title: str
    topics: tuple[str, ...] = ()
    roles: Mapping[str, FamilyRole]
    hypotheses: tuple[FamilyHypothesis, ...]

    @model_validator(mode="after")
    def _roles_exist(self) -> Family:
        named = {role for h in self.hypotheses for role in (*h.involves, *h.excludes)}
        if unknown := named - set(self.roles):
            raise ValueError(f"{self.family}: no such role: {', '.join(sorted(unknown))}")
        return self

    def cast(self, factors: Iterable[Factor | str], given: Mapping[str, str]) -> dict[str, str]:
        """Which factor plays each role; a factor plays one at most, and a role that none plays is left out.

        A role in `given` is played by the factor named there. Any other is played by the first of
        `factors` that is called so; a role that is free then, by the first factor left that sets what the
        role sets, and sets nothing of another role: what sets two roles at once tells nothing of either.
        Of a factor given as a name, it is not known what it sets.
        """
        known = {f if isinstance(f, str) else f.name: f for f in factors}
        cast = dict(given)
        for role, part in self.roles.items():
            called = (name for name in known if name not in cast.values() and part.is_called(name))
            if role not in cast and (name := next(called, None)):
                cast[role] = name
        for name, factor in known.items():
            found = set() if isinstance(factor, str) else self._set_by(factor)
            if name not in cast.values() and len(found) == 1:
                cast.setdefault(found.pop(), name)
        return {role: cast[role] for role in self.roles if role in cast}

    def _set_by(self, factor: Factor) -> set[str]:
        """The roles of which a factor sets something.

        Of an option that a role knows as a whole, the keys below it tell nothing more.
        """
        owners = {name: role for role, part in self.roles.items() for name in part.sets}
        found = _differing(factor) & owners.keys()
        return {owners[name] for name in found if not any(name.startswith(f"{whole}.") for whole in found)}

    def resolve(self, cast: Mapping[str, str]) -> tuple[Hypothesis, ...]:
        """The claims in terms of the playbook's factors."""
        return tuple(
            Hypothesis(
                id=h.id,
                family=self.family,
                claim=h.claim,
                involves=tuple(cast[role] for role in h.involves if role in cast),
                excludes=tuple(cast[role] for role in h.excludes if role in cast),
                missing=tuple(role for role in (*h.involves, *h.excludes) if role not in cast),
                contradicted_by=h.contradicted_by,
                because=h.because,
                advice=h.advice,
            )
            for h in self.hypotheses
        )


@cache
def shipped_signatures() -> tuple[ShippedSignature, ...]:
    """The shipped signatures with their sample lines, file by file in the order of the names."""
    entries = TypeAdapter(tuple[ShippedSignature, ...])
    files = sorted((folder("hypotheses") / "signatures").glob("*.yaml"))
    return tuple(entry for file in files for entry in entries.validate_python(_data(file)))


def arguments(stack: str) -> Shipped | None:
    """What the newest release of a stack that comes with us knows; None where there is none."""
    found = [
        shipped(file.read_text(encoding="utf-8"))
        for file in (folder("hypotheses") / "arguments").glob(f"{stack}-*.json")
    ]
    return max(found, key=lambda known: [int(n) for n in re.findall(r"\d+", known.version)], default=None)


@cache
def signatures() -> tuple[Signature, ...]:
    """The shipped signatures."""
    return tuple(entry.signature() for entry in shipped_signatures())


def families() -> tuple[str, ...]:
    """The names of the shipped families of hypotheses."""
    return tuple(_families())


@cache
def family(name: str) -> Family:
    """The shipped family of that name.

    Raises:
        KeyError: it is not one of `families()`.
    """
    return Family.model_validate(_data(_families()[name]))


def playbooks() -> tuple[str, ...]:
    """The names of the shipped playbooks."""
    return tuple(_playbooks())


def playbook(name: str) -> Path:
    """Where the shipped playbook of that name is.

    Raises:
        UsageError: there is none.
    """
    try:
        return _playbooks()[name]
    except KeyError:
        known = ", ".join(playbooks())
        raise UsageError(
            f"`{name}` is neither a file nor a shipped playbook", f"a path, or one of: {known}"
        ) from None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _differing(factor: Factor) -> set[str]:
    """The options and variables in which a factor's levels differ."""
    match factor:
        case EnvFactor():
            return {factor.env}
        case OptionFactor():
            levels = [{} if v is None else {factor.option: _value(v)} for v in factor.levels.values()]
        case FlagsFactor():
            levels = [_options(arguments) for arguments in factor.levels.values()]
        case _:
            return set()
    names = dict.fromkeys(name for level in levels for name in level)
    return {found for name in names for found in _differences(name, [level.get(name) for level in levels])}


def _options(arguments: Iterable[str]) -> dict[str, object]:
    """Command-line arguments as options with their values."""
    written: dict[str, str] = {}
    last = ""
    for argument in arguments:
        if argument.startswith("-"):
            last, _, written[last] = argument.partition("=")
        elif last:
            written[last] = f"{written[last]} {argument}".strip()
    return {name: _value(value) for name, value in written.items()}


def _value(text: str) -> object:
    """What an option is given; a JSON object as one, unless it is nested too deep to be meant."""
    if text.startswith("{") and text.count("{") + text.count("[") < _NESTED:
        with suppress(ValueError):
            return json.loads(text)
    return text


def _differences(name: str, values: Sequence[object]) -> Iterator[str]:
    """Where an option's values differ: the option itself, unless all are objects, and their keys."""
    if all(value == values[0] for value in values):
        return
    if not all(isinstance(value, dict) for value in values):
        yield name
    objects = [value if isinstance(value, dict) else {} for value in values]
    for key in dict.fromkeys(key for value in objects for key in value):
        yield from _differences(f"{name}.{key}", [value.get(key) for value in objects])


def _families() -> dict[str, Path]:
    return {file.stem: file for file in sorted((folder("hypotheses") / "families").glob("*.yaml"))}


def _playbooks() -> dict[str, Path]:
    return {file.parent.name: file for file in sorted(folder("playbooks").glob("*/playbook.yaml"))}


def folder(name: str) -> Path:
    """Where a folder of shipped data is."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def _data(file: Path) -> object:
    return YAML(typ="safe", pure=True).load(file)
