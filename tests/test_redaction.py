"""What tells of a machine or a person is replaced, and what a log says stays as it was."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent import library, profiles
from bisect_agent.model import MatchKind, Reading
from bisect_agent.redaction import Known, Redactor, hosts_in
from bisect_agent.signatures import Scanner, Watch
from tests.strategies import FEW

KNOWN = Known(
    hosts=frozenset({"gpu-box-1", "vm"}),
    users=frozenset({"jane"}),
    words=frozenset({"acme"}),
    kernels=frozenset({"6.8.0-45-vendor"}),
    paths=frozenset({"/site/runs", "/home/jane/My Models (old)/x"}),
    public=frozenset({"a-run"}),
)
SAMPLES = Path(__file__).resolve().parents[1] / "logs" / "samples"

NAMES = st.from_regex(r"[a-z][a-z0-9]{1,6}([._+~%-][a-z0-9]{1,4})?", fullmatch=True)
PATHS = st.lists(NAMES, min_size=2, max_size=5).map(lambda names: "/home/" + "/".join(names))
TEXTS = st.lists(
    st.sampled_from(
        ["gpu-box-1", "GPU-BOX-1", "jane", "acme", "10.1.2.3", " a@b.org ", "\n", " ", "=", "é", "/"]
    )
    | PATHS
    | st.text("ab/-.:@\\ \n", max_size=6),
    max_size=10,
).map("".join)


def redacted(text: str) -> str:
    """A text, by a redactor that has seen nothing before."""
    return Redactor(KNOWN).text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/jane/proj/main.py:12", "/home/useA/dirB/main.py:12"),
        ("/home/someone/x.json", "/home/dirxxxA/x.json"),
        ("HOME=/root", "HOME=/dirA"),
        ("at /site", "at /dirA"),
        ("$HOME/proj/x and ~/proj/x", "$HOME/dirA/x and ~/dirA/x"),
        (
            "/opt/sgl/lib/python3.11/site-packages/torch/fx/a.py",
            "/opt/diA/lib/python3.11/site-packages/torch/fx/a.py",
        ),
        (r"printed: \n/srv/team/x", r"printed: \n/srv/dirA/x"),
        ("g++ -I/srv/team/include", "g++ -I/srv/dirA/include"),
        ("file:///srv/team", "file:///srv/dirA"),
        ("https://hf.co//home/jo/x/tree/main", "https://hf.co//home/dA/x/dirA/dirB"),
        ("n//block + a//b", "n//block + a//b"),
        ("/root/.bisect-agent/a-run/log", "/dirA/.bisect-agent/a-run/log"),
        ("in My Models (old)", "in di rxxxxx (xxA)"),
        ("/sys/fs/cgroup/kube/pod7/memory.events", "/sys/fs/cgroup/dirA/dirB/memory.events"),
        ("[rank0] GPU-BOX-1: jane's torchinductor_jane", "[rank0] hos-txx-A: useA's torchinductor_useA"),
        ("\x1b[32mjane\x1b[0m", "\x1b[32museA\x1b[0m"),
        (r"gpu\-box\-1", r"hos\-txx\-A"),
        ("on vm. vm:17 total-vm:3kB vm_x", "on hA. hA:17 total-vm:3kB vm_x"),
        ("Acme-7b", "worA-7b"),
        ("Linux-6.8.0-45-vendor-x86_64", "Linux-6.8.x-xx-xxxxxx-x86_64"),
        ("GPU-1b671a64-40d5-491e-99b0-da01ff1f3341", "GPU-a0000000-0000-0000-0000-000000000001"),
        ("0a:1b:2c:3d:4e:5f", "00:00:00:00:00:01"),
        ("tcp://10.1.2.3:29500", "tcp://00.0.0.1:29500"),
        ("Got 10.1.2.3<51161>", "Got 00.0.0.1<51161>"),
        ("[fe80::1ff]:80", "[0000::001]:80"),
        ("https://me:key@pip.acme.io/simple", "https://ho:stx@xxx.xxxx.xA/simple"),
        ("mail j.doe@example.org now", "mail m.ail@xxxxxxx.xxA now"),
        ("hf_" + "a1" * 17, "to_" + "ken" + "x" * 30 + "A"),
    ],
)
def test_what_tells_of_a_machine_or_a_person_is_replaced(text: str, expected: str) -> None:
    """By what it is called, as long as it was."""
    assert expected == redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "torch==2.11.0 nvidia-curand-cu12==10.3.9.90 nvidia_cublas_cu12-12.8.4.1 driver version 570.86.15.01",
        "NVIDIA H200, sm_90, 23:46:56, c10::cuda::Error, std::a::b, 3.5 tok/s, and/or, 12/24/2026",
        '"GET /v1/chat/completions HTTP/1.1" 200, Route: /docs/oauth2-redirect, POST /generate',
        "http://127.0.0.1:30000/health http://0.0.0.0:1 http://localhost:2 https://huggingface.co/x/y ::1",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1 /proc/7/maps /dev/shm /bin/sh /etc/ssl",
        "hf_chat_template_name=default, memcpy@GLIBC_2.14, gpu-box-10, janet, <class 'x'>, ./rel/path",
        "aff97f4d12e8c2f2a0b2b2bba8d4e21f0b2bba8d4e21f0b2bba8d4e21f0b2bba",
    ],
)
def test_what_tells_of_nobody_stays(text: str) -> None:
    """Versions, models of devices, times, routes, and what every machine has."""
    assert text == redacted(text)


@FEW
@given(TEXTS)
def test_every_byte_keeps_its_place(text: str) -> None:
    """The lengths and the lines are the same, so offsets and line numbers stay true."""
    before, after = text.encode(), redacted(text).encode()
    assert len(before) == len(after)
    assert [m.start() for m in re.finditer(b"\n", before)] == [m.start() for m in re.finditer(b"\n", after)]


@FEW
@given(TEXTS)
def test_twice_is_as_once(text: str) -> None:
    """A replacement is nothing to replace."""
    redactor = Redactor(KNOWN)
    once = redactor.text(text)
    assert once == redactor.text(once)


@FEW
@given(TEXTS)
def test_no_known_name_gets_through(text: str) -> None:
    """Wherever a name stands as a word, it is gone."""
    assert [] == re.findall(r"(?i)(?<![a-z0-9])(?:gpu-box-1|jane|acme)(?![a-z0-9])", redacted(text))


@FEW
@given(PATHS, PATHS)
def test_the_same_becomes_the_same_and_what_differs_goes_on_to_differ(one: str, other: str) -> None:
    """Two levels that are paths are still two levels."""
    redactor = Redactor(KNOWN)
    again = redactor.text(one)
    assert (again == redactor.text(one), again == redactor.text(other)) == (True, one == other)


@FEW
@given(PATHS)
def test_a_pattern_for_a_path_goes_on_to_match_it(path: str) -> None:
    """A witness's pattern holds a level's value with its punctuation escaped."""
    redactor = Redactor(KNOWN)
    assert re2.fullmatch(redactor.text(re2.escape(path)), redactor.text(path))


def test_what_the_shipped_knowledge_looks_for_stays() -> None:
    """No pattern, and no claim, looks like something of a machine."""
    shown = [s.model_dump_json() for s in library.signatures()]
    shown += [profiles.load(name).model_dump_json() for name in profiles.names()]
    assert [] == [text for text in shown if redacted(text) != text]


@pytest.mark.parametrize(
    "name",
    [
        "sglang-side-stream.log",
        "sglang-no-compiler.log",
        "vllm-attention-unsupported.log",
        "cpu/vc3_tc.log.gz",
    ],
)
def test_what_a_real_log_says_stays(name: str) -> None:
    """The same signatures and exceptions, of the same ranks, at the same lines."""
    data = (SAMPLES / name).read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    assert places(reading(data)) == places(reading(Redactor(KNOWN).data(data)))


def reading(data: bytes) -> Reading:
    """What a log says, by all shipped signatures."""
    scanner = Scanner([Watch(MatchKind.SIGNATURE, s.id, s.pattern, s.role) for s in library.signatures()])
    scanner.feed(data)
    scanner.finish()
    return scanner.reading()


def places(read: Reading) -> tuple[object, ...]:
    """All of it but the texts."""
    matches = [m.model_copy(update={"text": ""}) for m in read.matches]
    raised = [r.model_copy(update={"exception": "", "frame": ""}) for r in read.raised]
    return read.size, read.lines, matches, raised


def test_the_hosts_that_nccl_names_are_found() -> None:
    """Its lines begin with the host, the process and the device."""
    log = b"node7:185303:186751 [1] transport/net_ib.cc:2453 NCCL WARN x\nnode8:1:2 [0] other\n"
    assert {"node7"} == hosts_in(log)
