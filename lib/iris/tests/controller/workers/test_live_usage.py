from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from iris.controller.workers.live_usage import LiveUsage
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.usage import AttemptUse, Usage

JOB = JobId("/ann/a")
FIRST, SECOND = AttemptId("/ann/a/0:0"), AttemptId("/ann/a/0:1")
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

    def find_attempt(self, name: AttemptId) -> Any:
        return self, int(name[-1])

    async def decide(self, work: Callable[[Any], None]) -> None:
        work(self)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def live(bench: Bench) -> LiveUsage:
    engine: Any = bench
    return LiveUsage(engine, lambda job_id, *_: bench.stored if job_id == JOB else {})


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
