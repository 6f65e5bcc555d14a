"""Reading a log: lines, prefixes, roles, tracebacks, and that no split of the bytes changes anything."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_agent.lines import SHOWN, mask, parse
from bisect_agent.model import (
    Configuration,
    EnvFactor,
    FlagsFactor,
    Hypothesis,
    Kind,
    LastLine,
    Limits,
    LogWitness,
    Match,
    MatchKind,
    Observe,
    PhaseMark,
    Playbook,
    Reading,
    Role,
    Signature,
    Target,
)
from bisect_agent.signatures import OVERLAP, WINDOW, Scanner, Watch, check_pattern, printable, watches

ROOT = Watch(MatchKind.SIGNATURE, "root", "uncaptured work", Role.ROOT)
SYMPTOM = Watch(MatchKind.SIGNATURE, "symptom", "hit an exception|uncaptured work", Role.SYMPTOM)
HINT = Watch(MatchKind.SIGNATURE, "hint", r"^\d\. disable", Role.HINT)
PROGRESS = Watch(MatchKind.SIGNATURE, "progress", "Capturing batches", Role.PROGRESS)
READY = Watch(MatchKind.READY, "ready", "^The server is fired up$")
COMPILE = Watch(MatchKind.PHASE, "compile", r"(?i)\btorch.compile\b|^begin$")
ALL = (ROOT, SYMPTOM, HINT, PROGRESS, READY, COMPILE)
EVERY_LINE = Watch(MatchKind.DONE, "every line", "(?s).")

TRACEBACK = """\
[2026-06-17 23:46:56 TP2] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/graph.py", line 82, in capture
    run("uncaptured work")
    ^^^^^^^^^^^^^^^^^^^^^^
torch.AcceleratorError: CUDA error: uncaptured work at 0x7f00beef in /tmp/a1/b.so, pid 4711

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/sglang/server.py", line 9, in start
    graph.capture()
Exception: Capture failed: later uncaptured work

[2026-06-17 23:46:57 TP0] next
"""


def scan(log: str | bytes, looked_for: Iterable[Watch] = ALL, ignore: Iterable[str] = ()) -> Reading:
    """The reading of a whole log, given at once."""
    scanner = Scanner(tuple(looked_for), tuple(ignore))
    scanner.feed(log.encode() if isinstance(log, str) else log)
    scanner.finish()
    return scanner.reading()


def ids(reading: Reading) -> list[tuple[int, str]]:
    """Line and id of every match."""
    return [(m.line, m.id) for m in reading.matches]


# --- splitting --------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"\r\n",
        b" ",
        b"    ",
        b"\x1b[31m",
        b"\x1b[0m",
        b"\x1b",
        b"\xe2\x96",
        b"\xff",
        b"\x00",
        "▏é".encode(),
        b"torch.com",
        b"pile",
        b"begin",
        b"uncaptured",
        b" work",
        b"The server is fired up",
        b"1. disable torch.compile",
        b"Capturing batches",
        b"[2026-06-17 23:46:56 TP2] ",
        b"(Worker_TP1 pid=3) ERROR 11-29 15:22:03 [core.py:7] ",
        b"WARNING: ",
        b"/x.py:3: UserWarning: odd\n",
        b"Traceback (most recent call last):\n",
        b'  File "/x/y.py", line 3, in f\n',
        b"RuntimeError: uncaptured work\n",
        b"\nDuring handling of the above exception, another exception occurred:\n\n",
        b"healthy line\n" * 40,
        b"x" * 3000,
        b"y" * (WINDOW - OVERLAP),
    ]
)
LOGS = st.lists(PIECES, max_size=40).map(b"".join)


@st.composite
def split_logs(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A log, whole and in pieces."""
    log = draw(LOGS)
    cuts = sorted({0, len(log), *draw(st.lists(st.integers(0, len(log)), max_size=12))})
    return log, [log[a:b] for a, b in pairwise(cuts)]


def matched(scanner: Scanner, pieces: Iterable[bytes]) -> list[Match]:
    """All that a scanner tells of a log, but for the watch that matches every line."""
    found = [m for piece in pieces for m in scanner.feed(piece)] + scanner.finish()
    return [m for m in found if m.id != EVERY_LINE.id]


