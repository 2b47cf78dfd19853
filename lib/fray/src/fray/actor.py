"""Actors: objects that live in one process and answer calls from many.

counter = client.create_actor(Counter, name="counter")
counter.add(1)                    # waits for the result
future = counter.add.remote(1)    # does not
future.result(timeout=5)
"""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from fray.types import ActorConfig
from rigging.errors import Conflict

__all__ = [
    "ActorConfig",
    "ActorContext",
    "ActorFuture",
    "ActorGroup",
    "ActorHandle",
    "ActorMethod",
    "HostedActor",
    "current_actor",
    "enter_actor",
    "typed_method",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ActorFuture(Protocol[R_co]):
    """The future result of a call."""

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the call and return its value, or raise its error.

        Raises:
            DeadlineExceeded: (a TimeoutError) No result after `timeout` seconds. The call continues.
            ActorLost: The actor's process ended before it answered.
            CancelledError: (of `concurrent.futures`, and a Conflict) The call was cancelled.
            Conflict: The actor was shut down before the call began.
        """
        ...

    def done(self) -> bool:
        """Return whether `result` would return or raise immediately."""
        ...

    def cancel(self) -> bool:
        """Cancel the call unless it has begun. Return True if it will never run, False if it has begun or ended.

        If the call was already sent, this sends a request to the actor's process.
        """
        ...

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        ...

    def add_done_callback(self, callback: Callable[["ActorFuture[R_co]"], object]) -> None:
        """Call `callback(future)` once, after the call has ended. One thread runs all such callbacks.

        The callback may make further calls, but while it blocks, other callbacks wait. Its exceptions are logged.
        """
        ...


class ActorMethod(Protocol[P, R_co]):
    """A callable method of an actor handle."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the method and wait for its result."""
        ...

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call the method and return a future immediately."""
        ...

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call like `remote`, but on networked backends the call survives a lost connection. Use it for calls that take
        hours."""
        ...


class ActorHandle(Protocol):
    """A reference to an actor. The actor's public methods are attributes of the handle.

    A handle can be passed to jobs and to methods of other actors, and returned from them.
    """

    def __getattr__(self, name: str) -> ActorMethod[..., Any]: ...


class HostedActor:
    """An actor that lives in this process. Its methods can also be called directly on this object.

    Pickling it sends its handle.

    Args:
        handle: The handle of the actor.
        end: Stops the actor.
    """

    def __init__(self, handle: ActorHandle, end: Callable[[], None]) -> None:
        self._handle = handle
        self._end = end

    @property
    def handle(self) -> ActorHandle:
        """The actor's handle, which can be sent to other processes."""
        return self._handle

    def shutdown(self) -> None:
        """Stop the actor and free its name. If the actor has a method of this name, call it as `handle.shutdown`."""
        self._end()

    def __getattr__(self, name: str) -> ActorMethod[..., Any]:
        handle: ActorHandle = object.__getattribute__(self, "_handle")
        return getattr(handle, name)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return bool(self._handle == (other.handle if isinstance(other, HostedActor) else other))

    def __hash__(self) -> int:
        return hash(self._handle)

    def __repr__(self) -> str:
        return f"<hosted {self._handle!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _handle_itself, (self._handle,)


def _handle_itself(handle: ActorHandle) -> ActorHandle:
    return handle


def typed_method(handle: ActorHandle, method: Callable[Concatenate[Any, P], R]) -> ActorMethod[P, R]:
    """Return a method of the handle, typed with the parameters and result of `method`, e.g. `Counter.add`.

    Type checkers do not know the actor's class, so they do not check `handle.add` itself.
    """
    return cast("ActorMethod[P, R]", getattr(handle, method.__name__))


class ActorGroup(Protocol):
    """Actors of one class, started together."""

    @property
    def ready_count(self) -> int:
        """The number of actors that are constructed and still running."""
        ...

    def wait_ready(self, count: int | None = None, timeout: float = 300.0) -> list[ActorHandle]:
        """Wait until `count` actors (default: all) are ready and return that many, lowest index first.

        Raises:
            DeadlineExceeded: Fewer actors were ready after `timeout` seconds.
            JobFailed: Too many actors failed to reach `count`.
        """
        ...

    def discover_new(self) -> list[ActorHandle]:
        """Return the actors that became ready since the last call of `discover_new`."""
        ...

    def is_done(self) -> bool:
        """Whether every actor of the group has ended."""
        ...

    def shutdown(self) -> None:
        """Stop all actors. Calls that have not begun fail."""
        ...


@dataclass(frozen=True, slots=True)
class ActorContext:
    """An actor's own handle, index, group name and shutdown event.

    Args:
        handle: The actor's own handle, which it can pass to others.
        index: Its index in its group.
        group_name: The group's name.
        shutdown_event: Set when the actor is shut down. An actor that sets the event ends itself successfully.
    """

    handle: ActorHandle
    index: int
    group_name: str
    shutdown_event: threading.Event = field(default_factory=threading.Event)


class ShutdownEvent(threading.Event):
    """An event that calls `end` when it is first set."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end = end

    def set(self) -> None:
        first = not self.is_set()
        super().set()
        if first:
            self._end()


_current: ContextVar[ActorContext | None] = ContextVar("fray_current_actor", default=None)


def current_actor() -> ActorContext:
    """Return the context of the actor whose constructor or method is running. Raise Conflict outside of an actor."""
    context = find_actor()
    if context is None:
        raise Conflict("current_actor(): not inside an actor; call it from an actor's constructor or methods")
    return context


def find_actor() -> ActorContext | None:
    """Return the context of the actor whose constructor or method is running, or None."""
    return _current.get()


def enter_actor(context: ActorContext | None) -> None:
    """For backends: make `current_actor` return `context` in the current contextvars context."""
    _current.set(context)
