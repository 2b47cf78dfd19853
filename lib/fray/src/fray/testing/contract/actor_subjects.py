"""Actors for the tests of actors, and helpers that create them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fray.actor import ActorHandle, current_actor
from fray.testing.contract.callables import Unpicklable, fail_deeply
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import Flag
from rigging.errors import InvalidRequest


class Counter:
    """An actor that counts and returns its own context."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, n: int = 1) -> int:
        """Add n and return the sum."""
        self.value += n
        return self.value

    def fail(self, where: str) -> None:
        """Raise an exception from a nested call."""
        fail_deeply(where)

    def fail_strangely(self) -> None:
        """Raise an exception that cannot be pickled."""
        raise Unpicklable("device", "on fire")

    def who_am_i(self) -> tuple[str, int]:
        """Return the group's name and the index in it."""
        return current_actor().group_name, current_actor().index

    def my_handle(self) -> ActorHandle:
        """Return a handle to this actor."""
        return current_actor().handle

    def add_later(self, n: int) -> None:
        """Call itself without waiting for the result."""
        current_actor().handle.add.remote(n)

    def wait_for(self, flag: Flag, begun: Flag | None = None) -> bool:
        """Set one flag, then wait for another."""
        if begun is not None:
            begun.set()
        return flag.wait(LONG)

    def measure(self, data: bytes) -> tuple[int, str]:
        """Return the size of the data and its last bytes."""
        return len(data), data[-4:].hex()

    def apply(self, fn: Callable[[int], Any]) -> Any:
        """Return `fn(value)`."""
        return fn(self.value)


class Log:
    """Remembers its calls in order."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def note(self, n: int, data: bytes = b"") -> None:
        """Remember n. The data makes the transfer slow."""
        del data
        self.seen.append(n)

    def all(self) -> list[int]:
        """Return all notes."""
        return self.seen


class Meeting:
    """An actor that counts its concurrent callers."""

    def __init__(self, parties: int) -> None:
        self.barrier = threading.Barrier(parties)
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0

    def meet(self, timeout: float) -> int:
        """Wait until enough callers are inside at once."""
        return self.barrier.wait(timeout)

    def visit(self) -> int:
        """Return the highest number of concurrent visitors."""
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        threading.Event().wait(0.002)  # long enough for another to come in, if one could
        with self.lock:
            self.inside -= 1
        return self.most


class Broken:
    """Its constructor fails."""

    def __init__(self) -> None:
        raise OSError("no checkpoint to start from")


class Namesakes:
    """Takes arguments with the same names as fray's own."""

    def __init__(self, **own: object) -> None:
        self.own = own

    def all(self) -> dict[str, object]:
        """Return the arguments."""
        return self.own


class Caller:
    """Calls another actor."""

    def __init__(self, other: ActorHandle) -> None:
        self.other = other

    def forward(self, n: int) -> int:
        """Make the other actor add n."""
        return int(self.other.add(n))


def create(backend: BackendFixture, cls: type[Any], *args: Any, **options: Any) -> ActorHandle:
    """Return a small actor with a unique name."""
    name = options.pop("name", None) or backend.name("actor")
    return backend.client.create_actor(cls, *args, name=name, resources=SMALL, **options)


class ActorTests:
    """Base of the actor tests, which are skipped where the backend has no actors."""

    @pytest.fixture(autouse=True)
    def offered(self, fray_backend: BackendFixture) -> None:
        """Check the refusal if the backend does not support actors."""
        if fray_backend.capabilities.actors:
            return
        with pytest.raises(InvalidRequest, match="actor"):
            fray_backend.client.create_actor(Counter, name=fray_backend.name("refused"))
        pytest.skip("declared: no actors")
