"""Reading logs without a controller: batches, merging by time, limits, and what following gives when."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from iris.controller.logs.files import LogFiles
from iris.controller.logs.hub import LogHub
from iris.controller.logs.reader import LogQuery, ReadLimits, read_logs
from iris.controller.logs.searcher import Searchers
from iris.controller.logs.store import LogKey, LogStore
from iris.domain.ids import JobId
from iris.rpc.logfilter import LineChoice
from iris.rpc.logformat import decode_all, encode

LIMITS = ReadLimits()
T = 1_790_000_000_000
TOP, CHILD = JobId("/ann/a"), JobId("/ann/a/b")


class Hub:
    """A job and its child; what is new of them is taken from `grown`, and `complete` says when all is there."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.searchers = Searchers(str(store.root))
        self.view = SimpleNamespace(jobs={TOP: SimpleNamespace(sequence=1)})
        self.complete = True
        self.subscriptions = 0
        self.grown: set[LogKey] = set()
        self.wake = asyncio.Event()

    def subscribe(self, job_id: JobId, include_children: bool) -> "Hub":
        self.subscriptions += 1
        return self

    def unsubscribe(self, subscription: object) -> None:
        self.subscriptions -= 1

    async def wait(self) -> None:
        await self.wake.wait()
        self.wake.clear()

    def take(self) -> set[LogKey]:
        taken, self.grown = self.grown, set()
        return taken

    def is_complete(self, job_id: JobId, include_children: bool) -> bool:
        return self.complete

    def keys(self, job_id: JobId) -> list[LogKey]:
        return self.store.keys(job_id)

    def descendants(self, job_id: JobId) -> list[JobId]:
        return [CHILD]

    def add(self, job_id: JobId, index: int, *at: int, size: int = 1) -> None:
        key = (job_id, index, 0)
        for at_ms in at:
            self.store.append(key, self.store.size(key), encode(False, T + at_ms, b"x" * size))
        self.grown.add(key)
        self.wake.set()


@pytest.fixture
def hub(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Hub]:
    async def make() -> Hub:
        return Hub(LogStore(tmp_path))

    hub = runner.run(make())
    yield hub
    assert hub.subscriptions == 0


def read(hub: Hub, limits: ReadLimits = LIMITS, **query: Any) -> Any:
    return read_logs(cast(LogHub, hub), LogQuery(TOP, **query), limits)


async def whole(hub: Hub, limits: ReadLimits = LIMITS, **query: Any) -> list[list[tuple[str, int, int]]]:
    return [shown(batch) async for batch in read(hub, limits, **query)]


def shown(batch: Sequence[Any]) -> list[tuple[str, int, int]]:
    return [(key[0], key[1], record.at_ms - T) for key, data in batch for record in decode_all(data)]


async def test_lines_of_several_tasks_are_merged_by_time(hub: Hub) -> None:
    hub.add(TOP, 0, 1, 4, 5)
    hub.add(TOP, 1, 2, 3, 6)
    hub.add(CHILD, 0, 0, 7)
    own = [(TOP, 0, 1), (TOP, 1, 2), (TOP, 1, 3), (TOP, 0, 4), (TOP, 0, 5), (TOP, 1, 6)]
    assert await whole(hub) == [own]
    assert await whole(hub, include_children=True) == [[(CHILD, 0, 0), *own, (CHILD, 0, 7)]]
    assert await whole(hub, index=1) == [[(TOP, 1, 2), (TOP, 1, 3), (TOP, 1, 6)]]
    assert await whole(hub, since_ms=T + 4) == [own[3:]]
    assert await whole(hub, max_lines=2) == [own[-2:]]
    assert await whole(hub, max_lines=2, from_start=True) == [own[:2]]
    assert await whole(hub, max_lines=2, since_ms=T + 6) == [own[-1:]]
    assert await whole(hub, max_lines=99) == [own]
    assert await whole(hub, since_ms=T + 99) == []


async def test_very_many_logs_come_one_after_another(hub: Hub) -> None:
    hub.add(TOP, 0, 1, 4)
    hub.add(TOP, 1, 2, 3)
    assert await whole(hub, ReadLimits(merged=2)) == [[(TOP, 0, 1), (TOP, 1, 2), (TOP, 1, 3), (TOP, 0, 4)]]
    hub.add(TOP, 2, 0)
    assert await whole(hub, ReadLimits(merged=2)) == [
        [(TOP, 0, 1), (TOP, 0, 4), (TOP, 1, 2), (TOP, 1, 3)],
        [(TOP, 2, 0)],
    ]


