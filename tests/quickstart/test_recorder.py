import threading
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbooks.quickstart.recorder import Buffer, CaptureError, Operation, Recorder


def _increment(source: Buffer, target: Buffer) -> Operation:
    """`target = source + 1`."""

    def run() -> None:
        target.data[0] = source.data[0] + 1

    return Operation("increment", run, (source,), (target,))


def _here(work: Callable[[], None]) -> None:
    work()


def _elsewhere(work: Callable[[], None]) -> None:
    """Run the work on another thread, to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


Step = tuple[int, int, bool]
"""Buffer read, buffer written, whether another thread does it."""


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=12))
def test_a_capture_is_lost_exactly_when_it_touches_uncaptured_work(steps: list[Step]) -> None:
    """The capturing thread may use a buffer unless another thread has written it during the capture."""
    uncaptured = [
        {target for _, target, elsewhere in steps[:done] if elsewhere} for done in range(len(steps))
    ]
    expected = any(
        not elsewhere and {source, target} & written
        for (source, target, elsewhere), written in zip(steps, uncaptured, strict=True)
    )
    assert expected == _is_lost(steps)


def _is_lost(steps: list[Step]) -> bool:
    recorder, buffers = Recorder(), [Buffer(str(i), 1) for i in range(4)]
    try:
        with recorder.capture():
            for source, target, elsewhere in steps:
                launch = partial(recorder.launch, _increment(buffers[source], buffers[target]))
                (_elsewhere if elsewhere else _here)(launch)
    except CaptureError:
        return True
    return False


def test_a_capture_records_and_does_not_run() -> None:
    """A replay does the work, each time on what the buffers hold then."""
    recorder, source, target = Recorder(), Buffer("source", 1), Buffer("target", 1)
    with recorder.capture() as graph:
        recorder.launch(_increment(source, target))
    assert target.data == [0.0]
    source.data[0] = 41.0
    graph.replay()
    assert target.data == [42.0]


def test_work_of_another_thread_before_the_capture_is_no_dependency() -> None:
    """What was written before is input like any other."""
    recorder, source, target = Recorder(), Buffer("source", 1), Buffer("target", 1)
    _elsewhere(lambda: recorder.launch(_increment(source, target)))
    with recorder.capture() as graph:
        recorder.launch(_increment(target, source))
    assert len(graph.operations) == 1


def test_a_lost_capture_is_told_even_when_the_refusal_was_swallowed() -> None:
    """A graph with a hole in it must not be replayed."""
    recorder, source, target = Recorder(), Buffer("source", 1), Buffer("target", 1)
    capture = recorder.capture()
    capture.__enter__()
    _elsewhere(lambda: recorder.launch(_increment(source, target)))
    with pytest.raises(CaptureError, match="dependency created on uncaptured work in another thread"):
        recorder.launch(_increment(target, source))
    with pytest.raises(CaptureError, match="operation failed due to a previous error during capture"):
        capture.__exit__(None, None, None)


def test_captures_do_not_nest() -> None:
    """A recorder records one thread at a time."""
    recorder = Recorder()
    with recorder.capture(), pytest.raises(CaptureError, match="another capture"), recorder.capture():
        pass
