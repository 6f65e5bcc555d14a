"""Reads a launch script for what would not be ours: processes that others own, or that it leaves behind.

Only the processes below the script belong to an attempt: they are watched, and ended. A container's
belong to its daemon, a unit's to the service manager, a session's of tmux to its server.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bisect_agent.model import Frozen


class Complaint(Frozen):
    """A line of a launch script that starts what would not be ours: what was found, what to write."""

    line: int
    found: str
    remedy: str


def complaints(script: str) -> tuple[Complaint, ...]:
    """What a launch script, for a POSIX shell, starts that would not be ours, in the order of its lines."""
    found = (complaint for program in _programs(_commands(script)) if (complaint := _complaint(program)))
    return tuple(sorted(found, key=lambda complaint: complaint.line))


def left_behind(script: str) -> Complaint | None:
    """The last program, where the script neither waits for it nor goes on with another.

    It is ours all the same; but the script's end is the end of the attempt, and a server's must not end.
    """
    own = [p for p in _programs(_commands(script)) if not p.command.aside]
    while own and own[-1].name in _IDLE and not own[-1].command.background:
        own.pop()
    if not own or not own[-1].command.background:
        return None
    found = f"`{own[-1].name}` is sent to the background, and the script ends without waiting for it"
    return Complaint(line=own[-1].command.line, found=found, remedy=_FOREGROUND)


def commands(script: str) -> Iterator[tuple[str, ...]]:
    """The simple commands that a script itself runs, each as its words, quotes and all."""
    return (command.written for command in _commands(script) if not command.aside)


def words(script: str) -> tuple[str, ...]:
    """All words of a script's commands, without their quotes; what the shell fills in stays as written."""
    return tuple(word for command in _commands(script) for word in command.words)


# --- the commands of a script -----------------------------------------------------------------------

_DEEPEST = 40
"""Substitutions nested deeper are not looked into, so that no script can exhaust the stack."""
_REDIRECTS = ("&>>", "<<<", "&>", "<>", "<&", ">>", ">&", ">|", "<", ">")
_SEPARATORS = (";;&", ";;", ";&", ";", "&&", "||", "|&", "|", "&")
_CLOSED: tuple[list[str], ...] = ([], ["}"], ["done"], ["fi"], ["esac"])
"""What stands before a `&` that sends a whole group of commands to the background."""
_ENDS_WORD = frozenset(" \t\r\n;&|<>()")


@dataclass(frozen=True)
class _Command:
    """A simple command. `aside` says that it stands in a substitution, so the script waits for it.

    `written` are its words with their quotes.
    """

    words: tuple[str, ...]
    written: tuple[str, ...]
    line: int
    background: bool
    aside: bool


def _commands(script: str, line: int = 1, depth: int = 0, *, aside: bool = False) -> list[_Command]:
    reader = _Reader(script, line, depth)
    reader.read(aside=aside)
    return reader.found


