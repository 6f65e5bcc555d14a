"""From what was seen in one attempt to its outcome. Pure; rules of evidence 3 to 7 live here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePosixPath

from bisect_agent.answers import complaint
from bisect_agent.lines import excerpt
from bisect_agent.model import (
    Applied,
    ArgumentWitness,
    EnvFactor,
    Evidence,
    Exhibit,
    Exit,
    Factor,
    Failed,
    HttpWitness,
    Kind,
    LastLine,
    LogCopy,
    LogWitness,
    Match,
    MatchKind,
    Observation,
    Order,
    Outcome,
    Passed,
    Playbook,
    Raised,
    Reason,
    Role,
    ScriptFactor,
    Serving,
    Setting,
    Settled,
    Symptom,
    SymptomKind,
    Trial,
    Unresolved,
    Why,
)

UNTESTABLE = 125
"""The exit code by which a script says that this configuration cannot be tested."""
PORT = "port"
"""The topic of a signature that tells of a port that is taken."""
HOST_MEMORY = "host-out-of-memory"
"""The symptom of a kill by the kernel for want of memory: the name of the signature of its lines, too."""
RESPONSE = "response.txt"
"""The file beside the log that holds the answer to the request."""
_SHOWN = 6
_CLOCKS = frozenset({Why.SILENT, Why.STALLED, Why.LIMIT, Why.OVERDUE})
_KILL = 9
_SHELL = 128
"""A shell ends with this and the number of the signal that ended its last command."""
_ASKED = frozenset({1, 2, 13, 14, 15})
"""HUP, INT, PIPE, ALRM and TERM: how processes are asked to end, and no sign of a failure."""


@dataclass(frozen=True)
class Known:
    """What `good` was seen to do: failures its log shows while it passes, and what it answers.

    `reads` are environment variables that the installed stack is known to read.
    """

    noise: frozenset[str] = field(default_factory=frozenset)
    answer: str | None = None
    reads: frozenset[str] = field(default_factory=frozenset)


def known(good: Iterable[Observation], reads: frozenset[str] = frozenset()) -> Known:
    """What the passing attempts of `good` tell about the judging of the others."""
    seen = tuple(good)
    noise = {m.id for o in seen for m in o.reading.matches if m.kind is MatchKind.SIGNATURE}
    noise |= {r.fingerprint for o in seen for r in o.reading.raised}
    noise |= {HOST_MEMORY for o in seen if o.memory and o.memory.killed}
    answers = [o.serving.request.body for o in seen if o.serving and o.serving.request]
    return Known(frozenset(noise), answers[0] if answers else None, reads)


def judge(playbook: Playbook, trial: Trial, attempt: int, seen: Observation, known: Known) -> Settled:
    """The last word about one attempt."""
    case = _Case(playbook, trial, seen, known)
    return Settled(
        trial=trial,
        attempt=attempt,
        outcome=case.outcome(),
        applied=case.applied(),
        witnesses=case.witnesses(),
        contradicts=case.contradicts(),
        voiceless=case.voiceless(),
    )


@dataclass(frozen=True)
class _Case:
    """One attempt before the judge."""

    playbook: Playbook
    trial: Trial
    seen: Observation
    known: Known

    # --- witnesses ----------------------------------------------------------------------------------

    def witnesses(self) -> dict[str, Evidence]:
        """The line that shows each factor's level in effect, where there is one."""
        shown, denied = self._shown(), self._denied()
        own = {
            s.factor: shown.get(str(s)) for s in self.trial.configuration.settings() if str(s) not in denied
        }
        return {factor: line for factor, line in own.items() if line}

    def _denied(self) -> dict[str, Evidence]:
        """The settings that a line shows to have done nothing."""
        return {m.id: self._line(m) for m in reversed(self._matches(MatchKind.DENIAL))}

    def _shown(self) -> dict[str, Evidence]:
        """For each setting that some witness shows in effect, the line that does."""
        shown = {m.id: self._line(m) for m in self._matches(MatchKind.WITNESS)}
        for factor in self.playbook.factors:
            if isinstance(factor.witness, HttpWitness):
                shown |= self._answered(factor, factor.witness)
        return shown

    def _answered(self, factor: Factor, witness: HttpWitness) -> dict[str, Evidence]:
        """The settings of a factor that the server's own answer shows.

        A level with nothing to fill in is not looked for: without its text any answer would show it.
        """
        answer = self.seen.serving.witnesses.get(witness.http) if self.seen.serving else None
        if answer is None or answer.status is None or not 200 <= answer.status < 300:
            return {}
        found: dict[str, Evidence] = {}
        for level in factor.levels:
            value = factor.value(level)
            text = witness.contains.replace("{level}", level).replace("{value}", value)
            if (value or "{value}" not in witness.contains) and (
                at := _place_of(text, answer.body)
            ) is not None:
                found[f"{factor.name}={level}"] = self._beside(answer_file(witness.http), answer.body, at)
        return found

    def applied(self) -> dict[str, Applied]:
        """Whether each factor's level was seen to take effect.

        A launch script was: what runs is that script, by its hash.
        """
        witnesses = self.witnesses()
        return {factor.name: self._applied(factor, witnesses) for factor in self.playbook.factors}

    def _applied(self, factor: Factor, witnesses: Mapping[str, Evidence]) -> Applied:
        if factor.name in witnesses or isinstance(factor, ScriptFactor):
            return Applied.WITNESSED
        read = isinstance(factor, EnvFactor) and factor.env in self.known.reads
        return Applied.READ if read else Applied.NOT_WITNESSED

    def contradicts(self) -> dict[str, Evidence]:
        """The hypotheses that a line of this log contradicts."""
        return {m.id: self._line(m) for m in reversed(self._matches(MatchKind.CONTRADICTION))}

    def voiceless(self) -> tuple[str, ...]:
        """The failures in this log that say nothing, since `good` shows them while it passes."""
        failures = [m.id for role in (Role.ROOT, Role.SYMPTOM) for m in self._signed(role)]
        failures += [r.fingerprint for r in self.seen.reading.raised]
        failures += [HOST_MEMORY] if self.seen.memory and self.seen.memory.killed else []
        return tuple(dict.fromkeys(name for name in failures if name in self.known.noise))

    def _not_applied(self) -> Unresolved | None:
        """A factor whose witness shows another level, and never this one."""
        shown, denied = self._shown(), self._denied()
        for setting in self.trial.configuration.settings():
            if line := denied.get(str(setting)):
                detail = f"{setting} was set, and this line shows that it did nothing: {line.text}"
                return Unresolved(reason=Reason.NOT_APPLIED, detail=detail, evidence=(line,))
            factor = self.playbook.factor(setting.factor)
            if str(setting) in shown or _unseeable(factor, setting.level):
                continue
            others = [str(Setting(factor=factor.name, level=level)) for level in factor.levels]
            wrong = next((name for name in others if name in shown), None)
            if wrong is not None:
                line = shown[wrong]
                detail = f"{setting} was set, and what was seen is {wrong}: {line.text}"
                return Unresolved(reason=Reason.NOT_APPLIED, detail=detail, evidence=(line,))
        return None

    # --- the outcome --------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """Ours first, then what makes the run invalid, then what the stack did.

        Trouble of the machine is nothing to a stack that was seen to work all the same.
        """
        if excuse := self._ours() or self._not_applied():
            return excuse
        theirs = self._theirs()
        return (self._infrastructure() if isinstance(theirs, Failed) else None) or theirs

    def _ours(self) -> Unresolved | None:
        seen = self.seen
        if seen.left:
            names = ", ".join(f"{p.pid} {p.name}".strip() for p in seen.left)
            return self._unresolved(Reason.DIRTY, f"still alive after the stop: {names}")
        if seen.aftermath and seen.aftermath.memory:
            return self._unresolved(Reason.DIRTY, f"GPU memory, {seen.aftermath.memory}")
        if seen.trouble:
            return self._unresolved(seen.trouble.reason, seen.trouble.detail)
        if seen.busy_ports:
            ports = ", ".join(map(str, seen.busy_ports))
            return self._unresolved(Reason.DIRTY, f"still taken after the stop: port {ports}")
        if seen.why is Why.CANCELLED:
            return self._unresolved(Reason.INTERRUPTED, f"stopped by us in phase {seen.phase or 'start'}")
        if seen.aftermath and seen.aftermath.changed and self.trial.control != "restore":
            lines = self._exhibited(seen.aftermath.changed)
            detail = "; ".join(line.text for line in lines)
            return Unresolved(reason=Reason.ENVIRONMENT, detail=detail, evidence=lines)
        if invalid := self._signed(Role.INVALID):
            return self._unresolved(Reason.INVALID, invalid[0].text, invalid[:1])
        if seen.exit == Exit(code=UNTESTABLE):
            return self._unresolved(Reason.UNTESTABLE, f"exit code {UNTESTABLE}")
        return None

    def _infrastructure(self) -> Unresolved | None:
        """Trouble of the machine counts only before the first root line (rule 6)."""
        infra = [m for m in self._signed(Role.INFRA) if not self._own_port(m)]
        if infra and not any(root.offset < infra[0].offset for root in self._roots()):
            return self._unresolved(Reason.INFRA, infra[0].text, infra[:1])
        return None

    def _theirs(self) -> Outcome:
        if self.seen.why is Why.SERVED:
            return self._served()
        if self.playbook.kind is Kind.JOB and self.seen.exit == Exit(code=0):
            return self._done()
        return Failed(symptom=self._symptom())

    def _served(self) -> Outcome:
        """Passing as in rule 3: our own listener, health, and one real answer."""
        serving = self.seen.serving
        if serving is None or serving.listener == "foreign":
            return self._unresolved(Reason.PORT_BUSY, "the port is served by a process that is not ours")
        wrong = complaint(serving, self.playbook.observe.request, self._good_answer(serving))
        if wrong is None:
            answer = serving.request.body if serving.request else ""
            return Passed(evidence=(*self._ready(), *self._response()), answer=answer)
        if failure := self._logged():
            return Failed(symptom=failure)
        symptom = Symptom(
            kind=SymptomKind.ANSWER,
            id=wrong.id,
            text=wrong.text,
            phase="serving",
            evidence=(*self._response(), *self._ready(), *self._stacks()),
        )
        return Failed(symptom=symptom)

    def _good_answer(self, serving: Serving) -> str | None:
        """What `good` answers: the first such answer is compared with itself."""
        own = serving.request.body if serving.request else None
        return self.known.answer or (own if self.trial.configuration == self.playbook.good else None)

    def _done(self) -> Outcome:
        done = self._matches(MatchKind.DONE)
        if self.playbook.observe.done and not done:
            text = f"exit code 0, but the log has no line that matches {self.playbook.observe.done}"
            return Failed(symptom=self._of_process(SymptomKind.EXIT, "exit-0-not-done", text))
        return Passed(evidence=tuple(self._line(m) for m in done[:1]))

    # --- the symptom --------------------------------------------------------------------------------

    def _symptom(self) -> Symptom:
        """What failed: a signature, an exception, then how the process ended or stood still."""
        if failure := self._logged():
            return failure
        seen = self.seen
        phase = f"phase {seen.phase}" if seen.phase else "its start"
        if seen.why in _CLOCKS:
            slow = seen.stacks is not None and seen.stacks.moved
            return self._of_process(SymptomKind.HANG, "overdue" if slow else "hang", self._standing(phase))
        if seen.exit and seen.exit.signal is not None:
            text = f"killed by signal {seen.exit.signal} in {phase}"
            told = self._by_whom() if seen.exit.signal == _KILL else ""
            name = f"signal-{seen.exit.signal}"
            return self._of_process(SymptomKind.SIGNAL, name, f"{text}{told}{self._deaths()}")
        code = seen.exit.code if seen.exit else None
        text = f"exit code {code} in {phase}{' before it was ready' if code == 0 else ''}"
        if code is not None and code > _SHELL:
            text += f", as a shell tells of signal {code - _SHELL}"
        told = self._by_whom() if code == _SHELL + _KILL else ""
        return self._of_process(SymptomKind.EXIT, f"exit-{code}", f"{text}{told}{self._deaths()}")

    def _standing(self, phase: str) -> str:
        """Which clock was over, and what the two looks at the stacks show."""
        seen, stacks = self.seen, self.seen.stacks
        over = {
            Why.SILENT: f"no new line for {seen.quiet:.0f} s",
            Why.STALLED: f"no progress for {seen.idle:.0f} s, its last line {seen.quiet:.0f} s old",
            Why.LIMIT: "the phase's limit is over",
        }.get(seen.why, "limits.start is over")
        if stacks is None or stacks.missing:
            unseen = f": {stacks.missing}" if stacks else ""
            return f"hang in {phase}: {over}; its stacks could not be read{unseen}{self._deaths()}"
        if stacks.moved:
            return f"slow, not stuck, in {phase}: {over}; {stacks.moved}{self._deaths()}"
        return f"stuck in {phase}: {over}; nothing moved in {stacks.seconds:g} s{self._deaths()}"

    def _by_whom(self) -> str:
        """What is known of who sent a SIGKILL: that it was the kernel, for want of memory, is to be shown."""
        memory = self.seen.memory
        if memory is None or not memory.readable:
            return "; the kernel's counters are not readable: by whom is unknown"
        if memory.killed:
            return "; the kernel killed for want of memory, as it does while `good` passes"
        return "; the kernel's counters show no out-of-memory kill"

    def _deaths(self) -> str:
        """The first process of the tree that was seen to be ended by a signal that nobody asks with."""
        first = next((d for d in self.seen.deaths if d.signal not in _ASKED), None)
        if first is None:
            return ""
        return (
            f"; before, process {first.process.pid} {first.process.name} was killed by signal {first.signal}"
        )

    def _logged(self) -> Symptom | None:
        """The failure that the log names, if it names one (rule 7)."""
        if roots := self._roots():
            return self._of_match(roots[0])
        if memory := self._memory():
            return memory
        raised, echoes = self._raised(), self._echoes()
        symptoms = [m for m in self._signed(Role.SYMPTOM) if m.id not in self.known.noise]
        if symptoms and all(r.fingerprint in echoes for r in raised):
            return self._of_match(symptoms[0])
        return self._of_raised(raised[0]) if raised else None

    def _memory(self) -> Symptom | None:
        """A kill for want of memory, as the kernel itself tells of it: whoever was killed cannot."""
        memory = self.seen.memory
        if memory is None or not memory.killed or HOST_MEMORY in self.known.noise:
            return None
        lines = self._exhibited(memory.file)
        named = [line for line in lines if "Killed process" in line.text] or list(lines)
        return Symptom(
            kind=SymptomKind.SIGNATURE,
            id=HOST_MEMORY,
            text=named[0].text,
            phase=self.seen.phase,
            phase_matters=True,
            evidence=(*lines[:_SHOWN], *self._last_line()),
        )

    def _of_match(self, match: Match) -> Symptom:
        rank, order = self._first_rank(match.id)
        same = sorted(self._signed(self.playbook.signature(match.id).role), key=_in_time)
        lines = tuple(self._line(m) for m in same if m.id == match.id)[:_SHOWN]
        return Symptom(
            kind=SymptomKind.SIGNATURE,
            id=match.id,
            text=match.text,
            phase=self._phase_at(match),
            phase_matters=self.playbook.signature(match.id).phase_matters,
            first_rank=rank,
            order=order,
            evidence=lines,
        )

    def _of_raised(self, raised: Raised) -> Symptom:
        rank, order = self._first_rank("")
        return Symptom(
            kind=SymptomKind.EXCEPTION,
            id=raised.fingerprint,
            text=raised.exception,
            phase=self._phase_at(raised),
            first_rank=rank,
            order=order,
            evidence=tuple(self._line(r) for r in self._raised()[:_SHOWN]),
        )

    def _of_process(self, kind: SymptomKind, name: str, text: str) -> Symptom:
        """A failure that the log does not name: where it stood, and the last line before."""
        return Symptom(
            kind=kind,
            id=name,
            text=text,
            phase=self.seen.phase,
            phase_matters=kind is SymptomKind.HANG,
            evidence=(*self._stacks(), *self._last_line()),
        )

    def _first_rank(self, name: str) -> tuple[str | None, Order]:
        """Which rank failed first, by the writers' own stamps; where they tie, it is not shown."""
        failures: list[Match | Raised] = [m for m in self._roots() if m.id == name]
        first: dict[str, float | None] = {}
        for failure in (*failures, *self._raised()):
            if failure.rank is not None:
                times = [t for t in (first.get(failure.rank, failure.time), failure.time) if t is not None]
                first[failure.rank] = min(times, default=None)
        if len(first) <= 1:
            return next(iter(first), None), "one rank"
        stamps = sorted(t for t in first.values() if t is not None)
        if len(stamps) < len(first) or stamps[0] == stamps[1]:
            return None, "not shown"
        return next(rank for rank, time in first.items() if time == stamps[0]), "shown"

    # --- lines --------------------------------------------------------------------------------------

    def _matches(self, kind: MatchKind) -> list[Match]:
        return [m for m in self.seen.reading.matches if m.kind is kind]

    def _signed(self, role: Role) -> list[Match]:
        return [m for m in self._matches(MatchKind.SIGNATURE) if self.playbook.signature(m.id).role is role]

    def _roots(self) -> list[Match]:
        """Root lines by time over all ranks, without those that `good` shows while it passes."""
        roots = [*self._signed(Role.ROOT), *(m for m in self._signed(Role.INFRA) if self._own_port(m))]
        return sorted((m for m in roots if m.id not in self.known.noise), key=_in_time)

    def _own_port(self, match: Match) -> bool:
        """Whether a line tells that the configuration has taken one of its own ports from itself.

        All of these were free right before the start, and are free again after the stop; else it would not
        have come to this.
        """
        if self.playbook.signature(match.id).topic != PORT:
            return False
        ports = map(str, self.playbook.target.ports)
        return any(re.search(rf"(?<!\d){port}(?!\d)", match.text) for port in ports)

    def _raised(self) -> list[Raised]:
        """What was raised, by time over all ranks; echoes only where there is nothing else."""
        raised = sorted(
            (r for r in self.seen.reading.raised if r.fingerprint not in self.known.noise), key=_in_time
        )
        echoes = self._echoes()
        return [r for r in raised if r.fingerprint not in echoes] or raised

    def _echoes(self) -> frozenset[str]:
        """Exceptions whose own words tell of another failure, guess at one, or are a signature's (rule 7).

        Only the first lines of each signature are kept, so exceptions that are the same count with those.
        """
        roles = (Role.SYMPTOM, Role.CASCADE, Role.WRAPPER, Role.HINT)
        lines = {m.offset for role in roles for m in self._signed(role)}
        return frozenset(r.fingerprint for r in self.seen.reading.raised if r.offset in lines)

    def _phase_at(self, failure: Match | Raised) -> str:
        """The furthest phase that the failing rank had reached, or the server, which waits for every rank.

        How far the rank's peers had come is told only where the rank itself tells nothing.
        """
        before = [m for m in self._matches(MatchKind.PHASE) if m.offset <= failure.offset]
        own = [m for m in before if m.rank == failure.rank] or before
        server = [m for m in before if not _peers(m.rank, failure.rank)]
        order = [phase.name for phase in self.playbook.observe.phases]
        return max((m.id for m in (*own, *server)), key=order.index, default="")

    def _line(self, where: Match | Raised) -> Evidence:
        log = self.seen.log
        assert log is not None, "a line was read, so there is a copy of the log"
        return Evidence(
            path=log.path,
            line=where.line,
            offset=where.offset,
            text=where.text if isinstance(where, Match) else where.exception,
            time=where.time,
            rank=where.rank,
            sha256=log.sha256,
            copy_line=_copy_line(log, where),
        )

    def _last_line(self) -> tuple[Evidence, ...]:
        last, log = self.seen.reading.last, self.seen.log
        if last is None or log is None:
            return ()
        line = Evidence(
            path=log.path,
            line=last.line,
            offset=last.offset,
            text=last.text,
            sha256=log.sha256,
            copy_line=_copy_line(log, last),
        )
        return (line,)

    def _stacks(self) -> tuple[Evidence, ...]:
        """Where the last look at the stacks shows what a person should see first."""
        stacks = self.seen.stacks
        return self._exhibited(stacks.looks[-1]) if stacks and stacks.looks else ()

    def _exhibited(self, exhibit: Exhibit | None) -> tuple[Evidence, ...]:
        if exhibit is None:
            return ()
        return tuple(
            Evidence(path=exhibit.path, line=at.line, offset=at.offset, text=at.text, sha256=exhibit.sha256)
            for at in exhibit.lines
        )

    def _ready(self) -> tuple[Evidence, ...]:
        return tuple(self._line(m) for m in self._matches(MatchKind.READY)[:1])

    def _response(self) -> tuple[Evidence, ...]:
        """The answer to the request, as the file beside the log holds it."""
        serving, log = self.seen.serving, self.seen.log
        if log is None or serving is None or serving.request is None or not serving.request.body:
            return ()
        body = serving.request.body
        path = str(PurePosixPath(log.path).with_name(RESPONSE))
        digest = sha256(body.encode()).hexdigest()
        return (Evidence(path=path, line=1, offset=0, text=body[:400], sha256=digest),)

    def _beside(self, name: str, body: str, at: int) -> Evidence:
        """The line with the character at index `at` of an answer that a file beside the log holds."""
        log = self.seen.log
        assert log is not None, "what was answered was answered after the log had begun"
        begin = body.rfind("\n", 0, at) + 1
        end = body.find("\n", at)
        return Evidence(
            path=str(PurePosixPath(log.path).with_name(name)),
            line=1 + body.count("\n", 0, begin),
            offset=len(body[:begin].encode()),
            text=excerpt(body[begin : end if end >= 0 else None], at - begin),
            sha256=sha256(body.encode()).hexdigest(),
        )

    def _unresolved(self, reason: Reason, detail: str, matches: Sequence[Match] = ()) -> Unresolved:
        return Unresolved(reason=reason, detail=detail, evidence=tuple(self._line(m) for m in matches))


