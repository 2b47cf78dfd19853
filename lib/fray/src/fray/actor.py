"""Actors: objects that live in one place and answer calls from many.

counter = client.create_actor(Counter, name="counter")
counter.add(1)                    # waits for the result
future = counter.add.remote(1)    # does not
future.result(timeout=5)
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
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


class ActorMethod(Protocol[P, R_co]):
    """One method of an actor, as seen from outside."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it and wait for the result."""
        ...

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call it and return a future at once."""
        ...

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """As `remote`, for calls that take hours: backends over a network let these outlive a lost connection."""
        ...


class ActorHandle(Protocol):
    """An actor; its public methods are attributes of the handle.

    A handle may be given away: as an argument of jobs and of other actors' methods, or as their result.
    """

    def __getattr__(self, name: str) -> ActorMethod[..., Any]: ...


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
        """Wait until `count` actors (all by default) are ready and return the ready ones, by index.

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
    """An actor's identity: a handle to itself, to give away; its place in its group; the group's name."""

    handle: ActorHandle
    index: int
    group_name: str


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
