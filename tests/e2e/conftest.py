"""Investigations that several tests look at: each is run once, and nothing of it is left at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, Edit, Finished, finished, processes_of, quickstart

ON_CALLERS_THREAD: Edit = (
    "compiled.py",
    "STREAM: type[Stream] = SideStream",
    "STREAM: type[Stream] = CallersStream",
)
NOT_RESTORED: Edit = (
    "playbook.yaml",
    "restore: good                             # leave the good server running at the end",
    "restore: none",
)
MUTATIONS: dict[str, tuple[Edit, ...]] = {
    "none": (),
    "on the caller's thread": (NOT_RESTORED, ON_CALLERS_THREAD),
    "cold tuner": (
        NOT_RESTORED,
        ON_CALLERS_THREAD,
        ("compiled.py", "ROW_MULTIPLE = 64", "ROW_MULTIPLE = 48"),
        ("rank.py", "WARM_UP_AS_CONFIGURED = True", "WARM_UP_AS_CONFIGURED = False"),
    ),
    "misspelt": (
        NOT_RESTORED,
        ("playbook.yaml", "    env: QUICKSTART_KERNEL", "    env: QUICKSTART_KERNAL"),
    ),
}
"""The changes that the quickstart's README lists. One restore is enough to look at."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what starts whole investigations."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def mutations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Finished]]:
    """The quickstart and its mutations, run side by side: they mostly wait."""
    homes = {name: tmp_path_factory.mktemp("home") for name in MUTATIONS}
    agents = {name: Agent(home) for name, home in homes.items()}
    playbooks = {name: quickstart(homes[name], *edits) for name, edits in MUTATIONS.items()}
    commands = {name: agents[name].run(playbooks[name][0], "--json") for name in MUTATIONS}
    yield {name: finished(agents[name], commands[name], playbooks[name][1]) for name in MUTATIONS}
    for agent in agents.values():
        agent.leave()


@pytest.fixture(scope="session")
def run(mutations: dict[str, Finished]) -> Finished:
    """The quickstart as it is shipped."""
    return mutations["none"]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent that has run nothing yet; what it leaves running is ended, and then nothing may be left."""
    agent = Agent(tmp_path)
    yield agent
    agent.leave()
    assert [] == [pid for folder in agent.folders() for pid in processes_of(folder)]
