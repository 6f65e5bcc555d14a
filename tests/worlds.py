"""Worlds: what is true of a stack, so that tests can hold what is concluded against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bisect_agent import search
from bisect_agent.model import (
    Applied,
    Bounds,
    Configuration,
    EnvFactor,
    Evidence,
    Failed,
    HttpRequest,
    Hypothesis,
    Kind,
    Limits,
    LogWitness,
    Observe,
    Passed,
    PhaseMark,
    Playbook,
    Reason,
    Role,
    Setting,
    Settled,
    Signature,
    StoppedBy,
    Symptom,
    SymptomKind,
    Target,
    Trial,
    Unresolved,
)

PORT = 30000
SYMPTOMS = ("boom", "bang", "crack")
"""The root signatures of every playbook of these tests; a log shows one as `error: boom`."""
HANGS = ("hang in load", "hang in capture")
"""The silences of these tests: one failure in each phase."""
READY = "ready to serve"


def setting(text: str) -> Setting:
    """`factor=level` as a setting."""
    factor, level = text.split("=")
    return Setting(factor=factor, level=level)


def evidence(text: str) -> Evidence:
    """A line of some log."""
    return Evidence(path="server.log", line=1, offset=0, text=text, sha256="0" * 64)


def symptom(name: str = "boom", phase: str = "") -> Symptom:
    """A failure with a root signature, or, where its name says so, a silence."""
    if name in HANGS:
        stands = name.removeprefix("hang in ")
        return Symptom(kind=SymptomKind.HANG, id="hang", text=name, phase=stands, phase_matters=True)
    return Symptom(kind=SymptomKind.SIGNATURE, id=name, text=f"error: {name}", phase=phase)


def playbook_of(
    levels: Mapping[str, Sequence[str]],
    bad: Mapping[str, str],
    *,
    good: Mapping[str, str] | None = None,
    suspects: Iterable[str] | None = None,
    hypotheses: Sequence[Hypothesis] = (),
    ordered: str = "",
    requires: Mapping[str, str] | None = None,
    excludes: Mapping[str, str] | None = None,
    every_cause: bool = False,
    error: float | None = None,
) -> Playbook:
    """A server's playbook over factors whose first level is the default.

    Every factor is an environment variable of its own name in capitals, whose value is the level, and
    has a witness. `ordered` names factors; `requires` and `excludes` give, for a setting, the settings of
    others that it goes with, or that it does not.
    """
    default = {name: found[0] for name, found in levels.items()}
    works, fails = Configuration({**default, **(good or {})}), Configuration({**default, **bad})
    equal = [name for name in levels if works[name] == fails[name]]
    return Playbook(
        title="a world",
        kind=Kind.SERVER,
        target=Target(host="local", ports=(PORT,), cwd="/srv"),
        launch="exec serve\n",
        factors=tuple(
            EnvFactor(
                name=name,
                env=name.upper(),
                levels={v: v for v in found},
                witness=LogWitness(log=f"{name} is {{level}}"),
                ordered=name in ordered.split(),
                requires=bounds_of(name, requires or {}),
                excludes=bounds_of(name, excludes or {}),
            )
            for name, found in levels.items()
        ),
        good=works,
        bad=fails,
        suspects=tuple(name for name in equal if suspects is None or name in suspects),
        observe=Observe(
            ready_log=READY,
            ready_http="/health",
            request=HttpRequest(path="/generate", body='{"prompt":"?"}', same_as_good=True),
            signatures=tuple(
                Signature(id=s, role=Role.ROOT, pattern=f"error: {s}", fatal=True) for s in SYMPTOMS
            ),
            phases=(PhaseMark(name="load", begin="loading"), PhaseMark(name="capture", begin="capturing")),
        ),
        signatures=(),
        hypotheses=tuple(hypotheses),
        limits=Limits(start=300, quiet=60, request=60, stop=1, trials=40, wall=100_000),
        restore="good",
        every_cause=every_cause,
        error=error,
    )


def bounds_of(factor: str, bounds: Mapping[str, str]) -> Bounds:
    """What the bounds say of a factor's levels."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for text, others in bounds.items():
        if (own := setting(text)).factor == factor:
            levels = found.setdefault(own.level, {})
            for other in map(setting, others.split()):
                levels[other.factor] = (*levels.get(other.factor, ()), other.level)
    return found


def claim(name: str, involves: str = "", excludes: str = "", **more: object) -> Hypothesis:
    """A hypothesis over factors named in two texts."""
    return Hypothesis.model_validate(
        {
            "id": name,
            "family": "tests",
            "claim": f"it is {name}",
            "involves": involves.split(),
            "excludes": excludes.split(),
            **more,
        }
    )


@dataclass(frozen=True)
class Rule:
    """A configuration that holds all of these settings shows this symptom, or, where it is None, works."""

    needs: frozenset[Setting]
    symptom: str | None = "boom"


