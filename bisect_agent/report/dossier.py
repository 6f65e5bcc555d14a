"""What a report shows beside the verdict, as values: every form of it shows the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bisect_agent.model import Evidence


@dataclass(frozen=True)
class Near:
    """A line of a file, near one that is evidence; its text is safe to show.

    `number` is its number in that file. `cited` is the evidence itself; `late` was written after our
    stop began, so it is no evidence.
    """

    number: int
    text: str
    cited: bool = False
    late: bool = False


@dataclass(frozen=True)
class Meaning:
    """What a failure means, in words, and the class of failure that it is of; empty where not known."""

    text: str = ""
    topic: str = ""


@dataclass(frozen=True)
class Move:
    """A state that a hypothesis came to; `trial` brought it there, None where no more was to come."""

    state: str
    trial: str | None


@dataclass(frozen=True)
class Background:
    """Why a claim may be true, and the way that it went."""

    mechanism: str = ""
    path: tuple[Move, ...] = ()


@dataclass(frozen=True)
class Advice:
    """A step to take next; `hypothesis` is the supported claim that it follows from, if it does."""

    text: str
    hypothesis: str = ""
    command: str = ""


@dataclass(frozen=True)
class ByHand:
    """The lines of shell that run a trial's configuration again, and what was seen when it ran.

    `changed` are the places, in `lines`, of those that the failing side of the pair has otherwise.
    """

    trial: str
    title: str
    seen: str
    lines: tuple[str, ...]
    changed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Fact:
    """Something that was looked at in an attempt.

    `ok` is None where it is neither well nor amiss. `copied` says that `said` are not our own words.
    """

    name: str
    said: str
    ok: bool | None = None
    evidence: Evidence | None = None
    copied: bool = False


@dataclass(frozen=True)
class Checked:
    """One attempt, and all that was looked at in it.

    `change` is what it changed, or which control it was; `asked` the question that it was to answer;
    `said` the failure, or why it says nothing. `began` is in seconds since the epoch.
    """

    trial: str
    attempt: int
    change: str
    asked: str
    outcome: str
    said: str
    phase: str
    began: float
    seconds: float
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Dossier:
    """What is shown beside the verdict. Times are in seconds since the epoch.

    Attributes:
        title: what the run is about.
        began: when its first event was recorded.
        ended: when its last one was.
        exit_code: how it ended, None where it has not.
        levels: how each setting of a pair is set, by its name.
        meanings: of each failure seen, by its id.
        backgrounds: of each hypothesis, by its id.
        advice: what to do next, the most urgent first.
        by_hand: how to run the decisive pairs again; the failing side is the first.
        asks: the lines of shell that ask a server as the attempts did.
        near: the lines around evidence, by the file's name and the line's offset in the whole log.
        checked: the attempts, the restore's too, and what was looked at in each.
        target: read-only facts of the target, before anything was started there.
        record: names and hashes of what was run, and by what.
    """

    title: str
    began: float = 0.0
    ended: float = 0.0
    exit_code: int | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    backgrounds: Mapping[str, Background] = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()
    by_hand: tuple[ByHand, ...] = ()
    asks: tuple[str, ...] = ()
    near: Mapping[tuple[str, int], tuple[Near, ...]] = field(default_factory=dict)
    checked: tuple[Checked, ...] = ()
    target: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, str] = field(default_factory=dict)

    def around(self, evidence: Evidence) -> tuple[Near, ...]:
        """The lines around a piece of evidence, itself among them; none where there is nothing around it."""
        found = self.near.get((evidence.path, evidence.offset), ())
        return found if len(found) > 1 else ()

    def background(self, hypothesis: str) -> Background:
        """What is known of a hypothesis beside its state."""
        return self.backgrounds.get(hypothesis, Background())
