"""Puts an investigation together: playbook, run folder, journal, target; and takes it apart again."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path

from bisect_agent import events, playbook
from bisect_agent.check import check_script, masking
from bisect_agent.clock import SystemClock
from bisect_agent.edge import Edge
from bisect_agent.engine import Engine, Listener
from bisect_agent.errors import RESUMABLE, TargetError, UsageError
from bisect_agent.events import AnyEvent, Entry, GuardianActed, Resumed, RunStarted, RunState
from bisect_agent.folder import PLAYBOOK, RESOLVED, RunFolder, digest, run_name
from bisect_agent.guard import Held, take
from bisect_agent.hosts import Host
from bisect_agent.hosts.reach import reach
from bisect_agent.journal import NAME as JOURNAL
from bisect_agent.journal import Journal, decode
from bisect_agent.model import FIRST, Limits, Playbook, StoppedBy
from bisect_agent.standstill import BETWEEN_LOOKS
from bisect_agent.target.launcher import Launcher, Setback

HOME = ".bisect-agent"
"""In the home folder on the target: where runs put their files, and where the locks are."""


@dataclass(frozen=True)
class Means:
    """What an investigation reaches its first target with; `between_looks` as for an `Edge`, in seconds.

    `say` is told what it waits for before there is a record.
    """

    host: Host | None = None
    between_looks: float = BETWEEN_LOOKS
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Investigation:
    """An investigation that can be run: its engine, and where its record goes."""

    engine: Engine
    folder: RunFolder
    playbook: Playbook


def version() -> str:
    """The version of this package."""
    return installed("bisect-agent")


@contextmanager
def open_new(
    path: Path,
    runs: Path,
    pins: Mapping[str, str],
    listener: Listener,
    means: Means | None = None,
    signatures: Path | None = None,
) -> Iterator[Investigation]:
    """A new investigation of a playbook, its targets held for us until we leave.

    `signatures` is a folder of the user's own.

    Raises:
        PlaybookError: the playbook cannot be used.
        TargetError: another investigation holds a target.
    """
    resolved = playbook.load(path, pins=pins, signatures=signatures)
    clock, means = SystemClock(), means or Means()
    name = run_name(resolved.title, clock.time(), secrets.token_hex(2))
    with ExitStack() as stack:
        stack.enter_context(masking(resolved))
        hosts = _hosts(stack, resolved, means)
        for host in hosts.values():
            check_script(host, resolved)
        resolved = playbook.placed(resolved, *(host.home for host in hosts.values()))
        edges = _edges(hosts, means, clock, resolved, name)
        folder = RunFolder.create(runs / name, path.read_bytes(), resolved)
        journal = stack.enter_context(Journal(folder.path, clock.time))
        engine = Engine(resolved, folder, journal, edges, version(), listener, _token)
        engine.begin(
            RunStarted(
                run=name,
                playbook=digest(folder.read(PLAYBOOK)),
                resolved=digest(folder.read(RESOLVED)),
                versions=_versions(),
                source=str(path.resolve()),
                pins=pins,
            )
        )
        # After the first line: whoever is lost from here on can be resumed; the target may be ours by then.
        try:
            engine.begin(*_take(stack, edges, resolved, folder.path, engine.state, means.say))
        except Held:
            shutil.rmtree(folder.path)
            for edge in edges.values():
                with suppress(Setback, TargetError):
                    edge.launcher.release()
                    edge.launcher.discard(edge.folder)
            raise
        yield Investigation(engine, folder, resolved)


@contextmanager
def open_again(
    run: Path, listener: Listener, means: Means | None = None, *, answered: bool = False
) -> Iterator[Investigation]:
    """The investigation of a run folder, taken up where its journal and the target say that it is.

    With `answered`, one that has its answer and keeps it: `good` is restored once more, and that is all.

    Raises:
        UsageError: the run is concluded, or another process carries it out.
        PlaybookError: its playbook has changed in more than its limits.
        TargetError: another investigation holds the target.
    """
    folder, clock, means = RunFolder(run), SystemClock(), means or Means()
    if not folder.journal.is_file():
        raise UsageError(f"{run}: this is no run folder: it has no {JOURNAL}", "bisect-agent runs")
    with ExitStack() as stack:
        journal, lost = Journal.repaired(folder.path, clock.time)
        stack.enter_context(journal)
        state = events.fold(journal.entries)
        if state.started is None:
            raise UsageError(f"{run}: nothing was recorded before it ended", "run the playbook again")
        stack.enter_context(masking(folder.resolved()))
        reopens = answered or _reopens(state, run)
        hosts = _hosts(stack, folder.resolved(), means)
        homes = [host.home for host in hosts.values()]
        resolved, limits = _unchanged(folder, state, state.started, homes)
        edges = _edges(hosts, means, clock, resolved, state.started.run)
        taken = _take(stack, edges, resolved, run, state, means.say)
        acted = [event for event in taken if isinstance(event, GuardianActed)]
        engine = Engine(resolved, folder, journal, edges, version(), listener, _token)
        anew = reopens or any(event.target == FIRST for event in acted)
        resumed = Resumed(versions=_versions(), reopens=anew, limits=limits, lost=lost)
        engine.begin(*acted, resumed, *(event for event in taken if event not in acted))
        with _answering():
            for number, edge in edges.items():
                engine.sweep(number, _attempt_folders(edge))
        if answered and state.concluded:
            engine.begin(state.concluded)
        yield Investigation(engine, folder, resolved)


def _reopens(state: RunState, run: Path) -> bool:
    """Whether the search goes on although it was concluded; a run that has its answer is left alone."""
    if state.concluded is None:
        return False
    if state.sealed is None:
        return state.concluded.stopped_by in _UNANSWERED
    if state.sealed.exit_code not in RESUMABLE:
        raise UsageError(
            f"{run}: this run is concluded: {state.concluded.stopped_by}", f"bisect-agent report {run}"
        )
    return True


_UNANSWERED = frozenset(
    {StoppedBy.TARGET, StoppedBy.BUDGET, StoppedBy.DIRTY, StoppedBy.INTERRUPTED, StoppedBy.BUG}
)


def _unchanged(
    folder: RunFolder, state: RunState, started: RunStarted, homes: Sequence[str]
) -> tuple[Playbook, Limits | None]:
    """The run's playbook, with its limits as they are now; and these, where they were raised.

    The file it was read from may have been edited since: its limits may be higher, nothing else may
    differ. What the library ships may differ: the run keeps what it began with.
    """
    for name, expected in ((PLAYBOOK, started.playbook), (RESOLVED, started.resolved)):
        if digest(folder.read(name)) != expected:
            raise UsageError(
                f"{folder.path / name} was changed: it is the record of what is being run",
                f"put it back; limits are raised in {started.source}",
            )
    was = folder.resolved()
    was = was.model_copy(update={"limits": state.limits or was.limits})
    source = Path(started.source)
    if not source.is_file():
        return was, None
    now = playbook.load(source, pins=started.pins)
    if len(now.targets) == len(homes):
        now = playbook.placed(now, *homes)
    changed = [name for name in _QUESTION if getattr(now, name) != getattr(was, name)]
    lowered = [name for name in Limits.model_fields if getattr(now.limits, name) < getattr(was.limits, name)]
    if changed or lowered:
        what = ", ".join([*changed, *(f"limits.{name} (lowered)" for name in lowered)])
        raise UsageError(
            f"{source} has changed since the run began: {what}",
            "put it back (limits may be raised), or start a new run",
        )
    if now.limits == was.limits:
        return was, None
    return was.model_copy(update={"limits": now.limits}), now.limits


_QUESTION = tuple(name for name in Playbook.model_fields if name not in {"limits", "signatures"})
"""The parts of a playbook that may not change while it is being run."""


def _token() -> str:
    """What no earlier attempt had."""
    return secrets.token_hex(16)


def _versions() -> dict[str, str]:
    return {"bisect_agent": version(), "python": sys.version.split()[0]}


def _hosts(stack: ExitStack, resolved: Playbook, means: Means) -> dict[int, Host]:
    """The machine of each target, reached until we leave."""
    found = {FIRST: means.host or stack.enter_context(reach(resolved.target.host))}
    for number, target in resolved.targets.items():
        if number != FIRST:
            found[number] = stack.enter_context(reach(target.host))
    return found


def _edges(
    hosts: Mapping[int, Host], means: Means, clock: SystemClock, resolved: Playbook, name: str
) -> dict[int, Edge]:
    """The targets of a run: on each, its files lie in a folder of the run's own."""
    return {
        number: _edge(host, means.between_looks, clock, resolved.at(number), _folder(name, number))
        for number, host in hosts.items()
    }


