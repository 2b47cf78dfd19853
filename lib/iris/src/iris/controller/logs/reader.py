"""Reads and follows the logs of a job, a task, or a tree of jobs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from iris.controller.logs.hub import LogHub, Subscription
from iris.controller.logs.pieces import PieceMovedError
from iris.controller.logs.search import FirstLines, Line, Part, encoded, in_turns, last_lines
from iris.controller.logs.search_process import Task
from iris.controller.logs.store import LogKey
from iris.domain.ids import JobId
from iris.rpc.logfilter import ANY_ATTEMPT, LineChoice
from rigging.clock import unix_ms

Batch = list[tuple[LogKey, bytes]]
"""Logs, each with some of its records."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A request to read logs.

    Args:
        index: One task of the job; None for all.
        max_lines: Maximum number of lines, counted from the end, or from the start with `from_start`; 0 for all.
        choice: The filter of lines.
        follow: Continue until the job (with included descendants) has ended and all lines were delivered, or until the
            end of the requested time.
        begin: Offset of a record in the only requested log, from which to read.
    """

    job_id: JobId
    index: int | None = None
    include_children: bool = False
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False
    follow: bool = False
    choice: LineChoice = field(default_factory=LineChoice)
    begin: int = 0


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of a reader's work.

    Args:
        batch_bytes: The size at which a batch ends.
        merged: Maximum number of logs to merge by time. More logs are read in turn, each up to `batch_bytes` at a time.
        late_ms: How long followers wait for late lines after the end of the requested time.
    """

    batch_bytes: int = 256 * 1024
    merged: int = 64
    late_ms: int = 5_000


_LIMITS: Final = ReadLimits()


async def read_logs(
    hub: LogHub, query: LogQuery, limits: ReadLimits = _LIMITS, now_ms: Callable[[], int] = unix_ms
) -> AsyncGenerator[Batch, None]:
    """Yield the requested lines in batches, each line once: the attempts' lines in order, merged by time.

    Args:
        hub: The logs.
        query: The job or task, and the requested lines.
        limits: The sizes of batches.
        now_ms: Returns the time (Unix ms), to detect the end of the requested time.
    """
    subscription = hub.subscribe(query.job_id, query.include_children)
    reached = dict.fromkeys(_all_keys(hub, query), query.begin) if query.begin else {}
    first = FirstLines(query.max_lines) if query.max_lines and query.from_start else None
    try:
        if not query.choice.looks_at_lines:
            try:
                async with aclosing(_read_here(hub, query, limits, subscription, reached, first)) as batches:
                    async for batch in batches:
                        yield batch
                return
            except PieceMovedError:
                # The rest comes from the remote state, for which the controller does not wait.
                pass
        if reached and query.max_lines:
            query = replace(query, max_lines=first.left if first else 0)
        async with aclosing(_read_elsewhere(hub, query, limits, subscription, reached, now_ms)) as batches:
            async for batch in batches:
                yield batch
    finally:
        hub.unsubscribe(subscription)


async def _read_here(
    hub: LogHub,
    query: LogQuery,
    limits: ReadLimits,
    subscription: Subscription,
    reached: dict[LogKey, int],
    first: FirstLines | None,
) -> AsyncGenerator[Batch, None]:
    """Read local pieces; `reached` records the progress. Raise PieceMovedError."""
    sequence = _sequence(hub, query)
    done = hub.is_complete(query.job_id, query.include_children)
    keys = _all_keys(hub, query)
    if query.max_lines and first is None:
        tails, ends = await _tails(hub, keys, query, limits)
        reached.update(ends)
        for batch in _batches(encoded(tails), limits):
            yield batch
        keys = []
    while True:
        for begin in range(0, len(keys), limits.merged):
            sources = [_of_log(hub, key, query.since_ms, reached) for key in keys[begin : begin + limits.merged]]
            parts = in_turns(sources, limits.merged if len(keys) <= limits.merged else 0)
            for batch in _batches(_passed(parts if first is None else first.of(parts), reached), limits):
                yield batch
            if first is not None and not first.left:
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
) -> AsyncGenerator[Batch, None]:
    sequence = _sequence(hub, query)
    searchers = hub.searchers
    task = Task(searchers.root, searchers.remote, query.choice, query.since_ms, query.max_lines, query.from_start)
    async with searchers.begin(task) as searcher:
        done = hub.is_complete(query.job_id, query.include_children)
        keys = _all_keys(hub, query)
        while True:
            last = done or not query.follow or _sequence(hub, query) != sequence
            async with aclosing(searcher.round(keys, positions, last)) as parts:
                async for part in parts:
                    yield [part]
            if last or searcher.has_all:
                return
            over = not await _something_new(subscription, query, limits, now_ms)
            grown = subscription.take()
            done = over or hub.is_complete(query.job_id, query.include_children)
            # At the end all are looked at once more, for lines that have no end.
            keys = _all_keys(hub, query) if done else _chosen(query, grown)


async def _something_new(
    subscription: Subscription, query: LogQuery, limits: ReadLimits, now_ms: Callable[[], int]
) -> bool:
    """Wait for new data. Return False if no later data can be in the requested time."""
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
    """Return the selected logs, in order. `index` selects a task of the job itself."""

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


def _of_log(hub: LogHub, key: LogKey, since_ms: int, reached: dict[LogKey, int]) -> Iterator[Part]:
    return ((key, span) for span in hub.store.log(key).spans(reached.get(key, 0), since_ms))


def _passed(parts: Iterable[Part], reached: dict[LogKey, int]) -> Iterator[tuple[LogKey, bytes]]:
    """Yield the records of the parts, and record the progress."""
    for key, span in parts:
        yield key, span.data
        reached[key] = span.end


async def _tails(
    hub: LogHub, keys: list[LogKey], query: LogQuery, limits: ReadLimits
) -> tuple[list[Line], dict[LogKey, int]]:
    """Return the last lines of all logs, and the offset to continue from in each."""
    kept: list[Line] = []
    ends: dict[LogKey, int] = {}
    for number, key in enumerate(keys, 1):
        # Before reading: what comes in later is given by the following.
        ends[key] = hub.store.complete_size(key)
        tail = [(key, record) for record in hub.store.tail(key, query.max_lines, query.since_ms)]
        kept = last_lines((kept, tail), query.max_lines)
        if number % limits.merged == 0:
            await asyncio.sleep(0)
    return kept, ends


def _batches(parts: Iterable[tuple[LogKey, bytes]], limits: ReadLimits) -> Iterator[Batch]:
    batch: Batch = []
    size = 0
    try:
        for key, data in parts:
            batch.append((key, data))
            size += len(data)
            if size >= limits.batch_bytes:
                yield batch
                batch, size = [], 0
    except PieceMovedError:
        # What was read counts as given.
        if batch:
            yield batch
        raise
    if batch:
        yield batch
