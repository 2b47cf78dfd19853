"""fray.map over a client that is played."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fray
from fray.backends.local import LocalClient
from fray.protocols import JobHandle
from fray.types import JobRequest, JobStatus
from rigging.errors import Conflict, Unavailable


class PlayedJob:
    """A job that ends when it is told to."""

    def __init__(self, request: JobRequest, stops_with: BaseException | None) -> None:
        self.request, self.job_id, self.stops_with = request, request.name, stops_with
        self.callbacks: list[Callable[[JobHandle], object]] = []
        self.stopped = False

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        assert timeout is None
        assert not raise_on_failure
        return JobStatus.SUCCEEDED

    def result(self, timeout: float | None = None) -> Any:
        assert timeout is None
        call = self.request.entrypoint.callable_entrypoint
        assert call is not None
        return call.callable(*call.args)

    def terminate(self) -> None:
        self.stopped = True
        if self.stops_with is not None:
            raise self.stops_with

    def add_done_callback(self, callback: Callable[[JobHandle], object]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        for callback in self.callbacks:
            callback(self)  # type: ignore[arg-type]


class PlayedClient:
    """Keeps its jobs; refuses one after so many."""

    def __init__(self, refuses_after: int = 1000, stops_with: BaseException | None = None) -> None:
        self.jobs: list[PlayedJob] = []
        self.refuses_after, self.stops_with = refuses_after, stops_with

    def submit(self, request: JobRequest, adopt_existing: bool = True) -> PlayedJob:
        assert not adopt_existing
        if len(self.jobs) == self.refuses_after:
            raise Conflict("it was shut down")
        self.jobs.append(PlayedJob(request, self.stops_with))
        return self.jobs[-1]


def test_names_are_told_from_those_of_other_maps() -> None:
    client: Any = PlayedClient(refuses_after=2)
    for _ in range(2):
        with pytest.raises(Conflict):
            next(fray.map(lambda item: item, range(3), client=client))
        client.refuses_after += 2
    names = [job.request.name for job in client.jobs]
    assert len(set(names)) == 4
    assert all(name.endswith(("-0", "-1")) and "<" not in name for name in names), names


def test_a_submission_that_fails_stops_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    """All of it: one that cannot be stopped is told of, and keeps no other from it."""
    client: Any = PlayedClient(refuses_after=3, stops_with=Unavailable("the cluster is away"))
    with pytest.raises(Conflict, match="shut down"), caplog.at_level(logging.WARNING):
        next(fray.map(str, range(9), client=client, name="mine"))
    assert [job.stopped for job in client.jobs] == [True] * 3
    assert [record.getMessage().endswith("the cluster is away") for record in caplog.records] == [True] * 3


def test_a_second_ctrl_c_tells_what_may_run_on(caplog: pytest.LogCaptureFixture) -> None:
    client: Any = PlayedClient(refuses_after=3, stops_with=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), caplog.at_level(logging.WARNING):
        next(fray.map(str, range(9), client=client, name="mine"))
    (job, *_, last) = client.jobs
    assert caplog.messages == [f"3 jobs were not stopped, and may run on: {job.job_id} to {last.job_id}"]


def test_a_failure_names_its_item_and_shows_the_functions_own_frames() -> None:
    def inner(item: int) -> None:
        if item == 2:
            raise ValueError("no cheese")

    def outer(item: int) -> None:
        inner(item)

    with LocalClient() as client, pytest.raises(ValueError, match="no cheese") as raised:
        list(fray.map(outer, range(4), client=client, name="m"))
    [note] = raised.value.__notes__
    assert note.startswith("fray.map: item 2, 2, in job local-")
    assert [frame.name for frame in raised.traceback][1:] == ["run", "outer", "inner"]
    with LocalClient() as client:
        *_, third, fourth = fray.map(outer, iter(range(4)), client=client, return_exceptions=True)
    assert third.__notes__[0].startswith("fray.map: item 2, 2, ")
    assert fourth is None


@pytest.mark.parametrize("ordered", [True, False])
def test_what_the_items_raise_comes_behind_the_results_before_it(ordered: bool) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise OSError("the listing broke off")

    with LocalClient() as client:
        results = fray.map(abs, items(), client=client, ordered=ordered)
        assert sorted(next(results) for _ in range(3)) == [0, 1, 2]
        with pytest.raises(OSError, match="broke off"):
            next(results)


def test_stop_iteration_of_a_function_names_its_item() -> None:
    def stop(item: str) -> None:
        raise StopIteration(item)

    with LocalClient() as client, pytest.raises(RuntimeError, match="the function raised StopIteration") as raised:
        list(fray.map(stop, ["a"], client=client))
    assert isinstance(raised.value.__cause__, StopIteration)
    assert "item 0, 'a'" in raised.value.__notes__[0]