@settings(max_examples=300, deadline=None)
@given(split_logs())
def test_neither_the_split_of_the_bytes_nor_the_filter_hides_a_line(case: tuple[bytes, list[bytes]]) -> None:
    """Looking at every line of the whole log finds the same as filtering it piece by piece."""
    log, pieces = case
    every, some = Scanner((*ALL, EVERY_LINE)), Scanner(ALL)
    all_of_it, told = matched(every, [log]), matched(some, pieces)
    assert [m for m in all_of_it if m.id != PROGRESS.id] == [m for m in told if m.id != PROGRESS.id]
    assert {m.id for m in all_of_it} == {m.id for m in told}
    assert set(told) <= set(all_of_it)
    assert every.reading().raised == some.reading().raised


SHORT = st.lists(
    st.sampled_from([b"\n", b"\r", b"torch.compile", b"begin", b"x", b" ", b"\x1b[1m", b"\xff"]), max_size=60
).map(b"".join)


@settings(max_examples=200, deadline=None)
@given(SHORT)
def test_a_line_matches_where_a_plain_search_of_it_does(log: bytes) -> None:
    """Offset and line number of each match are those of a search line by line."""
    expected = [
        (1 + log.count(b"\n", 0, m.start()), m.start())
        for m in re.finditer(rb"[^\r\n]+", log)
        if re.search(rb"(?i)\btorch.compile\b|^begin$", m[0].replace(b"\x1b[1m", b""))
    ]
    assert expected == [(m.line, m.offset) for m in matched(Scanner((COMPILE,)), [log])]


def test_a_line_is_matched_when_its_end_arrives() -> None:
    """Bytes of an unfinished line match nothing until the line break, or the end of the log."""
    scanner = Scanner((ROOT,))
    told = [scanner.feed(b"uncaptured wo"), scanner.feed(b"rk\nuncaptured work"), scanner.finish()]
    assert [[], [1], [2]] == [[m.line for m in part] for part in told]


def test_a_progress_bar_is_one_line_in_parts() -> None:
    """Parts between carriage returns match one by one and share the line's number."""
    reading = scan("first\n 0%\rbegin\rbegin\nbegin\n", (COMPILE,))
    assert [(2, 10), (2, 16), (3, 22)] == [(m.line, m.offset) for m in reading.matches]


def test_the_size_and_the_lines_are_counted() -> None:
    """A last line without a line break counts."""
    assert (8, 3) == (scan("a\n\r\nb\r\rc").size, scan("a\n\r\nb\r\rc").lines)


# --- prefixes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rank", "time", "level", "rest"),
    [
        ("[2026-06-17 23:46:56 TP2] x", "TP2", 1781740016.0, None, "x"),
        ("[2026-06-17 23:46:56.250 TP2] x", "TP2", 1781740016.25, None, "x"),
        ("[2026-06-17 23:46:56 DP0 TP3 EP1] x", "DP0 TP3 EP1", 1781740016.0, None, "x"),
        ("[2026-06-17 23:46:56] INFO:     x", None, 1781740016.0, "INFO", "INFO:     x"),
        ("[2026-13-17 23:46:56] x", None, None, None, "x"),
        ("(EngineCore pid=12) ERROR 11-29 14:00:00 [core.py:700]   x", "EngineCore", None, "ERROR", "  x"),
        ("(Worker_TP1 pid=3) x", "Worker_TP1", None, None, "x"),
        ("WARNING 11-29 14:00:00 [core.py:700] x", None, None, "WARNING", "x"),
        ("[rank3]:[E1129 14:00:00.123456789 Group.cpp:616] x", "rank3", None, "ERROR", "x"),
        (
            "[rank0]:W1129 14:54:25.693000 13325 torch/g.py:207] [__cudagraphs]   x",
            "rank0",
            None,
            "WARNING",
            "  x",
        ),
        ("[rank3]: x", "rank3", None, None, "x"),
        ("server-1  | [2026-06-17 23:46:56 TP2] x", "server-1/TP2", 1781740016.0, None, "x"),
        ("(Actor pid=7, ip=10.0.0.1) x", "Actor", None, None, "x"),
        (
            "node0:123:456 [3] misc/utils.cc:7 NCCL WARN x",
            "node0/GPU3",
            None,
            None,
            "misc/utils.cc:7 NCCL WARN x",
        ),
        ("node0:123:456 [3] NCCL INFO x", "node0/GPU3", None, "INFO", "NCCL INFO x"),
        ("2026-06-17T23:46:56.5Z x", None, 1781740016.5, None, "x"),
        ("2026-06-17 23:46:56,500 - app - WARNING - x", None, 1781740016.5, "WARNING", "- app - WARNING - x"),
        ("/x.py:3: UserWarning: x", None, None, "WARNING", "/x.py:3: UserWarning: x"),
        ("[bisect] x", None, None, None, "[bisect] x"),
        ("  x", None, None, None, "  x"),
    ],
)
def test_a_prefix_says_who_wrote_the_line_and_when(
    text: str, rank: str | None, time: float | None, level: str | None, rest: str
) -> None:
    """Every stack's prefix gives rank, time and level; stamps without a year are no time."""
    line = parse(text)
    assert (rank, time, level, rest) == (line.rank, line.time, line.level, line.rest)


