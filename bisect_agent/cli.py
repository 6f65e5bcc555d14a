"""The commands and their exit codes. The only room that prints or exits."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol

import typer

from bisect_agent.errors import BisectError, ExitCode, TargetError, UsageError

if TYPE_CHECKING:
    from bisect_agent.engine import Listener
    from bisect_agent.events import Entry
    from bisect_agent.hour import Hour
    from bisect_agent.investigation import Investigation, Means
    from bisect_agent.model import Playbook
    from bisect_agent.night import Queued, Terms
    from bisect_agent.report.digest import Digest
    from bisect_agent.verdict import Verdict

app = typer.Typer(
    name="bisect-agent",
    help="Finds out which settings a failure of an inference stack needs, one change a run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 cause established; 1 none established; 2 playbook or command line wrong; "
    "3 nothing to bisect; 4 target unusable; 5 budget spent; 6 good not restored, or target dirty; "
    "70 a bug of ours; 130 interrupted.",
)

PlaybookArgument = Annotated[
    str, typer.Argument(metavar="PLAYBOOK", help="A playbook file, or the name of a shipped one.")
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder.", exists=True, file_okay=False)
]
ArchiveArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, or a FILE.tar.gz of one.", exists=True)
]
PlaybooksArgument = Annotated[
    list[str],
    typer.Argument(metavar="PLAYBOOK", help="Playbook files, folders of them, or names of shipped ones."),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="No run goes past it: HH:MM, or an ISO time. Local time."),
]
RunsOption = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run folders are kept.")]
PinOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FACTOR=LEVEL", help="Pins a factor to a level in good and bad."),
]
SignaturesOption = Annotated[
    Path | None, typer.Option("--signatures", metavar="DIR", help="A folder of your own signatures.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="The verdict, or the digest of several, as JSON on stdout.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress, only the verdict.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Every event on stderr, as it is recorded.")]
RUNS = Path("logs")


class Described(StrEnum):
    """What there is a schema of."""

    PLAYBOOK = "playbook"
    VERDICT = "verdict"


class Form(StrEnum):
    """How a verdict can be shown."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


