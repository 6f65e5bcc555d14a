"""What can happen in a run, and the fold that makes its present state of it. Pure.

An event is written before the deed it announces (`launching`) or after the thing it reports was
seen (`launched`). Nothing else is state: what is shown, decided or resumed is a fold over these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, assert_never

from pydantic import Field, TypeAdapter

from bisect_agent.errors import DamagedRun
from bisect_agent.lifecycle import ATTEMPT, HYPOTHESIS, INVESTIGATION, initial, move
from bisect_agent.model import (
    FIRST,
    RETRIED,
    UNCOUNTED,
    Asked,
    Before,
    Failed,
    Fingerprint,
    Frozen,
    Limits,
    Match,
    Observation,
    Passed,
    Prediction,
    Process,
    Reason,
    Serving,
    Settled,
    Stacks,
    State,
    StoppedBy,
    Takeover,
    Trial,
    Trouble,
    Unresolved,
    Why,
)
from bisect_agent.steer import Costs

SCHEMA = 1
ATTEMPTS = 3
"""How often a trial is tried when the reason it does not resolve is ours or passing."""


class Exported(Frozen):
    """This is the journal of a copy made to travel, written anew; it stands first.

    `head` is the sha256 of the last line of the original, `version` ours when the copy was made. `replaced`
    counts what was replaced since it told of a machine or a person, by kind. An export has no time of its
    own, so that one made again is the same: this line has that of the run's first.
    """

    kind: Literal["exported"] = "exported"
    head: str
    version: str
    replaced: Mapping[str, int]


class RunStarted(Frozen):
    """The run folder was laid out; `resolved` and `playbook` are the sha256 of its two files.

    `source` is where the playbook was read, `pins` what the command line pinned: to see, when the run
    is resumed, that it is still the same question.
    """

    kind: Literal["run-started"] = "run-started"
    run: str
    playbook: str
    resolved: str
    versions: Mapping[str, str]
    source: str = ""
    pins: Mapping[str, str] = Field(default_factory=dict)


class Resumed(Frozen):
    """A later process of ours takes the run up.

    `reopens` says that the target is looked at anew: the search was concluded (interrupted, out of budget,
    …), or the guardian has had the target meanwhile.
    `lost` names what the journal no longer holds; `limits` are the new ones, where they were raised.
    """

    kind: Literal["resumed"] = "resumed"
    versions: Mapping[str, str]
    reopens: bool
    limits: Limits | None = None
    lost: tuple[str, ...] = ()


class _OfTarget(Frozen):
    """An event of one of the run's targets, by its number."""

    target: int = Field(default=FIRST, exclude_if=lambda number: number == FIRST)


class TargetSurveyed(_OfTarget):
    """Read-only facts of a target, before anything was started there; what must stay is `fingerprint`."""

    kind: Literal["target-surveyed"] = "target-surveyed"
    folder: str
    facts: Mapping[str, str]
    fingerprint: Fingerprint | None = Field(default=None, exclude_if=lambda seen: seen is None)


class TargetLeft(_OfTarget):
    """A further target is used no more, for the reason that `why` tells."""

    kind: Literal["target-left"] = "target-left"
    why: str


class TargetGuarded(_OfTarget):
    """A guardian on the target holds it for this run; ours is the lease with this fencing number."""

    kind: Literal["target-guarded"] = "target-guarded"
    fence: int
    guardian: Process


class GuardianActed(_OfTarget):
    """A lease of ours had ended: what the guardian did then."""

    kind: Literal["guardian-acted"] = "guardian-acted"
    takeover: Takeover


class StackAsked(Frozen):
    """What the installed stack says of itself, before the first start."""

    kind: Literal["stack-asked"] = "stack-asked"
    asked: Asked


class TrialPlanned(Frozen):
    """A trial is wanted: why, and what each hypothesis predicts of it.

    `shows` is the further target that a control is to show fit; None where the search wants it.
    """

    kind: Literal["trial-planned"] = "trial-planned"
    trial: Trial
    why: str
    shows: int | None = Field(default=None, exclude_if=lambda number: number is None)
    predicted: Mapping[str, Prediction] = Field(default_factory=dict)


