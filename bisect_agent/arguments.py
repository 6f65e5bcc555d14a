"""What a program accepts: its options and the environment names it reads; and what a command line gets wrong.

Options come from the program's own `--help`, or from what is shipped about a release
(hypotheses/arguments). A command line is read as Python's argparse reads it, and as vLLM's parser does,
which rewrites some of it first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from bisect_agent.model import Frozen

Takes = Literal["none", "one", "optional", "many", "any", "rest"] | int | None
"""How many values an option takes: none, one, at most one, at least one, any number, all that follows,
exactly so many; None where it is not known."""


class Option(Frozen):
    """An option: all its names, its values, and what the program says where it is deprecated."""

    names: tuple[str, ...]
    takes: Takes = None
    choices: tuple[str, ...] = ()
    deprecated: str = ""


class Options(Frozen):
    """The options that a program knows; `source` says how that is known, and ends a sentence.

    `positionals` says that it takes arguments which belong to no option, too. `flexible` is vLLM's way:
    `_` in a name is `-`, `--config.key` sets one key of a JSON value.
    """

    source: str
    options: tuple[Option, ...]
    positionals: bool = True
    flexible: bool = False


class Names(Frozen):
    """The environment names that occur in a package; `source` says in which one, and ends a sentence.

    Those that begin with one of `prefixes` are the package's own. In a name, `*` stands for what is put
    in when the program runs. `complete` says that all of the package was looked through.
    """

    source: str
    prefixes: tuple[str, ...]
    names: frozenset[str]
    complete: bool = True

    def holds(self, name: str) -> bool:
        """Whether a name occurs."""
        return name in self.names or any(
            re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), name)
            for pattern in self.names
            if "*" in pattern
        )


class Shipped(Frozen):
    """A file of hypotheses/arguments: what a release of a stack knows."""

    stack: str
    version: str
    flexible: bool
    positionals: bool
    options: tuple[Option, ...]
    environment: frozenset[str]

    def known(self) -> Options:
        """The options of that release."""
        return Options(
            source=f"{self.stack} {self.version}",
            options=self.options,
            positionals=self.positionals,
            flexible=self.flexible,
        )

    def names(self, prefixes: tuple[str, ...]) -> Names:
        """The names of that release; `prefixes` are those of its package."""
        return Names(source=f"{self.stack} {self.version}", prefixes=prefixes, names=self.environment)


def shipped(text: str) -> Shipped:
    """What a file of hypotheses/arguments says."""
    return Shipped.model_validate_json(text)


Kind = Literal["unknown", "ambiguous", "abbreviation", "deprecated", "choice", "values"]


class Finding(Frozen):
    """What a command line or an environment gets wrong, and what to write instead.

    `wrong` says that the program refuses to start with it. `values` are too many or too few of them.
    """

    kind: Kind
    argument: str
    text: str
    remedy: str
    wrong: bool


# --- the environment ----------------------------------------------------------------------------------


def check_names(
    names: Iterable[str], read: Sequence[Names], retired: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """The names that a package calls its own and that do not occur in it.

    Nothing is said of a name that is no package's own, or whose package could not be looked through.
    `retired` are names of other releases, each with what to write instead; `OLD_*: NEW_*` speaks of all
    that begin so.
    """
    found = (_check_name(name, read, retired or {}) for name in dict.fromkeys(names))
    return tuple(finding for finding in found if finding is not None)


def _check_name(name: str, read: Sequence[Names], retired: Mapping[str, str]) -> Finding | None:
    owners = [package for package in read if name.startswith(package.prefixes)]
    if not owners or not all(owner.complete for owner in owners) or any(o.holds(name) for o in owners):
        return None
    sources = " or ".join(owner.source for owner in owners)
    for old, new in retired.items():
        renamed = new.removesuffix("*") + name.removeprefix(old.removesuffix("*"))
        if old.endswith("*") and name.startswith(old[:-1]) and any(owner.holds(renamed) for owner in owners):
            text = f"{name} is an old spelling of {renamed}, which {sources} reads"
            return Finding(kind="deprecated", argument=name, text=text, remedy=renamed, wrong=False)
    text = f"{name} does not occur in {sources}: nothing there reads it"
    remedy = retired.get(name) or _nearest(name, (n for owner in owners for n in owner.names))
    return Finding(
        kind="unknown",
        argument=name,
        text=text,
        remedy=remedy or "leave it out; where other code reads it, give its factor a witness",
        wrong=False,
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    """The known name that looks most like `name`, or nothing."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)), "")


# --- the command line ---------------------------------------------------------------------------------


