"""A copy of a run that can travel: nothing in it tells of the machine or the person, and its verdict follows.

The files are redacted; what the run made of them is not copied but made again of the redacted ones, as
`verify` does. So the copy agrees with itself, and where a replacement would change a finding, there is none.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, assert_never
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from bisect_agent import archive, events
from bisect_agent.engine import exit_code, judged
from bisect_agent.errors import DamagedRun, UsageError
from bisect_agent.events import (
    EVENT,
    AnyEvent,
    Closed,
    Ending,
    Entry,
    Exported,
    GuardianActed,
    Judged,
    Launching,
    PhaseEntered,
    ReadySeen,
    RestorePlanned,
    RunStarted,
    RunState,
    Sealed,
    TargetSurveyed,
    TrialPlanned,
)
from bisect_agent.folder import (
    ENV,
    LOG,
    PLAYBOOK,
    RESOLVED,
    SCRIPT,
    VERDICT,
    RunFolder,
    attempt_path,
    canonical,
    digest,
)
from bisect_agent.journal import NAME as JOURNAL
from bisect_agent.journal import chain, decode, head, intact
from bisect_agent.judge import RESPONSE, answer_file
from bisect_agent.lines import printable
from bisect_agent.model import (
    Exhibit,
    Failed,
    LogCopy,
    Match,
    Observation,
    Outcome,
    Passed,
    Playbook,
    Reading,
    Serving,
    Symptom,
    SymptomKind,
    Trial,
    Unresolved,
)
from bisect_agent.pieces import reread
from bisect_agent.redaction import SHORTEST, Kind, Known, Redactor, hosts_in, stands_in
from bisect_agent.report.gather import gather
from bisect_agent.report.html import html
from bisect_agent.report.markdown import markdown
from bisect_agent.secrets import Masker
from bisect_agent.signatures import Scanner, watches
from bisect_agent.stacks import lines
from bisect_agent.verdict import Verdict, conclude
from bisect_agent.verify import verify

Model = TypeVar("Model", bound=BaseModel)

_NAMED = 60
"""The most names told of each kind: a log may hold thousands."""
_LOGINS = ("USER", "LOGNAME")
_HOSTS = ("HOST", "HOSTNAME")
_PLAIN_RELEASE = re.compile(r"[\d.]*")
_SPARED = frozenset({"local", "localhost", "root"})
"""Names that nobody need be told of."""


@dataclass(frozen=True)
class Export:
    """What was made.

    `found` is what was replaced, by kind. `spared` are names of a host or a user that are words of every
    run, too: they are replaced in paths and addresses alone. `left_out` are files that no event names.
    """

    path: Path
    found: Mapping[Kind, tuple[str, ...]]
    spared: tuple[str, ...]
    left_out: tuple[str, ...]

    def summary(self) -> Iterator[str]:
        """What a person should read before the copy travels, line by line."""
        yield f"{self.path}: its verdict follows; replaced, wherever it stood:"
        for kind, names in self.found.items():
            more = ", …" if len(names) > _NAMED else ""
            # Logs of older runs may hold tokens still, and what logs in at a host is as secret.
            told = (name.rpartition("@")[2] if kind is Kind.HOST else name for name in names[:_NAMED])
            yield f"  {kind} ({len(names)}): {Masker(()).mask(', '.join(map(printable, told)))}{more}"
        for name in self.spared:
            yield f"not replaced but in paths, for it is a word of every run: {name}; try: --also {name}"
        if self.left_out:
            yield f"left out, for no event names them: {', '.join(map(printable, self.left_out))}"
        yield (
            "Look through it before it travels: what a log says of people, models and customers has no shape"
            " that a rule could know. --also WORD replaces a word, too."
        )


def this_machine(variables: Mapping[str, str]) -> Known:
    """What tells of the machine that we run on, and of the person; `variables` are our environment."""
    name = socket.gethostname()
    users = {variables.get(login, "") for login in _LOGINS}
    with suppress(KeyError):  # Nobody need have an entry, in a container.
        person = pwd.getpwuid(os.getuid())
        users |= {person.pw_name, person.pw_gecos.partition(",")[0]}
    return Known(
        hosts=frozenset({name, name.partition(".")[0], *(variables.get(host, "") for host in _HOSTS)}),
        users=frozenset(users),
        kernels=frozenset({os.uname().release}),
        paths=frozenset({variables.get("HOME", "")}),
    )


def export(source: RunFolder, to: Path | None, machine: Known, also: Sequence[str], version: str) -> Export:
    """Makes the copy: a new folder, or, where `to` is a `.tar.gz`, a new archive; else beside the run.

    `machine` is where the run was recorded, as far as the run does not tell it itself; `also` are further
    words to replace, `version` is ours.

    Raises:
        DamagedRun: the run itself does not follow.
        UsageError: it is an export already, the copy cannot be written there, or a replacement would
            change what the run shows.
    """
    if is_exported(source):
        raise UsageError(
            f"{source.path}: this is an exported run already", "export the run that it was made from"
        )
    if wrong := [word for word in also if sum(map(str.isalnum, word)) < SHORTEST]:
        raise UsageError(
            f"--also {wrong[0]!r}: it has fewer than {SHORTEST} letters and digits", "--also acme"
        )
    verdict = verify(source).verdict
    known, spared = _known(source, machine, also)
    redactor = Redactor(known)
    to = to or source.path.with_name(redactor.text(f"{source.path.name}-exported"))
    if to.exists() or not os.access(to.parent, os.W_OK):
        why = "there is something of that name" if to.exists() else "its folder cannot be written, or is none"
        raise UsageError(f"{to}: {why}", f"--to DIR, or --to FILE{archive.SUFFIX}, for a new one")
    held = {file.relative_to(source.path) for file in source.path.rglob("*") if file.is_file()}
    name = redactor.text(to.name.removesuffix(archive.SUFFIX))
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".export-") as place:
        copy = _Copy(source, Path(place) / name, redactor)
        copy.make(verdict, version)
        verify(copy.folder)
        if to.name.endswith(archive.SUFFIX):
            archive.pack(copy.folder.path, name, to)
        else:
            copy.folder.path.rename(to)
    return Export(to, redactor.found(), spared, tuple(sorted(map(str, held - copy.read))))


def is_exported(folder: RunFolder) -> bool:
    """Whether a run folder is a copy made to travel, so that nothing of it runs anywhere."""
    try:
        with folder.journal.open("rb") as file:
            first = file.readline()
    except OSError:
        return False  # Whoever reads on will say what is missing.
    return any(isinstance(entry.event, Exported) for entry in intact(first)[0])


# --- what is to be replaced -------------------------------------------------------------------------


def _known(source: RunFolder, machine: Known, also: Sequence[str]) -> tuple[Known, tuple[str, ...]]:
    """What tells of the machine or the person, and the names among it that are ordinary words."""
    run = _told(source)
    hosts, users = _names(machine.hosts | run.hosts), _names(machine.users | run.users)
    ordinary = _ordinary(source.resolved())
    spared = frozenset(n for n in hosts | users if n in _SPARED or stands_in(n, ordinary))
    known = Known(
        hosts=hosts - spared,
        users=users - spared,
        words=frozenset(also),
        # A release of numbers alone is that of a thousand machines, and of many a package.
        kernels=frozenset(r for r in machine.kernels | run.kernels if not _PLAIN_RELEASE.fullmatch(r)),
        paths=machine.paths | run.paths,
        public=run.public,
    )
    return known, tuple(sorted(spared - _SPARED - {word.lower() for word in also}))


def _told(source: RunFolder) -> Known:
    """What a run itself tells of its machine."""
    playbook = source.resolved()
    hosts, users, kernels, paths = set[str](), set[str](), set[str](), set[str]()
    for target in playbook.targets.values():
        url = urlsplit(target.host if "://" in target.host else f"//{target.host}")
        hosts.add(url.hostname or "")
        users.add(url.username or "")
        paths.update((target.cwd, target.folder or "", *target.code))
    public = set(playbook.caches.values())
    trials = {}
    journal = source.read(JOURNAL)
    users.update(_OWNER.findall(journal.decode()))
    for entry in decode(journal):
        match entry.event:
            case RunStarted(source=book, run=run):
                paths.add(book)
                public.add(run)
            case TargetSurveyed(folder=folder, facts=facts):
                paths.add(folder)
                kernels.update(facts.get("system", "").split()[1:2])
            case TrialPlanned(trial=trial) | RestorePlanned(trial=trial):
                trials[trial.id] = trial
            case GuardianActed(takeover=takeover):
                public.update(filter(None, (takeover.good, *takeover.ended)))
            case Launching(trial=name, attempt=attempt, folder=folder):
                public.add(folder)
                text = source.read(f"{attempt_path(trials[name], attempt)}/{ENV}")
                variables = dict(
                    line.partition("=")[::2] for line in text.decode(errors="replace").splitlines()
                )
                hosts.update(variables.get(host, "") for host in _HOSTS)
                users.update(variables.get(login, "") for login in _LOGINS)
                paths.update(p for v in variables.values() for p in v.split(":") if not _BLANK.search(p))
            case Closed(observation=Observation(log=LogCopy(path=path))):
                hosts.update(hosts_in(source.read(path)))
            case _:
                pass
    return Known(
        hosts=frozenset(hosts),
        users=frozenset(users | {name for path in paths for name in _HOMES.findall(path)}),
        kernels=frozenset(kernels),
        paths=frozenset(paths),
        public=frozenset(public),
    )


_BLANK = re.compile(r"\s")
_HOMES = re.compile(r"^/(?:home|Users)/([^/]+)")
_OWNER = re.compile(r"port \d+ is held by pid \w+ \S* ?of ([\w.-]+)")
"""Our own words for somebody else's server."""