class RestorePlanned(Frozen):
    """The known-good configuration is to be brought up again and left running."""

    kind: Literal["restore-planned"] = "restore-planned"
    trial: Trial


class _OfAttempt(Frozen):
    trial: str
    attempt: int


class Launching(_OfAttempt, _OfTarget):
    """The intent: this script, with this tag, is about to be put into this folder and started.

    `script` and `env` are the sha256 of our copies; secrets are masked in the second. `before` is what was
    around it then, for a later process of ours to see what changed.
    """

    kind: Literal["launching"] = "launching"
    folder: str
    tag: str
    script: str
    env: str
    before: Before | None = Field(default=None, exclude_if=lambda before: before is None)


class Launched(_OfAttempt):
    """The supervisor claimed the attempt and started the script."""

    kind: Literal["launched"] = "launched"
    supervisor: Process
    main: Process


class TakenUp(_OfAttempt):
    """An attempt that an earlier process of ours began is watched again, from its log's first byte."""

    kind: Literal["taken-up"] = "taken-up"


class LogSeen(_OfAttempt):
    """The log exists, is new, and carries this attempt's tag in its first line."""

    kind: Literal["log-seen"] = "log-seen"
    path: str


class PhaseEntered(_OfAttempt):
    """A phase's marker was met."""

    kind: Literal["phase-entered"] = "phase-entered"
    match: Match


class ReadySeen(_OfAttempt):
    """The ready rule was met; whether it serves is asked next."""

    kind: Literal["ready-seen"] = "ready-seen"
    match: Match | None = None


class Ending(_OfAttempt):
    """The attempt is to end: why, at which match, and what was seen that cannot be seen again."""

    kind: Literal["ending"] = "ending"
    why: Why
    match: Match | None = None
    trouble: Trouble | None = None
    serving: Serving | None = None
    quiet: float = 0.0
    idle: float = 0.0
    stacks: Stacks | None = None


class Stopping(_OfAttempt):
    """Our stop begins. Nothing of the log from this byte on is evidence."""

    kind: Literal["stopping"] = "stopping"
    offset: int


class Closed(_OfAttempt, _OfTarget):
    """Nothing of the attempt is left (or what is left is named); all that was seen of it."""

    kind: Literal["closed"] = "closed"
    observation: Observation


class Judged(Frozen):
    """What was made of an attempt."""

    kind: Literal["judged"] = "judged"
    settled: Settled


class HypothesisMoved(Frozen):
    """What the trials say of a hypothesis has changed, with `trial`, or because no more will come."""

    kind: Literal["hypothesis-moved"] = "hypothesis-moved"
    hypothesis: str
    state: State
    trial: str | None


class RestoreEnded(Frozen):
    """A server that an earlier restore had left running was stopped; what did not die is `left`."""

    kind: Literal["restore-ended"] = "restore-ended"
    folder: str
    left: tuple[Process, ...] = ()


class CommandRun(Frozen):
    """A command of the playbook's was run on the target: it ends the owners' server, or brings it back.

    `code` is None where it did not end in its time; `said` is the end of what it printed, masked; `wrong`
    says what is amiss afterwards, empty where nothing is.
    """

    kind: Literal["command-run"] = "command-run"
    purpose: Literal["stop", "restore"]
    code: int | None
    said: str
    wrong: str = ""


class FilesPutBack(_OfTarget):
    """The files that factors write hold again what they held before; `wrong` says why one does not."""

    kind: Literal["files-put-back"] = "files-put-back"
    paths: tuple[str, ...]
    wrong: str = ""


class Concluded(Frozen):
    """The search is over, or was ended."""

    kind: Literal["concluded"] = "concluded"
    stopped_by: StoppedBy
    detail: str = ""


