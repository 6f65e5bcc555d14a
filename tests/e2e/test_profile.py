"""A profile makes a playbook ten lines long: on a stand-in with the name and the log of a stack."""

from __future__ import annotations

import re
from pathlib import Path

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import Agent, Finished, events, finished, free_port

STACK = Path(__file__).parent / "stack"
PLAYBOOK = """\
playbook: 1
profile: sglang
target: {ports: [%d], env: {PYTHONPATH: '%s'}}
launch: exec python3 -m sglang.launch_server --port %d "$@"
factors:
  compile: {flags: {off: [], on: [--enable-torch-compile]}}
  attention: {option: {name: --attention-backend, levels: {auto: null, flashinfer: flashinfer}}}
  kernel: {env: SGLANG_KERNEL, levels: {mma: mma, stock: stock}}
bad: {compile: on}
"""


def playbook(agent: Agent, *edits: tuple[str, str]) -> Path:
    """The playbook with a free port, and some texts changed."""
    port = free_port()
    text = PLAYBOOK % (port, STACK, port)
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = agent.home / "playbook.yaml"
    path.write_text(text)
    return path


def asked(run: Finished) -> dict[str, list[str]]:
    """What the stack was found to say of itself."""
    (event,) = (e for e in events(run.folder) if e["kind"] == "stack-asked")
    found: dict[str, list[str]] = event["asked"]
    return found


def test_ten_lines_are_enough(agent: Agent) -> None:
    """Cause, phase, hypotheses and witnesses come from the profile; the caches are each attempt's own."""
    run = finished(agent, agent.run(playbook(agent), "--json"))
    verdict = run.verdict()
    expected = {Setting(factor="attention", level="auto"), Setting(factor="compile", level="on")}
    assert (ExitCode.CONCLUDED, expected) == (run.code, set(verdict.cause))
    assert verdict.symptom is not None
    assert ("cuda-capture-isolation", "capture") == (verdict.symptom.id, verdict.symptom.phase)
    assert verdict.good_restored.ok is True
    assert ("kernel-specific", "refuted") in {(h.id, h.state) for h in verdict.hypotheses}
    environment = next((run.folder / "trials").glob("t01-good/1/env")).read_text()
    assert re.search(r"^TRITON_CACHE_DIR=\S+/caches/triton$", environment, re.MULTILINE)


def test_a_variable_that_the_installed_version_reads_needs_no_witness(agent: Agent) -> None:
    """A flip of it that does not heal clears it; the name's place is in the record."""
    run = finished(agent, agent.run(playbook(agent), "--json"))
    assert ["SGLANG_KERNEL"] == asked(run)["reads"]
    assert not any("kernel" in gap for gap in run.verdict().unknown)


def test_a_variable_that_no_version_reads_is_said_before_the_first_start(agent: Agent) -> None:
    """It is a note, not an error: the run goes on, and the factor is neither accused nor cleared."""
    path = playbook(agent, ("env: SGLANG_KERNEL", "env: SGLANG_KERNAL"))
    run = finished(agent, agent.run(path, "--json"))
    order = [e["kind"] for e in events(run.folder)]
    assert order.index("stack-asked") < order.index("launching")
    assert "SGLANG_KERNAL" in run.stderr
    assert any("kernel" in gap for gap in run.verdict().unknown)


def test_check_names_an_option_that_the_program_does_not_know(agent: Agent) -> None:
    """Exit 2 with the nearest option, and nothing is started."""
    path = playbook(agent, ("--enable-torch-compile", "--enable-torch-compil3"))
    command = agent.start("check", path)
    assert command.end() == ExitCode.USAGE
    assert "compile=on" in command.stderr
    assert "--enable-torch-compile" in command.stderr
    assert [] == agent.folders()


def test_check_names_an_option_that_could_be_two(agent: Agent) -> None:
    """An abbreviation that was unique once is refused by later versions."""
    flags = ("[--enable-torch-compile]", "[--cuda-graph-max-bs, 8]")
    command = agent.start("check", playbook(agent, flags))
    assert command.end() == ExitCode.USAGE
    assert "--cuda-graph-max-bs-decode" in command.stderr
    assert "--cuda-graph-max-bs-prefill" in command.stderr


def test_check_says_what_it_found(agent: Agent) -> None:
    """A playbook without a mistake is one that can run, with where its names were looked up."""
    command = agent.start("check", playbook(agent))
    assert command.end() == ExitCode.CONCLUDED
    assert f"looked into sglang in {STACK}" in command.stdout.decode()


def test_a_script_that_starts_its_server_when_asked_for_help_is_ended_at_once(agent: Agent) -> None:
    """It takes its arguments, and gives them to nobody; the options are then looked up in our own list."""
    path = playbook(agent, ("launch: exec", "launch: 'exec"), ('"$@"\n', """; : "$@"'\n"""))
    command = agent.start("check", path)
    assert command.end() == ExitCode.CONCLUDED
    assert b"printed no help that could be read" in command.stdout
