"""The calls of a pool in the form of iris's predecessor: `pool.call().method(...)`."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from iris.actor.client.call import ActorCall
from iris.client.endpoints import EndpointSet
from rigging.errors import DeadlineExceeded, MarinError

OLD_TIMEOUT_S: Final = 30.0
"""Timeout of calls of a pool that was created with a resolver."""


class PoolMethods:
    """The methods of a pool's actors.

    Args:
        make: Makes a call, given the name, the arguments and the keyword arguments.
    """

    def __init__(self, make: Callable[[str, tuple[Any, ...], Mapping[str, Any]], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{name!r} is not public, so it cannot be called on an actor")
        return lambda *args, **kwargs: self._make(name, args, kwargs)


class Broadcast:
    """One call to every actor of a pool."""

    def __init__(self, calls: Sequence[ActorCall]) -> None:
        self.calls = calls

    def wait_all(self, timeout: float | None = None) -> list[Any]:
        """Return the results in the order of the pool's members. Raise the first error.

        Args:
            timeout: Total timeout in seconds; None for the pool's default.
        """
        end = None if timeout is None else time.monotonic() + timeout
        return [call.result(None if end is None else max(0.0, end - time.monotonic())) for call in self.calls]


class Follower(Protocol):
    """Supplies a pool with endpoints (see `EndpointFollower`)."""

    @property
    def error(self) -> MarinError | None: ...

    def wait_for(self, condition: Callable[[EndpointSet], bool], timeout: float) -> EndpointSet: ...

    def close(self) -> None: ...


class NothingToFollow:
    """The follower of a pool whose actors have fixed addresses."""

    error: Final = None

    def wait_for(self, condition: Callable[[EndpointSet], bool], timeout: float) -> EndpointSet:
        """Raise DeadlineExceeded: the actors never change."""
        del condition
        raise DeadlineExceeded(f"no other actors came within {timeout:g} s: all are known")

    def close(self) -> None:
        """Do nothing."""
