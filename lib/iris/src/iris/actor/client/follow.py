"""EndpointFollower: the current endpoints of a name or prefix, with waiting."""

import threading
import time
from collections.abc import Callable

from iris.actor.client.places import EndpointWatch
from iris.actor.transport.loop import Closing, run
from iris.client.client import IrisClient
from iris.client.endpoints import EndpointSet
from iris.rpc.forks import in_fork
from rigging.errors import Conflict, DeadlineExceeded, MarinError

FIRST_LOOK_S = 60.0


class EndpointFollower(Closing):
    """Follows endpoints with a watch until `close`. Thread-safe.

    Args:
        name: As in `EndpointResolver.watch`.
        prefix: Prefix of full names, instead of `name`.
        on_change: Called in the event loop after every change. It must not block.
    """

    def __init__(
        self,
        client: IrisClient,
        name: str = "",
        *,
        prefix: str = "",
        on_change: Callable[[EndpointSet], object] | None = None,
    ) -> None:
        self._what = name or prefix
        self._request = client.resolver.watch_request(name, prefix)
        self._client = client
        self._on_change = on_change
        self._changed = threading.Condition()
        self._latest: EndpointSet | None = None
        self._error: MarinError | None = None
        self._closed = False
        self._watch = run(self._start())

    @property
    def error(self) -> MarinError | None:
        """The controller's refusal that ended the watch, if any."""
        return self._error

    @property
    def latest(self) -> EndpointSet:
        """Return the current actors, waiting for the first answer. Raise the controller's refusal."""
        return self.wait_for(lambda _: True, FIRST_LOOK_S)

    def wait_for(self, condition: Callable[[EndpointSet], bool], timeout: float) -> EndpointSet:
        """Return the first set of endpoints that meets the condition.

        Raises:
            DeadlineExceeded: No set met the condition within `timeout` seconds. Conflict: `close` was called.
                MarinError: The controller refused.
        """
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                if self._latest is not None and condition(self._latest):
                    return self._latest
                if self._closed:
                    raise Conflict(f"endpoints of {self._what}: the wait ends, as they are not followed any more")
                if not self._changed.wait(max(0.0, end - time.monotonic())) and time.monotonic() >= end:
                    raise DeadlineExceeded(f"endpoints of {self._what}: not as waited for after {timeout:g} s")

    def close(self) -> None:
        """Stop following the endpoints. Has no effect in a fork."""
        if in_fork():
            return
        run(self._stop())
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def _start(self) -> EndpointWatch:
        watch = EndpointWatch(self._client.connection, self._request, self._found, self._failed)
        watch.start()
        return watch

    async def _stop(self) -> None:
        self._watch.stop()

    def _found(self, found: EndpointSet) -> None:
        if self._on_change is not None:
            self._on_change(found)
        with self._changed:
            self._latest = found
            self._changed.notify_all()

    def _failed(self, error: MarinError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()