def _folder(name: str, number: int) -> str:
    """What a run's folder is called on a target: two of them may be on one machine."""
    return name if number == FIRST else f"{name}-on-{number}"


def _edge(host: Host, between_looks: float, clock: SystemClock, resolved: Playbook, name: str) -> Edge:
    ours = playbook.environment_for(host.environment, os.environ)
    place = f"{resolved.target.folder or f'{host.home}/{HOME}'}/{name}"
    return Edge(
        host=host,
        launcher=Launcher(host, place, host.python),
        folder=place,
        python=host.python,
        clock=clock,
        ours=ours,
        secrets=tuple(playbook.secrets_of(resolved, ours).values()),
        between_looks=between_looks,
    )


def _attempt_folders(edge: Edge) -> list[str]:
    """The attempts that the target has folders of."""
    found = edge.host.run(["ls", "-1", edge.folder], timeout=30)
    names = found.stdout.decode(errors="replace").split("\n")
    return [name for name in names if edge.host.stat(f"{edge.folder}/{name}/claim") is not None]


def restored(state: RunState) -> str | None:
    """The folder, on the target, of the restored server that a run has left running."""
    if state.first.surveyed is None or state.serving is None:
        return None
    return f"{state.first.surveyed.folder}/{state.serving}"


def stop_left(folder: RunFolder) -> str:
    """Ends what a run has left running, the restored server as a rule; returns what was done, as a sentence.

    Raises:
        TargetError: something of it did not die, or the run's guardian has a target.
    """
    state = events.fold(decode(folder.read(JOURNAL)))
    acted = state.first.taken_over
    over = state.sealed is not None and (acted is None or acted.done)
    if state.first.surveyed is None or (over and restored(state) is None):
        return _NONE_LEFT
    resolved = folder.resolved()
    # Where all is over, only the first target may have something: `good` is restored nowhere else.
    concerned = {FIRST: state.first} if over else state.targets
    ended, back = 0, list[str]()
    for number, stands in concerned.items():
        if stands.surveyed is None:
            continue
        there = resolved.at(number)
        with reach(there.target.host) as host, _answering():
            launcher = Launcher(host, stands.surveyed.folder, host.python)
            if over:
                launcher.dismiss()
            else:
                state = _heard(launcher, state, number, folder.path)
            running = _running(state, number, stands.surveyed.folder)
            for attempt in running:
                _end(launcher, attempt)
            paths = tuple(playbook.files(there, there.good)) if running else ()
            for path in paths:
                launcher.put_back(path)
        ended += len(running)
        back += paths
    if not ended:
        return _NONE_LEFT
    files = f"; {', '.join(back)} as before the run" if back else ""
    return f"nothing of this run is left running{files}"