def check(
    argv: Sequence[str], options: Options, retired: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """What is wrong with the arguments of a program, or will be in another release of it.

    `argv` may be a part of a command line that begins anywhere: a value at its front may belong to an
    option before it. `retired` are options of other releases, each with what to write instead.
    """
    return tuple(_Reader(options, retired or {}).read(argv))


@dataclass(frozen=True)
class _Value:
    """An argument that is no option."""


@dataclass(frozen=True)
class _Unknown:
    """An option that nobody knows."""


@dataclass(frozen=True)
class _Ambiguous:
    """A part of several names."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class _Known:
    """An option by a name of it; `value` is what is attached to it (`--name=value`, `-n4`)."""

    option: Option
    name: str
    value: str | None


_Meaning = _Value | _Unknown | _Ambiguous | _Known
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_DOTTED = re.compile(r"(-{1,2}[A-Za-z][^.=]*)\.[^=]*(=?)")
_LONGEST = 80
_LEVELS = frozenset("0123")


class _Reader:
    """Reads one command line as argparse would."""

    def __init__(self, options: Options, retired: Mapping[str, str]) -> None:
        self._options = options
        self._retired = retired
        self._named = {name: option for option in options.options for name in option.names}
        self._negatives = any(_NEGATIVE.fullmatch(name) for name in self._named)

    def read(self, argv: Sequence[str]) -> Iterator[Finding]:
        # Invariant: `at` is the first argument that is not judged; `owner` is the option before it where
        # a value that stands there would belong to nobody.
        arguments = _rewritten(argv) if self._options.flexible else [(arg, arg) for arg in argv]
        meanings = [self._meaning(arg) for arg, _ in arguments]
        owner = ""
        at = 0
        while at < len(arguments):
            argument, original = arguments[at]
            meaning = meanings[at]
            at += 1
            if argument == "--":
                return
            if isinstance(meaning, _Value):
                if owner and not self._options.positionals:
                    yield self._stray(original, owner)
                continue
            owner = ""
            if isinstance(meaning, _Unknown):
                yield self._unknown(original, argument)
            elif isinstance(meaning, _Ambiguous):
                yield self._ambiguous(original, argument, meaning.names)
            else:
                if meaning.option.takes == "rest":
                    return
                following = zip(arguments[at:], meanings[at:], strict=True)
                values = takewhile(lambda pair: isinstance(pair[1], _Value) and pair[0][0] != "--", following)
                given = tuple(value for (value, _), _ in values)
                yield from self._known(argument, meaning, given)
                at += _taken(meaning, len(given))
                owner = "" if meaning.option.takes is None else meaning.name

    def _meaning(self, argument: str) -> _Meaning:
        if not argument.startswith("-") or argument in {"-", "--"}:
            return _Value()
        if argument in self._named:
            return _Known(self._named[argument], argument, None)
        head, equals, value = argument.partition("=")
        if equals and head in self._named:
            return self._last(_Known(self._named[head], head, value))
        meant = list(self._abbreviated(argument, head, value if equals else None))
        if len(meant) > 1:
            return _Ambiguous(tuple(known.name for known in meant))
        if meant:
            return self._last(meant[0])
        if (_NEGATIVE.fullmatch(argument) and not self._negatives) or " " in argument:
            return _Value()
        return _Unknown()

    def _abbreviated(self, argument: str, head: str, value: str | None) -> Iterator[_Known]:
        """What an argument that is no name may be short for; for `-n4` also `-n` with its value."""
        for name, option in self._named.items():
            if argument.startswith("--"):
                if name.startswith(head):
                    yield _Known(option, name, value)
            elif name == argument[:2]:
                yield _Known(option, name, argument[2:])
            elif name.startswith(argument):
                yield _Known(option, name, None)

    def _last(self, known: _Known) -> _Known:
        """Of `-ab`, which is `-a -b` where `-a` takes no value, the last option."""
        while known.option.takes == "none" and known.value and not known.name.startswith("--"):
            name = "-" + known.value[0]
            if name not in self._named:
                break
            known = _Known(self._named[name], name, known.value[1:] or None)
        return known

    def _known(self, argument: str, meaning: _Known, values: tuple[str, ...]) -> Iterator[Finding]:
        option, name = meaning.option, meaning.name
        written = argument.partition("=")[0]
        if name.startswith("--") and written != name:
            text = f"`{_cut(written)}` is read as `{name}`, but only as long as no other option begins so"
            yield _finding("abbreviation", written, text, f"write `{name}`", wrong=False)
        if option.deprecated:
            text = f"`{name}` is deprecated in {self._options.source}, which says: {option.deprecated}"
            yield _finding("deprecated", name, text, self._replacement(option), wrong=False)
        if meaning.value is None:
            given = values[: _taken(meaning, len(values))]
            if len(given) < _needed(option.takes):
                needed = "a value" if _needed(option.takes) == 1 else f"{_needed(option.takes)} values"
                text = f"`{name}` needs {needed}, and {len(given) or 'none'} follows it"
                yield _finding("values", name, text, f"write what it is to be after `{name}`", wrong=True)
        elif option.takes == "none":
            text = f"`{name}` takes no value, and `{_cut(meaning.value)}` is given"
            yield _finding("values", name, text, f"write `{name}` alone, or leave it out", wrong=True)
            return
        else:
            given = (meaning.value,)
            if _needed(option.takes) > 1:
                text = f"`{name}` needs {option.takes} values, and `=` gives it one"
                yield _finding("values", name, text, "write them after it, without `=`", wrong=True)
        if option.choices:
            wrong = (self._choice(name, option, value) for value in given if value not in option.choices)
            yield from (finding for finding in wrong if finding is not None)

    def _choice(self, name: str, option: Option, value: str) -> Finding | None:
        """A value that is none of the choices; nothing where it is the same number."""
        folded = {_folded(choice): choice for choice in option.choices}
        if _number(value) is not None and _number(value) in map(_number, option.choices):
            return None
        listed = ", ".join(option.choices)
        if (meant := folded.get(_folded(value))) is not None:
            # Some parsers fold a value before they compare it: this may be right.
            text = f"`{name}` takes `{meant}`, and `{_cut(value)}` is given"
            return _finding("choice", name, text, f"write `{name} {meant}`", wrong=False)
        near = _nearest(value, option.choices)
        remedy = f"write `{name} {near}`" if near else "write one of them"
        text = f"`{_cut(value)}` is none of the choices of `{name}` in {self._options.source}: {listed}"
        return _finding("choice", name, text, remedy, wrong=True)

    def _unknown(self, original: str, argument: str) -> Finding:
        name, written = argument.partition("=")[0], original.partition("=")[0]
        text = f"`{_cut(written)}` is not an option of {self._options.source}"
        instead = self._retired.get(name) or _nearest(name, self._named)
        return _finding("unknown", written, text, _write(instead) or "leave it out", wrong=True)

    def _ambiguous(self, original: str, argument: str, names: tuple[str, ...]) -> Finding:
        name, written = argument.partition("=")[0], original.partition("=")[0]
        listed = ", ".join(f"`{name}`" for name in names)
        text = f"`{_cut(written)}` is short for several options of {self._options.source}: {listed}"
        remedy = _write(self._retired.get(name, "")) or "write one of them in full"
        return _finding("ambiguous", written, text, remedy, wrong=True)

    def _stray(self, original: str, owner: str) -> Finding:
        text = f"`{_cut(original)}` belongs to no option: `{owner}` takes no more values"
        return _finding("values", original, text, "leave it out, or put its option before it", wrong=True)

    def _replacement(self, option: Option) -> str:
        """What to write instead of a deprecated option, as far as it is said."""
        retired = next((self._retired[name] for name in option.names if name in self._retired), "")
        named = _USE.search(option.deprecated)
        return _write(retired or (named[1].rstrip(".,;)`'\"") if named else "")) or "do without it"


_USE = re.compile(r"\b[Uu]se:? [`'\"]?(--\S+)")


def _write(instead: str) -> str:
    """The remedy where something else is to be written: an option, or words that say what."""
    return f"write `{instead}`" if instead.startswith("-") else instead


def _finding(kind: Kind, argument: str, text: str, remedy: str, *, wrong: bool) -> Finding:
    return Finding(kind=kind, argument=argument, text=text, remedy=remedy, wrong=wrong)


def _needed(takes: Takes) -> int:
    """How many values an option cannot do without."""
    return takes if isinstance(takes, int) else {"one": 1, "many": 1}.get(takes or "", 0)


def _taken(meaning: _Known, following: int) -> int:
    """How many of the values that follow an option are its own."""
    takes = meaning.option.takes
    if meaning.value is not None or takes == "none":
        return 0
    if isinstance(takes, int):
        return min(takes, following)
    return min(1, following) if takes in {"one", "optional"} else following


def _cut(text: str) -> str:
    """A text of the user's, as long as a sentence can bear."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _folded(value: str) -> str:
    return value.lower().replace("-", "_")


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _dashed(name: str) -> str:
    """A name of an option with its `_` as `-`, up to the first dot."""
    head, dot, rest = name.partition(".")
    return head[:2] + head[2:].replace("_", "-") + dot + rest if name.startswith("--") else name


def _rewritten(argv: Sequence[str]) -> list[tuple[str, str]]:
    """The arguments as vLLM's parser hands them to argparse, each with what was written.

    `--a_b.c=1` and `--a_b.c 1` become `--a-b={…}`, some JSON; `-O3` becomes `--optimization-level 3`.
    """
    found: list[tuple[str, str]] = []
    left = iter(enumerate(argv))
    for at, argument in left:
        if argument == "-O" and argv[at + 1 : at + 2] and argv[at + 1] in _LEVELS:
            found.append(("--optimization-level", argument))
        elif argument.startswith("-O") and argument != "-O":
            found += [("--optimization-level", argument), (argument[2:].removeprefix("="), argument)]
        elif (dotted := _DOTTED.match(argument)) is not None:
            valued = dotted[2] or next(left, None) is not None
            found.append((_dashed(dotted[1]) + ("={…}" if valued else ""), argument))
        elif argument.startswith("--"):
            head, equals, value = argument.partition("=")
            found.append((_dashed(head) + equals + value, argument))
        else:
            found.append((argument, argument))
    return found


# --- what a program says of itself --------------------------------------------------------------------

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_USAGE = re.compile(r"^usage: (.*?)(?:\n[ \t]*\n|\Z)", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"^  (-\S.*)$")
_DEPRECATED = re.compile(r"^\W*(?:note: )?deprecated\b", re.IGNORECASE)
_LAST_OPTION = re.compile(r"\[-[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]\Z")
_NOTE_LENGTH = 200


def from_help(text: str) -> Options | None:
    """The options in what a program prints for `--help`; None where that is no help of argparse.

    The usage alone, which argparse prints with an error, is none: it gives only one name of each option.
    Nor is what a script prints of its own: the sentence that argparse says of `-h` must be there.
    """
    text = _ESCAPES.sub("", text).expandtabs()
    usage = _USAGE.search(text)
    if usage is None or "show this help message and exit" not in re.sub(r"\s+", " ", text):
        return None
    flexible = "--json-arg.key" in text
    options = tuple(_options(text[usage.end() :].splitlines(), flexible=flexible))
    program = re.split(r"\s+[\[\-{<(]", usage[1], maxsplit=1)[0].strip()
    return Options(
        source=f"{_cut(program)}, by its own --help",
        options=options,
        positionals=not _LAST_OPTION.search(usage[1].rstrip()) or "positional arguments:" in text,
        flexible=flexible,
    )


def _options(lines: Sequence[str], *, flexible: bool) -> Iterator[Option]:
    # Each block is an option's line with its own help below it.
    blocks: list[list[str]] = []
    open_block = False
    for line in lines:
        if (found := _OPTION.match(line)) is not None:
            blocks.append([found[1]])
            open_block = True
        elif open_block and line.startswith("   "):
            blocks[-1].append(line.strip())
        else:
            open_block = False
    for first, *below in blocks:
        invocation, _, said = first.partition("  ")
        yield _option(invocation, _joined([said, *below]), flexible=flexible)


def _joined(lines: Iterable[str]) -> str:
    """Lines as they were before they were wrapped, which may have been at a hyphen."""
    return re.sub(r"(?<=\w-)\n(?=\w)", "", "\n".join(lines)).replace("\n", " ")


def _option(invocation: str, said: str, *, flexible: bool) -> Option:
    """An option by its line (`-n N, --number N`; since Python 3.13 `-n, --number N`) and its help."""
    parts = [part.partition(" ") for part in re.split(r", (?=-)", invocation)]
    names = [name for name, _, _ in parts]
    takes, choices = _values(parts[-1][2].strip())
    if flexible and takes == "none" and len(names) > 1:
        # vLLM accepts the negated form of `--enable-x, --disable-x` too, and does not list it.
        enabled = [name.removeprefix("--enable-") for name in names if name.startswith("--enable-")]
        ends = [end for end in enabled if f"--disable-{end}" in names]
        names += [f"--no-{verb}-{end}" for end in ends for verb in ("enable", "disable")]
    note = re.sub(r"\s+", " ", said).strip()
    own = any(f"{name} is deprecated" in note for name in names)
    return Option(
        names=tuple(names),
        takes=takes,
        choices=choices,
        deprecated=_cut_note(note) if own or _DEPRECATED.match(note) else "",
    )


def _cut_note(note: str) -> str:
    return note if len(note) <= _NOTE_LENGTH else re.split(r"(?<=\.) ", note)[0][:_NOTE_LENGTH]


def _values(shown: str) -> tuple[Takes, tuple[str, ...]]:
    """How many values an option takes, and its choices, by how argparse shows them."""
    choices = tuple(braces[1].split(",")) if (braces := re.match(r"\[?\{([^{} ]+)\}", shown)) else ()
    if not shown:
        return "none", ()
    if shown == "...":
        return "rest", ()
    if shown.endswith("...]"):
        return ("any" if shown.startswith("[") else "many"), choices
    if re.fullmatch(r"\[[^\[\]'\" ]+\]", shown):
        return "optional", choices
    words = shown.split(" ")
    if len(words) == 1:
        return "one", choices
    # Two words may be two values, or one with a space in what stands for it.
    return (len(words), choices) if len(set(words)) == 1 else (None, ())
