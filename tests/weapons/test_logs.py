"""Logs as weapons: whatever a stack writes, or does to its own log, the agent says what is so."""

from __future__ import annotations

import pytest

from bisect_agent.model import Reason
from tests.weapons.arms import FATAL, Arms

STRIKE = f"echo; echo '{FATAL}'; exit 1"
MB = 1_000_000
PEAK = 120
"""The most memory the agent may ever have, in MB."""


# --- what is in it ------------------------------------------------------------------------------------

CONTENTS = {
    "progress-bars": r"""yes 'loading: 34% |####      | 17/50' | head -c 10M | tr '\n' '\r'""",
    "one-endless-line": r"head -c 100M /dev/zero | tr '\0' x",
    "nuls": "head -c 20M /dev/zero",
    "binary": "head -c 4M /dev/urandom",
    "blank-lines": "yes '' | head -c 20M",
    "short-lines": "yes | head -c 40M",
    "broken-utf-8": r"yes $'\xff\xfe\xed\xa0\x80 \xc0' | head -c 5M",
    "ansi": r"yes $'\e[2J\e[31mred\e]0;title\a\e[' | head -c 5M",
    "warnings": r"yes $'/opt/a.py:1: UserWarning: care\n  warnings.warn(text)' | head -c 1M",
    "tracebacks": (
        r"""yes $'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nE: x' | head -c 2300K"""
    ),
}
HEAVY = ("one-endless-line", "progress-bars", "nuls", "blank-lines", "binary")


@pytest.mark.parametrize("weapon", CONTENTS.values(), ids=CONTENTS)
def test_the_fatal_line_is_seen_behind_anything(arms: Arms, weapon: str) -> None:
    """And our copy of it all is small, and says the same by itself."""
    arms.load(f"echo armed; {weapon}; {STRIKE}")
    seen = arms.attempt()
    assert "struck" == seen.symptom().id
    log, reading = seen.observation.log, seen.observation.reading
    assert log is not None
    assert reading == arms.again(log, reading.size)
    copy = arms.scene.folder / "run" / log.path
    assert copy.stat().st_size < 11 * MB


def test_a_line_of_a_log_with_holes_is_found_by_both_its_numbers(arms: Arms) -> None:
    """The copy's own line is the one to open; the log's own is said beside it."""
    arms.load(f"echo armed; yes 'all is well' | head -n 700000; {STRIKE}")
    (evidence,) = arms.attempt().symptom().evidence
    lines = (arms.scene.folder / "run" / evidence.path).read_text().splitlines()
    assert evidence.copy_line is not None
    assert (700_004, FATAL) == (evidence.line, lines[evidence.copy_line - 1])
    assert [1] == [line.count("are left out here") for line in lines if line.startswith("[bisect-agent:")]


def test_a_flood_that_never_ends_is_stopped_at_its_fatal_line(arms: Arms) -> None:
    """However far behind the agent is, it reads on, holds little, and leaves nothing; `verify` agrees."""
    flood = (
        "exec python3 -c 'import os, time\n"
        'chunk = b"0123456789abcdef\\n" * 60000\n'
        "for n in range(10**6):\n"
        f'    os.write(1, b"\\n{FATAL}\\n" if n == 60 else chunk)\n'
        "    time.sleep(0.01 * (n > 60))'"
    )
    arms.load(flood, limits={"trials": 2})
    ran = arms.run()
    assert 5 == ran.code, ran.stderr
    assert "struck" == ran.verdict().trials[1].symptom
    assert ran.peak < PEAK
    assert [] == arms.scene.alive()
    assert 0 == arms.command("verify", ran.folder()).code


def test_memory_stays_small(arms: Arms) -> None:
    """Whatever is in a log, and however much of it."""
    arms.load(
        f"echo armed; {'; echo; '.join(CONTENTS[name] for name in HEAVY)}; {STRIKE}", limits={"trials": 2}
    )
    ran = arms.run()
    assert "struck" == ran.verdict().trials[1].symptom
    assert ran.peak < PEAK


# --- what is done to it -------------------------------------------------------------------------------

SEEN = "echo armed; until [ -e seen ]; do sleep 0.02; done"
DEEDS = {
    "rotated": ('mv "$log" "$log.1"; echo anew >"$log"', "another file took its name"),
    "rotated-away": ('mv "$log" "$log.1"', "it was removed while it was read"),
    "removed": ('rm "$log"', "it was removed while it was read"),
    "emptied": (': >"$log"', "it shrank from"),
    "truncated": ('truncate -s 10 "$log"', "it shrank from"),
    # In one write, so that nobody can look between the cut and what is written.
    "overwritten": (
        'yes anew | head -c 100000 | dd of="$log" bs=100000 iflag=fullblock conv=notrunc status=none',
        "it was cut, and written anew",
    ),
}


@pytest.mark.parametrize(("deed", "detail"), DEEDS.values(), ids=DEEDS)
def test_a_log_that_its_own_writer_damages_is_said_to_be_damaged(arms: Arms, deed: str, detail: str) -> None:
    """Each deed is named; what was read before it stays in our copy, and nothing written after it counts."""
    arms.load(f"{SEEN}; {deed}; echo '{FATAL}'; sleep 60")
    seen = arms.attempt()
    assert Reason.LOG_DAMAGED == seen.unresolved().reason
    assert detail in seen.unresolved().detail
    log = seen.observation.log
    assert log is not None
    assert "armed" == (arms.scene.folder / "run" / log.path).read_text().splitlines()[1]
    assert ["armed"] == [m.id for m in seen.observation.reading.matches]
    assert [] == arms.scene.alive()


def test_a_log_that_is_gone_at_once_is_missing_or_damaged(arms: Arms) -> None:
    """Whichever the agent was in time for; it is never taken for silence."""
    arms.load('rm "$log"; sleep 60')
    assert arms.attempt().unresolved().reason in {Reason.LOG_MISSING, Reason.LOG_DAMAGED}
    assert [] == arms.scene.alive()
