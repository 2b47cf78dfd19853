"""One contract for every store; what only local files promise is in test_local.py."""

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rigging.distributed_lock import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    SKEW_ALLOWANCE,
    Lease,
    LeaseLock,
    LeaseLostError,
    create_lock,
)
from rigging.errors import InvalidRequest, LeaseLost
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.lease import best_effort
from rigging.lease.base import fence_from_bytes
from rigging.testing import FakeClock

MakeLock = Callable[..., LeaseLock]


@pytest.fixture(params=["plain", "file", "memory", "gcs", "s3"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("gcs", "s3"):
        request.getfixturevalue(f"{request.param}_server")
    roots = {
        "plain": str(tmp_path),
        "file": f"file://{tmp_path}",
        "memory": f"memory://{tmp_path}",
        "gcs": f"gs://marin-us-central2/{tmp_path.name}",
        "s3": f"s3://marin-s3-one/{tmp_path.name}",
    }
    return f"{roots[request.param]}/step/.executor_status.lock"


@pytest.fixture
def lock(path: str, clock: FakeClock) -> MakeLock:
    return lambda worker_id=None, clock=clock: create_lock(path, worker_id, clock=clock)


def content(path: str) -> bytes:
    found = read_bytes_or_none(path)
    assert found is not None
    return found


def test_defaults_are_the_documented_ones() -> None:
    assert (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT) == (30, 90)
    assert issubclass(LeaseLostError, LeaseLost)


def test_lock_file_has_two_keys_and_goes_away_on_release(path: str, lock: MakeLock, clock: FakeClock) -> None:
    mine = lock("w")
    assert not mine.has_active_holder()
    assert mine.try_acquire()
    assert json.loads(content(path)) == {"worker_id": "w", "timestamp": clock.now()}
    assert mine.has_active_holder()
    assert lock("other").has_active_holder()
    assert mine.release()
    assert read_bytes_or_none(path) is None
    assert not mine.has_active_holder()


def test_a_second_holder_waits_for_the_release(lock: MakeLock) -> None:
    one, two = lock("one"), lock("two")
    assert one.try_acquire()
    assert not two.try_acquire()
    one.release()
    assert two.try_acquire()
    assert not one.try_acquire()


def test_default_identity_is_one_acquisition(lock: MakeLock) -> None:
    one = lock()
    assert one.try_acquire()
    assert not one.try_acquire(), "a second call on the same object is another acquisition"
    assert not lock().try_acquire()
    first = one.worker_id
    one.release()
    assert one.try_acquire()
    assert one.worker_id != first


def test_explicit_identity_is_reentrant(path: str, lock: MakeLock, clock: FakeClock) -> None:
    one, again = lock("w"), lock("w")
    assert one.try_acquire()
    clock.advance(5)
    assert again.try_acquire()
    assert json.loads(content(path))["timestamp"] == clock.now()
    assert again.fencing_token == one.fencing_token, "the holder did not change"
    assert again.release()
    assert not one.release()


def test_one_identity_in_two_places_renews_and_gives_up_in_either(lock: MakeLock) -> None:
    """The lock file no longer has what one of them wrote last."""
    one, again = lock("w"), lock("w")
    assert one.try_acquire()
    assert again.try_acquire()
    one.refresh()
    again.refresh()
    assert one.release()
    with pytest.raises(LeaseLostError, match="it was removed"):
        again.refresh()


def test_refresh_keeps_a_lease_for_ever(lock: MakeLock, clock: FakeClock) -> None:
    mine, other = lock("mine"), lock("other")
    assert mine.try_acquire()
    for _ in range(20):
        clock.advance(HEARTBEAT_TIMEOUT - 1)
        assert other.has_active_holder()
        assert not other.try_acquire()
        mine.refresh()


def test_takeover_once_the_observer_saw_no_renewal_for_the_timeout(lock: MakeLock, clock: FakeClock) -> None:
    dead, other = lock("dead"), lock("other")
    assert dead.try_acquire()
    assert not other.try_acquire()
    clock.advance(HEARTBEAT_TIMEOUT - 1)
    assert not other.try_acquire()
    clock.advance(1)
    assert not other.has_active_holder()
    assert other.try_acquire()
    with pytest.raises(LeaseLostError, match="lost to dead: now held by other"):
        dead.refresh()
    assert not dead.release()
    assert other.has_active_holder()


def test_a_crash_of_long_ago_costs_no_wait(lock: MakeLock, clock: FakeClock) -> None:
    assert lock("dead").try_acquire()
    clock.advance(HEARTBEAT_TIMEOUT + SKEW_ALLOWANCE)
    assert not lock("a").try_acquire()
    clock.advance(1)
    assert lock("b").try_acquire()


@pytest.mark.parametrize("skew", [-250.0, 250.0, 1e6])
def test_skewed_clocks_do_not_steal_a_live_lease(lock: MakeLock, skew: float) -> None:
    here, there = FakeClock(), FakeClock(now=FakeClock().now() + skew)
    holder, observer = lock("holder", there), lock("observer", here)
    assert holder.try_acquire()
    for _ in range(10):
        for each in (here, there):
            each.advance(HEARTBEAT_INTERVAL)
        holder.refresh()
        assert not observer.try_acquire()
    for each in (here, there):
        each.advance(HEARTBEAT_TIMEOUT)
    assert observer.try_acquire(), "and a dead one is taken whatever its clock said"


def test_wall_clock_step_does_not_end_an_observation(lock: MakeLock, clock: FakeClock) -> None:
    assert lock("holder").try_acquire()
    observer = lock("observer")
    assert not observer.try_acquire()
    clock.step_wall(SKEW_ALLOWANCE)
    assert not observer.try_acquire()
    clock.step_wall(-10 * SKEW_ALLOWANCE)
    clock.advance(HEARTBEAT_TIMEOUT)
    assert observer.try_acquire()


def test_each_observer_counts_for_itself(lock: MakeLock, clock: FakeClock) -> None:
    assert lock("dead").try_acquire()
    one, two = lock("one"), lock("two")
    assert not one.try_acquire()
    clock.advance(HEARTBEAT_TIMEOUT)
    assert not two.try_acquire()
    assert one.try_acquire()


def test_fencing_number_grows_with_each_holder_and_survives_release(
    lock: MakeLock, clock: FakeClock, path: str
) -> None:
    numbers = []
    for name in ("a", "b", "a"):
        mine = lock(name)
        assert mine.try_acquire()
        mine.refresh()
        numbers.append(mine.fencing_token)
        mine.release()
    dead, heir = lock("dead"), lock("heir")
    assert dead.try_acquire()
    numbers.append(dead.fencing_token)
    assert not heir.try_acquire()
    clock.advance(HEARTBEAT_TIMEOUT)
    assert heir.try_acquire()
    numbers.append(heir.fencing_token)
    assert numbers == [1, 2, 3, 4, 5]
    assert set(json.loads(content(path))) == {"worker_id", "timestamp"}


def test_fencing_number_is_only_for_holders(lock: MakeLock) -> None:
    mine = lock("w")
    with pytest.raises(LeaseLostError, match="is not held"):
        _ = mine.fencing_token
    assert mine.try_acquire()
    mine.release()
    with pytest.raises(LeaseLostError, match="is not held"):
        _ = mine.fencing_token


def test_an_unreadable_fencing_number_still_grows(path: str, lock: MakeLock, caplog: pytest.LogCaptureFixture) -> None:
    write_bytes_atomic(path + ".fence", b"00000000000000\x00garbage")
    mine = lock("w")
    assert mine.try_acquire()
    first = mine.fencing_token
    assert first > 1e12
    mine.release()
    other = lock("other")
    assert other.try_acquire()
    assert other.fencing_token == first + 1
    assert "unreadable fencing number" in caplog.text


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"null", b'{"worker_id": "x"}', b"\xff\xfe", b'{"worker_id"'])
def test_a_broken_lock_file_is_stale_and_logged(
    broken: bytes, path: str, lock: MakeLock, caplog: pytest.LogCaptureFixture
) -> None:
    write_bytes_atomic(path, broken)
    mine = lock("w")
    with caplog.at_level(logging.WARNING):
        assert not mine.has_active_holder()
        assert "unreadable lock file" in caplog.text
        with pytest.raises(LeaseLostError, match="an unreadable lock file"):
            mine.refresh()
        assert not mine.release()
        assert content(path) == broken
        assert mine.try_acquire()


