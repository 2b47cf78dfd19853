"""Copies that lose their lease meanwhile."""

import contextlib
import zlib
from collections.abc import Callable, Iterator

import pytest

from rigging.copying import fetch
from rigging.distributed_lock import LeaseLostError

LoseLease = Callable[[Callable[[], bool]], list[None]]


@pytest.fixture
def lose_lease(monkeypatch: pytest.MonkeyPatch) -> LoseLease:
    """Return `lose_lease(is_lost)`: each lease on a copy is lost when `is_lost` is true. Acquired leases are added to
    the list."""
    taken: list[None] = []

    def make(is_lost: Callable[[], bool]) -> list[None]:
        @contextlib.contextmanager
        def lock(*_: object) -> Iterator[Callable[[], None]]:
            taken.append(None)

            def check() -> None:
                if is_lost():
                    raise LeaseLostError("the lease on the stripe was lost")

            yield check

        monkeypatch.setattr(fetch, "copy_lock", lock)
        return taken

    return make


@pytest.fixture(scope="session")
def one_stripe() -> list[str]:
    """Return paths of small files that are copied under one lease."""
    return [name for name in (f"d/{number}" for number in range(1500)) if zlib.crc32(name.encode()) % 64 == 7][:12]
