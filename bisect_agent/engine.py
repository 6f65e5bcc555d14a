"""The one loop: ask the search, start attempts, append events; then restore, conclude, seal.

Attempts run in threads of their own and send their events here; only this thread writes the journal.
Every decision is a fold over the journal, so nothing else needs to be remembered.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import assert_never

from bisect_agent import between, events, search, surroundings
from bisect_agent.attempt import PORTS_FREE_WITHIN, carry_out
from bisect_agent.claims import moves, predict, relevant
from bisect_agent.edge import BOUND, Edge, Task, learn
from bisect_agent.errors import RANK, ExitCode, RunFolderFull, TargetError
from bisect_agent.events import Entry, OfAttempt, RunState
from bisect_agent.evidence import Table
from bisect_agent.facts import facts
from bisect_agent.fitness import Unfit, fitness
from bisect_agent.folder import VERDICT, RunFolder, attempt_path, canonical, digest
from bisect_agent.hour import Hour
from bisect_agent.journal import Journal
from bisect_agent.judge import Known, judge, known
from bisect_agent.model import (
    FIRST,
    Command,
    Fingerprint,
    Limits,
    Observation,
    Passed,
    Playbook,
    Reason,
    Settled,
    StoppedBy,
    Takeover,
    Trial,
    Unresolved,
)
from bisect_agent.owners import STOP, Ran, answering, ports_free, run_command
from bisect_agent.playbook import files
from bisect_agent.secrets import Masker
from bisect_agent.serving import busy
from bisect_agent.survey import ask
from bisect_agent.target.launcher import Setback
from bisect_agent.verdict import Verdict, conclude

TURN = 0.1
"""Seconds between two looks at the wall clock while attempts run."""
LEAVE = 2
"""So many interrupts leave the run without the restore."""
SLOWER = 1.25
"""How much longer than the slowest `good` of this run its restore may take, where an hour was named."""
RENEWALS = 3
"""So many times in the length of a lease one is renewed where nothing runs."""
FREE_MIB = 64
"""Free space, in MiB, below which nothing is started on the target."""

Listener = Callable[[Entry], None]
"""Is told each event once it is on the disk."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    verdict: Verdict
    code: ExitCode


@dataclass
class _Flight:
    """An attempt in flight."""

    trial: Trial
    attempt: int
    target: int
    thread: threading.Thread
    cancel: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class _Crash:
    """An error of our own that has ended an attempt's thread."""

    trial: str
    error: Exception


@dataclass(frozen=True)
class _Message:
    """What an attempt's thread has to say; `written` is done when it was recorded, or could not be."""

    event: OfAttempt | _Crash
    written: Future[None] = field(default_factory=Future)


class _Unrecorded(Exception):
    """An event could not be recorded: what it announces must not be done."""


