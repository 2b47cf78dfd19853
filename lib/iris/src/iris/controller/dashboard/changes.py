"""Change notifications for watchers of the whole cluster, merged while a watcher is slow."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from iris.core.state.changes import Changes
from iris.domain.ids import JobId, parse_task_id
from rigging.errors import Unavailable

MOST_NAMED: Final = 200
"""Maximum number of job ids in one message; with more, `many_jobs` is set instead."""


@dataclass(slots=True)
class ClusterNews:
    """Changes since the last notification.

    Attributes:
        job_ids: Jobs that have changed, or whose tasks have changed.
        many_jobs: Whether more jobs have changed than `job_ids` contains.
        workers: Whether a worker has changed.
        endpoints: Whether an endpoint has changed.
        revoked: Ids of revoked user tokens.
    """

    job_ids: set[JobId] = field(default_factory=set)
    many_jobs: bool = False
    workers: bool = False
    endpoints: bool = False
    revoked: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.job_ids or self.many_jobs or self.workers or self.endpoints or self.revoked)

    def add(self, changes: Changes, most_named: int = MOST_NAMED) -> None:
        """Add the changes of a batch."""
        self.workers = self.workers or bool(changes.workers or changes.forgotten_workers)
        self.endpoints = self.endpoints or bool(changes.endpoints)
        if not self.many_jobs:
            self.job_ids.update(changes.jobs, changes.forgotten_jobs)
            # Of tens of thousands of tasks only a few are looked at: they are many, or of few jobs.
            for task_id in changes.tasks:
                if len(self.job_ids) > most_named:
                    break
                self.job_ids.add(parse_task_id(task_id)[0])
            if len(self.job_ids) > most_named:
                self.many_jobs = True
                self.job_ids.clear()


class _Watch:
    def __init__(self) -> None:
        self.news = ClusterNews()
        self.wake = asyncio.Event()


class ChangeWatchers:
    """Notifies watchers of commits."""

    def __init__(self) -> None:
        self._watches: set[_Watch] = set()
        self._closed = False

    async def watch(self, wait_s: float, *, hello: bool = False) -> AsyncGenerator[ClusterNews, None]:
        """Yield changes as they are committed.

        Args:
            wait_s: How long to collect further changes after the first one.
            hello: Yield an empty notification at once; no later change is missed.

        Raises:
            Unavailable: The controller exits.
        """
        watch = _Watch()
        self._watches.add(watch)
        try:
            if hello:
                yield ClusterNews()
            while True:
                await watch.wake.wait()
                if not self._closed:
                    await asyncio.sleep(wait_s)
                if self._closed:
                    raise Unavailable("the controller is shutting down")
                watch.wake.clear()
                news, watch.news = watch.news, ClusterNews()
                if news:
                    yield news
        finally:
            self._watches.discard(watch)

    def on_changes(self, changes: Changes) -> None:
        """Record committed changes; no work without watchers."""
        for watch in self._watches:
            watch.news.add(changes)
            if watch.news:
                watch.wake.set()

    def on_revoked(self, token_id: str) -> None:
        """Record that a user's token was revoked."""
        for watch in self._watches:
            watch.news.revoked.add(token_id)
            watch.wake.set()

    def close(self) -> None:
        """End every watch with Unavailable."""
        self._closed = True
        for watch in self._watches:
            watch.wake.set()
