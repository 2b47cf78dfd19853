"""Detects signals and platform events that end a worker."""

import asyncio
import contextlib
import signal
import threading

from iris.domain.states import PreemptionReason
from iris.worker.host.preemption import NOTICES, GceHost


class TerminationSignals:
    """SIGTERM and SIGINT of this process, and the preemption of its host.

    Attributes:
        received: Set when the worker should end.
        interrupted_again: Set by a second Ctrl-C (SIGINT), which means that the user does not want to wait.

    Args:
        host: The host, if its platform announces preemptions.
    """

    def __init__(self, host: GceHost | None, loop: asyncio.AbstractEventLoop) -> None:
        self.received = asyncio.Event()
        self.interrupted_again = asyncio.Event()
        self._loop = loop
        self._host = host
        self._notice: PreemptionReason | None = None

    def watch(self) -> None:
        """Start to watch the signals and the platform, and set `received` at the first event."""
        self._loop.add_signal_handler(signal.SIGTERM, self.received.set)
        self._loop.add_signal_handler(signal.SIGINT, self._interrupted)
        if self._host is not None:
            for key in NOTICES:  # not threads of the executor, whose end would be waited for
                threading.Thread(
                    target=self._watch_host, args=(self._host, key), name=f"iris-{key}", daemon=True
                ).start()

    async def notice(self) -> PreemptionReason | None:
        """Return why the platform stops the host; None if it does not."""
        if self._notice is None and self._host is not None and self.received.is_set():
            self._notice = PreemptionReason.SPOT if await asyncio.to_thread(self._host.is_preempted) else None
        return self._notice

    def _interrupted(self) -> None:
        (self.interrupted_again if self.received.is_set() else self.received).set()

    def _watch_host(self, host: GceHost, key: str) -> None:
        host.wait_until_ended(key)
        self._notice = PreemptionReason.SPOT if key == NOTICES[0] else PreemptionReason.MAINTENANCE
        with contextlib.suppress(RuntimeError):  # the worker has ended meanwhile
            self._loop.call_soon_threadsafe(self.received.set)
