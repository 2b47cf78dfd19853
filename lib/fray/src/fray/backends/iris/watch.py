"""Notify many waiters of the ends of many Iris jobs, with few threads and requests."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rigging.errors import MarinError

logger = logging.getLogger(__name__)

_JOBS_PER_CALL = 64
_FEW = 8
_GATHER_SECONDS = 0.02

Callback = Callable[[bool], object]
"""Called at a job's end with True if the job is known to have succeeded."""


class JobWatcher:
    """Run callbacks when jobs end.

    Args:
        poll: Given job ids, waits briefly until at least one job has ended, and returns the ids of ended jobs and
            whether they succeeded.
        start_thread: Starts a function in a new thread.
    """

    def __init__(
        self,
        poll: Callable[[Sequence[str]], Mapping[str, bool]],
        start_thread: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._poll = poll
        self._start_thread = start_thread or _start_thread
        self._lock = threading.Lock()
        self._new: deque[tuple[str, Callback]] = deque()
        self._thread_starting = False

    def watch(self, job_id: str, callback: Callback) -> None:
        """Call `callback` when the job has ended, or when its end can no longer be observed; `wait_all` then polls the
        job.
        """
        with self._lock:
            self._new.append((job_id, callback))
        self._ensure_thread()

    def _ensure_thread(self) -> None:
        # A thread that is polling cannot take a new job before it returns, so a new job gets a new thread, unless one
        # is on its way; threads that return share out what is new and end when there is nothing.
        with self._lock:
            if self._thread_starting or not self._new:
                return
            self._thread_starting = True
        self._start_thread(self._work)

    def _take(self, watched: list[tuple[str, Callback]]) -> None:
        with self._lock:
            while self._new and len(watched) < _JOBS_PER_CALL:
                watched.append(self._new.popleft())

    def _work(self) -> None:
        watched: list[tuple[str, Callback]] = []
        self._take(watched)
        with self._lock:
            self._thread_starting = False
        self._ensure_thread()
        while watched:
            ended = self._ended(sorted({job_id for job_id, _ in watched}))
            for job_id, callback in watched:
                if job_id in ended:
                    _tell(job_id, callback, ended[job_id])
            watched = [(job_id, callback) for job_id, callback in watched if job_id not in ended]
            self._take(watched)
            if len(watched) > _FEW:
                # An answer is about all of them: let some more end before the next one.
                time.sleep(_GATHER_SECONDS)

    def _ended(self, job_ids: list[str]) -> Mapping[str, bool]:
        try:
            return self._poll(job_ids)
        except MarinError as error:
            # No caller may wait for ever: each asks for itself next, and gets this error first hand.
            logger.warning("cannot watch %d Iris jobs: %s", len(job_ids), error)
            return dict.fromkeys(job_ids, False)


def _start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="fray-iris-watch", daemon=True).start()


def _tell(job_id: str, callback: Callback, succeeded: bool) -> None:
    try:
        callback(succeeded)
    except BaseException:  # the callback's own affair: the others are still to be told
        logger.exception("a callback for the end of job %s failed", job_id)
