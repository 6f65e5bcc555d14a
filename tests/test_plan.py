"""What lies ahead of a search."""

from __future__ import annotations

from hypothesis import given

from bisect_agent import plan, search
from bisect_agent.model import Playbook
from bisect_agent.plan import Ahead
from bisect_agent.report import outlook
from bisect_agent.steer import Costs
from tests.strategies import FEW, playbooks
from tests.worlds import Rule, World, play, playbook_of, setting

SIXTEEN = "abcdefghijklmnop"
BOOK = playbook_of(dict.fromkeys(SIXTEEN, "01"), dict.fromkeys(SIXTEEN, "1"))


def path(node: Ahead | search.Finished | None, fails: list[bool]) -> list[str]:
    """The labels of the trials on one way through the tree."""
    found: list[str] = []
    for failed in fails:
        if not isinstance(node, Ahead):
            break
        found.append(node.trial.label)
        node = node.after_failure if failed else node.after_pass
    return found


def test_the_tree_ahead_is_the_search_itself() -> None:
    """On the way that a world takes, the trials are those that are run in it."""
    world = World((Rule(frozenset({setting("f=1")})),))
    planned = play(BOOK, world).planned[:6]
    fails = [world.symptom(trial.configuration) is not None for trial in planned]
    assert [trial.label for trial in planned] == path(plan.tree(BOOK, (), 6), fails)


def test_the_tree_goes_on_where_a_run_stands() -> None:
    """What has settled is not asked again."""
    world = World((Rule(frozenset({setting("f=1")})),))
    played = play(BOOK, world)
    node = plan.tree(BOOK, played.settled[:4], 1)
    assert isinstance(node, Ahead)
    assert played.planned[4].label == node.trial.label
    assert isinstance(plan.tree(BOOK, played.settled, 3), search.Finished)


def test_the_count_is_what_the_searches_take() -> None:
    """Of one setting among sixteen: each of them, searched to the end."""
    took = [len(play(BOOK, World((Rule(frozenset({setting(f"{x}=1")})),))).settled) for x in SIXTEEN]
    one, two, three = plan.counts(BOOK)
    assert (sum(took) / 16, max(took), 16) == (one.mean, one.most, one.of)
    assert one.mean < two.mean < three.mean
    assert 2 * plan.SAMPLE >= two.of >= plan.SAMPLE / 2


def test_an_order_counts_from_its_last_level_on() -> None:
    """The last version alone fails: that is one cause, and takes as many trials as halving does."""
    levels = [f"v{n}" for n in range(8)]
    playbook = playbook_of({"v": levels}, {"v": "v7"}, ordered="v")
    (count,) = plan.counts(playbook)
    assert (1, 6) == (count.of, count.most)


def test_expected_times_are_those_of_the_attempts() -> None:
    """A search of the first kind fails and passes as often as it does, at so many seconds each."""
    (count,) = plan.counts(playbook_of({"a": "01"}, {"a": "1"}), Costs(fails=10, passes=100))
    assert 100 + 2 * 10 == count.seconds


@FEW
@given(playbooks())
def test_every_branch_ends_or_goes_on(playbook: Playbook) -> None:
    """No depth and no outcome makes the search stumble."""

    def ends(node: Ahead | search.Finished | None, depth: int) -> bool:
        if not isinstance(node, Ahead):
            return node is None or bool(node.by)
        return depth > 0 and ends(node.after_failure, depth - 1) and ends(node.after_pass, depth - 1)

    assert ends(plan.tree(playbook, (), 5), 5)


def test_the_outlook_is_told_in_lines() -> None:
    """Each way out with its probability."""
    playbook = playbook_of({"a": "01", "b": "01"}, {"a": "1", "b": "1"})
    told = list(
        outlook.lines(plan.tree(playbook, (), 4), list(plan.counts(playbook)), Costs(20, 300), flaky=False)
    )
    assert [
        "the trials ahead; what fails otherwise, or does not resolve, leads elsewhere",
        "  t01 good: it must be seen to work first",
        "  t02 bad: it must be seen to fail",
        "  t03 b=0: is a=1 enough? everything else is as in `good`; it fails with 47%",
        "    if it fails (47%): t04 b=0: it must fail once more, after the last passing trial",
        "    if it passes (53%): t04 a=0: is b=1 enough? everything else is as in `good`; it fails with 90%",
        "how many trials from the first to the verdict, with all suspects innocent",
        "  one setting is the cause: 4.5 trials in the mean, 5 at most (2 searched)",
        "  two settings together are the cause: 5.0 trials in the mean, 5 at most (1 searched)",
        "at 20 s an attempt that fails and 5 min 0 s one that passes, as they were so far",
    ] == told
