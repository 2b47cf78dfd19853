"""One contract for every store; what only local files promise is in test_local.py."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rigging.distributed_lock import HEARTBEAT_TIMEOUT, SKEW_ALLOWANCE, LeaseLock, LeaseLostError, create_lock
from rigging.errors import InvalidRequest
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.lease import best_effort
from rigging.lease.base import fence_from_bytes
from support.rigging.clock import FakeClock
from support.rigging.contention import taken

# The conftest.py gives what runs on S3 pytest.mark.process.

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


def test_lock_file_has_two_keys_and_goes_away_on_release(path: str, lock: MakeLock, clock: FakeClock) -> None:
    mine, other = lock("w"), lock("other")
    for each in (mine, other):
        assert not each.has_active_holder()
        with pytest.raises(LeaseLostError, match="is not held"):
            _ = each.fencing_token
    assert mine.try_acquire()
    assert json.loads(read_bytes_or_none(path)) == {"worker_id": "w", "timestamp": clock.now()}
    assert mine.has_active_holder()
    assert other.has_active_holder()
    assert not other.try_acquire()
    assert mine.release()
    assert read_bytes_or_none(path) is None
    assert not mine.has_active_holder()
    assert other.try_acquire()
    assert not mine.try_acquire()
    with pytest.raises(LeaseLostError, match="is not held"):
        _ = mine.fencing_token


def test_default_identity_is_one_acquisition(lock: MakeLock) -> None:
    one, other = lock(), lock()
    with pytest.raises(LeaseLostError, match="it was removed"):
        one.refresh()
    assert not one.release()
    assert one.try_acquire()
    assert not one.try_acquire(), "a second call on the same object is another acquisition"
    assert not other.try_acquire()
    with pytest.raises(LeaseLostError, match="now held by"):
        other.refresh()
    assert not other.release()
    first = one.worker_id
    assert one.release()
    with pytest.raises(LeaseLostError, match="it was removed"):
        one.refresh()
    assert one.try_acquire()
    assert one.worker_id != first


def test_explicit_identity_is_reentrant_and_holds_in_either_place(path: str, lock: MakeLock, clock: FakeClock) -> None:
    one, again = lock("w"), lock("w")
    assert one.try_acquire()
    clock.advance(5)
    assert again.try_acquire()
    assert json.loads(read_bytes_or_none(path))["timestamp"] == clock.now()
    assert again.fencing_token == one.fencing_token, "the holder did not change"
    one.refresh()  # although the lock file no longer has what it wrote last
    again.refresh()
    assert one.release()
    with pytest.raises(LeaseLostError, match="it was removed"):
        again.refresh()
    assert not again.release()


def test_takeover_once_no_renewal_was_seen(lock: MakeLock, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    dead, again, other, late = lock("dead"), lock("dead"), lock("other"), lock("late")
    assert dead.try_acquire()
    assert again.try_acquire()
    assert not other.try_acquire()
    clock.step_wall(SKEW_ALLOWANCE)
    assert not other.try_acquire(), "a step of the wall clock does not end an observation"
    clock.step_wall(-10 * SKEW_ALLOWANCE)
    clock.advance(HEARTBEAT_TIMEOUT - 1)
    assert not other.try_acquire()
    assert "took it over" not in caplog.text
    clock.advance(1)
    assert not late.try_acquire(), "each observer counts for itself"
    assert not other.has_active_holder()
    assert other.try_acquire()
    assert "other took it over from dead" in caplog.text
    with pytest.raises(LeaseLostError, match="lost to dead: now held by other"):
        dead.refresh()
    assert not dead.release()
    assert other.release()
    new = taken(lock("dead"))
    with pytest.raises(LeaseLostError):
        again.refresh()  # what was broken in between stays lost
    assert new.has_active_holder()


def test_a_crash_of_long_ago_costs_no_wait(lock: MakeLock, clock: FakeClock) -> None:
    assert lock("dead").try_acquire()
    clock.advance(HEARTBEAT_TIMEOUT + SKEW_ALLOWANCE)
    assert not lock("a").try_acquire()
    clock.advance(1)
    assert lock("b").try_acquire()


@pytest.mark.parametrize("skew", [0.0, -250.0, 250.0, 1e6])
def test_a_renewed_lease_is_kept_for_ever_whatever_the_clocks_say(lock: MakeLock, skew: float) -> None:
    here, there = FakeClock(), FakeClock(now=FakeClock().now() + skew)
    holder, observer = taken(lock("holder", there)), lock("observer", here)
    for _ in range(3):
        assert not observer.try_acquire()
        for each in (here, there):
            each.advance(HEARTBEAT_TIMEOUT - 1)
        assert observer.has_active_holder()
        assert not observer.try_acquire()
        holder.refresh()
    assert not observer.try_acquire()
    for each in (here, there):
        each.advance(HEARTBEAT_TIMEOUT)
    assert observer.try_acquire(), "and a dead one is taken whatever its clock said"


def test_fencing_number_grows_with_holders_and_survives_release(lock: MakeLock, clock: FakeClock, path: str) -> None:
    numbers = []
    for name in ("a", "b", "a"):
        mine = taken(lock(name))
        mine.refresh()
        numbers.append(mine.fencing_token)
        mine.release()
    dead, heir = taken(lock("dead")), lock("heir")
    numbers.append(dead.fencing_token)
    assert not heir.try_acquire()
    clock.advance(HEARTBEAT_TIMEOUT)
    assert heir.try_acquire()
    numbers.append(heir.fencing_token)
    assert numbers == [1, 2, 3, 4, 5]
    assert set(json.loads(read_bytes_or_none(path))) == {"worker_id", "timestamp"}


def test_an_unreadable_fencing_number_still_grows(path: str, lock: MakeLock, caplog: pytest.LogCaptureFixture) -> None:
    write_bytes_atomic(path + ".fence", b"00000000000000\x00garbage")
    mine = taken(lock("w"))
    first = mine.fencing_token
    assert first > 1e12
    mine.release()
    other = taken(lock("other"))
    assert other.fencing_token == first + 1
    assert "unreadable fencing number" in caplog.text


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"null", b'{"worker_id": "x"}', b"\xff\xfe", b'{"worker_id"'])
def test_a_broken_lock_is_stale(broken: bytes, path: str, lock: MakeLock, caplog: pytest.LogCaptureFixture) -> None:
    write_bytes_atomic(path, broken)
    mine = lock("w")
    with caplog.at_level(logging.WARNING):
        assert not mine.has_active_holder()
        assert "unreadable lock file" in caplog.text
        with pytest.raises(LeaseLostError, match="an unreadable lock file"):
            mine.refresh()
        assert not mine.release()
        assert read_bytes_or_none(path) == broken
        assert mine.try_acquire()


def test_best_effort_is_said_once_where_leases_are_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Filesystems without conditional writes get leases all the same, with a warning."""
    best_effort._warn_once.cache_clear()
    for name in ("a", "b"):
        lock = create_lock(f"dir::file://{tmp_path}/{name}.lock")
        assert "dir::" in lock.location
    (warning,) = [record.message for record in caplog.records if "best effort" in record.message]
    assert "two processes starting at once may both get one" in warning
    caplog.clear()
    create_lock("memory://exact/x.lock")
    assert not caplog.records