def test_refresh_after_removal_or_without_acquisition_is_an_error(path: str, lock: MakeLock) -> None:
    with pytest.raises(LeaseLostError, match="it was removed"):
        lock().refresh()
    mine = lock()
    assert not mine.release()
    assert mine.try_acquire()
    other = lock()
    with pytest.raises(LeaseLostError, match="now held by"):
        other.refresh()
    assert not other.release()
    assert mine.release()
    with pytest.raises(LeaseLostError, match="it was removed"):
        mine.refresh()


def test_a_hold_that_was_broken_in_between_stays_lost(lock: MakeLock, clock: FakeClock) -> None:
    old = lock("w")
    assert old.try_acquire()
    other = lock("other")
    assert not other.try_acquire()
    clock.advance(HEARTBEAT_TIMEOUT)
    assert other.try_acquire()
    assert other.release()
    new = lock("w")
    assert new.try_acquire()
    with pytest.raises(LeaseLostError):
        old.refresh()
    assert new.has_active_holder()


def test_one_takeover_has_one_winner(path: str, clock: FakeClock) -> None:
    for _ in range(20):
        assert create_lock(path, "dead", clock=clock).try_acquire()
        racers = [create_lock(path, clock=clock) for _ in range(4)]
        assert not any(racer.try_acquire() for racer in racers)
        clock.advance(HEARTBEAT_TIMEOUT)
        start = threading.Barrier(len(racers))
        winners: list[LeaseLock] = []

        def race(racer: LeaseLock, start: threading.Barrier = start, winners: list[LeaseLock] = winners) -> None:
            start.wait()
            if racer.try_acquire():
                winners.append(racer)

        threads = [threading.Thread(target=race, args=(racer,)) for racer in racers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert winners[0].release()


def test_lease_staleness_by_timestamp() -> None:
    lease = Lease("w", 1000.0)
    assert not lease.is_stale(now=1090.0)
    assert lease.is_stale(now=1090.1)
    assert lease.is_stale(5, now=1006)
    assert lease.is_stale()


def test_older_readers_format_is_understood(path: str, lock: MakeLock, clock: FakeClock) -> None:
    write_bytes_atomic(path, json.dumps({"timestamp": clock.now(), "worker_id": "old release"}).encode())
    mine = lock("w")
    assert mine.has_active_holder()
    assert not mine.try_acquire()
    found = mine.holder()
    assert found is not None
    assert found.worker_id == "old release"


def test_impossible_parameters_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="heartbeat_timeout=0"):
        create_lock(path, heartbeat_timeout=0)
    with pytest.raises(InvalidRequest, match="worker_id=''"):
        create_lock(path, "")


