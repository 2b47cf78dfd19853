"""Waiting for jobs: one, many, with timeouts, and by callbacks."""

import logging
import queue
import threading

import pytest

from fray.errors import JobFailed
from fray.protocols import JobHandle
from fray.testing.contract.clients import another_client
from fray.testing.fixture import LONG, BackendFixture
from fray.testing.signals import eventually
from fray.types import Entrypoint, JobStatus
from fray.waiting import wait_all
from rigging.errors import DeadlineExceeded

SUCCEED = Entrypoint.from_binary("true")


def fail(_: JobHandle) -> None:
    """A user's callback that raises."""
    raise LookupError("the callback's own mistake")


class TestWaiting:
    """JobHandle.wait, wait_all, and done callbacks."""

    @pytest.mark.parametrize("timeout", [0, 0.05])
    def test_a_timeout_is_told_and_the_job_goes_on(self, fray_backend: BackendFixture, timeout: float) -> None:
        flag, name = fray_backend.flag("end"), fray_backend.name("slow")
        job = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag), name=name))
        with pytest.raises(DeadlineExceeded, match=name) as caught:
            job.wait(timeout)
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(TimeoutError):
            job.wait(timeout, raise_on_failure=False)
        flag.set()
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert job.wait(0) is JobStatus.SUCCEEDED

    def test_every_waiter_is_told(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("end")
        job = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag)))
        told: queue.SimpleQueue[JobStatus] = queue.SimpleQueue()
        waiters = [threading.Thread(target=lambda: told.put(job.wait(LONG))) for _ in range(4)]
        for waiter in waiters:
            waiter.start()
        flag.set()
        for waiter in waiters:
            waiter.join(LONG)
        assert [told.get_nowait() for _ in waiters] == [JobStatus.SUCCEEDED] * 4

    def test_a_failure_is_raised_each_time_alike(self, fray_backend: BackendFixture) -> None:
        def fail() -> None:
            raise LookupError("no such shard")

        job = fray_backend.call(fail)
        texts = set()
        for _ in range(3):
            with pytest.raises((LookupError, JobFailed)) as caught:
                job.wait(LONG)
            texts.add((type(caught.value), str(caught.value), len(caught.traceback)))
        assert len(texts) == 1
        assert job.wait(LONG, raise_on_failure=False) is JobStatus.FAILED

    def test_wait_all_gives_final_statuses_in_order(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("end")
        last = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag)))
        bad = fray_backend.submit(fray_backend.request(Entrypoint.from_binary("false")))
        good = fray_backend.submit(fray_backend.request(SUCCEED))
        eventually(lambda: good.status().finished(), "the short one ends while the long one runs")
        with another_client(fray_backend) as client:
            others = client.submit(fray_backend.request(SUCCEED))
            flag.set()
            statuses = wait_all([last, bad, others, bad], LONG, raise_on_failure=False)
            assert statuses == [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.SUCCEEDED, JobStatus.FAILED]
        assert wait_all([]) == []

    def test_wait_all_tells_the_first_failure_while_others_run(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("end")
        slow = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag)))
        bad = fray_backend.shell("exit 5")
        with pytest.raises(JobFailed) as caught:
            wait_all([slow, bad], LONG)
        assert caught.value.job_id == bad.job_id
        assert not slow.status().finished()
        flag.set()
        assert slow.wait(LONG) is JobStatus.SUCCEEDED

    def test_wait_all_tells_a_callables_exception_as_the_failure_of_its_job(self, fray_backend: BackendFixture) -> None:
        # Also where it is a JobFailed: that of another job.
        for error in (LookupError("no such shard"), KeyboardInterrupt("of the callable"), JobFailed("x", job_id="y")):

            def fail(error: BaseException = error) -> None:
                raise error

            bad = fray_backend.call(fail)
            with pytest.raises(JobFailed) as caught:
                wait_all([bad], LONG)
            assert caught.value.job_id == bad.job_id
            if isinstance(error, Exception):
                assert str(error) in str(caught.value)
            if isinstance(error, Exception) or fray_backend.capabilities.raises_own_exceptions:
                assert type(caught.value.__cause__) is type(error)
                assert str(caught.value.__cause__) == str(error)
            assert wait_all([bad], LONG, raise_on_failure=False) == [JobStatus.FAILED]

    def test_wait_all_has_one_timeout_for_all_and_names_the_late(self, fray_backend: BackendFixture) -> None:
        flag, name = fray_backend.flag("end"), fray_backend.name("late")
        late = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag), name=name))
        good = fray_backend.submit(fray_backend.request(SUCCEED))
        good.wait(LONG)
        with pytest.raises(DeadlineExceeded, match=f"1 of 2 jobs.*{name}"):
            wait_all([good, late], 0.05)
        flag.set()
        assert wait_all([good, late], LONG) == [JobStatus.SUCCEEDED, JobStatus.SUCCEEDED]

    def test_callbacks_come_once_each_also_after_the_end(self, fray_backend: BackendFixture) -> None:
        told: queue.SimpleQueue[tuple[str, JobHandle]] = queue.SimpleQueue()
        flag = fray_backend.flag("end")
        job = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag)))
        job.add_done_callback(lambda handle: told.put(("early", handle)))
        flag.set()
        assert told.get(timeout=LONG)[1].job_id == job.job_id
        assert job.status() is JobStatus.SUCCEEDED
        job.add_done_callback(lambda handle: told.put(("late", handle)))
        assert told.get(timeout=LONG)[0] == "late"
        assert told.empty()

    def test_a_failing_callback_disturbs_nobody(
        self, fray_backend: BackendFixture, caplog: pytest.LogCaptureFixture
    ) -> None:
        told = threading.Event()
        flag = fray_backend.flag("end")
        job = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag)))
        job.add_done_callback(fail)
        job.add_done_callback(lambda _: told.set())
        with caplog.at_level(logging.ERROR):
            flag.set()
            assert told.wait(LONG)
            assert job.wait(LONG) is JobStatus.SUCCEEDED
            job.add_done_callback(fail)
