"""Tracks open calls by token, so that revoking a token ends its calls."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rigging.errors import MarinError


@dataclass(slots=True, eq=False)
class _Call:
    task: "asyncio.Task[object]"
    error: MarinError | None = None


class OpenCalls:
    """The open calls of users. Use it in one event loop."""

    def __init__(self) -> None:
        self._calls: dict[str, set[_Call]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    @contextmanager
    def under(self, token_id: str) -> Iterator[None]:
        """Serve a call in this task. If `end` interrupts the call, raise the error of `end`.

        Args:
            token_id: The caller's token.
        """
        task = asyncio.current_task()
        assert task is not None
        call = _Call(task)
        self._calls.setdefault(token_id, set()).add(call)
        try:
            yield
        except asyncio.CancelledError:
            if call.error is None:
                raise
            task.uncancel()
            raise call.error from None
        finally:
            calls = self._calls[token_id]
            calls.discard(call)
            if not calls:
                del self._calls[token_id]

    def end(self, token_id: str, error: MarinError) -> None:
        """End the calls of a token with an error.

        Args:
            token_id: The token.
            error: The error for their callers.
        """
        own = asyncio.current_task()
        for call in self._calls.get(token_id, ()):
            if call.error is None and call.task is not own:
                call.error = error
                call.task.cancel()
