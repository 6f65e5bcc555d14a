"""A folder of the user's own signatures: YAML files in the form of those that come with the product.

An entry may bring the lines that it must match and those that it must not; it is held to them when it is
read, so that a pattern which does not do what its author meant is found before the night, not after.
"""

from __future__ import annotations

from pathlib import Path

from bisect_agent import codefiles, yamlmarks
from bisect_agent.errors import PlaybookError, Problem, UsageError
from bisect_agent.model import MatchKind, Signature
from bisect_agent.playbook_observe import SIGNATURE_EXAMPLE, SIGNATURE_KEYS, read_signature
from bisect_agent.signatures import Scanner, Watch, check_pattern
from bisect_agent.yamlmarks import Field, Problems

_LINES = ("matches", "ignores")


def read_folder(folder: Path) -> tuple[Signature, ...]:
    """All signatures of a folder's files, in the order of their names.

    Raises:
        UsageError: there is no such folder, or no file in it.
        PlaybookError: every mistake in the files.
    """
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not files:
        raise UsageError(
            f"{folder}: there is no signature file (*.yaml) there",
            f"a folder of files with {SIGNATURE_EXAMPLE}",
        )
    found: dict[str, Signature] = {}
    mistakes: list[Problem] = []
    for file in files:
        problems = Problems(str(file))
        try:
            for field, signature in _read(file, problems):
                if found.setdefault(signature.id, signature) is not signature:
                    field.refuse(f"the signature id `{signature.id}` is used twice", "give each its own id")
        except PlaybookError as error:
            mistakes += error.problems
        else:
            mistakes += problems.found
    if mistakes:
        raise PlaybookError(tuple(mistakes))
    return tuple(found.values())


def _read(file: Path, problems: Problems) -> list[tuple[Field, Signature]]:
    try:
        text = codefiles.read(file)
    except codefiles.UnusableFile as error:
        problems.fail(error.mark, f"the signature file {error.found}", error.remedy)
    top = yamlmarks.parse(text, problems, what="the signature file", begin=f"- {SIGNATURE_EXAMPLE}")
    return [(item, _entry(item)) for item in top.items(f"- {SIGNATURE_EXAMPLE}")]


def _entry(field: Field) -> Signature:
    signature = read_signature(field, (*SIGNATURE_KEYS, *_LINES))
    entries = field.entries("") if field.is_mapping else {}
    if not signature.pattern or check_pattern(signature.pattern):
        return signature
    for name in _LINES:
        for item in entries[name].items(f"{name}: ['a line of a log']") if name in entries else ():
            line = item.text("a line of a log, in quotes")
            if line and _matches(signature, line) != (name == "matches"):
                wanted = "does not match" if name == "matches" else "matches"
                item.refuse(f"the pattern of `{signature.id}` {wanted} this line", "correct the pattern")
    return signature


def _matches(signature: Signature, line: str) -> bool:
    """Whether a log that consists of the line (or lines) shows the signature."""
    scanner = Scanner((Watch(MatchKind.SIGNATURE, signature.id, signature.pattern, signature.role),))
    return bool(scanner.feed(line.encode()) or scanner.finish())
