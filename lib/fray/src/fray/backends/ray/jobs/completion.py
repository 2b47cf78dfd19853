"""One thread that observes the end of all tasks of a client."""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import ray

from fray.backends.common.job_life import AttemptEnd, AttemptStatus
from fray.backends.ray.jobs.failures import describe_error, describe_outcome

logger = logging.getLogger(__name__)

Settle = Callable[[Any, AttemptEnd], None]

_LOOK_SECONDS = 0.02
_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.1
_MANY = 16
_FRONT = 128
_WHOLE_EACH = 4
_HAND_OVER_SECONDS = 1.0
_CLOSE_SECONDS = 10.0


class CompletionWatcher:
    """Call `settle(ref, end)` once for each task after it has ended.

    One call waits for all tasks, however many end together. A caller that waits for a single job uses `look`, which
    avoids the thread's delay. The main thread never settles: an exception from a signal handler, such as
    KeyboardInterrupt, could interrupt it at any point and lose the end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[Any, Settle] = {}
        self._added = threading.Event()
        self._pause = threading.Event()
        self._closed = False
        self._looks = 0
        self._thread: threading.Thread | None = None
        self._asked: SimpleQueue[tuple[Sequence[Any], Future[None]] | None] = SimpleQueue()
        self._settler: threading.Thread | None = None

    def add(self, ref: Any, settle: Settle) -> None:
        """Watch a task."""
        with self._lock:
            self._pending[ref] = settle
            if self._thread is None:
                self._pause.clear()
                self._thread = threading.Thread(target=self._loop, name="fray-ray-completion", daemon=True)
                self._thread.start()
        self._added.set()

    def look(self, refs: Sequence[Any]) -> None:
        """Settle the tasks among these that have ended."""
        if not refs:
            return
        ready = ray.wait(list(refs), num_returns=len(refs), timeout=0)[0] if ray.is_initialized() else refs
        self._have_settled(ready)

    def block(self, refs: Sequence[Any], timeout: float) -> None:
        """Return when one of these tasks has ended and is settled, or after `timeout` seconds."""
        ready = ray.wait(list(refs), num_returns=1, timeout=timeout)[0] if ray.is_initialized() else refs
        self._have_settled(ready)

    def close(self) -> None:
        """End the threads when no task is pending. Wait for them if no task is pending now."""
        with self._lock:
            self._closed = True
            threads = [] if self._pending else [self._thread, self._settler]
            if not self._pending:
                self._pause.set()
        self._added.set()
        for thread in threads:
            if thread is not None and thread is not threading.current_thread():
                thread.join(_CLOSE_SECONDS)

    def _loop(self) -> None:
        while True:
            with self._lock:
                refs = list(self._pending)
                if not refs and self._closed:
                    if self._settler is not None:
                        self._asked.put(None)
                    self._thread = self._settler = None
                    return
            if not refs:
                self._added.wait()
                self._added.clear()
                continue
            try:
                self._wait_for(refs)
            except Exception as error:
                # The connection to Ray is gone or broken, in any way: no caller may wait for ever.
                logger.exception("lost sight of %d tasks", len(refs))
                self._give_up(refs, str(error))

    def _have_settled(self, refs: Sequence[Any]) -> None:
        """Settle outside the main thread, which waits at most a second."""
        if threading.current_thread() is not threading.main_thread():
            self._settle(refs)
            return
        asked: Future[None] = Future()
        with self._lock:
            if not any(ref in self._pending for ref in refs):
                return
            if self._settler is None:
                self._settler = threading.Thread(target=self._serve, name="fray-ray-settler", daemon=True)
                self._settler.start()
            self._asked.put((refs, asked))
        with contextlib.suppress(TimeoutError):
            asked.result(_HAND_OVER_SECONDS)

    def _serve(self) -> None:
        while (order := self._asked.get()) is not None:
            refs, asked = order
            try:
                self._settle(refs)
            except Exception as error:
                # The asking thread is told; the tasks stay pending, for the thread that watches them all.
                asked.set_exception(error)
            else:
                asked.set_result(None)

    def _wait_for(self, refs: list[Any]) -> None:
        many = len(refs) > _MANY
        if many:
            # The more there are, the more it costs to look, and the more end meanwhile; each look takes the processor
            # from the submitting threads. Most end in the order in which they began: most looks are at the first ones.
            self._pause.wait(min(_LONGEST_PAUSE_SECONDS, max(_PAUSE_SECONDS, len(refs) * 1e-4)))
        if not ray.is_initialized():
            self._give_up(refs, "it was shut down")
            return
        if many:
            self._looks += 1
            front = refs if self._looks % _WHOLE_EACH == 0 else refs[:_FRONT]
            ready, _ = ray.wait(front, num_returns=len(front), timeout=0)
        else:
            ready, _ = ray.wait(refs, num_returns=1, timeout=_LOOK_SECONDS)
            if ready and len(refs) > 1:
                ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        self._settle(ready)

    def _settle(self, refs: Sequence[Any]) -> None:
        if not ray.is_initialized():
            # Any call would connect anew, to a cluster that does not know them.
            self._give_up(refs, "it was shut down")
            return
        mine = self._claim(refs)
        if not mine:
            return
        try:
            ends = self._ends_of([ref for ref, _ in mine])
        except BaseException:
            with self._lock:
                self._pending.update(mine)
            self._added.set()
            raise
        _tell(mine, ends)

    @staticmethod
    def _ends_of(refs: list[Any]) -> list[AttemptEnd]:
        try:
            return [describe_outcome(outcome) for outcome in ray.get(refs)]
        except ray.exceptions.RayError:
            return [_end_of(ref) for ref in refs]

    def _claim(self, refs: Sequence[Any]) -> list[tuple[Any, Settle]]:
        """Claim the tasks that no other thread is settling."""
        with self._lock:
            return [(ref, settle) for ref in refs if (settle := self._pending.pop(ref, None)) is not None]

    def _give_up(self, refs: Sequence[Any], reason: str) -> None:
        mine = self._claim(refs)
        end = AttemptEnd(AttemptStatus.STOPPED, f"the connection to Ray was lost: {reason}")
        _tell(mine, [end] * len(mine))


def _tell(mine: Sequence[tuple[Any, Settle]], ends: Sequence[AttemptEnd]) -> None:
    for (ref, settle), end in zip(mine, ends, strict=True):
        try:
            settle(ref, end)
        except BaseException:
            # The others' ends must not be lost with it, nor the thread.
            logger.exception("the end of a task could not be settled: %s", end.status)


def _end_of(ref: Any) -> AttemptEnd:
    try:
        return describe_outcome(ray.get(ref))
    except ray.exceptions.RayError as error:
        return describe_error(error)
