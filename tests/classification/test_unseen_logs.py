"""Logs as no recorded one is, made of lines that the programs print: what is a cause, and what is not."""

from __future__ import annotations

import pytest

from tests.classification.starts import Row, outcome, seen, told

SPAWN = "[2026-11-29 14:00:00] server_args=ServerArgs(model_path='/models/x', tp_size=2)\n"
LOAD = "[2026-11-29 14:00:10 TP0] Load weight begin. avail mem=138.61 GB\n"
CAPTURE = "[2026-11-29 14:00:20 TP0] Capture target decode CUDA graph begin. backend=full, bs=[1, 2, 4]\n"


def traceback(last: str, header: str = "") -> str:
    """A traceback of one frame, after `header` on its first line."""
    frame = '  File "/opt/site/sglang/srt/x.py", line 7, in run'
    return f"{header}Traceback (most recent call last):\n{frame}\n    step()\n{last}\n\n"


def hit(second: int, rank: str, last: str) -> str:
    """A rank of sglang that ends with an exception."""
    return traceback(last, f"[2026-11-29 14:00:{second} {rank}] Scheduler hit an exception: ")


def engine(name: str, text: str) -> str:
    """Lines as a process of vLLM's engine logs them."""
    start = f"({name} pid=12) ERROR 11-29 14:00:00 [core.py:1586] "
    return "".join(f"{start}{line}\n" for line in text.splitlines())


DURING = "During handling of the above exception, another exception occurred:\n\n"
EOF = traceback("EOFError") + DURING
PEER = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"
INVALIDATED = "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture"
SUBPROCESS = "torch._inductor.compile_worker.subproc_pool.SubprocException"
SELECTOR = "[rank0]:E0705 15:48:23.150000 4343 torch/_inductor/select_algorithm.py:2100] [8/6] "
DIED = "scheduler died during initialization (exit code: {}). If exit code is -9 (SIGKILL), a common cause is"
CRASHED = (
    "[2026-11-29 14:00:40] Subprocess scheduler_0 (pid=77) crashed with exit code {}. Triggering SIGQUIT"
)


def judged(log: str, profile: str = "sglang", ended: str = "killed") -> tuple[str, str, str, int]:
    """What is made of the log of a start that failed."""
    row = Row(log="", profile=profile, ended=ended, outcome="", line=0, why="")
    return told(outcome(row, seen(row, log.encode())))


