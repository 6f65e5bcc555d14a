"""What a script may import."""

from pathlib import Path

import bisect_agent
from bisect_agent.model import Setting
from tests.e2e.agent import tiny


def test_a_script_can_load_a_playbook_and_run_it(tmp_path: Path) -> None:
    """The verdict comes back as a value, and lies in the run folder too."""
    playbook = tiny(tmp_path, ("limits:", "restore: none\nlimits:")).playbook
    verdict = bisect_agent.run(playbook, tmp_path / "runs")
    assert (Setting(factor="mode", level="fails"),) == verdict.cause
    assert bisect_agent.load(playbook).bad["mode"] == "fails"
    assert 1 == len(list((tmp_path / "runs").glob("*/verdict.md")))
