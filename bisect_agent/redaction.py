"""What tells of a machine or a person in bytes, replaced by as many bytes. Pure.

The same is replaced by the same wherever it stands, so that what was equal stays equal, and what differed
goes on to differ. Only letters and digits are replaced: a name with its punctuation escaped, as in a
pattern, becomes the escaped form of its replacement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import count

import re2

from bisect_agent.credentials import HINT, TOKEN

SHORTEST = 2
"""A shorter name is replaced in paths only: as a word it would be found anywhere."""


_SHORT = 3
"""A name of so many letters is looked for between blanks and the like: a host `vm` is not in `total-vm`."""


class Kind(StrEnum):
    """What was replaced."""

    PATH = "name in a path"
    HOST = "host"
    USER = "user"
    WORD = "word"
    MAIL = "mail address"
    ADDRESS = "network address"
    IDENTIFIER = "identifier"
    TOKEN = "access token"  # noqa: S105  # a kind of secret, none itself
    KERNEL = "kernel release"


_CALLED = {
    Kind.PATH: "dir",
    Kind.HOST: "host",
    Kind.USER: "user",
    Kind.WORD: "word",
    Kind.MAIL: "mail",
    Kind.TOKEN: "token",
}
"""How the replacement of a name begins; those of numbers are zeros and a number."""


@dataclass(frozen=True)
class Known:
    """What is known to tell of the machine or the person.

    `kernels` are releases of its kernel, of which the first two numbers stay. `paths` are absolute ones:
    their first part is replaced where it stands alone, too. `public` are names in paths that tell nothing,
    beside those that never do.
    """

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    public: frozenset[str] = frozenset()


# --- paths ------------------------------------------------------------------------------------------

_SYSTEM = frozenset(b"bin boot dev etc lib lib32 lib64 proc sbin sys usr".split())
"""Folders that every machine has: what lies in them is the distribution's."""
_ROUTES = frozenset(b"api docs health inference invocations metrics openai v1 v2".split())
"""How the routes of a server begin: no paths of a machine."""
_PUBLIC = frozenset(
    b".bisect-agent .cache .config .local .venv Users aten bin c10 cache caches conda config.json cuda"
    b" data dist-packages envs flashinfer home hub huggingface include inductor launch.sh lib lib64"
    b" local log logs media memory memory.events memory.oom_control mnt models opt order.json"
    b" playbook.yaml python pytorch run server.log sgl-kernel sgl-workspace sglang share site-packages"
    b" snapshots src srv tmp torch torch_extensions trials triton var venv vllm workspace".split()
)
"""Names in paths that say nothing about whose machine it is."""
_TELLS_NOTHING = re.compile(rb"[A-Za-z]|(?:python|cuda-?|v|sm_)?\d+(?:\.\d+)*")
_SOURCE = re.compile(rb".+\.(?:py|pyc|c|cc|cpp|cu|cuh|h|hpp|rs|ptx|cubin|so(?:\.\d+)*)")
"""Source files and libraries keep their names: a traceback says by them where the failure is."""
_STEM = re.compile(
    rb"(.+?)(\.(?:bin|gguf|gz|json|jsonl|lock|log|pt|safetensors|sh|tar|toml|txt|yaml|yml|zip))"
)
_PACKAGES = frozenset({b"site-packages", b"dist-packages"})
"""Below these lies what was published."""
_LIBRARIES = ([b"lib"], [b"lib64"])
"""Below Python's own folder in these, too."""

_SEPARATOR = re.compile(rb"((?:\\?/)+)")
_NAME = rb"(?:\\[.@+~%-]|[\w.@+~%\x80-\xff-])+"
_NAMES = _NAME + rb"(?:(?:\\?/)+" + _NAME + rb")*"
_PATH = re.compile(
    rb"/(?:(?<![\w./~$)}\]*?\\-].)|(?<=:///)|(?<=\\[nrt]/)|(?<=[\d;\[]m/)|(?<=-[IL]/)|(?<=HOME/)|(?<=HOME}/)|(?<=~/)"
    rb"|(?<=\w//)(?=" + _NAME + rb"/))" + _NAMES
)
_ESCAPED_PATH = re.compile(rb"\\/(?:(?<![\w./~$)}\]*?\\-]..)|(?<=:\\/\\/\\/))" + _NAMES)
"""An absolute path, also behind an escape sequence, `-I`, `$HOME`, `~` or a site. Slashes may be escaped."""
_PLAIN = re.compile(_NAME)
"""A name as it is found in any text; one with a blank is found where it is known."""

