"""What is around an attempt: what a look shows, what has changed, and whose memory is not back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.model import Before, Fingerprint, Package, Profile
from bisect_agent.surroundings import (
    LINES,
    TOLERANCE,
    Answer,
    App,
    Gpu,
    before,
    changes,
    facts,
    fingerprint,
    gpus_of,
    happened,
    held,
    read,
    unsure,
)
from tests.strategies import FEW

UUID = "GPU-71cd85e7-4702-e742-7003-dfca0b17e573"
IDLE = f"{UUID}, NVIDIA H200, 580.159.04, 0, 0\n"
# An H200 with a process of one context that holds a GiB.
BUSY = f"{UUID}, NVIDIA H200, 580.159.04, 1551, 0\n"
APPS = f"{UUID}, 475, 1542, /opt/torch/.venv/bin/python3\n"
REFUSED = 'Field "nope" is not a valid field to query.\n\n'
NO_ECC = "GPU-1, NVIDIA GeForce RTX 4090, 550.54, 3, [N/A]\n"
TAG, OTHER = "ours", "theirs"


def answer(gpus: str = IDLE, apps: str = "", **parts: object) -> Answer:
    """A look at a machine with GPUs."""
    smi = {"gpus": {"text": gpus, "wrong": ""}, "apps": {"text": apps, "wrong": ""}}
    return plain(**{**smi, **parts})


def plain(**parts: object) -> Answer:
    """A look at a machine without GPUs."""
    return Answer.model_validate({"boot": "b00", "kernel": "6.8", **parts})


def hung() -> Answer:
    """A look at a machine whose driver does not answer."""
    wrong = {"text": "", "wrong": "nvidia-smi gave no answer within 10 s"}
    return plain(gpus=wrong, apps=wrong)


def seen(look: Answer) -> Fingerprint:
    """What must stay of it."""
    return fingerprint(look, (), {})


# --- what a look shows ------------------------------------------------------------------------------


def test_a_gpu_is_read_as_an_h200_tells_of_itself() -> None:
    """Its uuid, its name, its driver, what is used of it, its memory errors, and who uses it."""
    gpu = Gpu(uuid=UUID, name="NVIDIA H200", driver="580.159.04", used=1551, faults=0)
    app = App(uuid=UUID, pid=475, used=1542, name="python3")
    found = gpus_of(answer(BUSY, APPS))
    assert ((gpu,), (app,), "") == (found.gpus, found.apps, found.wrong)


def test_what_a_gpu_does_not_tell_is_not_known() -> None:
    """A card without error correction counts no errors."""
    assert None is gpus_of(answer(NO_ECC)).gpus[0].faults


@pytest.mark.parametrize(
    "text", ["<html>\n", "GPU-1, x, y, many, 0\n", "GPU-1, x\n", REFUSED, "0, 1, 2, 3, 4\n"]
)
def test_what_is_no_table_is_said(text: str) -> None:
    """With the line that is none; nothing is made of it."""
    found = gpus_of(answer(text))
    assert found.wrong.startswith("nvidia-smi printed what is no table of GPUs: '")
    assert () == found.gpus


@FEW
@given(st.text(), st.text())
def test_any_table_can_be_read(gpus: str, apps: str) -> None:
    """nvidia-smi may print what it likes."""
    assert isinstance(gpus_of(answer(gpus, apps)).wrong, str)


@FEW
@given(st.binary())
def test_any_answer_can_be_read(said: bytes) -> None:
    """What is no answer is none."""
    assert None is read(said)


def test_an_answer_is_read() -> None:
    """As the target prints it."""
    said = {"boot": "b", "kernel": "6", "tagged": {"7": "t"}, "packages": {"torch": ["2.9", 1]}}
    found = read(json.dumps(said).encode())
    assert found is not None
    assert ({7: "t"}, {"torch": ("2.9", 1)}) == (found.tagged, found.packages)


def test_a_machine_without_nvidia_smi_has_no_gpus() -> None:
    """And nothing is amiss with that."""
    assert ((), "") == (gpus_of(plain()).gpus, gpus_of(plain()).wrong)


def test_a_person_reads_the_gpus_the_packages_that_matter_and_the_code() -> None:
    """Not every package: an environment of torch has hundreds."""
    look = answer(
        IDLE + IDLE.replace("GPU-71", "GPU-72"),
        packages={"torch": ["2.9.1", 0], "idna": ["3", 0]},
        code={"state": {"/srv/x": "commit 1, clean"}, "wrong": {}},
    )
    profile = Profile(name="torch", packages=(Package(name="torch"), Package(name="triton")))
    assert {
        "gpu": "2 × NVIDIA H200, driver 580.159.04",
        "torch": "2.9.1",
        "code /srv/x": "commit 1, clean",
    } == facts(seen(look), profile)


def test_what_is_not_known_is_said() -> None:
    """With the reason."""
    assert {"gpu": "not known: nvidia-smi gave no answer within 10 s"} == facts(seen(hung()), None)


# --- what has changed -------------------------------------------------------------------------------


def some(gpus: str = IDLE, **parts: object) -> Answer:
    """A look at a machine with GPUs, a package and some code."""
    known: dict[str, object] = {
        "packages": {"torch": ["2.9.1", 1_700_000_000]},
        "code": code("commit 1, clean"),
    }
    smi = {"gpus": {"text": gpus, "wrong": ""}, "apps": {"text": "", "wrong": ""}}
    return plain(**{**known, **smi, **parts})


def code(state: str) -> dict[str, object]:
    """The state of some code."""
    return {"state": {"/srv/x": state}, "wrong": {}}


def test_what_stays_has_not_changed() -> None:
    """The same look twice."""
    assert () == changes(seen(some()), seen(some()))


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (some(kernel="6.9"), "kernel: 6.8 → 6.9"),
        (some(IDLE.replace("580.1", "590.1")), "gpu driver: 580.159.04 → 590.159.04"),
        (some(IDLE.replace("H200", "H100")), f"gpu {UUID}: NVIDIA H200 → NVIDIA H100"),
        (
            some(packages={"torch": ["2.9.1", 1_700_000_001]}),
            "package torch: 2.9.1 of 2023-11-14T22:13:20Z → 2.9.1 of 2023-11-14T22:13:21Z",
        ),
        (some(packages={}), "package torch: 2.9.1 of 2023-11-14T22:13:20Z → none"),
        (
            some(code=code("commit 2, clean")),
            "code /srv/x: commit 1, clean → commit 2, clean",
        ),
        (
            some(code={"state": {}, "wrong": {"/srv/x": "there is no such file or folder"}}),
            "code /srv/x: known before, and now not: there is no such file or folder",
        ),
    ],
)
def test_a_change_is_told_from_what_to_what(now: Answer, line: str) -> None:
    """One line for each thing that is another one."""
    assert (line,) == changes(seen(some()), seen(now))


def test_gpus_that_cannot_be_read_any_more_are_one_change() -> None:
    """Not one for each of them."""
    (line,) = changes(seen(answer(IDLE + IDLE.replace("GPU-71", "GPU-72"))), seen(hung()))
    assert "gpu: known before, and now not: nvidia-smi gave no answer within 10 s" == line


def test_what_was_not_known_before_has_not_changed() -> None:
    """A driver that answers again tells nothing of what it was."""
    assert () == changes(seen(hung()), seen(answer()))


def test_many_changes_are_counted() -> None:
    """A whole environment that was installed anew is no page of evidence."""
    many = {f"p{number:03}": ["1", 0] for number in range(LINES + 5)}
    found = changes(seen(plain()), seen(plain(packages=many)))
    assert (LINES + 1, "and 5 more") == (len(found), found[-1])


def test_a_restart_of_the_machine_is_of_the_attempt_alone() -> None:
    """It ends what ran, and leaves the machine what it was."""
    again = some(boot="b01")
    assert () == changes(seen(some()), seen(again))
    assert ("the machine was started again: boot b00 → b01",) == happened(before(answer(), TAG), again)


def test_memory_errors_are_of_the_attempt_in_which_they_rise() -> None:
    """A card that had some before is the same card."""
    old, new = answer(IDLE.replace("0, 0\n", "0, 2\n")), answer(IDLE.replace("0, 0\n", "0, 3\n"))
    assert () == changes(seen(old), seen(new))
    assert (f"gpu {UUID}: uncorrected memory errors: 2 → 3",) == happened(before(old, TAG), new)
    assert () == happened(before(new, TAG), old)


# --- memory -----------------------------------------------------------------------------------------


def test_memory_that_is_back_is_held_by_nobody() -> None:
    """Up to less than the smallest process takes: one that has done nothing yet holds 527 MiB of an H200."""
    was = before(answer(IDLE), TAG)
    assert "" == held(was, answer(IDLE.replace(", 0, 0\n", f", {TOLERANCE}, 0\n")), TAG)
    assert "" != held(was, answer(IDLE.replace(", 0, 0\n", f", {TOLERANCE + 1}, 0\n")), TAG)


def test_memory_that_is_not_back_is_told_with_figures_and_processes() -> None:
    """A person must know where to look."""
    said = held(before(answer(IDLE), TAG), answer(BUSY, APPS), TAG)
    assert f"NVIDIA H200 {UUID}: 1551 MiB used, 0 MiB before; by 475 python3" == said


def test_in_a_container_memory_alone_is_the_authority() -> None:
    """There nvidia-smi may name no process."""
    said = held(before(answer(IDLE), TAG), answer(BUSY), TAG)
    assert said.endswith("1551 MiB used, 0 MiB before; nvidia-smi names no process")


def test_memory_of_another_attempt_comes_and_goes() -> None:
    """It is counted on neither side, whether it was there before or came in between."""
    theirs = answer(BUSY, APPS, tagged={475: OTHER})
    assert "" == held(before(answer(IDLE), TAG), theirs, TAG)
    assert {UUID: 9} == before(theirs, TAG).memory
    assert "" != held(before(theirs, TAG), answer(BUSY), TAG)


def test_our_own_process_is_no_other_attempts() -> None:
    """What is left of this attempt is what is looked for."""
    assert "" != held(before(answer(IDLE), TAG), answer(BUSY, APPS, tagged={475: TAG}), TAG)


def test_a_driver_that_gives_no_answer_shows_no_free_memory() -> None:
    """Nothing may be started on what is not known; where it never answered, nothing can be said."""
    said = held(before(answer(IDLE), TAG), hung(), TAG)
    assert "what is used cannot be seen: nvidia-smi gave no answer within 10 s" == said
    assert "" == held(before(hung(), TAG), hung(), TAG)


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (Before(boot="b"), answer(BUSY), False),
        (Before(boot="b", others=True), answer(BUSY), True),
        (Before(boot="b"), answer(BUSY, tagged={1: OTHER}), True),
        (Before(boot="b"), answer(BUSY, tagged={1: TAG}), False),
        (Before(boot="b"), answer(BUSY, APPS, tagged={475: OTHER}), False),
        (Before(boot="b"), answer(BUSY, APPS, tagged={1: OTHER}, unseen=[475]), True),
        (Before(boot="b", others=True), hung(), False),
    ],
    ids=["alone", "one before", "one now", "ours", "told apart", "of another space of pids", "no answer"],
)
def test_whose_memory_it_is_may_not_be_told(was: Before, now: Answer, expected: bool) -> None:
    """Only where another attempt lives, and nvidia-smi names nobody, or pids that are no process here."""
    assert expected is unsure(was, now, TAG)
