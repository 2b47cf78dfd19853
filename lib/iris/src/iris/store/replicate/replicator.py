"""Keeps the remote state up to date, in separate threads.

The commits of a quarter of a second are written as one object, so the loss of the disk loses about a second of commits
at most. `wait` waits until commits are replicated.

The journal of the local database contains the unreplicated commits. The latest few MiB are also in memory, to save
reads. While the storage does not answer, the journal grows, but memory does not.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.store.db import DATABASE_NAME
from iris.store.journal import Entry, Journal
from iris.store.replicate.layout import Snapshot, superfluous
from iris.store.replicate.leadership import LEASE_TIMEOUT_S, Leadership
from iris.store.replicate.remote import read_waiting
from rigging.distributed_lock import LeaseLostError

logger = logging.getLogger(__name__)

_FAREWELL_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals (seconds) and sizes (bytes) of replication.

    Args:
        gather_s: How long to collect commits for one object, unless a caller waits.
        snapshot_s: Interval between snapshots if the state has changed; shorter after `snapshot_bytes` of journal.
        history_s: The period from which any earlier state can be restored.
        segment_bytes: Maximum bytes of commits in one object.
        memory_bytes: Maximum bytes of commits in memory; others are read from the journal.
        retry_s: First and longest delay between attempts.
    """

    gather_s: float = 0.25
    snapshot_s: float = 3600.0
    snapshot_bytes: int = 64 * 2**20
    history_s: float = 7 * 86_400.0
    lease_timeout_s: float = LEASE_TIMEOUT_S
    segment_bytes: int = 8 * 2**20
    memory_bytes: int = 16 * 2**20
    retry_s: tuple[float, float] = (0.1, 5.0)


