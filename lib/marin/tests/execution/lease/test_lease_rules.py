"""What a lease promises whatever keeps it; the thread that renews and watches; and stores that answer unclearly."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.lease.step_lease import LeaseTerms, StepLease, end_failed
from rigging.distributed_lock import LeaseLostError
from rigging.errors import InvalidRequest, Unavailable
from rigging.lease.objects import PatientObjects, StoreTrouble
from rigging.lease.record import StoredLease

TERMS = LeaseTerms(renew_seconds=0.02, timeout_seconds=30)


class Lease(StepLease):
    """Answers as the test says, and keeps what was asked."""

    def __init__(self, terms: LeaseTerms = TERMS) -> None:
        super().__init__("/p/out", "a", terms)
        self.asked: list[Any] = []
        self.answer: Any = True
        self.free: list[Any] = []

    def _answered(self, *what: Any) -> Any:
        self.asked.append(what)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def is_free(self) -> bool:
        found = self.free.pop(0)
        if isinstance(found, BaseException):
            raise found
        return bool(found)

    def _begin(self, force_run_failed: bool, is_fresh: bool) -> bool:
        return bool(self._answered("begin", force_run_failed, is_fresh))

    def _write(self, name: str, content: bytes) -> None:
        self._answered("write", name, content)

    def _end(self, status: str) -> bool:
        return bool(self._answered("end", status))

    def _leave(self, status: str) -> None:
        self._answered("leave", status)

    def _renew(self) -> bool:
        return bool(self._answered("renew"))


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.mark.parametrize(("renew", "timeout"), [(0, 1), (-1, 1), (1, 1), (2, 1)])
def test_a_renewal_comes_before_the_timeout(renew: float, timeout: float) -> None:
    with pytest.raises(
        InvalidRequest, match=f"renew_seconds={renew}: must be above 0 and below timeout_seconds={timeout}"
    ):
        LeaseTerms(renew, timeout)


def test_a_lease_that_was_not_begun_writes_ends_and_renews_nothing(lease: Lease) -> None:
    assert not lease.held
    lease.renew()
    lease.leave()
    assert lease.asked == []
    for use in (lambda: lease.write("f", b""), lambda: lease.end(STATUS_SUCCESS), lambda: lease.remove("f")):
        fresh = Lease()
        fresh.lost_event.clear()
        with pytest.raises(LeaseLostError, match="step a: its lease on /p/out was lost"):
            use()
        assert lease.lost
    assert lease.asked == []


def test_a_lease_that_somebody_else_has_is_not_held(lease: Lease) -> None:
    lease.answer = False
    assert not lease.begin(force_run_failed=True, is_fresh=True)
    assert lease.asked == [("begin", True, True)]
    assert not lease.held
    assert not lease.lost
    lease.answer = True
    assert lease.begin(force_run_failed=False)
    assert lease.asked[-1] == ("begin", False, False)
    assert lease.held


def test_the_last_word_is_written_once(lease: Lease) -> None:
    lease.begin(force_run_failed=True)
    lease.write("f", b"x")
    lease.end(STATUS_SUCCESS)
    assert lease.asked[1:] == [("write", "f", b"x"), ("end", STATUS_SUCCESS)]
    assert not lease.held
    with pytest.raises(LeaseLostError):
        lease.end(STATUS_SUCCESS)
    assert len(lease.asked) == 3


def test_what_was_lost_on_the_way_is_told_and_what_was_said_to_be_lost_fails(lease: Lease) -> None:
    lease.begin(force_run_failed=True)
    lease.answer = False
    with pytest.raises(LeaseLostError):
        lease.end(STATUS_SUCCESS)
    assert lease.lost
    lease.answer = True
    lease.begin(force_run_failed=True)
    assert not lease.lost, "a new attempt is a new lease"
    lease.lost_event.set()
    with pytest.raises(LeaseLostError):
        lease.end(STATUS_SUCCESS)
    assert lease.asked[-1] == ("end", STATUS_FAILED)


def test_a_renewal_counts_from_its_beginning_and_its_loss_is_final(lease: Lease) -> None:
    lease.begin(force_run_failed=True)
    assert 29 < lease.seconds_left() <= 30
    lease._renewed_at -= 20
    assert 9 < lease.seconds_left() <= 10
    lease.renew()
    assert 29 < lease.seconds_left() <= 30
    lease.answer = False
    with pytest.raises(LeaseLostError):
        lease.renew()
    assert (lease.held, lease.lost) == (False, True)
    lease.renew()
    assert lease.asked.count(("renew",)) == 2, "nothing is renewed after that"


def test_a_write_that_finds_the_lease_lost_tells_the_function(lease: Lease) -> None:
    lease.begin(force_run_failed=True)
    lease.answer = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        lease.write("f", b"")
    assert not lease.lost
    lease.answer = LeaseLostError("gone")
    with pytest.raises(LeaseLostError):
        lease.write("f", b"")
    assert lease.lost


def test_an_interrupted_run_keeps_its_lease_and_says_why_nothing_counts(lease: Lease) -> None:
    lease.begin(force_run_failed=True)
    lease.interrupt()
    assert (lease.held, lease.lost) == (True, True)
    with pytest.raises(LeaseLostError, match="step a: its run was interrupted"):
        lease.check()
    lease.begin(force_run_failed=True)
    lease.check()


def test_a_process_that_ends_says_failed_and_leaves_the_lock(lease: Lease) -> None:
    lease.begin(force_run_failed=True)
    lease.leave()
    assert lease.asked[-1] == ("leave", STATUS_FAILED)
    assert (lease.held, lease.lost) == (False, True)
    lease.leave()
    assert len(lease.asked) == 2


def test_the_error_of_a_step_is_what_counts(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    lease.begin(force_run_failed=True)
    end_failed(lease, ValueError("bad"))
    assert lease.asked[-1] == ("end", STATUS_FAILED)
    cause = ValueError("bad")
    with pytest.raises(LeaseLostError) as lost:
        end_failed(lease, cause)
    assert lost.value.__cause__ is cause
    for trouble in (OSError("disk full"), Unavailable("no store")):
        lease.answer = True
        lease.begin(force_run_failed=True)
        lease.answer = trouble
        end_failed(lease, ValueError("bad"))
        assert f"step a: could not write FAILED to /p/out: {trouble}" in caplog.text


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("is_local", [True, False])
def test_leases_are_renewed_until_they_are_dropped(lease: Lease, is_local: bool) -> None:
    keeper = LeaseKeeper(TERMS, is_local=is_local)
    lease.begin(force_run_failed=True)
    keeper.keep(lease, lambda: pytest.fail("lost"))
    until(lambda: lease.asked.count(("renew",)) >= 3)
    keeper.drop(lease)
    keeper.drop(lease)
    count = len(lease.asked)
    other = Lease()
    other.begin(force_run_failed=True)
    keeper.keep(other, lambda: pytest.fail("lost"))
    until(lambda: other.asked.count(("renew",)) >= 3)
    keeper.stop()
    assert len(lease.asked) <= count + 1, "but for one that was under way"
    keeper.drop(other)


def test_a_lost_lease_is_told_once_and_renewed_no_more(lease: Lease) -> None:
    keeper, lost = LeaseKeeper(TERMS), []
    lease.begin(force_run_failed=True)
    keeper.keep(lease, lambda: lost.append(True))
    lease.answer = False
    until(lambda: bool(lost))
    other = Lease()
    other.begin(force_run_failed=True)
    keeper.keep(other, lambda: pytest.fail("lost"))
    until(lambda: other.asked.count(("renew",)) >= 3)
    assert lost == [True]
    assert lease.asked.count(("renew",)) == 1
    keeper.drop(other)
    keeper.stop()


def test_a_renewal_that_fails_is_tried_again_soon(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    keeper = LeaseKeeper(LeaseTerms(renew_seconds=0.2, timeout_seconds=30))
    lease.begin(force_run_failed=True)
    lease.answer = OSError("no route")
    keeper.keep(lease, lambda: pytest.fail("lost"))
    until(lambda: lease.asked.count(("renew",)) >= 3)
    assert not lease.lost
    assert "step a: lease renewal failed, 3" in caplog.text or "step a: lease renewal failed, 2" in caplog.text
    lease.answer = True
    keeper.drop(lease)
    keeper.stop()


def test_a_lease_that_could_not_be_renewed_in_time_counts_as_lost(
    lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, lost = LeaseKeeper(TERMS), threading.Event()
    lease.begin(force_run_failed=True)
    lease._renewed_at -= 31
    lease.answer = OSError("no route")
    keeper.keep(lease, lost.set)
    assert lost.wait(20)
    assert lease.lost
    assert "step a: its lease could not be renewed for 30 s" in caplog.text
    assert "lease renewal failed, 0 s left" in caplog.text
    keeper.stop()


def test_others_leases_are_looked_at_until_they_are_free_whatever_goes_wrong(
    lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, freed = LeaseKeeper(TERMS), []
    lease.free = [False, OSError("no route"), False, True]
    keeper.watch(lease, lambda: freed.append(True))
    until(lambda: bool(freed))
    assert freed == [True], "then it is watched no longer"
    assert lease.free == []
    assert "step a: cannot see who is at work on it: no route" in caplog.text
    keeper.stop()


def test_what_is_watched_is_forgotten_at_the_end_and_what_is_kept_is_not(lease: Lease) -> None:
    keeper = LeaseKeeper(TERMS)
    watched = Lease()
    watched.free = [False] * 10_000
    keeper.watch(watched, lambda: pytest.fail("free"))
    lease.begin(force_run_failed=True)
    keeper.keep(lease, lambda: pytest.fail("lost"))
    keeper.stop()
    left = len(watched.free)
    renewed = len(lease.asked)
    until(lambda: len(lease.asked) > renewed + 1)
    assert len(watched.free) >= left - 1
    keeper.drop(lease)
    keeper.stop()


class Objects:
    """A bucket whose answers a test decides: trouble before or after an operation is carried out."""

    marks_are_unique = True

    def __init__(self) -> None:
        self.stored: dict[str, StoredLease] = {}
        self.troubles: list[str] = []
        self.count = 0

    def _do(self, work: Callable[[], Any]) -> Any:
        self.count += 1
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "before":
            raise StoreTrouble("no answer")
        result = work()
        if trouble == "after":
            raise StoreTrouble("no answer")
        return result

    def get(self, key: str) -> StoredLease | None:
        return self._do(lambda: self.stored.get(key))

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        def work() -> str | None:
            found = self.stored.get(key)
            if (found.generation if found else None) != expected:
                return None
            self.stored[key] = StoredLease(content, str(self.count))
            return str(self.count)

        return self._do(work)

    def delete(self, key: str, expected: str) -> bool:
        def work() -> bool:
            found = self.stored.get(key)
            if found is None or found.generation != expected:
                return False
            del self.stored[key]
            return True

        return self._do(work)


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.mark.parametrize("trouble", [[], ["before"], ["after"], ["before", "after", "before"]])
def test_an_operation_is_carried_out_once_whatever_the_answers(objects: Objects, trouble: list[str]) -> None:
    patient = PatientObjects(objects, 20)
    assert patient.marks_are_unique
    objects.troubles = list(trouble)
    version = patient.put("k", b"x", None)
    assert version == objects.stored["k"].generation
    objects.troubles = list(trouble)
    assert patient.get("k") == objects.stored["k"]
    assert patient.get("none") is None
    assert version is not None
    objects.troubles = list(trouble)
    newer = patient.put("k", b"y", version)
    assert newer == objects.stored["k"].generation != version
    objects.troubles = list(trouble)
    assert patient.delete("k", newer)
    assert objects.stored == {}


def test_a_refusal_is_a_refusal(objects: Objects) -> None:
    patient = PatientObjects(objects, 20)
    version = patient.put("k", b"x", None)
    assert version is not None
    assert patient.put("k", b"x", None) is None, "another's of the same content"
    assert patient.put("k", b"y", "other") is None
    assert not patient.delete("k", "other")
    assert not patient.delete("none", version)
    objects.troubles = ["before"]
    assert patient.put("k", b"z", "other") is None, "what is there is another's"
    objects.troubles = ["before", "", "before"]
    assert objects.stored["k"].content == b"x"


def test_a_store_that_stays_away_is_given_up(objects: Objects) -> None:
    patient = PatientObjects(objects, 0.05)
    for use in (lambda: patient.get("k"), lambda: patient.put("k", b"", None), lambda: patient.delete("k", "1")):
        objects.troubles = ["before"] * 1000
        with pytest.raises(Unavailable, match="no answer"):
            use()
        assert 1000 - len(objects.troubles) >= 2, "it was tried again"


def test_what_will_not_pass_is_not_tried_again(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(key: str) -> None:
        objects.count += 1
        raise InvalidRequest("no such bucket")

    monkeypatch.setattr(objects, "get", refuse)
    with pytest.raises(InvalidRequest):
        PatientObjects(objects, 20).get("k")
    assert objects.count == 1
