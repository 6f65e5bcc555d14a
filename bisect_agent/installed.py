"""What is asked of the stack that a launch script starts: commands for the target, parsers of their output.

Nothing here imports a stack, nor does what runs on the target: it looks through the package's files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import takewhile

from bisect_agent.arguments import Names
from bisect_agent.launches import commands
from bisect_agent.model import Frozen, Package

# --- which Python the script starts -------------------------------------------------------------------


class Interpreter(Frozen):
    """The Python that starts a stack: its name or path, or that of a console script (`vllm`, `sglang`).

    `path` and `pythonpath` are PATH and PYTHONPATH at its start, `folder` is where it is started. In all
    four, `$HOME`, `$PATH` and `$PYTHONPATH` stand for the target's own.
    """

    command: str
    path: str = "$PATH"
    pythonpath: str = "$PYTHONPATH"
    folder: str = "."


_PART = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)", re.DOTALL)
_WORD = re.compile(f"(?:{_PART.pattern})*+", re.DOTALL)  # possessive: a quote left open is told at once
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_CONSOLE = re.compile(r"(?:.*/)?(?:vllm|sglang|torchrun)")
_ACTIVATE = re.compile(r"(.+/bin)/activate")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"})
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
# These start the command that follows them, on the same machine and in the same environment.
_CARRIERS = frozenset(
    {"chrt", "env", "exec", "ionice", "nice", "nohup"} | {"numactl", "setsid", "stdbuf", "taskset", "timeout"}
)
# These do so elsewhere, or choose the environment themselves.
_ELSEWHERE = frozenset(
    {"apptainer", "conda", "docker", "enroot", "kubectl", "mamba", "micromamba", "nerdctl", "pixi", "podman"}
    | {"poetry", "singularity", "srun", "ssh", "sudo", "uv"}
)
_CHANGING = frozenset({"conda", "eval", "mamba", "micromamba", "ml", "module", "pyenv", "spack"})


def interpreter(script: str) -> Interpreter | None:
    """The Python that a launch script starts the stack with; None where its text does not tell.

    That is: what it starts runs in a container or on another machine, a part of the command is not a
    plain value, the environment is changed in a way that cannot be followed, or several are started and
    none of them by `exec`. Conditions are not followed.
    """
    reader = _Script()
    # Nothing is known from where a quote is not closed.
    for words in takewhile(lambda words: all(map(_WORD.fullmatch, words)), commands(script)):
        reader.command(words)
    started = [found for executed, found in reader.started if executed] or [f for _, f in reader.started]
    return started[0] if started and all(found == started[0] for found in started) else None


class _Script:
    """What a script has set so far, and each Python that it starts: whether by `exec`, and which."""

    def __init__(self) -> None:
        self._known: dict[str, str | None] = {name: f"${name}" for name in ("HOME", "PATH", "PYTHONPATH")}
        self._folder = "."
        self.started: list[tuple[bool, Interpreter | None]] = []

    def command(self, raw: Sequence[str]) -> None:
        """Take one simple command, its words as written."""
        words = list(raw)
        while words and words[0] in _KEYWORDS:
            words.pop(0)
        declares = bool(words) and words[0] in _DECLARING
        count = next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
        if declares or count == len(words):
            self._assign(words)
            return
        before = dict(self._known)
        self._assign(words[:count])
        self._run([self._filled(word) for word in words[count:]])
        # What stands before a command holds for that command only.
        self._known = {**self._known, **{n: before.get(n) for n in map(_name, words[:count])}}

    def _assign(self, words: Sequence[str]) -> None:
        for word in words:
            if (assigned := _ASSIGNMENT.fullmatch(word)) is not None:
                name, value = assigned[1], self._filled(assigned[2])
                # Assigned again, perhaps in another branch: only what builds on the old value is followed.
                was = self._known.get(name, f"${name}")
                other = was != f"${name}" and f"${name}" not in assigned[2].replace("{", "")
                self._known[name] = None if other and value != self._known[name] else value

    def _run(self, words: Sequence[str | None]) -> None:
        head = words[0]
        if head in {"source", "."} and len(words) > 1:
            activated = _ACTIVATE.fullmatch(words[1] or "")
            path = self._known["PATH"]
            self._known["PATH"] = f"{activated[1]}:{path}" if activated and path else None
            if activated is None:
                self._known["PYTHONPATH"] = None
        elif head in _CHANGING and "run" not in words:
            self._known["PATH"] = self._known["PYTHONPATH"] = None
        elif head in {"cd", "pushd"} and len(words) > 1 and words[1]:
            absolute = words[1].startswith(("/", "$"))
            self._folder = words[1] if absolute else f"{self._folder}/{words[1]}"
        else:
            self._start(words)

    def _start(self, words: Sequence[str | None]) -> None:
        """Note the Python that a command starts, if it starts one."""
        at = next((n for n, word in enumerate(words) if _starts(word)), None)
        carried = words[0] in _CARRIERS
        if words[0] is None or (at is None and carried and None in words):
            if "-m" in words or "serve" in words:
                self.started.append((False, None))
        elif at is not None and (at == 0 or carried or words[0] in _ELSEWHERE):
            command = str(words[at])
            if words[at + 1 : at + 2] == ["-c"]:
                return
            known = {"command": command, "path": self._known["PATH"], "pythonpath": self._known["PYTHONPATH"]}
            if "/" in command:
                known["path"] = "$PATH"  # it is not looked for
            found = None
            if not _ELSEWHERE & set(words[:at]) and None not in known.values():
                found = Interpreter.model_validate({**known, "folder": self._folder})
            self.started.append(("exec" in words[:at], found))

    def _filled(self, word: str) -> str | None:
        """A word with its quotes taken away and its variables filled in; None where one is not known."""
        found = ""
        for single, double, escaped, plain in _PART.findall(word):
            if single or escaped:
                found += single or escaped
                continue
            text = double or plain
            if plain.startswith("~/") and not found:
                text = "$HOME" + plain[1:]
            filled = _VARIABLE.sub(lambda variable: self._known.get(variable[1] or variable[2]) or "\0", text)
            found += filled
        own = re.sub(r"\$(?:HOME|PATH|PYTHONPATH)(?!\w)", "", found)
        return None if "\0" in own or "$" in own or "`" in own else found


def _name(word: str) -> str:
    return word.partition("=")[0]


def _starts(word: str | None) -> bool:
    return word is not None and bool(_PYTHON.fullmatch(word) or _CONSOLE.fullmatch(word))


# --- what an installed stack says of itself -----------------------------------------------------------


def help_arguments(said: str = "") -> tuple[str, ...]:
    """What makes a launch script print its options.

    `said` is what it printed for `--help`, where it did so: vLLM's names another argument there, or, started
    as a module, it prints its usage and tells of no option.
    """
    short = "usage: " in said and "show this help message and exit" not in said
    return ("--help=all",) if "--help=all" in said or short else ("--help",)


# Resolves the interpreter on the target, and starts nothing that is not a Python.
_FIND = r"""
fill() { v=$1; v=${v//'$HOME'/$HOME}; v=${v//'$PYTHONPATH'/$PYTHONPATH}; v=${v//'$PATH'/$PATH}; }
fill "$2"; path=$v; fill "$3"; pythonpath=$v; fill "$4"; folder=$v; fill "$1"; python=$v
PATH=$path
[ -n "$pythonpath" ] && export PYTHONPATH="$pythonpath"
cd -- "$folder" || exit 1
found=$(command -v -- "$python") || { printf '%s\n' "there is no $python" >&2; exit 127; }
set -- "$5" "$6" "$found"
case ${python##*/} in
python*) ;;
*)
  { IFS= read -r first; IFS= read -r second; } <"$found"
  case $first in
  '#!/bin/sh') rest=${second#"'''exec' "}; rest=${rest%%' "$0"'*}; rest=${rest#\"}; rest=${rest%\"} ;;
  *) rest=${first#'#!'} ;;
  esac
  rest=${rest#/usr/bin/env }
  case ${rest##*/} in
  python*) set -- "$1" "$2" "$rest" ;;
  *) printf '%s\n' "$found is not started by a Python" >&2; exit 1 ;;
  esac
  ;;
esac
exec "$3" -B -c "$1" "$2"
"""

# Runs there, on Python 3.8 and later. What is compiled is looked through as long as there is time:
# a name that is there only in machine code is rare.
_LOOK = r"""
import importlib.metadata, importlib.util, json, mmap, os, re, sys, time
end = time.monotonic() + 25
def version(name):
    for name in (name, name.replace("_", "-")):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    for dist in importlib.metadata.distributions():
        if name.replace("-", "_") in (dist.read_text("top_level.txt") or "").split():
            return dist.version
    return ""
def files(spec):
    if not spec.submodule_search_locations:
        yield spec.origin
    for top in spec.submodule_search_locations or ():
        for folder, below, names in os.walk(top):
            below[:] = sorted(name for name in below if name != "__pycache__")
            for name in sorted(names):
                yield os.path.join(folder, name)
def look(package):
    prefix = "(?:" + "|".join(map(re.escape, package["prefixes"])) + ")"
    own = prefix + "[A-Z0-9_]+"
    string = "['\"](%s)['\"](?!\\s*:\\s*_?Deprecated)" % own
    bound = "\\b(%s)\\s*(?::[^=\\n]*)?=\\s*\\w*Env\\w*\\(" % own
    word = re.compile((string + "|" + bound).encode())
    built = re.compile(("[fF](['\"])(%s[A-Z0-9_]*(?:\\{[^{}\\n]*\\}[A-Z0-9_]*)+)\\1" % prefix).encode())
    told = re.compile(prefix + "[*]*[A-Z0-9_]")  # more than the prefix: else it would hold any name
    plain = re.compile(own.encode())
    spec = importlib.util.find_spec(package["name"])
    if spec is None:
        return None
    found, complete, compiled = set(), True, []
    for path in files(spec):
        if not path.endswith(".py"):
            compiled.append(path)
        elif time.monotonic() > end or not os.access(path, os.R_OK):
            complete = False
        else:
            with open(path, "rb") as file:
                text = file.read()
            for match in word.finditer(text):
                found.add((match[1] or match[2]).decode())
            for match in built.finditer(text):
                name = re.sub(r"\{[^{}]*\}", "*", match[2].decode("utf-8", "replace"))
                if told.match(name):
                    found.add(name)
    for path in compiled:
        if time.monotonic() > end or not os.access(path, os.R_OK) or os.path.getsize(path) < 4:
            continue
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for begin in map(str.encode, package["prefixes"]):
                    at = data.find(begin)
                    while at >= 0 and time.monotonic() < end:
                        name = plain.match(data, at)
                        if name:
                            found.add(name[0].decode())
                        at = data.find(begin, at + 1)
    names = sorted(found)
    place = (spec.submodule_search_locations or [spec.origin])[0]
    return {
        "source": ("%s %s" % (package["name"], version(package["name"]))).strip() + " in " + place,
        "prefixes": package["prefixes"], "names": names[:20000], "complete": complete and len(names) <= 20000,
    }
print("\n" + json.dumps([found for found in map(look, json.loads(sys.argv[1])) if found]))
"""


def names_command(python: Interpreter, packages: Sequence[Package]) -> tuple[str, ...]:
    """The command that looks for the packages' own environment names in their files; it takes 30 s at most.

    A name counts where it is a whole string (but not as a key of a table of `Deprecated…`), where it is
    bound to a call of an `Env…` class, where an f-string puts it together, or anywhere in compiled code.
    """
    wanted = [
        {"name": package.name, "prefixes": package.prefixes} for package in packages if package.prefixes
    ]
    place = (python.command, python.path, python.pythonpath, python.folder)
    return ("bash", "-c", _FIND, "bash", *place, _LOOK, json.dumps(wanted))


def names_of(stdout: str) -> tuple[Names, ...]:
    """What the command found, for each package that is there; nothing where it printed something else."""
    last = next((line for line in reversed(stdout.splitlines()) if line.strip()), "")
    try:
        return tuple(Names.model_validate(found) for found in json.loads(last))
    except (ValueError, TypeError, RecursionError):
        return ()


# --- where its packages are ---------------------------------------------------------------------------

_PLACES = """
import json, os, sys
print("\\n" + json.dumps([os.path.abspath(path) for path in sys.path if path and os.path.isdir(path)]))
"""
_INSTALLER = re.compile(r"(?:.*/)?(?:pip[\d.]*|uv|conda|mamba|micromamba|pixi|poetry)")
_INSTALLING = frozenset({"add", "create", "install", "remove", "sync", "uninstall", "update", "upgrade"})


def places_command(python: Interpreter) -> tuple[str, ...]:
    """The command that prints the folders in which a Python looks for packages."""
    place = (python.command, python.path, python.pythonpath, python.folder)
    return ("bash", "-c", _FIND, "bash", *place, _PLACES, "")


def places_of(stdout: str) -> tuple[str, ...]:
    """What that command printed; nothing where it printed something else."""
    last = next((line for line in reversed(stdout.splitlines()) if line.strip()), "")
    try:
        found = json.loads(last)
    except (ValueError, RecursionError):
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def installs(script: str) -> bool:
    """Whether a launch script installs packages itself: then they are what it varies."""
    return any(
        any(map(_INSTALLER.fullmatch, words)) and not _INSTALLING.isdisjoint(words)
        for words in commands(script)
    )