def test_an_anchored_pattern_matches_after_the_prefix_too() -> None:
    """`^` is the start of the line and of what follows its prefix, and of nothing else."""
    reading = scan("begin\n[2026-06-17 23:46:56 TP2] begin\nnot begin\n", (COMPILE,))
    assert [(1, "compile"), (2, "compile")] == ids(reading)


# --- roles ------------------------------------------------------------------------------------------


def test_a_hint_is_only_a_hint() -> None:
    """An advice line that names torch.compile and uncaptured work shows neither."""
    assert [(1, "hint")] == ids(scan("3. disable torch.compile, uncaptured work\n"))


@pytest.mark.parametrize(
    "log",
    [
        "[2026-06-17 23:46:56] WARNING: uncaptured work\n",
        "(Worker pid=3) INFO 11-29 15:22:03 [core.py:7] uncaptured work\n",
        "[rank0]:W1129 14:54:25.693000 13325 torch/g.py:207] uncaptured work\n",
        "/opt/x.py:3: UserWarning: uncaptured work\n",
    ],
)
def test_a_record_below_error_is_no_root(log: str) -> None:
    """What its writer calls a warning or less is a symptom at most."""
    assert [(1, "symptom")] == ids(scan(log))


@pytest.mark.parametrize(
    "log",
    [
        '  File "/x/uncaptured work.py", line 3, in f\n',
        '  File "/x/y.py", line 3, in f\n    raise E("uncaptured work")\n',
        '[rank0]:   File "/x/y.py", line 3, in f\n[rank0]:     raise E("uncaptured work")\n',
        '/opt/x.py:3: UserWarning: odd\n  warn("uncaptured work")\n',
        "Traceback (most recent call last):\n    uncaptured work\n",
    ],
)
def test_quoted_code_shows_nothing(log: str) -> None:
    """Frames and source lines hold any words; none of them happened."""
    assert [] == ids(scan(log))


def test_the_message_of_a_cpp_exception_counts() -> None:
    """`what():` is indented and no code."""
    log = "terminate called after throwing 'c10::Error'\n  what():  CUDA error: uncaptured work\n"
    assert [(2, "root"), (2, "symptom")] == ids(scan(log))


def test_an_ignored_line_matches_nothing_and_raises_nothing() -> None:
    """`ignore` silences the line and the exception that it tells."""
    log = 'Traceback (most recent call last):\n  File "/x.py", line 1, in f\nE: uncaptured work\n'
    reading = scan(log, ignore=["^E: "])
    assert ((), ()) == (reading.matches, reading.raised)


def test_progress_is_told_and_not_kept() -> None:
    """A progress line is in what `feed` returns only."""
    scanner = Scanner((PROGRESS,))
    assert ["progress"] == [m.id for m in scanner.feed(b"Capturing batches\n")]
    assert () == scanner.reading().matches


def test_of_much_progress_one_line_is_told_and_nothing_else_is_lost() -> None:
    """A flood of it costs little; what stands in the midst of it is found where it stands."""
    flood = b"Capturing batches\n" * 5000
    scanner = Scanner(ALL)
    told = scanner.feed(flood + b"uncaptured work\n" + flood + b"Capturing batches\n")
    lines = [m.line for m in told if m.id == PROGRESS.id]
    assert len(lines) < 2000
    assert max(lines) > 9900
    assert {(5001, "uncaptured work")} == {(m.line, m.text) for m in told if m.id != PROGRESS.id}
    assert (5001, 10001) == (scanner.reading().matches[0].line, scanner.reading().lines - 1)


