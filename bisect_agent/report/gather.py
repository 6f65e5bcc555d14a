"""Puts together what a report shows beside the verdict: from playbook, journal, and the files kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TypeVar, assert_never

from bisect_agent import events
from bisect_agent.errors import RESUMABLE
from bisect_agent.events import (
    Attempt,
    CommandRun,
    Entry,
    FilesPutBack,
    GuardianActed,
    HypothesisMoved,
    Launched,
    Launching,
    LogSeen,
    ReadySeen,
    Resumed,
    TrialPlanned,
)
from bisect_agent.evidence import accused
from bisect_agent.folder import ENV, PLAYBOOK, RESOLVED, SCRIPT, VERDICT, attempt_path, digest
from bisect_agent.lines import printable, shorten
from bisect_agent.model import (
    FIRST,
    Aftermath,
    Applied,
    Before,
    Evidence,
    Failed,
    HttpAnswer,
    LogCopy,
    Observation,
    Outcome,
    Passed,
    Playbook,
    Serving,
    Setting,
    Settled,
    State,
    Symptom,
    SymptomKind,
    Unresolved,
)
from bisect_agent.report.commands import asks, commands, means, word
from bisect_agent.report.context import around
from bisect_agent.report.dossier import (
    Advice,
    Background,
    ByHand,
    Checked,
    Dossier,
    Fact,
    Meaning,
    Move,
    Near,
)
from bisect_agent.report.words import part, told, which
from bisect_agent.tree import Node, said
from bisect_agent.verdict import Verdict

Read = Callable[[str], bytes | None]
"""A file of the run folder; None where there is none."""


def gather(
    playbook: Playbook, entries: Sequence[Entry], verdict: Verdict, folder: str, read: Read
) -> Dossier:
    """What is shown beside a verdict; `folder` is the absolute path of the run folder."""
    return _Gathering(playbook, entries, verdict, folder, read).dossier()


class _Gathering:
    """One run, looked at for its report."""

    def __init__(
        self, playbook: Playbook, entries: Sequence[Entry], verdict: Verdict, folder: str, read: Read
    ) -> None:
        self.playbook = playbook
        self.entries = entries
        self.verdict = verdict
        self.folder = folder
        self.read = lru_cache(maxsize=2)(read)  # a log's copy may have ten megabytes
        self.digest = cache(self._digest)
        self.state = events.fold(entries)
        self.results = {(trial.id, trial.attempt): trial for trial in verdict.trials}

    def dossier(self) -> Dossier:
        """All of it."""
        state = self.state
        return Dossier(
            title=self.playbook.title,
            began=self.entries[0].at if self.entries else 0.0,
            ended=self.entries[-1].at if self.entries else 0.0,
            exit_code=state.sealed.exit_code if state.sealed else None,
            levels={str(s): means(self.playbook.factor(s.factor), s.level) for s in self._settings()},
            meanings=self._meanings(),
            backgrounds=self._backgrounds(),
            advice=tuple(self._advice()),
            by_hand=tuple(self._by_hand()),
            asks=self._asks(),
            near=self._near(),
            checked=tuple(self._checked(run) for run in state.judged()),
            target=self._target(),
            record=self._record(),
        )

    def _settings(self) -> Iterator[Setting]:
        """Those of the pairs: the failing side's, and the one that heals it."""
        for pair in self.verdict.pairs:
            factor = pair.setting.factor
            yield pair.setting
            yield Setting(factor=factor, level=self.state.trial(pair.passing).configuration[factor])

    # --- what it means --------------------------------------------------------------------------------

    def _meanings(self) -> dict[str, Meaning]:
        """What each failure means: the signature's own words, or how a failure without one got its name."""
        failures = [s.outcome.symptom for s in self.state.judged() if isinstance(s.outcome, Failed)]
        return {symptom.id: self._meaning(symptom) for symptom in failures}

    def _meaning(self, symptom: Symptom) -> Meaning:
        match symptom.kind:
            case SymptomKind.SIGNATURE:
                known = (*self.playbook.observe.signatures, *self.playbook.signatures)
                said = (Meaning(s.means, s.topic) for s in known if s.id == symptom.id)
                return next(said, Meaning())
            case SymptomKind.EXCEPTION:
                return Meaning(
                    "No signature knows this failure. It is named by the exception that was printed first,"
                    " numbers and paths left out, and the function that raised it."
                )
            case SymptomKind.EXIT | SymptomKind.SIGNAL:
                return Meaning("Its log names no failure: it is named by how the launch script ended.")
            case SymptomKind.HANG:
                return Meaning("It said nothing more, and did not end: the phase's clock was over.")
            case SymptomKind.ANSWER:
                return Meaning("It started, and then did not answer as it must.")
            case _:
                assert_never(symptom.kind)

    def _backgrounds(self) -> dict[str, Background]:
        paths: dict[str, list[Move]] = {}
        for entry in self.entries:
            match entry.event:
                case TrialPlanned(trial=trial, predicted=predicted):
                    for name, prediction in predicted.items():
                        if prediction != "nothing":
                            paths.setdefault(name, [Move("testing", trial.id)])
                case HypothesisMoved(hypothesis=name, state=state, trial=by):
                    paths.setdefault(name, []).append(Move(state, by))
                case _:
                    pass
        return {h.id: Background(h.because, tuple(paths.get(h.id, ()))) for h in self.playbook.hypotheses}

    # --- what to do -----------------------------------------------------------------------------------

    def _advice(self) -> Iterator[Advice]:
        verdict, code = self.verdict, self.state.sealed.exit_code if self.state.sealed else None
        if verdict.good_restored.ok is False:
            yield Advice(f"`good` does not run again: {verdict.good_restored.reason}. Bring it up first.")
        sentences = [node.text for node in part(verdict.tree, "advice").children]
        supported = {h.id for h in verdict.hypotheses if h.state is State.SUPPORTED}
        own = {h.advice: h.id for h in self.playbook.hypotheses if h.id in supported and h.advice}
        yield from (Advice(text, hypothesis=own[text]) for text in sentences if text in own)
        yield from (Advice(text) for text in sentences if text not in own)
        yield from (Advice(str(note)) for note in self.state.asked.notes)
        if self.state.exported:
            return  # nothing of it is here to go on with, or to stop
        if code in RESUMABLE:
            yield Advice("The run has not said its last word. To go on:", command=self._command("resume"))
        if self.state.serving is not None:
            yield Advice("The good server was left running. To end it:", command=self._command("stop"))

    def _command(self, name: str) -> str:
        return f"bisect-agent {name} {word(self.folder)}"

    def _by_hand(self) -> Iterator[ByHand]:
        """The trials of the pairs; where there is none, `bad` and `good`. The failing side comes first."""
        shown = self._shown()
        first: tuple[str, ...] = ()
        for run in shown:
            kept = self.read(f"{attempt_path(run.trial, run.attempt)}/{ENV}")
            if kept is None:
                continue
            lines = self._commands(run, shown[0], kept.decode(errors="surrogateescape"))
            changed = {place for place, line in enumerate(lines) if first and line not in first}
            first = first or lines
            settings = run.trial.configuration.differs(self.playbook.bad)
            title = run.trial.control or f"bad with {accused(settings)}"
            yield ByHand(run.trial.id, title, self._seen(run), lines, frozenset(changed))

    def _shown(self) -> list[Settled]:
        """The runs that are shown by hand; where it can be, both sides of a pair on one target."""
        names: list[str] = []
        for pair in self.verdict.pairs:
            there = [name for name in (pair.failing, pair.again) if self._on(name) == self._on(pair.passing)]
            names += [(*there, pair.failing)[0], pair.passing]
        return [run for name in dict.fromkeys(names) if (run := self._run(name))] or self._controls()

    def _on(self, trial: str) -> int:
        last = self.state.last(trial)
        return last.target if last else FIRST

    def _asks(self) -> tuple[str, ...]:
        """How a server is asked on the target of the first run shown."""
        number = self._on(next((run.trial.id for run in self._shown()), ""))
        there = self.playbook.at(number)
        return asks(there) if there.target.ports else ()

    def _run(self, trial: str) -> Settled | None:
        last = self.state.last(trial)
        return last.settled if last else None

    def _controls(self) -> list[Settled]:
        runs = {s.trial.control: s for s in reversed(self.state.settled()) if s.trial.control}
        return [runs[name] for name in ("bad", "good") if name in runs]

    def _commands(self, run: Settled, failing: Settled, environment: str) -> tuple[str, ...]:
        """The failing side's script serves for both where it is the same: then one line tells them apart."""
        own, other = (attempt_path(s.trial, s.attempt) for s in (run, failing))
        same = self.read(f"{own}/{SCRIPT}") == self.read(f"{other}/{SCRIPT}")
        same &= self._on(run.trial.id) == self._on(failing.trial.id)
        script = f"{self.folder}/{other if same else own}/{SCRIPT}"
        there = failing if same else run
        attempt = self.state.attempts[there.trial.id, there.attempt]
        playbook, surveyed = self.playbook.at(attempt.target), self.state.on(attempt.target).surveyed
        if playbook.target.host != "local" and surveyed:
            script = f"{surveyed.folder}/{attempt.folder}/{SCRIPT}"
        return commands(playbook, run.trial.configuration, script, environment)

    def _seen(self, run: Settled) -> str:
        result = self.results.get((run.trial.id, run.attempt))
        after = f", {result.seconds:.1f} s in all" if result else ""
        return f"{said(run)}{after}"

    # --- what was looked at ---------------------------------------------------------------------------

    def _checked(self, run: Settled) -> Checked:
        attempt = self.state.attempts[run.trial.id, run.attempt]
        changed, planned = run.trial.change, self.state.planned.get(run.trial.id)
        where = "" if attempt.target == FIRST else f", on {which(attempt.target)}"
        return Checked(
            trial=run.trial.id,
            attempt=run.attempt,
            change=(accused(changed.settings()) if changed else str(run.trial.control)) + where,
            asked=planned.why if planned else "",
            outcome=run.outcome.kind,
            said=_said(run.outcome),
            phase=run.outcome.symptom.phase if isinstance(run.outcome, Failed) else attempt.phase,
            began=attempt.began,
            seconds=max(0.0, attempt.ended - attempt.began),
            facts=tuple(self._facts(run)),
        )

    def _facts(self, run: Settled) -> Iterator[Fact]:
        """What was looked at in an attempt, in the order of its steps."""
        attempt = self.state.attempts[run.trial.id, run.attempt]
        seen = attempt.observation
        yield from self._start(run)
        if seen is None:
            return
        if ready := self._event(ReadySeen, run):
            says = f"line {ready.match.line} of the log" if ready.match else "health"
            yield Fact("ready", f"{says} says so", ok=True)
        if seen.serving:
            yield from self._serving(seen.serving, attempt.target)
        for setting in run.trial.configuration.settings():
            yield _level(run, setting)
        yield Fact("why it ended", str(seen.why) + _exit(seen))
        yield from self._after(run, attempt, seen)

    def _start(self, run: Settled) -> Iterator[Fact]:
        """Script, process and log: each is shown before anything of the attempt is believed."""
        launching, launched = self._event(Launching, run), self._event(Launched, run)
        if launching is None:
            yield Fact("script", "nothing was put on the target", ok=False)
            return
        script = f"sha256 {launching.script}"
        if launched is None:
            yield Fact("script", f"{script}, not seen to start", ok=False)
            return
        yield Fact("script", f"{script}: the same on the target, and bash can parse it", ok=True)
        main, supervisor = launched.main, launched.supervisor
        yield Fact("process", f"pid {main.pid} ({main.name}), under our supervisor {supervisor.pid}", ok=True)
        if self._event(LogSeen, run):
            yield Fact("log", f"new, and begins with this attempt's tag {launching.tag}", ok=True)
        else:
            yield Fact("log", f"not seen to begin with this attempt's tag {launching.tag}", ok=False)

    def _serving(self, serving: Serving, target: int) -> Iterator[Fact]:
        """Who listens, and what was asked and answered."""
        observe, listens = self.playbook.observe, _LISTENS[serving.listener]
        ports = self.playbook.targets[target].ports
        yield Fact(f"listener on {ports[0]}", listens, ok=serving.listener == "ours")
        if serving.health:
            yield _answer("health", serving.health)
        if serving.request and observe.request:
            yield Fact("request", " ".join(("POST" if observe.request.body else "GET", observe.request.path)))
            if observe.request.body:
                yield Fact("sent", observe.request.body, copied=True)
            yield _answer("answer", serving.request)

    def _after(self, run: Settled, attempt: Attempt, seen: Observation) -> Iterator[Fact]:
        """What the attempt left behind."""
        if run.trial.control == "restore" and isinstance(run.outcome, Passed):
            yield Fact("left", "the server runs on, as it must", ok=True)
            return
        if seen.left:
            names = ", ".join(f"{p.pid} {p.name}".strip() for p in seen.left)
            yield Fact("left", f"still alive: {names}", ok=False)
        elif attempt.cut is None:
            yield Fact("left", "no process: all ended by themselves", ok=True)
        else:
            yield Fact("left", f"no process: stopped at byte {attempt.cut} of the log", ok=True)
        if ports := self.playbook.targets[attempt.target].ports:
            taken = seen.busy_ports
            numbers = ", ".join(map(str, taken or ports))
            yield Fact("ports", f"{numbers} {'still taken' if taken else 'free again'}", ok=not taken)
        if attempt.before and (seen.aftermath or not seen.trouble):
            yield from _around(attempt.before, seen.aftermath or Aftermath())

    def _event(self, kind: type[_Step], run: Settled) -> _Step | None:
        """The first event of a kind of one attempt."""
        found = (entry.event for entry in self.entries if isinstance(entry.event, kind))
        return next((e for e in found if (e.trial, e.attempt) == (run.trial.id, run.attempt)), None)

    def _near(self) -> dict[tuple[str, int], tuple[Near, ...]]:
        """The lines around everything that the report quotes."""
        attempts = {log.path: a for a in self.state.attempts.values() if (log := _log(a))}
        found: dict[tuple[str, int], tuple[Near, ...]] = {}
        quoted = {(e.path, e.offset): e for e in self._quoted()}
        for _, evidence in sorted(quoted.items()):
            data = self.read(evidence.path)
            if data is None or self.digest(evidence.path) != evidence.sha256:
                continue  # not the file that was read: `verify` says so
            attempt = attempts.get(evidence.path)
            log, cut = (_log(attempt), attempt.cut) if attempt else (None, None)
            found[evidence.path, evidence.offset] = around(data, evidence, log, cut)
        return found

    def _quoted(self) -> Iterator[Evidence]:
        """All evidence that any part of the report may quote."""
        verdict = self.verdict
        yield from _evidence(verdict.tree)
        for failure in (verdict.symptom, *verdict.leads, *verdict.trials):
            yield from failure.evidence if failure else ()
        for run in self.state.judged():
            yield from run.witnesses.values()

    def _digest(self, name: str) -> str:
        return digest(self.read(name) or b"")

    # --- what was run ---------------------------------------------------------------------------------

    def _target(self) -> dict[str, str]:
        target = self.playbook.target
        ports = {"ports": ", ".join(map(str, target.ports))} if target.ports else {}
        facts = self.state.first.surveyed.facts if self.state.first.surveyed else {}
        asked = self.state.asked
        found = {
            **{_FACTS.get(name, name): value for name, value in facts.items()},
            "stack": "; ".join(asked.sources),
            "variables it reads": ", ".join(asked.reads),
        }
        known = {name: value for name, value in found.items() if value}
        return {"host": target.host, "folder": target.cwd, **ports, **known, **self._further()}

    def _further(self) -> dict[str, str]:
        """The further targets, and whether they were of use to the end."""
        return {
            which(number): ", ".join((target.host, target.cwd, *map(str, target.ports)))
            + (f"; used no more: {left}" if (left := self.state.on(number).left) else "")
            for number, target in self.playbook.targets.items()
            if number != FIRST
        }

    def _record(self) -> dict[str, str]:
        started, sealed = self.state.started, self.state.sealed
        if started is None:
            return {}
        resumed = sum(isinstance(entry.event, Resumed) for entry in self.entries)
        deeds = [told(e.event) for e in self.entries if isinstance(e.event, _DEEDS)]
        record = {
            "run": started.run,
            "exported from": self.state.exported.head if self.state.exported else "",
            "begun by": ", ".join(f"{n.replace('_', '-')} {v}" for n, v in started.versions.items()),
            "taken up again": f"{resumed} times" if resumed else "",
            "playbook": started.source,
            "pinned": ", ".join(f"{factor}={level}" for factor, level in started.pins.items()),
            "caches": self._caches(),
            **dict(filter(None, deeds)),
            "events": str(len(self.entries)),
            f"sha256 of {PLAYBOOK}": started.playbook,
            f"sha256 of {RESOLVED}": started.resolved,
            f"sha256 of {VERDICT}": sealed.verdict if sealed else "",
        }
        return {name: value for name, value in record.items() if value}

    def _caches(self) -> str:
        """What an attempt could find in its caches; empty where the run does not say."""
        match self.playbook.cached:
            case "fresh":
                own = ", ".join(self.playbook.caches) or "none, for the playbook sets them all itself"
                return f"fresh, each attempt its own: {own}"
            case "shared":
                return "shared: what an attempt compiled, those after it could find"
            case None:
                return ""
            case _:
                assert_never(self.playbook.cached)


