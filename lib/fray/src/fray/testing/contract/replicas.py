"""Replicas of a job: they run, fail and restart together."""

import os
import uuid
from pathlib import Path

import pytest

from fray.errors import JobFailed
from fray.replica import replica_index
from fray.testing.contract.lifecycle import HOLD_LOCK, is_held
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import eventually
from fray.types import JobStatus, ResourceConfig
from rigging.errors import InvalidRequest


def meet_in_order(directory: Path, parties: int) -> None:
    """Wait for the other replicas, each of which creates a file named by its index."""
    (directory / str(replica_index())).touch()
    eventually(lambda: len(os.listdir(directory)) >= parties, f"{parties} replicas meet", LONG / 2)


def meet(directory: Path, parties: int) -> None:
    """Wait until `parties` replicas run at once."""
    (directory / uuid.uuid4().hex).touch()
    eventually(lambda: len(os.listdir(directory)) >= parties, f"{parties} replicas meet", LONG / 2)


class TestReplicas:
    """JobRequest.replicas and ResourceConfig.replicas."""

    @pytest.mark.parametrize("given_by", ["request", "resources"])
    def test_all_run_at_once(self, fray_backend: BackendFixture, given_by: str) -> None:
        place = fray_backend.directory / "meeting"
        place.mkdir()
        if given_by == "request":
            job = fray_backend.call(meet_in_order, place, 3, replicas=3)
        else:
            small = ResourceConfig.with_cpu(cpu=SMALL.cpu, ram=SMALL.ram, disk=SMALL.disk, replicas=3)
            job = fray_backend.call(meet_in_order, place, 3, resources=small)
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert sorted(os.listdir(place)) == ["0", "1", "2"]

    def test_the_job_runs_until_the_last_of_them_has_ended(self, fray_backend: BackendFixture) -> None:
        flag, tally = fray_backend.flag("end"), fray_backend.tally("ended")
        script = 'if mkdir "$1.first" 2>/dev/null; then while ! [ -e "$1" ]; do sleep 0.02; done; fi; printf x >> "$2"'
        job = fray_backend.shell(script, flag.path, tally.path, replicas=3)
        eventually(lambda: tally.count() == 2, "two of three have ended")
        eventually(lambda: job.status() is JobStatus.RUNNING, "the job still runs")
        flag.set()
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert tally.count() == 3

    def test_one_that_fails_ends_the_others(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("others")
        # The one that fails waits until the other holds its lock, which it does before it raises the flag.
        script = (
            'if mkdir "$1.first" 2>/dev/null; then while ! [ -e "$1" ]; do sleep 0.02; done; exit 5; fi; ' + HOLD_LOCK
        )
        job = fray_backend.shell(script, flag.path, replicas=2)
        with pytest.raises(JobFailed) as caught:
            job.wait(LONG)
        assert caught.value.exit_code == 5
        eventually(lambda: not is_held(flag), "the other replica is gone")

    def test_some_may_fail_for_good_where_that_is_offered(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("failed")
        # The one that succeeds begins to end after the other has ended.
        script = (
            'if mkdir "$1.first" 2>/dev/null; then touch "$1"; exit 5; fi; while ! [ -e "$1" ]; do sleep 0.02; done'
        )
        if not fray_backend.capabilities.failed_replicas_tolerated:
            with pytest.raises(InvalidRequest, match=r"max_task_failures is 1, but .* leave it at 0"):
                fray_backend.shell(script, flag.path, replicas=2, max_task_failures=1)
            return
        assert fray_backend.shell(script, flag.path, replicas=2, max_task_failures=1).wait(LONG) is JobStatus.SUCCEEDED
        with pytest.raises(JobFailed) as caught:
            fray_backend.shell("exit 6", replicas=2, max_task_failures=1).wait(LONG)
        assert caught.value.exit_code == 6

    def test_what_is_retried_when_one_fails(self, fray_backend: BackendFixture) -> None:
        together = fray_backend.capabilities.replicas_retried_together
        first = fray_backend.directory / "first"
        second = fray_backend.directory / "second"
        first.mkdir()
        second.mkdir()
        failed = fray_backend.flag("failed-once")

        def work() -> None:
            if failed.is_set():
                meet(second, 3 if together else 1)
                return
            meet(first, 3)
            try:
                os.mkdir(f"{failed.path}.mine")
            except FileExistsError:
                failed.wait()
                return
            failed.set()
            raise OSError("lost a host")

        job = fray_backend.call(work, replicas=3, max_retries_failure=1)
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        # Those that had ended well came back too, where the second meeting needed all three.
        assert len(os.listdir(second)) == (3 if together else 1)

    def test_stopping_the_job_stops_all(self, fray_backend: BackendFixture) -> None:
        flags = [fray_backend.flag(f"replica-{i}") for i in range(2)]
        script = f'for f in "$@"; do if mkdir "$f.mine" 2>/dev/null; then set -- "$f"; {HOLD_LOCK}; fi; done'
        job = fray_backend.shell(script, *[flag.path for flag in flags], replicas=2)
        for flag in flags:
            flag.wait()
        job.terminate()
        assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
        for flag in flags:
            eventually(lambda flag=flag: not is_held(flag), "no replica is left")  # type: ignore[misc]
