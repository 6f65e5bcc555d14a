"""A night as a person spends it: asleep. Several playbooks, an hour, a digest, and who is told."""

from __future__ import annotations

import json
import re
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.verdict import Verdict
from tests.e2e.agent import Agent, Command, Tiny, events, finished, guardians, listens, post, tiny, wait_for
from tests.hook import Hook

SECRET = "s3cret-t0ken-of-mine"
GOOD_FAILS = (("good: {mode: works}", "good: {mode: fails}"), ("bad: {mode: fails}", "bad: {mode: works}"))


def two(agent: Agent, *edits: tuple[str, str]) -> tuple[Tiny, Tiny]:
    """Two playbooks, `one` and `two`, for the same port; the second with some texts changed."""
    made = []
    for name, changed in (("one", ()), ("two", edits)):
        (agent.home / name).mkdir()
        server = tiny(agent.home / name, *changed)
        (server.playbook.parent / "job.yaml").unlink()
        made.append(Tiny(server.playbook.rename(server.playbook.with_name(f"{name}.yaml")), server.port))
    first, second = made
    text = second.playbook.read_text().replace(str(second.port), str(first.port))
    second.playbook.write_text(text)
    return first, Tiny(second.playbook, first.port)


def verdict(folder: Path) -> Verdict:
    """What a run folder holds."""
    return Verdict.model_validate_json((folder / "verdict.json").read_bytes())


def page(agent: Agent) -> str:
    """The page of the only digest."""
    (path,) = agent.runs.glob("*-digest-*.html")
    return path.read_text()


def begun(agent: Agent, server: Tiny, kind: str, trial: str) -> None:
    """Waits until an attempt has come to an event of that kind."""

    def there() -> bool:
        found = [e for f in agent.folders() if (e := events(f)) and e[0]["source"] == str(server.playbook)]
        return any(e["kind"] == kind and e.get("trial") == trial for e in (found[0] if found else []))

    wait_for(there, f"{kind} of {trial}")


def code(command: Command) -> int:
    """The exit code, once it has ended."""
    return command.end()


# --- the hour ---------------------------------------------------------------------------------------


def test_an_hour_in_the_middle_of_a_trial(agent: Agent) -> None:
    """The verdict is partial, `good` answers before the hour, and `resume` goes on from there."""
    server = tiny(agent.home)
    server.hold("fails")
    hour = datetime.now().astimezone() + timedelta(seconds=50)
    run = finished(agent, agent.run(server.playbook, "--until", hour.isoformat()), server.port)
    assert time.time() < hour.timestamp()
    assert run.code == ExitCode.BUDGET
    assert run.verdict().stopped_by.startswith("the budget is spent: --until ")
    assert (False, "passed", "unresolved") == (
        run.verdict().established,
        *(trial.outcome for trial in run.verdict().trials),
    )
    assert run.verdict().good_restored.ok is True
    assert post(server.port, "/generate", {})[0] == 200
    assert run.command("verify").end() == ExitCode.CONCLUDED
    server.release("fails")
    later = (datetime.now().astimezone() + timedelta(hours=1)).isoformat()
    assert code(agent.start("resume", run.folder, "--until", later)) == ExitCode.CONCLUDED


@pytest.mark.parametrize("hour", ["7", "2001-01-01T07:00"])
def test_an_hour_that_is_none_begins_nothing(agent: Agent, hour: str) -> None:
    """Exit 2, before anything is made."""
    command = agent.run(tiny(agent.home).playbook, "--until", hour)
    assert command.end() == ExitCode.USAGE
    assert f"--until {hour}: this is" in command.stderr
    assert not agent.runs.exists()


# --- the queue --------------------------------------------------------------------------------------


def test_a_night_of_several(agent: Agent) -> None:
    """Each has its verdict and its place in the digest; a wrong one is said at once, and stops no other."""
    first, second = two(agent)
    wrong = agent.home / "wrong.yaml"
    wrong.write_text("playbook: 1\nlimitz: {}\n")
    command = agent.start("run", wrong, first.playbook, second.playbook.parent, "--runs", agent.runs)
    assert code(command) == ExitCode.USAGE
    lines = command.stderr.splitlines()
    assert lines[0].startswith("wrong: ")
    assert [] == [line for line in lines if " t02 " in line and not re.match(r"\S+ (one|two) t02 ", line)]
    assert {"one", "two"} == {line.split()[1] for line in lines if " t02 " in line}
    folders = [agent.folder_of(first.playbook), agent.folder_of(second.playbook)]
    assert [True, True] == [verdict(folder).established for folder in folders]
    assert [0, 0] == [code(agent.start("verify", folder)) for folder in folders]
    for shown in (command.stdout.decode(), page(agent)):
        assert "1 × the playbook cannot be used · 2 × a cause is established" in shown
        assert "its good server was stopped, since two needed the port" in shown
        assert "mode=fails is the cause" in shown
    assert all(f'href="./{folder.name}/verdict.html"' in page(agent) for folder in folders)
    assert "exit code 2" in page(agent)
    assert listens(second.port)
    assert (agent.runs / lines[-1].removeprefix("digest: ")).is_file()


