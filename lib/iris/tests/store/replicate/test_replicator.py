"""What is kept in memory, what is written together and what may be removed: the rules of one leader's writer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from fray.testing.waiting import eventually
from iris.store.db import DATABASE_NAME
from iris.store.journal import Entry, Journal
from iris.store.replicate import replicator as replicator_module
from iris.store.replicate.layout import Listing, Snapshot
from iris.store.replicate.leadership import Leadership
from iris.store.replicate.remote import RemoteState
from iris.store.replicate.replicator import Pace, Replicator
from rigging.distributed_lock import LeaseLock

DAY_MS = 86_400_000


class Kept:
    """Stands for journal, remote state and lease; `block` keeps segments from being written."""

    def __init__(self) -> None:
        self.on_commit: Callable[[Entry], None] | None = None
        self.sequence = 5
        self.first_waiting: int | None = None
        self.clock_ms = lambda: 10 * DAY_MS
        self.told: list[int] = []
        self.segments: list[list[int]] = []
        self.snapshots: list[int] = []
        self.removed: list[Any] = []
        self.present = Listing()
        self.fail = False
        self.failures = 0
        self.fail_snapshots = 0
        self.released = 0
        self.url = "remote"

    def uploaded(self, sequence: int) -> None:
        self.told.append(sequence)

    def put_segment(self, generation: int, entries: list[Entry]) -> None:
        assert generation == 7
        if self.fail:
            self.failures += 1
            raise OSError("no storage")
        self.segments.append([entry.sequence for entry in entries])

    def put_snapshot(self, generation: int, database: Path, scratch: Path, at_ms: int) -> Snapshot:
        if self.fail_snapshots:
            self.fail_snapshots -= 1
            raise OSError("no storage")
        assert (generation, database.name, at_ms) == (7, DATABASE_NAME, 10 * DAY_MS)
        self.snapshots.append(self.sequence)
        return Snapshot(generation, self.sequence, at_ms)

    def listing(self) -> Listing:
        return self.present

    def remove(self, objects: Any) -> None:
        self.removed += objects

    def refresh(self) -> None: ...

    def release(self) -> None:
        self.released += 1

    def commit(self, size: int = 1) -> None:
        self.sequence += 1
        assert self.on_commit is not None
        self.on_commit(Entry(self.sequence, 0, "x" * size))


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def replicating(kept: Kept, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Replicator]]:
    """Replicates for the length of a block."""

    @asynccontextmanager
    async def run(needs_snapshot: bool = False, **pace: Any) -> AsyncIterator[Replicator]:
        leadership = Leadership(cast(RemoteState, kept), cast(LeaseLock, kept), 7, needs_snapshot)
        settings = Pace(**{"gather_s": 0.0, **pace})
        replicator = Replicator(leadership, tmp_path, cast(Journal, kept), settings, lambda why: pytest.fail(why))
        await asyncio.to_thread(replicator.start)
        try:
            yield replicator
        finally:
            await asyncio.to_thread(replicator.close)

    return run


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, condition, "the writer has done it")


async def test_a_commit_goes_there_and_the_journal_may_forget_it(kept: Kept, replicating: Any) -> None:
    async with replicating() as replicator:
        await replicator.wait()  # all of the past is there
        kept.commit()
        assert replicator.waiting_commits in (0, 1)
        await replicator.wait()
        assert (kept.segments, kept.told) == ([[6]], [6])
        assert (replicator.waiting_commits, replicator.bytes_in_memory) == (0, 0)
    assert kept.released == 1
    assert kept.on_commit is None
    assert not kept.snapshots


async def test_a_wait_does_not_wait_for_commits_to_gather_and_others_do(kept: Kept, replicating: Any) -> None:
    async with replicating(gather_s=1000.0) as replicator:
        kept.commit()
        await asyncio.wait_for(replicator.wait(), 20)
        kept.commit()
        kept.commit()
        assert kept.segments == [[6]]
    assert kept.segments == [[6], [7, 8]], "the rest is written at the end, together"


async def test_memory_holds_the_first_that_wait(kept: Kept, replicating: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def read(database: Path, after: int, most: int) -> list[Entry]:
        asked.append((after, most))
        return [Entry(number, 0, "x" * 4) for number in range(after + 1, kept.sequence + 1)][:2]

    monkeypatch.setattr(replicator_module, "read_waiting", read)

    async with replicating(memory_bytes=10, segment_bytes=8, retry_s=(0.001, 0.001)) as replicator:
        kept.fail = True
        for _ in range(6):
            kept.commit(4)
        assert replicator.bytes_in_memory == 12, "three, the last of which crossed the bound"
        assert replicator.waiting_commits == 6
        failures = kept.failures
        await until(lambda: kept.failures >= failures + 2)  # what is tried now was gathered after the last commit
        kept.fail = False
        await replicator.wait()
        assert kept.segments == [[6, 7], [8], [9, 10], [11]]
        assert asked == [(8, 8), (10, 8)]
        kept.commit(4)  # memory begins anew where the journal has been caught up with
        assert replicator.bytes_in_memory in (0, 4)
        await replicator.wait()
        assert len(asked) == 2
        assert replicator.bytes_in_memory == 0


async def test_what_waited_from_before_is_first(kept: Kept, replicating: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.first_waiting = 4
    monkeypatch.setattr(
        replicator_module, "read_waiting",
        lambda database, after, most: [Entry(number, 0, "x") for number in range(after + 1, kept.sequence + 1)],
    )  # fmt: skip

    async with replicating() as replicator:
        assert replicator.waiting_commits in (0, 2)
        await replicator.wait()
        assert kept.segments == [[4, 5]]


async def test_a_snapshot_is_made_when_there_is_much_new_or_at_first(kept: Kept, replicating: Any) -> None:
    async with replicating(needs_snapshot=True, snapshot_bytes=10) as replicator:
        assert kept.snapshots == [5], "nothing is answered before it"
        assert replicator.last_snapshot_at_ms == 10 * DAY_MS
        kept.commit(9)
        await replicator.wait()
        kept.commit(1)
        await replicator.wait()
        await until(lambda: len(kept.snapshots) == 2)
        kept.commit(9)
        await replicator.wait()
        assert len(kept.snapshots) == 2


async def test_snapshots_go_on_by_the_clock_and_only_where_something_changed(kept: Kept, replicating: Any) -> None:
    async with replicating(snapshot_s=0.01):
        for count in range(1, 4):
            kept.commit()
            await until(lambda count=count: len(kept.snapshots) == count)
        assert kept.snapshots == [6, 7, 8]


async def test_a_snapshot_removes_what_is_older_than_the_history_and_no_more(kept: Kept, replicating: Any) -> None:
    old, base, young = (Snapshot(7, number, day * DAY_MS) for number, day in ((1, 1), (2, 2), (3, 6)))
    kept.present = Listing((), (old, base, young), ())

    async with replicating(history_s=7 * 86400.0) as replicator:
        await asyncio.to_thread(replicator.snapshot)
    assert kept.removed == [old.name], "the second is what a restore of three days ago begins with"


async def test_who_waits_as_it_ends_is_let_go(kept: Kept, replicating: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with replicating(gather_s=1000.0):
        kept.fail = True
        kept.commit()
        kept.commit()
    assert "2 commits are not replicated; they are in the database" in caplog.text
    assert kept.released == 1


async def test_a_failed_snapshot_is_made_later(kept: Kept, replicating: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with replicating(snapshot_s=0.01):
        kept.fail_snapshots = 2
        kept.commit()
        await until(lambda: kept.snapshots)
        assert kept.snapshots == [6]
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["cannot create a snapshot (no storage); trying again later"] * 2


async def test_tries_are_soon_and_then_rarer(kept: Kept, replicating: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float | None] = []

    async with replicating(lease_timeout_s=3600.0, retry_s=(0.001, 0.004)) as replicator:
        wait = replicator.stopping.wait
        monkeypatch.setattr(replicator.stopping, "wait", lambda seconds: (pauses.append(seconds), wait(seconds))[1])
        for _ in range(2):
            kept.failures, kept.fail = 0, True
            kept.commit()
            await until(lambda: kept.failures >= 5)
            kept.fail = False
            await replicator.wait()
            assert pauses[:4] == [0.001, 0.002, 0.004, 0.004]
            pauses.clear()