class Sealed(Frozen):
    """The last line: the verdict's sha256 and the exit code."""

    kind: Literal["sealed"] = "sealed"
    verdict: str
    exit_code: int


OfAttempt = Launching | Launched | TakenUp | LogSeen | PhaseEntered | ReadySeen | Ending | Stopping | Closed
AnyEvent = (
    Exported
    | RunStarted
    | Resumed
    | TargetGuarded
    | GuardianActed
    | TargetSurveyed
    | TargetLeft
    | StackAsked
    | TrialPlanned
    | RestorePlanned
    | OfAttempt
    | Judged
    | HypothesisMoved
    | RestoreEnded
    | CommandRun
    | FilesPutBack
    | Concluded
    | Sealed
)
Event = Annotated[AnyEvent, Field(discriminator="kind")]
EVENT: TypeAdapter[AnyEvent] = TypeAdapter(Event)

SAID: Mapping[type[Frozen], tuple[str, ...]] = {
    TargetSurveyed: ("facts",),
    TargetLeft: ("why",),
    StackAsked: ("asked",),
    GuardianActed: ("takeover",),
    RestoreEnded: ("left",),
    CommandRun: ("said", "wrong"),
    FilesPutBack: ("wrong",),
    Concluded: ("detail",),
}
"""The fields of the engine's own events in which others speak: the target, or an error of it."""


@dataclass(frozen=True)
class Entry:
    """One event in its place. `at` is in seconds since the epoch, by our clock."""

    number: int
    at: float
    event: AnyEvent


@dataclass(frozen=True)
class Attempt:
    """One attempt as far as it has come. `began` and `ended` are in seconds since the epoch.

    `cut` is the log's byte at which our stop began, `before` what was around it before its start.
    `target` is the number of that on which it runs.
    """

    number: int = 1
    target: int = FIRST
    began: float = 0.0
    ended: float = 0.0
    state: str = initial(ATTEMPT)
    folder: str = ""
    tag: str = ""
    phase: str = ""
    ending: Ending | None = None
    cut: int | None = None
    before: Before | None = None
    observation: Observation | None = None
    settled: Settled | None = None


@dataclass(frozen=True)
class OnTarget:
    """How a run stands on one of its targets.

    `baseline` is what the target was before the first trial there, `put_back` tells of the files that factors
    write. `takeovers` are what guardians did; `taken_over` is what one did since the run was begun, or taken
    up: the target is not ours any more. `left` says why a further one is used no more.
    """

    surveyed: TargetSurveyed | None = None
    baseline: Fingerprint | None = None
    guarded: TargetGuarded | None = None
    takeovers: tuple[Takeover, ...] = ()
    taken_over: Takeover | None = None
    put_back: FilesPutBack | None = None
    left: str = ""

    def unheard(self, takeovers: Iterable[Takeover]) -> tuple[Takeover, ...]:
        """What guardians have done and the journal does not know."""
        return tuple(takeover for takeover in takeovers if takeover not in self.takeovers)