class Engine:
    """One investigation.

    Args:
        playbook: what is asked.
        folder: where everything of the run goes.
        journal: its journal, already opened by us.
        edges: each target, by its number, with the clock; the first is where `good` is restored.
        version: ours, for the verdict.
        listener: is told every event.
        token: gives a tag that no earlier attempt had.
    """

    def __init__(  # the parts of the world, named once
        self,
        playbook: Playbook,
        folder: RunFolder,
        journal: Journal,
        edges: Mapping[int, Edge],
        version: str,
        listener: Listener,
        token: Callable[[], str],
    ) -> None:
        self._playbook = playbook
        self._folder = folder
        self._journal = journal
        self._edges = edges
        self._edge = edges[FIRST]
        self._masker = Masker({secret for edge in edges.values() for secret in edge.secrets})
        self._version = version
        self._listener = listener
        self._token = token
        self._messages: queue.Queue[_Message] = queue.Queue()
        self._flights: dict[str, _Flight] = {}
        self.interrupts = 0
        self._lost = ""
        self._deadline = 0.0
        self._renewed = self._edge.clock.monotonic()
        self._hour: Hour | None = None
        self.state: RunState = events.fold(journal.entries)
        self._judged_before = self._looked_after = len(self.state.judged())

    # --- from outside ---------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Ends the run early: the first time `good` is still restored, the second time not.

        Safe to call from a signal handler.
        """
        self.interrupts += 1

    def begin(self, *recorded: events.AnyEvent) -> None:
        """Writes the first lines of a run, or of its resumption."""
        for event in recorded:
            self._append(event)

    def sweep(self, target: int, folders: Sequence[str]) -> None:
        """Ends attempts of this run, by their folders on a target, that the journal lost the record of."""
        known = {attempt.folder for attempt in self.state.attempts.values()}
        edge = self._edges[target]
        for name in folders:
            if name not in known:
                edge.launcher.stop(f"{edge.folder}/{name}")

    def run(self, hour: Hour | None = None) -> Outcome:
        """Runs to the verdict, whatever happens on the way; `good` is restored on every way out.

        A run that an earlier process began goes on where its journal, and the target, say that it is.
        Before `hour` all of it is over, unless the restore takes longer than `good` has led to expect:
        to leave nothing running would be worse than to be late.
        """
        self._hour = hour
        self._deadline = self._edge.clock.monotonic() + self._playbook.limits.wall
        try:
            if self.state.concluded is None:
                ended = self._searched()
                self._weigh(None)
                self._append(events.Concluded(stopped_by=ended.by, detail=ended.detail))
            return self._finish()
        except RunFolderFull:
            self._end_attempts()
            raise
        except Exception as error:
            self._give_up(error)
            raise

    # --- the loop -------------------------------------------------------------------------------------

    def _searched(self) -> search.Finished:
        try:
            return self._investigate()
        except (TargetError, Setback) as error:
            return search.Finished(StoppedBy.TARGET, _in_a_line(error))

    def _investigate(self) -> search.Finished:
        anew = self.state.state == "opened"
        if anew:
            self._end_restored()
            if ended := self._late():  # Before the owners' own server is ended.
                return ended
            self._survey()
        self._survey_further(anew=anew)
        self._catch_up()
        considered: RunState | None = None
        while True:
            if ended := self._early():
                self._land()
                return ended
            if considered is not self.state:
                if ended := self._consider():
                    self._land()
                    return ended
                considered = self.state
            self._renew()
            self._turn()

    def _consider(self) -> search.Finished | None:
        """Plans what is to be run as things stand, and starts it where there is room; or the end."""
        fit = [FIRST]
        for number in self._further():
            match fitness(self._playbook, self.state, number):
                case search.Wanted() as wanted:
                    self._plan(wanted, shows=number)
                case Unfit(why=why):
                    self._leave(number, why)
                case "fit":
                    fit.append(number)
                case "open":
                    pass
        settled, flying, costs = self.state.settled(), self.state.in_flight(), self.state.costs()
        step = search.step(self._playbook, settled, flying, len(fit), costs)
        if isinstance(step, search.Finished):
            return step
        for wanted in step.wanted:
            self._plan(wanted)
        for planned in self.state.planned.values():
            self._start_one(planned, fit if planned.shows is None else [planned.shows])
        return None

    def _further(self) -> list[int]:
        """The further targets that are in use."""
        return [number for number in self._edges if number != FIRST and not self.state.on(number).left]

    def _start_one(self, planned: events.TrialPlanned, fit: Sequence[int]) -> None:
        """Starts what is to be started of a trial, if one of the targets that are fit for it is free.

        The best is one on which its configuration was not run yet, then that of its parent: so both sides of
        a pair come to be seen on one target.
        """
        trial, state = planned.trial, self.state
        if trial.id in self._flights or not self._unfinished(trial):
            return
        begun = state.open_attempt(trial.id)
        if begun is not None:
            self._start(trial, begun.target)
            return
        if len(state.judged()) + len(self._flights) >= self._playbook.limits.trials:
            return
        parent = state.last(trial.parent) if trial.parent else None
        taken = {flight.target for flight in self._flights.values()}
        free = [number for number in fit if number not in taken and not state.on(number).left]
        alike = [p.trial.id for p in state.planned.values() if p.trial.configuration == trial.configuration]
        ran = {attempt.target for (name, _), attempt in state.attempts.items() if name in alike}
        free.sort(key=lambda number: (number in ran, parent is None or number != parent.target))
        if free:
            self._start(trial, free[0])

    def _renew(self) -> None:
        """Renews the leases of targets on which nothing runs; what is wrong there, the next start tells."""
        now = self._edge.clock.monotonic()
        if len(self._edges) == 1 or now < self._renewed + self._playbook.limits.lease / RENEWALS:
            return
        self._renewed = now
        taken = {flight.target for flight in self._flights.values()}
        for number in {FIRST, *self._further()} - taken:
            with suppress(Setback, TargetError):
                self._edges[number].launcher.renew(0.0)

    def _leave(self, number: int, why: str) -> None:
        """Uses a further target no more, and lets it go."""
        self._append(events.TargetLeft(target=number, why=why))
        self._put_files_back(number)
        self._release(number)

    def _end_restored(self) -> None:
        """Stops what an earlier restore of this run has left running: its ports are needed again."""
        for folder in self.state.running:
            stopped = self._edge.launcher.stop(f"{self._edge.folder}/{folder}")
            self._append(events.RestoreEnded(folder=folder, left=stopped.left))
            if stopped.left:
                raise TargetError(f"{self._edge.host.name}: the restored server does not die", "look at it")

    def _catch_up(self) -> None:
        """Judges what an earlier process of ours has closed, and weighs what it has judged."""
        for (name, number), attempt in self.state.attempts.items():
            if attempt.observation is not None and attempt.settled is None:
                self._judge(self.state.trial(name), number, attempt.observation)
        if judged := self.state.judged():
            self._weigh(judged[-1].trial.id)

    def _early(self) -> search.Finished | None:
        """Whether something other than the search ends it."""
        if self.interrupts:
            return search.Finished(StoppedBy.INTERRUPTED)
        judged = self.state.judged()
        for run in judged[self._judged_before :]:
            if isinstance(run.outcome, Unresolved) and run.outcome.reason is Reason.DIRTY:
                return search.Finished(StoppedBy.DIRTY, run.outcome.detail)
        if self._lost:
            return search.Finished(StoppedBy.TARGET, self._lost)
        if changed := self._unfit(judged[self._looked_after :]):
            return search.Finished(StoppedBy.TARGET, changed)
        limits = self._playbook.limits
        if not self._flights and len(judged) >= limits.trials:
            return search.Finished(StoppedBy.BUDGET, f"limits.trials: {limits.trials} attempts were made")
        if self._edge.clock.monotonic() + self._reserve() > self._deadline:
            return search.Finished(StoppedBy.BUDGET, f"limits.wall: {limits.wall:g} s")
        return self._late()

    def _late(self) -> search.Finished | None:
        """Whether the hour has come, but for the time of the way out."""
        if self._hour is None or self._hour.left(self._edge.clock) > self._way_out():
            return None
        return search.Finished(StoppedBy.BUDGET, f"--until {self._hour}")

    def _way_out(self) -> float:
        """Seconds that it may take to end an attempt in flight, and to bring back what runs at the end.

        How long the owners' command takes is not known before `good` was seen: then it is its limit.
        """
        limits, restore = self._playbook.limits, SLOWER * self._reserve()
        if not restore and isinstance(self._playbook.restore, Command):
            restore = limits.start
        baseline = self.state.first.baseline
        gpus = baseline is not None and surroundings.has_gpus(baseline)
        return ending(limits) + (self._edge.memory_back if gpus else 0.0) + restore

    def _unfit(self, judged: Sequence[Settled]) -> str:
        """Whether the first target is still another one, or full, where an attempt has shown that.

        What came and went has cost an attempt, and no more. A further target of which that is so, or that
        gives no answer, is left: the others do its work.
        """
        self._looked_after += len(judged)
        for run in judged:
            if not isinstance(run.outcome, Unresolved):
                continue
            number = self.state.attempts[run.trial.id, run.attempt].target
            why = self._amiss(number, run.outcome)
            if why and number == FIRST:
                return why
            if why and not self.state.on(number).left:
                self._leave(number, why)
        return ""

    def _amiss(self, number: int, outcome: Unresolved) -> str:
        """Why nothing more can be run on a target where an attempt came to this; empty where it can."""
        if number != FIRST and outcome.reason is Reason.UNREACHABLE:
            return outcome.detail
        if number != FIRST and outcome.reason is Reason.GUARDED:
            return _lease_lost(self._edges[number])
        edge, baseline = self._edges[number], self.state.on(number).baseline
        try:
            if outcome.reason is Reason.DISK:
                _need_room(edge, learn(edge, facts(edge.folder, edge.python)["free_mib"]))
            if outcome.reason is Reason.ENVIRONMENT and baseline is not None:
                _compare(edge, between.again(self._playbook.at(number), edge, self._folder, baseline))
        except (TargetError, Setback) as error:
            return _in_a_line(error)
        return ""

    def _reserve(self) -> float:
        """Seconds kept back for the restore: as long as `good` took when it worked.

        The journal's times are the wall clock's, which may have been set: the limits bound what is believed.
        """
        limits = self._playbook.limits
        took = [
            min(attempt.ended - attempt.began, limits.start + limits.request + limits.stop)
            for attempt in self.state.attempts.values()
            if attempt.settled
            and attempt.settled.trial.configuration == self._playbook.good
            and isinstance(attempt.settled.outcome, Passed)
        ]
        return max(took, default=0.0) if self._playbook.restore != "none" else 0.0

    def _survey(self) -> None:
        """Read-only facts of the first target: enough space, and nobody on our ports."""
        self._look_over(FIRST)
        if self._playbook.target.stop is not None and self.state.ended is None:
            self._end_owners(self._playbook.target.stop)
        if self.interrupts:
            return
        remedy = "stop that server (`target.stop` can say how), or give the playbook another port"
        self._need_ports(FIRST, remedy)
        if self._playbook.profile is not None:
            self._append(events.StackAsked(asked=ask(self._playbook, self._edge, self._hurried)))

    def _survey_further(self, *, anew: bool) -> None:
        """The same of the further ones, which must be like the first; one that cannot be used is left."""
        first = self.state.first.baseline
        for number in self._further():
            if self.interrupts or (self.state.on(number).surveyed is not None and not anew):
                continue
            try:
                seen = self._look_over(number)
                self._need_ports(number, "stop that server, or give this target another port")
            except (TargetError, Setback) as error:
                self._leave(number, _in_a_line(error))
                continue
            if unlike := surroundings.unlike(first, seen) if first is not None else ():
                self._leave(number, f"it is unlike the first: {'; '.join(unlike)}")

    def _look_over(self, number: int) -> Fingerprint:
        """What a target is, recorded; it must be what it was before, and have room."""
        edge, playbook = self._edges[number], self._playbook.at(number)
        baseline = self.state.on(number).baseline
        found = {name: learn(edge, fact) for name, fact in facts(edge.folder, edge.python).items()}
        seen = between.fingerprint(playbook, edge, self._folder)
        found |= surroundings.facts(seen, playbook.profile)
        self._append(events.TargetSurveyed(target=number, folder=edge.folder, facts=found, fingerprint=seen))
        _compare(edge, surroundings.changes(baseline, seen) if baseline else ())
        _need_room(edge, found["free_mib"])
        return seen

    def _need_ports(self, number: int, remedy: str) -> None:
        """Ends the use of a target whose ports are somebody else's."""
        edge = self._edges[number]
        if taken := busy(edge.launcher, self._playbook.at(number).target.ports):
            raise TargetError(f"{edge.host.name}: {taken}", remedy)

    def _end_owners(self, command: str) -> None:
        """Ends the owners' own server, once, by their command."""
        ran = run_command(self._playbook, self._edge, "stop", command, STOP)
        wrong = (
            ""
            if ports_free(self._playbook, self._edge, ran, self._interrupted)
            else "the ports are still taken"
        )
        self._append(events.CommandRun(purpose="stop", code=ran.code, said=ran.said, wrong=wrong))
        if wrong and not self.interrupts:
            ended = f"exit code {ran.code}" if ran.code is not None else f"no end within {STOP:g} s"
            holder = busy(self._edge.launcher, self._playbook.target.ports)
            detail = f"`target.stop` came to {ended}, and {holder or wrong}: {ran.said[-300:]}"
            raise TargetError(f"{self._edge.host.name}: {detail}", "try that command by hand")

    def _interrupted(self) -> bool:
        return self.interrupts > 0

    def _hurried(self) -> bool:
        """Whether nothing more will be begun."""
        return self._interrupted() or self._late() is not None

    def _left(self) -> bool:
        return self.interrupts >= LEAVE

    def _plan(self, wanted: search.Wanted, shows: int | None = None) -> None:
        """The intent to run a trial, with what each hypothesis predicts of it.

        Nothing is predicted of a control that `shows` whether a target is fit.
        """
        playbook = self._playbook
        asked = relevant(playbook, Table(playbook, self.state.settled())) if shows is None else ()
        predicted = {h.id: predict(h, playbook, wanted.trial.configuration) for h in asked}
        planned = events.TrialPlanned(trial=wanted.trial, why=wanted.why, shows=shows, predicted=predicted)
        self._append(planned)

    def _start(self, trial: Trial, target: int = FIRST, *, keep: bool = False) -> None:
        """Starts the next attempt of a trial in a thread of its own, or goes on with one that has begun."""
        begun = self.state.open_attempt(trial.id)
        number = begun.number if begun else self.state.next_attempt(trial.id)
        assert number is not None, f"{trial.id} is settled"
        tag = begun.tag if begun else self._token()
        if begun is None:
            self._folder.set_aside(attempt_path(trial, number))
        answer = known_so_far(self._playbook, self.state).answer
        task = Task(
            self._playbook.at(target),
            trial,
            number,
            tag,
            target=target,
            keep=keep,
            answer=answer,
            begun=begun,
            baseline=self.state.on(target).baseline,
        )
        cancel = threading.Event()

        def fly() -> None:
            try:
                carry_out(task, self._edges[target], self._folder, self._emit, cancel)
            except Exception as error:
                self._emit(_Crash(trial.id, error))

        thread = threading.Thread(target=fly, name=f"{trial.id}/{number}", daemon=True)
        self._flights[trial.id] = _Flight(trial, number, target, thread, cancel)
        thread.start()

    def _emit(self, event: OfAttempt | _Crash) -> None:
        """Called by an attempt's thread: returns when this thread has written the event."""
        message = _Message(event)
        self._messages.put(message)
        message.written.result()

    def _turn(self) -> None:
        """Takes one event of the attempts in flight, or lets a moment pass."""
        try:
            message = self._messages.get(timeout=TURN)
        except queue.Empty:
            return
        if isinstance(message.event, _Crash):
            crashed = self._flights.pop(message.event.trial)
            message.written.set_result(None)
            crashed.thread.join()
            raise message.event.error
        flight = self._flights[message.event.trial]
        closed = isinstance(message.event, events.Closed)
        try:
            self._append(message.event)
            message.written.set_result(None)
        except Exception:
            if closed:  # Nothing is done after it.
                message.written.set_result(None)
            else:
                message.written.set_exception(_Unrecorded())
            raise
        finally:
            if closed:
                flight.thread.join()
                del self._flights[flight.trial.id]
        if isinstance(message.event, events.Closed):
            self._judge(flight.trial, flight.attempt, message.event.observation)

    def _judge(self, trial: Trial, attempt: int, observation: Observation) -> None:
        settled = judged(self._playbook, self.state, trial, attempt, observation)
        self._append(events.Judged(settled=settled))
        self._weigh(trial.id)
        guarded = isinstance(settled.outcome, Unresolved) and settled.outcome.reason is Reason.GUARDED
        if guarded and self.state.attempts[trial.id, attempt].target == FIRST:
            self._lost = self._lost or _lease_lost(self._edge)

    def _weigh(self, trial: str | None) -> None:
        """Records what the hypotheses have come to with this trial, or, without one, in the end."""
        table = Table(self._playbook, self.state.settled())
        for name, state in moves(self._playbook, table, self.state.hypotheses, last=trial is None):
            self._append(events.HypothesisMoved(hypothesis=name, state=state, trial=trial))

    def _land(self) -> None:
        """Ends what is in flight and waits for it."""
        for flight in self._flights.values():
            flight.cancel.set()
        while self._flights:
            self._turn()

    def _give_up(self, error: Exception) -> None:
        """After an error of our own: ends as in any other case, or, where that fails too, ends the attempts.

        What failed may be the journal itself. The first error is the one to show.
        """
        try:
            self._land()
            detail = f"{type(error).__name__}: {error}"
            self._append(events.Concluded(stopped_by=StoppedBy.BUG, detail=detail))
            self._finish()
        except Exception:
            self._end_attempts()

    def _end_attempts(self) -> None:
        """Ends what is in flight without a record of it, where nothing can be recorded any more."""
        for flight in self._flights.values():
            flight.cancel.set()
        while any(flight.thread.is_alive() for flight in self._flights.values()):
            with suppress(queue.Empty):
                message = self._messages.get(timeout=TURN)
                if isinstance(message.event, _Crash):
                    message.written.set_result(None)
                else:
                    message.written.set_exception(_Unrecorded())

    def _append(self, event: events.AnyEvent) -> None:
        event = self._masker.fields(event, events.SAID.get(type(event), ()))
        events.apply(self.state, Entry(0, 0.0, event))  # What cannot follow must not get into the journal.
        with self._folder.room():
            entry = self._journal.append(event)
        self.state = events.apply(self.state, entry)
        self._listener(entry)

    # --- the way out ----------------------------------------------------------------------------------

    def _finish(self) -> Outcome:
        """Restores `good`, writes the verdict, and seals the journal with its hash."""
        if not self._lost:
            self._restore()
        if self._lost:
            self._hear_guardian()
        elif self._left():
            self._hand_over()
        elif not self._restored():
            self._put_files_back(FIRST)
        if isinstance(self._playbook.restore, Command) and not self._lost:
            self._bring_back(self._playbook.restore.command)
        for number in self._further():
            self._put_files_back(number)
            self._release(number)
        self._release(FIRST)
        verdict = conclude(self._playbook, self.state, self._version)
        code = exit_code(self.state, verdict)
        data = canonical(verdict)
        self._folder.write(VERDICT, data)
        self._append(events.Sealed(verdict=digest(data), exit_code=int(code)))
        return Outcome(verdict, code)

    def _restore(self) -> None:
        """Brings `good` up again and leaves it running, where it was seen to work in this run."""
        playbook, state = self._playbook, self.state
        worked = any(
            isinstance(s.outcome, Passed) for s in Table(playbook, state.settled()).runs(playbook.good)
        )
        if playbook.restore != "good" or not worked or state.dirty:
            return
        if state.restore is None:
            name = f"restore-{state.restores + 1}" if state.restores else "restore"
            trial = Trial(id=name, control="restore", configuration=playbook.good)
            self._append(events.RestorePlanned(trial=trial))
        else:
            trial = state.restore.trial
            self._catch_up()
        while self._unfinished(trial) and not self._left():
            self._start(trial, keep=True)
            while self._flights:
                if self._left():
                    self._land()
                else:
                    self._turn()

    def _hear_guardian(self) -> None:
        """Waits until the guardian, which has the target now, has done its work; and records what it did.

        Where the target gives no answer there is nothing to record, nor to be done.
        """
        heard: Takeover | None = None
        with suppress(Setback, TargetError):
            while not self._interrupted() and (heard is None or not heard.done):
                found = self._edge.launcher.takeovers()
                fresh = self.state.first.unheard(found.reports)
                heard = fresh[-1] if fresh else None
                if heard is None or not found.watching:
                    break
                self._edge.clock.sleep(TURN)
        if heard is not None:
            self._append(events.GuardianActed(takeover=heard))

    def _hand_over(self) -> None:
        """Leaves the target to its guardian, which restores what the playbook says while nobody waits."""
        if self._restored() or self.state.dirty:
            return
        with suppress(Setback, TargetError):
            if self._edge.launcher.hand_over():
                fresh = self._edge.launcher.takeovers().reports[-1:]
                self.begin(*(events.GuardianActed(takeover=takeover) for takeover in fresh))

    def _release(self, number: int) -> None:
        """Lets a target go; whoever cannot be reached is let go when the lease ends."""
        with suppress(Setback, TargetError):
            self._edges[number].launcher.release()

    def _restored(self) -> bool:
        """Whether `good` was brought up again, and lives on with the files of its levels."""
        return self.state.serving is not None

    def _put_files_back(self, number: int) -> None:
        """Gives the files that factors write on a target back what they held before the first start there."""
        paths = tuple(files(self._playbook.at(number), self._playbook.good))
        begun = any(attempt.target == number for attempt in self.state.attempts.values())
        if not paths or self.state.on(number).put_back or not begun:
            return
        wrong = ""
        try:
            for path in paths:
                self._edges[number].launcher.put_back(path)
        except (TargetError, Setback) as error:
            wrong = str(error)
        self._append(events.FilesPutBack(target=number, paths=paths, wrong=wrong))

    def _bring_back(self, command: str) -> None:
        """Brings the owners' server back by their command, where this run has ended or started anything."""
        state, playbook = self.state, self._playbook
        if state.brought_back or state.dirty or not state.disturbed or self._left():
            return
        try:
            ran = run_command(playbook, self._edge, "restore", command, playbook.limits.start)
            wrong = "" if ran.code == 0 else f"the command ended with exit code {ran.code}"
            if ran.code is None:
                wrong = "the command did not end within limits.start"
            wrong = wrong or answering(playbook, self._edge, known_so_far(playbook, state).answer, self._left)
        except (TargetError, Setback) as error:
            ran, wrong = Ran(None, ""), str(error)
        self._append(events.CommandRun(purpose="restore", code=ran.code, said=ran.said, wrong=wrong))

    def _unfinished(self, trial: Trial) -> bool:
        """Whether a trial has an attempt to go on with, or needs another one."""
        state = self.state
        return state.open_attempt(trial.id) is not None or state.next_attempt(trial.id) is not None


