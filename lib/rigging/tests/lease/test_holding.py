import json
import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rigging.distributed_lock import LeaseLock, LeaseLostError, create_lock, lease
from rigging.errors import Conflict, InvalidRequest
from rigging.testing import FakeClock

SOON = 10.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "x.lock")


def lose(path: str) -> None:
    """Let another take the lease, by force."""
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
    other = create_lock(path)
    assert other.try_acquire()
    releaser = threading.Timer(0.05, other.release)
    releaser.start()
    with lease(path, wait_seconds=math.inf) as held:
        assert held.fencing_token == 2
    releaser.join()


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


def test_loss_found_only_at_the_end_is_raised(path: str) -> None:
    with pytest.raises(LeaseLostError), lease(path):
        lose(path)


def test_the_works_own_error_is_not_hidden_by_the_loss(path: str) -> None:
    def work() -> None:
        with lease(path):
            lose(path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def test_a_lease_that_cannot_be_renewed_is_lost_after_the_timeout(
    path: str, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    failures = threading.Semaphore(0)

    def fail(lock: LeaseLock) -> None:
        failures.release()
        raise ConnectionError("no route to storage")

    monkeypatch.setattr(LeaseLock, "refresh", fail)

    def work() -> None:
        with lease(path, heartbeat_interval=0.002, heartbeat_timeout=90, clock=clock) as held:
            assert failures.acquire(timeout=SOON)
            assert failures.acquire(timeout=SOON), "one failure ended the renewals"
            assert not held.lost.is_set()
            clock.advance(90)
            assert held.lost.wait(SOON)

    with pytest.raises(LeaseLostError):
        work()


def test_an_overdue_lease_fails_the_check_even_when_renewal_hangs(path: str, clock: FakeClock) -> None:
    def work() -> None:
        with lease(path, heartbeat_timeout=90, clock=clock) as held:
            clock.advance(91)
            held.check()

    with pytest.raises(LeaseLostError):
        work()


def test_interval_must_be_below_the_timeout(path: str) -> None:
    with pytest.raises(InvalidRequest, match="heartbeat_interval=90"), lease(path, heartbeat_interval=90):
        pass
