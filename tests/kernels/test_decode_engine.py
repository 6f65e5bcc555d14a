"""The decode engine on a CPU: its model, its captures, and the server as a process of its own."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the kernels' tests need torch: make kernels")
pytest.importorskip("triton", reason="the kernels' tests need triton: make kernels")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("interpreted, and small: make kernels", allow_module_level=True)

import decode_model
import decode_server
import decode_steps
import torch
import tuned
from hypothesis import given
from hypothesis import strategies as st

ENGINE = Path(__file__).resolve().parents[2] / "kernels" / "decode_engine.py"
CONFIG = decode_model.Config(layers=2, hidden=64, heads=2, context=32, count=16, page=4)
PROMPT = {"prompt": "Why?", "max_new_tokens": 6}


def steps(
    kernel: str = "mma", *, scale_as_tensor: bool = False, compiled: bool = False, graphs: str = "off"
) -> decode_steps.Steps:
    """Steps of a small model."""
    weights = decode_model.weights(CONFIG, "cpu", scale_as_tensor=scale_as_tensor)
    return decode_steps.Steps(CONFIG, weights, device="cpu", kernel=kernel, compiled=compiled, graphs=graphs)


def generated(run: decode_steps.Steps, pages: Sequence[int], count: int = 20) -> list[int]:
    """What a request comes to that has these pages."""
    tokens = [200]
    for position in range(count):
        tokens += run([decode_steps.Row(tokens[-1], position, pages)])
    return tokens


@pytest.mark.parametrize("graphs", ["off", "cpu"])
def test_a_captured_step_does_what_the_step_does(graphs: str) -> None:
    """It writes into the cache too, or later tokens would be others."""
    expected = generated(steps(), range(1, 9))
    assert len(set(expected)) > len(expected) // 2
    run = steps(graphs=graphs)
    run.warm_up()
    if graphs == "cpu":
        run.capture()
    assert expected == generated(run, range(1, 9))


def test_the_pages_of_a_request_may_lie_anywhere() -> None:
    """Only the table knows where."""
    assert generated(steps(), range(1, 9)) == generated(steps(), [7, 2, 9, 4, 16, 1, 12, 3])


def test_requests_do_not_see_each_other() -> None:
    """Two of them, and rows that only fill the batch up."""
    run = steps("reference")
    alone = generated(run, range(1, 9), 8)
    rows = [decode_steps.Row(66, 0, range(9, 17)), decode_steps.Row(200, 0, range(1, 9))]
    tokens = [200]
    for position in range(8):
        tokens.append(run(rows)[1])
        rows = [
            decode_steps.Row(66, 0, rows[0].pages),
            decode_steps.Row(tokens[-1], position + 1, rows[1].pages),
        ]
    assert alone == tokens


@given(length=st.integers(1, 32), seed=st.integers(0, 2**31))
def test_the_indexer_picks_the_best_of_what_is_there(length: int, seed: int) -> None:
    """Those with the largest scores by the definition; padding where there are fewer than it may pick."""
    chance = torch.Generator().manual_seed(seed)
    layer = decode_model.weights(CONFIG, "cpu").layers[0]
    keys = torch.randn(CONFIG.pages, CONFIG.page, CONFIG.index_width, generator=chance).bfloat16()
    hidden, low = (torch.randn(1, n, generator=chance).bfloat16() for n in (CONFIG.hidden, CONFIG.rank))
    pages = 1 + torch.randperm(CONFIG.pages - 1, generator=chance)[None, : CONFIG.context // CONFIG.page]
    batch = decode_model.Batch(torch.tensor([0]), torch.tensor([length - 1]), pages)
    found = decode_model.picked(CONFIG, layer, keys, batch, hidden, low)[0].tolist()
    slots = [int(pages[0, i // CONFIG.page]) * CONFIG.page + i % CONFIG.page for i in range(length)]
    query = (low.double() @ layer.index_query.double()).view(CONFIG.index_heads, -1)
    weight = (hidden.double() @ layer.index_weight.double()).view(-1)
    scores = {slot: float(weight @ torch.relu(query @ keys.flatten(0, 1)[slot].double())) for slot in slots}
    used = [slot for slot in found if slot >= 0]
    assert len(set(used)) == len(used) == min(length, CONFIG.count)
    assert found.count(-1) == CONFIG.count - len(used)
    left = [scores[slot] for slot in scores if slot not in used]
    assert min(scores[slot] for slot in used) >= max(left, default=-torch.inf) - 0.05 * max(
        map(abs, scores.values())
    )


def test_a_rotated_product_knows_the_distance_alone() -> None:
    """What rotary embedding is for."""
    one, other = torch.randn(2, 1, 64, dtype=torch.float64)
    products = [
        decode_model.rotated(one, torch.tensor([5 + far]))
        @ decode_model.rotated(other, torch.tensor([far])).mT
        for far in (0, 7, 300)
    ]
    assert torch.allclose(products[0], products[1], rtol=1e-4, atol=1e-4)
    assert torch.allclose(products[0], products[2], rtol=1e-4, atol=1e-4)


def test_a_cold_search_dies_in_a_capture() -> None:
    """There is nothing to time: neither runs nor data."""
    tuned._found.clear()
    tuned._tile.cache.clear()
    with pytest.raises(RuntimeError, match="data pointer"):
        steps("tuned", graphs="cpu").capture()


def test_a_warm_search_is_captured() -> None:
    """What was found before needs no clock."""
    run = steps("tuned", graphs="cpu")
    run.warm_up()
    run.capture()
    assert generated(steps("mma"), range(1, 9), 4) == generated(run, range(1, 9), 4)


def test_a_scale_that_is_a_tensor_works() -> None:
    """Where nothing is compiled, torch reads the float out of it."""
    assert generated(steps(), range(1, 9), 4) == generated(steps(scale_as_tensor=True), range(1, 9), 4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, as its compiler is imported
def test_a_scale_that_is_a_tensor_fails_under_compile() -> None:
    """There, no tensor holds a number that could be the float."""
    with pytest.raises(RuntimeError, match="type 'float' for argument 'scale'"):
        steps(scale_as_tensor=True, compiled=True).warm_up()


# --- requests -----------------------------------------------------------------------------------------


class Echo:
    """Carries out steps: the next token is the last one and one more. Remembers each step's rows."""

    def __init__(self) -> None:
        self.seen: list[Sequence[decode_steps.Row]] = []

    def __call__(self, rows: Sequence[decode_steps.Row]) -> list[int]:
        """A step."""
        self.seen.append(rows)
        return [row.token + 1 for row in rows]