class Replicator:
    """Writes one leader's commits to the remote state.

    Args:
        on_lost_leadership: Called once, in any thread, when the lease is lost. The controller must acknowledge nothing
            afterwards.
    """

    def __init__(
        self,
        leadership: Leadership,
        state_dir: Path,
        journal: Journal,
        pace: Pace,
        on_lost_leadership: Callable[[str], None],
    ) -> None:
        self._leadership = leadership
        self._state_dir = state_dir
        self._journal = journal
        self._pace = pace
        self._on_lost_leadership = on_lost_leadership
        self._changed = threading.Condition()
        # The first commits that wait, without a gap; what comes after them, if anything, is in the journal only.
        self._recent: deque[Entry] = deque()
        self._recent_bytes = 0
        self._closing = False
        self._hurry = 0
        self._uploaded = journal.first_waiting - 1 if journal.first_waiting else journal.sequence
        self._committed = journal.sequence
        self._bytes_since_snapshot = 0
        self._last_snapshot_at_ms = 0
        self._snapshot_lock = threading.Lock()
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Start replicating. With a new remote directory this blocks until the first snapshot exists."""
        if self._leadership.needs_snapshot:
            self.snapshot()
        self._journal.on_commit = self._offer
        for name, target in (("upload", self._upload), ("snapshot", self._snapshots), ("lease", self._renew)):
            thread = threading.Thread(target=target, name=f"replicate-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Write the remaining commits, within ten seconds, and release the lease."""
        self._journal.on_commit = None
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.stopping.set()
        deadline = time.monotonic() + _FAREWELL_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.1))
        if self._uploaded < self._committed:
            waiting = self._committed - self._uploaded
            logger.warning("%d commits are not replicated; they are in the database", waiting)
        self._leadership.lock.release()

    @property
    def waiting_commits(self) -> int:
        """Return the number of commits that are not replicated yet."""
        return self._journal.sequence - self._uploaded

    @property
    def last_snapshot_at_ms(self) -> int:
        """Return the time of this process's last snapshot in Unix ms; 0 before the first."""
        return self._last_snapshot_at_ms

    @property
    def generation(self) -> int:
        """Return the generation of the lease under which commits are written."""
        return self._leadership.generation

    async def wait(self) -> None:
        """Wait until all current commits are replicated."""
        sequence = self._journal.sequence
        with self._changed:
            if self._uploaded >= sequence:
                return
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((sequence, future))
            self._hurry += 1
            self._changed.notify_all()
        try:
            await future
        finally:
            with self._changed:
                self._hurry -= 1

    def snapshot(self) -> Snapshot:
        """Write a snapshot now, and remove objects that no restore needs any more. Blocks the caller, but not the
        controller.
        """
        with self._snapshot_lock:
            remote = self._leadership.remote
            now_ms = self._journal.clock_ms()
            scratch = self._state_dir / "iris.db.snapshot"
            with self._changed:
                self._bytes_since_snapshot = 0
            done = remote.put_snapshot(self._leadership.generation, self._state_dir / DATABASE_NAME, scratch, now_ms)
            remote.remove(superfluous(remote.listing(), now_ms - round(self._pace.history_s * 1000)))
            self._last_snapshot_at_ms = now_ms
            logger.info("snapshot of commit %d is in %s", done.sequence, remote.url)
            return done

    # ---- the threads ----

    def _offer(self, entry: Entry) -> None:
        with self._changed:
            known = self._recent[-1].sequence if self._recent else self._uploaded
            if known + 1 == entry.sequence and self._recent_bytes < self._pace.memory_bytes:
                self._recent.append(entry)
                self._recent_bytes += len(entry.payload)
            self._committed = entry.sequence
            self._changed.notify_all()

    @property
    def bytes_in_memory(self) -> int:
        """Return the bounded size of the unreplicated commits in memory."""
        return self._recent_bytes

    def _upload(self) -> None:
        retry_s = self._pace.retry_s[0]
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._uploaded < self._committed or self._closing)
                if self._uploaded >= self._committed:
                    return
                self._changed.wait_for(lambda: self._hurry or self._closing, self._pace.gather_s)
                part = self._next_part()
            try:
                part = part or read_waiting(self._state_dir / DATABASE_NAME, self._uploaded, self._pace.segment_bytes)
                self._leadership.remote.put_segment(self._leadership.generation, part)
            except Exception as error:  # every filesystem has errors of its own; the remedy is the same
                if self._closing:
                    return
                logger.warning(
                    "the journal cannot be written to %s (%s); trying again", self._leadership.remote.url, error
                )
                self.stopping.wait(retry_s)
                retry_s = min(2 * retry_s, self._pace.retry_s[1])
                continue
            retry_s = self._pace.retry_s[0]
            self._is_uploaded(part)

    def _next_part(self) -> list[Entry]:
        part, size = [], 0
        for entry in self._recent:
            part.append(entry)
            size += len(entry.payload)
            if size >= self._pace.segment_bytes:
                break
        return part

    def _is_uploaded(self, part: list[Entry]) -> None:
        with self._changed:
            self._uploaded = part[-1].sequence
            while self._recent and self._recent[0].sequence <= self._uploaded:
                self._recent_bytes -= len(self._recent.popleft().payload)
            self._journal.uploaded(self._uploaded)
            self._bytes_since_snapshot += sum(len(entry.payload) for entry in part)
            if self._bytes_since_snapshot >= self._pace.snapshot_bytes:
                self._changed.notify_all()
            done = [future for sequence, future in self._waiters if sequence <= self._uploaded]
            self._waiters = [item for item in self._waiters if item[0] > self._uploaded]
        if done and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_wake, done)

    def _snapshots(self) -> None:
        due = time.monotonic() + self._pace.snapshot_s
        last = self._uploaded
        while True:
            with self._changed:
                self._changed.wait_for(self._is_snapshot_due, max(due - time.monotonic(), 0))
                if self._closing:
                    return
                changed = self._uploaded > last
            due = time.monotonic() + self._pace.snapshot_s
            if not changed:
                continue
            try:
                last = self.snapshot().sequence
            except Exception as error:  # as in _upload; the journal alone is enough until the next try
                logger.warning("cannot create a snapshot (%s); trying again later", error)

    def _is_snapshot_due(self) -> bool:
        return self._closing or self._bytes_since_snapshot >= self._pace.snapshot_bytes

    def _renew(self) -> None:
        renewed = time.monotonic()
        while not self.stopping.wait(self._pace.lease_timeout_s / 3):
            begun = time.monotonic()
            try:
                self._leadership.lock.refresh()
            except LeaseLostError as error:
                self._on_lost_leadership(str(error))
                return
            except Exception as error:  # the storage does not answer; the lease holds until its time is over
                if time.monotonic() - renewed > self._pace.lease_timeout_s:
                    self._on_lost_leadership(
                        f"the lease could not be renewed for {self._pace.lease_timeout_s:g} s ({error})"
                    )
                    return
                logger.warning("the lease of %s cannot be renewed now (%s)", self._leadership.remote.url, error)
            else:
                renewed = begun


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
