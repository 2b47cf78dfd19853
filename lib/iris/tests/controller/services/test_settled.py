"""What one caller is told must outlive a crash: every answer waits until what others changed is on disk."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from iris.controller.access.interceptor import serve_for
from iris.controller.services.cluster import ClusterService
from iris.controller.services.endpoints import EndpointService
from iris.controller.services.jobs import JobService
from iris.rpc.auth import Principal, PrincipalKind
from iris.rpc.generated import endpoints_pb2
from iris.rpc.generated import iris_pb2 as pb


class NotOnDisk(Exception):
    """What was changed cannot be written."""


class Controller(SimpleNamespace):
    """Has nothing to tell before one has waited."""

    def __init__(self) -> None:
        super().__init__(engine=SimpleNamespace(settled=self.settled), replicator=object(), view=None)

    async def settled(self) -> None:
        raise NotOnDisk


CALLS = [
    (JobService, "GetJob", pb.GetJobRequest(job_id="/ann/a")),
    (JobService, "WaitJobs", pb.WaitJobsRequest(job_ids=["/ann/a"])),
    (JobService, "GetException", pb.GetExceptionRequest(job_id="/ann/a")),
    (JobService, "GetResult", pb.GetResultRequest(job_id="/ann/a")),
    (JobService, "ListJobs", pb.ListJobsRequest()),
    (JobService, "ListTasks", pb.ListTasksRequest(job_id="/ann/a")),
    (JobService, "GetTask", pb.GetTaskRequest(task_id="/ann/a/0")),
    (JobService, "FetchLogs", pb.FetchLogsRequest(id="/ann/a")),
    (ClusterService, "Status", pb.ClusterStatusRequest()),
    (ClusterService, "ListBudgets", pb.ListBudgetsRequest()),
    (ClusterService, "Query", pb.QueryRequest(sql="SELECT 1")),
    (ClusterService, "Checkpoint", pb.CheckpointRequest()),
    (EndpointService, "Resolve", endpoints_pb2.ResolveEndpointRequest(name="/ann/a/x")),
    (EndpointService, "List", endpoints_pb2.ListEndpointsRequest(prefix="/ann/a/")),
]


@pytest.mark.parametrize(("service", "method", "request_"), CALLS, ids=[call[1] for call in CALLS])
def test_nothing_is_told_that_is_not_on_disk(service: Any, method: str, request_: Any) -> None:
    async def call() -> None:
        serve_for(Principal(PrincipalKind.ADMIN, "root"))
        answer = getattr(service(Controller()), method)(request_, None)
        await (anext(answer) if isinstance(answer, AsyncIterator) else answer)

    with pytest.raises(NotOnDisk):
        asyncio.run(call())
