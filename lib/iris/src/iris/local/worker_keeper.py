"""Keeps a local cluster's worker running: restarts its process while the controller is alive."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from iris.local.state import lock_holder
from rigging.log_tail import log_tail
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

STEADY_SECONDS: Final = 30.0
"""A worker that lived this long is restarted at once; others after increasing delays."""


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """A newly started worker process.

    Args:
        words: Reading end of a pipe for the reason of a failed start, which closes with the process.
        log_start: Size of its log before the start.
    """

    words: int
    log_start: int


class WorkerFiles(Protocol):
    """The files that identify a worker, as in `LocalPaths` and `HostPaths`."""

    @property
    def worker_lock(self) -> Path: ...

    @property
    def worker_log(self) -> Path: ...


class WorkerKeeper:
    """Watches the worker's process, from its start or as the holder of the worker's lock.

    Runs in the controller's loop.

    Args:
        paths: The files of the worker.
        start_worker: Starts a worker process; called in a thread, because it may block.
        on_trouble: Called with the reason if a worker does not start (again), and with "" when one has joined.
        steady_seconds: A worker that lived this long is restarted at once; others after increasing delays.
    """

    def __init__(
        self,
        paths: WorkerFiles,
        start_worker: Callable[[], WorkerStart],
        on_trouble: Callable[[str], None],
        steady_seconds: float = STEADY_SECONDS,
    ) -> None:
        self._steady_seconds = steady_seconds
        self._paths = paths
        self._start_worker = start_worker
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._descriptor = -1
        self._starting: WorkerStart | None = None
        self._words = b""
        self._watched_since = 0.0
        self._backoff = _fresh_backoff()
        self._pending: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        """Watch the worker process, starting it if there is none."""
        if not self._watch_holder():
            self._start()

    def watch_start(self, start: WorkerStart) -> None:
        """Watch a started process until a worker has joined."""
        self._unwatch()
        if self._closed:
            os.close(start.words)
            return
        self._starting, self._descriptor, self._words = start, start.words, b""
        self._watched_since = time.monotonic()
        self._loop.add_reader(start.words, self._listen)

    @property
    def is_starting(self) -> bool:
        """Return whether a started process has neither joined nor exited."""
        return self._starting is not None

    def on_worker(self) -> None:
        """Handle a connected worker: watch its process."""
        self._on_trouble("")
        self._watch_holder()

    def _watch_holder(self) -> bool:
        """Watch the process of the current worker; return whether there is one."""
        pid = lock_holder(self._paths.worker_lock)
        if pid is None or self._closed:
            return False
        self._unwatch()
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended()
            return True
        self._watched_since = time.monotonic()
        self._loop.add_reader(self._descriptor, self._ended)
        return True

    def close(self) -> None:
        """Stop restarting the worker, because the controller exits."""
        self._closed = True
        self._unwatch()
        if self._pending is not None:
            self._pending.cancel()

    def _unwatch(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._starting = None

    def _listen(self) -> None:
        """Handle a message of the started process, or its exit before it has joined."""
        said = os.read(self._descriptor, 4096)
        self._words += said
        if said:
            return
        # A worker that was there before ends the new one, and is the worker.
        if self._closed or self._watch_holder():
            return
        trouble = self._trouble()
        self._on_trouble(trouble)
        self._ended(trouble)

    def _trouble(self) -> str:
        words = " ".join(self._words.decode(errors="replace").split())
        if not words and self._starting is not None:
            last = "".join(log_tail(self._paths.worker_log, self._starting.log_start, 1)).strip()
            words = f"it exited before it joined{f': {last}' if last else ''}"
        return words

    def _ended(self, trouble: str = "") -> None:
        self._unwatch()
        if self._closed:
            return
        if time.monotonic() - self._watched_since > self._steady_seconds:
            self._backoff = _fresh_backoff()
        delay = self._backoff.next_interval()
        what = f"the worker does not start: {trouble}" if trouble else "the worker's process exited"
        logger.warning("%s; starting another in %.1f s (its log: %s)", what, delay, self._paths.worker_log)
        self._pending = self._loop.call_later(delay, self._start)

    def _start(self) -> None:
        if self._closed:
            return
        starting = self._loop.run_in_executor(None, self._start_worker)
        starting.add_done_callback(self._started)

    def _started(self, starting: "asyncio.Future[WorkerStart]") -> None:
        with contextlib.suppress(asyncio.CancelledError):
            error = starting.exception()
            if error is None:
                self.watch_start(starting.result())
                return
            self._on_trouble(str(error))
            self._ended(str(error))


def _fresh_backoff() -> ExponentialBackoff:
    return ExponentialBackoff(initial=0.1, maximum=5.0, factor=3.0)
