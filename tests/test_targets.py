"""Several targets: each must show what the first one shows, and then trials run on all of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_agent import events
from bisect_agent.engine import Engine, Outcome
from bisect_agent.errors import ExitCode
from bisect_agent.events import Closed, Judged, Launched, Launching, Resumed, RunState, TargetLeft
from bisect_agent.journal import Journal
from bisect_agent.model import FIRST, Configuration, Fingerprint, Passed, Playbook
from bisect_agent.report.gather import gather
from bisect_agent.surroundings import unlike
from bisect_agent.verdict import conclude
from bisect_agent.verify import verify
from tests.fakes import PLAN, Behaviour, Lab, Stack, stack_of
from tests.worlds import PORT, Rule, World, playbook_of, setting

NAMES = "abcdef"
SECOND, THIRD = 2, 3
ALONE = playbook_of(dict.fromkeys(NAMES, "01"), dict.fromkeys(NAMES, "1"))
BROKEN = World((Rule(frozenset({setting("e=1")})),))
WELL = World(())
OTHERWISE = World((Rule(frozenset({setting("e=1")}), "bang"),))
ALWAYS = World((Rule(frozenset()),))
LATE = 20.0
"""Seconds by which a slow target is behind."""


def on(count: int, playbook: Playbook = ALONE) -> Playbook:
    """The playbook with so many targets."""
    others = tuple(
        playbook.target.model_copy(update={"host": f"ssh://box-{n}", "ports": (PORT + n,)})
        for n in range(SECOND, count + 1)
    )
    return playbook.model_copy(update={"others": others})


def slow(stack: Stack) -> Stack:
    """A stack that takes its time."""

    def behave(configuration: Configuration, start: int) -> Behaviour:
        found = stack(configuration, start)
        return replace(found, lines=tuple((at + LATE, text) for at, text in found.lines))

    return behave


def investigate(
    path: Path,
    first: Stack,
    *further: Stack,
    playbook: Playbook | None = None,
    before: Callable[[Lab], None] = lambda _: None,
    deeds: Mapping[str, Callable[[Lab], None]] | None = None,
    judged: Mapping[str, Callable[[Lab], None]] | None = None,
) -> tuple[Lab, Outcome]:
    """A whole investigation; a trial's deed is done once: when it was launched, or when it was judged."""
    playbook = playbook or on(1 + len(further))
    launched, over = dict(deeds or {}), dict(judged or {})

    def listen(entry: events.Entry) -> None:
        if isinstance(entry.event, Launched) and (deed := launched.pop(entry.event.trial, None)):
            deed(lab)
        if isinstance(entry.event, Judged) and (deed := over.pop(entry.event.settled.trial.id, None)):
            deed(lab)

    with Lab(path / "run", playbook, first, listen, further=further) as lab:
        before(lab)
        return lab, lab.begin().engine.run()


def placed(lab: Lab) -> dict[tuple[str, int], int]:
    """On which target each attempt ran."""
    launched = [e.event for e in lab.journal.entries if isinstance(e.event, Launching)]
    return {(event.trial, event.attempt): event.target for event in launched}


def left(lab: Lab) -> dict[int, str]:
    """Why targets were left."""
    return {e.event.target: e.event.why for e in lab.journal.entries if isinstance(e.event, TargetLeft)}


def most_at_once(lab: Lab) -> Counter[int]:
    """How many attempts ran at the same time on each target, at most."""
    where, now, most = placed(lab), Counter[int](), Counter[int]()
    for entry in lab.journal.entries:
        if isinstance(entry.event, Launching):
            now[entry.event.target] += 1
        elif isinstance(entry.event, Closed):
            now[where[entry.event.trial, entry.event.attempt]] -= 1
        most |= now
    return most


def stack(world: World, playbook: Playbook = ALONE) -> Stack:
    """The stack of a world."""
    return stack_of(world, playbook)


def test_the_cause_is_the_same_and_all_take_part(tmp_path: Path) -> None:
    """Each further target shows its own `good` and `bad` first; only then are there trials on it."""
    lab, outcome = investigate(tmp_path, slow(stack(BROKEN)), stack(BROKEN), stack(BROKEN))
    assert (ExitCode.CONCLUDED, BROKEN.rules[0].needs) == (outcome.code, frozenset(outcome.verdict.cause))
    assert {FIRST: 1, SECOND: 1, THIRD: 1} == most_at_once(lab)
    for number in (SECOND, THIRD):
        ran = [trial for (trial, _), target in placed(lab).items() if target == number]
        assert [f"good-on-{number}", f"bad-on-{number}"] == ran[:2]
        assert len(ran) > 2
        asked = lab.engine.state.planned[f"good-on-{number}"].why
        assert f"may target {number} take part? it must be seen to work first" == asked
    assert {} == left(lab)
    assert outcome.verdict == verify(lab.folder).verdict


