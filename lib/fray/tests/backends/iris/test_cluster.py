"""The Iris client of fray on a real cluster on this machine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.backends.iris import IrisBackend
from fray.client import GivesNewOutput, wait_all
from fray.errors import JobAlreadyExists, JobFailed
from fray.testing.signals import eventually
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus, ResourceConfig
from iris.client import IrisClient
from rigging.errors import InvalidRequest

pytestmark = pytest.mark.e2e

LONG = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IrisBackend]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IRIS_JOB_ID", "IRIS_CONTROLLER_ADDRESS"):
            patch.delenv(name, raising=False)
        patch.setenv("IRIS_STATE_DIR", str(tmp_path_factory.mktemp("iris")))
        iris = IrisClient.local()
        backend = IrisBackend(iris)
        try:
            yield backend
        finally:
            iris.stop_cluster(stop_jobs=True)
            backend.shutdown()


@pytest.fixture
def environment(tmp_path: Path) -> EnvironmentConfig:
    (tmp_path / "note.txt").write_text("from the workspace\n")
    return EnvironmentConfig(workspace=str(tmp_path), env_vars={"GREETING": "hi"})


# Functions inside functions are shipped by value: the cluster does not have this test module.
def call(name: str, fn: Callable[..., Any], *args: Any, **fields: Any) -> JobRequest:
    return JobRequest(name, Entrypoint.from_callable(fn, args), ResourceConfig.with_cpu(cpu=0.1, ram="64m"), **fields)


def shell(name: str, script: str, **fields: Any) -> JobRequest:
    entrypoint = Entrypoint.from_binary("sh", ["-c", script])
    return JobRequest(name, entrypoint, ResourceConfig.with_cpu(cpu=0.1, ram="64m"), **fields)


def test_a_program_with_its_workspace_and_variables(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    job = cluster.submit(shell("program", 'echo "$GREETING"; cat note.txt', environment=environment))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert job.logs() == "hi\nfrom the workspace\n"
    assert job.status() is JobStatus.SUCCEEDED


def test_new_output_comes_once_and_only_outside_of_jobs(
    cluster: IrisBackend, environment: EnvironmentConfig, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    script = f"echo $IRIS_TASK_INDEX; until [ -e {go_on} ]; do sleep 0.02; done; echo last >&2"
    job = cluster.submit(shell("speaks", script, environment=environment, replicas=2))
    assert isinstance(job, GivesNewOutput)
    seen: dict[int | None, str] = {}
    eventually(lambda: seen.update(job.new_output()) or seen == {0: "0\n", 1: "1\n"}, "both have begun")
    assert job.new_output() == {}
    go_on.touch()
    job.wait(LONG)
    assert job.new_output(ended=True) == {0: "last\n", 1: "last\n"}
    assert job.new_output(ended=True) == {}


def test_a_failed_program(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    with pytest.raises(JobFailed, match=r"\(its log: iris job logs .*/fails\): .*exit code 7") as caught:
        cluster.submit(shell("fails", "exit 7", environment=environment)).wait(LONG)
    assert caught.value.exit_code == 7


def test_a_callable_that_raises_comes_back_with_its_error(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    def fail(where: str) -> None:
        raise LookupError(f"no shards in {where}")

    job = cluster.submit(call("raises", fail, "bucket", environment=environment))
    with pytest.raises(JobFailed, match="LookupError: no shards in bucket"):
        job.wait(LONG)
    assert "Traceback (most recent call last)" in job.logs()


def test_retries(cluster: IrisBackend, environment: EnvironmentConfig, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) -eq 3"
    assert cluster.submit(shell("retried", script, environment=environment, max_retries_failure=2)).wait(LONG)
    assert (tmp_path / "runs").read_text() == "x\n" * 3


def test_children_wait_all_and_their_parents_cpu(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    def leaf(index: int) -> None:
        print("leaf", index)

    def parent() -> None:
        import os

        from fray import Entrypoint, JobRequest, ResourceConfig, current_client, wait_all

        # Each wants the whole machine: they can only run one after another, on what this parent lends while it waits.
        whole = ResourceConfig.with_cpu(cpu=os.cpu_count() or 1, ram="64m")
        client = current_client()
        children = [
            client.submit(JobRequest(f"leaf-{i}", Entrypoint.from_callable(leaf, [i]), whole)) for i in range(3)
        ]
        wait_all(children, 50)
        print(*sorted(child.job_id.rpartition("/parent/")[2] for child in children))

    job = cluster.submit(call("parent", parent, environment=environment))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert job.logs() == "leaf-0 leaf-1 leaf-2\n"


def test_wait_all_tells_of_the_first_failure(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    slow = cluster.submit(shell("slow", "exec sleep 300", environment=environment))
    bad = cluster.submit(shell("bad", "exit 1", environment=environment))
    with pytest.raises(JobFailed, match="/bad failed"):
        wait_all([slow, bad], LONG)
    assert cluster.submit(shell("slow", "true", environment=environment)).job_id == slow.job_id
    with pytest.raises(JobAlreadyExists, match="/slow"):
        cluster.submit(shell("slow", "true", environment=environment), adopt_existing=False)
    with pytest.raises(TimeoutError, match="/slow is"):
        slow.wait(0.05)
    slow.terminate()
    assert slow.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED


def test_what_no_worker_could_run_is_refused_at_once(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    entrypoint = Entrypoint.from_binary("true")
    with pytest.raises(InvalidRequest, match="/tpu can never run"):
        cluster.submit(JobRequest("tpu", entrypoint, ResourceConfig.with_tpu("v5p-8"), environment))
    with pytest.raises(InvalidRequest, match="'a b' is not a valid name of a job"):
        cluster.submit(JobRequest("a b", entrypoint, environment=environment))


def test_a_job_that_must_not_be_preempted_runs_on_a_machine_of_ones_own(
    cluster: IrisBackend, environment: EnvironmentConfig
) -> None:
    resources = ResourceConfig.with_cpu(cpu=0.1, ram="64m", preemptible=False)
    job = cluster.submit(JobRequest("stays", Entrypoint.from_binary("true"), resources, environment))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
