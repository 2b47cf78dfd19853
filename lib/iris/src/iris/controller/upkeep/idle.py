"""Ends the controller when the cluster is idle."""

import asyncio
from collections.abc import Callable


class IdleWatch:
    """Calls `on_idle` once after `idle_s` seconds (0: never) without a live job or a client's call.

    Args:
        idle_s: Seconds; 0 for never.
        has_live_jobs: Returns whether a job is live.
        on_idle: Called once.
    """

    def __init__(self, idle_s: float, has_live_jobs: Callable[[], bool], on_idle: Callable[[], None]) -> None:
        self._idle_s = idle_s
        self._has_live_jobs = has_live_jobs
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._open_calls = 0
        self._last_use = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.touch()
        if self._idle_s > 0:
            self._timer = self._loop.call_later(self._idle_s, self._check)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def touch(self) -> None:
        self._last_use = self._loop.time()

    def on_call(self, begins: bool) -> None:
        self._open_calls += 1 if begins else -1
        self.touch()

    def _check(self) -> None:
        if self._open_calls or self._has_live_jobs():
            self.touch()
        left = self._last_use + self._idle_s - self._loop.time()
        if left <= 0:
            self._on_idle()
        else:
            self._timer = self._loop.call_later(left, self._check)