@dataclass
class _Reader:
    """A cursor over a script. It takes every text: what is not closed ends with the text."""

    text: str
    line: int
    depth: int
    at: int = 0
    found: list[_Command] = field(default_factory=list)
    _heredocs: list[tuple[str, bool]] = field(default_factory=list)
    _breaks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._breaks = [match.start() for match in re.finditer("\n", self.text)]

    def read(self, *, aside: bool, closed: bool = False) -> None:
        """Reads commands up to the end, or, where they are in brackets, up to the closing one."""
        said: list[str] = []
        written: list[str] = []
        begin = self.at
        brackets = 0
        skipped = False

        def close(*, background: bool = False) -> None:
            nonlocal skipped
            skipped = False
            if background and said in _CLOSED and self.found:
                self.found[-1] = replace(self.found[-1], background=True)
            elif said:
                line = self.line + bisect_right(self._breaks, begin)
                self.found.append(_Command(tuple(said), tuple(written), line, background, aside))
            said.clear()
            written.clear()

        while self.at < len(self.text):
            if self._skip_blanks():
                continue
            if self._take("\n"):
                close()
                self._skip_heredocs()
            elif self._take("(("):
                self._past("))")
            elif self._take("("):
                close()
                brackets += 1
            elif self._take(")"):
                close()
                if closed and not brackets:
                    return
                brackets -= 1
            elif self._take("<(") or self._take(">("):
                self._aside()
            elif heredoc := self._take("<<-") or (not self._sees("<<<") and self._take("<<")):
                self._skip_blanks()
                self._heredocs.append((self._word(), heredoc == "<<-"))
            elif self._redirects(said):
                del written[len(said) :]
                skipped = True
            elif separator := next(filter(self._take, _SEPARATORS), ""):
                close(background=separator == "&")
            else:
                at = self.at
                begin = begin if said else at
                word = self._word()
                if not skipped:
                    said.append(word)
                    written.append(self.text[at : self.at])
                skipped = False
        close()

    def _redirects(self, said: list[str]) -> bool:
        """Whether a redirection comes next, which is passed, with the number before it."""
        before = self.text[self.at - 1 : self.at]
        if not any(map(self._take, _REDIRECTS)):
            return False
        if before.isdigit() and said[-1:] and said[-1].isdigit():
            said.pop()
        return True

    def _sees(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def _take(self, token: str) -> str:
        """The token, if it comes next; it is passed."""
        if not self._sees(token):
            return ""
        self.at += len(token)
        return token

    def _to(self, token: str) -> None:
        """Goes to where a token comes next."""
        end = self.text.find(token, self.at)
        self.at = len(self.text) if end < 0 else end

    def _past(self, token: str) -> None:
        self._to(token)
        self._take(token)

    def _skip_blanks(self) -> bool:
        """Passes blanks, joined lines and a comment; whether there were any."""
        begin = self.at
        while any(map(self._take, (" ", "\t", "\r", "\\\n"))):
            pass
        if self._sees("#"):
            self._to("\n")
        return self.at > begin

    def _skip_heredocs(self) -> None:
        """Passes the texts that were announced in the line before."""
        for word, indented in self._heredocs:
            while self.at < len(self.text):
                begin = self.at
                self._to("\n")
                line = self.text[begin : self.at]
                self.at += 1
                if (line.lstrip("\t") if indented else line) == word:
                    break
        self._heredocs.clear()

    def _deeper(self, read: Callable[[], None]) -> None:
        """Reads what is nested, unless it is nested too deep: then nothing more is read."""
        if self.depth >= _DEEPEST:
            self.at = len(self.text)
            return
        self.depth += 1
        read()
        self.depth -= 1

    def _aside(self) -> None:
        """Reads the commands of a substitution, up to its closing bracket."""
        self._deeper(lambda: self.read(aside=True, closed=True))

    def _word(self) -> str:
        """One word, without its quotes."""
        word: list[str] = []
        while self.at < len(self.text) and self.text[self.at] not in _ENDS_WORD:
            if self._take("\\\n"):
                continue
            if self._take("'"):
                word.append(self._quoted())
            elif self._take("$'"):
                word.append(self._escaped())
            elif self._take('"') or self._take('$"'):
                word.append(self._in_quotes())
            else:
                word.append(self._piece())
            if self._sees("(") and "".join(word[-1:]).endswith("="):
                self.at += 1
                self._deeper(self._list)
        return "".join(word)

    def _quoted(self) -> str:
        begin = self.at
        self._past("'")
        return self.text[begin : self.at].removesuffix("'")

    def _escaped(self) -> str:
        found = _UNTIL_QUOTE.match(self.text, self.at)
        assert found is not None, "it matches the empty text too"
        self.at = found.end()
        self._take("'")
        return found[0]

    def _in_quotes(self) -> str:
        pieces: list[str] = []
        while self.at < len(self.text) and not self._take('"'):
            pieces.append(self._piece())
        return "".join(pieces)

    def _piece(self) -> str:
        """Plain characters, an escaped one, or what the shell fills in."""
        begin = self.at
        if self._take("\\"):
            self.at += 1
            return self.text[begin + 1 : self.at]
        if self._take("$(("):
            self._past("))")
        elif self._take("$("):
            self._aside()
        elif self._take("${"):
            self._deeper(self._filled_in)
        elif self._take("`"):
            self._backquoted()
        else:
            plain = _PLAIN.match(self.text, self.at)
            self.at = plain.end() if plain else self.at + 1
        return self.text[begin : self.at]

    def _filled_in(self) -> None:
        """What the shell does with a variable, up to the closing brace."""
        while self.at < len(self.text) and not self._take("}"):
            self._piece()

    def _backquoted(self) -> None:
        found = _UNTIL_BACKQUOTE.match(self.text, self.at)
        assert found is not None, "it matches the empty text too"
        line = self.line + bisect_right(self._breaks, self.at)
        self.at = found.end()
        self._take("`")
        if self.depth < _DEEPEST:
            inner = re.sub(r"\\([`\\$])", r"\1", found[0])
            self.found += _commands(inner, line, self.depth + 1, aside=True)

    def _list(self) -> None:
        """A variable's list of words: they are no command."""
        while self.at < len(self.text) and not self._take(")"):
            if self._sees("#"):
                self._to("\n")
            elif self.text[self.at] in _ENDS_WORD:
                self.at += 1
            else:
                self._word()


_PLAIN = re.compile(r"""[^\s;&|<>()'"`\\$=}]+""")
_UNTIL_QUOTE = re.compile(r"(?:[^\\']|\\.)*", re.DOTALL)
_UNTIL_BACKQUOTE = re.compile(r"(?:[^\\`]|\\.)*", re.DOTALL)


# --- what a command runs ----------------------------------------------------------------------------

_KEYWORDS = frozenset(
    {"if", "then", "elif", "else", "while", "until", "do", "done", "fi", "esac", "!", "{", "}"}
)
_LISTS = frozenset({"for", "case", "select", "function", "[[", "["})
"""What stands behind these is no command."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_NONE: frozenset[str] = frozenset()
_WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "exec": (frozenset({"-a"}), 0),
    "command": (_NONE, 0),
    "time": (_NONE, 0),
    "nohup": (_NONE, 0),
    "setsid": (_NONE, 0),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0),
    "env": (frozenset({"-u", "--unset", "-C", "--chdir"}), 0),
    "sudo": (frozenset({"-u", "--user", "-g", "--group", "-h", "-p", "-C", "-D"}), 0),
    "nice": (frozenset({"-n", "--adjustment"}), 0),
    "ionice": (frozenset({"-c", "-n"}), 0),
    "chrt": (_NONE, 1),
    "taskset": (_NONE, 1),
    "timeout": (frozenset({"-k", "--kill-after", "-s", "--signal"}), 1),
    "numactl": (frozenset({"-i", "-N", "-m", "-C", "--cpunodebind", "--membind", "--physcpubind"}), 0),
}
"""Programs that run another one: their options with a value of its own, and the words before it."""
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_SCRIPT_OPTION = re.compile(r"-[A-Za-z]*c")


@dataclass(frozen=True)
class _Program:
    """What a command runs in the end; `around` are the names, and options, of the programs that run it."""

    name: str
    rest: tuple[str, ...]
    around: frozenset[str]
    command: _Command


def _programs(commands: Iterable[_Command], depth: int = 0) -> Iterator[_Program]:
    """The programs that a script runs; what a shell is given to run is looked into."""
    for command in commands:
        program = _program(command)
        inner = None if program is None else _inner(program)
        if inner is not None and depth < _DEEPEST:
            yield from _programs(_commands(inner, command.line, aside=command.aside), depth + 1)
        elif program is not None:
            yield program


def _program(command: _Command) -> _Program | None:
    rest = list(command.words)
    around: set[str] = set()
    while rest:
        name = rest[0].rpartition("/")[2]
        if rest[0] in _LISTS:
            return None
        if rest[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(rest[0]):
            del rest[0]
        elif name in _WRAPPERS:
            valued, before = _WRAPPERS[name]
            around.add(name)
            del rest[0]
            while rest and (rest[0].startswith("-") or _ASSIGNMENT.fullmatch(rest[0])):
                around.add(f"{name} {rest[0]}")
                del rest[: 2 if rest[0] in valued else 1]
            del rest[:before]
        else:
            asked = {"command -v", "command -V"} & around
            return None if asked else _Program(name, tuple(rest[1:]), frozenset(around), command)
    return None


def _inner(program: _Program) -> str | None:
    """The script that a shell is given as a text."""
    if program.name == "eval":
        return " ".join(program.rest)
    if program.name in _SHELLS:
        after = zip(program.rest, program.rest[1:], strict=False)
        return next((script for option, script in after if _SCRIPT_OPTION.fullmatch(option)), None)
    return None


# --- what is not ours -------------------------------------------------------------------------------

_OWN = 'run the program itself: exec python3 server.py "$@"'
_INSIDE = f"{_OWN}; to keep the container, let bisect-agent run inside of it"
_FOREGROUND = "leave the & out: exec python3 server.py, or end the script with: wait"

_ENGINES = frozenset({"docker", "nvidia-docker", "podman", "nerdctl"})
_ENGINE = "the container engine"
_CONTAINER_STARTS = frozenset({"run", "start", "restart", "exec"})
_DETACHED = re.compile(r"--detach(?:=true)?|-[dit]*d[dit]*")
_VALUED = frozenset(
    {"-c", "--context", "-H", "--host", "--config", "-l", "--log-level", "-f", "--file", "-p", "--profile"}
    | {"--project-name", "--env-file", "-n", "--namespace", "--kubeconfig", "-L", "-S", "-M"}
)
"""Options before the first word of the programs below that have a value of its own."""

_STARTS: dict[str, tuple[frozenset[str], str]] = {
    "systemctl": (frozenset({"start", "restart", "reload-or-restart", "isolate"}), "the service manager"),
    "supervisorctl": (frozenset({"start", "restart"}), "supervisord"),
    "tmux": (
        frozenset(
            {"new-session", "new", "new-window", "neww", "split-window", "splitw", "send-keys", "send"}
        ),
        "the tmux server",
    ),
    "kubectl": (frozenset({"apply", "create", "run", "exec", "scale", "replace"}), "the cluster"),
    "helm": (frozenset({"install", "upgrade"}), "the cluster"),
    "apptainer": (frozenset({"instance"}), "the instance"),
    "singularity": (frozenset({"instance"}), "the instance"),
}
"""Programs that have a process run elsewhere, by their first words that do; and whose it is then."""
_ALWAYS = {"sbatch": "the batch system", "qsub": "the batch system", "bsub": "the batch system"}
_ALWAYS |= {"at": "the at daemon", "daemonize": "nobody"}
"""Programs that do so whatever they are told, unless they are only asked something."""
_ONLY_ASKED = frozenset({"-l", "-r", "-d", "-c", "-V", "--help", "--version", "-h"})
_IDLE = frozenset({"echo", "printf", "true", ":", "exit", "disown"})
"""What may stand behind a server that was sent to the background, and does not wait for it."""


def _complaint(program: _Program) -> Complaint | None:
    started = _elsewhere(program)
    if started is None:
        return None
    shown, owner = started
    found = f"`{shown}` leaves the program to {owner}: it is no process of this script, and not ended with it"
    line = program.command.line
    return Complaint(line=line, found=found, remedy=_INSIDE if owner == _ENGINE else _OWN)


def _elsewhere(program: _Program) -> tuple[str, str] | None:
    """The words that have a process run elsewhere, and whose it is."""
    name, rest = program.name, program.rest
    if name in _ENGINES or name in {"docker-compose", "podman-compose"}:
        return _contained(name, rest)
    if name in _STARTS:
        starts, owner = _STARTS[name]
        first = "".join(_without_options(rest)[:1])
        return (f"{name} {first}", owner) if first in starts or "--now" in rest else None
    if name in _ALWAYS:
        return None if not rest or rest[0] in _ONLY_ASKED else (name, _ALWAYS[name])
    if name == "start-stop-daemon" and {"-b", "--background"} & set(rest):
        return f"{name} --background", "nobody"
    if name == "systemd-run" and "--scope" not in rest:
        return name, "the service manager"
    if name == "service" and {"start", "restart"} & set(rest[1:2]):
        return f"service {rest[0]} {rest[1]}", "the service manager"
    if name == "screen" and _letters(rest) >= {"d", "m"}:
        return "screen -dm", "the screen session"
    return None


def _contained(name: str, rest: Sequence[str]) -> tuple[str, str] | None:
    """The same for an engine of containers."""
    said = _without_options(rest)
    compose = name.endswith("-compose") or said[:1] == ["compose"]
    if said[:1] == ["compose"]:
        name, said = f"{name} compose", _without_options(said[1:])
    elif said[:1] == ["container"]:
        said = _without_options(said[1:])
    starts = _CONTAINER_STARTS | {"up"} if compose else _CONTAINER_STARTS
    if not said or said[0] not in starts:
        return None
    detached = next((" -d" for word in said[1:] if _DETACHED.fullmatch(word)), "")
    return f"{name} {said[0]}{detached}", _ENGINE


def _without_options(rest: Sequence[str]) -> list[str]:
    """The words from the first one that is neither an option nor an option's value."""
    said = list(rest)
    while said and said[0].startswith("-"):
        del said[: 2 if said[0] in _VALUED else 1]
    return said


def _letters(rest: Sequence[str]) -> set[str]:
    """The letters of the options of `screen` before its command."""
    letters: set[str] = set()
    valued = False
    for word in rest:
        if not (valued or word.startswith("-")):
            break
        if not valued:
            letters |= set(word[1:])
        valued = not valued and word[-1:] in set("ScstTehp")
    return letters
