"""HTTP connections that cannot lock others out: those without a request are few, and a request must come whole in time.

uvicorn has neither: it counts idle connections against its limit of concurrency, and waits for a request's head for
ever.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS: Final = 15.0
"""A request must be received within this time of its first byte, or of the connection's beginning."""
MOST_IDLE: Final = 400
"""Of more connections without a request the one that has been idle longest is closed."""


def bounded_http(request_seconds: float = REQUEST_SECONDS, most_idle: int = MOST_IDLE) -> type[H11Protocol]:
    """Return a protocol for one server, as uvicorn's `http`."""
    idle: dict[H11Protocol, None] = {}

    class BoundedHttp(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_request()
            self._note_idle()

        def data_received(self, data: bytes) -> None:
            if self._deadline is None and not self._is_answering:
                self._await_request()
            super().data_received(data)
            if self._is_answering:
                idle.pop(self, None)
                if not self.cycle.more_body:
                    self._cancel()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._cancel()
                self._note_idle()

        def connection_lost(self, exc: Exception | None) -> None:
            idle.pop(self, None)
            self._cancel()
            super().connection_lost(exc)

        @property
        def _is_answering(self) -> bool:
            cycle: Any = self.cycle
            return cycle is not None and not cycle.response_complete

        def _note_idle(self) -> None:
            idle.pop(self, None)
            idle[self] = None
            if len(idle) > most_idle:
                oldest = next(iter(idle))
                del idle[oldest]
                oldest.transport.close()

        def _await_request(self) -> None:
            self._cancel()
            self._deadline = self.loop.call_later(request_seconds, self.transport.close)

        def _cancel(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return BoundedHttp
