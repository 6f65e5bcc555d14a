"""A night made by hand, in which every text wants to be more than text."""

from __future__ import annotations

from bisect_agent.errors import ExitCode
from bisect_agent.report.digest import Brief, Digest
from tests.report.scene import HOSTILE, TITLE

_BEGAN = 1_795_961_253.0

NIGHT = Digest(
    began=_BEGAN,
    at=_BEGAN + 33_000,
    until="2026-11-30 07:00 (UTC+0000)",
    over=True,
    notes=("nobody was told through ${TEAM}: Failed to send <b>it</b>",),
    runs=(
        Brief(
            name="compile",
            playbook="/srv/<u>compile</u>.yaml",
            title=TITLE,
            target="ssh://gpu-box",
            state="over",
            code=ExitCode.CONCLUDED,
            found="compile=on × capture=on is the cause",
            restored=True,
            why="it runs and answers",
            began=_BEGAN,
            ended=_BEGAN + 5_400,
            attempts=6,
            folder="/runs/20261129T140736Z-compile-3f9a",
            page="20261129T140736Z-compile-3f9a/verdict.html",
            serves=True,
            commands=("bisect-agent stop /runs/20261129T140736Z-compile-3f9a",),
        ),
        Brief(
            name="kernel",
            playbook="/srv/kernel.yaml",
            title="the kernel | writes NaN",
            target="ssh://gpu-box",
            state="over",
            code=ExitCode.NOT_RESTORED,
            found=f"not established: {HOSTILE}",
            restored=False,
            why=f"fails with {HOSTILE}",
            began=_BEGAN + 5_400,
            ended=_BEGAN + 9_000,
            attempts=3,
            folder="/runs/<i>x</i>",
            page="<i>x</i>/verdict.html",
            commands=("bisect-agent resume '/runs/<i>x</i>'",),
            notes=(f"a note: {HOSTILE}",),
        ),
        Brief(
            name="wrong",
            playbook="/srv/wrong.yaml",
            state="over",
            code=ExitCode.USAGE,
            found="wrong.yaml:3:1: unknown key `limitz`\n  try: `limits`",
        ),
        Brief(
            name="last",
            playbook="/srv/last.yaml",
            title="the last one",
            target="local",
            state="over",
            code=ExitCode.BUDGET,
            found="not begun: --until 2026-11-30 07:00 (UTC+0000)",
        ),
    ),
)