def test_the_last_good_server_that_worked_is_there_in_the_morning(agent: Agent) -> None:
    """Where the later run leaves none, the earlier one's is brought up again, and its verdict stays."""
    first, second = two(agent, *GOOD_FAILS)
    command = agent.start("run", first.playbook, second.playbook, "--runs", agent.runs, "--json")
    assert code(command) == ExitCode.NOTHING_TO_BISECT
    runs = json.loads(command.stdout)["runs"]
    assert [(0, True), (3, False)] == [(run["code"], run["serves"]) for run in runs]
    assert "its good server was brought up again, since no later run has left one" in runs[0]["notes"]
    assert post(first.port, "/generate", {})[0] == 200
    folder = agent.folder_of(first.playbook)
    assert verdict(folder).established
    assert code(agent.start("verify", folder)) == ExitCode.CONCLUDED


def test_a_night_that_is_interrupted_ends_in_good_order(agent: Agent) -> None:
    """What runs is ended and `good` restored; what was not begun is said to be so."""
    first, second = two(agent)
    first.hold("fails")
    command = agent.start("run", first.playbook, second.playbook, "--runs", agent.runs, "--json")
    begun(agent, first, "launched", "t02")
    assert "it goes on" in page(agent)
    command.send(signal.SIGINT)
    assert code(command) == ExitCode.INTERRUPTED
    runs = json.loads(command.stdout)["runs"]
    assert [130, 130] == [run["code"] for run in runs]
    assert [True, None] == [run["restored"] for run in runs]
    assert "not begun: the night was interrupted" == runs[1]["found"]
    assert 1 == len(agent.folders())
    assert listens(first.port)


def test_what_the_hour_leaves_no_time_for_is_not_begun(agent: Agent) -> None:
    """The first ends before the hour, with its good server; the second would need its port."""
    first, second = two(agent)
    first.hold("fails")
    hour = datetime.now().astimezone() + timedelta(seconds=50)
    command = agent.start(
        "run", first.playbook, second.playbook, "--runs", agent.runs, "--json", "--until", hour.isoformat()
    )
    assert code(command) == ExitCode.BUDGET
    assert time.time() < hour.timestamp()
    runs = json.loads(command.stdout)["runs"]
    assert [5, 5] == [run["code"] for run in runs]
    assert "--until " in runs[1]["found"]
    assert listens(first.port)


def test_a_second_interrupt_leaves_the_night_to_the_guardian(agent: Agent) -> None:
    """At once; the good server comes up when nobody waits for it any more."""
    first, second = two(agent)
    first.hold("fails")
    command = agent.start("run", first.playbook, second.playbook, "--runs", agent.runs)
    begun(agent, first, "launched", "t02")
    first.hold("works")
    command.send(signal.SIGINT)
    begun(agent, first, "launched", "restore")
    command.send(signal.SIGINT)
    assert code(command) == ExitCode.INTERRUPTED
    assert "the guardian on the target ends the attempt and restores `good`" in command.stderr
    assert "1 × interrupted · 1 × not begun" in command.stdout.decode()
    first.release("works")
    wait_for(lambda: listens(first.port) and not guardians(agent.home), "the good server")


# --- who is told ------------------------------------------------------------------------------------


def notified(tmp_path: Path, hook: Hook, path: str = "take") -> Agent:
    """An agent whose environment has an address for notifications, and a token that the server prints."""
    return Agent(tmp_path, TEAM=hook.address("h00k-s3cret", path), MY_API_TOKEN=SECRET)


NOTIFY = ("limits:", 'notify: ["${TEAM}"]\nlimits:')


def test_the_end_of_a_run_is_told_once(tmp_path: Path) -> None:
    """Title, sentence, exit code in words, whether good is back, where it lies; and no secret."""
    with Hook() as hook:
        agent = notified(tmp_path, hook)
        server = tiny(agent.home, NOTIFY)
        run = finished(agent, agent.run(server.playbook), server.port)
        agent.leave()
    (message,) = hook.got
    assert "a cause is established: the tiny server fails when it is told to" == message["title"]
    assert [
        "mode=fails is the cause",
        "exit code 0: a cause is established",
        "good restored: yes, it runs and answers",
        f"run folder: {run.folder}",
        f"bisect-agent stop {run.folder}",
    ] == message["message"].splitlines()
    files = [path for path in agent.runs.rglob("*") if path.is_file()]
    kept = b"".join(path.read_bytes() for path in files) + run.stdout + run.stderr.encode()
    assert [] == [s for s in ("h00k-s3cret", SECRET) if s in json.dumps(message) or s.encode() in kept]


def test_check_says_who_will_be_told(tmp_path: Path) -> None:
    """By the name of the variable; nobody is told anything."""
    with Hook() as hook:
        agent = notified(tmp_path, hook)
        command = agent.start("check", tiny(agent.home, NOTIFY).playbook)
        assert code(command) == ExitCode.CONCLUDED
    assert "then apprise tells: ${TEAM}" in command.stdout.decode().splitlines()
    assert [] == hook.got


