"""Disks that fill up, the target's and ours: it is said whose, and nothing is left running."""

from __future__ import annotations

from pathlib import Path

from bisect_agent.model import Reason
from tests.weapons.arms import FATAL, Arms, disk

FILL = "echo armed; yes 2>/dev/null; exit 1"
"""A stack that fills the disk of its log."""


def test_a_full_disk_of_the_target_is_no_fault_of_the_stack(arms: Arms, tmp_path: Path) -> None:
    """What the log would have said is not known: even a fatal line may be the disk's own doing (rule 6)."""
    arms.load(FILL)
    with disk(tmp_path / "target", 4):
        seen = arms.attempt()
        assert Reason.DISK == seen.unresolved().reason
        assert "no space is left in" in seen.unresolved().detail
        assert [] == arms.scene.alive()


def test_a_disk_of_the_target_that_fills_up_ends_the_run(arms: Arms, tmp_path: Path) -> None:
    """Exit 4 with a sentence, and `verify` agrees; no attempt is left."""
    arms.load(FILL)
    with disk(tmp_path / "target", 80):
        ran = arms.run()
        assert 4 == ran.code, ran.stderr
        assert "the disk is full" in ran.verdict().tree.text
        assert [] == arms.scene.alive()


def test_our_own_full_disk_ends_the_run(arms: Arms, tmp_path: Path) -> None:
    """Exit 4, and a sentence that names the run folder; what was started is ended."""
    arms.load(f"echo armed; yes '{'x' * 200}' | head -c 3M; echo '{FATAL}'; sleep 60")
    with disk(tmp_path / "ours", 1) as ours:
        ran = arms.run(ours / "runs")
        assert 4 == ran.code, ran.stderr
        assert f"error: {ran.folder()}: No space left on device: nothing more can be recorded" in ran.stderr
        assert "Traceback" not in ran.stderr
        assert [] == arms.scene.alive()


def test_no_room_for_a_run_folder_starts_nothing(arms: Arms, tmp_path: Path) -> None:
    """The same sentence, before anything was done."""
    arms.load("echo armed")
    with disk(tmp_path / "ours", 1) as ours:
        (ours / "filler").write_bytes(b"")
        with (ours / "filler").open("ab", buffering=0) as file:
            while file.write(bytes(4096)) == 4096 and file.tell() < (1 << 20) - 8192:
                pass
        ran = arms.run(ours / "runs")
        assert 4 == ran.code, ran.stderr
        assert "No space left on device" in ran.stderr
        assert "Traceback" not in ran.stderr
