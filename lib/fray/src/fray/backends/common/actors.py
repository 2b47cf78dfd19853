"""Handles, methods, futures and groups of actors for all backends. Each backend supplies the calls and the observation
of its actors.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, Protocol

from fray.actor import ActorFuture, ActorHandle, find_actor
from fray.errors import JobFailed
from fray.requests.checks import check_count, check_name
from fray.types import ActorConfig, ResourceConfig
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest


@dataclass(frozen=True, slots=True)
class ActorRequest:
    """A request to start actors of one class together.

    Args:
        cls: Their class. `args` and `kwargs` go to its constructor.
        name: The name of the group, or of the single actor.
        count: The number of actors.
        resources: The resources of each actor; None for the backend's default.
        config: How each actor serves its calls.
    """

    cls: type[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    count: int = 1
    resources: ResourceConfig | None = None
    config: ActorConfig = field(default_factory=ActorConfig)

    def __post_init__(self) -> None:
        check_name("actor", self.name)
        check_count(f"actor group {self.name!r}: count", self.count)


def public_methods(cls: type[Any]) -> frozenset[str]:
    """Return the names of the methods that a class's handles can call."""
    return frozenset(name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name, None)))


class ActorRef(Protocol):
    """A backend's reference to an actor. Equal references mean the same actor. Handles carry their reference when
    pickled.
    """

    @property
    def label(self) -> str:
        """A readable name of the actor."""
        ...

    @property
    def class_name(self) -> str:
        """The name of its class, for messages."""
        ...

    @property
    def methods(self) -> Collection[str]:
        """The names of the methods that may be called."""
        ...

    def runs_here(self) -> bool:
        """Whether the caller runs in a method of that actor, so that waiting for a serial actor would deadlock."""
        ...

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ActorFuture[Any]:
        """Send a call.

        Args:
            method: The method's name.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
        """
        ...