def test_good_is_restored_on_the_first_alone(tmp_path: Path) -> None:
    """On the others nothing is left running."""
    lab, outcome = investigate(tmp_path, stack(BROKEN), stack(BROKEN))
    assert outcome.verdict.good_restored.ok
    assert [[ALONE.good], []] == [host.alive() for host in lab.hosts.values()]


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (ALWAYS, "`good` failed 2 times"),
        (WELL, "`bad` passed 3 times"),
        (OTHERWISE, "`bad` fails there with another symptom: error: bang"),
    ],
)
def test_a_target_that_shows_something_else_has_no_part(tmp_path: Path, world: World, why: str) -> None:
    """It is left with a sentence, which the verdict repeats, and the first one finds the cause alone."""
    lab, outcome = investigate(tmp_path, slow(stack(BROKEN)), stack(world))
    assert (ExitCode.CONCLUDED, BROKEN.rules[0].needs) == (outcome.code, frozenset(outcome.verdict.cause))
    assert [SECOND] == list(left(lab))
    assert why in left(lab)[SECOND]
    searched = {s.trial.id for s in lab.engine.state.settled()}
    assert {FIRST} == {target for (trial, _), target in placed(lab).items() if trial in searched}
    assert any(text.startswith("what target 2 (ssh://box-2)") for text in outcome.verdict.unknown)
    assert outcome.verdict == verify(lab.folder).verdict


def test_controls_of_another_target_are_no_evidence(tmp_path: Path) -> None:
    """A `good` that fails elsewhere is not the `good` of the verdict, nor is such a `bad` a proof."""
    lab, outcome = investigate(tmp_path, slow(stack(BROKEN)), stack(ALWAYS))
    shown = {trial.id: trial.target for trial in outcome.verdict.trials}
    assert SECOND == shown["good-on-2"]
    assert outcome.verdict.good_first.ok
    assert not {"good-on-2", "good-on-2-2"} & {s.trial.id for s in lab.engine.state.settled()}


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"around": {"kernel": "5.4"}}, "kernel: 6.8 on the first, 5.4"),
        ({"strangers": {PORT + SECOND}}, "port"),
        ({"free_kib": 1}, "the disk is full"),
    ],
)
def test_nothing_is_started_on_a_target_that_cannot_be_used(
    tmp_path: Path, there: Mapping[str, object], why: str
) -> None:
    """One that is unlike the first, or taken, or full."""

    def before(lab: Lab) -> None:
        for name, value in there.items():
            setattr(lab.hosts[SECOND], name, value)

    lab, outcome = investigate(tmp_path, stack(BROKEN), stack(BROKEN), before=before)
    assert (ExitCode.CONCLUDED, []) == (outcome.code, lab.hosts[SECOND].starts)
    assert why in left(lab)[SECOND]


def test_a_target_that_is_lost_leaves_its_trial_to_the_others(tmp_path: Path) -> None:
    """The trial is made again elsewhere, and nothing more is asked of the lost one."""

    def lose(lab: Lab) -> None:
        lab.hosts[SECOND].unanswered = 10**6

    with_two = {f"t{n:02}": (lambda lab: lose(lab) if runs_on_second(lab) else None) for n in range(3, 20)}
    lab, outcome = investigate(tmp_path, slow(stack(BROKEN)), stack(BROKEN), deeds=with_two)
    assert (ExitCode.CONCLUDED, BROKEN.rules[0].needs) == (outcome.code, frozenset(outcome.verdict.cause))
    assert "no answer" in left(lab)[SECOND]
    (lost,) = {trial for (trial, number) in placed(lab) if number == 2}
    assert [SECOND, FIRST] == [placed(lab)[lost, attempt] for attempt in (1, 2)]


def test_a_target_that_changes_before_a_start_is_left(tmp_path: Path) -> None:
    """Though nothing was launched there any more, it is that target which has changed, and no other."""

    def change(lab: Lab) -> None:
        lab.hosts[SECOND].around = {"kernel": "6.9"}

    lab, outcome = investigate(tmp_path, slow(stack(BROKEN)), stack(BROKEN), judged={"bad-on-2": change})
    assert (ExitCode.CONCLUDED, BROKEN.rules[0].needs) == (outcome.code, frozenset(outcome.verdict.cause))
    assert "the environment changed since the first trial: kernel: 6.8 → 6.9" in left(lab)[SECOND]
    assert outcome.verdict == verify(lab.folder).verdict


