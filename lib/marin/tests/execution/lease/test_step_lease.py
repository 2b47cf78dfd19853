"""What a lease promises whatever keeps it, and the thread that renews and watches."""

import threading
from typing import Any

import pytest

from fray.testing.waiting import eventually
from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.lease.step_lease import LeaseTerms, StepLease, end_failed, step_lease
from rigging.distributed_lock import LeaseLostError
from rigging.errors import InvalidRequest, Unavailable

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

    def renewals(self) -> int:
        return self.asked.count(("renew",))

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
    words = f"renew_seconds={renew}: must be above 0 and below timeout_seconds={timeout}"
    with pytest.raises(InvalidRequest, match=words):
        LeaseTerms(renew, timeout)


def test_a_lease_that_was_not_begun_writes_ends_and_renews_nothing(lease: Lease) -> None:
    assert not lease.held
    lease.renew()
    lease.leave()
    assert lease.asked == []
    for use in (lambda: lease.write("f", b""), lambda: lease.end(STATUS_SUCCESS), lambda: lease.remove("f")):
        lease.lost_event.clear()
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
    assert lease.renewals() == 2, "nothing is renewed after that"


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


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("was_stopped", [False, True])
def test_leases_are_renewed_until_dropped_also_after_the_run_stops(
    lease: Lease, is_local: bool, was_stopped: bool
) -> None:
    """A function may be on its way out for minutes; a lease that stands still would let another run begin beside it."""
    keeper, watched = LeaseKeeper(TERMS, is_local=is_local), Lease()
    watched.free = [False] * 10_000
    keeper.watch(watched, lambda: pytest.fail("of a run that is stopped, nobody is told what is free"))
    if was_stopped:
        keeper.stop()
    lease.begin(force_run_failed=True)
    keeper.keep(lease, lambda: pytest.fail("lost"))
    eventually(lambda: lease.renewals() >= 3, "it is renewed")
    keeper.stop()
    looks, renewals = len(watched.free), lease.renewals()
    watched.free[0] = True
    eventually(lambda: lease.renewals() >= renewals + 3, "it is renewed after the stop, too")
    assert len(watched.free) >= looks - 1
    keeper.drop(lease)
    keeper.drop(lease)
    keeper.stop()
    renewals, other = lease.renewals(), Lease()
    other.begin(force_run_failed=True)
    keeper.keep(other, lambda: pytest.fail("lost"))
    eventually(lambda: other.renewals() >= 3, "another is renewed")
    assert lease.renewals() <= renewals + 1, "but for one that was under way"
    keeper.drop(other)


def test_a_lost_lease_is_told_once_and_renewed_no_more(lease: Lease) -> None:
    keeper, lost = LeaseKeeper(TERMS), []
    lease.begin(force_run_failed=True)
    keeper.keep(lease, lambda: lost.append(True))
    lease.answer = False
    eventually(lambda: lost, "it is told")
    other = Lease()
    other.begin(force_run_failed=True)
    keeper.keep(other, lambda: pytest.fail("lost"))
    eventually(lambda: other.renewals() >= 3, "another is renewed")
    assert lost == [True]
    assert lease.renewals() == 1
    keeper.drop(other)
    keeper.stop()


def test_a_renewal_that_fails_is_tried_again_soon(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    keeper = LeaseKeeper(LeaseTerms(renew_seconds=0.2, timeout_seconds=30))
    lease.begin(force_run_failed=True)
    lease.answer = OSError("no route")
    keeper.keep(lease, lambda: pytest.fail("lost"))
    eventually(lambda: lease.renewals() >= 3, "it is tried again")
    assert not lease.lost
    assert "step a: lease renewal failed, 3" in caplog.text or "step a: lease renewal failed, 2" in caplog.text
    lease.answer = True
    keeper.drop(lease)
    keeper.stop()


def test_a_lease_that_could_not_be_renewed_in_time_is_lost(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
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


def test_others_leases_are_watched_until_free_whatever_goes_wrong(
    lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, freed = LeaseKeeper(TERMS), []
    lease.free = [False, OSError("no route"), False, True]
    keeper.watch(lease, lambda: freed.append(True))
    eventually(lambda: freed, "it is free")
    assert freed == [True], "then it is watched no longer"
    assert lease.free == []
    assert "step a: cannot read who holds its lease: no route" in caplog.text
    keeper.stop()


def test_outside_of_any_run_a_function_may_write_and_loses_nothing() -> None:
    lease = step_lease()
    assert lease.output_path == ""
    assert lease.is_free()
    lease.check()
    lease.renew()
    assert not lease.lost
