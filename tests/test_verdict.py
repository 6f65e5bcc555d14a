"""The verdict: what it says, and that every sentence has an address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings

from bisect_agent.engine import Outcome
from bisect_agent.folder import RunFolder
from bisect_agent.lines import excerpt
from bisect_agent.model import Configuration, Evidence, Playbook, Profile, State
from bisect_agent.tree import Node
from bisect_agent.verdict import Verdict
from bisect_agent.verify import verify
from tests.fakes import Behaviour, Lab, stack_of
from tests.strategies import FEW, Case, cases
from tests.worlds import PORT, Rule, World, claim, playbook_of, setting

PLAYBOOK = playbook_of(
    {"compile": ("off", "on"), "kernel": ("mma", "stock"), "capture": ("on", "off")},
    {"compile": "on"},
    hypotheses=(
        claim("wide", "compile capture", "kernel", advice="give up one of the two"),
        claim("narrow", "compile capture kernel", advice="change the kernel"),
    ),
)
CLASH = Rule(frozenset({setting("compile=on"), setting("capture=on")}))


def investigated(path: Path, world: World, playbook: Playbook = PLAYBOOK) -> tuple[RunFolder, Outcome]:
    """The folder and the outcome of an investigation of a world."""
    with Lab(path, playbook, stack_of(world, playbook)) as lab:
        return lab.folder, lab.begin().engine.run()


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """The verdict of the incident."""
    return investigated(tmp_path_factory.mktemp("verdict") / "run", World((CLASH,)))[1].verdict


def nodes(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for child in node.children:
        yield from nodes(child)


def addresses(verdict: Verdict) -> list[Evidence]:
    """Every line that a verdict names anywhere."""
    found = [line for node in nodes(verdict.tree) for line in node.evidence]
    found += [line for trial in verdict.trials for line in trial.evidence]
    found += [line for symptom in (verdict.symptom, *verdict.leads) if symptom for line in symptom.evidence]
    return [*found, *verdict.good_first.evidence, *verdict.good_restored.evidence]


def true_of(folder: RunFolder, line: Evidence) -> bool:
    """Whether the file has that line, at that number and offset, and that hash."""
    data = folder.read(line.path)
    text = data[line.offset :].split(b"\n")[0].decode()
    number = 1 + data[: line.offset].count(b"\n")
    return (line.sha256, line.line, line.text) == (sha256(data).hexdigest(), number, excerpt(text))


@settings(FEW, max_examples=5)
@given(cases())
def test_every_line_that_is_named_is_there(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    """Path, number, offset, text and hash: a claim without an address is an opinion."""
    folder, outcome = investigated(tmp_path_factory.mktemp("verdict") / "run", case.world, case.playbook)
    found = addresses(outcome.verdict)
    assert [] == [line for line in found if not true_of(folder, line)]


@settings(FEW, max_examples=5)
@given(cases())
def test_a_verdict_survives_its_own_json(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    """What is published is all that is known."""
    folder, outcome = investigated(tmp_path_factory.mktemp("verdict") / "run", case.world, case.playbook)
    assert outcome.verdict == Verdict.model_validate_json(folder.read("verdict.json"))


def test_the_cause_is_on_top(incident: Verdict) -> None:
    """A person reads one line."""
    assert "compile=on × capture=on is the cause" == incident.tree.text
    assert (True, (incident.cause,)) == (incident.established, incident.causes)


def test_what_was_planned_and_what_came_stand_together(incident: Verdict) -> None:
    """One entry per attempt, with the prediction beside the outcome."""
    flip = next(t for t in incident.trials if t.id == "t03")
    assert ("t02", "failed", "boom", "capture") == (flip.parent, flip.outcome, flip.symptom, flip.phase)
    assert {"wide": "fails", "narrow": "passes"} == flip.predicted


def test_good_was_seen_to_work_first_and_last(incident: Verdict) -> None:
    """With the lines that show it (rule 10)."""
    assert [(True, "passed in t01"), (True, "it runs and answers")] == [
        (control.ok, control.reason) for control in (incident.good_first, incident.good_restored)
    ]
    assert all(control.evidence for control in (incident.good_first, incident.good_restored))


def test_only_supported_claims_advise(incident: Verdict) -> None:
    """Beside what was seen to heal."""
    advice = next(node for node in incident.tree.children if node.text == "advice")
    assert "give up one of the two" in [node.text for node in advice.children]
    assert "change the kernel" not in [node.text for node in advice.children]
    assert "compile=off heals it (t01); what it costs was not measured" in [n.text for n in advice.children]


def test_what_was_not_varied_is_unknown(tmp_path: Path) -> None:
    """A factor that nobody suspected is said to be untried (rule 13)."""
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1"}, suspects=())
    _, outcome = investigated(tmp_path / "run", World((Rule(frozenset({setting("a=1")})),)), playbook)
    assert ("whether it needs b: not among the suspects",) == outcome.verdict.unknown


def test_other_failures_are_leads_with_their_own_evidence(tmp_path: Path) -> None:
    """A flip that fails otherwise is no heal and no fail; it is listed."""
    world = World((Rule(frozenset({setting("kernel=stock")}), "bang"), CLASH))
    _, outcome = investigated(tmp_path / "run", world)
    assert [("bang", "error: bang")] == [(lead.id, lead.evidence[0].text) for lead in outcome.verdict.leads]
    assert {"wide": State.UNDECIDED, "narrow": State.UNDECIDED} == {
        h.id: h.state for h in outcome.verdict.hypotheses
    }


def test_nothing_established_says_why(tmp_path: Path) -> None:
    """And shows no pair and no cause."""
    _, outcome = investigated(tmp_path / "run", World(()))
    verdict = outcome.verdict
    assert "not established: `bad` passed 3 times" == verdict.tree.text
    assert (False, (), (), (), None) == (
        verdict.established,
        verdict.cause,
        verdict.causes,
        verdict.pairs,
        verdict.symptom,
    )


OR = playbook_of({"a": "012", "b": "01"}, {"a": "1", "b": "1"})
EITHER = World(tuple(Rule(frozenset({setting(x)})) for x in ("a=1", "a=2", "b=1")))
"""Either is enough: `a` at another level than good's, or `b`."""