def runs_on_second(lab: Lab) -> bool:
    """Whether the attempt launched last runs on the second target."""
    last = [e.event for e in lab.journal.entries if isinstance(e.event, Launching)][-1]
    return last.target == SECOND


def test_what_does_not_die_on_any_target_ends_the_run(tmp_path: Path) -> None:
    """Whoever comes in the morning must look at that one."""

    def undying(configuration: Configuration, start: int) -> Behaviour:
        return replace(stack(BROKEN)(configuration, start), undying=configuration == ALONE.bad)

    _, outcome = investigate(tmp_path, slow(stack(BROKEN)), undying)
    assert ExitCode.NOT_RESTORED is outcome.code


def test_the_verdict_tells_of_a_pair_on_two_targets(tmp_path: Path) -> None:
    """What tells the two runs apart is then not the setting alone, unless a failing run lies beside it."""
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"})
    world = World((Rule(frozenset({setting("a=1"), setting("b=1")})),))
    lab, outcome = investigate(tmp_path, stack(world, playbook), playbook=playbook)
    pair = outcome.verdict.pairs[0]

    def told(*elsewhere: str) -> list[str]:
        """What the verdict leaves open, had these trials run on a second target."""
        found = conclude(on(2, playbook), events.fold(had(lab, *elsewhere)), "0").unknown
        return [text for text in found if text.startswith(f"whether {pair.setting} matters on one target")]

    assert [] == told()
    assert [] == told(pair.passing, pair.again)
    assert [] == told(pair.failing)
    (said,) = told(pair.passing)
    assert f"{pair.passing} ran on target 2, {pair.again} elsewhere" in said


def had(lab: Lab, *elsewhere: str) -> list[events.Entry]:
    """The journal, had these trials run on a second target."""
    return [
        replace(entry, event=entry.event.model_copy(update={"target": SECOND}))
        if isinstance(entry.event, Launching | Closed) and entry.event.trial in elsewhere
        else entry
        for entry in lab.journal.entries
    ]


def test_a_pair_is_run_again_by_hand_on_one_target(tmp_path: Path) -> None:
    """The failing run that is shown is the one beside the passing one; else each says where it ran."""
    lab, outcome = investigate(tmp_path, stack(BROKEN), playbook=ALONE)
    (pair,) = outcome.verdict.pairs

    def shown(*elsewhere: str) -> list[tuple[str, bool]]:
        """The trials shown by hand, and whether they are on the second target."""
        entries, path = had(lab, *elsewhere), str(lab.folder.path)
        found = gather(on(2), entries, outcome.verdict, path, lab.folder.read)
        return [(block.trial, "# on ssh://box-2" in block.lines) for block in found.by_hand]

    assert [(pair.failing, False), (pair.passing, False)] == shown()
    assert [(pair.again, False), (pair.passing, False)] == shown(pair.failing)
    assert [(pair.failing, True), (pair.passing, False)] == shown(pair.failing, pair.again)


@pytest.mark.parametrize("trials", range(1, 8))
def test_no_more_attempts_are_made_than_allowed(tmp_path: Path, trials: int) -> None:
    """Those in flight elsewhere count, too."""
    playbook = on(3)
    limits = playbook.limits.model_copy(update={"trials": trials})
    playbook = playbook.model_copy(update={"limits": limits})
    lab, outcome = investigate(tmp_path, *[stack(BROKEN)] * 3, playbook=playbook)
    assert ExitCode.BUDGET is outcome.code
    assert trials == len([trial for trial, _ in placed(lab) if not trial.startswith("restore")])


def test_the_last_proof_is_run_where_it_was_not_yet(tmp_path: Path) -> None:
    """So that each side of a pair is seen on the target of the other, where runs allow it."""
    lab, outcome = investigate(tmp_path, slow(stack(BROKEN)), stack(BROKEN))
    configuration = lab.engine.state.trial(outcome.verdict.pairs[0].failing).configuration
    runs = [s.trial.id for s in lab.engine.state.settled() if s.trial.configuration == configuration]
    assert len(runs) > 1
    assert {FIRST, SECOND} == {placed(lab)[name, 1] for name in runs}


