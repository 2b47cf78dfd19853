"""Return values of callables."""

import hashlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from fray.errors import JobFailed, ResultUnavailable
from fray.protocols import JobHandle
from fray.replica import replica_index
from fray.testing.contract.callables import NotMadeAgain, fail_deeply, module_of_the_submitter_alone
from fray.testing.contract.replicas import meet
from fray.testing.fixture import LONG, BackendFixture
from fray.types import Entrypoint, JobStatus
from rigging.errors import DeadlineExceeded, InvalidRequest

MEGABYTE = 1 << 20


class Point:
    """A value of a class."""

    def __init__(self, x: int) -> None:
        self.x = x


class StaysThere:
    """A value that cannot be pickled."""

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("this value stays where it is")


class NotMadeHere:
    """A value that cannot be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def same(value: Any) -> Any:
    """Return the argument."""
    return value


async def later(value: Any) -> Any:
    """Return the argument, from an event loop."""
    return value


def noise(size: int) -> bytes:
    """Return pseudorandom bytes, to be compared by digest."""
    return os.urandom(MEGABYTE) * (size // MEGABYTE)


def noise_with_digest(size: int) -> tuple[str, bytes]:
    """Return noise and its digest."""
    data = noise(size)
    return hashlib.sha256(data).hexdigest(), data


def error_of(job: JobHandle) -> BaseException:
    """Return the exception that `result` raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the callers look at what it is
        job.result(LONG)
    return caught.value


class TestResults:
    """JobHandle.result."""

    def test_what_a_callable_returned(self, fray_backend: BackendFixture) -> None:
        values: list[Any] = [None, 0, "", {"deep": [1, (2, 3)]}, b"\n!"]
        jobs = [fray_backend.call(same, value) for value in values]
        jobs.append(fray_backend.call(later, "from a loop"))
        assert [job.result(LONG) for job in jobs] == [*values, "from a loop"]
        assert jobs[3].result() == {"deep": [1, (2, 3)]}, "it can be asked for again"
        assert jobs[3].status() is JobStatus.SUCCEEDED

    def test_a_value_of_a_class_that_only_the_submitter_has(self, fray_backend: BackendFixture) -> None:
        text = "class Box:\n    def __init__(self, held): self.held = held\n\ndef box(held): return Box(held)\n"
        module = module_of_the_submitter_alone(fray_backend.directory, text, "submitters_box")
        try:
            point, box = fray_backend.call(Point, 3), fray_backend.call(module.box, "held")
            assert point.result(LONG).x == 3
            found = box.result(LONG)
            assert type(found) is module.Box
            assert found.held == "held"
        finally:
            del sys.modules["submitters_box"]

    @pytest.mark.parametrize("size", [2 * MEGABYTE, 20 * MEGABYTE])
    def test_a_large_value(self, fray_backend: BackendFixture, size: int) -> None:
        # Of the largest the pickle may go into a file below this prefix.
        environment = fray_backend.environment({"MARIN_PREFIX": str(fray_backend.directory)})
        digest, data = fray_backend.call(noise_with_digest, size, environment=environment).result(LONG)
        assert len(data) == size
        assert hashlib.sha256(data).hexdigest() == digest

    def test_the_callables_own_exception(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.call(fail_deeply, "the bucket")
        error = error_of(job)
        assert type(error) is LookupError
        assert str(error) == "no shards in the bucket"
        assert "look_up_the_shards" in "".join(traceback.format_exception(error))

        def fail() -> None:
            raise NotMadeAgain("device", "on fire")

        other = error_of(fray_backend.call(fail))
        assert isinstance(other, NotMadeAgain)
        assert other.device == "device"

    def test_an_end_without_a_value(self, fray_backend: BackendFixture) -> None:
        left = fray_backend.call(sys.exit, 0)
        assert left.wait(LONG) is JobStatus.SUCCEEDED
        with pytest.raises(ResultUnavailable, match=r"sys\.exit\(0\), before its function returned"):
            left.result()
        failed = error_of(fray_backend.call(sys.exit, 3))
        assert isinstance(failed, JobFailed)
        assert failed.exit_code == 3
        if fray_backend.capabilities.separate_processes:
            for code in (9, 0):
                assert isinstance(error_of(fray_backend.call(os._exit, code)), JobFailed)

    @pytest.mark.parametrize(("kind", "reason"), [(StaysThere, "stays where it is"), (NotMadeHere, "no number")])
    def test_a_value_that_cannot_travel_fails_no_job(
        self, fray_backend: BackendFixture, kind: type[Any], reason: str
    ) -> None:
        job = fray_backend.call(lambda: kind())
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        if fray_backend.capabilities.separate_processes:
            with pytest.raises(ResultUnavailable, match=reason):
                job.result()
        else:
            assert type(job.result()) is kind

    def test_a_program_has_none(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.submit(fray_backend.request(Entrypoint.from_binary("true")))
        with pytest.raises(InvalidRequest, match="program 'true', which returns no value"):
            job.result(LONG)

    def test_replicas_give_a_list_in_their_order(self, fray_backend: BackendFixture) -> None:
        met = fray_backend.directory / "met"
        met.mkdir()

        def work() -> int | None:
            meet(met, 3)
            index = replica_index()
            return None if index == 1 else index * 10

        assert fray_backend.call(work, replicas=3).result(LONG) == [0, None, 20]

    def test_a_retried_job_gives_the_last_attempts_value(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("attempts")

        def work() -> int:
            tally.add()
            if tally.count() < 3:
                raise OSError("not yet")
            return tally.count()

        assert fray_backend.call(work, max_retries_failure=2).result(LONG) == 3

    def test_a_timeout_leaves_the_job_alone(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("go")

        def work() -> str:
            flag.wait()
            return "done"

        job = fray_backend.call(work)
        with pytest.raises(DeadlineExceeded):
            job.result(0.05)
        flag.set()
        assert job.result(LONG) == "done"

    def test_inside_a_job(self, fray_backend: BackendFixture) -> None:
        def parent(child: Callable[[Any], Any]) -> int:
            from fray import Entrypoint, JobRequest, current_client

            client = current_client()
            jobs = [client.submit(JobRequest(f"child-{i}", Entrypoint.from_callable(child, [i]))) for i in range(2)]
            return sum(job.result() for job in jobs)

        assert fray_backend.call(parent, same).result(LONG) == 1
