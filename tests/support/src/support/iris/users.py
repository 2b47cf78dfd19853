"""A user of a controller, with the calls of real clients."""

from typing import Any

from iris.client.connection.wire import log_lines
from iris.rpc.generated import iris_pb2 as pb
from support.iris.controller import ControllerStubs
from support.iris.worker import GIB

WAIT_MS = 10_000


class User:
    """A user who makes the calls of real clients."""

    def __init__(self, stubs: ControllerStubs) -> None:
        self.stubs = stubs
        self.jobs, self.blobs, self.cluster = stubs.jobs, stubs.blobs, stubs.cluster

    def submit(
        self,
        name: str,
        *,
        key: str = "",
        existing: "pb.ExistingJobPolicy.ValueType" = pb.EXISTING_JOB_POLICY_FAIL,
        **spec: Any,
    ) -> pb.SubmitJobResponse:
        request = pb.SubmitJobRequest(spec=job_spec(name, **spec), idempotency_key=key, existing=existing)
        return self.jobs.SubmitJob(request)

    def wait(self, *names: str, any: bool = False, timeout_ms: int = WAIT_MS) -> pb.WaitJobsResponse:
        return self.jobs.WaitJobs(pb.WaitJobsRequest(job_ids=names, any=any, timeout_ms=timeout_ms))

    def wait_one(self, name: str) -> pb.JobStatus:
        response = self.wait(name)
        assert response.done, response
        return response.jobs[0]

    def get(self, name: str, include_spec: bool = False) -> pb.JobStatus:
        return self.jobs.GetJob(pb.GetJobRequest(job_id=name, include_spec=include_spec))

    def task(self, name: str) -> pb.TaskStatus:
        return self.jobs.GetTask(pb.GetTaskRequest(task_id=name))

    def stop(self, name: str, reason: str = "") -> pb.StopJobResponse:
        return self.jobs.StopJob(pb.StopJobRequest(job_id=name, reason=reason))

    def logs(self, id: str, **query: Any) -> list[bytes]:
        batches = self.jobs.FetchLogs(pb.FetchLogsRequest(id=id, **query), timeout=WAIT_MS / 1000)
        return [line.data for batch in batches for line in log_lines(batch)]


def job_spec(
    name: str,
    *,
    argv: tuple[str, ...] = ("true",),
    cpu_millis: int = 1000,
    memory_bytes: int = GIB,
    replicas: int = 1,
    max_retries_preemption: int = 10,
    env_vars: dict[str, str] | None = None,
    pip_packages: tuple[str, ...] = (),
    **fields: Any,
) -> pb.JobSpec:
    """Return the specification of a small job. `fields` are fields of the message."""
    return pb.JobSpec(
        job_id=name,
        entrypoint=fields.pop("entrypoint", pb.Entrypoint(command=pb.Command(argv=argv))),
        resources=fields.pop("resources", pb.Resources(cpu_millis=cpu_millis, memory_bytes=memory_bytes)),
        environment=pb.Environment(env_vars=env_vars or {}, pip_packages=pip_packages),
        replicas=replicas,
        max_retries_preemption=max_retries_preemption,
        **fields,
    )