def test_an_idle_target_is_kept(tmp_path: Path) -> None:
    """Its lease is renewed while nothing runs there, or its guardian would take it for abandoned."""
    playbook = on(2)
    playbook = playbook.model_copy(update={"limits": playbook.limits.model_copy(update={"lease": 6.0})})
    lab, _ = investigate(tmp_path, slow(stack(BROKEN)), stack(BROKEN), playbook=playbook)
    told = [argv[4] for argv in lab.hosts[SECOND].calls if argv[3:4] and argv[3].endswith("/guardian.py")]
    assert "renew" in told
    assert "release" == told[-1]


def test_a_run_is_taken_up_on_all_targets(tmp_path: Path) -> None:
    """What was begun on a target goes on there; what it has shown of itself still counts."""
    playbook = on(2)
    deeds = {"t03": lambda lab: lab.engine.interrupt()}
    lab, outcome = investigate(tmp_path, slow(stack(BROKEN)), stack(BROKEN), deeds=deeds)
    assert ExitCode.INTERRUPTED is outcome.code
    tags = iter(range(500, 900))
    with Journal(lab.folder.path, lab.clock.time) as journal:
        for edge in lab.edges.values():
            edge.launcher.guard(PLAN)
        engine = Engine(
            playbook, lab.folder, journal, lab.edges, "0", lambda _: None, lambda: f"{next(tags):08}"
        )
        engine.begin(Resumed(versions={}, reopens=True))
        again = engine.run()
    assert (ExitCode.CONCLUDED, BROKEN.rules[0].needs) == (again.code, frozenset(again.verdict.cause))
    shown = [s.trial.id for s in engine.state.settled(shows=SECOND) if isinstance(s.outcome, Passed)]
    assert ["good-on-2"] == shown
    assert again.verdict == verify(lab.folder).verdict


# --- one state for each -----------------------------------------------------------------------------


def test_an_event_without_a_number_is_the_first_ones() -> None:
    """So a run of one target is written as it always was."""
    event = events.TargetSurveyed(folder="/srv", facts={})
    assert "target" not in event.model_dump()
    assert FIRST == event.target
    assert SECOND == events.TargetSurveyed(target=SECOND, folder="/srv", facts={}).model_dump()["target"]


def test_a_target_that_was_left_is_tried_again_by_a_later_process() -> None:
    """Whatever was wrong there may have been mended since."""
    state = RunState(targets={SECOND: events.OnTarget(left="it was full")}, state="searching")
    for reopens in (False, True):
        resumed = events.apply(state, events.Entry(1, 0.0, Resumed(versions={}, reopens=reopens)))
        assert "" == resumed.on(SECOND).left


# --- what makes two alike ---------------------------------------------------------------------------

HERE = {
    "kernel": "6.8",
    "gpu driver": "580",
    "gpu GPU-1": "H200",
    "gpu GPU-2": "H200",
    "package torch": "2.11 of 2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, ()),
        ({"package torch": "2.11 of 2026-02-02T00:00:00Z"}, ()),
        ({"gpu GPU-1": None, "gpu GPU-9": "H200"}, ()),
        ({"package torch": "2.12 of 2026-01-01T00:00:00Z"}, ("package torch: 2.11 on the first, 2.12 here",)),
        ({"gpu GPU-2": "H100"}, ("gpu: H200, H200 on the first, H100, H200 here",)),
        ({"gpu GPU-2": None}, ("gpu: H200, H200 on the first, H200 here",)),
        ({"kernel": "5.4"}, ("kernel: 6.8 on the first, 5.4 here",)),
        ({"package triton": "3 of 2026-01-01T00:00:00Z"}, ("package triton: none on the first, 3 here",)),
    ],
)
def test_targets_are_alike_but_for_what_is_their_own(
    change: Mapping[str, str | None], found: tuple[str, ...]
) -> None:
    """Which GPUs they are, and when a package was installed there, tells nothing."""
    parts = {name: told for name, told in {**HERE, **change}.items() if told is not None}
    assert found == unlike(Fingerprint(parts=HERE), Fingerprint(parts=parts))


def test_what_is_not_known_of_one_is_not_compared() -> None:
    """A target on which nobody can read a part is not unlike for that."""
    parts = {name: told for name, told in HERE.items() if not name.startswith("package")}
    assert () == unlike(Fingerprint(parts=HERE), Fingerprint(parts=parts, unread={"package": "no Python"}))
    assert unlike(Fingerprint(parts=HERE), Fingerprint(parts=parts))