_NONE_LEFT = "this run has left no server running"


def _running(state: RunState, number: int, folder: str) -> list[str]:
    """The folders, on a target, of the restored server, and of attempts that nobody has ended."""
    began = [a for a in state.attempts.values() if a.folder and a.target == number]
    good = restored(state) if number == FIRST else None
    return [*([good] if good else []), *(f"{folder}/{a.folder}" for a in began if a.observation is None)]


def _end(launcher: Launcher, attempt: str) -> None:
    stopped = launcher.stop(attempt)
    if stopped.left:
        names = ", ".join(f"{p.pid} {p.name}" for p in stopped.left)
        raise TargetError(f"still alive: {names}", "look at these processes; nothing else was touched")


def _heard(launcher: Launcher, state: RunState, number: int, run: Path) -> RunState:
    """The state of a run that has not ended, with what the guardian of a target has done since.

    Raises:
        TargetError: the guardian still has the target.
    """
    found = launcher.takeovers()
    if found.watching:
        raise TargetError(
            f"{run}: its guardian holds the target, and restores the good server if nobody takes the run up",
            f"bisect-agent resume {run}",
        )
    if not found.reports:
        return state
    return events.apply(state, Entry(0, 0.0, GuardianActed(target=number, takeover=found.reports[-1])))


@contextmanager
def _answering(remedy: str = "look at the target, then try again") -> Iterator[None]:
    """A setback outside of an attempt is a target that cannot be used."""
    try:
        yield
    except Setback as setback:
        raise TargetError(setback.trouble.detail, remedy) from setback


def _take(
    stack: ExitStack,
    edges: Mapping[int, Edge],
    resolved: Playbook,
    run: Path,
    state: RunState,
    say: Callable[[str], None],
) -> tuple[AnyEvent, ...]:
    """Takes the targets for this run alone, until we leave; whoever leaves early leaves them to guardians."""
    holder = f"{socket.gethostname()} pid {os.getpid()}, run {run}"
    taken: list[AnyEvent] = []
    for number, edge in edges.items():
        with _answering(f"bisect-agent resume {run}"):
            edge.launcher.install()
            locks = f"{edge.host.home}/{HOME}/locks"
            taken += take(resolved, number, edge, holder, locks, state, say)
        stack.callback(_leave, edge)
    return tuple(taken)


def _leave(edge: Edge) -> None:
    with suppress(Setback, TargetError):
        edge.launcher.hand_over()