# --- the rest ---------------------------------------------------------------------------------------

_SHAPES = re.compile(
    rb"(?P<identifier>(?<![0-9A-Za-z])[\da-fA-F]{8}-(?:[\da-fA-F]{4}-){3}[\da-fA-F]{12}(?![0-9A-Za-z]))"
    rb"|(?<=://)(?P<authority>[\w.@%+~:-]+)"
    rb"|(?P<mail>(?<![\w.+%-])[\w.+%-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?!\w))"
    rb"|(?P<mac>(?<![\w:])(?:[\da-fA-F]{2}:){5}[\da-fA-F]{2}(?![\w:]))"
    rb"|(?P<v4>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d))"
    rb"|(?P<v6>(?<![\w:.])(?:[\da-fA-F]{0,4}:){2,7}[\da-fA-F]{1,4}(?![\w:]))"
    rb"|(?P<token>(?:(?<![0-9A-Za-z])|(?<=\\[nrt])|(?<=[\d;\[]m))(?:" + TOKEN + rb"))"
)
_SUSPECT = re2.compile(
    rb"[\da-fA-F]{8}-[\da-fA-F]{4}-|://|@|\d\.\d{1,3}\.\d{1,3}\.\d|(?:[\da-fA-F]{0,4}:){3}"
    rb"|[\da-fA-F]::|" + HINT
)
"""What a line with any of these shapes has; most lines have none, and are passed over quickly."""
_VERSION = re.compile(rb"(?:[=<>~!]=|[vV]|ersion[ :='\"]*|[_-]cu\d\d[ =:(@-]*)$")
"""What stands before four numbers with dots that are a version, not an address."""
_OWN = re.compile(rb"(?:0|127|255)\.[\d.]+|localhost|local|\d+")
_KNOWN_SITES = re.compile(
    rb"(?:.+\.)?(?:github\.(?:com|io)|githubusercontent\.com|gitlab\.com|huggingface\.co|hf\.co|nvidia\.com|pypi\.org"
    rb"|python\.org|pythonhosted\.org|pytorch\.org|readthedocs\.io|sglang\.ai|vllm\.ai|ubuntu\.com|debian\.org"
    rb"|kernel\.org|gnu\.org|w3\.org|json-schema\.org|apache\.org|docker\.com|docker\.io|example\.(?:com|org))",
    re.IGNORECASE,
)
_NCCL = re.compile(rb"(?<!\S)([A-Za-z][\w.-]{0,80}):\d+:\d+ \[\d{1,4}\] (?:\S{1,120}:\d+ )?NCCL ")
_HEAD = re.compile(rb"\d+\.\d+")
_BRIEF = 16
"""Shorter texts of letters alone, as most of a journal's are, have none of these shapes."""


def hosts_in(log: bytes) -> frozenset[str]:
    """The hosts that a log says it is written on."""
    return frozenset(name.decode() for name in _NCCL.findall(log))


def stands_in(word: str, text: str) -> bool:
    """Whether a text has a word, in any case, as a word of its own."""
    return _words([word.encode()]).search(text.encode()) is not None


def _words(words: Iterable[bytes]) -> re.Pattern[bytes]:
    """Any of these as a word of its own; the longest first.

    Behind a colour or a line break that is written out, a word begins though a letter stands before it.
    """
    found = b"|".join(map(_word, sorted(words, key=lambda word: (-len(word), word))))
    begin = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=[\d;\[]m))"
    return re.compile(begin + rb"(?:" + found + rb")(?![A-Za-z0-9])", re.IGNORECASE)


