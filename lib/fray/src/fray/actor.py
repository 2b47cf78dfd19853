"""Actors: objects that live in one place and answer calls from many.

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
    """The result of a call, when it is there."""

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the call and return its value, or raise what it raised.

        Raises:
            DeadlineExceeded: (a TimeoutError) No result after `timeout` seconds; the call goes on.
            ActorLost: The actor's process ended before it answered.
            Conflict: The actor was shut down before the call began.
        """
        ...

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""
        ...

    def add_done_callback(self, callback: Callable[["ActorFuture[R_co]"], object]) -> None:
        """Call `callback(future)` once when the call has ended, or soon if it has, in a thread for all such callbacks.

        It may make further calls; while it waits for something, the other callbacks wait too. What it raises is logged.
        """
        ...


class ActorMethod(Protocol[P, R_co]):
    """One method of an actor, as seen from outside."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it and wait for the result."""
        ...

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call it and return a future at once."""
        ...

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call like `remote`, for calls that take hours: on networked backends they survive a lost connection."""
        ...


class ActorHandle(Protocol):
    """An actor; its public methods are attributes of the handle.

    A handle may be given away: as an argument of jobs and of other actors' methods, or as their result.
    """

    def __getattr__(self, name: str) -> ActorMethod[..., Any]: ...


class HostedActor:
    """An actor that this process hosts; its methods can be called on it, too.

    Given away, it goes as its handle.

    Args:
        handle: The actor's.
        end: Stops the actor.
    """

    def __init__(self, handle: ActorHandle, end: Callable[[], None]) -> None:
        self._handle = handle
        self._end = end

    @property
    def handle(self) -> ActorHandle:
        """The actor's handle, to give away."""
        return self._handle

    def shutdown(self) -> None:
        """Stop the actor; its name is free again. A method of the actor's own of this name is `handle.shutdown`."""
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
    """The handle's method of that name with the parameters and result of `method`, e.g. `Counter.add`.

    `handle.add` itself is not checked by type checkers, which do not know the actor's class.
    """
    return cast("ActorMethod[P, R]", getattr(handle, method.__name__))


class ActorGroup(Protocol):
    """Actors of one class, started together."""

    @property
    def ready_count(self) -> int:
        """Actors that have been constructed and are still up."""
        ...

    def wait_ready(self, count: int | None = None, timeout: float = 300.0) -> list[ActorHandle]:
        """Wait until `count` actors (all by default) are ready and return so many, the first ones by index.

        Raises:
            DeadlineExceeded: Not that many after `timeout` seconds.
            JobFailed: So many have failed that `count` can no longer be reached.
        """
        ...

    def discover_new(self) -> list[ActorHandle]:
        """The actors that became ready since the last call of `discover_new`."""
        ...

    def is_done(self) -> bool:
        """Whether no actor of the group is up or still starting."""
        ...

    def shutdown(self) -> None:
        """Stop all of them; calls not yet begun fail."""
        ...


@dataclass(frozen=True, slots=True)
class ActorContext:
    """An actor's identity and end.

    Args:
        handle: To itself, to give away.
        index: Its place in its group.
        group_name: The group's name.
        shutdown_event: Set when the actor is shut down. An actor that sets it ends itself, with success.
    """

    handle: ActorHandle
    index: int
    group_name: str
    shutdown_event: threading.Event = field(default_factory=threading.Event)


class ShutdownEvent(threading.Event):
    """An event that also calls `end` when it is set for the first time."""

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
    """The actor whose constructor or method is running here; Conflict outside of one."""
    context = find_actor()
    if context is None:
        raise Conflict("current_actor(): not inside an actor; call it from an actor's constructor or methods")
    return context


def find_actor() -> ActorContext | None:
    """The actor whose constructor or method is running here, if one is."""
    return _current.get()


def enter_actor(context: ActorContext | None) -> None:
    """For backends: make `context` what `current_actor` finds from here on in this contextvars context."""
    _current.set(context)
