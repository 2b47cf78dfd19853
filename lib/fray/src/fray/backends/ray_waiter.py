"""One thread that learns of the end of all tasks of a client."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ray

from fray.backends.ray_failures import AttemptEnd, End, describe_error, describe_outcome

logger = logging.getLogger(__name__)

Settle = Callable[[Any, AttemptEnd], None]

_LOOK_SECONDS = 0.02
_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.1
_MANY = 16
_FRONT = 128
_WHOLE_EACH = 4


class Waiter:
    """Calls `settle(ref, end)` once for each task when it has ended.

    Waiting for all of them at once costs one call however many end together; whoever waits for one job in particular
    sees to it by `look`, without this thread's delay.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[Any, Settle] = {}
        self._added = threading.Event()
        self._pause = threading.Event()
        self._closed = False
        self._looks = 0
        self._thread: threading.Thread | None = None

    def add(self, ref: Any, settle: Settle) -> None:
        """Watch a task."""
        with self._lock:
            self._pending[ref] = settle
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="fray-ray-waiter", daemon=True)
                self._thread.start()
        self._added.set()

    def look(self, refs: Sequence[Any]) -> None:
        """Settle those of these tasks that have ended."""
        if not refs:
            return
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=0)
        self._settle(ready)

    def block(self, refs: Sequence[Any], timeout: float) -> None:
        """Return when one of these has ended and is settled, or after `timeout` seconds."""
        ready, _ = ray.wait(list(refs), num_returns=1, timeout=timeout)
        self._settle(ready)

    def close(self) -> None:
        """End the thread when nothing is pending."""
        self._closed = True
        self._added.set()

    def _loop(self) -> None:
        while True:
            with self._lock:
                refs = list(self._pending)
            if not refs:
                if self._closed:
                    return
                self._added.wait()
                self._added.clear()
                continue
            try:
                self._wait_for(refs)
            except Exception as error:
                # The connection to Ray is gone or broken, in whatever way: nobody must wait for ever.
                logger.exception("lost sight of %d tasks", len(refs))
                self._give_up(refs, error)

    def _wait_for(self, refs: list[Any]) -> None:
        if len(refs) > _MANY:
            # The more there are, the more it costs to look, and the more end meanwhile; each look takes the processor
            # from whoever submits. Most end in the order in which they began, so most looks are at the first ones only.
            self._pause.wait(min(_LONGEST_PAUSE_SECONDS, max(_PAUSE_SECONDS, len(refs) * 1e-4)))
            self._looks += 1
            front = refs if self._looks % _WHOLE_EACH == 0 else refs[:_FRONT]
            ready, _ = ray.wait(front, num_returns=len(front), timeout=0)
        else:
            ready, _ = ray.wait(refs, num_returns=1, timeout=_LOOK_SECONDS)
            if ready and len(refs) > 1:
                ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        self._settle(ready)

    def _settle(self, refs: Sequence[Any]) -> None:
        with self._lock:
            mine = [(ref, settle) for ref in refs if (settle := self._pending.pop(ref, None)) is not None]
        if not mine:
            return
        try:
            ends = [describe_outcome(outcome) for outcome in ray.get([ref for ref, _ in mine])]
        except ray.exceptions.RayError:
            ends = [_end_of(ref) for ref, _ in mine]
        for (ref, settle), end in zip(mine, ends, strict=True):
            settle(ref, end)

    def _give_up(self, refs: Sequence[Any], error: BaseException) -> None:
        with self._lock:
            mine = [(ref, settle) for ref in refs if (settle := self._pending.pop(ref, None)) is not None]
        for ref, settle in mine:
            settle(ref, AttemptEnd(End.STOPPED, f"the connection to Ray was lost: {error}"))


def _end_of(ref: Any) -> AttemptEnd:
    try:
        return describe_outcome(ray.get(ref))
    except ray.exceptions.RayError as error:
        return describe_error(error)
