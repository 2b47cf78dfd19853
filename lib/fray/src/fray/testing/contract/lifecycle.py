"""A job from submission to its end: status, failure, retries, stopping."""

import fcntl
import os
import sys

import pytest

from fray.errors import JobFailed
from fray.protocols import JobHandle
from fray.testing.fixture import LONG, BackendFixture
from fray.testing.signals import Flag, eventually
from fray.types import Entrypoint, JobStatus

ORDER = [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED]

# flock holds across process namespaces, where process ids do not mean the same: as long as the lock is held, somebody
# of the job is alive.
HOLD_LOCK = 'exec 9>"$1.lock"; flock 9; touch "$1"; sleep 300 & wait'


def is_held(flag: Flag) -> bool:
    """Return whether a process that ran HOLD_LOCK, or a child of it, is alive."""
    with open(f"{flag.path}.lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


class TestLifecycle:
    """JobHandle.status, terminate, and retries."""

    def test_status_goes_only_forward(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("end")
        job = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag)))
        seen: list[JobStatus] = []

        def look_until(status: JobStatus) -> None:
            def look() -> bool:
                seen.append(job.status())
                return seen[-1] is status

            eventually(look, f"the job is {status}")

        look_until(JobStatus.RUNNING)
        assert not job.status().finished()
        flag.set()
        look_until(JobStatus.SUCCEEDED)
        assert [ORDER.index(status) for status in seen] == sorted(ORDER.index(status) for status in seen)
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert job.status() is JobStatus.SUCCEEDED
        assert JobStatus.finished(job.status())

    def test_a_failed_program_is_retried_until_it_succeeds(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("attempts")
        script = 'printf x >> "$1"; n=$(wc -c < "$1"); echo attempt $n; test $n -eq 3'
        job = fray_backend.shell(script, tally.path, max_retries_failure=5)
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert tally.count() == 3
        assert job.logs() == "attempt 1\nattempt 2\nattempt 3\n"

    def test_a_failed_callable_is_retried_until_it_succeeds(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("attempts")

        def third_time_lucky() -> None:
            if tally.add() < 3:
                raise OSError("not yet")

        assert fray_backend.call(third_time_lucky, max_retries_failure=2).wait(LONG) is JobStatus.SUCCEEDED
        assert tally.count() == 3

    def test_a_callable_that_crashed_is_retried(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("attempts")
        subprocess_call = fray_backend.capabilities.separate_processes

        def crash_once() -> None:
            if tally.add() == 1:
                if subprocess_call:
                    os._exit(3)
                sys.exit(3)

        assert fray_backend.call(crash_once, max_retries_failure=1).wait(LONG) is JobStatus.SUCCEEDED
        assert tally.count() == 2

    def test_retries_run_out(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("attempts")
        job = fray_backend.shell('printf x >> "$1"; exit 4', tally.path, max_retries_failure=1)
        with pytest.raises(JobFailed) as caught:
            job.wait(LONG)
        assert caught.value.exit_code == 4
        assert tally.count() == 2

    def test_without_retries_there_is_one_attempt(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("attempts")

        def fail() -> None:
            tally.add()
            raise OSError("never again")

        assert fray_backend.call(fail).wait(LONG, raise_on_failure=False) is JobStatus.FAILED
        assert tally.count() == 1

    def test_a_stopped_program_is_gone_with_all_it_started(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("holds")
        job = fray_backend.shell(HOLD_LOCK, flag.path, max_retries_failure=3)
        flag.wait()
        assert is_held(flag)
        job.terminate()
        assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
        eventually(lambda: not is_held(flag), "no process of the stopped job is left")
        assert_stopped(job)

    def test_a_stopped_callable(self, fray_backend: BackendFixture) -> None:
        begun, go_on, ended = fray_backend.flag("begun"), fray_backend.flag("go-on"), fray_backend.flag("ended")

        def work() -> None:
            begun.set(str(os.getpid()))
            go_on.wait(LONG)
            ended.set()

        job = fray_backend.call(work, max_retries_failure=3)
        begun.wait()
        job.terminate()
        assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
        go_on.set()
        if fray_backend.capabilities.separate_processes:
            # Its process is gone, so what comes after it in the same place ends without it having ended.
            assert fray_backend.call(os.getpid).wait(LONG) is JobStatus.SUCCEEDED
            assert not ended.is_set()
        else:
            ended.wait()
        assert_stopped(job)

    def test_stopping_again_and_after_the_end_changes_nothing(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.submit(fray_backend.request(Entrypoint.from_binary("true")))
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        job.terminate()
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        running = fray_backend.submit(fray_backend.request(fray_backend.waiter(fray_backend.flag("never"))))
        running.terminate()
        running.terminate()
        assert running.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED


def assert_stopped(job: JobHandle) -> None:
    """Check that the job is stopped, and that waiting for its success raises."""
    assert job.status() is JobStatus.STOPPED
    with pytest.raises(JobFailed, match=r"stopped|killed|terminated") as caught:
        job.wait(LONG)
    assert caught.value.job_id == job.job_id
