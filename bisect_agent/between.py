"""What is looked at between two attempts: whether the target is still what it was, and what was left there.

One look is one command, whatever it is for: over SSH it costs one round trip.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from importlib import resources

from bisect_agent import surroundings
from bisect_agent.edge import Edge
from bisect_agent.errors import TargetError
from bisect_agent.folder import RunFolder
from bisect_agent.hosts import TimedOut
from bisect_agent.installed import installs, interpreter, places_command, places_of
from bisect_agent.model import Before, Fingerprint, Playbook
from bisect_agent.playbook import environment, files, prelude, scripts
from bisect_agent.secrets import Masker
from bisect_agent.surroundings import CODE, PACKAGE, Answer

CODE_WITHIN = 10.0
"""Seconds in which all of the code is read."""
CODE_FILES = 20_000
"""The most files of code that are read: a folder of anything else is soon larger."""
LOOK = 60.0
"""Seconds for a look, above those of its parts."""
PLACES = 60.0
"""Seconds in which the stack's Python says where it looks for packages."""
_SOURCE = resources.files("bisect_agent.target").joinpath("around.py").read_bytes()


@dataclass(frozen=True)
class Leaver:
    """An attempt that may have left something: its folder on the target, and its tag."""

    folder: str
    tag: str


def fingerprint(playbook: Playbook, edge: Edge, run: RunFolder | None = None) -> Fingerprint:
    """What the target is now; `run` is our own folder, where there is one: it may lie in the code.

    Raises:
        TargetError: a path of `target.code` cannot be told.
    """
    folders, unread = _places(playbook, edge)
    seen = look(playbook, edge, run, Fingerprint(folders=folders))
    found = surroundings.fingerprint(seen, folders, unread)
    for name, why in found.unread.items():
        if name.startswith(f"{CODE} "):
            message = f"{edge.host.name}: `target.code`: {name.removeprefix(f'{CODE} ')}: {why}"
            raise TargetError(
                message, "name the folders that hold code; a large one should be a git repository"
            )
    return found


def again(playbook: Playbook, edge: Edge, run: RunFolder | None, baseline: Fingerprint) -> tuple[str, ...]:
    """What is another environment now than it was at first, a line each."""
    return compared(look(playbook, edge, run, baseline), baseline)


def compared(seen: Answer, baseline: Fingerprint) -> tuple[str, ...]:
    """What a look shows to be another environment than it was at first, a line each."""
    now = surroundings.fingerprint(seen, baseline.folders, {})
    return surroundings.changes(baseline, now)


def look(
    playbook: Playbook,
    edge: Edge,
    run: RunFolder | None,
    baseline: Fingerprint,
    since: Before | None = None,
    leaver: Leaver | None = None,
) -> Answer:
    """All that must stay, and what is new in the kernel's log; what an attempt left is taken away.

    Raises:
        TargetError: there was no answer.
    """
    heard = None if since is None or since.heard is None else {"boot": since.boot, "last": since.heard}
    asked: dict[str, object] = {
        "folders": baseline.folders,
        "gpus": {"seconds": edge.smi, "since": heard},
    }
    if playbook.target.code:
        skip = [edge.folder, *files(playbook, playbook.good), *([str(run.path.resolve())] if run else [])]
        limits = {"seconds": CODE_WITHIN, "files": CODE_FILES}
        asked["code"] = {"paths": playbook.target.code, "skip": skip, **limits}
    if leaver is not None and playbook.leaves:
        asked["left"] = {"globs": playbook.leaves, "folder": leaver.folder, "tag": leaver.tag}
    return _ask(edge, asked)


def gpus(edge: Edge) -> Answer:
    """The GPUs, and who uses them; nothing else."""
    return _ask(edge, {"gpus": {"seconds": edge.smi}})


def _ask(edge: Edge, asked: dict[str, object]) -> Answer:
    # On standard input: the program leaves no file, and the list of processes shows what is asked only.
    command = (edge.python, "-I", "-S", "-", json.dumps(asked))
    ended = edge.host.run(command, timeout=LOOK, stdin=_SOURCE)
    answer = surroundings.read(ended.stdout)
    if answer is None:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip()[-500:]
        message = f"{edge.host.name}: the look around gave no answer (exit status {ended.returncode}): {said}"
        raise TargetError(message, f"the target needs Python 3.6 or later: {edge.python}")
    return answer


def _places(playbook: Playbook, edge: Edge) -> tuple[tuple[str, ...], dict[str, str]]:
    """The folders that hold the stack's packages, or why they are not looked at."""
    texts = scripts(playbook)
    if any(map(installs, texts)):
        return (), {PACKAGE: "the launch script installs some itself"}
    pythons = [python for python in dict.fromkeys(map(interpreter, texts)) if python is not None]
    if not pythons:
        return (), {PACKAGE: "the launch script does not tell which Python it starts"}
    begin = prelude(environment(playbook, playbook.good, edge.ours), playbook.target.cwd)
    found: list[str] = []
    for python in pythons:
        script = f"{begin}exec {shlex.join(places_command(python))} </dev/null\n"
        try:
            ended = edge.host.run(("env", "-i", "bash", "-s"), timeout=PLACES, stdin=script.encode())
        except TimedOut:
            return (), {PACKAGE: f"{python.command} did not start within {PLACES:g} s"}
        places = places_of(ended.stdout.decode(errors="replace"))
        if not places:
            said = Masker(edge.secrets).mask(ended.stderr.decode(errors="replace")).strip()[-300:]
            return (), {PACKAGE: f"{python.command} does not tell where they are: {said}"}
        found += places
    return tuple(dict.fromkeys(found)), {}
