"""Reading and following logs: a job's, one task's, or those of a whole tree of jobs."""

import heapq
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from iris.controller.logs.hub import LogHub
from iris.controller.logs.store import LogKey
from iris.domain.ids import JobId
from iris.rpc.logformat import Record

# Logs merged by time hold a file open each; with more of them they come one after another instead.

Line = tuple[LogKey, Record]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A request to read logs.

    Args:
        index: One task of the job; None: all.
        max_lines: 0: all; else the last ones, or the first ones when `from_start`.
        follow: Go on until the job (with those below it, if included) has ended and everything was given.
    """

    job_id: JobId
    index: int | None = None
    include_children: bool = False
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False
    follow: bool = False


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of a reader's work.

    Args:
        batch_lines: Lines of a batch.
        batch_bytes: Bytes at which a batch ends.
        merged: Logs that are merged by time; more come one after another.
    """

    batch_lines: int = 2000
    batch_bytes: int = 256 * 1024
    merged: int = 64


_LIMITS: Final = ReadLimits()


async def read_logs(hub: LogHub, query: LogQuery, limits: ReadLimits = _LIMITS) -> AsyncGenerator[list[Line], None]:
    """Yield the lines asked for in batches; each attempt's in order, merged by time within a batch. Each line once."""
    subscription = hub.subscribe(query.job_id, query.include_children)
    try:
        sequence = _sequence(hub, query)
        left = query.max_lines if query.max_lines and query.from_start else None
        positions: dict[LogKey, int] = {}
        done = hub.is_complete(query.job_id, query.include_children)
        keys = _all_keys(hub, query)
        if query.max_lines and not query.from_start:
            first: Iterator[Line] = iter(_tails(hub, keys, query, positions))
        else:
            first = _merged(hub, keys, query.since_ms, positions, limits.merged)
        while True:
            for batch in _batches(first if left is None else islice(first, left), limits):
                yield batch
                left = None if left is None else left - len(batch)
            if done or not query.follow or left == 0 or _sequence(hub, query) != sequence:
                return
            await subscription.wait()
            dirty = subscription.take()
            # Asked before reading: what is complete now is read completely below.
            done = hub.is_complete(query.job_id, query.include_children)
            keys = [key for job_id in sorted(dirty) for key in hub.keys(job_id, query.index)]
            first = _merged(hub, keys, query.since_ms, positions, limits.merged)
    finally:
        hub.unsubscribe(subscription)


def _sequence(hub: LogHub, query: LogQuery) -> int:
    # Another job that took the name is not what the caller follows.
    job = hub.view.jobs.get(query.job_id)
    return -1 if job is None else job.sequence


def _all_keys(hub: LogHub, query: LogQuery) -> list[LogKey]:
    keys = hub.keys(query.job_id, query.index)
    if query.include_children:
        for job_id in hub.descendants(query.job_id):
            keys += hub.keys(job_id)
    return keys


def _lines(hub: LogHub, key: LogKey, since_ms: int, positions: dict[LogKey, int]) -> Iterator[Line]:
    for record in hub.store.read(key, positions.get(key, 0), since_ms):
        positions[key] = record.end
        yield key, record


def _merged(hub: LogHub, keys: list[LogKey], since_ms: int, positions: dict[LogKey, int], most: int) -> Iterator[Line]:
    if len(keys) == 1:
        return _lines(hub, keys[0], since_ms, positions)
    sources = (_lines(hub, key, since_ms, positions) for key in keys)
    if len(keys) > most:
        return (line for source in sources for line in source)
    return heapq.merge(*sources, key=_at_ms)


def _tails(hub: LogHub, keys: list[LogKey], query: LogQuery, positions: dict[LogKey, int]) -> list[Line]:
    kept: list[Line] = []
    for key in keys:
        # Before reading: what comes in later is given by the following.
        positions[key] = hub.store.complete_size(key)
        tail = [(key, record) for record in hub.store.tail(key, query.max_lines, query.since_ms)]
        kept = list(heapq.merge(kept, tail, key=_at_ms))[-query.max_lines :]
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
