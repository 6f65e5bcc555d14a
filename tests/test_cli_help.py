import subprocess
import sys

import pytest
import typer
from typer.core import TyperGroup

from bisect_agent import cli
from bisect_agent.errors import ExitCode

SLOW_TO_IMPORT = {
    "jinja2",
    "paramiko",
    "pydantic",
    "re2",
    "rich",
    "ruamel",
    "structlog",
    "torch",
    "transitions",
}
IMPORTED = "import sys, bisect_agent.cli; print(*{name.partition('.')[0] for name in sys.modules})"


def group() -> TyperGroup:
    """The command with its commands."""
    command = typer.main.get_command(cli.app)
    assert isinstance(command, TyperGroup)
    return command


def agent(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, run as a person would."""
    command = [sys.executable, "-m", "bisect_agent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", sorted(group().commands))
def test_a_command_and_its_options_are_explained_in_sentences(name: str) -> None:
    """Each help is there, and ends in a full stop."""
    command = group().commands[name]
    helps = {name: command.help} | {param.name: getattr(param, "help", None) for param in command.params}
    assert {about for about, said in helps.items() if not (said or "").endswith(".")} == set()


def test_the_help_names_every_exit_code() -> None:
    """Scripts branch on them, and `--help` is where their authors look first."""
    said = " ".join((group().epilog or "").split())
    assert [code for code in ExitCode if f" {code.value} " not in said] == []


def test_the_command_line_starts_without_its_libraries() -> None:
    """`--help` is asked for often; what a command needs is imported once it is known."""
    modules = subprocess.check_output([sys.executable, "-c", IMPORTED], text=True, timeout=60)
    assert set() == SLOW_TO_IMPORT & set(modules.split())


@pytest.mark.parametrize(
    "line",
    [
        ("dance",),
        ("run",),
        ("run", "--dance", "quickstart"),
        ("run", "quickstart", "--set", "kernel"),
        ("run", "quickstart", "--set", "dance=stock"),
        ("check", "no-such-playbook"),
        ("report", "no-such-run"),
        ("report", ".", "--format", "poem"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_says_nothing_on_stdout(line: tuple[str, ...]) -> None:
    """Whoever reads our stdout gets a verdict or nothing."""
    done = agent(*line)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "Traceback" not in done.stderr


def test_no_command_at_all_is_exit_code_2_and_shows_the_commands() -> None:
    """Who calls us by mistake in a script learns of it; a person sees what there is."""
    done = agent()
    assert done.returncode == ExitCode.USAGE
    assert [name for name in group().commands if name not in done.stdout] == []


@pytest.mark.parametrize("line", [("--help",), ("--version",), ("run", "--help")])
def test_what_was_asked_for_goes_to_stdout(line: tuple[str, ...]) -> None:
    """Help and version are answers, so they can be piped."""
    done = agent(*line)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
