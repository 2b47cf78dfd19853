"""News of the whole cluster: everything that is committed is told, merged, and never piles up."""

import asyncio
from contextlib import aclosing

import pytest

from iris.controller.dashboard.changes import ChangeWatchers, ClusterNews
from iris.core.state.changes import Changes
from iris.domain.ids import JobId, TaskId, WorkerId
from rigging.errors import Unavailable


def tasks_changed(*names: str) -> Changes:
    # Only the keys are looked at.
    return Changes(tasks={TaskId(name): None for name in names})  # type: ignore[dict-item]


def test_changes_of_tasks_are_told_as_changes_of_their_jobs_once() -> None:
    news = ClusterNews()
    news.add(Changes())
    assert not news, "what changes nothing that is watched is no news"
    news.add(tasks_changed("/ann/a/0", "/ann/a/1", "/bob/b/7"))
    news.add(Changes(forgotten_jobs={JobId("/ann/old")}, forgotten_workers={WorkerId("w")}))
    assert news.job_ids == {"/ann/a", "/bob/b", "/ann/old"}
    assert news.workers
    assert not news.many_jobs


@pytest.mark.parametrize("in_batches", [1, 5])
def test_of_very_many_jobs_it_is_only_said_that_there_are(in_batches: int) -> None:
    news = ClusterNews()
    for part in range(in_batches):
        names = [f"/ann/j{i}/0" for i in range(part, 50, in_batches)]
        news.add(tasks_changed(*names), most_named=10)
    assert (news.many_jobs, news.job_ids) == (True, set())


async def test_a_slow_watcher_gets_all_in_one_and_the_end_is_told() -> None:
    watchers = ChangeWatchers()
    told: list[set[JobId]] = []
    first, second = asyncio.Event(), asyncio.Event()

    async def watch() -> None:
        async with aclosing(watchers.watch(0.0)) as news:
            async for item in news:
                told.append(item.job_ids)
                (second if first.is_set() else first).set()

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    watchers.on_changes(tasks_changed("/ann/a/0"))
    watchers.on_changes(tasks_changed("/ann/b/0"))
    await first.wait()
    watchers.on_changes(tasks_changed("/ann/c/0"))
    await second.wait()
    watchers.close()
    with pytest.raises(Unavailable):
        await task
    watchers.on_changes(tasks_changed("/ann/d/0"))  # nobody is left
    assert told == [{"/ann/a", "/ann/b"}, {"/ann/c"}]
