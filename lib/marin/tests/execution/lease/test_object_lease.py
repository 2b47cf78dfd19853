import json
from collections.abc import Callable
from typing import Any

import pytest

from marin.execution.lease.fencing import ObjectFence
from marin.execution.lease.object_lease import ObjectStepLease
from marin.execution.lease.status_file import StepAlreadyDone
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.lease.step_lease import LeaseTerms
from rigging.distributed_lock import LeaseLostError
from rigging.errors import Unavailable
from rigging.lease.objects import PatientObjects
from rigging.lease.record import StoredLease
from support.rigging.clock import FakeClock

STATUS, LOCK, INFO = "out/.executor_status", "out/.executor_status.lock", "out/.info"
Hook = Callable[[], object]
Open = Callable[..., ObjectStepLease]


class Bucket:
    """Objects in memory. `before` holds what others do just before the n-th request from now."""

    def __init__(self) -> None:
        self.marks_are_unique = True
        self.stored: dict[str, StoredLease] = {}
        self.requests: list[str] = []
        self.before: dict[int, Hook] = {}
        self._versions = 0

    def _note(self, what: str, key: str) -> None:
        self.requests.append(f"{what} {key.rpartition('/')[2]}")
        hook = self.before.pop(len(self.requests), None)
        if hook is not None:
            hook()

    def get(self, key: str) -> StoredLease | None:
        self._note("get", key)
        return self.stored.get(key)

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        self._note("put", key)
        found = self.stored.get(key)
        if (found.generation if found else None) != expected:
            return None
        return self.set(key, content)

    def delete(self, key: str, expected: str) -> bool:
        self._note("delete", key)
        found = self.stored.get(key)
        if found is None or found.generation != expected:
            return False
        del self.stored[key]
        return True

    def set(self, key: str, content: bytes) -> str:
        self._versions += 1
        mark = str(self._versions) if self.marks_are_unique else f"mark of {content!r}"
        self.stored[key] = StoredLease(content, mark)
        return mark

    def clear(self) -> None:
        """As a function that removes its output directory."""
        self.stored.clear()

    def says(self, key: str) -> bytes | None:
        return self.stored[key].content if key in self.stored else None


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now=1000.0)


@pytest.fixture
def open_lease(bucket: Bucket, clock: FakeClock) -> Open:
    def open_lease(who: str = "me") -> ObjectStepLease:
        terms = LeaseTerms(30, 100, 0.05, clock, lambda: f"{who}-host-1-{who}")
        return ObjectStepLease("gs://b/out", "a", terms, PatientObjects(bucket, 0.05), STATUS)

    return open_lease


def another(bucket: Bucket) -> Hook:
    """Another machine takes the lease and writes RUNNING."""

    def take() -> None:
        bucket.set(LOCK, json.dumps({"worker_id": "thief", "timestamp": 1000.0}).encode())
        bucket.set(STATUS, b"RUNNING")

    return take


def test_an_attempt_that_meets_nobody_takes_four_requests(bucket: Bucket, open_lease: Open) -> None:
    lease = open_lease()
    assert lease.begin(force_run_failed=True, is_fresh=True)
    assert bucket.says(STATUS) == b"RUNNING"
    assert b"me-host" in (bucket.says(LOCK) or b"")
    lease.end(STATUS_SUCCESS)
    assert bucket.requests == [
        "put .executor_status.lock", "put .executor_status", "put .executor_status", "delete .executor_status.lock",
    ]  # fmt: skip
    assert (bucket.says(STATUS), bucket.says(LOCK)) == (b"SUCCESS", None)
    bucket.set(STATUS, b"FAILED")
    bucket.requests.clear()
    assert open_lease().begin(force_run_failed=True)
    assert bucket.requests == ["put .executor_status.lock", "get .executor_status", "put .executor_status"]