@dataclass(frozen=True)
class RunState:
    """All that the events so far amount to.

    `running` are the target's folders of restores that may have left a server running. `limits` are
    those that a resume has raised. `forgiven` are the attempts of each trial when the target was last looked
    at anew: what was lost until then does not count against it. `ended` and `brought_back` are the commands
    run for the owners' server. `targets` are by their numbers.
    """

    state: str = initial(INVESTIGATION)
    exported: Exported | None = None
    started: RunStarted | None = None
    targets: Mapping[int, OnTarget] = field(default_factory=dict)
    asked: Asked = field(default_factory=Asked)
    planned: Mapping[str, TrialPlanned] = field(default_factory=dict)
    restore: RestorePlanned | None = None
    restores: int = 0
    running: tuple[str, ...] = ()
    limits: Limits | None = None
    attempts: Mapping[tuple[str, int], Attempt] = field(default_factory=dict)
    forgiven: Mapping[str, int] = field(default_factory=dict)
    hypotheses: Mapping[str, str] = field(default_factory=dict)
    ended: CommandRun | None = None
    brought_back: CommandRun | None = None
    concluded: Concluded | None = None
    sealed: Sealed | None = None

    def on(self, target: int) -> OnTarget:
        """How the run stands on a target."""
        return self.targets.get(target, OnTarget())

    @property
    def first(self) -> OnTarget:
        """How it stands on its first target, where `good` is restored."""
        return self.on(FIRST)

    @property
    def dirty(self) -> bool:
        """Whether the search ended because something on the target did not die."""
        return self.concluded is not None and self.concluded.stopped_by is StoppedBy.DIRTY

    @property
    def disturbed(self) -> bool:
        """Whether the owners' server was ended, or anything was started in its place."""
        return bool(self.attempts) or (self.ended is not None and not self.ended.wrong)

    @property
    def out_of_reach(self) -> bool:
        """Whether the target was not ours in the end, or gave no answer: its guardian does the rest."""
        here = (a.settled for a in self.attempts.values() if a.settled is not None and a.target == FIRST)
        last = self.restored() or next(reversed(tuple(here)), None)
        if last is None or not isinstance(last.outcome, Unresolved):
            return False
        if last.trial.control == "restore":
            return last.outcome.reason in {Reason.GUARDED, Reason.UNREACHABLE}
        by_target = self.concluded is not None and self.concluded.stopped_by is StoppedBy.TARGET
        return by_target and last.outcome.reason is Reason.GUARDED

    @property
    def serving(self) -> str | None:
        """The target's folder of the good server that was left running, by us or by the guardian."""
        if self.first.taken_over is not None:
            return self.first.taken_over.good
        run = self.restored()
        if run is None or not isinstance(run.outcome, Passed):
            return None
        return self.attempts[run.trial.id, run.attempt].folder

    def trial(self, name: str) -> Trial:
        """A trial that was planned, the restore among them."""
        planned = self.planned.get(name) or self.restore
        assert planned is not None, f"{name} was planned"
        return planned.trial

    def last(self, trial: str) -> Attempt | None:
        """The latest attempt at a trial."""
        numbers = [n for t, n in self.attempts if t == trial]
        return self.attempts[trial, max(numbers)] if numbers else None

    def next_attempt(self, trial: str) -> int | None:
        """The number of the attempt that the trial still needs; None when it is settled, or one is open."""
        tried = [a for (t, _), a in self.attempts.items() if t == trial]
        if not tried:
            return 1
        if any(a.settled is None for a in tried):
            return None
        reasons = [
            a.settled.outcome.reason for a in tried if a.settled and isinstance(a.settled.outcome, Unresolved)
        ]
        if len(reasons) < len(tried) or reasons[-1] not in RETRIED:
            return None
        # What was lost before the target was looked at anew says nothing about the target as it is now.
        forgiven = 0 if reasons[-1] is Reason.UNTESTABLE else self.forgiven.get(trial, 0)
        counted = sum(reason not in UNCOUNTED for reason in reasons[forgiven:])
        return max(a.number for a in tried) + 1 if counted < ATTEMPTS else None

    def open_attempt(self, trial: str) -> Attempt | None:
        """The attempt at a trial that has begun and is not judged, as an earlier process of ours left it."""
        last = self.last(trial)
        return last if last is not None and last.settled is None else None

    def settled(self, shows: int | None = None) -> tuple[Settled, ...]:
        """The search's trials that have had their last word, in the order of that word.

        With `shows`, the controls that show that target fit.
        """
        return tuple(
            attempt.settled
            for (trial, _), attempt in self.attempts.items()
            if trial in self.planned
            and self.planned[trial].shows == shows
            and attempt.settled is not None
            and attempt is self.last(trial)
            and self.next_attempt(trial) is None
        )

    def judged(self) -> tuple[Settled, ...]:
        """Every attempt that was judged, the restore's too, in order."""
        return tuple(a.settled for a in self.attempts.values() if a.settled is not None)

    def costs(self) -> Costs:
        """What an attempt takes that fails, and one that passes, by those so far."""
        taken = [(a.settled.outcome, a.ended - a.began) for a in self.attempts.values() if a.settled]
        fails = [seconds for outcome, seconds in taken if isinstance(outcome, Failed)]
        return Costs.learnt(fails, [seconds for outcome, seconds in taken if isinstance(outcome, Passed)])

    def in_flight(self, shows: int | None = None) -> tuple[Trial, ...]:
        """The search's trials that are planned and not settled; with `shows`, that target's controls."""
        done = {s.trial.id for s in self.settled(shows)}
        return tuple(p.trial for p in self.planned.values() if p.shows == shows and p.trial.id not in done)

    def restored(self) -> Settled | None:
        """The last word about the restore."""
        last = self.last(self.restore.trial.id) if self.restore else None
        return last.settled if last else None