def test_the_first_matches_of_each_rank_are_kept() -> None:
    """A line repeated for ever fills neither the memory nor another rank's place."""
    log = "[2026-06-17 23:46:56 TP0] uncaptured work\n" * 900 + "[2026-06-17 23:46:56 TP1] uncaptured work\n"
    assert [1, 2, 3, 4, 901] == [m.line for m in scan(log, (ROOT,)).matches]


# --- tracebacks -------------------------------------------------------------------------------------


def test_the_first_traceback_of_a_chain_is_what_was_raised() -> None:
    """Its exception, frame and fingerprint are told, with the rank and time of the chain's record."""
    (raised,) = scan(TRACEBACK).raised
    assert (5, "TP2", 1781740016.0) == (raised.line, raised.rank, raised.time)
    assert 'File "/opt/sglang/graph.py", line 82, in capture' == raised.frame
    assert (
        "torch.AcceleratorError: CUDA error: uncaptured work at # in <path>, pid # @ graph.py:capture"
        == raised.fingerprint
    )
    assert (0, TRACEBACK.index("\n\n[2026-06-17 23:46:57")) == (raised.begins, raised.ends)


def test_a_match_in_a_chain_has_the_rank_and_time_of_the_chain() -> None:
    """Lines of a traceback carry no stamp of their own."""
    roots = [m for m in scan(TRACEBACK).matches if m.id == "root"]
    assert [(5, "TP2", 1781740016.0), (12, "TP2", 1781740016.0)] == [(m.line, m.rank, m.time) for m in roots]


def test_a_traceback_belongs_to_the_record_before_it() -> None:
    """`logger.exception` writes the stamp on the message's first line, the traceback after it."""
    log = "[2026-06-17 23:46:56 TP5] it failed\nTraceback (most recent call last):\n  ...\nE\n"
    assert ["TP5"] == [r.rank for r in scan(log).raised]


def test_records_of_others_do_not_break_a_traceback() -> None:
    """Another rank's line between two frames is neither code nor the exception."""
    lines = TRACEBACK.splitlines(keepends=True)
    lines[2:2] = [
        "[2026-06-17 23:46:56 TP7] uncaptured work\n",
        "[Gloo] Rank 0 is connected\n",
        "INFO:     GET /health\n",
    ]
    reading = scan("".join(lines), (ROOT,))
    assert [(3, "TP7"), (8, "TP2"), (15, "TP2")] == [(m.line, m.rank) for m in reading.matches]
    assert [(8, "TP2")] == [(r.line, r.rank) for r in reading.raised]