def _lease_lost(edge: Edge) -> str:
    """Why a target is not ours any more; empty where it is: the guardian acted before we came."""
    try:
        edge.launcher.renew(0.0)
    except (Setback, TargetError) as error:
        return str(error)
    return ""


def _need_room(edge: Edge, free: str) -> None:
    """Ends the use of a target whose disk has not so many MiB free as every start needs."""
    if free.isdigit() and int(free) < FREE_MIB:
        message = f"{edge.host.name}: the disk is full: {free} MiB free in {edge.folder}"
        raise TargetError(message, "free some space")


def _compare(edge: Edge, changed: Sequence[str]) -> None:
    """Ends the use of a target that has changed: what is run now has nothing to be held against."""
    if changed:
        message = f"the environment changed since the first trial: {'; '.join(changed)}"
        remedy = "put that back and resume, or start a new run"
        raise TargetError(f"{edge.host.name}: {message}", remedy)


def ending(limits: Limits) -> float:
    """Seconds that it may take to end an attempt in flight."""
    return limits.stop + BOUND + PORTS_FREE_WITHIN


def _in_a_line(error: TargetError | Setback) -> str:
    """An error as a part of a sentence."""
    return str(error).replace("\n  try:", "; try:")


def known_so_far(playbook: Playbook, state: RunState) -> Known:
    """What the passing attempts of `good` have shown up to now, and what the stack has said of itself."""
    passing = [
        attempt.observation
        for attempt in state.attempts.values()
        if attempt.observation is not None
        and attempt.settled is not None
        and attempt.settled.trial.configuration == playbook.good
        and isinstance(attempt.settled.outcome, Passed)
    ]
    return known(passing, frozenset(state.asked.reads))


