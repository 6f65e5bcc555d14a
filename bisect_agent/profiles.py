"""What is known of a stack, as data: how it is watched, how it shows its arguments, which ports it takes.

A profile's `observe` and `limits` are written, and read, as a playbook's are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import re2
from pydantic import Field as Default

from bisect_agent.errors import UsageError
from bisect_agent.launches import words
from bisect_agent.library import folder
from bisect_agent.model import (
    ArgumentWitness,
    Factor,
    FlagsFactor,
    Frozen,
    Kind,
    Observe,
    OptionFactor,
    Profile,
    Shown,
)
from bisect_agent.playbook_observe import read_limits, read_observe
from bisect_agent.yamlmarks import Problems, parse

_KNOWN = (
    "profile",
    "title",
    "kind",
    "observe",
    "limits",
    "packages",
    "shown",
    "help",
    "caches",
    "leaves",
    "retired",
    "hypotheses",
    "ports",
)
_REQUIRED = {
    "profile": "profile: sglang",
    "title": "title: a server of sglang",
    "kind": "kind: server",
    "observe": "observe: {ready: {log: 'ready to roll'}, request: {path: /generate}}",
    "hypotheses": "hypotheses: [start-hang]",
}


class Derived(Frozen):
    """`count` ports in a row that a stack takes beside its own, when one of the options `when` is given.

    The first is by `plus` above the port that the option `base` names (`default` where it is not given),
    or, where that is no port, below it; or it is the one that an option of `instead` names.
    """

    when: tuple[str, ...]
    base: str
    default: int
    plus: int
    count: int
    instead: tuple[str, ...] = ()


class Ports(Frozen):
    """Which ports a stack takes: those that `options` name, as PORT or HOST:PORT, and `derived` ones."""

    options: tuple[str, ...] = ()
    derived: tuple[Derived, ...] = ()


class Loaded(Frozen):
    """A profile: what a playbook takes from it where it says nothing itself.

    `limits` are by the names of `model.Limits`; `families` names those of the hypotheses.
    """

    profile: Profile
    title: str
    kind: Kind
    observe: Observe
    limits: Mapping[str, float] = Default(default_factory=dict)
    families: tuple[str, ...] = ()
    ports: Ports = Ports()


def names() -> tuple[str, ...]:
    """The names of the shipped profiles."""
    return tuple(_files())


@cache
def load(name: str) -> Loaded:
    """The shipped profile of that name.

    Raises:
        UsageError: there is none.
        PlaybookError: a mistake in its file, which is ours.
    """
    try:
        file = _files()[name]
    except KeyError:
        raise UsageError(f"there is no profile `{name}`", f"one of: {', '.join(names())}") from None
    return read(file.read_text(encoding="utf-8"), str(file))


def read(text: str, file: str) -> Loaded:
    """The profile that `text`, the content of `file`, describes.

    Raises:
        PlaybookError: every mistake in it that was found.
        ValidationError: a part that only profiles have is of another form.
    """
    problems = Problems(file)
    top = parse(text, problems)
    keys = top.section(_KNOWN, required=_REQUIRED, remedy="profile: sglang")
    problems.check()
    kind = Kind(keys["kind"].choice(tuple(Kind)))
    observe = read_observe(top, keys["observe"], kind)
    limits = read_limits(keys.get("limits"), kind)
    problems.check()
    told: dict[str, Any] = {name: entry.json() for name, entry in keys.items()}
    own = {name: told[name] for name in Profile.model_fields if name in told}
    return Loaded(
        profile=Profile.model_validate({"name": told["profile"], **own}),
        title=keys["title"].text("title: a server"),
        kind=kind,
        observe=observe,
        limits={name: getattr(limits, name) for name in told.get("limits") or {}},
        families=tuple(item.text("start-hang") for item in keys["hypotheses"].items("[start-hang]")),
        ports=Ports.model_validate(told.get("ports", {})),
    )


def _files() -> dict[str, Path]:
    return {file.stem: file for file in sorted((folder("hypotheses") / "profiles").glob("*.yaml"))}


# --- the arguments in effect ------------------------------------------------------------------------

_OPTION = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?:=(?P<value>.*))?", re.DOTALL)
_ANOTHER = re.compile(r"--?[A-Za-z]")
_NO = "no_"
_ON, _OFF = frozenset({"True"}), frozenset({"False"})
_TOLD_BY = 2
"""The most arguments that tell a level from the others together."""

_NESTING = 5
_TEXT = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""


def _balanced(depth: int) -> str:
    """A pattern for a piece of a printed value in which every bracket is closed again."""
    plain = rf"""[^()\[\]{{}}'"\n]|{_TEXT}"""
    return rf"(?:{plain}|[(\[{{](?:{_balanced(depth - 1)})*[)\]}}])" if depth else f"(?:{plain})"


_BEFORE = f"(?:{_balanced(_NESTING)}*, )?"
"""The arguments before one: what merely looks like one inside of another's value is skipped with it."""

Given = Mapping[str, list[str] | None]
"""A level's options, each with its values: none for a switch, None where it is given twice."""
Values = Mapping[str, frozenset[str]]
"""What is known of a level: an argument's name → every form in which its value may be printed."""


def argument_witness(shown: Shown, factor: Factor) -> ArgumentWitness | None:
    """How the stack's report of its arguments shows the levels of a factor; None where it shows none.

    A level's pattern names arguments whose values tell it from every other level of which some argument
    is known. Where an option is not given, the stack chooses, so nothing is known of its value; a switch
    that is not given is off.
    """
    match factor:
        case FlagsFactor(levels=flags):
            given = {level: _given(arguments) for level, arguments in flags.items()}
        case OptionFactor(option=option, levels=values):
            given = {
                level: {} if value is None else _given([f"{option}={value}"])
                for level, value in values.items()
            }
        case _:
            return None
    known = _known(given)
    patterns = {
        level: _pattern(shown, {name: known[level][name] for name in told})
        for level in known
        if (told := _telling(level, known))
    }
    denied = {
        level: pattern
        for level, options in given.items()
        for option, pattern in shown.never.items()
        if option.removeprefix("--").replace("-", "_") in options
    }
    return ArgumentWitness(patterns=patterns, denied=denied) if patterns or denied else None


def _telling(level: str, known: Mapping[str, Values]) -> tuple[str, ...]:
    """The fewest arguments that tell a level from the others; none where no few do."""
    others = [values for name, values in known.items() if name != level and values]
    own = known[level]
    return next(
        (
            told
            for size in range(1, _TOLD_BY + 1)
            for told in combinations(own, size)
            if all(any(own[n].isdisjoint(other.get(n, own[n])) for n in told) for other in others)
        ),
        (),
    )


def _pattern(shown: Shown, values: Values) -> str:
    """The arguments on the stack's line, in whichever order it prints them."""
    arguments = [
        shown.argument.replace("{name}", name).replace("{value}", f"(?:{'|'.join(sorted(forms))})")
        for name, forms in values.items()
    ]
    orders = [f", {_BEFORE}".join(order) for order in permutations(arguments)]
    return f"{shown.line}{_BEFORE}(?:{'|'.join(orders)})[,)}}]"


def _given(arguments: Iterable[str]) -> Given:
    found: dict[str, list[str] | None] = {}
    values: list[str] = []
    for argument in arguments:
        if option := _OPTION.fullmatch(argument):
            name = option["name"].replace("-", "_")
            values = [] if option["value"] is None else [option["value"]]
            found[name] = None if name in found else values
        elif _ANOTHER.match(argument):
            values = []  # of an option that the report calls otherwise
        else:
            values.append(argument)
    return found


def _known(given: Mapping[str, Given]) -> dict[str, Values]:
    """What is known of each level: `--no-x` switches x off, and so does the want of a mere switch."""
    used = {name for level in given.values() for name in level}
    off = {
        name: _OFF
        for name in sorted(used)
        if not name.startswith(_NO)
        and f"{_NO}{name}" not in used
        and all(level.get(name, []) == [] for level in given.values())
    }
    return {
        level: off | dict(_argument(name, values) for name, values in options.items() if values is not None)
        for level, options in given.items()
    }


def _argument(name: str, values: list[str]) -> tuple[str, frozenset[str]]:
    """The argument that an option sets, with the forms of its value."""
    if values:
        return name, _forms(values)
    return (name.removeprefix(_NO), _OFF) if name.startswith(_NO) else (name, _ON)


def _forms(values: Sequence[str]) -> frozenset[str]:
    """Patterns for every form in which these may be printed: as texts, numbers or truths, a list, an enum."""
    forms: set[str] = set()
    for read in (str, int, float, _truth):
        try:
            printed = [re2.escape(repr(read(value))) for value in values]
        except ValueError:
            continue
        forms.add(rf"\[{', '.join(printed)}\]")
        if len(printed) == 1:
            forms.update(printed)
    if len(values) == 1 and values[0].isidentifier():
        forms.add(rf"<\w+\.{values[0]}(?:: [^<>\n]*)?>")
    return frozenset(forms)


def _truth(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


# --- the ports --------------------------------------------------------------------------------------

_LAST_PORT = 65535


def further_ports(loaded: Loaded, launch: str, arguments: Iterable[str] = ()) -> tuple[int, ...]:
    """The ports that a stack takes beside its own, as far as they are written out.

    `launch` is the launch script, `arguments` all that it may be given.
    """
    said = [*words(launch), *arguments]
    ports = [port for option in loaded.ports.options for port in _named(option, said)]
    for rule in loaded.ports.derived:
        if any(value != "1" for option in rule.when for value in _values(option, said)):
            ports += [first + n for first in _firsts(rule, said) for n in range(rule.count)]
    return tuple(dict.fromkeys(port for port in ports if 0 < port <= _LAST_PORT))


def _firsts(rule: Derived, said: Sequence[str]) -> list[int]:
    if instead := [port for option in rule.instead for port in _named(option, said)]:
        return instead
    bases = _named(rule.base, said) or [rule.default]
    return [base + rule.plus if base + rule.plus <= _LAST_PORT else base - rule.plus for base in bases]


def _named(option: str, said: Sequence[str]) -> list[int]:
    """The ports that an option names, as PORT or HOST:PORT; what the shell fills in is not known."""
    ports = (value.rpartition(":")[2] for value in _values(option, said))
    return [int(port) for port in ports if port.isascii() and port.isdigit()]


def _values(option: str, said: Sequence[str]) -> list[str]:
    """The words behind an option, wherever it is given; another option, or nothing, behind a switch."""
    after = [*said[1:], ""]
    return [
        word.partition("=")[2] if word.startswith(f"{option}=") else following
        for word, following in zip(said, after, strict=True)
        if word == option or word.startswith(f"{option}=")
    ]