def _names(found: Iterable[str]) -> frozenset[str]:
    """Those that are names; all in small letters, as they are compared."""
    return frozenset(name.lower() for name in found if any(map(str.isalpha, name)))


def _ordinary(playbook: Playbook) -> str:
    """Words that stand in every run, and those by which its logs are read."""
    knowledge = playbook.model_dump_json(include={"signatures", "hypotheses", "profile", "observe"})
    return f"{EVENT.json_schema()} {knowledge}"


# --- the copy ---------------------------------------------------------------------------------------


class _Copy:
    """A run folder made of another one, file by file and event by event."""

    def __init__(self, source: RunFolder, path: Path, redactor: Redactor) -> None:
        self.source = source
        self.redactor = redactor
        self.entries = decode(source.read(JOURNAL))
        self.read = {Path(JOURNAL), Path(RESOLVED), Path(VERDICT), Path("verdict.md"), Path("verdict.html")}
        self.playbook = self.redacted(source.resolved())
        self.folder = RunFolder.create(path, self.data(PLAYBOOK), self.playbook)
        self.trials: dict[str, tuple[Trial, Trial]] = {}
        self.seen: dict[tuple[str, int], Observation] = {}

    def make(self, original: Verdict, version: str) -> None:
        """Writes all of it; `original` is the run's verdict, `version` ours.

        Raises:
            UsageError: a replacement changes what the run shows.
        """
        for entry in self.entries:
            self.take(entry.event)
        state, entries = RunState(), list[Entry]()
        for old in self.entries[:-1]:
            entries.append(Entry(old.number + 1, old.at, self.event(old.event, state)))
            state = events.apply(state, entries[-1])
        assert state.started is not None, "the run was verified"
        verdict = conclude(self.playbook, state, state.started.versions["bisect_agent"])
        self.agrees(original, verdict, state)
        self.folder.write(VERDICT, canonical(verdict))
        sealed = Sealed(verdict=digest(canonical(verdict)), exit_code=int(exit_code(state, verdict)))
        exported = Exported(
            head=head(self.source.read(JOURNAL)),
            version=version,
            replaced={str(kind): len(names) for kind, names in self.redactor.found().items()},
        )
        first, last = self.entries[0], self.entries[-1]
        entries = [Entry(1, first.at, exported), *entries, Entry(last.number + 1, last.at, sealed)]
        self.folder.write(JOURNAL, chain(entries))
        # By its name alone: where it lies now tells of this machine.
        dossier = gather(self.playbook, entries, verdict, self.folder.path.name, self.kept)
        self.folder.write("verdict.md", markdown(verdict, dossier).encode())
        self.folder.write("verdict.html", html(verdict, dossier).encode())

    def kept(self, name: str) -> bytes | None:
        """A file of the copy, or None: an attempt that was not launched has few."""
        with suppress(DamagedRun):
            return self.folder.read(name)
        return None

    def agrees(self, original: Verdict, verdict: Verdict, state: RunState) -> None:
        """Sees to it that the verdict of the copy is that of the run, up to the names replaced."""
        was = _findings(original, events.fold(self.entries), self.redactor.text)
        now = _findings(verdict, state, str)
        if was != now:
            differs = next(part for part in was if was[part] != now.get(part))
            raise UsageError(
                f"{self.source.path}: {differs} would be another in the copy; nothing was written",
                "leave out an --also that replaces what the logs are read by",
            )

    # --- what is replaced -----------------------------------------------------------------------------

    def data(self, name: str) -> bytes:
        """A file of the run, redacted."""
        self.read.add(Path(name))
        return self.redactor.data(self.source.read(name))

    def redacted(self, model: Model) -> Model:
        """A value with every text in it redacted."""
        try:
            return type(model).model_validate(self.mapped(model.model_dump(mode="json")))
        except ValidationError as error:
            raise UsageError(
                "--also: a word of the record itself would be replaced", "leave it out, or give more of it"
            ) from error

    def mapped(self, value: object) -> object:
        """A value of JSON with every text in it redacted."""
        match value:
            case str():
                return self.redactor.text(value)
            case dict():
                return {self.redactor.text(key): self.mapped(each) for key, each in value.items()}
            case list():
                return [self.mapped(each) for each in value]
            case _:
                return value

    # --- files ----------------------------------------------------------------------------------------

    def take(self, event: AnyEvent) -> None:
        """Writes the files that an event names, and reads again what is in them."""
        match event:
            case TrialPlanned(trial=trial) | RestorePlanned(trial=trial):
                self.trials[trial.id] = trial, self.redacted(trial)
            case Launching():
                for name in (SCRIPT, ENV):
                    self.carry(event, name)
            case Closed():
                self.seen[event.trial, event.attempt] = self.observed(event)
            case _:
                pass

    def places(self, event: Launching | Closed) -> tuple[str, str]:
        """Where the files of an attempt lie, and where in the copy."""
        old, new = self.trials[event.trial]
        return attempt_path(old, event.attempt), attempt_path(new, event.attempt)

    def carry(self, event: Launching | Closed, name: str) -> bytes:
        """Redacts a file of an attempt into the copy."""
        old, new = self.places(event)
        data = self.data(f"{old}/{name}")
        self.folder.write(f"{new}/{name}", data)
        return data

    def observed(self, event: Closed) -> Observation:
        """What is seen in the redacted files of an attempt."""
        was, (old, path) = event.observation, self.places(event)
        self.read.add(Path(f"{old}/observation.json"))
        seen = self.redacted(was.model_copy(update={"reading": Reading(size=0, lines=0)}))
        update: dict[str, object] = {}
        if was.log:
            data = self.carry(event, LOG)
            log = was.log.model_copy(update={"path": f"{path}/{LOG}", "sha256": digest(data)})
            scanner = Scanner(watches(self.playbook), self.playbook.observe.ignore)
            update |= {"log": log, "reading": reread(log, data, was.reading.size, scanner)}
        if was.stacks and seen.stacks:
            looks = tuple(self.exhibit(event, look) for look in was.stacks.looks)
            update["stacks"] = seen.stacks.model_copy(update={"looks": looks})
        if was.memory and was.memory.file:
            update["memory"] = was.memory.model_copy(update={"file": self.exhibit(event, was.memory.file)})
        if was.aftermath and was.aftermath.changed and seen.aftermath:
            changed = self.exhibit(event, was.aftermath.changed)
            update["aftermath"] = seen.aftermath.model_copy(update={"changed": changed})
        if was.serving and seen.serving:
            self.answers(event, was.serving, seen.serving)
        seen = seen.model_copy(update=update)
        self.folder.write(f"{path}/observation.json", canonical(seen))
        return seen

    def answers(self, event: Closed, was: Serving, now: Serving) -> None:
        """Writes what the server answered."""
        old, new = self.places(event)
        if now.request:
            self.read.add(Path(f"{old}/{RESPONSE}"))
            self.folder.write(f"{new}/{RESPONSE}", now.request.body.encode())
        self.read |= {Path(f"{old}/{answer_file(asked)}") for asked in was.witnesses}
        for asked, answer in now.witnesses.items():
            self.folder.write(f"{new}/{answer_file(asked)}", answer.body.encode())

    def exhibit(self, event: Closed, was: Exhibit) -> Exhibit:
        """A file beside the log, with the same lines of it."""
        data, shown = self.carry(event, Path(was.path).name), {line.offset for line in was.lines}
        return Exhibit(
            path=f"{self.places(event)[1]}/{Path(was.path).name}",
            sha256=digest(data),
            lines=tuple(line for line in lines(data) if line.offset in shown),
        )

    # --- events ---------------------------------------------------------------------------------------

    def event(self, event: AnyEvent, state: RunState) -> AnyEvent:
        """An event as the copy has it; `state` is all that the copy holds before it."""
        match event:
            case RunStarted():
                sums = {name: digest(self.folder.read(file)) for name, file in _SUMS.items()}
                return self.redacted(event).model_copy(update=sums)
            case Launching():
                path = self.places(event)[1]
                script, env = (digest(self.folder.read(f"{path}/{name}")) for name in (SCRIPT, ENV))
                return self.redacted(event).model_copy(update={"script": script, "env": env})
            case PhaseEntered() | ReadySeen() | Ending():
                now = self.redacted(event)
                update: dict[str, object] = {"match": self.again(event, now.match)}
                if isinstance(event, Ending) and event.stacks:
                    update["stacks"] = self.seen[event.trial, event.attempt].stacks
                return now.model_copy(update=update)
            case Closed():
                seen = self.seen[event.trial, event.attempt]
                name = self.trials[event.trial][1].id
                return event.model_copy(update={"trial": name, "observation": seen})
            case Judged(settled=said):
                trial = self.trials[said.trial.id][1]
                seen = self.seen[said.trial.id, said.attempt]
                return Judged(settled=judged(self.playbook, state, trial, said.attempt, seen))
            case _:
                return self.redacted(event)

    def again(self, event: PhaseEntered | ReadySeen | Ending, match: Match | None) -> Match | None:
        """A match as the redacted log has it: what is shown of a long line may be cut in another place."""
        seen = self.seen.get((event.trial, event.attempt))
        if match is None or seen is None:
            return match
        same = (
            m
            for m in seen.reading.matches
            if (m.kind, m.id, m.offset) == (match.kind, match.id, match.offset)
        )
        return next(same, match)


