import re
import shlex
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from bisect_agent import cli
from bisect_agent.errors import ExitCode

ROOT = Path(__file__).resolve().parents[1]
LISTED = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
FILES = [ROOT / name for name in subprocess.check_output(LISTED, cwd=ROOT, text=True).splitlines()]
OURS = [path for path in FILES if path.is_file() and ROOT / "logs" / "samples" not in path.parents]
PAGES = [path for path in OURS if path.suffix == ".md" and "golden" not in path.parts]

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^]]*\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
PROGRAM = re.compile(r"\bpython3? ([\w./-]+\.py)\b")
EXIT_CODES = re.compile(r"^\| *code *\|.*\n\|[-| :]+\|\n((?:\|.*\n)+)", re.MULTILINE)
UNFIT = re.compile(r"/[w]ork/|/tmp/[v]/|\b(?:TO[D]O|FIX[M]E|TB[D]|X{3})\b")
"""Paths of one machine, and places that were left to be filled; written so that it does not match itself."""

SHELL = {"|", "||", "&&", ";", ">"}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def agent() -> TyperGroup:
    """Our command with its commands."""
    command = typer.main.get_command(cli.app)
    assert isinstance(command, TyperGroup)
    return command


def text(path: Path) -> str:
    """A file of ours; bytes that are no text do not matter here."""
    return path.read_text(encoding="utf-8", errors="replace")


def quoted(program: str) -> dict[str, list[str]]:
    """The calls of a program that a page shows after a prompt: where, and with which arguments."""
    return {
        f"{page.relative_to(ROOT)}: {program}{line}": [
            *takewhile(lambda word: word not in SHELL, shlex.split(line, comments=True))
        ]
        for page in PAGES
        for block in CONSOLE.findall(text(page))
        for line in re.findall(rf"^\$ {program}\b(.*)$", block.replace("\\\n", " "), re.MULTILINE)
    }


def unknown_to_make(words: list[str]) -> list[str]:
    """Which words are neither a target nor a variable of the Makefile."""
    rules = {word: rf"^{word.partition('=')[0]} [?:]?= " if "=" in word else rf"^{word}:" for word in words}
    return [word for word, rule in rules.items() if not re.search(rule, MAKEFILE, re.MULTILINE)]


def unknown_to_agent(words: list[str]) -> list[str]:
    """Which words are neither a command nor an option that it has."""
    name = next((word for word in words if not word.startswith("-")), "")
    group = agent()
    command = group.commands.get(name, group)
    known = {"", "--help", *group.commands, *(option for param in command.params for option in param.opts)}
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    return [word for word in (name, *options) if word not in known]


CALLS_OF_MAKE = quoted("make")
CALLS_OF_AGENT = quoted("bisect-agent")


@pytest.mark.parametrize("call", CALLS_OF_MAKE)
def test_a_page_quotes_targets_that_exist(call: str) -> None:
    """Who types what we show must not meet "No rule to make target"."""
    assert unknown_to_make(CALLS_OF_MAKE[call]) == []


@pytest.mark.parametrize("call", CALLS_OF_AGENT)
def test_a_page_quotes_commands_that_exist(call: str) -> None:
    """The same for our own command and its options."""
    assert unknown_to_agent(CALLS_OF_AGENT[call]) == []


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    """The tests above find a wrong target, variable, command and option."""
    assert unknown_to_make(["test", "dance", "VENV=v", "DANCE=1"]) == ["dance", "DANCE=1"]
    assert unknown_to_agent(["run", "x.yaml", "--runs=logs", "--dance"]) == ["--dance"]
    assert unknown_to_agent(["dance", "--version"]) == ["dance"]


def test_the_readme_s_exit_codes_are_ours() -> None:
    """The table has a row for each code, in order."""
    tables = EXIT_CODES.findall(text(ROOT / "README.md"))
    codes = [int(row.strip("| ").partition("|")[0].strip("` ")) for row in "".join(tables).splitlines()]
    assert codes == list(ExitCode)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_somewhere(page: Path) -> None:
    """A page links only to files that are there."""
    assert [link for link in LINK.findall(text(page)) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_programs_that_exist(page: Path) -> None:
    """`python tests/bench/scan.py` can be typed from the checkout's root."""
    assert [path for path in PROGRAM.findall(text(page)) if not (ROOT / path).exists()] == []


def test_the_changelog_has_room_for_the_next_change() -> None:
    """Whoever changes something a user notices writes it there, in the same commit."""
    assert "## Unreleased" in text(ROOT / "CHANGELOG.md").splitlines()


def test_no_file_names_a_machine_or_waits_to_be_written() -> None:
    """What is in the repository is true everywhere, and finished."""
    found = {str(path.relative_to(ROOT)): UNFIT.findall(text(path)) for path in OURS}
    assert {name: words for name, words in found.items() if words} == {}
