"""A process-wide lock that a fork does not inherit."""

import os
import threading
from types import TracebackType


class ForkLock:
    """A lock for `with` statements. It is free in a forked child, where the thread that held it does not exist.

    Create one per module: it is never freed.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock.locked():  # in a child that was forked within the block it is free already
            self._lock.release()