@app.command()
def run(  # noqa: PLR0913, PLR0917  # each is an option of the command
    playbooks: PlaybooksArgument,
    runs: RunsOption = RUNS,
    until: UntilOption = None,
    as_json: JsonOption = False,
    pin: PinOption = None,
    signatures: SignaturesOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Runs a playbook to its verdict, then brings the good server up again.

    Several, or folders of them, are a night: one after another on each target, the targets side by side.
    What ends one ends it alone. A digest of all is printed, and kept beside the run folders.
    """
    from bisect_agent import night, playbook
    from bisect_agent.investigation import open_new

    pins, hour = _pins(pin), _hour(until)
    paths = night.listed(playbooks)
    if len(playbooks) > 1 or Path(playbooks[0]).is_dir():
        queued = night.queue(paths, pins, signatures)
        _spend(queued, night.Terms(runs, pins, signatures, hour), as_json=as_json, quiet=quiet, debug=debug)
    (path,) = paths
    _carry_out(
        lambda tell: open_new(path, runs, pins, tell, _means(), signatures),
        lambda: playbook.load(path, pins=pins, signatures=signatures),
        hour,
        as_json=as_json,
        quiet=quiet,
        debug=debug,
    )


@app.command()
def resume(
    run: RunArgument,
    until: UntilOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Takes up a run that was interrupted, has crashed, or has spent its budget.

    Limits may be raised in the playbook before; any other change of it is refused.
    """
    from bisect_agent.folder import RunFolder
    from bisect_agent.investigation import open_again

    _refuse_exported(run)
    _carry_out(
        lambda tell: open_again(run, tell, _means()),
        RunFolder(run).resolved,
        _hour(until),
        as_json=as_json,
        quiet=quiet,
        debug=debug,
    )


@app.command()
def watch(
    run: RunArgument, as_json: JsonOption = False, quiet: QuietOption = False, debug: DebugOption = False
) -> None:
    """Follows a run that another process carries out, and ends with its verdict and its exit code.

    Ctrl-C ends only the watching.
    """
    from bisect_agent.clock import SystemClock
    from bisect_agent.events import Sealed
    from bisect_agent.folder import RunFolder
    from bisect_agent.follow import follow
    from bisect_agent.report.files import read_verdict

    code = int(ExitCode.BUG)
    # A script's background job begins with this signal ignored, and could be ended by no Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with _progress(quiet=quiet, debug=debug) as listener:
            for entry in follow(run, SystemClock()):
                listener(entry)
                code = entry.event.exit_code if isinstance(entry.event, Sealed) else code
    except KeyboardInterrupt:
        _say("no longer watched: the run goes on")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _show(read_verdict(RunFolder(run)), as_json=as_json)
    raise typer.Exit(code)


@app.command()
def check(playbook: PlaybookArgument, pin: PinOption = None, signatures: SignaturesOption = None) -> None:
    """Says what a playbook would run, and what is wrong with it. Starts nothing."""
    from bisect_agent.check import check as checked

    for line in checked(_find(playbook), _pins(pin), signatures):
        typer.echo(line)


@app.command()
def plan(
    playbook: Annotated[
        str, typer.Argument(metavar="PLAYBOOK|RUN", help="A playbook, or the folder of a run that has begun.")
    ],
    depth: Annotated[
        int, typer.Option("--depth", min=1, max=12, help="So many trials ahead are shown one after another.")
    ] = 5,
    pin: PinOption = None,
    signatures: SignaturesOption = None,
) -> None:
    """Shows the trials ahead with their probabilities, and how many there may be. Starts nothing."""
    from bisect_agent import plan as ahead
    from bisect_agent.folder import RunFolder
    from bisect_agent.journal import NAME as JOURNAL
    from bisect_agent.playbook import load
    from bisect_agent.report import outlook
    from bisect_agent.report.files import read_state
    from bisect_agent.steer import EQUAL

    if (Path(playbook) / JOURNAL).is_file():
        if pin or signatures:
            raise UsageError("a run that has begun keeps its playbook", "leave --set and --signatures out")
        folder = RunFolder(Path(playbook))
        known, state = folder.resolved(), read_state(folder)
        settled, costs = state.settled(), state.costs() if state.judged() else None
    else:
        known, settled, costs = load(_find(playbook), pins=_pins(pin), signatures=signatures), (), None
    shown = ahead.tree(known, settled, depth, costs or EQUAL)
    counts = tuple(ahead.counts(known, costs))
    for line in outlook.lines(shown, counts, costs, flaky=known.error is not None):
        typer.echo(line)


@app.command()
def report(
    run: ArchiveArgument,
    form: Annotated[Form, typer.Option("--format", help="How to show it.")] = Form.TERMINAL,
) -> None:
    """Shows the verdict of a run again."""
    from bisect_agent.archive import opened
    from bisect_agent.folder import RunFolder
    from bisect_agent.report.files import read_verdict, reports

    with opened(run) as path:
        folder = RunFolder(path)
        verdict = read_verdict(folder)
        if form is Form.TERMINAL:
            _show(verdict, as_json=False)
        else:
            sys.stdout.buffer.write(reports(folder, verdict)[form])


@app.command()
def verify(run: ArchiveArgument) -> None:
    """Computes the verdict of a run again from its folder alone, and says where it does not agree."""
    from bisect_agent.archive import opened
    from bisect_agent.folder import RunFolder
    from bisect_agent.verify import verify as verified

    with opened(run) as path:
        found = verified(RunFolder(path))
    if found.exported:
        typer.echo(f"exported from a run whose head was {found.exported.head}")
    typer.echo(
        f"it follows: {found.events} events, {found.attempts} attempts and {found.log_bytes} bytes of logs"
        f" give this verdict: {found.verdict.tree.text}"
    )


@app.command()
def export(
    run: RunArgument,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replaces what tells of the machine and the person.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="A new folder or FILE.tar.gz; else RUN-exported beside it."),
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option("--also", metavar="WORD", help="Replaces this word, too.")
    ] = None,
) -> None:
    """Makes a copy of a run that can travel: what tells of the machine is replaced, and the verdict follows.

    Every replacement has as many bytes, and the same is replaced by the same.
    """
    import os

    from bisect_agent.export import export as exported
    from bisect_agent.export import this_machine
    from bisect_agent.folder import RunFolder
    from bisect_agent.investigation import version

    if not redact:
        raise UsageError(
            "export makes a redacted copy; one as it is needs no command of ours",
            f"bisect-agent export --redact {run}",
        )
    made = exported(RunFolder(run.resolve()), to, this_machine(os.environ), also or [], version())
    for line in made.summary():
        typer.echo(line)


