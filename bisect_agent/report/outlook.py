"""What lies ahead of a run, as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bisect_agent.plan import Ahead, Count
from bisect_agent.report.words import lasting
from bisect_agent.search import Finished
from bisect_agent.steer import Costs

_NUMBERS = {1: "one setting is", 2: "two settings together are", 3: "three settings together are"}


def lines(
    ahead: Ahead | Finished | None, counts: Sequence[Count], costs: Costs | None, *, flaky: bool
) -> Iterator[str]:
    """The trials ahead by what the ones before them show; then how many a search takes."""
    yield "the trials ahead; what fails otherwise, or does not resolve, leads elsewhere"
    yield from _tree(ahead, "  ")
    each = ", where each failure shows itself" if flaky else ""
    yield f"how many trials from the first to the verdict, with all suspects innocent{each}"
    yield from (f"  {_count(count)}" for count in counts)
    if costs is not None:
        fails, passes = lasting(costs.fails), lasting(costs.passes)
        yield f"at {fails} an attempt that fails and {passes} one that passes, as they were so far"


def _tree(node: Ahead | Finished | None, indent: str, case: str = "") -> Iterator[str]:
    match node:
        case None:
            return
        case Finished(by=by, detail=detail):
            yield f"{indent}{case}{by}: {detail}" if detail else f"{indent}{case}{by}"
        case Ahead(trial=trial, why=why, fails=fails):
            yield f"{indent}{case}{trial.id} {trial.label}: {why}"
            if node.after_failure is not None and node.after_pass is not None:
                yield from _tree(node.after_failure, f"{indent}  ", f"if it fails ({fails:.0%}): ")
                yield from _tree(node.after_pass, f"{indent}  ", f"if it passes ({1 - fails:.0%}): ")
            else:
                yield from _tree(node.after_failure or node.after_pass, indent)


def _count(count: Count) -> str:
    time = f", {lasting(count.seconds)}" if count.seconds is not None else ""
    return (
        f"{_NUMBERS[count.size]} the cause: {count.mean:.1f} trials in the mean{time},"
        f" {count.most} at most ({count.of} searched)"
    )
