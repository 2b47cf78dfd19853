"""Jobs that submit jobs."""

import os

import pytest

from fray.context import current_client
from fray.testing.contract.callables import raised_by
from fray.testing.contract.lifecycle import HOLD_LOCK, is_held
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import Flag, eventually
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig


def submit_and_wait_for(held: Flag, flag: Flag) -> None:
    """Submit a job that keeps the lock of `held`, and wait for a flag."""
    request = JobRequest("holds", Entrypoint.from_binary("sh", ["-c", HOLD_LOCK, "sh", held.path]), SMALL)
    current_client().submit(request)
    flag.wait(LONG)


def submit_tree(flag: Flag, depth: int, width: int, resources: ResourceConfig) -> None:
    """Submit `width` jobs that run this function one level deeper, and wait for them. Leaves create a file."""
    # Imported here as a user's job would, where the client is that of the job.
    from fray import current_client, wait_all

    if depth == 0:
        Flag(flag.path + ".leaf").set()
        return
    client = current_client()
    children = [
        client.submit(
            JobRequest(
                f"{os.path.basename(flag.path)}.{i}",
                Entrypoint.from_callable(submit_tree, [Flag(f"{flag.path}.{i}"), depth - 1, width, resources]),
                resources,
            )
        )
        for i in range(width)
    ]
    wait_all(children, LONG)


class TestNestedJobs:
    """current_client() inside a job."""

    def test_a_tree_of_jobs(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("tree")
        small = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="16m")
        fray_backend.call(submit_tree, flag, 2, 2, small).wait(LONG)
        leaves = [name for name in os.listdir(fray_backend.directory) if name.endswith(".leaf")]
        assert sorted(leaves) == [f"tree.flag.{i}.{j}.leaf" for i in range(2) for j in range(2)]

    def test_waiting_parents_do_not_keep_their_children_from_running(self, fray_backend: BackendFixture) -> None:
        # All CPUs for each: the child can only run on what its parent lends while it waits.
        flag = fray_backend.flag("whole")
        machine = ResourceConfig.with_cpu(cpu=fray_backend.harness.cpus, ram="128m", disk="16m")
        if not fray_backend.capabilities.lends_while_waiting:

            def leave_a_child() -> None:
                child = JobRequest("alone", Entrypoint.from_callable(submit_tree, [flag, 0, 1, machine]), machine)
                assert current_client().submit(child).status() is JobStatus.PENDING

            assert fray_backend.call(leave_a_child, resources=machine).wait(LONG) is JobStatus.SUCCEEDED
            Flag(f"{flag.path}.leaf").wait(LONG)
            return
        fray_backend.call(submit_tree, flag, 2, 1, machine, resources=machine).wait(LONG)
        assert Flag(f"{flag.path}.0.0.leaf").is_set()

    def test_a_childs_failure_reaches_the_top(self, fray_backend: BackendFixture) -> None:
        def child() -> None:
            raise LookupError("the innermost mistake")

        def parent() -> None:
            small = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="16m")
            current_client().submit(JobRequest("failing-child", Entrypoint.from_callable(child), small)).wait(LONG)

        assert "the innermost mistake" in str(raised_by(fray_backend.call(parent)))

    def test_a_client_that_the_job_made_itself(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("done")

        def parent() -> None:
            request = JobRequest(
                "own-child", Entrypoint.from_binary("true"), ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="16m")
            )
            flag.set(str(current_client().submit(request).wait(LONG)))

        fray_backend.call(parent).wait(LONG)
        assert flag.text() == JobStatus.SUCCEEDED

    def test_a_program_that_submits_a_job(self, fray_backend: BackendFixture) -> None:
        script = (
            "from fray import Entrypoint, JobRequest, ResourceConfig, current_client\n"
            "client = current_client()\n"
            "small = ResourceConfig.with_cpu(cpu=0.1, ram='64m', disk='16m')\n"
            "job = client.submit(JobRequest('programs-child', Entrypoint.from_binary('true'), small))\n"
            "print(type(client).__module__, job.wait(60))\n"
        )
        job = fray_backend.submit(fray_backend.request(Entrypoint.from_binary("python", ["-c", script])))
        job.wait(LONG)
        # The backend is found without a word of where it is.
        assert job.logs() == f"{type(fray_backend.client).__module__} succeeded\n"

    def test_children_of_a_job_that_was_stopped(self, fray_backend: BackendFixture) -> None:
        held, go_on = fray_backend.flag("held"), fray_backend.flag("go-on")
        job = fray_backend.call(submit_and_wait_for, held, go_on)
        held.wait()
        job.terminate()
        assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
        if fray_backend.capabilities.children_end_with_parent:
            eventually(lambda: not is_held(held), "the child is gone")
        go_on.set()

    def test_children_that_nobody_waits_for(self, fray_backend: BackendFixture) -> None:
        held, go_on = fray_backend.flag("held"), fray_backend.flag("go-on")
        script = f'{HOLD_LOCK.removesuffix("sleep 300 & wait")} while ! [ -e "$2" ]; do sleep 0.02; done; : > "$1.well"'
        child = Entrypoint.from_binary("sh", ["-c", script, "sh", held.path, go_on.path])

        def parent() -> None:
            current_client().submit(JobRequest("left-alone", child, SMALL))
            held.wait(LONG)

        job = fray_backend.call(parent)
        held.wait()
        if fray_backend.capabilities.children_end_with_parent:
            assert job.wait(LONG) is JobStatus.SUCCEEDED
            eventually(lambda: not is_held(held), "the child is gone")
            return
        assert is_held(held)
        go_on.set()
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        Flag(f"{held.path}.well").wait()

    @pytest.mark.parametrize("adopt", [True, False])
    def test_two_jobs_may_have_children_of_one_name_one_after_the_other(
        self, fray_backend: BackendFixture, adopt: bool
    ) -> None:
        def parent() -> None:
            request = JobRequest(
                "same-name", Entrypoint.from_binary("true"), ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="16m")
            )
            current_client().submit(request, adopt_existing=adopt).wait(LONG)

        for _ in range(2):
            assert fray_backend.call(parent).wait(LONG) is JobStatus.SUCCEEDED