@dataclass(frozen=True)
class World:
    """A stack: the first rule that a configuration meets says what it does; with none it works.

    Attributes:
        rules: the ways to fail, and exceptions to them.
        silent: factors that never show their level in the log.
        stubborn: factors that stay as in `bad`, whatever is set, and say so.
        lying: factors that stay at a level, whatever is set, and say that they do not.
        lost: configurations whose every attempt is lost on the way.
        untestable: settings with which the script says that nothing can be tested.
        facts: hypotheses that the log of every failure contradicts.
    """

    rules: tuple[Rule, ...]
    silent: frozenset[str] = frozenset()
    stubborn: frozenset[str] = frozenset()
    lying: frozenset[Setting] = frozenset()
    lost: frozenset[Configuration] = frozenset()
    untestable: frozenset[Setting] = frozenset()
    facts: frozenset[str] = frozenset()

    def symptom(self, configuration: Configuration) -> str | None:
        """How a configuration fails; None where it works."""
        held = set(configuration.replace(self.lying).settings())
        return next((rule.symptom for rule in self.rules if rule.needs <= held), None)

    def settle(self, playbook: Playbook, trial: Trial) -> Settled:
        """The last word about a trial in this world."""
        configuration = trial.configuration
        shown = {f.name for f in playbook.factors} - self.silent
        failed = self.symptom(configuration)
        kept = [s for s in configuration.differs(playbook.bad) if s.factor in self.stubborn]
        outcome: Passed | Failed | Unresolved = Failed(symptom=symptom(failed)) if failed else Passed()
        if kept:
            outcome = Unresolved(reason=Reason.NOT_APPLIED, detail=f"{kept[0]} did not take effect")
        if self.untestable & set(configuration.settings()):
            outcome = Unresolved(reason=Reason.UNTESTABLE, detail="exit code 125")
        if configuration in self.lost:
            outcome = Unresolved(reason=Reason.UNREACHABLE, detail="no answer")
        return Settled(
            trial=trial,
            attempt=1,
            outcome=outcome,
            applied={
                f.name: Applied.WITNESSED if f.name in shown else Applied.NOT_WITNESSED
                for f in playbook.factors
            },
            contradicts={name: evidence("it is off") for name in self.facts if failed},
        )


@dataclass(frozen=True)
class Played:
    """A whole search. `flights` are the trials in flight at each moment."""

    settled: tuple[Settled, ...]
    planned: tuple[Trial, ...]
    flights: tuple[tuple[Trial, ...], ...]
    finished: search.Finished

    @property
    def trials(self) -> dict[str, Settled]:
        """The settled trials by their ids."""
        return {s.trial.id: s for s in self.settled}

    @property
    def attempts(self) -> int:
        """How many attempts the settled trials took."""
        return sum(s.attempt for s in self.settled)


ENOUGH = 200
"""No search of these tests may take more trials."""
ATTEMPTS = 3
"""So many attempts a trial gets while they are lost on the way."""


def play(
    playbook: Playbook,
    world: World,
    capacity: int = 1,
    landing: Random | None = None,
    *,
    loss: float = 0.0,
    rate: float = 1.0,
    limit: int = 10**6,
) -> Played:
    """Searches a world to the end, or until `limit` attempts were made.

    `landing` picks which trial in flight lands next, which attempts are lost (a share of `loss`), and in
    which runs a failure shows itself (a share of `rate`).
    """
    dice = landing or Random(0)  # noqa: S311  # an order, not a secret
    settled: list[Settled] = []
    flying: list[Trial] = []
    planned: list[Trial] = []
    flights: list[tuple[Trial, ...]] = []
    made = 0
    while len(planned) < ENOUGH:
        step = search.step(playbook, settled, flying, capacity)
        if isinstance(step, search.Finished):
            return Played(tuple(settled), tuple(planned), tuple(flights), step)
        wanted = [w.trial for w in step.wanted]
        planned += wanted
        flying += wanted
        flights.append(tuple(flying))
        settles = world.settle(playbook, flying.pop(dice.randrange(len(flying))))
        if isinstance(settles.outcome, Failed) and dice.random() >= rate:
            settles = settles.model_copy(update={"outcome": Passed()})
        landed = _attempted(settles, dice, loss)
        made += landed.attempt
        if made > limit:
            spent = search.Finished(StoppedBy.BUDGET)
            return Played(tuple(settled), tuple(planned), tuple(flights), spent)
        settled.append(landed)
    raise AssertionError(f"the search does not end: {[t.label for t in planned]}")


def _attempted(settled: Settled, dice: Random, loss: float) -> Settled:
    """The trial after attempts of which each may be lost; the last word is the last one's."""
    for number in range(1, ATTEMPTS + 1):
        if dice.random() >= loss:
            return settled.model_copy(update={"attempt": number})
    lost = Unresolved(reason=Reason.UNREACHABLE, detail="no answer")
    return Settled(trial=settled.trial, attempt=ATTEMPTS, outcome=lost)
