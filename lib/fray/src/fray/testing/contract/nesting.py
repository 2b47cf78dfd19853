"""Jobs that submit jobs."""

import os

import pytest

from fray.context import current_client
from fray.testing.contract.callables import raised_by
from fray.testing.signals import Flag
from fray.testing.stage import LONG, Stage
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig


def submit_tree(flag: Flag, depth: int, width: int, resources: ResourceConfig) -> None:
    """Submit `width` jobs that do the same one level down, and wait for them; leaves leave a file."""
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

    def test_a_tree_of_jobs(self, fray_stage: Stage) -> None:
        flag = fray_stage.flag("tree")
        small = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="16m")
        fray_stage.call(submit_tree, flag, 2, 2, small).wait(LONG)
        leaves = [name for name in os.listdir(fray_stage.directory) if name.endswith(".leaf")]
        assert sorted(leaves) == [f"tree.flag.{i}.{j}.leaf" for i in range(2) for j in range(2)]

    def test_waiting_parents_do_not_keep_their_children_from_running(self, fray_stage: Stage) -> None:
        # All CPUs for each: the child can only run on what its parent lends while it waits.
        flag = fray_stage.flag("whole")
        machine = ResourceConfig.with_cpu(cpu=fray_stage.harness.cpus, ram="128m", disk="16m")
        fray_stage.call(submit_tree, flag, 2, 1, machine, resources=machine).wait(LONG)
        assert Flag(f"{flag.path}.0.0.leaf").is_set()

    def test_a_childs_failure_reaches_the_top(self, fray_stage: Stage) -> None:
        def child() -> None:
            raise LookupError("the innermost mistake")

        def parent() -> None:
            small = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="16m")
            current_client().submit(JobRequest("failing-child", Entrypoint.from_callable(child), small)).wait(LONG)

        assert "the innermost mistake" in str(raised_by(fray_stage.call(parent)))

    def test_a_client_that_the_job_made_itself(self, fray_stage: Stage) -> None:
        flag = fray_stage.flag("done")

        def parent() -> None:
            request = JobRequest(
                "own-child", Entrypoint.from_binary("true"), ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="16m")
            )
            flag.set(str(current_client().submit(request).wait(LONG)))

        fray_stage.call(parent).wait(LONG)
        assert flag.text() == JobStatus.SUCCEEDED

    @pytest.mark.parametrize("adopt", [True, False])
    def test_two_jobs_may_have_children_of_one_name_one_after_the_other(self, fray_stage: Stage, adopt: bool) -> None:
        def parent() -> None:
            request = JobRequest(
                "same-name", Entrypoint.from_binary("true"), ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="16m")
            )
            current_client().submit(request, adopt_existing=adopt).wait(LONG)

        for _ in range(2):
            assert fray_stage.call(parent).wait(LONG) is JobStatus.SUCCEEDED