def test_relative_paths_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = create_lock("a/b.lock")
    monkeypatch.chdir("/")
    assert mine.try_acquire()
    assert sorted(os.listdir(tmp_path / "a")) == ["b.lock", "b.lock.fence"]


def test_best_effort_is_said_once_where_leases_are_no_more_than_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Filesystems without conditional writes get leases all the same, with a warning."""
    best_effort._warn_once.cache_clear()
    for name in ("a", "b"):
        lock = create_lock(f"dir::file://{tmp_path}/{name}.lock")
        assert "dir::" in lock.location
    warnings = [record.message for record in caplog.records if "best effort" in record.message]
    assert len(warnings) == 1
    assert "two processes starting at once may both get one" in warnings[0]
    caplog.clear()
    create_lock("memory://exact/x.lock")
    assert not caplog.records


def test_deeply_nested_json_in_a_lock_file_is_an_unreadable_lock_file(path: str, lock: MakeLock) -> None:
    write_bytes_atomic(path, b"[" * 100_000)
    assert Lease.from_bytes(b'{"worker_id": ' + b"[" * 100_000) is None
    assert lock().try_acquire()


def test_a_holders_name_that_no_lock_file_could_hold_is_refused(lock: MakeLock) -> None:
    longest = lock("\U0001f600" * 4096)
    assert longest.try_acquire()
    assert not lock("another").try_acquire()
    with pytest.raises(InvalidRequest, match=r"'aaa.*has 70000 characters; .*at most 4096"):
        lock("a" * 70_000)


def test_only_who_takes_a_lease_from_another_says_so(
    lock: MakeLock, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    first, again, other = lock("one"), lock("one"), lock("two")
    assert first.try_acquire()
    assert again.try_acquire()
    assert not other.try_acquire()
    assert "took it over" not in caplog.text
    clock.advance(90)
    assert other.try_acquire()
    assert "two took it over from one" in caplog.text


def test_a_fencing_number_ends_where_its_holder_begins() -> None:
    assert fence_from_bytes(b"", "x") == 0
    assert fence_from_bytes(b"00000000000000000007", "x") == 7
    assert fence_from_bytes(b"00000000000000000007 host-1 \t ", "x") == 7
    for unreadable in (b"seven", b"   ", b"7host"):
        assert fence_from_bytes(unreadable, "x") > 10**12
