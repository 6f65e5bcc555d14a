"""What the reports of the hand-made verdict show beside it: every text in it wants to be more than text."""

from __future__ import annotations

from bisect_agent.model import Evidence
from bisect_agent.report.dossier import (
    Advice,
    Background,
    ByHand,
    Checked,
    Dossier,
    Fact,
    Meaning,
    Move,
    Near,
)

TITLE = "the compiled mode dies\x1b[2J & <b>is not bold</b>"
HOSTILE = "\x1b[31m</pre><script>alert(1)</script> ```\u202egnp\u202c\u200b `x` [a](javascript:b) ![c](//d)"
_LOG = "trials/t02-bad/1/server.log"


def _checked(trial: str, change: str, outcome: str, said: str = "", *, attempt: int = 1) -> Checked:
    facts = (Fact("left", "no process: all ended by themselves", ok=True),)
    return Checked(trial, attempt, change, "does it?", outcome, said, "", 1_795_961_268.0, 0.5, facts)


DOSSIER = Dossier(
    title=TITLE,
    began=1_795_961_253.0,
    ended=1_795_961_293.4,
    exit_code=6,
    levels={"compile=on": "--enable-compile", "compile=off": "no argument"},
    meanings={"capture-dependency": Meaning(f"A stream was not joined. {HOSTILE}", "capture")},
    backgrounds={
        "kernel-specific": Background(
            f"The kernel allocates. {HOSTILE}", (Move("testing", "t01"), Move("refuted", "t03"))
        ),
        "double-capture": Background("Two owners.", (Move("undecided", None),)),
    },
    advice=(
        Advice(f"`good` does not run again: {HOSTILE}. Bring it up first."),
        Advice("Give up torch.compile in this version of the stack.", hypothesis="stack-wide"),
        Advice(
            "The run has not said its last word. To go on:", command="bisect-agent resume '/runs/<i>x</i>'"
        ),
    ),
    by_hand=(
        ByHand("t02", "bad", "fails with capture-dependency in capture", ("cd /srv", "bash launch.sh --on")),
        ByHand("t01", "good", "passes", ("cd /srv", "bash launch.sh '</mark>```'"), frozenset({1})),
    ),
    asks=("curl -sS -i http://127.0.0.1:30000/health",),
    near={
        (_LOG, 9502): (
            Near(180, f"    raise CaptureError  {HOSTILE}"),
            Near(181, "\\x1b[31mFATAL\\x1b[0m <script>alert('x')</script>", cited=True),
            Near(182, f"<!-- {HOSTILE} " + "and on " * 50, late=True),
        )
    },
    checked=(
        _checked("t01", "good", "passed"),
        Checked(
            trial="t02",
            attempt=1,
            change="bad",
            asked="it must be seen to fail",
            outcome="failed",
            said="capture-dependency",
            phase="capture",
            began=1_795_961_258.0,
            seconds=3.25,
            facts=(
                Fact("script", f"sha256 {'7' * 64}: the same on the target, and bash can parse it", ok=True),
                Fact("answer", f"500 {HOSTILE}", ok=False, copied=True),
                Fact(
                    "kernel=tuned",
                    "witnessed",
                    ok=True,
                    evidence=Evidence(path=_LOG, line=7, offset=300, text="kernel: tuned", sha256="0" * 64),
                ),
                Fact("why it ended", "a fatal line was seen"),
            ),
        ),
        _checked("t03", "kernel=stock", "unresolved", HOSTILE),
        _checked("t03", "kernel=stock", "failed", "capture-dependency", attempt=2),
        _checked("t04", "bad", "failed", "capture-dependency"),
        _checked("restore", "restore", "failed", "capture-dependency"),
    ),
    target={"host": "local", "system": f"Linux {HOSTILE}"},
    record={"run": "a-run", "playbook": "/srv/<u>playbook</u>.yaml"},
)