def answer_file(path: str) -> str:
    """The file beside the log that holds what the server answered to a witness's question."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-")[:40]
    return f"witness-{name}-{sha256(path.encode()).hexdigest()[:6]}.txt"


def _place_of(text: str, body: str) -> int | None:
    """Where a text stands in an answer, as words of its own: `1` is not seen in `16`."""
    before = r"(?<!\w)" if text[:1].isalnum() else ""
    after = r"(?!\w)" if text[-1:].isalnum() else ""
    found = re.search(before + re.escape(text) + after, body)
    return found.start() if found else None


def _unseeable(factor: Factor, level: str) -> bool:
    """Whether a level has nothing to show: what shows is the stack's own choice, and contradicts nobody."""
    match factor.witness:
        case ArgumentWitness(patterns=patterns):
            return level not in patterns
        case LogWitness(log=template) | HttpWitness(contains=template):
            return "{value}" in template and not factor.value(level)
        case None:
            return True


def _copy_line(log: LogCopy, where: Match | Raised | LastLine) -> int | None:
    """The line's number in a copy with holes; None where the copy is whole."""
    return log.line_of(where.offset, where.line) if log.pieces else None


def _in_time(where: Match | Raised) -> tuple[float, int]:
    """Order by the writer's stamp; what has none comes after what has one, in the order printed."""
    return (where.time if where.time is not None else float("inf"), where.offset)


def _peers(one: str | None, other: str | None) -> bool:
    """Whether two ranks have one name but for the numbers in it."""
    first, second = (re.sub(r"\d+", "#", rank or "") for rank in (one, other))
    return first == second != ""