def test_relative_paths_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = create_lock("a/b.lock")
    monkeypatch.chdir("/")
    assert mine.try_acquire()
    assert sorted(os.listdir(tmp_path / "a")) == ["b.lock", "b.lock.fence"]


def test_older_readers_format_is_understood(path: str, lock: MakeLock, clock: FakeClock) -> None:
    write_bytes_atomic(path, json.dumps({"timestamp": clock.now(), "worker_id": "old release"}).encode())
    mine = lock("w")
    assert mine.has_active_holder()
    assert not mine.try_acquire()
    found = mine.holder()
    assert found.worker_id == "old release"


def test_what_no_lease_could_have_is_refused(path: str, lock: MakeLock) -> None:
    taken(lock("\U0001f600" * 4096))
    assert not lock("another").try_acquire()
    for asked, reason in (
        ({"worker_id": "a" * 70_000}, r"'aaa.*has 70000 characters; .*at most 4096"),
        ({"heartbeat_timeout": 0}, "heartbeat_timeout=0"),
        ({"worker_id": ""}, "worker_id=''"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            create_lock(path, **asked)


def test_a_fencing_number_ends_where_its_holder_begins() -> None:
    assert fence_from_bytes(b"", "x") == 0
    assert fence_from_bytes(b"00000000000000000007", "x") == 7
    assert fence_from_bytes(b"00000000000000000007 host-1 \t ", "x") == 7
    for unreadable in (b"seven", b"   ", b"7host"):
        assert fence_from_bytes(unreadable, "x") > 10**12