_SUMS = {"playbook": PLAYBOOK, "resolved": RESOLVED}


def _findings(verdict: Verdict, state: RunState, text: Callable[[str], str]) -> dict[str, object]:
    """What a run has shown, without the words in which it says so; names as `text` gives them."""
    failures = [_failure(run.outcome) for run in state.judged()]
    return {
        **{
            f"the outcome of {text(run.trial.id)}/{run.attempt}": _outcome(run.outcome, failures, text)
            for run in state.judged()
        },
        "the cause": [sorted(text(str(setting)) for setting in cause) for cause in verdict.causes],
        "what is said of a hypothesis": [(text(result.id), result.state) for result in verdict.hypotheses],
        "a pair": [tuple(map(text, (p.failing, p.passing, p.again))) for p in verdict.pairs],
        "what is known of `good`": (verdict.good_first.ok, verdict.good_restored.ok),
    }


def _outcome(outcome: Outcome, failures: Sequence[str], text: Callable[[str], str]) -> tuple[object, ...]:
    """An outcome with its failure; an exception, whose name is made of its words, by the first like it."""
    match outcome:
        case Failed(symptom=Symptom(kind=SymptomKind.EXCEPTION)):
            return outcome.kind, failures.index(_failure(outcome))
        case Failed(symptom=symptom):
            return outcome.kind, symptom.kind, text(symptom.id)
        case Unresolved(reason=reason):
            return outcome.kind, reason
        case Passed():
            return (outcome.kind,)
        case _:
            assert_never(outcome)


def _failure(outcome: Outcome) -> str:
    return outcome.symptom.id if isinstance(outcome, Failed) else ""
