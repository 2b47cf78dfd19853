"""Names of jobs."""

import queue
import threading

import pytest

from fray.errors import JobAlreadyExists
from fray.testing.fixture import LONG, BackendFixture
from fray.types import Entrypoint, JobStatus
from rigging.errors import InvalidRequest

SUCCEED = Entrypoint.from_binary("true")


class TestNames:
    """JobRequest.name and adopt_existing."""

    def test_a_live_job_is_adopted(self, fray_backend: BackendFixture) -> None:
        name, flag = fray_backend.name("adopted"), fray_backend.flag("end")
        first = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag), name=name))
        second = fray_backend.submit(fray_backend.request(SUCCEED, name=name))
        assert second.job_id == first.job_id
        assert not second.status().finished()
        flag.set()
        assert second.wait(LONG) is JobStatus.SUCCEEDED
        assert second.logs() == "released end.flag\n"

    def test_a_live_job_keeps_its_name_from_others(self, fray_backend: BackendFixture) -> None:
        name, flag = fray_backend.name("taken"), fray_backend.flag("end")
        first = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag), name=name))
        with pytest.raises(JobAlreadyExists, match=name):
            fray_backend.submit(fray_backend.request(SUCCEED, name=name), adopt_existing=False)
        flag.set()
        assert first.wait(LONG) is JobStatus.SUCCEEDED

    @pytest.mark.parametrize("program", ["true", "false"])
    def test_a_name_is_free_again_when_its_job_has_ended(self, fray_backend: BackendFixture, program: str) -> None:
        name = fray_backend.name("again")
        first = fray_backend.submit(fray_backend.request(Entrypoint.from_binary(program), name=name))
        first.wait(LONG, raise_on_failure=False)
        second = fray_backend.submit(
            fray_backend.request(Entrypoint.from_binary("echo", ["second"]), name=name), adopt_existing=False
        )
        assert second.wait(LONG) is JobStatus.SUCCEEDED
        assert second.logs() == "second\n"

    def test_a_name_is_free_again_when_its_job_was_stopped(self, fray_backend: BackendFixture) -> None:
        name = fray_backend.name("stopped")
        first = fray_backend.submit(fray_backend.request(fray_backend.waiter(fray_backend.flag("never")), name=name))
        first.terminate()
        first.wait(LONG, raise_on_failure=False)
        assert fray_backend.submit(fray_backend.request(SUCCEED, name=name)).wait(LONG) is JobStatus.SUCCEEDED

    def test_ids_tell_jobs_apart_and_show_the_name(self, fray_backend: BackendFixture) -> None:
        names = [fray_backend.name("one"), fray_backend.name("two")]
        jobs = [fray_backend.submit(fray_backend.request(SUCCEED, name=name)) for name in names]
        assert jobs[0].job_id != jobs[1].job_id
        for job, name in zip(jobs, names, strict=True):
            assert name in job.job_id
            assert job.wait(LONG) is JobStatus.SUCCEEDED

    def test_of_many_that_submit_one_name_at_once_one_succeeds(self, fray_backend: BackendFixture) -> None:
        request = fray_backend.request(fray_backend.waiter(fray_backend.flag("never")), name=fray_backend.name("raced"))
        ids: queue.SimpleQueue[str] = queue.SimpleQueue()

        def submit(adopt_existing: bool) -> None:
            try:
                ids.put(fray_backend.submit(request, adopt_existing).job_id)
            except JobAlreadyExists:
                ids.put("refused")

        threads = [threading.Thread(target=submit, args=(number % 2 == 0,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        found = [ids.get_nowait() for _ in threads]
        assert len({job_id for job_id in found if job_id != "refused"}) == 1
        assert found.count("refused") in (3, 4)

    def test_characters_of_names(self, fray_backend: BackendFixture) -> None:
        plain = fray_backend.name("A_0.b@c+d=e-f")
        assert fray_backend.submit(fray_backend.request(SUCCEED, name=plain)).wait(LONG) is JobStatus.SUCCEEDED
        name = fray_backend.name("step 1: \u00fcben, 50%")
        if fray_backend.capabilities.free_names:
            job = fray_backend.submit(fray_backend.request(SUCCEED, name=name))
            assert job.wait(LONG) is JobStatus.SUCCEEDED
            assert name in job.job_id
        else:
            with pytest.raises(InvalidRequest, match=f"{name}.*allowed are"):
                fray_backend.submit(fray_backend.request(SUCCEED, name=name))

    def test_names_of_other_clients(self, fray_backend: BackendFixture) -> None:
        name, flag = fray_backend.name("shared"), fray_backend.flag("end")
        mine = fray_backend.submit(fray_backend.request(fray_backend.waiter(flag), name=name))
        other = fray_backend.harness.make_client()
        try:
            theirs = other.submit(fray_backend.request(Entrypoint.from_binary("echo", ["theirs"]), name=name))
            if fray_backend.capabilities.shared_names:
                assert theirs.job_id == mine.job_id
                assert not theirs.status().finished()
                flag.set()
            assert theirs.wait(LONG) is JobStatus.SUCCEEDED
            # Ids alone tell nothing: those of two clients without shared names may be alike.
            assert theirs.logs() == ("released end.flag\n" if fray_backend.capabilities.shared_names else "theirs\n")
            flag.set()
            assert mine.wait(LONG) is JobStatus.SUCCEEDED
        finally:
            other.shutdown(wait=False)