def fold(entries: Iterable[Entry]) -> RunState:
    """The state that a sequence of entries amounts to.

    Raises:
        DamagedRun: an event that cannot follow those before it.
    """
    state = RunState()
    for entry in entries:
        try:
            state = apply(state, entry)
        except DamagedRun as error:
            raise DamagedRun(f"event {entry.number}: {error.message}") from error
    return state


def apply(state: RunState, entry: Entry) -> RunState:
    """The state after one more entry.

    Raises:
        DamagedRun: the event cannot follow those before it.
    """
    event = entry.event
    match event:
        case Exported():
            if state.started or state.exported:
                raise DamagedRun("what says that the run was exported does not stand first")
            return replace(state, exported=event)
        case RunStarted():
            if state.started:
                raise DamagedRun("the run starts twice")
            return replace(state, started=event)
        case Resumed(reopens=False):
            resumed = _go(state, "resume")
            return replace(
                state, state=resumed, limits=event.limits or state.limits, targets=_taken_up(state)
            )
        case Resumed():
            return replace(
                state,
                state=_go(state, "reopen"),
                limits=event.limits or state.limits,
                forgiven=Counter(trial for trial, _ in state.attempts),
                restore=None,
                ended=None if state.brought_back or state.first.taken_over else state.ended,
                brought_back=None,
                targets={n: replace(stands, put_back=None) for n, stands in _taken_up(state).items()},
                concluded=None,
                sealed=None,
            )
        case TargetGuarded(target=target):
            return _with(state, target, replace(state.on(target), guarded=event))
        case GuardianActed(target=target, takeover=takeover):
            good = (
                (takeover.good,) if takeover.good is not None and takeover.good not in state.running else ()
            )
            stands = state.on(target)
            before = tuple(t for t in stands.takeovers if t.fence != takeover.fence)
            stands = replace(stands, takeovers=(*before, takeover), taken_over=takeover)
            return replace(_with(state, target, stands), running=(*state.running, *good))
        case TargetSurveyed(target=target):
            baseline = state.on(target).baseline or event.fingerprint
            stands = replace(state.on(target), surveyed=event, baseline=baseline)
            surveyed = _with(state, target, stands)
            return replace(surveyed, state=_go(state, "survey")) if target == FIRST else surveyed
        case TargetLeft(target=target, why=why):
            return _with(state, target, replace(state.on(target), left=why))
        case StackAsked():
            return replace(state, asked=event.asked)
        case TrialPlanned():
            planned = {**state.planned, event.trial.id: event}
            return replace(
                state, state=_go(state, "plan"), planned=planned, hypotheses=_tested(state, event.predicted)
            )
        case RestorePlanned():
            return replace(state, state=_go(state, "restore"), restore=event, restores=state.restores + 1)
        case Judged():
            key = event.settled.trial.id, event.settled.attempt
            judged = replace(_step(state, key, "judge"), settled=event.settled)
            # A judged attempt moves to the end: attempts stay in the order of their last word.
            others = {k: a for k, a in state.attempts.items() if k != key}
            return replace(state, attempts={**others, key: judged})
        case RestoreEnded():
            return replace(state, running=tuple(f for f in state.running if f != event.folder))
        case CommandRun(purpose="stop"):
            return replace(state, ended=event)
        case CommandRun():
            return replace(state, brought_back=event)
        case FilesPutBack(target=target):
            return _with(state, target, replace(state.on(target), put_back=event))
        case HypothesisMoved():
            moved = _moved(state, event.hypothesis, _MOVES[event.state])
            return replace(state, hypotheses={**state.hypotheses, event.hypothesis: moved})
        case Concluded():
            return replace(state, state=_go(state, "conclude"), concluded=event)
        case Sealed():
            return replace(state, state=_go(state, "seal"), sealed=event)
        case _:
            key = event.trial, event.attempt
            attempts = {**state.attempts, key: _advance(state, key, event, entry.at)}
            return replace(state, attempts=attempts, running=_running(state, event))


