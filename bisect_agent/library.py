"""The data that comes with the product: signatures, families of hypotheses, playbooks.

An installed wheel carries the folders inside the package; an editable install has them beside it.
Adding a file to them is all it takes to teach the product something (hypotheses/README.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from pydantic import Field, TypeAdapter, model_validator
from ruamel.yaml import YAML

from bisect_agent.errors import UsageError
from bisect_agent.model import Frozen, Hypothesis, Role, Signature

_PACKAGE = Path(__file__).parent


class ShippedSignature(Frozen):
    """A signature with the lines that it must match and must not; tests hold it to them.

    `phase` says that the same pattern in another phase is another failure; `topic` is the class of
    failure that it tells of.
    """

    id: str
    role: Role
    pattern: str
    fatal: bool = False
    phase: bool = False
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
            phase_matters=self.phase,
            topic=self.topic,
            means=self.means,
        )


class FamilyRole(Frozen):
    """A part that a factor plays in the claims; `factors` are the names by which it is recognised."""

    factors: tuple[str, ...]
    means: str


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
    """Claims about one kind of failure, in terms of roles."""

    family: str
    title: str
    roles: Mapping[str, FamilyRole]
    hypotheses: tuple[FamilyHypothesis, ...]

    @model_validator(mode="after")
    def _roles_exist(self) -> Family:
        named = {role for h in self.hypotheses for role in (*h.involves, *h.excludes)}
        if unknown := named - set(self.roles):
            raise ValueError(f"{self.family}: no such role: {', '.join(sorted(unknown))}")
        return self

    def cast(self, factors: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
        """Which factor plays each role.

        A role in `given` is played by the factor named there; any other by the first of `factors`
        whose name is in the role's list. A role that no factor plays is left out.
        """
        free = [name for name in factors if name not in given.values()]
        found = {
            role: next((name for name in free if name in part.factors), None)
            for role, part in self.roles.items()
        }
        return {role: name for role, name in {**found, **given}.items() if name is not None}

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
    files = sorted((_folder("hypotheses") / "signatures").glob("*.yaml"))
    return tuple(entry for file in files for entry in entries.validate_python(_data(file)))


@cache
def signatures() -> tuple[Signature, ...]:
    """The shipped signatures."""
    return tuple(entry.signature() for entry in shipped_signatures())


def families() -> tuple[str, ...]:
    """The names of the shipped families of hypotheses."""
    return tuple(_families())


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


def _families() -> dict[str, Path]:
    return {file.stem: file for file in sorted((_folder("hypotheses") / "families").glob("*.yaml"))}


def _playbooks() -> dict[str, Path]:
    return {file.parent.name: file for file in sorted(_folder("playbooks").glob("*/playbook.yaml"))}


def _folder(name: str) -> Path:
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def _data(file: Path) -> object:
    return YAML(typ="safe", pure=True).load(file)
