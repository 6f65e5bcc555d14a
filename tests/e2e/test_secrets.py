"""A server that prints its secrets in every way: nothing of ours ever shows one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode, TargetError
from bisect_agent.hosts import Completed
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Reason, Setting
from tests.e2e.agent import Agent, Finished, free_port
from tests.e2e.leaks import BY_LOOKS, BY_NAME, ENVIRONMENT, PIECES, carried_out, found_in, leaky
from tests.hook import Hook
from tests.mistakes.scene import Scene


@pytest.fixture(scope="module")
def leaked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """A run of that server, with every event on stderr."""
    agent = Agent(tmp_path_factory.mktemp("home"), **ENVIRONMENT)
    yield carried_out(agent, leaky(agent.home / "leaky"))
    agent.leave()


def test_it_is_bisected_all_the_same(leaked: Finished) -> None:
    """Stars in place of secrets hide no evidence."""
    verdict = leaked.verdict()
    assert (ExitCode.CONCLUDED, (Setting(factor="mode", level="fails"),)) == (leaked.code, verdict.cause)
    assert verdict.good_restored.ok is True


def test_no_secret_is_in_any_file(leaked: Finished) -> None:
    """Journal, logs, answers, stacks, observations, reports; nor in the copy that travels."""
    names = {path.name for path in leaked.folder.rglob("*")}
    assert {"server.log", "response.txt", "env", "journal.jsonl", "verdict.html", "verdict.md"} <= names
    assert [] == found_in(leaked)


def test_no_secret_is_printed(leaked: Finished) -> None:
    """Neither in the verdict nor in any of the events."""
    said = leaked.stdout + leaked.stderr.encode()
    assert b"closed" in said
    assert [] == [piece for piece in PIECES if piece in said]


def test_the_copy_is_as_long_as_the_log(leaked: Finished) -> None:
    """The server did tell: its own log, which is the target's, holds what the copy has stars for."""
    (there,) = leaked.agent.home.glob(f".bisect-agent/{leaked.folder.name}/t02-1-*/log")
    copy, log = leaked.read("trials/t02-bad/1/server.log"), there.read_bytes()
    assert BY_LOOKS.encode() in log
    assert len(copy) == len(log)
    assert [line.count(b"\n") for line in (copy, log)] == [log.count(b"\n")] * 2


def test_a_night_tells_no_secret(tmp_path: Path) -> None:
    """Neither its digest, nor the message that is sent; nor of a playbook that holds one and is refused."""
    address = "h00k-s3cret"
    with Hook() as hook:
        agent = Agent(tmp_path, TEAM=hook.address(address), **ENVIRONMENT)
        playbook = leaky(tmp_path / "leaky")
        text = playbook.read_text(encoding="utf-8").replace("limits:", 'notify: ["${TEAM}"]\nlimits:')
        playbook.write_text(text, encoding="utf-8")
        wrong = playbook.with_name("wrong.yaml")
        wrong.write_text(f"playbook: 1\nkind: {BY_LOOKS}\n", encoding="utf-8")
        command = agent.start("run", playbook.parent, "--runs", agent.runs)
        assert command.end() == ExitCode.USAGE
    digests = list(agent.runs.glob("*-digest-*"))
    told = [json.dumps(hook.got).encode(), command.stdout, command.stderr.encode()]
    told += [path.read_bytes() for path in digests]
    agent.start("stop", next(path for path in agent.runs.iterdir() if path.is_dir())).end()
    assert (1, {".md", ".html"}) == (len(hook.got), {path.suffix for path in digests})
    assert [] == [piece for piece in (*PIECES, address.encode()) for text in told if piece in text]


def test_an_error_shows_no_secret(leaked: Finished) -> None:
    """What is wrong with a playbook is said without the words that look like a secret."""
    playbook = leaked.agent.home / "wrong.yaml"
    playbook.write_text(f"playbook: 1\nkind: {BY_LOOKS}\n", encoding="utf-8")
    command = leaked.agent.start("check", playbook)
    assert command.end() == ExitCode.USAGE
    assert "looks like a secret" in command.stderr
    assert BY_LOOKS not in command.stderr


# --- what goes wrong --------------------------------------------------------------------------------

QUOTE = f"it says {BY_LOOKS} and {BY_NAME}"
MASKED = f"it says {'*' * len(BY_LOOKS)} and {'*' * len(BY_NAME)}"


@dataclass(frozen=True)
class Quotes(LocalHost):
    """A machine that quotes secrets in its refusal of one deed, a word of a command."""

    deed: str

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> Completed:
        """Runs it, unless it is the one."""
        if self.deed in argv:
            raise TargetError(QUOTE)
        return super().run(argv, timeout=timeout, stdin=stdin)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A job that passes `BY_NAME` on."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MY_API_TOKEN", BY_NAME)
    scene = Scene(tmp_path, free_port())
    scene.job("true\n", **{"pass": ["MY_API_TOKEN"]})
    return scene


def test_what_ends_an_attempt_is_told_without_secrets(scene: Scene) -> None:
    """The target's refusal is a part of the observation."""
    unresolved = scene.attempt(host=Quotes("run")).unresolved()
    assert (Reason.UNUSABLE, MASKED) == (unresolved.reason, unresolved.detail)


def test_what_ends_a_run_is_told_without_secrets(scene: Scene) -> None:
    """It is in the journal, and in the verdict."""
    run = scene.run(Quotes("uname"))
    assert (ExitCode.TARGET, True) == (run.code, MASKED in run.verdict.stopped_by)


def test_what_prevents_a_run_is_told_without_secrets(scene: Scene) -> None:
    """No journal has begun then; the error is all there is."""
    with pytest.raises(TargetError) as prevented:
        scene.run(Quotes("guard"))
    assert MASKED in str(prevented.value)
