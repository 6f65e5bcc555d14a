"""What many searches come to: means, verdicts, intervals, and the tables that show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from bisect_agent.rates import interval
from tests.bench.searches.oracle import OK
from tests.bench.searches.ours import Searched
from tests.bench.searches.scenarios import Placement, Scenario, Verdict

LETTERS = {Verdict.RIGHT: "R", Verdict.PART: "P", Verdict.OPEN: "N", Verdict.WRONG: "W"}


@dataclass(frozen=True)
class Score:
    """What a searcher did in the placements of a scenario; `note` says why it was not in any.

    `passing` of its runs worked: on a real target these are the dear ones.
    """

    searcher: str
    scenario: str
    runs: tuple[int, ...] = ()
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    passing: int = 0
    note: str = ""

    @classmethod
    def of(cls, searcher: str, searched: Iterable[tuple[Placement, Searched]], scenario: str) -> Score:
        """Its searches, held against the truth."""
        pairs = list(searched)
        verdicts = Counter(placement.held(it.claim) for placement, it in pairs)
        passing = sum(shows == OK for _, it in pairs for _, shows in it.runs)
        return cls(searcher, scenario, tuple(len(it.runs) for _, it in pairs), verdicts, passing)

    def __add__(self, other: Score) -> Score:
        """The same searcher in more placements."""
        return Score(
            self.searcher,
            self.scenario,
            self.runs + other.runs,
            self.verdicts + other.verdicts,
            self.passing + other.passing,
            self.note or other.note,
        )

    @property
    def wrong(self) -> tuple[float, float]:
        """Where the rate of wrong verdicts lies, at 95 %."""
        return interval(self.verdicts[Verdict.WRONG], len(self.runs))

    def plain(self) -> Mapping[str, object]:
        """For JSON."""
        low, high = self.wrong
        counts = {verdict.value: self.verdicts[verdict] for verdict in Verdict}
        who = {"searcher": self.searcher, "scenario": self.scenario, "placements": len(self.runs)}
        if not self.runs:
            return {**who, "note": self.note}
        runs = {"mean": mean(self.runs), "most": max(self.runs), "passing": self.passing / len(self.runs)}
        return {**who, **runs, **counts, "wrong_low": low, "wrong_high": high}

    def cell(self) -> str:
        """The mean of runs, and the verdicts where they are not all right."""
        if not self.runs:
            return self.note.partition(":")[0] or "-"
        all_right = self.verdicts[Verdict.RIGHT] == len(self.runs)
        counts = (f"{self.verdicts[v]}{letter}" for v, letter in LETTERS.items() if self.verdicts[v])
        return f"{mean(self.runs):.1f}" + ("" if all_right else " " + " ".join(counts))


# --- tables ---------------------------------------------------------------------------------------------


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if n == 0 else text.rjust(width)
            for n, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def of_ours(scenarios: Sequence[Scenario], ours: Sequence[Score], agreed: Mapping[str, str]) -> str:
    """Our search in full: how it stands to its bar and to what is possible."""
    head = [
        "ours",
        "worlds",
        "bound",
        "mean",
        "bar",
        "",
        "pass",
        "most",
        "right",
        "part",
        "open",
        "wrong",
        "95 %",
    ]
    rows = [[*head, "command"]]
    for scenario, score in zip(scenarios, ours, strict=True):
        edges = [f"{scenario.bound:.1f}", "-", f"{scenario.bar:g}"]
        if not score.runs:
            rows.append([scenario.name, "0", *edges, score.cell(), *[""] * 7, agreed.get(scenario.name, "-")])
            continue
        low, high = score.wrong
        edges[1] = f"{mean(score.runs):.2f}"
        rows.append(
            [
                scenario.name,
                str(len(score.runs)),
                *edges,
                "" if mean(score.runs) <= scenario.bar else "missed",
                f"{score.passing / len(score.runs):.1f}",
                str(max(score.runs)),
                *(str(score.verdicts[v]) for v in Verdict),
                f"{low:.1%}-{high:.1%}",
                agreed.get(scenario.name, "-"),
            ]
        )
    return aligned(rows)


def overall(scores: Sequence[Score]) -> str:
    """Our verdicts over all worlds."""
    verdicts = sum((score.verdicts for score in scores), Counter[Verdict]())
    worlds = verdicts.total()
    counts = ", ".join(f"{verdicts[v]} {v}" for v in Verdict)
    share = verdicts[Verdict.RIGHT] / worlds if worlds else 0
    return f"ours in {worlds} worlds: {counts}; right in {share:.2%}"


def of_all(scenarios: Sequence[Scenario], rows: Sequence[Sequence[Score]]) -> str:
    """Every searcher beside the bound."""
    head = ["mean runs", "bound", *(row[0].searcher for row in rows)]
    body = [
        [scenario.name, f"{scenario.bound:.1f}", *(row[n].cell() for row in rows)]
        for n, scenario in enumerate(scenarios)
    ]
    return aligned([head, *body])
