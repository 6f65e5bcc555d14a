"""What a person types to run a configuration by hand, with nothing of ours in between."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import assert_never

from bisect_agent import playbook as books
from bisect_agent import variables
from bisect_agent.model import (
    Configuration,
    EnvFactor,
    Factor,
    FileFactor,
    FlagsFactor,
    OptionFactor,
    Playbook,
    ScriptFactor,
)

_REFERENCE = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\})")
_CACHES = "CACHES"


def commands(
    playbook: Playbook, configuration: Configuration, script: str, environment: str
) -> tuple[str, ...]:
    """The lines of shell that start a configuration as an attempt did.

    `script` is where the launch script lies on the target; `environment` is what the attempt got, as
    the run folder keeps it. Secrets are taken from the environment of whoever types this.
    """
    target = playbook.target
    lines = [] if target.host == "local" else [f"# on {target.host}"]
    lines.append(f"cd {word(target.cwd)}")
    for path, text in books.files(playbook, configuration).items():
        lines += _file(path, text)
    if playbook.caches:
        lines.append(f'{_CACHES}="$(mktemp -d)"')
    lines.append("env -i \\")
    values = _variables(playbook, configuration, environment)
    lines += [f"  {name}={value} \\" for name, value in sorted(values.items())]
    return (*lines, "  " + " ".join(map(word, ("bash", script, *books.arguments(playbook, configuration)))))


def asks(playbook: Playbook) -> tuple[str, ...]:
    """The lines of shell that ask a server what every attempt asked it."""
    observe = playbook.observe
    paths = [f"curl -sS -i {word(_url(playbook, observe.ready_http))}"] if observe.ready_http else []
    if observe.request is None:
        return tuple(paths)
    url, body = word(_url(playbook, observe.request.path)), observe.request.body
    sent = "" if body is None else f" -H 'Content-Type: application/json' --data {word(body)}"
    return (*paths, f"curl -sS {url}{sent}")


def _url(playbook: Playbook, path: str) -> str:
    return f"http://127.0.0.1:{playbook.target.ports[0]}{path}"


def means(factor: Factor, level: str) -> str:
    """How a level is set, in a few words."""
    match factor:
        case EnvFactor(env=name):
            value = factor.levels[level]
            return f"{name} is unset" if value is None else f"{name}={value}"
        case FlagsFactor():
            return " ".join(map(word, factor.levels[level])) or "no argument"
        case OptionFactor(option=name):
            value = factor.levels[level]
            return f"no {name}" if value is None else f"{name} {word(value)}"
        case FileFactor(path=path):
            return f"no file {path}" if factor.levels[level] is None else f"its text in {path}"
        case ScriptFactor():
            return "its launch script"
        case _:
            assert_never(factor)


def word(text: str) -> str:
    """A text as one word of bash, on one line and with nothing in it that a terminal obeys."""
    if text.isprintable():
        return shlex.quote(text)
    shown = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(c if c.isprintable() else _escaped(c) for c in shown) + "'"


def _escaped(character: str) -> str:
    """A character as `$'…'` has it; what is no character (a broken byte) as its byte."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return {"\n": "\\n", "\t": "\\t"}.get(character, f"\\U{code:08x}")


# --- environment ------------------------------------------------------------------------------------


def _variables(playbook: Playbook, configuration: Configuration, written: str) -> dict[str, str]:
    """The environment of an attempt, as words.

    What was taken from our environment is shown as it was then, but for secrets, which are named.
    """
    named = {name: f"${{{name}}}" for name in _taken(playbook)}
    values = books.environment(playbook, configuration, named)
    secret = set(books.secrets_of(playbook, named))
    then = _read(written, {*values, *playbook.caches})
    words = {
        name: _named(value) if secret & set(variables.references(value)) else word(then[name])
        for name, value in values.items()
        if name in then
    }
    return words | {name: f'"${_CACHES}"/{word(folder)}' for name, folder in playbook.caches.items()}


def _taken(playbook: Playbook) -> set[str]:
    """The names of our environment that a playbook may take."""
    levels = [v for f in playbook.factors if isinstance(f, EnvFactor) for v in f.levels.values() if v]
    written = [*playbook.target.env.values(), *levels]
    return {*books.INHERITED, *playbook.target.passed, *(n for v in written for n in variables.references(v))}


def _read(text: str, names: Collection[str]) -> Mapping[str, str]:
    """The environment that the run folder keeps, one `NAME=value` a line; a value may have several."""
    found: dict[str, str] = {}
    name = ""
    for line in text.removesuffix("\n").split("\n"):
        begun, equals, value = line.partition("=")
        if equals and begun in names and begun not in found:
            name, found[begun] = begun, value
        elif name:
            found[name] += f"\n{line}"
    return found


def _named(value: str) -> str:
    """A value in which `${NAME}` is left to the shell, and nothing else is."""
    parts = [part for part in _REFERENCE.split(value) if part]
    return "".join(f'"{part}"' if _REFERENCE.fullmatch(part) else word(part) for part in parts) or "''"


# --- files ------------------------------------------------------------------------------------------


def _file(path: str, text: str | None) -> Iterator[str]:
    """The lines that write a file, or see to it that there is none; what was there first is kept."""
    yield f"test -e {word(path)} && cp -np {word(path)} {word(f'{path}.kept')}"
    if text is None:
        yield f"rm -f {word(path)}"
        return
    lines = text.split("\n")
    if lines[-1] or not all(line.isprintable() for line in lines):
        yield f"printf %s {word(text)} >{word(path)}"
        return
    end = "END"
    while end in lines:
        end += "_"
    yield from (f"cat >{word(path)} <<'{end}'", *lines[:-1], end)