@app.command()
def schema(
    of: Annotated[Described, typer.Argument(help="What the schema is of.")] = Described.PLAYBOOK,
) -> None:
    """Prints the JSON schema of a playbook, or of verdict.json.

    An editor completes a playbook that begins with the line
    `# yaml-language-server: $schema=playbook.schema.json`, once this was written there.
    """
    import json

    from bisect_agent.schema import schemas

    typer.echo(json.dumps(schemas()[of], indent=2, ensure_ascii=False))


@app.command()
def stop(run: RunArgument) -> None:
    """Ends what a run has left running: the good server, as a rule."""
    from bisect_agent.folder import RunFolder
    from bisect_agent.investigation import stop_left

    _refuse_exported(run)
    typer.echo(stop_left(RunFolder(run)))


@app.command()
def trust(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="As in `target.host`: ssh://[user@]host[:port].")
    ],
) -> None:
    """Shows the key by which a host over SSH is known, and accepts it when you say so.

    Without a terminal to ask on, it accepts nothing.
    """
    from bisect_agent.hosts.trust import accept, offered

    offer = offered(host)
    typer.echo(f"{offer.host} is {offer.state}: {offer.key}")
    if offer.state == "known":
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked whether this is the right key", "run this on a terminal")
    if typer.confirm(f"Is this its key? It is then written to {offer.file}"):
        accept(offer)


@app.command("runs")
def list_runs(runs: RunsOption = RUNS) -> None:
    """Lists the runs of a folder, newest last, with what each concluded."""
    from bisect_agent.report.files import listing

    if not runs.is_dir():
        raise UsageError(f"{runs}: there is no such folder", "bisect-agent runs --runs DIR")
    for line in listing(runs):
        typer.echo(line)


def _show_version(asked: bool) -> None:
    if asked:
        from bisect_agent.investigation import version

        typer.echo(f"bisect-agent {version()}")
        raise typer.Exit


@app.callback()
def _top(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Shows the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None: ...


def main() -> NoReturn:
    """The command: every error ends in a sentence on stderr and the exit code of its kind."""
    try:
        sys.exit(app())  # a wrong command line, and Ctrl-C outside a run, end in there: with 2 and 130
    except BisectError as error:
        _say(_masked(f"error: {error}"))
        sys.exit(error.code)
    except Exception:
        _say(_masked(traceback.format_exc()))
        _say("error: this is a bug of bisect-agent; the run folder named above holds the journal")
        sys.exit(ExitCode.BUG)


def _carry_out(
    opened: Callable[[Listener], AbstractContextManager[Investigation]],
    asked: Callable[[], Playbook],
    hour: Hour | None,
    *,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> NoReturn:
    """Runs an investigation to its verdict, shows it, and leaves with its exit code."""
    from bisect_agent.investigation import restored
    from bisect_agent.report.files import write_reports

    folder: Path | None = None
    try:
        with _progress(quiet=quiet, debug=debug) as listener, opened(listener) as investigation:
            folder = investigation.folder.path
            with _interruptible(investigation.engine):
                outcome = investigation.engine.run(hour=hour)
            write_reports(investigation.folder, outcome.verdict)
    except Exception as error:
        if folder is not None or isinstance(error, TargetError):
            with suppress(BisectError):  # The first error is the one to show.
                _tell(asked(), folder, error)
        raise
    _show(outcome.verdict, as_json=as_json)
    _say(f"run folder: {investigation.folder.path}")
    if restored(investigation.engine.state):
        _say(f"the good server runs on; to stop it: bisect-agent stop {investigation.folder.path}")
    _tell(investigation.playbook, folder, None)
    raise typer.Exit(outcome.code)


def _means() -> Means:
    """The playbook's own target; what is waited for is said."""
    from bisect_agent.investigation import Means

    return Means(say=_say)


def _tell(asked: Playbook, folder: Path | None, error: Exception | None) -> None:
    """Tells whom the playbook names how the run has ended; what goes wrong with that is only said."""
    import time

    from bisect_agent import night
    from bisect_agent.report.digest import Brief

    if not asked.notify:
        return
    now = time.time()
    run = Brief(name="", title=asked.title, target=asked.target.host, began=now)
    for sentence in night.tell(night.ended(run, folder, error, now), asked):
        _say(sentence)


def _spend(queued: Sequence[Queued], terms: Terms, *, as_json: bool, quiet: bool, debug: bool) -> NoReturn:
    """Spends a night on a queue of playbooks, shows its digest, and leaves with the first code by rank."""
    from bisect_agent.clock import SystemClock
    from bisect_agent.night import Night

    night = Night(
        queued, terms, SystemClock(), lambda name: _progress(quiet=quiet, debug=debug, name=name), _say
    )
    with _interruptible(night):
        digest = night.run()
    _show_digest(digest, as_json=as_json)
    _say(f"digest: {night.page}")
    raise typer.Exit(digest.code)


def _hour(until: str | None) -> Hour | None:
    """The hour that `--until` names."""
    from bisect_agent.clock import SystemClock
    from bisect_agent.hour import Hour, moment

    clock = SystemClock()
    return None if until is None else Hour.named(moment(until, clock.time()), clock)


def _find(name: str) -> Path:
    """A playbook by its path, or by the name of a shipped one."""
    from bisect_agent import library

    path = Path(name)
    if path.exists() or name not in library.playbooks():
        return path
    return library.playbook(name)


def _refuse_exported(run: Path) -> None:
    """A copy made to travel says what was; what is, is to be seen where the run was recorded."""
    from bisect_agent.export import is_exported
    from bisect_agent.folder import RunFolder

    if is_exported(RunFolder(run)):
        raise UsageError(
            f"{run}: this run was exported: there is nothing of it to go on with, or to stop",
            f"bisect-agent report {run}",
        )


def _pins(pairs: list[str] | None) -> dict[str, str]:
    pins = {}
    for pair in pairs or []:
        factor, equals, level = pair.partition("=")
        if not (factor and equals and level):
            raise UsageError(f"--set {pair}: this is not a factor and a level", "--set kernel=stock")
        pins[factor] = level
    return pins


@contextmanager
def _progress(*, quiet: bool, debug: bool, name: str = "") -> Iterator[Listener]:
    """What is shown while a run goes on: on stderr, so that stdout is the verdict's alone.

    With a name, the run is one of several, and every line says which.
    """
    from rich.console import Console

    from bisect_agent.report import terminal

    if debug:
        import structlog

        renderer = (
            structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
        )
        log = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr),
            processors=[structlog.processors.TimeStamper(fmt="iso", utc=True), renderer],
        )
        whose = {"of": name} if name else {}
        yield _steady(
            lambda entry: log.debug(
                entry.event.kind,
                n=entry.number,
                **whose,
                **entry.event.model_dump(mode="json", exclude={"kind"}),
            )
        )
    elif quiet:
        yield lambda _: None
    else:
        console = Console(stderr=True)
        board = console.is_terminal and not name
        progress = terminal.Board(console) if board else terminal.Lines(console, name)
        try:
            yield _steady(progress)
        finally:
            with suppress(OSError):
                progress.close()