def test_what_is_there_is_not_made_again_and_the_lock_is_given_back(bucket: Bucket, open_lease: Open) -> None:
    bucket.set(STATUS, b"SUCCESS")
    for is_fresh in (False, True):
        with pytest.raises(StepAlreadyDone):
            open_lease().begin(force_run_failed=True, is_fresh=is_fresh)
        assert (bucket.says(STATUS), bucket.says(LOCK)) == (b"SUCCESS", None)


def test_anothers_lease_is_left_alone_until_it_stands_still(bucket: Bucket, open_lease: Open, clock: FakeClock) -> None:
    another(bucket)()
    lease = open_lease()
    assert not lease.begin(force_run_failed=True)
    assert not lease.is_free()
    assert "put .executor_status" not in bucket.requests
    clock.advance(99)
    assert not lease.begin(force_run_failed=True)
    clock.advance(2)
    assert lease.is_free()
    assert lease.begin(force_run_failed=True)
    assert b"me-host" in (bucket.says(LOCK) or b"")


def test_a_lock_that_goes_to_another_in_between_is_the_others(bucket: Bucket, open_lease: Open) -> None:
    bucket.set(LOCK, b"unreadable")
    bucket.before[3] = another(bucket)
    lease = open_lease()
    for _ in range(3):
        assert not lease.begin(force_run_failed=True)
    assert b"thief" in (bucket.says(LOCK) or b"")


def test_statuses_that_others_write_are_looked_at_again_and_not_for_ever(bucket: Bucket, open_lease: Open) -> None:
    bucket.before[3] = lambda: bucket.set(STATUS, b"FAILED")
    lease = open_lease()
    assert lease.begin(force_run_failed=True)
    lease.end(STATUS_FAILED)
    bucket.requests.clear()
    for number in range(3, 40, 2):
        bucket.before[number] = lambda: bucket.set(STATUS, b"FAILED")
    with pytest.raises(Unavailable, match="the status of gs://b/out keeps being changed by others"):
        open_lease("you").begin(force_run_failed=True)
    assert bucket.requests.count("put .executor_status") == 8
    assert bucket.says(LOCK) is None


def test_where_marks_say_little_a_lease_that_was_not_renewed_lately_is_renewed_first(
    bucket: Bucket, open_lease: Open, clock: FakeClock
) -> None:
    bucket.marks_are_unique = False
    for passed, first in ((49, "put .executor_status"), (51, "put .executor_status.lock")):
        lease = open_lease()
        lease.begin(force_run_failed=True)
        bucket.requests.clear()
        clock.advance(passed)
        lease.end(STATUS_FAILED)
        assert bucket.requests[0] == first
        assert bucket.says(STATUS) == b"FAILED"
    bucket.marks_are_unique = True
    lease = open_lease()
    lease.begin(force_run_failed=True)
    bucket.requests.clear()
    clock.advance(80)
    lease.end(STATUS_SUCCESS)
    assert bucket.requests[0] == "put .executor_status"


def test_a_last_word_whose_lock_went_to_another_in_between_is_taken_back(bucket: Bucket, open_lease: Open) -> None:
    bucket.marks_are_unique = False
    lease = open_lease()
    lease.begin(force_run_failed=True)
    count = len(bucket.requests)
    bucket.before[count + 2] = lambda: bucket.set(LOCK, b'{"worker_id": "thief", "timestamp": 1}')
    with pytest.raises(LeaseLostError):
        lease.end(STATUS_SUCCESS)
    assert bucket.says(STATUS) == b"RUNNING"


def test_a_lock_that_only_vanished_takes_nothing_back(bucket: Bucket, open_lease: Open) -> None:
    for unique in (True, False):
        bucket.clear()
        bucket.marks_are_unique = unique
        lease = open_lease()
        lease.begin(force_run_failed=True)
        bucket.before[len(bucket.requests) + 2] = lambda: bucket.stored.pop(LOCK)
        lease.end(STATUS_SUCCESS)
        assert bucket.says(STATUS) == b"SUCCESS"


