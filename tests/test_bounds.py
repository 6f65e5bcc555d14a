"""What levels require and exclude of each other."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.bounds import bound, nearest
from bisect_agent.model import Playbook
from tests.strategies import FEW
from tests.worlds import playbook_of, setting

PLAYBOOK = playbook_of(
    {"compile": ("off", "on", "max"), "graphs": ("on", "off"), "bs": ("8", "64")},
    {"compile": "on", "bs": "64"},
    requires={"bs=64": "compile=on compile=max"},
    excludes={"graphs=off": "compile=max"},
)


def test_a_bound_is_told_in_a_sentence() -> None:
    """Who forbids what."""
    changes = (["compile=off"], ["compile=max", "graphs=off"], ["compile=max"])
    assert ["bs=64 requires compile=on or compile=max", "graphs=off excludes compile=max", ""] == [
        bound(PLAYBOOK, PLAYBOOK.bad.replace(map(setting, change))) for change in changes
    ]


@st.composite
def bounded(draw: st.DrawFn) -> Playbook:
    """Up to five factors that differ in `good` and `bad`, with bounds that both keep."""
    names = "abcde"[: draw(st.integers(2, 5))]
    texts = st.sampled_from([f"{name}={level}" for name in names for level in "01"])
    bounds = st.dictionaries(texts, texts, max_size=3)
    playbook = playbook_of(
        dict.fromkeys(names, "01"), dict.fromkeys(names, "1"), requires=draw(bounds), excludes=draw(bounds)
    )
    sides = (playbook.good, playbook.bad)
    return playbook if all(map(playbook.possible, sides)) else playbook_of({"a": "01", "b": "01"}, {"a": "1"})


@FEW
@given(bounded(), st.randoms(use_true_random=False))
def test_as_few_factors_stay_as_can_be(playbook: Playbook, dice: Random) -> None:
    """What is nearest is possible, lies on the way, and no possible configuration on the way is nearer."""
    bad = playbook.bad
    away = playbook.good.differs(bad)
    wanted = bad.replace(dice.sample(away, dice.randint(0, len(away))))
    found, changes = nearest(playbook, wanted, bad), wanted.differs(bad)
    larger = [
        c for n in range(len(found.differs(bad)) + 1, len(changes) + 1) for c in combinations(changes, n)
    ]
    assert playbook.possible(found)
    assert set(found.differs(bad)) <= set(changes)
    assert [] == [c for c in larger if playbook.possible(bad.replace(c))]
