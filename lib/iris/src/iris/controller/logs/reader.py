"""Reading and following logs: a job's, one task's, or those of a whole tree of jobs."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

from iris.controller.logs.hub import LogHub, Subscription
from iris.controller.logs.pieces import PieceMovedError
from iris.controller.logs.search_process import Task
from iris.controller.logs.store import LogKey
from iris.domain.ids import JobId
from iris.rpc.logfilter import ANY_ATTEMPT, LineChoice
from iris.rpc.logformat import Record
from rigging.clock import unix_ms

Line = tuple[LogKey, Record]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A request to read logs.

    Args:
        index: One task of the job; None: all.
        max_lines: 0: all; else the last ones, or the first ones when `from_start`.
        choice: Which lines of them.
        follow: Go on until the job (with those below it, if included) has ended and everything was given, or until the
            time is over up to which lines are chosen.
    """

    job_id: JobId
    index: int | None = None
    include_children: bool = False
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False
    follow: bool = False
    choice: LineChoice = field(default_factory=LineChoice)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of a reader's work.

    Args:
        batch_lines: Lines of a batch.
        batch_bytes: Bytes at which a batch ends.
        merged: Logs that are merged by time; more come one after another, so many before others have their turn.
        late_ms: How long after the end of the chosen time lines of it may still come in, for those who follow.
    """

    batch_lines: int = 2000
    batch_bytes: int = 256 * 1024
    merged: int = 64
    late_ms: int = 5_000


_LIMITS: Final = ReadLimits()


async def read_logs(
    hub: LogHub, query: LogQuery, limits: ReadLimits = _LIMITS, now_ms: Callable[[], int] = unix_ms
) -> AsyncGenerator[list[Line], None]:
    """Yield the lines asked for in batches; each attempt's in order, merged by time within a batch. Each line once.

    Args:
        hub: The logs.
        query: The job or task, and the lines wanted of it.
        limits: Sizes of batches.
        now_ms: The clock by which the chosen time ends.
    """
    subscription = hub.subscribe(query.job_id, query.include_children)
    reached: dict[LogKey, int] = {}
    given = 0
    try:
        if not query.choice.looks_at_lines:
            try:
                async with aclosing(_read_here(hub, query, limits, subscription, reached)) as batches:
                    async for batch in batches:
                        given += len(batch)
                        yield batch
                return
            except PieceMovedError:
                # The rest comes from the remote state, for which the controller does not wait.
                pass
        if reached and query.max_lines:
            query = replace(query, max_lines=query.max_lines - given if query.from_start else 0)
        async with aclosing(_read_elsewhere(hub, query, limits, subscription, reached, now_ms)) as batches:
            async for batch in batches:
                yield batch
    finally:
        hub.unsubscribe(subscription)


async def _read_here(
    hub: LogHub, query: LogQuery, limits: ReadLimits, subscription: Subscription, reached: dict[LogKey, int]
) -> AsyncGenerator[list[Line], None]:
    """Read what is on this disk; `reached` tells how far that was given. Raises PieceMovedError."""
    positions: dict[LogKey, int] = {}
    sequence = _sequence(hub, query)
    left = query.max_lines if query.max_lines and query.from_start else None
    done = hub.is_complete(query.job_id, query.include_children)
    keys = _all_keys(hub, query)
    if query.max_lines and not query.from_start:
        tails = await _tails(hub, keys, query, positions, limits)
        reached.update(positions)
        for batch in _batches(tails, limits):
            yield batch
        keys = []
    while True:
        for lines in _in_turns(hub, keys, query.since_ms, positions, limits.merged):
            for batch in _batches(lines if left is None else islice(lines, left), limits):
                reached.update((key, record.end) for key, record in batch)
                yield batch
                left = None if left is None else left - len(batch)
            if left == 0:
                return
            await asyncio.sleep(0)  # a job may have 100,000 logs
        if done or not query.follow or _sequence(hub, query) != sequence:
            return
        await subscription.wait()
        grown = subscription.take()
        # Asked before reading: what is complete now is read completely below.
        done = hub.is_complete(query.job_id, query.include_children)
        keys = _all_keys(hub, query) if done else _chosen(query, grown)


async def _read_elsewhere(
    hub: LogHub,
    query: LogQuery,
    limits: ReadLimits,
    subscription: Subscription,
    positions: dict[LogKey, int],
    now_ms: Callable[[], int],
) -> AsyncGenerator[list[Line], None]:
    sequence = _sequence(hub, query)
    searchers = hub.searchers
    task = Task(searchers.root, searchers.remote, query.choice, query.since_ms, query.max_lines, query.from_start)
    async with searchers.begin(task) as searcher:
        done = hub.is_complete(query.job_id, query.include_children)
        keys = _all_keys(hub, query)
        left = query.max_lines if query.max_lines and query.from_start else None
        while True:
            last = done or not query.follow or _sequence(hub, query) != sequence
            async with aclosing(searcher.round(keys, positions, last)) as batches:
                async for batch in batches:
                    yield batch
                    left = None if left is None else left - len(batch)
            if last or left == 0:
                return
            over = not await _something_new(subscription, query, limits, now_ms)
            grown = subscription.take()
            done = over or hub.is_complete(query.job_id, query.include_children)
            # At the end all are looked at once more, for lines that have no end.
            keys = _all_keys(hub, query) if done else _chosen(query, grown)


async def _something_new(
    subscription: Subscription, query: LogQuery, limits: ReadLimits, now_ms: Callable[[], int]
) -> bool:
    """Wait for it; False: nothing that comes now can be of the chosen time."""
    if not query.choice.until_ms:
        await subscription.wait()
        return True
    left_ms = query.choice.until_ms + limits.late_ms - now_ms()
    if left_ms <= 0:
        return False
    try:
        await asyncio.wait_for(subscription.wait(), left_ms / 1000)
    except TimeoutError:
        return False
    return True


def _chosen(query: LogQuery, keys: Iterable[LogKey]) -> list[LogKey]:
    """Those of the logs that the query asks for, in order; `index` is a task of the job itself."""

    def is_chosen(key: LogKey) -> bool:
        is_of_task = query.index in (None, key[1]) or key[0] != query.job_id
        return is_of_task and query.choice.attempt in (ANY_ATTEMPT, key[2])

    return sorted(filter(is_chosen, keys))


def _sequence(hub: LogHub, query: LogQuery) -> int:
    # Another job that took the name is not what the caller follows.
    job = hub.view.jobs.get(query.job_id)
    return -1 if job is None else job.sequence


def _all_keys(hub: LogHub, query: LogQuery) -> list[LogKey]:
    below = hub.descendants(query.job_id) if query.include_children else []
    return _chosen(query, (key for job_id in (query.job_id, *below) for key in hub.keys(job_id)))


def _lines(hub: LogHub, key: LogKey, since_ms: int, positions: dict[LogKey, int]) -> Iterator[Line]:
    for record in hub.store.read(key, positions.get(key, 0), since_ms):
        positions[key] = record.end
        yield key, record


def _in_turns(
    hub: LogHub, keys: list[LogKey], since_ms: int, positions: dict[LogKey, int], most: int
) -> Iterator[Iterator[Line]]:
    """The lines of all logs, merged by time; of more than `most`, one after another, in parts of so many."""
    for begin in range(0, len(keys), most):
        sources = (_lines(hub, key, since_ms, positions) for key in keys[begin : begin + most])
        yield chain.from_iterable(sources) if len(keys) > most else heapq.merge(*sources, key=_at_ms)


async def _tails(
    hub: LogHub, keys: list[LogKey], query: LogQuery, positions: dict[LogKey, int], limits: ReadLimits
) -> list[Line]:
    kept: list[Line] = []
    for number, key in enumerate(keys, 1):
        # Before reading: what comes in later is given by the following.
        positions[key] = hub.store.complete_size(key)
        tail = [(key, record) for record in hub.store.tail(key, query.max_lines, query.since_ms)]
        kept = list(heapq.merge(kept, tail, key=_at_ms))[-query.max_lines :]
        if number % limits.merged == 0:
            await asyncio.sleep(0)
    return kept


def _at_ms(line: Line) -> int:
    return line[1].at_ms


def _batches(lines: Iterable[Line], limits: ReadLimits) -> Iterator[list[Line]]:
    batch: list[Line] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line[1].data)
        if size >= limits.batch_bytes or len(batch) >= limits.batch_lines:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
