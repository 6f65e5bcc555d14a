"""What the installed stack says of itself, asked before anything is started for real.

Two questions. What does it print for `--help`: so an option that this version does not know is said in
seconds, not after a start of minutes. Which environment names occur in its files: a name that it does not
read sets nothing, and a level of a name that it reads need not be seen in the log to count.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence

import re2

from bisect_agent import library
from bisect_agent.arguments import Finding, Names, Options, Shipped, check, check_names, from_help
from bisect_agent.edge import BOUND, Edge
from bisect_agent.errors import TargetError
from bisect_agent.installed import help_arguments, interpreter, names_command, names_of
from bisect_agent.model import Asked, EnvFactor, Note, Playbook, Profile
from bisect_agent.playbook import arguments_of, environment, prelude, script, takes_arguments
from bisect_agent.target.launcher import LOG, Order, Setback
from bisect_agent.watching import HEALTH_EVERY, ended

HELP = 180.0
"""Seconds that the launch script gets to print its options: a stack imports itself first."""
LOOK = 60.0
"""Seconds for the look into the packages."""
TEXT = 4 * 1024 * 1024
"""The most bytes taken of what it prints."""


def ask(playbook: Playbook, edge: Edge, left: Callable[[], bool] = lambda: False) -> Asked:
    """Asks the stack of the playbook's profile; what it did not tell is told by the lists that come with us.

    Nothing is asked where there is no profile, and nothing that goes wrong here ends a run. It ends early
    where the run is `left`.
    """
    profile = playbook.profile
    if profile is None:
        return Asked()
    unasked: tuple[Note, ...] = ()
    try:
        options, names = _options(playbook, profile, edge, left), _names(playbook, profile, edge)
    except (Setback, TargetError) as error:
        options, names = None, ()
        unasked = (Note(about=profile.name, text=f"it could not be asked: {error}"),)
    shipped = library.arguments(profile.name)
    if options is None and not names and not unasked:
        basis = f"; what follows is by {shipped.stack} {shipped.version}" if shipped else ""
        unasked = (*unasked, Note(about=profile.name, text=f"it is not found on the target{basis}"))
    elif options is None and profile.help and not unasked:
        text = "its launch script printed no help that could be read: no option was checked by its own word"
        unasked = (Note(about=profile.name, text=text),)
    return Asked(
        sources=tuple(name.source for name in names),
        notes=(
            *unasked,
            *_of_arguments(playbook, profile, options, shipped),
            *_of_names(playbook, profile, names or _listed(profile, shipped)),
        ),
        reads=tuple(name for name in _variables(playbook) if any(name in n.names for n in names)),
    )


def _options(playbook: Playbook, profile: Profile, edge: Edge, left: Callable[[], bool]) -> Options | None:
    """The options that the launch script's program knows, by its own word."""
    if not profile.help or not takes_arguments(script(playbook, playbook.good)):
        return None
    said = _printed(playbook, edge, help_arguments(), left)
    more = help_arguments(said)
    return from_help(_printed(playbook, edge, more, left) if more != help_arguments() else said)


def _printed(playbook: Playbook, edge: Edge, arguments: Sequence[str], left: Callable[[], bool]) -> str:
    """What the launch script prints for some arguments, in a tree of its own that is ended in any case."""
    tag = secrets.token_hex(16)
    order = Order(
        script=script(playbook, playbook.good).encode(),
        arguments=arguments,
        # Wide, so that no option is broken over two lines.
        env={**environment(playbook, playbook.good, edge.ours), "COLUMNS": "400"},
        cwd=playbook.target.cwd,
        tag=tag,
        purpose="question",
        grace=playbook.limits.stop,
        bound=BOUND,
    )
    edge.launcher.renew(HELP)
    folder = edge.launcher.prepare(f"help-{tag[:8]}", order)
    try:
        edge.launcher.start(folder)
        deadline = edge.clock.monotonic() + HELP
        while edge.clock.monotonic() < deadline and not (left() or ended(edge.host, folder)):
            if _starts(playbook, _text(edge, folder)):
                return ""
            edge.clock.sleep(HEALTH_EVERY)
    finally:
        edge.launcher.stop(folder)
    return _text(edge, folder)


def _text(edge: Edge, folder: str) -> str:
    """What was printed so far."""
    return (edge.host.read(f"{folder}/{LOG}", 0, TEXT) or b"").decode(errors="replace")


def _starts(playbook: Playbook, text: str) -> bool:
    """Whether a script that was asked for help starts its server all the same."""
    observe = playbook.observe
    marks = [mark for mark in (observe.ready_log, *(p.begin for p in observe.phases)) if mark]
    return any(re2.search(f"(?m){mark}", text) for mark in marks)


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


def _of_arguments(
    playbook: Playbook, profile: Profile, told: Options | None, shipped: Shipped | None
) -> Iterator[Note]:
    """What the program would say of each level's arguments, by its own word or else by our list of it.

    Our list may be of another version, so by it alone nothing is wrong. Nor is an option that our list
    knows and the program's help does not show: some are hidden there.
    """
    listed = shipped.known() if shipped else None
    if told is None and listed is None:
        return
    for factor in playbook.factors:
        for level in factor.levels:
            arguments = arguments_of(factor, level)
            by_list = check(arguments, listed, profile.retired) if listed else ()
            found = check(arguments, told, profile.retired) if told else by_list
            strange = {finding.argument for finding in by_list if finding.kind == "unknown"}
            for finding in found:
                hidden = listed is not None and finding.kind == "unknown" and finding.argument not in strange
                sure = told is not None and not hidden
                yield _note(f"{factor.name}={level}", finding, wrong=finding.wrong and sure)


def _of_names(playbook: Playbook, profile: Profile, names: Sequence[Names]) -> Iterator[Note]:
    for finding in check_names(_variables(playbook), names, profile.retired):
        yield _note(finding.argument, finding, wrong=False)


def _listed(profile: Profile, shipped: Shipped | None) -> tuple[Names, ...]:
    """The names by our list of the stack."""
    if shipped is None:
        return ()
    return (shipped.names(next((p.prefixes for p in profile.packages if p.name == shipped.stack), ())),)


def _note(about: str, finding: Finding, *, wrong: bool) -> Note:
    return Note(about=about, text=finding.text, remedy=finding.remedy, wrong=wrong)