def _steady(listener: Listener) -> Listener:
    """A listener that falls silent when nobody can be told any more: the run goes on to its verdict."""
    told = [listener]

    def tell(entry: Entry) -> None:
        try:
            for to in told:
                to(entry)
        except OSError:
            told.clear()

    return tell


class _Interruptible(Protocol):
    """What ends in good order when it is interrupted once, and at once when twice."""

    interrupts: int

    def interrupt(self) -> None: ...


@contextmanager
def _interruptible(runs: _Interruptible) -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM end what runs in good order. A terminal that is closed does not end it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        runs.interrupt()
        _say(
            "interrupted: ending the attempt, then restoring `good`; once more to leave that to the guardian"
            if runs.interrupts == 1
            else "leaving: the guardian on the target ends the attempt and restores `good`"
        )

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(verdict: Verdict, *, as_json: bool) -> None:
    from rich.console import Console

    from bisect_agent.folder import canonical
    from bisect_agent.report.terminal import show

    if as_json:
        sys.stdout.buffer.write(canonical(verdict))
    else:
        show(verdict, Console())


def _show_digest(digest: Digest, *, as_json: bool) -> None:
    from rich.console import Console

    from bisect_agent.folder import canonical
    from bisect_agent.report.terminal import show_digest

    if as_json:
        sys.stdout.buffer.write(canonical(digest))
    else:
        show_digest(digest, Console())


def _masked(text: str) -> str:
    """An error's text without secrets: those of our environment by their names, any other by its looks."""
    import os

    from bisect_agent.secrets import Masker
    from bisect_agent.variables import is_switch, looks_secret

    values = (v for name, v in os.environ.items() if looks_secret(name) and not is_switch(v))
    return Masker(values).mask(text)


def _say(text: str) -> None:
    with suppress(OSError):  # Nobody may be there to read it.
        typer.echo(text, err=True)