async def test_a_batch_is_bounded(hub: Hub) -> None:
    limits = ReadLimits(batch_bytes=100)
    for at_ms in range(6):
        hub.add(TOP, at_ms % 2, at_ms, size=50)
    assert [len(batch) for batch in await whole(hub, limits)] == [2, 2, 2]
    assert [len(batch) for batch in await whole(hub, limits, max_lines=3)] == [2, 1]
    assert [len(batch) for batch in await whole(hub, limits, max_lines=3, from_start=True)] == [2, 1]
    hub.add(CHILD, 0, 7, 8, 9, size=200_000)
    assert [len(batch) for batch in await whole(hub, limits, include_children=True)] == [2, 2, 2, 1, 1, 1]


async def test_following_gives_what_is_new_of_what_has_changed_until_all_is_there(hub: Hub) -> None:
    hub.complete = False
    hub.add(TOP, 0, 1)
    hub.take()
    hub.wake.clear()
    lines = read(hub, follow=True)
    assert shown(await anext(lines)) == [(TOP, 0, 1)]
    telling = asyncio.create_task(anext(lines))
    await asyncio.sleep(0)
    hub.add(TOP, 0, 2)
    hub.add(TOP, 1, 3)
    assert shown(await telling) == [(TOP, 0, 2), (TOP, 1, 3)]
    hub.add(TOP, 1, 4)
    hub.complete = True
    assert shown(await anext(lines)) == [(TOP, 1, 4)]
    with pytest.raises(StopAsyncIteration):
        await anext(lines)


async def test_following_very_many_logs_reads_those_that_grow_and_leaves_others_their_turns(hub: Hub) -> None:
    hub.complete = False
    for index in range(20):
        hub.add(TOP, index, 1)
    hub.take()
    hub.wake.clear()
    asked: list[LogKey] = []
    log_of = hub.store.log

    def overhear(key: LogKey) -> LogFiles:
        asked.append(key)
        return log_of(key)

    with mock.patch.object(hub.store, "log", overhear):
        lines = read(hub, ReadLimits(merged=4), follow=True)
        turns: list[int] = []
        assert len(await anext(lines)) == 4
        for part in range(1, 5):
            asyncio.get_running_loop().call_soon(turns.append, part)
            assert len(await anext(lines)) == 4
            assert (len(asked), turns) == (4 * part + 4, list(range(1, part + 1)))
        asked.clear()
        telling = asyncio.create_task(anext(lines))
        await asyncio.sleep(0)
        hub.add(TOP, 7, 2)
        assert shown(await telling) == [(TOP, 7, 2)]
        assert set(asked) == {(TOP, 7, 0)}
        await lines.aclose()


@pytest.mark.parametrize(
    ("query", "first", "later"),
    [
        ({"max_lines": 1}, [(TOP, 0, 3)], [(TOP, 0, 4), (TOP, 0, 5), (TOP, 0, 6)]),
        ({"max_lines": 5, "from_start": True}, [(TOP, 0, number) for number in (1, 2, 3)], [(TOP, 0, 4), (TOP, 0, 5)]),
    ],
    ids=["a tail and all that follows", "the first lines, until they are there"],
)
async def test_following_from_the_end_or_for_so_many_lines(hub: Hub, query: Any, first: Any, later: Any) -> None:
    hub.complete = False
    hub.add(TOP, 0, 1, 2, 3)
    hub.take()
    hub.wake.clear()
    lines = read(hub, follow=True, **query)
    assert shown(await anext(lines)) == first
    hub.add(TOP, 0, 4, 5, 6)
    hub.complete = "from_start" not in query
    assert shown(await anext(lines)) == later
    assert [batch async for batch in lines] == []


async def test_another_job_that_took_the_name_is_not_followed(hub: Hub) -> None:
    hub.complete = False
    hub.add(TOP, 0, 1)
    lines = read(hub, follow=True)
    await anext(lines)
    hub.view.jobs[TOP] = SimpleNamespace(sequence=2)
    hub.add(TOP, 0, 2)
    assert [batch async for batch in lines] == []


async def test_following_ends_with_the_time_up_to_which_lines_are_chosen(hub: Hub) -> None:
    # Nothing that a running job prints later is of that time, and some of it may come in a little late.
    hub.complete = False
    hub.add(TOP, 0, 1)
    hub.take()
    query = LogQuery(TOP, follow=True, choice=LineChoice(until_ms=T + 5))
    for now, limits in ((T + 15, ReadLimits(late_ms=10)), (T, ReadLimits(late_ms=10))):
        hub.wake.clear()
        lines = read_logs(cast(LogHub, hub), query, limits, lambda now=now: now)
        async with asyncio.timeout(30):
            assert [shown(batch) async for batch in lines] == [[(TOP, 0, 1)]]
