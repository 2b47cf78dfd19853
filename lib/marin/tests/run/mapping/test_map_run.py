"""The driver of `map_files` as workers and queues end; queue and jobs are played."""

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest

from fray import Client, Entrypoint, JobHandle, JobRequest, JobStatus
from fray.errors import ActorLost
from marin.run.mapping import map_run
from marin.run.mapping.map_run import MapRun
from marin.run.mapping.result import MapFilesResult, failure_of
from marin.run.mapping.state import EndedWorker, FileStatus, FileTask, FinishedFile, QueueRules, QueueUpdate
from rigging.errors import JobFailed

TASKS = [FileTask(number, f"in{number}", f"out{number}") for number in range(4)]


class Handle:
    """A worker's job; one that has ended when it is asked for has ended at once."""

    def __init__(self, number: int, status: JobStatus) -> None:
        self.job_id = f"job {number}"
        self._status = status
        self.terminated = 0

    def status(self) -> JobStatus:
        return self._status

    def wait(self) -> None:
        if self._status is JobStatus.FAILED:
            raise JobFailed(f"{self.job_id}: no module named x")

    def add_done_callback(self, told: Callable[[Any], object]) -> None:
        if self._status not in (JobStatus.RUNNING, JobStatus.PENDING):
            told(self)

    def terminate(self) -> None:
        self.terminated += 1


class Queue:
    """Answers with what the test has put into `answers`; by itself it says that no worker ever asked."""

    made: list["Queue"]
    answers: list[Any]
    came: list[str]

    def __init__(self, client: object, name: str, rules: QueueRules) -> None:
        self.name, self.handle, self.closed = name, None, False
        self.got: list[tuple[list[FileTask], bool, list[EndedWorker]]] = []
        self.made.append(self)

    def sync(self, tasks: Sequence[FileTask], exhausted: bool, ended: Sequence[EndedWorker]) -> QueueUpdate:
        self.got.append((list(tasks), exhausted, list(ended)))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer or QueueUpdate((), 0, 4, tuple(worker.name for worker in ended))

    def close(self) -> frozenset[str]:
        self.closed = True
        return frozenset(self.came)


class Bench:
    def __init__(self, statuses: Iterable[JobStatus] = (), workers: int = 2) -> None:
        self.statuses = list(statuses)
        self.handles: list[Handle] = []
        Queue.made, Queue.answers, Queue.came = [], [], []
        request = JobRequest("map", Entrypoint.from_callable(print))
        self.run = MapRun(
            cast(Client, self), print, request, QueueRules(workers, 0, 0), iter(TASKS), MapFilesResult(), None,
            lambda result: None,
        )  # fmt: skip

    def submit(self, request: JobRequest, adopt_existing: bool) -> JobHandle:
        assert not adopt_existing
        status = self.statuses.pop(0) if self.statuses else JobStatus.RUNNING
        self.handles.append(Handle(len(self.handles), status))
        return cast(JobHandle, self.handles[-1])


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_run, "HostedQueue", Queue)
    monkeypatch.setattr(map_run, "_SHORTEST_WAIT", 0.0)
    monkeypatch.setattr(map_run, "_ENDING_SECONDS", 0.01)


def done(*numbers: int, wanted: int = 1) -> QueueUpdate:
    return QueueUpdate(tuple(FinishedFile(TASKS[n], FileStatus.SUCCEEDED, "", "") for n in numbers), wanted, 0, ())


def test_three_workers_in_a_row_that_never_asked_for_work_end_it_with_their_reason() -> None:
    failed = [JobStatus.FAILED] * 9
    bench = Bench([JobStatus.FAILED, JobStatus.SUCCEEDED, *failed], workers=3)
    with pytest.raises(JobFailed, match=r"job [345]: no module named x"):
        bench.run.work()
    assert len(bench.handles) == 6, "each was replaced, also beside one that had just nothing to do"


def test_a_worker_that_was_taken_away_is_told_as_such_and_a_file_that_was_done_counts_for_all() -> None:
    bench = Bench([JobStatus.FAILED, JobStatus.STOPPED, JobStatus.FAILED, JobStatus.FAILED, *[JobStatus.FAILED] * 9])
    Queue.answers = [None, done(0, wanted=0), None, done(1, 2, 3)]
    bench.run.work()
    ended = [worker for _, _, found in Queue.made[0].got for worker in found]
    assert {worker.name[-2:]: worker.preempted for worker in ended[:4]} == {
        "-0": False, "-1": True, "-2": False, "-3": False
    }  # fmt: skip
    assert (bench.run.result.succeeded, bench.run.result.total) == (4, 4)


def test_a_lost_queue_is_replaced_and_gets_all_that_is_not_known_to_be_done() -> None:
    bench = Bench()
    Queue.answers = [done(0), ActorLost("its host is gone"), done(1), done(2, 3)]
    bench.run.work()
    first, second = Queue.made
    assert (first.name.endswith("-queue-0"), second.name.endswith("-queue-1")) == (True, True)
    assert first.closed
    assert [tasks for tasks, _, _ in first.got] == [TASKS, []]
    assert second.got[0] == (TASKS[1:], True, [])
    assert not second.closed
    bench.run.stop(at_once=False)
    assert second.closed


def test_queues_that_are_lost_again_and_again_are_given_up() -> None:
    bench = Bench()
    Queue.answers = [ActorLost(f"lost {number}") for number in range(20)]
    with pytest.raises(ActorLost, match="lost 10"):
        bench.run.work()
    bench = Bench()
    Queue.answers = [
        *(ActorLost("lost") for _ in range(10)),
        done(0),
        *(ActorLost("lost") for _ in range(10)),
        done(1, 2, 3),
    ]
    bench.run.work()
    assert len(Queue.made) == 21, "a file that was done counts for all"


@pytest.mark.parametrize(("at_once", "terminated"), [(True, [1, 1]), (False, [1, 0])])
def test_at_the_end_those_that_wait_are_ended_and_those_that_work_end_by_themselves(
    at_once: bool, terminated: list[int]
) -> None:
    bench = Bench()
    Queue.answers = [QueueUpdate((), 0, 4, ()), done(0, 1, 2, 3)]
    bench.run.work()
    waiting, working = bench.handles
    Queue.came = list(bench.run.workers)[1:]
    for name in Queue.came:
        bench.run.ended.put(name)
    bench.run.stop(at_once)
    assert [min(handle.terminated, 1) for handle in (waiting, working)] == terminated
    assert not bench.run.workers


def test_failures_come_whole_through_pickle() -> None:
    result = MapFilesResult(total=2, failed=1, manifest="m.jsonl")
    sent: Any = pickle.loads(pickle.dumps(failure_of(result)))
    assert str(sent) == str(failure_of(result))
    assert (sent.result.total, sent.result.failed) == (2, 1)