def _word(word: bytes) -> bytes:
    """A pattern for a word, its punctuation perhaps escaped; a short one is no part of a compound."""
    spelled = b"".join((b"" if _is_letter(c) else rb"\\?") + re.escape(bytes([c])) for c in word)
    return rb"(?<![._-])" + spelled + rb"(?!\\?(?:[_-]|\.\w))" if len(word) <= _SHORT else spelled


def _is_v6(text: bytes) -> bool:
    """Whether this is an address, and not a time or a name of C++; nor one that every machine has."""
    try:
        address = IPv6Address(text.decode())
    except ValueError:
        return False
    return any(byte in b"0123456789" for byte in text) and not address.is_loopback


def _is_letter(byte: int) -> bool:
    """Whether a byte is of a letter or a digit, of whatever alphabet."""
    return byte >= 0x80 or bytes([byte]).isalnum()


class Redactor:
    """Replaces what is known, and what has the shape of a path, an address or an identifier.

    Twice is as once: a name that looks like a replacement which was made is taken for one.
    """

    def __init__(self, known: Known) -> None:
        named = (
            (Kind.KERNEL, known.kernels),
            (Kind.USER, known.users),
            (Kind.HOST, known.hosts),
            (Kind.WORD, known.words),
        )
        self._kinds = {
            word.encode().lower(): kind for kind, words in named for word in words if len(word) >= SHORTEST
        }
        paths = [path.encode().split(b"/")[1:] for path in known.paths if path.startswith("/")]
        odd = (name for path in paths for name in path if not _PLAIN.fullmatch(name))
        self._kinds |= {name.lower(): Kind.PATH for name in odd if name}
        self._words = _words(self._kinds) if self._kinds else None
        self._public = _PUBLIC | {name.encode() for name in known.public}
        self._tops = {b"root"} | {path[0] for path in paths if path[0] and not self._is_public(path[0])}
        # A log says the same few thousand times.
        self._word = lru_cache(4096)(self._replace_word)
        self._path = lru_cache(4096)(self._replace_path)
        self._replaced: dict[bytes, bytes] = {}
        self._made: set[bytes] = set()
        self._found: dict[Kind, list[str]] = {}
        self._numbers: dict[tuple[bool, int], Iterator[int]] = {}

    def found(self) -> dict[Kind, tuple[str, ...]]:
        """What was replaced so far, each thing once, in the order in which it was met."""
        return {kind: tuple(self._found[kind]) for kind in Kind if kind in self._found}

    def text(self, text: str) -> str:
        """A text as `data` has it."""
        plain = len(text) < _BRIEF and text.isascii() and text.isalnum()
        if plain and text.encode().lower() not in self._kinds:
            return text
        return self.data(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def data(self, data: bytes) -> bytes:
        """The bytes without what tells of the machine or the person: as many, with all lines as before."""
        if self._words is not None:
            data = self._words.sub(lambda word: self._word(word[0]), data)
        data = b"".join(
            _SHAPES.sub(self._shape, line) if _SUSPECT.search(line) else line
            for line in data.splitlines(keepends=True)
        )
        data = _ESCAPED_PATH.sub(lambda path: self._path(path[0]), data)
        return _PATH.sub(lambda path: self._path(path[0]), data)

    # --- what is found --------------------------------------------------------------------------------

    def _replace_word(self, word: bytes) -> bytes:
        plain = word.replace(b"\\", b"").lower()
        return _spelled(word, self._swap(self._kinds[plain], plain))

    def _shape(self, match: re.Match[bytes]) -> bytes:
        whole = match[0]
        match match.lastgroup:
            case "identifier":
                return self._swap(Kind.IDENTIFIER, whole)
            case "mail":
                return self._swap(Kind.MAIL, whole)
            case "token":
                return self._swap(Kind.TOKEN, whole)
            case "authority":
                return self._authority(whole)
            case "v4" if _VERSION.search(match.string, max(0, match.start() - 40), match.start()):
                return whole
            case "v6" if not _is_v6(whole):
                return whole
            case _:
                return whole if _OWN.fullmatch(whole) else self._swap(Kind.ADDRESS, whole)

    def _authority(self, whole: bytes) -> bytes:
        """The host of a URL, with who is to log in there; the port stays."""
        host, port = whole, b""
        if found := re.fullmatch(rb"(.+?)(:\d+)", whole):
            host, port = found[1], found[2]
        name = host.rpartition(b"@")[2]
        public = name == host and (_OWN.fullmatch(name) or _KNOWN_SITES.fullmatch(name))
        if public or host in self._made or all(part in self._made for part in host.split(b"@")):
            return whole
        kind = Kind.ADDRESS if re.fullmatch(rb"[\d.]+", host) else Kind.HOST
        return self._swap(kind, host.lower()) + port

    def _replace_path(self, path: bytes) -> bytes:
        parts = _SEPARATOR.split(path)
        names = [part.replace(b"\\", b"").rstrip(b".") for part in parts[2::2]]
        cgroup = names[:3] == [b"sys", b"fs", b"cgroup"]
        if not cgroup and (names[0] in _SYSTEM or names[0] in _ROUTES):
            return path
        if len(names) == 1 and names[0] not in self._tops:
            return path
        published = False
        for number, name in enumerate(names):
            if not published and not (cgroup and number < 3):
                place = 2 * number + 2
                parts[place] = _spelled(parts[place], self._name(name))
            in_library = name.startswith(b"python3") and names[number - 1 : number] in _LIBRARIES
            published = published or name in _PACKAGES or in_library
        return b"".join(parts)

    def _name(self, name: bytes) -> bytes:
        """A name in a path; the ending of a file's stays."""
        found = _STEM.fullmatch(name)
        stem, ending = found.groups() if found else (name, b"")
        kept = self._is_public(name) or self._is_public(stem)
        return name if kept else self._swap(Kind.PATH, stem) + ending

    def _is_public(self, name: bytes) -> bool:
        known = name in self._public or name in _SYSTEM
        return known or _TELLS_NOTHING.fullmatch(name) is not None or _SOURCE.fullmatch(name) is not None

    # --- what it becomes ------------------------------------------------------------------------------

    def _swap(self, kind: Kind, plain: bytes) -> bytes:
        """What stands for a name from now on; a replacement stands for itself."""
        if plain in self._made:
            return plain
        if plain not in self._replaced:
            size = sum(map(_is_letter, plain))
            if not size:
                return plain
            made = self._new(kind, plain, size)
            self._replaced[plain] = made
            self._made.add(made)
            self._found.setdefault(kind, []).append(plain.decode(errors="replace"))
        return self._replaced[plain]

    def _new(self, kind: Kind, plain: bytes, size: int) -> bytes:
        if kind is Kind.KERNEL:
            head = _HEAD.match(plain)
            kept = head[0] if head else b""
            return kept + _spelled(plain[len(kept) :], b"x" * size)
        called = _CALLED.get(kind)
        number = next(self._numbers.setdefault((called is None, size), count(1)))
        if called is None:
            # As an identifier has it: letters and digits, so that it is masked as one.
            letter = "a" if kind is Kind.IDENTIFIER else ""
            digits = str(number).zfill(size - len(letter))[-size:]
            return _spelled(plain, f"{letter}{digits}"[:size].encode())
        mark = _in_letters(number - 1)[-size:]
        return _spelled(plain, (called.ljust(size, "x")[: size - len(mark)] + mark).encode())


def _in_letters(number: int) -> str:
    """A number, from 0, in capital letters."""
    letters = chr(ord("A") + number % 26)
    return _in_letters(number // 26) + letters if number >= 26 else letters


def _spelled(pattern: bytes, letters: bytes) -> bytes:
    """The letters and digits of one text in the places that another has for its own."""
    fresh = (byte for byte in letters if _is_letter(byte))
    return bytes(next(fresh) if _is_letter(byte) else byte for byte in pattern)