_DEEDS = (CommandRun, FilesPutBack, GuardianActed)
"""Events that tell of deeds beside the attempts."""
_FACTS = {"free_mib": "free MiB", "boot": "boot id"}
"""What the facts of a target are called, where it is not by their own names."""

_Step = TypeVar("_Step", Launching, Launched, LogSeen, ReadySeen)

_LISTENS = {
    "ours": "a process of this attempt",
    "foreign": "a process that is not of this attempt",
    "nobody": "nobody",
}


def _said(outcome: Outcome) -> str:
    """What an outcome says beside its kind."""
    match outcome:
        case Passed():
            return ""
        case Failed(symptom=symptom):
            return symptom.id
        case Unresolved(reason=reason, detail=detail):
            return f"{reason}: {detail}"
        case _:
            assert_never(outcome)


def _around(before: Before, after: Aftermath) -> Iterator[Fact]:
    """What an attempt left around it, and what changed there."""
    if after.changed:
        lines = "; ".join(line.text for line in after.changed.lines)
        yield Fact("environment", lines, ok=False, copied=True)
    else:
        yield Fact("environment", "as before the first trial", ok=True)
    for line in after.heard:
        yield Fact("the kernel says", line, copied=True)
    if after.memory:
        yield Fact("GPU memory", after.memory, ok=False)
    elif after.unsure:
        yield Fact("GPU memory", f"perhaps another attempt's: {after.unsure}")
    elif before.memory:
        yield Fact("GPU memory", "as before the start", ok=True)
    if after.removed:
        yield Fact("left behind", f"removed: {', '.join(after.removed)}", ok=True)
    if after.kept:
        more = f"; {after.more} more" if after.more else ""
        yield Fact("left behind", "; ".join(f"{kept.path}: {kept.why}" for kept in after.kept) + more)


def _log(attempt: Attempt) -> LogCopy | None:
    return attempt.observation.log if attempt.observation else None


def _evidence(node: Node) -> Iterator[Evidence]:
    yield from node.evidence
    for child in node.children:
        yield from _evidence(child)


def _level(run: Settled, setting: Setting) -> Fact:
    """Whether a level was seen to take effect, and the line that shows it."""
    applied = run.applied.get(setting.factor, Applied.NOT_WITNESSED)
    seen = None if applied is Applied.NOT_WITNESSED else True
    return Fact(str(setting), str(applied), seen, run.witnesses.get(setting.factor))


def _answer(name: str, answer: HttpAnswer) -> Fact:
    """What came back, as far as it can be shown."""
    if answer.status is None:
        return Fact(name, answer.error, ok=False, copied=True)
    said = shorten(printable(f"{answer.status} {answer.body}"))
    return Fact(name, said, ok=200 <= answer.status < 300, copied=True)


def _exit(seen: Observation) -> str:
    """How the launch script ended by itself, as the end of a sentence."""
    if seen.exit is None:
        return ""
    if seen.exit.signal is not None:
        return f", by signal {seen.exit.signal}"
    return f", with exit code {seen.exit.code}"