@pytest.mark.parametrize(
    ("log", "root", "phase"),
    [
        pytest.param(
            SPAWN
            + CAPTURE
            + hit(30, "TP0", PEER)
            + hit(31, "TP1", "ValueError: boom")
            + hit(31, "TP0", PEER),
            "ValueError: boom @ x.py:run",
            "capture",
            id="a peer that was lost first by its stamp, and why it was lost",
        ),
        pytest.param(
            SPAWN + LOAD + EOF + traceback("RuntimeError: Rank 0 " + DIED.format(-11)),
            "process-segfault",
            "load",
            id="a child that died, told by its parent",
        ),
        pytest.param(
            SPAWN + CAPTURE + hit(30, "TP0", INVALIDATED),
            "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture"
            " @ x.py:run",
            "capture",
            id="a capture that another thread broke, with nothing before",
        ),
        pytest.param(
            SPAWN
            + CAPTURE
            + hit(30, "TP0", f"{SUBPROCESS}: An exception occurred in a subprocess:")
            + traceback("AssertionError: fp64 in tl.dot"),
            "AssertionError: fp64 in tl.dot @ x.py:run",
            "capture",
            id="a process that compiles, told by the one that waits for it",
        ),
        pytest.param(
            SPAWN
            + CAPTURE
            + f"{SELECTOR}Runtime error during autotuning: \n"
            + f"{SELECTOR}No valid triton configs. OutOfResources: out of resource: shared memory,"
            " Required: 110592, Hardware limit: 101376.\n"
            + f"{SELECTOR}Ignoring this choice.\n"
            + hit(30, "TP0", "ValueError: boom"),
            "ValueError: boom @ x.py:run",
            "capture",
            id="a choice that the tuner drops, told as an error",
        ),
        pytest.param(
            CAPTURE
            + "[2026-11-29 14:00:25] [Autotuner]: Skipping tactic Fp4GemmRunner 4, due to failure while"
            " profiling: CUDA error: an illegal memory access was encountered\n"
            + hit(30, "TP0", "ValueError: boom"),
            "ValueError: boom @ x.py:run",
            "capture",
            id="a tactic that the tuner skips",
        ),
        pytest.param(
            "[2026-11-29 14:00:05] Ignore import error when loading sglang.srt.models.x: /opt/x.so: undefined"
            " symbol: _ZN5torch7Library4_defE\n" + hit(30, "TP0", "ValueError: boom"),
            "ValueError: boom @ x.py:run",
            "",
            id="an optional module that cannot be imported",
        ),
        pytest.param(
            "[W1129 14:00:00.123456789 socket.cpp:462] [c10d] The server socket has failed to bind"
            " to [::]:29500 (errno: 98 - Address already in use).\n" + hit(30, "TP0", "ValueError: boom"),
            "ValueError: boom @ x.py:run",
            "",
            id="a port that was taken, told as a warning",
        ),
        pytest.param(
            "[2026-11-29 14:00:20] port 11236 is in use. Waiting for 15 seconds for rpc_port to be available."
            " rpc_port is used by a process already.\n" + hit(30, "TP0", "ValueError: boom"),
            "ValueError: boom @ x.py:run",
            "",
            id="a port that was waited for",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:9c:00): 31, pid=77, name=python3, MMU Fault: ENGINE GRAPHICS faulted\n",
            "gpu-program-fault",
            "",
            id="a fault of the program's own, told by the driver",
        ),
        pytest.param(CRASHED.format(-15) + "\n", "signal-9", "", id="a child that was only asked to end"),
        pytest.param(CRASHED.format(1) + "\n", "process-exit", "", id="a child that ended by itself"),
    ],
)
def test_sglang(log: str, root: str, phase: str) -> None:
    """The root is what failed first, and not what speaks of it."""
    assert ("failed", root, phase) == judged(log)[:3]


@pytest.mark.parametrize(
    ("log", "root", "phase"),
    [
        pytest.param(
            engine("EngineCore", "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down")
            + engine("EngineCore", traceback("RuntimeError: Executor failed."))
            + engine(
                "APIServer", traceback("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered")
            ),
            "process-killed",
            "",
            id="a worker that was killed, told by those who missed it",
        ),
        pytest.param(
            "(Worker_TP0 pid=7) INFO 11-29 14:00:00 [runner.py:68] Starting to load model /models/x...\n"
            "(EngineCore pid=6) INFO 11-29 14:00:00 [core.py:200] init engine (profile, ...) took 9 s\n"
            + engine(
                "Worker_TP1", traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")
            ),
            "cuda-out-of-memory",
            "listen",
            id="a worker that fails when the server is past its start",
        ),
        pytest.param(
            "(Worker_TP1 pid=7) INFO 11-29 14:00:00 [runner.py:68] Starting to load model /models/x...\n"
            "(Worker_TP0 pid=8) INFO 11-29 14:00:01 [runner.py:99] Model loading took 9 GiB\n"
            + engine(
                "Worker_TP1", traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")
            ),
            "cuda-out-of-memory",
            "load",
            id="a worker that fails while another one is further",
        ),
    ],
)
def test_vllm(log: str, root: str, phase: str) -> None:
    """The root is what failed first, in the phase that the failing worker had reached."""
    assert ("failed", root, phase) == judged(log, "vllm")[:3]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:9c:00): 79, pid=77, GPU has fallen off the bus.",
        "httpx.HTTPStatusError: Client error '429 Too Many Requests' for url 'https://huggingface.co/x'",
        "OSError: [Errno 28] No space left on device: '/data/model.safetensors'",
    ],
)
def test_trouble_of_the_machine_is_no_failure_of_the_stack(line: str) -> None:
    """It says nothing of the configuration, if nothing else had failed before."""
    assert ("unresolved", "infra", "", 2) == judged(f"{SPAWN}{line}\n")
    assert "failed" == judged(f"{SPAWN}RuntimeError: CUDA error: out of memory\n{line}\n")[0]