def test_a_last_word_that_is_there_already_counts_while_the_lock_is_ours(bucket: Bucket, open_lease: Open) -> None:
    lease = open_lease()
    lease.begin(force_run_failed=True)
    bucket.before[len(bucket.requests) + 1] = lambda: bucket.set(STATUS, b"SUCCESS")
    lease.end(STATUS_SUCCESS)
    assert (bucket.says(STATUS), bucket.says(LOCK)) == (b"SUCCESS", None)


def test_a_process_that_ends_says_failed_and_leaves_its_lock(bucket: Bucket, open_lease: Open) -> None:
    lease = open_lease()
    lease.begin(force_run_failed=True)
    lease.leave()
    assert bucket.says(STATUS) == b"FAILED"
    assert LOCK in bucket.stored


def test_files_of_a_first_attempt_are_written_in_one_request(
    bucket: Bucket, open_lease: Open, clock: FakeClock
) -> None:
    lease = open_lease()
    lease.begin(force_run_failed=True, is_fresh=True)
    bucket.requests.clear()
    lease.write(".info", b"1")
    assert bucket.requests == ["put .info"]
    bucket.requests.clear()
    lease.write(".info", b"2")
    assert bucket.requests == ["put .info", "get .info", "get .executor_status.lock", "put .info"]
    clock.advance(51)
    bucket.requests.clear()
    lease.write(".other", b"1")
    assert bucket.requests[0] == "get .other", "it was not renewed lately"
    assert (bucket.says(INFO), bucket.says("out/.other")) == (b"2", b"1")


def fence(bucket: Bucket, who: str = "me-host-1-me") -> ObjectFence:
    return ObjectFence(PatientObjects(bucket, 0.05), "gs://b/out", STATUS, who)


def test_a_fence_writes_only_while_the_lease_is_held(bucket: Bucket, open_lease: Open) -> None:
    open_lease().begin(force_run_failed=True)
    fence(bucket).write(".info", b"1")
    fence(bucket).write(".info", b"2")
    assert bucket.says(INFO) == b"2"
    count = len(bucket.requests)
    fence(bucket).write(".info", b"2")
    assert "put .info" not in bucket.requests[count:], "it is there already"
    another(bucket)()
    with pytest.raises(LeaseLostError, match=r"the lease on gs://b/out is lost to me-host-1-me: now held by thief"):
        fence(bucket).write(".info", b"3")
    with pytest.raises(LeaseLostError):
        fence(bucket).remove(".info")
    assert bucket.says(INFO) == b"2"
    fence(bucket, "thief").remove(".info")
    assert bucket.says(INFO) is None
    fence(bucket).remove(".nothing")
    del bucket.stored[LOCK]
    with pytest.raises(LeaseLostError, match="nobody has it now"):
        fence(bucket).ensure_held()


def test_a_file_that_others_write_all_the_time_is_given_up(bucket: Bucket, open_lease: Open) -> None:
    open_lease().begin(force_run_failed=True)
    bucket.requests.clear()
    for number in range(3, 60, 3):
        bucket.before[number] = lambda: bucket.set(INFO, b"others")
    with pytest.raises(Unavailable, match=r"gs://b/out/\.info keeps being changed by others"):
        fence(bucket).write(".info", b"mine")
    assert bucket.requests.count("put .info") == 8


@pytest.mark.parametrize("at", [3, 4])
def test_a_removed_directory_in_which_another_begins_at_the_same_time(bucket: Bucket, at: int) -> None:
    found: dict[int, Any] = {
        3: lambda: bucket.set(LOCK, b'{"worker_id": "thief", "timestamp": 1}'),
        4: lambda: bucket.set(STATUS, b"SUCCESS"),
    }
    bucket.before[at] = found[at]
    with pytest.raises(LeaseLostError):
        fence(bucket).ensure_held()
    assert (LOCK in bucket.stored) is (at == 3)
    assert bucket.says(STATUS) == (None if at == 3 else b"SUCCESS")