def test_writers_that_sign_every_line_are_followed_apart() -> None:
    """Two ranks' tracebacks, line by line in turn, are two chains."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/x.py", line 1, in f',
        "    raise E",
        "E: uncaptured work",
    ]
    log = "".join(f"[rank{rank}]: {line}\n" for line in lines for rank in (0, 1))
    assert [("rank0", 7), ("rank1", 8)] == [(r.rank, r.line) for r in scan(log).raised]


def test_a_warning_with_a_traceback_raised_nothing() -> None:
    """A traceback that its writer logs as a warning is no failure."""
    lines = ["Traceback (most recent call last):", '  File "/x.py", line 1, in f', "E: uncaptured work"]
    log = "".join(f"W1129 14:54:25.693000 13325 torch/g.py:207] [0/0] {line}\n" for line in lines)
    reading = scan(log, (ROOT,))
    assert ((), ()) == (reading.matches, reading.raised)


def test_an_exception_group_is_read_like_any_other() -> None:
    """The margin that Python draws around a group hides nothing."""
    log = """\
  + Exception Group Traceback (most recent call last):
  |   File "/x/a.py", line 1, in serve
  |     raise group("uncaptured work")
  | ExceptionGroup: unhandled errors (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/x/b.py", line 3, in load
    |     raise ValueError("uncaptured work")
    | ValueError: uncaptured work
    +------------------------------------
done
"""
    reading = scan(log, (ROOT,))
    assert [(9, "root")] == ids(reading)
    assert [
        "ExceptionGroup: unhandled errors (# sub-exceptions) @ a.py:serve",
        "ValueError: uncaptured work @ b.py:load",
    ] == [r.fingerprint for r in reading.raised]


def test_a_chain_without_end_is_not_waited_for() -> None:
    """A traceback cut off in the middle does not turn all later indented lines into code."""
    log = "Traceback (most recent call last):\n" + "healthy\n" * 8000 + "    uncaptured work\n"
    assert [(8002, "root")] == ids(scan(log, (ROOT,)))


def test_at_most_64_exceptions_are_kept() -> None:
    """A program that fails in a loop does not fill the memory."""
    log = 'Traceback (most recent call last):\n  File "/x.py", line 1, in f\nE: x\n' * 100
    assert 64 == len(scan(log).raised)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Tried to allocate 448.00 MiB, 12 free", "Tried to allocate # MiB, # free"),
        ("no sm_120 code for float32", "no sm_120 code for float32"),
        ("at 0x7efea7f38aa8 of cmpl-95f9c2b3be717547", "at # of cmpl-#"),
        ("in /home/me/.cache/a-1.so: bad", "in <path>: bad"),
        ("see https://pytorch.org/docs", "see https://pytorch.org/docs"),
        ("head_dim=16 took 10ms", "head_dim=# took #ms"),
    ],
)
def test_what_differs_from_run_to_run_is_masked(text: str, masked: str) -> None:
    """Numbers, addresses, identifiers and paths go; names stay."""
    assert masked == mask(text)


# --- hostile logs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"uncaptured\x1b[31m \x1b[0mwork",
        b"\x00uncaptured work\x00",
        b"\xff\xfeuncaptured work",
        b"\x1b]0;title\x07uncap\x1b[1;31mtured work",
        b"uncaptured work\x1b",
    ],
)
def test_colours_nuls_and_broken_text_hide_nothing(line: bytes) -> None:
    """A word is found though control bytes stand around or within it."""
    assert [(2, "root")] == ids(scan(b"healthy\n" + line + b"\nhealthy\n", (ROOT,)))


def test_a_dot_matches_a_broken_byte() -> None:
    """A byte that is no UTF-8 is a character like any other to a pattern."""
    dotted = Watch(MatchKind.PHASE, "dotted", "a.b")
    assert [(1, "dotted")] == ids(scan(b"a\xffb\n", (dotted,)))


def test_a_line_of_100_megabytes_is_read_in_bounded_memory() -> None:
    """Its end is matched, with its first byte as the offset, and it is not held."""
    scanner = Scanner((ROOT,))
    scanner.feed(b"first\n[2026-06-17 23:46:56 TP2] ")
    tracemalloc.start()
    blanks = b"x" * (1 << 20)
    for _ in range(100):
        scanner.feed(blanks)
    found = scanner.feed(b" uncaptured work\nlast\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(2, 6, "TP2")] == [(m.line, m.offset, m.rank) for m in found]
    assert peak < 8 << 20
    assert 3 == scanner.reading().lines


@given(st.integers(0, 3 * WINDOW))
@settings(max_examples=60, deadline=None)
def test_a_match_is_found_anywhere_in_a_long_line(at: int) -> None:
    """Windows overlap: no cut hides a match, and none makes it two."""
    log = b"x" * at + b"uncaptured work" + b"y" * (3 * WINDOW - at)
    assert [(1, "root")] == ids(scan(log, (ROOT,)))


def test_a_windows_edge_is_no_start_or_end_of_a_line() -> None:
    """`^` and `$` mean the line's own ends, however long it is."""
    edges = (Watch(MatchKind.PHASE, "start", "^y"), Watch(MatchKind.PHASE, "end", "x$"))
    log = "x" * (WINDOW - OVERLAP) + "y" * OVERLAP + "x" * WINDOW + "z"
    assert [] == ids(scan(log, edges))


def test_the_text_of_a_match_is_capped_and_shows_the_match() -> None:
    """Of a long line the part around the match is evidence, in printable characters."""
    (match,) = scan("a" * 5000 + "\x01uncaptured work" + "b" * 5000 + "\n", (ROOT,)).matches
    assert SHOWN >= len(match.text)
    assert r"aa\x01uncaptured workbb" in match.text


@given(st.one_of(st.text(), st.binary()))
def test_printable_text_is_one_harmless_line(text: str | bytes) -> None:
    """Whatever the log holds, what is shown moves no cursor and breaks no line."""
    assert printable(text).replace("\t", " ").isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"a\x1b[31mb", r"a\x1b[31mb"),
        (b"\xffx\n", r"\xffx\n"),
        ("abc\u202edef", r"abc\u202edef"),
        ("tab\tand ▏é", "tab\tand ▏é"),
    ],
)
def test_what_cannot_be_shown_is_written_out(text: str | bytes, shown: str) -> None:
    """Nothing is dropped: it is escaped."""
    assert shown == printable(text)


