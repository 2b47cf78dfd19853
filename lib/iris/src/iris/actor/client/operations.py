"""Calls identified by a number, in the form of iris's predecessor."""

import secrets
import threading
from dataclasses import dataclass
from typing import Any, Protocol

from rigging.errors import NotFound


class Call(Protocol):
    """A call of an actor (see `iris.actor.ActorCall`)."""

    def result(self, timeout: float | None = None) -> Any: ...
    def done(self) -> bool: ...
    def cancel(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """A snapshot of a call.

    Args:
        operation_id: Its number.
        state: "running", "succeeded", "failed" or "cancelled".
        result: Its return value.
        error: Its exception.
    """

    operation_id: str
    state: str
    result: Any = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether the operation has ended."""
        return self.state != "running"


class Operations:
    """The operations of one client. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, Call] = {}
        self._cancelled: set[str] = set()

    def add(self, call: Call) -> str:
        """Store a call and return its number."""
        operation_id = secrets.token_hex(8)
        with self._lock:
            self._calls[operation_id] = call
        return operation_id

    def poll(self, operation_id: str) -> OperationStatus:
        """Return the current status of a call. Raise NotFound."""
        call = self._find(operation_id)
        if operation_id in self._cancelled:
            return OperationStatus(operation_id, "cancelled")
        if not call.done():
            return OperationStatus(operation_id, "running")
        try:
            return OperationStatus(operation_id, "succeeded", call.result(0))
        except Exception as error:  # whatever the method raised
            return OperationStatus(operation_id, "failed", error=error)

    def cancel(self, operation_id: str) -> bool:
        """Cancel a call. Return False if it had ended. Raise NotFound."""
        taken = self._find(operation_id).cancel()
        if taken:
            self._cancelled.add(operation_id)
        return taken

    def _find(self, operation_id: str) -> Call:
        with self._lock:
            call = self._calls.get(operation_id)
        if call is None:
            raise NotFound(f"no operation {operation_id!r} of this ActorClient")
        return call
