"""A run that did not come to its end is taken up, and comes to the verdict of an undisturbed one."""

import re
import signal
from pathlib import Path

import pytest

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import Agent, Finished, events, finished, listens, post, processes_of, tiny

CAUSE = (Setting(factor="mode", level="fails"),)
LIMITS = "limits: {start: 60s, quiet: 60s, stop: 2s}"
TWO_ATTEMPTS = (LIMITS, "limits: {start: 60s, quiet: 60s, stop: 2s, trials: 2}")


def resumed(run: Finished) -> Finished:
    """The run after `resume`."""
    return finished(run.agent, run.agent.start("resume", run.folder), run.port)


def is_whole(run: Finished) -> bool:
    """Whether a run has the verdict of an undisturbed one, follows, and has left the good server running."""
    verdict = run.verdict()
    return (
        (run.code, verdict.cause, verdict.good_restored.ok) == (ExitCode.CONCLUDED, CAUSE, True)
        and post(run.port, "/generate", {})[0] == 200
        and run.command("verify").end() == ExitCode.CONCLUDED
    )


def edit(playbook: Path, old: str, new: str) -> None:
    """Changes a text of a playbook."""
    text = playbook.read_text(encoding="utf-8")
    assert old in text
    playbook.write_text(text.replace(old, new), encoding="utf-8")


def ended_during_bad(agent: Agent, at: str, number: signal.Signals) -> Finished:
    """A run that a signal ends at an event of `bad`, which then need not wait any longer."""
    server = tiny(agent.home)
    server.hold("fails")
    command = agent.run(server.playbook)
    agent.awaits(at, "t02")
    command.send(number)
    run = finished(agent, command, server.port)
    server.release("fails")
    return run


def test_an_interrupted_run_goes_on(agent: Agent) -> None:
    """The restored server gives its port back first, and `good` is restored once more at the end."""
    run = ended_during_bad(agent, "launched", signal.SIGINT)
    again = resumed(run)
    assert (ExitCode.INTERRUPTED, True) == (run.code, is_whole(again))
    planned = [e["trial"]["id"] for e in events(run.folder) if e["kind"] == "restore-planned"]
    assert ["restore", "restore-2"] == planned


def test_a_killed_run_goes_on_with_the_attempt_that_it_was_at(agent: Agent) -> None:
    """Kill -9 leaves the server alone in the dark; it is watched again, and nothing is started twice."""
    run = ended_during_bad(agent, "log-seen", signal.SIGKILL)
    assert is_whole(resumed(run))
    assert 1 == sum(e["kind"] == "taken-up" for e in events(run.folder))
    assert 1 == sum(e["kind"] == "launched" and e["trial"] == "t02" for e in events(run.folder))


def test_a_spent_budget_can_be_raised(agent: Agent) -> None:
    """In the playbook that the run was started from; without that it is spent again."""
    server = tiny(agent.home, TWO_ATTEMPTS)
    run = finished(agent, agent.run(server.playbook), server.port)
    unchanged = resumed(run)
    edit(server.playbook, "trials: 2", "trials: 9")
    assert (ExitCode.BUDGET, ExitCode.BUDGET) == (run.code, unchanged.code)
    assert is_whole(resumed(run))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("KERNEL", "COLONEL", "has changed since the run began: factors"),
        ("trials: 2", "trials: 1", r"limits\.trials \(lowered\)"),
    ],
)
def test_another_playbook_is_another_question(agent: Agent, old: str, new: str, named: str) -> None:
    """Any change but a higher limit is refused, by name."""
    server = tiny(agent.home, TWO_ATTEMPTS)
    run = finished(agent, agent.run(server.playbook), server.port)
    edit(server.playbook, old, new)
    refused = run.command("resume")
    assert ExitCode.USAGE == refused.end()
    assert re.search(named, refused.stderr)


def test_the_record_of_the_playbook_is_not_to_be_edited(agent: Agent) -> None:
    """The limits are raised where the playbook was written, and the error says where that is."""
    server = tiny(agent.home, TWO_ATTEMPTS)
    run = finished(agent, agent.run(server.playbook), server.port)
    edit(run.folder / "playbook.yaml", "trials: 2", "trials: 9")
    refused = run.command("resume")
    assert ExitCode.USAGE == refused.end()
    assert f"limits are raised in {server.playbook}" in refused.stderr


def test_a_run_that_has_its_answer_is_left_alone(agent: Agent) -> None:
    """There is nothing to resume; the good server runs on."""
    server = tiny(agent.home)
    run = finished(agent, agent.run(server.playbook), server.port)
    refused = run.command("resume")
    assert ExitCode.USAGE == refused.end()
    assert "this run is concluded" in refused.stderr
    assert listens(server.port)


def test_a_run_is_carried_out_by_one_process(agent: Agent) -> None:
    """Whoever resumes a run that is going on is sent away."""
    server = tiny(agent.home)
    server.hold("fails")
    command = agent.run(server.playbook)
    agent.awaits("launched", "t02")
    second = agent.start("resume", agent.folder())
    assert ExitCode.USAGE == second.end()
    assert "another process is writing this run" in second.stderr
    server.release("fails")
    assert ExitCode.CONCLUDED == command.end()


def test_what_the_journal_has_lost_is_named(agent: Agent) -> None:
    """A line is damaged: what stands before it is used, and what was started after it is ended."""
    run = ended_during_bad(agent, "log-seen", signal.SIGKILL)
    journal = run.folder / "journal.jsonl"
    text = journal.read_text(encoding="utf-8")
    journal.write_text(text.replace('"id":"t02"', '"id":"t20"', 1), encoding="utf-8")
    again = resumed(run)
    (lost,) = [sentence for e in events(run.folder) if e["kind"] == "resumed" for sentence in e["lost"]]
    assert re.match(r"journal\.jsonl:\d+: the line is not as it was written; \d+ line\(s\)", lost)
    assert is_whole(again)
    assert run.command("stop").end() == ExitCode.CONCLUDED
    assert [] == processes_of(run.folder)


def test_code_that_was_edited_is_put_back_before_the_run_goes_on(agent: Agent) -> None:
    """Somebody edits the server while `bad` runs: what was run before and after cannot be compared."""
    server = tiny(agent.home, ("target:\n", "target:\n  code: [server.py]\n"))
    server.hold("fails")
    command = agent.run(server.playbook)
    agent.awaits("launched", "t02")
    code = server.playbook.parent / "server.py"
    was = code.read_text(encoding="utf-8")
    code.write_text(f"{was}# another one\n", encoding="utf-8")
    server.release("fails")
    run = finished(agent, command, server.port)
    assert (ExitCode.TARGET, True) == (run.code, run.verdict().good_restored.ok)
    assert f"the environment changed since the first trial: code {code}: file " in run.verdict().tree.text
    assert ExitCode.TARGET == resumed(run).code
    code.write_text(was, encoding="utf-8")
    assert is_whole(resumed(run))