@pytest.fixture(scope="module")
def either(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """The verdict where settings stand in for each other."""
    return investigated(tmp_path_factory.mktemp("either") / "run", EITHER, OR)[1].verdict


def part(verdict: Verdict, title: str) -> list[str]:
    """The sentences of a part of the tree."""
    return [n.text for node in verdict.tree.children if node.text == title for n in node.children]


def test_a_trial_is_told_from_its_parent(all_of_it: Verdict) -> None:
    """`good`, `bad`, or the trial that fails nearer to good; a group is called so."""
    told = part(all_of_it, "one change at a time")
    assert [
        "t03: bad with v=v1 fails with boom in capture (v=v1: witnessed)",
        "t04: t03 with the group v=v0, c=0 fails with boom in capture (v=v0: witnessed, c=0: witnessed)",
    ] == told[:2]
    assert "t12: good with v=v3 passes" in told


def test_what_heals_is_all_that_was_set_otherwise(either: Verdict) -> None:
    """Without `b` alone it still fails: the advice is what was seen to work, and what was run how often."""
    assert ["a=0 with b=0 heals it (t01); what it costs was not measured"] == part(either, "advice")
    assert either.confidence.statement.startswith("`good` with a=1 failed the same way 2 times out of 2; ")


@pytest.fixture(scope="module")
def all_of_it(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """The verdict where two causes are found, one of them along an order, and a bound hides something."""
    playbook = playbook_of(
        {"v": ("v0", "v1", "v2", "v3", "v4"), "a": "01", "b": "012", "c": "01"},
        {"v": "v4", "a": "1", "b": "1", "c": "1"},
        ordered="v",
        requires={"c=1": "b=1"},
        every_cause=True,
    )
    stops = Rule(frozenset({setting("v=v2"), setting("a=0")}), "bang")
    found = [Rule(frozenset({setting(f"v=v{n}"), setting("c=1")})) for n in (3, 4)]
    world = World((stops, *found, Rule(frozenset({setting("a=1")}))))
    return investigated(tmp_path_factory.mktemp("all") / "run", world, playbook)[1].verdict


def test_each_cause_is_named(all_of_it: Verdict) -> None:
    """The headline has all of them, and the first is `cause`."""
    first, second = (tuple(map(setting, way)) for way in (("a=1",), ("v=v3", "c=1")))
    assert ((first, second), first) == (all_of_it.causes, all_of_it.cause)
    assert "a=1 and v=v3 × c=1 are causes, each by itself" == all_of_it.tree.text
    assert ["a=1", "v=v3", "c=1"] == [str(pair.setting) for pair in all_of_it.pairs]


def test_every_level_of_an_order_is_told(all_of_it: Verdict) -> None:
    """What was run, what was not, and what no run could say."""
    assert (
        "v=v3 fails, v0 was not run, v1 passes (t08), v2 fails with bang in capture (t11),"
        " v4 fails with boom in capture (t07)"
    ) == part(all_of_it, "levels")[-1]


def test_what_bounds_and_levels_hide_is_unknown(all_of_it: Verdict) -> None:
    """The bound that left a factor unchanged, and the levels that say nothing of the boundary."""
    assert (
        "whether v=v3 × c=1 is enough without b=1 cannot be run: c=1 requires b=1",
        "where between v=v1, which passes, and v=v3, which fails, it begins: v2 fails otherwise (t11)",
    ) == all_of_it.unknown


def test_a_first_failing_level_that_does_not_show_is_told(tmp_path: Path) -> None:
    """It is accused by its pair; that it took effect was not seen itself."""
    playbook = playbook_of({"v": ("v0", "v1", "v2")}, {"v": "v2"}, ordered="v")
    world = World(tuple(Rule(frozenset({setting(f"v=v{n}")})) for n in (1, 2)), silent=frozenset({"v"}))
    verdict = investigated(tmp_path / "run", world, playbook)[1].verdict
    assert (
        "whether v=v1 took effect: it was not witnessed (t03); that v is read is shown by v=v0, which heals",
    ) == verdict.unknown


def test_another_cause_that_was_seen_and_not_asked_for_is_told(tmp_path: Path) -> None:
    """Two runs at once show that `bad` fails without either; the one that lands first is looked into."""
    beside = OR.target.model_copy(update={"ports": (PORT + 1,)})
    playbook, stack = OR.model_copy(update={"others": (beside,)}), stack_of(EITHER, OR)

    def late(configuration: Configuration, start: int) -> Behaviour:
        """By the time that its `bad` fails, the other target has shown its own."""
        found = stack(configuration, start)
        return replace(found, lines=tuple((at + 20.0, text) for at, text in found.lines))

    with Lab(tmp_path / "run", playbook, late, further=(stack,)) as lab:
        verdict = lab.begin().engine.run().verdict
    seen = {"a": "a=0 it still fails (t04)", "b": "b=0 it still fails (t03)"}[verdict.cause[0].factor]
    assert f"another cause: with {seen}; `causes: all` looks for it" == verdict.unknown[0]


def test_every_level_of_a_factor_is_told(either: Verdict) -> None:
    """Of a factor with more than two: what each one does, or that it was not run."""
    assert ["a=1 fails, 0 passes (t01), 2 was not run"] == part(either, "levels")


@pytest.fixture(scope="module")
def flaky(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """The verdict on a failure that shows itself in seven runs of ten, and needs two of five settings."""
    names = "abcde"
    playbook = playbook_of(dict.fromkeys(names, "01"), dict.fromkeys(names, "1"), error=0.01)
    playbook = playbook.model_copy(update={"limits": playbook.limits.model_copy(update={"trials": 120})})
    stack = stack_of(World((Rule(frozenset({setting("a=1"), setting("c=1")})),)), playbook)
    calm, dice = stack_of(World(()), playbook), Random(1)  # noqa: S311  # chance, not a secret

    def behave(configuration: Configuration, number: int) -> Behaviour:
        return (stack if dice.random() < 0.7 else calm)(configuration, number)

    with Lab(tmp_path_factory.mktemp("flaky") / "run", playbook, behave) as lab:
        outcome = lab.begin().engine.run()
        assert verify(lab.folder).verdict == outcome.verdict
    return outcome.verdict


def test_a_flaky_failure_has_rates_and_an_error(flaky: Verdict) -> None:
    """Of both sides of each pair, with where they lie; and what doubt is left of what is accused."""
    assert {setting("a=1"), setting("c=1")} == set(flaky.cause)
    failing, *passing = flaky.confidence.rates
    assert ("a=1 × c=1", {"a=1", "c=1"}) == (failing.configuration, {r.configuration for r in passing})
    assert [0, 0] == [r.failed for r in passing]
    assert failing.low < failing.failed / failing.runs <= failing.high
    assert flaky.confidence.error is not None
    assert flaky.confidence.error <= 0.01 == flaky.confidence.asked


def test_what_a_flaky_failure_leaves_open_is_said(flaky: Verdict) -> None:
    """How often each side failed, how long that took, and how likely the verdict is wrong."""
    said = flaky.confidence.statement
    assert said.startswith("a=1 × c=1 failed in ")
    assert "failures came after" in said
    assert said.endswith("likely, 0.01 is allowed")


def test_shared_caches_leave_something_unknown(tmp_path: Path) -> None:
    """Where the profile knows of caches, an attempt may have lived on what another one compiled."""
    playbook = playbook_of({"a": "01"}, {"a": "1"}).model_copy(
        update={"cached": "shared", "profile": Profile(name="torch")}
    )
    _, outcome = investigated(tmp_path / "run", World((Rule(frozenset({setting("a=1")})),)), playbook)
    assert "shared" == outcome.verdict.caches
    assert any("`caches: shared`" in unknown for unknown in outcome.verdict.unknown)