def request(tokens: list[int], new: int) -> decode_server.Request:
    """A request for so many new tokens."""
    return decode_server.Request(tokens, len(tokens) + new)


def test_a_request_runs_from_its_prompt_to_its_end() -> None:
    """The prompt's own tokens are not replaced by what the model says after them."""
    echo = Echo()
    scheduler = decode_server.Scheduler(echo, batch=2, pages=9, page=4)
    one = request([10, 20, 30], 3)
    scheduler.submit(one)
    for _ in range(5):
        scheduler.step()
    assert one.done.is_set()
    assert [10, 20, 30, 31, 32, 33] == one.tokens
    assert [(10, 0), (20, 1), (30, 2), (31, 3), (32, 4)] == [(r.token, r.position) for (r,) in echo.seen]


def test_who_finds_no_room_waits_for_it() -> None:
    """Four pages, of which the first request takes three: the second one runs after it, in its pages."""
    echo = Echo()
    scheduler = decode_server.Scheduler(echo, batch=2, pages=5, page=4)
    one, other = request([1], 9), request([2], 5)
    scheduler.submit(one)
    scheduler.submit(other)
    while not other.done.is_set():
        scheduler.step()
    assert [1] * 14 == [len(rows) for rows in echo.seen]
    assert [] == [row for rows in echo.seen for row in rows if 0 in row.pages]