def _with(state: RunState, target: int, stands: OnTarget) -> RunState:
    """The state with what is known of a target now."""
    return replace(state, targets={**state.targets, target: stands})


def _taken_up(state: RunState) -> dict[int, OnTarget]:
    """The targets, when a later process of ours has taken all of them again."""
    return {n: replace(stands, taken_over=None, left="") for n, stands in state.targets.items()}


def _go(state: RunState, name: str) -> str:
    return move("the investigation", INVESTIGATION, state.state, name)


_MOVES = {State.SUPPORTED: "support", State.REFUTED: "refute", State.UNDECIDED: "leave"}


def _moved(state: RunState, name: str, how: str) -> str:
    now = state.hypotheses.get(name, initial(HYPOTHESIS))
    return move(f"hypothesis {name}", HYPOTHESIS, now, how)


def _tested(state: RunState, predicted: Mapping[str, Prediction]) -> dict[str, str]:
    """The hypotheses, after a trial was planned of which some of them predict something."""
    waiting = [h for h, said in predicted.items() if said != "nothing" and h not in state.hypotheses]
    return {**state.hypotheses, **{h: _moved(state, h, "test") for h in waiting}}


def _step(state: RunState, key: tuple[str, int], name: str) -> Attempt:
    trial, number = key
    if trial not in state.planned and not (state.restore and state.restore.trial.id == trial):
        raise DamagedRun(f"{trial} was never planned")
    attempt = state.attempts.get(key, Attempt(number=number))
    return replace(attempt, state=move(f"attempt {number} of {trial}", ATTEMPT, attempt.state, name))


def _running(state: RunState, event: OfAttempt) -> tuple[str, ...]:
    """The restores that may have left a server running, after one more event of an attempt."""
    is_restore = state.restore is not None and state.restore.trial.id == event.trial
    if isinstance(event, Launching) and is_restore:
        return (*state.running, event.folder)
    if isinstance(event, Closed) and event.observation.stopped:
        folder = state.attempts[event.trial, event.attempt].folder
        return tuple(f for f in state.running if f != folder)
    return state.running


def _advance(state: RunState, key: tuple[str, int], event: OfAttempt, at: float) -> Attempt:
    match event:
        case Launching():
            intent = _step(state, key, "intend")
            return replace(
                intent,
                target=event.target,
                folder=event.folder,
                tag=event.tag,
                began=at,
                before=event.before,
            )
        case Launched():
            return _step(state, key, "launch")
        case LogSeen():
            return _step(state, key, "see_log")
        case PhaseEntered():
            return replace(_step(state, key, "enter_phase"), phase=event.match.id)
        case ReadySeen():
            return _step(state, key, "see_ready")
        case TakenUp():
            return _step(state, key, "take_up")
        case Ending():
            return replace(_step(state, key, "begin_end"), ending=event)
        case Stopping():
            return replace(_step(state, key, "begin_stop"), cut=event.offset)
        case Closed():
            # What was closed before it was launched has its target from here.
            closed = replace(_step(state, key, "close"), target=event.target)
            return replace(closed, observation=event.observation, ended=at)
        case _:
            assert_never(event)
