"""Environment variables: what may name one, which of them hold secrets, what `${NAME}` stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bisect_agent.errors import UsageError
from bisect_agent.yamlmarks import Field, Mark, Problems

KEEP_OUT = 'set a variable to it before the run, name it under `pass`, and write "$NAME" in the launch script'
"""What to do with a secret that is written out."""
RESERVED = frozenset({"BISECT_AGENT_TAG"})
"""Variables that the product sets itself."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET = re.compile(r"SECRET|PASSWORD|PASSWD|(KEYS?|TOKEN)(_|\d|$)", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"^--?([a-z0-9]+[-_])*(api[-_]?key|token|password|secret)$")
_ASSIGNED = re.compile(
    r"""(?m)^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)=["']?(?P<value>[^\s"'$`;&|]+)["']?(?=[\s;&|]|$)"""
)
_SWITCHES = frozenset({"", "0", "1", "true", "false", "on", "off", "yes", "no"})


def looks_secret(name: str) -> bool:
    """Whether a variable of that name holds a secret: API_KEY does, MAX_TOKENS does not."""
    return _SECRET.search(name) is not None


def is_switch(value: str) -> bool:
    """Whether a value only turns something on or off, so that it is no secret and stands everywhere."""
    return value.lower() in _SWITCHES


def refuse_secrets(arguments: Iterable[Field]) -> None:
    """Note a problem with each secret that is written out among a program's arguments."""
    before = ""
    for argument in arguments:
        text = argument.scalar() or ""
        name, equals, value = text.partition("=")
        if equals:
            refuse_secrets_of(argument, name, [value])
        elif not text.startswith("-"):
            refuse_secrets_of(argument, before, [text])
        before = text


def refuse_secrets_of(field: Field, option: str, values: Iterable[str | None]) -> None:
    """Note a problem at `field` if the option's values are secrets that are written out."""
    if _SECRET_OPTION.search(option) and any(values):
        field.refuse(
            f"{option} looks like the option of a secret, and its value is written out",
            'give it in the launch script, as "$API_KEY", and name that variable under `pass`',
        )


def written_out(script: str) -> list[tuple[int, str]]:
    """The secrets that a shell script sets to a plain value: line, from 1, and variable."""
    return [
        (script.count("\n", 0, found.start("name")) + 1, found["name"])
        for found in _ASSIGNED.finditer(script)
        if looks_secret(found["name"]) and not is_switch(found["value"])
    ]


def overwritten(words: Iterable[str]) -> set[str]:
    """The variables that a script's words assign or unset, whatever they were before."""
    found: set[str] = set()
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and _NAME.fullmatch(name) and not re.search(rf"\$\{{?{name}\b", value):
            found.add(name)
        if before == "unset" and _NAME.fullmatch(word):
            found.add(word)
        before = before if before == "unset" and _NAME.fullmatch(word) else word
    return found


def references(value: str) -> tuple[str, ...]:
    """The names that `value` takes from our environment."""
    return tuple(_REFERENCE.findall(value))


def filled(value: str, ours: Mapping[str, str]) -> str:
    """`value` with every `${NAME}` replaced by what it is in `ours`.

    Raises:
        UsageError: one of them is not set.
    """
    if missing := [name for name in references(value) if name not in ours]:
        raise UsageError(
            f"the playbook takes ${{{missing[0]}}} from our environment, where it is not set",
            f"export {missing[0]}=…",
        )
    return _REFERENCE.sub(lambda reference: ours[reference[1]], value)


def check_name(name: str, mark: Mark, problems: Problems) -> None:
    """Note a problem unless a playbook may set a variable of that name."""
    if name in RESERVED:
        problems.add(mark, f"{name} is set by the product itself", "leave it out")
    elif name and not _NAME.fullmatch(name):
        found = f"`{name}` cannot name an environment variable"
        problems.add(mark, found, "letters, digits and _, and no digit first")


def check_value(field: Field, variable: str, value: str, ours: Mapping[str, str]) -> None:
    """Note a problem with a secret written out, and with each `${NAME}` that is not set in `ours`."""
    names = references(value)
    if not names and looks_secret(variable) and not is_switch(value):
        field.refuse(
            f"{variable} looks like a secret and is written out",
            f"${{{variable}}}, which is taken from your environment",
        )
    for name in names:
        if name not in ours:
            field.refuse(f"${{{name}}} is not set in your environment", f"export {name}=… before the run")
