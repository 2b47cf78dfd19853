from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.controller.workers.live_usage import LiveUsage
from iris.controller.workers.usage_history import FIRST_SAVE_MS, NoSeries, SeriesStore, UsageHistory
from iris.core.state.changes import Changes
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.states import TaskState
from iris.domain.usage import AttemptUse, Usage
from iris.store.store import Store

JOB = JobId("/ann/a")
FIRST, SECOND = AttemptId("/ann/a/0:0"), AttemptId("/ann/a/0:1")
T = 1_790_000_000_000
W1, W2 = WorkerId("w1"), WorkerId("w2")
BOOKING = SimpleNamespace(worker_id=W1, job_id=JOB)


class Bench:
    """An engine with bookings, and what is written."""

    def __init__(self) -> None:
        self.view: Any = self
        self.batch: Any = self
        self.changes: Any = self
        self.bookings: dict[AttemptId, Any] = {SECOND: BOOKING}
        self.usage: dict[AttemptId, AttemptUse] = {}
        self.stored: dict[AttemptId, AttemptUse] = {}
        self.attempt, self.started_at_ms = 1, 0
        self.task_id, self.job_id, self.index, self.now = "/ann/a/0", JOB, 0, T
        self.listeners: list[Callable[[Changes], None]] = []
        self.listen_to_changes = self.listeners.append

    def find_attempt(self, name: AttemptId) -> Any:
        return self, int(name[-1])

    def job(self, job_id: JobId) -> Any:
        return SimpleNamespace(spec=SimpleNamespace(replicas=1))

    def live(self, store: SeriesStore) -> LiveUsage:
        engine: Any = self
        history = UsageHistory(engine, store, lambda: self.now)
        return LiveUsage(engine, lambda job_id, *_: self.stored if job_id == JOB else {}, history)

    async def decide(self, work: Callable[[Any], None]) -> None:
        work(self)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def live(bench: Bench) -> LiveUsage:
    return bench.live(NoSeries())


def test_what_a_worker_says_is_known_beside_what_is_stored_of_earlier_attempts(bench: Bench, live: LiveUsage) -> None:
    live.note(SECOND, W2, Usage(cpu_ms=5))
    live.note(FIRST, W1, Usage(cpu_ms=5))
    assert live.of_tasks(JOB, 0, 9) == {}, "of attempts that are not its own a worker may say nothing"
    bench.stored[FIRST] = AttemptUse(W2, Usage(cpu_ms=9))
    live.note(SECOND, W1, Usage(cpu_ms=5, memory_bytes=7))
    assert list(live.of_tasks(JOB, 0, 9).items()) == [
        (FIRST, AttemptUse(W2, Usage(cpu_ms=9))),
        (SECOND, AttemptUse(W1, Usage(cpu_ms=5, memory_bytes=7))),
    ]
    assert live.of_tasks(JobId("/ann/ab"), 0, 9) == {}, "another job's name may begin alike"
    bench.started_at_ms = 77
    live.note(SECOND, W1, Usage(cpu_ms=6))
    assert live.of_tasks(JOB, 0, 9)[SECOND].usage == Usage(cpu_ms=6, began_at_ms=77), "so it is known once it is lost"


def test_peaks_that_were_saved_stay_when_a_worker_begins_anew(bench: Bench, live: LiveUsage) -> None:
    bench.stored[SECOND] = AttemptUse(W1, Usage(cpu_ms=100, memory_peak_bytes=50))
    live.note(SECOND, W1, Usage(cpu_ms=5, memory_bytes=7, memory_peak_bytes=7))
    found = live.of_tasks(JOB, 0, 9)[SECOND].usage
    assert (found.cpu_ms, found.memory_peak_bytes, found.memory_bytes) == (100, 50, 7)


async def test_what_is_new_is_written_once_and_never_over_or_after_an_end(bench: Bench, live: LiveUsage) -> None:
    live.note(SECOND, W1, Usage(cpu_ms=5))
    await bench.decide(live.save)
    assert bench.usage == {SECOND: AttemptUse(W1, Usage(cpu_ms=5))}
    bench.usage.clear()
    await bench.decide(live.save)
    assert bench.usage == {}, "nothing is new"
    live.note(SECOND, W1, Usage(cpu_ms=6))
    bench.usage[SECOND] = AttemptUse(W1, Usage(cpu_ms=7))  # its end, in the same commit
    await bench.decide(live.save)
    assert bench.usage[SECOND].usage.cpu_ms == 7
    bench.usage.clear()
    live.note(SECOND, W1, Usage(cpu_ms=8))
    bench.bookings.clear()
    await bench.decide(live.save)
    assert bench.usage == {}, "its end was stored with what it used"
    bench.bookings[SECOND] = BOOKING
    assert live.of_tasks(JOB, 0, 9) == {}, "what has ended is forgotten here"


def test_a_whole_life_survives_a_restart_and_goes_with_its_job(bench: Bench, tmp_path: Path) -> None:
    store, task = Store.open(tmp_path), bench.view
    live = bench.live(store)
    for number in range(1, 101):
        live.note(SECOND, W1, Usage(1000 * number, 200, 2**20 * number, at_ms=T + 5000 * number))
    list(live.history.save_due())
    assert store.series_of(JOB, 0) == "", "not a row a sample"
    bench.now += FIRST_SAVE_MS
    list(live.history.save_due())
    points = live.history.of_task(task).points(1)
    again = bench.live(store)
    assert again.history.of_task(task).points(1) == points
    assert sum(point.cpu_ms for point in points) == 100_000
    end = AttemptObserved(SECOND, W1, TaskState.SUCCEEDED, started_at_ms=T, usage=Usage(200_000, at_ms=T + 900_000))
    other = replace(end, worker_id=W2)
    assert again.finish(other) is other
    finished = again.finish(end).usage
    assert finished is not None
    assert finished.memory_mean_bytes == 2**20 * 101 // 2
    bench.bookings.clear()
    list(again.history.save_due())
    whole = bench.live(store).history.of_task(task).points(1)
    assert (sum(point.cpu_ms for point in whole), whole[-1].until_ms) == (200_000, T + 900_000)
    store.commit(Changes(forgotten_jobs={JOB}))
    assert store.series_of(JOB, 0) == ""
    store.close()


def test_a_reused_name_begins_anew_and_what_cannot_be_read_stops_no_report(bench: Bench) -> None:
    class Damaged(NoSeries):
        def series_of(self, job_id: JobId, index: int) -> str:
            return "1damaged"

    live = bench.live(Damaged())
    for number in range(9):
        live.note(SECOND, W1, Usage(at_ms=T + number, memory_bytes=2**20))
    assert len(live.history.of_task(bench.view).points(1)) == 9
    for listener in bench.listeners:
        listener(Changes(replaced={JOB}))
    assert live.history.of_task(bench.view).points(1) == []