def test_a_message_that_fails_changes_nothing(tmp_path: Path) -> None:
    """It is said on stderr, with no word of the address."""
    with Hook() as hook:
        agent = notified(tmp_path, hook, "refuse")
        server = tiny(agent.home, NOTIFY)
        run = finished(agent, agent.run(server.playbook), server.port)
        agent.leave()
    assert (ExitCode.CONCLUDED, []) == (run.code, hook.got)
    assert "nobody was told through ${TEAM}: " in run.stderr
    assert "h00k-s3cret" not in run.stderr


def test_a_target_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    """There is no run folder, and somebody waits for it."""
    with Hook() as hook:
        agent = notified(tmp_path, hook)
        server = tiny(agent.home, NOTIFY)
        server.hold("works")
        first = agent.run(server.playbook)
        agent.awaits("launched", "t01")
        assert code(agent.run(server.playbook)) == ExitCode.TARGET
        first.send(signal.SIGKILL)
        first.end()
        server.release("works")
        agent.start("resume", agent.folder(), "--quiet").end()
        agent.leave()
    assert "the target cannot be used: the tiny server fails when it is told to" == hook.got[0]["title"]
    assert 2 == len(hook.got)


def test_a_night_is_told_once(tmp_path: Path) -> None:
    """One message with a part a run, when all is over: what a person wants to read in the morning."""
    with Hook() as hook:
        agent = notified(tmp_path, hook)
        first, second = two(agent, NOTIFY)
        command = agent.start("run", first.playbook, second.playbook, "--runs", agent.runs)
        assert code(command) == ExitCode.CONCLUDED
        agent.leave()
    (message,) = hook.got
    assert "the night is over: 1 × a cause is established" == message["title"]
    assert message["message"].startswith("2 runs in ")
    assert str(agent.folder_of(second.playbook)) in message["message"]
    assert str(agent.folder_of(first.playbook)) not in message["message"]


def test_a_night_s_message_that_fails_is_in_the_digest(tmp_path: Path) -> None:
    """So that it is seen in the morning that nobody was told."""
    with Hook() as hook:
        agent = notified(tmp_path, hook, "refuse")
        first, second = two(agent, NOTIFY)
        command = agent.start("run", first.playbook, second.playbook, "--runs", agent.runs)
        assert code(command) == ExitCode.CONCLUDED
        agent.leave()
    assert "nobody was told through ${TEAM}: " in command.stderr
    assert "nobody was told through ${TEAM}: " in page(agent)
    assert "h00k-s3cret" not in page(agent) + command.stderr + command.stdout.decode()


# --- watching, and listing --------------------------------------------------------------------------


def test_a_run_can_be_watched_to_its_end(agent: Agent) -> None:
    """The same lines, the same verdict, the same exit code; and watching changes nothing."""
    server = tiny(agent.home)
    server.hold("fails")
    command = agent.run(server.playbook)
    agent.awaits("launched", "t02")
    watch, left = agent.start("watch", agent.folder()), agent.start("watch", agent.folder())
    wait_for(lambda: " t02 " in watch.stderr and " t02 " in left.stderr, "its lines")
    left.send(signal.SIGINT)
    assert code(left) == ExitCode.INTERRUPTED
    assert "the run goes on" in left.stderr
    assert "running" in listed(agent)[0]
    server.release("fails")
    assert (code(command), code(watch)) == (ExitCode.CONCLUDED, ExitCode.CONCLUDED)
    assert command.stdout == watch.stdout
    assert [line for line in command.stderr.splitlines() if re.match(r"[\d:]{8} ", line)] == (
        watch.stderr.splitlines()
    )
    assert "concluded, exit 0: mode=fails is the cause" in listed(agent)[0]


def test_a_run_that_has_crashed_is_told_from_one_that_runs(agent: Agent) -> None:
    """`watch` and `runs` say what to do; what was resumed and interrupted says so, too."""
    server = tiny(agent.home)
    server.hold("fails")
    command = agent.run(server.playbook)
    agent.awaits("launched", "t02")
    watch = agent.start("watch", agent.folder(), "--quiet")
    command.send(signal.SIGKILL)
    assert code(watch) == ExitCode.USAGE
    assert f"try: bisect-agent resume {agent.folder()}" in watch.stderr
    assert f"crashed: nobody carries it out; bisect-agent resume {agent.folder()}" in listed(agent)[0]
    again = agent.start("resume", agent.folder())
    agent.awaits("taken-up", "t02")
    again.send(signal.SIGINT)
    assert code(again) == ExitCode.INTERRUPTED
    assert "interrupted, exit 130: " in listed(agent)[0]
    assert code(agent.start("watch", agent.folder(), "--quiet")) == ExitCode.INTERRUPTED


def listed(agent: Agent) -> list[str]:
    """What `runs` says of each run."""
    command = agent.start("runs", "--runs", agent.runs)
    assert command.end() == ExitCode.CONCLUDED
    return command.stdout.decode().splitlines()
