"""Removes old ended jobs with their logs, lost workers, and blobs without a job.

The policy is in ControllerConfig. The selection is pure; rounds remove the selected data in small steps.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from iris.controller.config.controller_config import ControllerConfig
from iris.controller.engine.engine import Engine
from iris.controller.engine.transaction import Transaction
from iris.controller.logs.store import LogStore
from iris.controller.storage.blobs import BlobStore
from iris.domain.ids import JobId
from iris.rpc.convert import bundle_parts
from iris.store.history import History
from rigging.clock import unix_ms
from rigging.errors import NotFound, Unavailable

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

ROUND_EVERY_S: Final = 600.0
BLOB_ROUND_EVERY_S: Final = 6 * 3600.0

SHELVE_AFTER_S: Final = 600.0
_SHELVED_AT_ONCE: Final = 50
_STEP: Final = 200  # jobs, workers or blobs removed at a time


class Retention:
    """Removes old data, round after round, until cancelled.

    Args:
        config: The retention periods.
        engine: Removes jobs and workers.
        logs: The store of the logs.
        blobs: The store of the blobs.
        forget: Removes a part of the events from before a time, or beyond a number (`Store.forget_events`).
        history: Chooses the jobs to remove.
    """

    def __init__(
        self,
        config: ControllerConfig,
        engine: Engine,
        logs: LogStore,
        blobs: BlobStore,
        history: History,
        forget: Callable[[int, int], int],
    ) -> None:
        self._config = config
        self._history = history
        self._forget = forget
        self._engine = engine
        self._logs = logs
        self._blobs = blobs

    async def run(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Run a round immediately, then every ten minutes. Remove blobs and stray logs four times a day."""
        blobs_due = 0.0
        while True:
            try:
                await self.forget_jobs()
                await self.forget_workers()
                await self.forget_events()
                await self.shelve_logs()
                if clock() >= blobs_due:
                    await self.remove_stray_logs()
                    await self.remove_blobs()
                    blobs_due = clock() + BLOB_ROUND_EVERY_S
            except (OSError, Unavailable):  # a full disk is no reason to end
                logger.exception("removing old history failed; it is tried again in %g s", ROUND_EVERY_S)
            await sleep(ROUND_EVERY_S)

    async def forget_jobs(self) -> int:
        """Remove expired jobs, and return their number."""
        now_ms, config = unix_ms(), self._config
        old_ms, young_ms = (now_ms - round(age * 1000) for age in (config.history_max_age_s, config.history_min_age_s))
        chosen = await asyncio.to_thread(self._history.forgettable, old_ms, young_ms, config.history_max_jobs)
        count = 0
        for names in _parts(chosen, _STEP):
            for job_id in names:
                await self._remove_many_logs(job_id, now_ms)
            count += await self._engine.decide(partial(_forget_jobs, names, now_ms))
            await asyncio.sleep(0)
        if count:
            logger.info("forgot %d ended jobs", count)
        return count

    async def _remove_many_logs(self, job_id: JobId, chosen_at_ms: int) -> None:
        """Remove the logs of a job in small steps if there are very many."""
        view = self._engine.view
        job = view.jobs.get(job_id)
        if job is None or job.finished_at_ms >= chosen_at_ms or job_id in view.children or not view.is_settled(job_id):
            return
        keys = self._logs.keys(job_id)
        for part in _parts(keys, _STEP) if len(keys) > _STEP else ():
            # By their numbers: a job that takes the name meanwhile has others.
            for key in part:
                self._logs.remove_log(key)
            await asyncio.sleep(0)

    async def forget_events(self) -> int:
        """Remove events that are older than jobs are kept, or more than `history_max_events`. Return their number."""
        before_ms = unix_ms() - round(self._config.history_max_age_s * 1000)
        total = count = self._forget(before_ms, self._config.history_max_events)
        while count:
            await asyncio.sleep(0)
            count = self._forget(before_ms, self._config.history_max_events)
            total += count
        return total

    async def forget_workers(self) -> int:
        """Remove workers not seen for as long as jobs are kept, and return their number."""
        before = (time.time() - self._config.history_max_age_s) * 1000
        gone = [
            worker.worker_id
            for worker in self._engine.view.workers.values()
            if not worker.connected and worker.last_seen_at_ms < before
        ]
        return await self._engine.decide(lambda transaction: sum(map(transaction.forget_worker, gone))) if gone else 0

    async def shelve_logs(self) -> int:
        """Move small logs of jobs that ended a while ago from files to the shelf, and return the number of jobs."""
        shelf, view, count = self._logs.shelf, self._engine.view, 0
        if shelf is None:
            return 0
        before_ms = unix_ms() - round(SHELVE_AFTER_S * 1000)
        for names in _parts(await asyncio.to_thread(lambda: list(self._logs.stored_jobs())), _SHELVED_AT_ONCE):
            jobs = [job for name in names if (job := view.jobs.get(name)) is not None and view.is_settled(job.job_id)]
            ended = [job.job_id for job in jobs if job.finished_at_ms < before_ms]
            files = await asyncio.to_thread(_small_files, self._logs, ended)
            if not files:
                continue
            await asyncio.to_thread(shelf.put, files)
            for job_id, content in files.items():
                self._logs.drop_shelved(job_id, content)
            count += len(files)
        return count

    async def remove_stray_logs(self) -> int:
        """Remove logs of unknown jobs, left after a crash, and return the number of jobs."""
        stored = await asyncio.to_thread(lambda: list(self._logs.stored_jobs()))
        strays = await asyncio.to_thread(self._history.unknown, stored)
        if self._logs.shelf is not None:
            strays += await asyncio.to_thread(self._history.unknown_in, self._logs.shelf.path)
        for job_id in strays:
            # Asked again: it may have come while the others were removed.
            if job_id not in self._engine.view.jobs:
                self._logs.remove(job_id)
            await asyncio.sleep(0)
        return len(strays)

    async def remove_blobs(self) -> int:
        """Remove blobs without a job that were not used lately, and return their number."""
        before = time.time() - self._config.blob_grace_s
        unused = await asyncio.to_thread(lambda: list(self._blobs.unused_since(before)))
        if not unused:
            return 0
        bundles, callables = await asyncio.to_thread(self._history.digests)
        used = callables | await asyncio.to_thread(self._parts_of, bundles)
        count = 0
        for part in _parts([digest for digest in unused if digest not in used], _STEP):
            # A job that came meanwhile asked for its blobs before, so they are no longer unused.
            count += sum(self._blobs.remove_unused(digest, before) for digest in part)
            await asyncio.sleep(0)
        return count

    def _parts_of(self, bundles: Iterable[str]) -> set[str]:
        used: set[str] = set()
        for digest in bundles:
            used.add(digest)
            with contextlib.suppress(NotFound):  # nothing can be fetched by it, so it keeps nothing
                used.update(bundle_parts(b"".join(data for _, data, _ in self._blobs.read(digest))))
        return used


def _forget_jobs(job_ids: Sequence[JobId], chosen_at_ms: int, transaction: Transaction) -> int:
    jobs = transaction.view.jobs
    # A name may have been used again since it was chosen, for a job that has ended already.
    old = (name for name in job_ids if name in jobs and jobs[name].finished_at_ms < chosen_at_ms)
    return sum(map(transaction.forget_job, old))


def _small_files(logs: LogStore, names: Sequence[JobId]) -> dict[JobId, dict[str, bytes]]:
    return {name: files for name in names if (files := logs.small_files(name))}


def _parts(items: list[Item], size: int) -> Iterator[list[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
