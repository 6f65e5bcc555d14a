"""Trees with every unpleasant habit, ended over SSH as a plain user: nothing is left of any."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.hosts.sshd import Sshd, plain_user, server
from tests.target.test_launcher import SETS, Lab, check_after_the_supervisors_death


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """A server."""
    with server() as running:
        yield running


@pytest.fixture(scope="module")
def user(sshd: Sshd) -> Iterator[str]:
    """A plain user of its machine."""
    with plain_user(sshd) as name:
        yield name


@pytest.fixture
def far_lab(sshd: Sshd, user: str, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab on that machine, of that user."""
    folder = sshd.folder / f"lab-{abs(hash(request.node.name))}"
    folder.mkdir()
    shutil.chown(folder, user)
    host = sshd.host(sshd.config(user=user))
    lab = Lab(folder, host, host.python)
    yield lab
    for attempt in lab.attempts:
        lab.launcher.stop(attempt)


@pytest.mark.parametrize("kinds", SETS, ids="+".join)
def test_a_plain_user_ends_the_whole_tree_over_ssh(far_lab: Lab, kinds: tuple[str, ...]) -> None:
    """No cgroup, no root, no way to look but through the link: 0 left in every set, and the port is free."""
    folder, _ = far_lab.start_nasty(*kinds)
    assert far_lab.survivors()
    assert far_lab.launcher.stop(folder).left == ()
    assert far_lab.survivors() == []
    assert {far_lab.port: ()} == far_lab.launcher.probe(None, [far_lab.port]).ports


def test_a_plain_user_ends_it_over_ssh_after_the_supervisors_death(far_lab: Lab) -> None:
    """By what the files there name, and what descends from it."""
    check_after_the_supervisors_death(far_lab)