# --- patterns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["^ready$", r"(?i)cuda \d+", r"\QA+\E", "[]^]x", r"a\b", "(?P<n>x)", r"\\A", r"[\]A]\\z"]
)
def test_a_pattern_of_re2_is_accepted(pattern: str) -> None:
    """What RE2 takes and can match a part of a line is fine."""
    assert check_pattern(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        (r"\Afoo", "write ^"),
        (r"ready\z", "write $"),
        (r"ready\Z", "write $"),
        (r"a\Cb", "write a dot"),
        ("(?i-m:^x)", "leave it out"),
        (".*", ".+ for .*"),
        ("^$", "empty"),
        ("a(?=b)", "look-around"),
        (r"(a)\1", "back-references"),
        ("[a", "missing ]"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_explained(pattern: str, remedy: str) -> None:
    """The sentence names what to write instead."""
    assert remedy in (check_pattern(pattern) or "")


# --- playbooks --------------------------------------------------------------------------------------

PLAYBOOK = Playbook(
    title="t",
    kind=Kind.SERVER,
    target=Target(host="local", cwd="."),
    launch='exec x "$@"',
    factors=(
        EnvFactor(
            name="kernel",
            env="K",
            levels={"mma": "1", "stock": "16", "unset": None},
            witness=LogWitness(log="kernel: {level} (K={value})"),
        ),
        FlagsFactor(
            name="bs", levels={"one": ("--bs", "1"), "off": ()}, witness=LogWitness(log="args {value}")
        ),
        EnvFactor(name="quiet", env="Q", levels={"on": "1"}),
    ),
    good=Configuration({"kernel": "mma", "bs": "one", "quiet": "on"}),
    bad=Configuration({"kernel": "stock", "bs": "one", "quiet": "on"}),
    suspects=(),
    observe=Observe(
        ready_log="fired up",
        done="finished",
        signatures=(Signature(id="ours", role=Role.ROOT, pattern="boom"),),
        phases=(PhaseMark(name="load", begin="Load weight begin"),),
    ),
    signatures=(Signature(id="theirs", role=Role.HINT, pattern="advice"),),
    hypotheses=(
        Hypothesis(
            id="double", family="f", claim="c", contradicted_by=("graphs are off", "skipping cudagraphs")
        ),
    ),
    limits=Limits(start=1, quiet=1, request=1, stop=1, trials=1, wall=1),
    restore="none",
)


def test_a_playbook_says_what_is_looked_for() -> None:
    """Signatures first, the playbook's own before the built-in ones; a witness for every level."""
    assert [
        Watch(MatchKind.SIGNATURE, "ours", "boom", Role.ROOT),
        Watch(MatchKind.SIGNATURE, "theirs", "advice", Role.HINT),
        Watch(MatchKind.READY, "ready", "fired up"),
        Watch(MatchKind.DONE, "done", "finished"),
        Watch(MatchKind.PHASE, "load", "Load weight begin"),
        Watch(MatchKind.WITNESS, "kernel=mma", "kernel: mma (K=1)"),
        Watch(MatchKind.WITNESS, "kernel=stock", "kernel: stock (K=16)"),
        Watch(MatchKind.WITNESS, "bs=one", r"args \-\-bs\ 1\b"),
        Watch(MatchKind.CONTRADICTION, "double", "graphs are off"),
        Watch(MatchKind.CONTRADICTION, "double", "skipping cudagraphs"),
    ] == list(watches(PLAYBOOK))


def test_a_level_is_not_seen_in_a_longer_one() -> None:
    """`--bs 1` is not witnessed by `--bs 16`."""
    witnesses = [w for w in watches(PLAYBOOK) if w.id == "bs=one"]
    assert [(2, "bs=one")] == ids(scan("args --bs 16\nargs --bs 1\n", witnesses))


def test_the_last_line_that_is_not_empty_is_known() -> None:
    """What was said before silence or the end is evidence, whatever blank lines follow."""
    last = scan("one\ntwo\nthree\n\n\n").last
    assert LastLine(line=3, offset=8, text="three") == last