def judged(
    playbook: Playbook, state: RunState, trial: Trial, attempt: int, observation: Observation
) -> Settled:
    """What is made of a closed attempt: where it ran, and with what is known up to now."""
    there = playbook.at(state.attempts[trial.id, attempt].target)
    return judge(there, trial, attempt, observation, known_so_far(playbook, state))


def exit_code(state: RunState, verdict: Verdict) -> ExitCode:
    """The code of a run: of all that hold, the first by rank."""
    assert state.concluded is not None
    held = {_code(state.concluded.stopped_by, established=verdict.established)}
    put_back = (standing.put_back for standing in state.targets.values())
    if verdict.good_restored.ok is False or any(told.wrong for told in put_back if told):
        held.add(ExitCode.NOT_RESTORED)
    if state.out_of_reach:
        held.add(ExitCode.TARGET)
    return next(code for code in RANK if code in held)


def _code(by: StoppedBy, *, established: bool) -> ExitCode:
    """What the search's end amounts to; that a cause is established is the verdict's word alone."""
    match by:
        case StoppedBy.CAUSE | StoppedBy.NO_CAUSE | StoppedBy.NOT_ESTABLISHED:
            return ExitCode.CONCLUDED if established else ExitCode.NOT_ESTABLISHED
        case StoppedBy.BAD_PASSES | StoppedBy.GOOD_FAILS:
            return ExitCode.NOTHING_TO_BISECT
        case StoppedBy.TARGET:
            return ExitCode.TARGET
        case StoppedBy.BUDGET:
            return ExitCode.BUDGET
        case StoppedBy.DIRTY:
            return ExitCode.NOT_RESTORED
        case StoppedBy.INTERRUPTED:
            return ExitCode.INTERRUPTED
        case StoppedBy.BUG:
            return ExitCode.BUG
        case _:
            assert_never(by)