def test_requests_that_fit_run_together() -> None:
    """Their pages are apart."""
    echo = Echo()
    scheduler = decode_server.Scheduler(echo, batch=2, pages=9, page=4)
    for one in (request([1], 4), request([2], 4)):
        scheduler.submit(one)
    scheduler.step()
    first, second = echo.seen[0]
    assert not set(first.pages) & set(second.pages)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"context": 33}, {"context": 32, "count": 33}])
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, int]) -> None:
    """The error says which."""
    with pytest.raises(ValueError, match=r"sizes|context"):
        dataclasses.replace(CONFIG, **sizes)


# --- the server ---------------------------------------------------------------------------------------


class Served:
    """An engine that is up."""

    def __init__(self, port: int) -> None:
        self.port = port

    def asked(self, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(
            "GET" if body is None else "POST", path, None if body is None else json.dumps(body)
        )
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        return answer.status, said


def started(*flags: str) -> subprocess.Popen[str]:
    """An engine, small, on a port that the system gives it."""
    sizes = ["--layers=1", "--heads=2", "--hidden=64", "--context-length=64", "--index-topk=16"]
    command = [sys.executable, str(ENGINE), "--port", "0", *sizes, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def log() -> list[str]:
    """The lines of the engine's log until it was ready."""
    return []


@pytest.fixture(scope="module")
def served(log: list[str]) -> Iterator[Served]:
    """An engine that has captured its steps."""
    with started("--cpu-graph", "--kernel", "tuned") as engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            log.append(line)
            if "is ready to answer" in line:
                break
        try:
            yield Served(int(log[-1].split()[-1]))
        finally:
            engine.terminate()


def test_the_engine_says_what_is_in_effect(served: Served, log: list[str]) -> None:
    """In the log, for a witness, and when it is asked."""
    effect = {"kernel": "tuned", "compile": "off", "graphs": "cpu", "warm-up": "on", "context length": 64}
    assert effect == served.asked("/server_info")[1]["effect"]
    told = "".join(log)
    assert [] == [f"{name}: {value}" for name, value in effect.items() if f"] {name}: {value}\n" not in told]


def test_the_engine_answers(served: Served) -> None:
    """The same when it is asked again; more at once than fit into a batch."""
    assert (200, {"ok": True}) == served.asked("/health")
    first, again = (served.asked("/generate", PROMPT)[1]["ids"] for _ in range(2))
    assert first == again
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(served.asked, "/generate", PROMPT) for _ in range(3)]
    assert [6] * 4 == [len(first), *[len(answer.result()[1]["ids"]) for answer in answers]]


def test_the_engine_tells_its_throughput(served: Served) -> None:
    """Tokens are those of steps: a prompt's too."""
    before = served.asked("/throughput")[1]
    served.asked("/generate", PROMPT)
    after = served.asked("/throughput")[1]
    assert 4 + 6 - 1 == after["tokens"] - before["tokens"] == after["steps"] - before["steps"]
    assert after["tokens_per_second"] == after["tokens"] / after["seconds"]


@pytest.mark.parametrize(
    "body", [{}, [], {"prompt": "", "max_new_tokens": 1}, {"prompt": "a", "max_new_tokens": 64}]
)
def test_a_request_that_cannot_be_met_is_refused(served: Served, body: object) -> None:
    """With a sentence, and the engine goes on."""
    status, said = served.asked("/generate", body)
    assert (400, True) == (status, "token" in said["error"])
    assert 200 == served.asked("/health")[0]


def test_an_unknown_path_is_not_found(served: Served) -> None:
    """The answer names those that there are."""
    assert (404, True) == (served.asked("/")[0], "/health" in served.asked("/")[1]["error"])


def test_an_engine_whose_step_fails_ends() -> None:
    """With a traceback and exit code 1, and it never says that it is ready."""
    with started("--cpu-graph", "--kernel", "tuned", "--no-warm-up") as engine:
        said, _ = engine.communicate(timeout=60)
    assert 1 == engine.returncode
    assert "Traceback" in said
    assert "ready" not in said
