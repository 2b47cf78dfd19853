"""Waits for the ends of jobs: whom they wake, whom they leave asleep, and what they leave behind."""

import asyncio

import pytest

from iris.controller.clients.waiters import JobWaiters
from iris.domain.effects import JobEnded, JobSettled
from iris.domain.ids import JobId
from rigging.errors import NotFound, Unavailable
from support.iris.scheduling import InMemoryCluster

A, B, C = JobId("/ann/a"), JobId("/ann/b"), JobId("/ann/c")


@pytest.fixture
def cluster() -> InMemoryCluster:
    """Jobs A, B and C; those that are stopped have left no worker."""
    made = InMemoryCluster()
    for job_id in (A, B, C):
        made.submit(job_id)
    return made


@pytest.fixture
def waiters(cluster: InMemoryCluster) -> JobWaiters:
    return JobWaiters(cluster.view)


async def begun(waiters: JobWaiters, *jobs: JobId, any_of_them: bool = False) -> "asyncio.Task[bool]":
    waiting = asyncio.create_task(waiters.wait(jobs, any_of_them, 3600))
    await asyncio.sleep(0)
    return waiting


@pytest.mark.parametrize(
    ("jobs", "any_of_them", "settled", "answer"),
    [
        ([A], False, [A], True),
        ([A, B], False, [A], False),
        ([A, B], False, [A, B], True),
        ([A, B], True, [A], True),
        ([A, A], True, [], False),
        ([A, B], True, [C], False),
    ],
)
async def test_what_is_known_at_once(
    waiters: JobWaiters,
    cluster: InMemoryCluster,
    jobs: list[JobId],
    any_of_them: bool,
    settled: list[JobId],
    answer: bool,
) -> None:
    for job_id in settled:
        cluster.stop(job_id)
    for timeout_s in (0.0, -1.0):
        assert await waiters.wait(jobs, any_of_them, timeout_s) is answer
    with pytest.raises(NotFound):
        await waiters.wait([*jobs, JobId("/ann/x")], any_of_them, 0)


async def test_a_wait_for_all_needs_every_end_and_one_for_any_the_first(waiters: JobWaiters) -> None:
    every = await begun(waiters, A, B)
    assert [waiters.completes(job_id) for job_id in (A, B, C)] == [False] * 3, "it still lacks two"
    first = await begun(waiters, A, B, any_of_them=True)
    assert waiters.completes(A), "for the one that waits for any"
    waiters.on_effects([JobEnded(A), JobSettled(C)])
    await asyncio.sleep(0)
    assert not first.done(), "an end counts once nothing of the job is left"
    waiters.on_effects([JobSettled(A)])
    assert await first
    assert not every.done()
    assert waiters.completes(B)
    assert not waiters.completes(A)
    waiters.on_effects([JobSettled(B)])
    assert await every
    assert not waiters.completes(B)


async def test_a_wait_that_ran_out_of_time_or_was_cancelled_leaves_nothing(waiters: JobWaiters) -> None:
    stays = await begun(waiters, A)
    assert not await waiters.wait([A, B], False, 0.01)
    gone = await begun(waiters, A, B)
    gone.cancel()
    await asyncio.sleep(0)
    assert not waiters.completes(B)
    assert list(waiters._waits) == [A], "nothing is kept of a job for which nobody waits"
    waiters.on_effects([JobSettled(B), JobSettled(A)])
    assert await stays
    assert not waiters._waits


async def test_at_the_end_waits_end_and_what_is_known_is_told(waiters: JobWaiters, cluster: InMemoryCluster) -> None:
    waiting = [await begun(waiters, A, B), await begun(waiters, A, any_of_them=True)]
    waiters.close()
    waiters.close()
    for wait in waiting:
        with pytest.raises(Unavailable, match="the controller is shutting down"):
            await wait
    with pytest.raises(Unavailable, match="the controller is shutting down"):
        await waiters.wait([A], False, 5)
    assert not await waiters.wait([A], False, 0)
    cluster.stop(A)
    assert await waiters.wait([A], False, 5)
