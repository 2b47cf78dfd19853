"""The lease of the remote state: kept through short outages, and its loss told once."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from fray.testing.waiting import eventually
from iris.store.journal import Journal
from iris.store.replicate.leadership import Leadership
from iris.store.replicate.remote import RemoteState
from iris.store.replicate.replicator import Pace, Replicator
from iris.store.store import Store
from rigging.distributed_lock import LeaseLock, LeaseLostError

TIMEOUT_S = 0.06


class Lease:
    """A lease of which the test says what comes of renewing it."""

    def __init__(self, answers: list[BaseException | None], last: BaseException | None) -> None:
        self._answers = answers
        self._last = last
        self.renewals = 0
        self.released = 0

    def refresh(self) -> None:
        self.renewals += 1
        answer = self._answers.pop(0) if self._answers else self._last
        if answer is not None:
            raise answer

    def release(self) -> None:
        self.released += 1


def keeper() -> threading.Thread | None:
    return next((thread for thread in threading.enumerate() if thread.name == "replicate-lease"), None)


async def told_of(lease: Lease, tmp_path: Path, until: Callable[[list[str]], object]) -> list[str]:
    """Replicate with this lease until something is so; return what was told of its loss."""
    told: list[str] = []
    store = Store.open(tmp_path, generation=1)
    journal = cast(Journal, store.journal)
    leadership = Leadership(RemoteState(str(tmp_path / "remote")), cast(LeaseLock, lease), 1, needs_snapshot=False)
    replicator = Replicator(leadership, tmp_path, journal, Pace(lease_timeout_s=TIMEOUT_S), told.append)
    replicator.start()
    try:
        await asyncio.to_thread(eventually, lambda: until(told), "what the test waits for")
    finally:
        await asyncio.to_thread(replicator.close)
        store.close()
    return told


async def test_the_loss_of_a_lease_is_told_once_and_it_is_not_renewed_any_more(tmp_path: Path) -> None:
    """Twice told, the controller's end would be begun twice."""
    lease = Lease([None], LeaseLostError("another took it"))
    told = await told_of(lease, tmp_path, lambda _: lease.renewals >= 2 and keeper() is None)
    assert told == ["another took it"]
    assert (lease.renewals, lease.released) == (2, 1)


async def test_a_lease_that_could_not_be_renewed_for_its_time_is_lost_and_told_once(tmp_path: Path) -> None:
    lease = Lease([], OSError("the storage does not answer"))
    told = await told_of(lease, tmp_path, lambda _: lease.renewals and keeper() is None)
    assert told == [f"the lease could not be renewed for {TIMEOUT_S} s (the storage does not answer)"]
    assert lease.renewals > 1


async def test_an_outage_shorter_than_the_lease_is_ridden_out(tmp_path: Path) -> None:
    trouble: list[Any] = [OSError("503"), None] * 8
    lease = Lease(trouble, None)
    assert await told_of(lease, tmp_path, lambda told: told or lease.renewals > 16) == []
