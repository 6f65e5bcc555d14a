"""Mistakes of concluding: a variable nobody read, controls that were not run, one run each."""

from __future__ import annotations

from bisect_agent.errors import ExitCode
from bisect_agent.model import Reason, State
from tests.mistakes.scene import COMPILE, Scene

# --- 2: the flag's existence was never checked --------------------------------------------------------

PARSER = """\
exec python3 - "$@" <<'END'
import argparse
argparse.ArgumentParser(prog="launch_server.py").parse_args()
END
"""
"""A stack that knows no flag at all."""


def test_a_flag_that_the_stack_does_not_know_is_called_that(scene: Scene) -> None:
    """It fails within a second and for a reason of its own, which no experiment may be built on."""
    flags = {"flags": {"off": [], "on": ["--enable-torch-compile"]}}
    scene.job(PARSER, factors={"compile": flags})
    symptom = scene.run().verdict.symptom
    assert symptom
    assert "arguments-rejected" == symptom.id
    assert "launch_server.py: error: unrecognized arguments: --enable-torch-compile" == symptom.text


# --- 9: it was never shown that the variable took effect ----------------------------------------------

STACK = """\
echo "attention kernel: ${KERNEL:-mma}"
[ -n "$COMPILE" ] && [ -z "$NO_CAPTURE" ] || exit 0
echo "RuntimeError: CUDA error: dependency created on uncaptured work in another stream"
exit 1
"""
"""Compiler and capture collide, whatever KERNEL says: the incident's stack."""
WITNESS = {"log": "attention kernel: {level}"}
"""It says which kernel runs."""


def stage(scene: Scene, variable: str, **witness: object) -> None:
    """The incident, with the kernel's variable spelt this way."""
    factors = {
        "compile": COMPILE,
        "kernel": {"env": variable, "levels": {"mma": None, "stock": "stock"}, **witness},
        "capture": {"env": "NO_CAPTURE", "levels": {"on": None, "off": "1"}},
    }
    scene.job(STACK, factors=factors, hypotheses=["torch-compile-capture"])


def test_a_variable_that_nobody_reads_has_no_vote(scene: Scene) -> None:
    """Flipping it heals nothing, as it must; that says nothing about the kernel."""
    stage(scene, "KERNAL")
    run = scene.run()
    kernel = run.hypothesis("kernel-specific")
    assert (State.UNDECIDED, True) == (kernel.state, "not witnessed" in kernel.because)
    assert State.UNDECIDED == run.hypothesis("stack-wide").state


def test_a_level_that_the_log_contradicts_was_not_tried(scene: Scene) -> None:
    """The log names the kernel that ran: it is not the one that was asked for."""
    stage(scene, "KERNAL", witness=WITNESS)
    run = scene.run()
    reason = run.trial("kernel=stock").reason or ""
    assert (True, True) == (reason.startswith(Reason.NOT_APPLIED), "attention kernel: mma" in reason)
    assert State.UNDECIDED == run.hypothesis("kernel-specific").state


def test_a_variable_that_is_seen_to_take_effect_votes(scene: Scene) -> None:
    """The same stack, spelt right and witnessed: now the claim is refuted, and the other one holds."""
    stage(scene, "KERNEL", witness=WITNESS)
    run = scene.run()
    assert State.REFUTED == run.hypothesis("kernel-specific").state
    assert State.SUPPORTED == run.hypothesis("stack-wide").state


# --- 10: the known-good start was not verified --------------------------------------------------------


def test_nothing_is_bisected_from_a_good_that_does_not_work(scene: Scene) -> None:
    """The host has changed since: everything fails, and `bad` proves nothing."""
    scene.job("echo 'RuntimeError: no device'\nexit 1\n")
    run = scene.run()
    assert (ExitCode.NOTHING_TO_BISECT, False) == (run.code, run.verdict.good_first.ok)
    assert {"off"} == {trial.configuration["compile"] for trial in run.verdict.trials}


# --- 11: a switch was ruled out by argument -----------------------------------------------------------


def test_every_suspect_is_flipped_and_none_argued_away(scene: Scene) -> None:
    """Capture is on in `good` and in `bad`; one short run shows that the failure needs it."""
    stage(scene, "KERNEL", witness=WITNESS)
    run = scene.run()
    flipped = {str(s) for t in run.verdict.trials if t.change for s in t.change.settings()}
    assert {"kernel=stock", "capture=off"} == flipped
    assert {"compile=on", "capture=on"} == set(map(str, run.verdict.cause))


# --- 12: one run each ---------------------------------------------------------------------------------


def test_a_failure_that_does_not_come_back_accuses_nobody(scene: Scene) -> None:
    """`bad` must fail once more after the last passing run."""
    scene.job('[ -n "$COMPILE" ] && [ "$(echo >> starts; wc -l < starts)" = 1 ] && exit 1\nexit 0\n')
    run = scene.run()
    assert (ExitCode.NOT_ESTABLISHED, (), ()) == (run.code, run.verdict.cause, run.verdict.pairs)
