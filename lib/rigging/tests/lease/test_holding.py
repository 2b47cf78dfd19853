import contextlib
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rigging.distributed_lock import Lease, LeaseLock, LeaseLostError, create_lock, lease
from rigging.errors import Conflict, InvalidRequest, Unavailable
from rigging.lease.base import Claim
from rigging.lease.identity import HolderState, holder_state
from rigging.lease.record import StoredLease
from support.rigging.clock import FakeClock
from support.rigging.contention import taken

SOON = 10.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "x.lock")


def lose(path: str) -> None:
    Path(path).write_text(json.dumps({"worker_id": "thief", "timestamp": 4e9}))


def test_held_during_the_block_and_renewed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    renewals = threading.Semaphore(0)
    refresh: Callable[[LeaseLock], None] = LeaseLock.refresh

    def counted(lock: LeaseLock) -> None:
        refresh(lock)
        renewals.release()

    monkeypatch.setattr(LeaseLock, "refresh", counted)
    with lease(path, heartbeat_interval=0.002) as held:
        first = json.loads(Path(path).read_text())
        assert first["worker_id"] == held.worker_id
        for _ in range(3):
            assert renewals.acquire(timeout=SOON)
        assert json.loads(Path(path).read_text())["timestamp"] > first["timestamp"]
        assert held.fencing_token == 1
        held.check()
        with pytest.raises(Conflict, match=held.worker_id), lease(path):
            pass
    assert not create_lock(path).has_active_holder()


def test_waiting_for_another_holder(path: str) -> None:
    other = taken(create_lock(path))
    words = f"x.lock is held by {other.worker_id}; waited 0.03 s"
    with pytest.raises(Conflict, match=words), lease(path, wait_seconds=0.03):
        pass
    releaser = threading.Timer(0.05, other.release)
    releaser.start()
    with lease(path, wait_seconds=math.inf) as held:
        assert held.fencing_token == 2
    releaser.join()
    with pytest.raises(InvalidRequest, match="heartbeat_interval=90"), lease(path, heartbeat_interval=90):
        pass


def test_loss_is_told_to_the_work_and_raised_at_the_end(path: str) -> None:
    def work() -> None:
        with lease(path, "w", heartbeat_interval=0.002) as held:
            lose(path)
            assert held.lost.wait(SOON)
            with pytest.raises(LeaseLostError, match="was lost to w"):
                held.check()

    with pytest.raises(LeaseLostError):
        work()
    assert "thief" in Path(path).read_text(), "the successor's lease was removed"


def test_a_loss_found_only_at_the_end_is_raised_and_hides_no_error_of_the_work(path: str) -> None:
    def work(own: Exception | None) -> None:
        with lease(path):
            lose(path)
            if own is not None:
                raise own

    for own in (None, ZeroDivisionError()):
        with pytest.raises(LeaseLostError if own is None else ZeroDivisionError):
            work(own)
        Path(path).unlink()


def test_a_lease_not_renewed_is_lost_in_the_end(path: str, monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    failures = threading.Semaphore(0)

    def fail(lock: LeaseLock) -> None:
        failures.release()
        raise ConnectionError("no route to storage")

    def work(interval: float) -> None:
        with lease(path, heartbeat_interval=interval, heartbeat_timeout=90, clock=clock) as held:
            if interval > 1:
                clock.advance(91)
                held.check()  # overdue, also when the renewal hangs
            assert failures.acquire(timeout=SOON)
            assert failures.acquire(timeout=SOON), "one failure ended the renewals"
            assert not held.lost.is_set()
            clock.advance(90)
            assert held.lost.wait(SOON)

    monkeypatch.setattr(LeaseLock, "refresh", fail)
    for interval in (0.002, 30):
        with pytest.raises(LeaseLostError):
            work(interval)


class StubbornStore:
    """A store on which every attempt to take, and to give up, fails in the way that a test says."""

    location = "stub://x.lock"

    def __init__(self) -> None:
        self.claims = self.renewals = 0
        self.stored: StoredLease | None = None
        self.refuses = True

    def exclusive(self, *, create: bool) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)

    def read(self) -> StoredLease | None:
        return self.stored

    def claim(self, lease: Lease, replacing: StoredLease | None, *, same_holder: bool) -> Claim | None:
        self.claims += 1
        self.stored = StoredLease(lease.to_bytes(), str(self.claims))
        if not self.refuses:
            return Claim(self.stored, 1)
        if lease.worker_id != "w":
            self.stored = None
        return None

    def renew(self, lease: Lease, replacing: StoredLease) -> StoredLease | None:
        self.renewals += 1
        if self.renewals == 2:
            self.stored = StoredLease(Lease("thief", 1.0).to_bytes(), "2")
        return None

    def delete(self, stored: StoredLease) -> bool:
        raise Unavailable("the store is away")

    def read_fence(self) -> int:
        return 1


def test_one_that_is_always_too_late_gives_up_at_last() -> None:
    """There is room for one identity in many places, so it tries again; two holders would wait for each other."""
    for worker_id, claims in (("w", 8), (None, 1)):
        store = StubbornStore()
        assert not LeaseLock(store, worker_id).try_acquire()
        assert store.claims == claims


def test_a_lease_that_could_not_be_removed_keeps_no_one_waiting_unless_its_name_was_chosen() -> None:
    for worker_id, state in ((None, HolderState.GONE), ("w", HolderState.UNKNOWN)):
        store = StubbornStore()
        store.refuses = False
        lock = taken(LeaseLock(store, worker_id))
        holder = lock.worker_id
        with pytest.raises(Unavailable):
            lock.release()
        assert holder_state(holder) is state
        with pytest.raises(LeaseLostError):
            _ = lock.fencing_token
    store = StubbornStore()
    store.refuses = False
    lock = taken(LeaseLock(store))
    with pytest.raises(LeaseLostError, match=f"stub://x.lock is lost to {lock.worker_id}: now held by thief"):
        lock.refresh()
