"""Keeps a local cluster's one worker there: when its process ends while the controller lives, another is started."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Final

from iris.local.state import LocalPaths, lock_holder
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

_STEADY_SECONDS: Final = 30.0
"""A worker that lived so long is replaced at once; one that keeps dying, ever more slowly."""


class WorkerKeeper:
    """Watches the process that holds the worker's lock, by event. Lives in the controller's loop.

    Args:
        start_worker: Starts a worker's process; may take a moment, and is called in a thread.
    """

    def __init__(self, paths: LocalPaths, start_worker: Callable[[], None]) -> None:
        self._paths = paths
        self._start_worker = start_worker
        self._loop = asyncio.get_running_loop()
        self._descriptor = -1
        self._watched_since = 0.0
        self._backoff = _fresh_backoff()
        self._pending: asyncio.TimerHandle | None = None
        self._closed = False

    def on_worker(self) -> None:
        """A worker has connected: watch its process from now on."""
        pid = lock_holder(self._paths.worker_lock)
        if pid is None or self._closed:
            return
        self._unwatch()
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended()
            return
        self._watched_since = time.monotonic()
        self._loop.add_reader(self._descriptor, self._ended)

    def close(self) -> None:
        """The controller leaves: a worker that ends now is not replaced."""
        self._closed = True
        self._unwatch()
        if self._pending is not None:
            self._pending.cancel()

    def _unwatch(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _ended(self) -> None:
        self._unwatch()
        if self._closed:
            return
        if time.monotonic() - self._watched_since > _STEADY_SECONDS:
            self._backoff = _fresh_backoff()
        delay = self._backoff.next_interval()
        logger.warning("the worker's process ended; starting another in %.1f s (its log: %s)", delay, self._log)
        self._pending = self._loop.call_later(delay, self._start)

    @property
    def _log(self) -> str:
        return str(self._paths.worker_log)

    def _start(self) -> None:
        starting = self._loop.run_in_executor(None, self._start_worker)
        starting.add_done_callback(self._started)

    def _started(self, starting: "asyncio.Future[None]") -> None:
        with contextlib.suppress(asyncio.CancelledError):
            error = starting.exception()
            if error is not None:
                logger.error("cannot start a worker: %s", error)
                self._ended()


def _fresh_backoff() -> ExponentialBackoff:
    return ExponentialBackoff(initial=0.1, maximum=5.0, factor=3.0)