class RefMethod:
    """A method of an actor."""

    def __init__(self, ref: ActorRef, name: str) -> None:
        self._ref = ref
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._ref.runs_here():
            raise Conflict(
                f"actor {self._ref.label} would wait for itself: {self._name!r} can run only after the current method; "
                "use .remote() without waiting, or ActorConfig(max_concurrency=2)"
            )
        return self._ref.call(self._name, args, kwargs).result()

    def remote(self, *args: Any, **kwargs: Any) -> ActorFuture[Any]:
        return self._ref.call(self._name, args, kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> ActorFuture[Any]:
        """Call like `remote`. The call survives a lost connection where the backend supports that."""
        return self._ref.call(self._name, args, kwargs)


class RefHandle:
    """An actor's handle. Helpers are module functions, because every public attribute is an actor method."""

    def __init__(self, ref: ActorRef) -> None:
        self._ref = ref

    def __getattr__(self, name: str) -> RefMethod:
        ref: ActorRef = object.__getattribute__(self, "_ref")
        if name.startswith("_"):
            raise AttributeError(f"actor {ref.label}: {name!r} is not public, so it cannot be called")
        if name not in ref.methods:
            raise AttributeError(f"actor {ref.label}: {ref.class_name} has no method {name!r}")
        return RefMethod(ref, name)

    def __eq__(self, other: object) -> bool:
        return other._ref == self._ref if isinstance(other, RefHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ref)

    def __repr__(self) -> str:
        return f"<actor {self._ref.label}>"

    def __reduce__(self) -> tuple[type["RefHandle"], tuple[ActorRef]]:
        return RefHandle, (self._ref,)


def is_current_actor(ref: ActorRef) -> bool:
    """Return whether the caller runs in a method of that actor, or in a context copied from one."""
    own = find_actor()
    return own is not None and own.handle == RefHandle(ref)


class CallCancelled(Conflict, CancelledError):
    """A call was cancelled before it began."""


class CallFuture(ABC):
    """The future result of a call.

    Args:
        ref: The actor.
        method: The method that was called.
    """

    def __init__(self, ref: ActorRef, method: str) -> None:
        self._what = call_text(ref, method)
        self._taken_back = False
        self._cancelled = False

    @abstractmethod
    def result(self, timeout: float | None = None) -> Any: ...

    @abstractmethod
    def done(self) -> bool: ...

    @abstractmethod
    def add_done_callback(self, callback: Callable[[ActorFuture[Any]], object]) -> None: ...

    def cancel(self) -> bool:
        self._taken_back = True  # before others learn of the end, which they are to tell from a shutdown
        self._cancelled = self._cancelled or self._take_back()
        return self._cancelled

    def cancelled(self) -> bool:
        return self._cancelled

    @abstractmethod
    def _take_back(self) -> bool:
        """Cancel the call if it has not begun. Return whether it was cancelled."""

    def _late(self, timeout: float | None) -> DeadlineExceeded:
        return DeadlineExceeded(f"{self._what}: no result after {timeout} s")

    def _never_began(self) -> Conflict:
        if self._taken_back:
            return CallCancelled(f"{self._what} was cancelled")
        return Conflict(f"{self._what}: the actor was shut down before the call began")


def call_text(ref: ActorRef, method: str) -> str:
    """Return a readable description of a call."""
    return f"{method!r} of actor {ref.label}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The members of a group that have ended for good.

    Args:
        count: The number of ended members.
        reason: Why the first one ended, as far as known.
        cause: The exception behind the reason.
        job_id: The job whose tasks were the members.
        all: Whether the remaining members can no longer start either.
    """

    count: int
    reason: str
    cause: BaseException | None = None
    job_id: str | None = None
    all: bool = False


class RefGroup(ABC):
    """A group of actors of one class, started together. Members are known by their index."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._discovered: set[int] = set()
        self._discovering = threading.Lock()

    @property
    def name(self) -> str:
        """The name given at creation."""
        return self._name

    @property
    def ready_count(self) -> int:
        return len(self._ready())

    def wait_ready(self, count: int | None = None, timeout: float = 300.0) -> list[ActorHandle]:
        """Wait for `count` actors to be ready (see `ActorGroup.wait_ready`)."""
        wanted = self._size if count is None else count
        if not 0 <= wanted <= self._size:
            raise InvalidRequest(f"actor group {self._name!r} has {self._size} actors, not {wanted}")
        deadline = time.monotonic() + timeout
        while len(ready := self._ready()) < wanted:
            self._raise_if_out_of_reach(wanted)
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"actor group {self._name!r}: {len(ready)} of {wanted} actors ready after {timeout:g} s"
                )
            self._wait_for(wanted, min(left, threading.TIMEOUT_MAX))
        return [self._handle(index) for index in ready[:wanted]]

    def discover_new(self) -> list[ActorHandle]:
        ready = self._ready()
        with self._discovering:
            new = [index for index in ready if index not in self._discovered]
            self._discovered.update(new)
        return [self._handle(index) for index in new]

    @abstractmethod
    def only_member(self) -> ActorHandle:
        """Return the handle of a group of one, once it is constructed. Raise its constructor's error."""

    @abstractmethod
    def is_done(self) -> bool: ...

    @abstractmethod
    def shutdown(self) -> None: ...

    @abstractmethod
    def _ready(self) -> list[int]:
        """The members that are constructed and still running, in order."""

    @abstractmethod
    def _handle(self, index: int) -> ActorHandle: ...

    @abstractmethod
    def _ended(self) -> Ended: ...

    @abstractmethod
    def _wait_for(self, wanted: int, seconds: float) -> None:
        """Return once `wanted` members may be ready, no member can become ready, or `seconds` have passed."""

    def _raise_if_out_of_reach(self, wanted: int) -> None:
        ended = self._ended()
        if self._size - ended.count >= wanted and not ended.all:
            return
        raise JobFailed(
            f"actor group {self._name!r}: {ended.count} of {self._size} actors ended, so {wanted} cannot become ready: "
            f"{ended.reason}",
            job_id=ended.job_id,
        ) from ended.cause
