import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris.controller.logs.files import SMALLEST_FILE
from iris.controller.logs.hub import LogHub
from iris.controller.logs.store import LogStore
from iris.core.state.view import ClusterView
from iris.domain.effects import JobChanged, JobForgotten, JobSettled
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.states import JobState
from iris.rpc.logformat import encode

TOP, CHILD, OTHER = JobId("/ann/a"), JobId("/ann/a/b"), JobId("/ann/ab")
LINE = encode(False, 1, b"x")


class View:
    """Three jobs, each with two tasks in attempt 1; attempts below 1 are of an ended job of that name."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Any] = {
            name: SimpleNamespace(job_id=name, first_attempt=1, state=JobState.RUNNING) for name in (TOP, CHILD, OTHER)
        }
        self.stopping_counts: dict[JobId, int] = {}
        self.children: dict[JobId, Any] = {TOP: {CHILD: None}}
        self.settled: set[JobId] = set()
        self.bookings: dict[AttemptId, Any] = {}

    def find_attempt(self, attempt: AttemptId) -> tuple[Any, int]:
        task, _, number = attempt.rpartition(":")
        job_id, _, index = task.rpartition("/")
        if JobId(job_id) not in self.jobs or int(index) > 1:
            return None, 0
        return SimpleNamespace(job_id=JobId(job_id), index=int(index), attempt=1), int(number)

    def task(self, task_id: TaskId) -> Any:
        return self.find_attempt(AttemptId(f"{task_id}:1"))[0]

    def is_settled(self, job_id: JobId) -> bool:
        return job_id in self.settled


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def hub(view: View, tmp_path: Path) -> LogHub:
    return LogHub(cast(ClusterView, view), LogStore(tmp_path))


def attempt(job_id: JobId, index: int = 0, number: int = 1) -> AttemptId:
    return AttemptId(f"{job_id}/{index}:{number}")


def test_bytes_of_attempts_that_nobody_knows_count_as_taken_and_are_dropped(hub: LogHub, tmp_path: Path) -> None:
    for unknown in (attempt(JobId("/ann/x")), attempt(TOP, 2), attempt(TOP, 0, 2), attempt(TOP, 0, 0)):
        assert hub.append(unknown, 5, LINE) == 5 + len(LINE)
        assert hub.attempt_size(unknown) == 0
    assert list(tmp_path.iterdir()) == []
    assert hub.append(attempt(TOP), 0, LINE) == len(LINE)
    assert hub.attempt_size(attempt(TOP)) == len(LINE)
    assert hub.keys(TOP) == [(TOP, 0, 1)]


def test_an_exception_is_kept_of_the_worker_that_has_the_attempt_and_up_to_64_kib(hub: LogHub, view: View) -> None:
    mine, other = WorkerId("w"), WorkerId("v")
    attempt = AttemptId("/ann/a/0:1")
    view.bookings[attempt] = SimpleNamespace(worker_id=mine)
    hub.keep_exception(attempt, other, b"false")
    hub.keep_exception(attempt, mine, b"x" * (64 * 1024 + 1))
    hub.keep_exception(AttemptId("/ann/a/1:1"), mine, b"not there")
    assert hub.exception(TaskId("/ann/a/0")) == b""
    hub.keep_exception(attempt, mine, b"x" * 64 * 1024)
    assert hub.exception(TaskId("/ann/a/0")) == b"x" * 64 * 1024
    hub.keep_result(attempt, other, b"false")
    hub.keep_result(AttemptId("/ann/a/1:1"), mine, b"not there")
    assert hub.result(TaskId("/ann/a/0"), 0, 9) == (b"", 0)
    hub.keep_result(attempt, mine, b"true")
    assert hub.result(TaskId("/ann/a/0"), 1, 9) == (b"rue", 4)


def test_logs_of_an_ended_job_of_that_name_are_not_the_present_ones(hub: LogHub, view: View) -> None:
    hub.store.append((TOP, 0, 0), 0, LINE)
    hub.append(attempt(TOP, 1), 0, LINE)
    assert hub.keys(TOP) == [(TOP, 1, 1)]
    del view.jobs[TOP]
    assert hub.keys(TOP) == [(TOP, 0, 0), (TOP, 1, 1)]
    for job_id in (CHILD, OTHER):
        hub.append(attempt(job_id), 0, LINE)
    assert hub.descendants(TOP) == [CHILD]
    del view.jobs[CHILD]
    assert hub.descendants(TOP) == []


async def test_a_reader_hears_of_its_job_and_with_children_of_those_below(hub: LogHub) -> None:
    alone, tree = hub.subscribe(TOP, False), hub.subscribe(TOP, True)
    for job_id in (TOP, CHILD, OTHER):
        hub.append(attempt(job_id), 0, LINE)
    assert (alone.take(), tree.take()) == ({(TOP, 0, 1)}, {(TOP, 0, 1), (CHILD, 0, 1)})
    assert (alone.take(), tree.take()) == (set(), set())
    hub.append(attempt(TOP), 0, LINE)
    assert tree.take() == set(), "nothing of it was new"
    waiting = asyncio.create_task(tree.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    hub.on_effects([JobSettled(CHILD)])
    await waiting
    assert tree.take() == set(), "it is the job that has changed"
    assert [hub.is_followed(job_id) for job_id in (TOP, CHILD, OTHER)] == [True, True, False]
    hub.unsubscribe(tree)
    hub.unsubscribe(tree)
    hub.append(attempt(TOP), len(LINE), LINE)
    hub.append(attempt(CHILD), len(LINE), LINE)
    assert (alone.take(), tree.take()) == ({(TOP, 0, 1)}, set())
    hub.unsubscribe(alone)
    assert not hub.is_followed(TOP)


def test_when_nothing_can_be_added_any_more(hub: LogHub, view: View) -> None:
    assert not hub.is_complete(TOP, False)
    assert hub.is_complete(JobId("/ann/gone"), True)
    view.settled = {TOP}
    assert hub.is_complete(TOP, False)
    assert not hub.is_complete(TOP, True), "a child lives"
    view.children = {}
    assert hub.is_complete(TOP, True)
    view.stopping_counts = {CHILD: 1}
    assert not hub.is_complete(TOP, True)
    view.stopping_counts = {OTHER: 1, TOP: 1}
    assert hub.is_complete(TOP, True)


def test_logs_go_with_their_job_and_older_ones_when_its_name_is_reused(hub: LogHub, view: View, tmp_path: Path) -> None:
    hub.store.append((TOP, 0, 0), 0, LINE)
    hub.append(attempt(TOP), 0, LINE)
    hub.on_effects([JobChanged(TOP)])
    assert len(list(tmp_path.rglob("~*"))) == 2
    view.jobs[TOP].state = JobState.PENDING
    hub.on_effects([JobChanged(TOP)])
    assert [path.name for path in tmp_path.rglob("~*")] == ["~0.1.log"]
    view.jobs[OTHER].first_attempt = 0
    view.jobs[OTHER].state = JobState.PENDING
    hub.store.append((OTHER, 0, 0), 0, LINE)
    hub.on_effects([JobChanged(OTHER)])
    assert hub.store.size((OTHER, 0, 0)) == len(LINE)
    hub.on_effects([JobForgotten(TOP), JobForgotten(OTHER)])
    assert list(tmp_path.rglob("~*")) == []


async def test_very_many_older_logs_are_removed_a_few_in_each_turn(hub: LogHub, view: View) -> None:
    for index in range(450):
        hub.store.append((TOP, index, 0), 0, LINE)
    hub.append(attempt(TOP), 0, LINE)
    view.jobs[TOP].state = JobState.PENDING
    hub.on_effects([JobChanged(TOP), JobChanged(TOP)])
    view.jobs[TOP].state = JobState.RUNNING
    left = []
    for _ in range(3):
        left.append(len(hub.store.keys(TOP)))
        await asyncio.sleep(0)
    assert left == [251, 51, 1], "others have their turns meanwhile"
    assert hub.store.keys(TOP) == hub.keys(TOP) == [(TOP, 0, 1)]


@pytest.mark.parametrize("is_used_again", [False, True])
async def test_the_end_of_a_job_looks_at_a_few_of_its_logs_in_each_turn(
    hub: LogHub, view: View, is_used_again: bool
) -> None:
    ripe = []
    hub.store.on_ripe = lambda key, start, size: ripe.append(key)
    for index in range(450):
        hub.store.append((TOP, index, 1), 0, encode(False, 1, b"x" * SMALLEST_FILE))
    view.settled.add(TOP)
    hub.on_effects([JobSettled(TOP)])
    seen = [len(ripe)]
    if is_used_again:
        view.settled.clear()
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append(len(ripe))
    assert seen == ([200] * 4 if is_used_again else [200, 400, 450, 450]), "others have their turns meanwhile"
