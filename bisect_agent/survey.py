"""What the installed stack says of itself, asked before anything is started for real.

Two questions. What does it print for `--help`: so an option that this version does not know is said in
seconds, not after a start of minutes. Which environment names occur in its files: a name that it does not
read sets nothing, and a level of a name that it reads need not be seen in the log to count.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Sequence

from bisect_agent import library
from bisect_agent.arguments import Finding, Names, Options, check, check_names, from_help
from bisect_agent.attempt import BOUND, POLL, Edge
from bisect_agent.errors import TargetError
from bisect_agent.model import Asked, EnvFactor, Note, Playbook, Profile
from bisect_agent.playbook import arguments_of, environment, prelude, script, takes_arguments
from bisect_agent.stack import help_arguments, interpreter, names_command, names_of
from bisect_agent.target.launcher import LOG, Order, Setback

HELP = 180.0
"""Seconds that the launch script gets to print its options: a stack imports itself first."""
LOOK = 60.0
"""Seconds for the look into the packages."""
TEXT = 4 * 1024 * 1024
"""The most bytes taken of what it prints."""


def ask(playbook: Playbook, edge: Edge) -> Asked:
    """Asks the stack of the playbook's profile; what it did not tell is told by the lists that come with us.

    Nothing is asked where there is no profile, and nothing that goes wrong here ends a run.
    """
    profile = playbook.profile
    if profile is None:
        return Asked()
    unasked: tuple[Note, ...] = ()
    try:
        options, names = _options(playbook, profile, edge), _names(playbook, profile, edge)
    except (Setback, TargetError) as error:
        options, names = None, ()
        unasked = (Note(about=profile.name, text=f"it could not be asked: {error}"),)
    installed = options is not None or bool(names)
    shipped = library.arguments(profile.name)
    if shipped is not None and not installed:
        prefixes = next((p.prefixes for p in profile.packages if p.name == shipped.stack), ())
        options, names = shipped.known(), (shipped.names(prefixes),)
    if not installed:
        basis = f", so what follows is by {options.source}" if options else ""
        unasked = (*unasked, Note(about=profile.name, text=f"it is not found on the target{basis}"))
    found = [*_of_arguments(playbook, profile, options), *_of_names(playbook, profile, names)]
    return Asked(
        sources=tuple(name.source for name in names),
        notes=(
            *unasked,
            *(note if installed else note.model_copy(update={"wrong": False}) for note in found),
        ),
        reads=tuple(name for name in _variables(playbook) if installed and any(n.holds(name) for n in names)),
    )


def _options(playbook: Playbook, profile: Profile, edge: Edge) -> Options | None:
    """The options that the launch script's program knows, by its own word."""
    if not profile.help or not takes_arguments(script(playbook, playbook.good)):
        return None
    said = _printed(playbook, edge, help_arguments())
    more = help_arguments(said)
    return from_help(_printed(playbook, edge, more) if more != help_arguments() else said)


def _printed(playbook: Playbook, edge: Edge, arguments: Sequence[str]) -> str:
    """What the launch script prints for some arguments, in a tree of its own that is ended in any case."""
    tag = secrets.token_hex(16)
    order = Order(
        script=script(playbook, playbook.good).encode(),
        arguments=arguments,
        # Wide, so that no option is broken over two lines.
        env={**environment(playbook, playbook.good, edge.ours), "COLUMNS": "400"},
        cwd=playbook.target.cwd,
        tag=tag,
        grace=playbook.limits.stop,
        bound=BOUND,
    )
    folder = edge.launcher.prepare(f"help-{tag[:8]}", order)
    try:
        edge.launcher.start(folder)
        deadline = edge.clock.monotonic() + HELP
        while edge.host.stat(f"{folder}/main_exit") is None and edge.host.stat(f"{folder}/result") is None:
            if edge.clock.monotonic() >= deadline:
                break
            edge.clock.sleep(POLL)
    finally:
        edge.launcher.stop(folder)
    return (edge.host.read(f"{folder}/{LOG}", 0, TEXT) or b"").decode(errors="replace")


def _names(playbook: Playbook, profile: Profile, edge: Edge) -> tuple[Names, ...]:
    """The environment names that occur in the packages which the launch script's Python has."""
    python = interpreter(script(playbook, playbook.good))
    if python is None:
        return ()
    begin = prelude(environment(playbook, playbook.good, edge.ours), playbook.target.cwd)
    look = f"{begin}exec {shlex.join(names_command(python, profile.packages))} </dev/null\n"
    ended = edge.host.run(("env", "-i", "bash", "-s"), timeout=LOOK, stdin=look.encode())
    return names_of(ended.stdout.decode(errors="replace"))


def _variables(playbook: Playbook) -> list[str]:
    """The variables that the playbook sets."""
    own = [factor.env for factor in playbook.factors if isinstance(factor, EnvFactor)]
    return [*own, *playbook.target.env]


def _of_arguments(playbook: Playbook, profile: Profile, options: Options | None) -> Iterator[Note]:
    """What the program would say of each level's arguments."""
    for factor in playbook.factors if options else ():
        for level in factor.levels:
            assert options is not None, "the loop has nothing to go through"
            for finding in check(arguments_of(factor, level), options, profile.retired):
                yield _note(f"{factor.name}={level}", finding)


def _of_names(playbook: Playbook, profile: Profile, names: Sequence[Names]) -> Iterator[Note]:
    for finding in check_names(_variables(playbook), names, profile.retired):
        yield _note(finding.argument, finding)


def _note(about: str, finding: Finding) -> Note:
    return Note(about=about, text=finding.text, remedy=finding.remedy, wrong=finding.wrong)
