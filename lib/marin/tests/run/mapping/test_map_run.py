"""The driver of `map_files` as workers and queues end; queue and jobs are played."""

import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fray import Client, Entrypoint, JobHandle, JobRequest, JobStatus
from fray.errors import ActorLost
from marin.run.mapping.hosted_queue import HostedQueue
from marin.run.mapping.map_run import MapRun
from marin.run.mapping.result import MapFilesResult, failure_of
from marin.run.mapping.state import (
    Assignment,
    EndedWorker,
    FileReport,
    FileStatus,
    FileTask,
    FinishedFile,
    QueueRules,
    QueueUpdate,
)
from marin.run.mapping.worker import WorkerOptions, run_worker
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
            lambda result: None, pause=0.0, open_queue=cast(Any, Queue), shortest_wait=0.0, ending_seconds=0.01,
        )  # fmt: skip

    def submit(self, request: JobRequest, adopt_existing: bool) -> JobHandle:
        assert not adopt_existing
        status = self.statuses.pop(0) if self.statuses else JobStatus.RUNNING
        self.handles.append(Handle(len(self.handles), status))
        return cast(JobHandle, self.handles[-1])


def done(*numbers: int, wanted: int = 1) -> QueueUpdate:
    return QueueUpdate(tuple(FinishedFile(TASKS[n], FileStatus.SUCCEEDED, "", "") for n in numbers), wanted, 0, ())


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
    Queue.answers = [*(ActorLost("") for _ in range(10)), done(0), *(ActorLost("") for _ in range(10)), done(1, 2, 3)]
    bench.run.work()
    assert len(Queue.made) == 21, "a file that was done counts for all"


@pytest.mark.parametrize(("at_once", "terminated"), [(True, [1, 1]), (False, [1, 0])])
def test_at_the_end_those_that_wait_are_ended_and_others_end_themselves(at_once: bool, terminated: list[int]) -> None:
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


class Host:
    """The process of a queue: it answers with what the test has put into `answers`, else with nothing."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*given: Any) -> Any:
            self.calls.append((name, *given))
            return SimpleNamespace(result=lambda: self._answer(name))

        return SimpleNamespace(remote=remote)

    def _answer(self, name: str) -> Any:
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Backend:
    def __init__(self) -> None:
        self.hosts: list[Host] = []

    def host_actor(self, kind: type, name: str) -> Host:
        self.hosts.append(Host())
        return self.hosts[-1]


def test_queues_share_a_process_until_it_is_lost() -> None:
    backend: Any = Backend()
    rules = QueueRules(1, 0, 0)
    one, two = HostedQueue(backend, "one", rules), HostedQueue(backend, "two", rules)
    (host,) = backend.hosts
    assert host.calls == [("open", "one", rules), ("open", "two", rules)]
    host.answers = {"sync": QueueUpdate((), 1, 0, ()), "close": ("w1", "w1")}
    assert two.sync(TASKS, True, []).wanted == 1
    assert host.calls[-1] == ("sync", "two", TASKS, True, [])
    assert two.close() == {"w1"}
    host.answers = {"sync": None}
    with pytest.raises(ActorLost, match="the queue one is gone: its process was restarted"):
        one.sync([], True, [])
    HostedQueue(backend, "three", rules)
    assert len(backend.hosts) == 1, "the process is there"
    host.answers = dict.fromkeys(("sync", "close"), ActorLost("its node is gone"))
    with pytest.raises(ActorLost, match="its node is gone"):
        one.sync([], True, [])
    HostedQueue(backend, "four", rules)
    assert len(backend.hosts) == 2
    assert two.close() == frozenset(), "there is nothing to end"
    HostedQueue(backend, "five", rules)
    assert len(backend.hosts) == 2, "who finds out late does not forget the new one"


class Worked:
    """A queue, for a worker, that gives these batches and then says stop."""

    def __init__(self, *batches: list[FileTask]) -> None:
        self.batches = list(batches)
        self.reports: list[list[int]] = []
        self.lives: set[str] = set()

    def exchange(self, queue: str, worker: str, life: str, reports: Sequence[FileReport], seconds: float) -> Assignment:
        assert (queue, worker) == ("q", "w")
        self.lives.add(life)
        self.reports.append([report.number for report in reports])
        return Assignment(tuple(self.batches.pop(0))) if self.batches else Assignment(stop=True)


def test_a_worker_gives_back_what_it_has_not_begun_in_time(tmp_path: Path) -> None:
    def write(source: str, path: str) -> None:
        Path(path).write_text(source)

    tasks = [FileTask(number, f"in{number}", f"{tmp_path}/{number}") for number in range(3)]
    for seconds, reports in ((-1.0, [[], [0], [], [2]]), (60.0, [[], [0, 1], [], [2]])):
        queue: Any = Worked(tasks[:2], [], tasks[2:])
        run_worker(queue, WorkerOptions("q", "w", seconds), write)
        assert queue.reports == reports
        assert len(queue.lives) == 1


def test_workers_that_never_ask_for_work_end_it_with_their_reason() -> None:
    bench = Bench([JobStatus.FAILED, JobStatus.SUCCEEDED, *[JobStatus.FAILED] * 9], workers=3)
    with pytest.raises(JobFailed, match=r"job [345]: no module named x"):
        bench.run.work()
    assert len(bench.handles) == 6, "each was replaced, also beside one that had just nothing to do"
    bench = Bench([JobStatus.STOPPED] * 9, workers=1)
    with pytest.raises(JobFailed, match="worker job 2 ended before it asked for work"):
        bench.run.work()


def test_a_worker_that_was_taken_away_is_told_as_such_and_a_file_that_is_told_twice_counts_once() -> None:
    failed = [JobStatus.FAILED] * 11
    bench = Bench([JobStatus.FAILED, JobStatus.STOPPED, *failed])
    Queue.answers = [None, done(0, wanted=0), None, done(0, 1, 2, 3)]
    bench.run.work()
    ended = [worker for _, _, found in Queue.made[0].got for worker in found]
    found = {worker.name[-2:]: worker.preempted for worker in ended[:4]}
    assert found == {"-0": False, "-1": True, "-2": False, "-3": False}
    assert (bench.run.result.succeeded, bench.run.result.total) == (4, 4)
