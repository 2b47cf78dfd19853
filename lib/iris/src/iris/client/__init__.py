"""The client of iris: submit jobs to a cluster, watch them, stop them.

Users import the names in this folder. Nothing here imports the controller.
"""

from iris.client.client import IrisClient
from iris.client.context import IrisContext, get_iris_ctx, iris_ctx, iris_ctx_scope
from iris.client.endpoints import Endpoint, EndpointRegistry, EndpointResolver, EndpointSet
from iris.client.errors import ControllerUnreachable, JobAlreadyExists, JobFailedError
from iris.client.job import Job, SomeRefused, Task
from iris.client.operator import Operator
from iris.client.plan import JobLimits, JobPlan
from iris.client.reservation import ReservationEntry
from iris.client.source_lines import error_with_source
from iris.client.submission.workspace_choice import find_workspace
from iris.client.types import (
    AttemptUsage,
    Checkpoint,
    ClusterStatus,
    JobStatus,
    LogLine,
    QueryResult,
    ScaleGroupStatus,
    SilentAttempt,
    SliceStatus,
    Stopped,
    TaskLogEntry,
    TaskStatus,
    UserBudgetStatus,
    WorkerStatus,
)
from iris.rpc.forks import use_grpc

__all__ = [
    "AttemptUsage",
    "Checkpoint",
    "ClusterStatus",
    "ControllerUnreachable",
    "Endpoint",
    "EndpointRegistry",
    "EndpointResolver",
    "EndpointSet",
    "IrisClient",
    "IrisContext",
    "Job",
    "JobAlreadyExists",
    "JobFailedError",
    "JobLimits",
    "JobPlan",
    "JobStatus",
    "LogLine",
    "Operator",
    "QueryResult",
    "ReservationEntry",
    "ScaleGroupStatus",
    "SilentAttempt",
    "SliceStatus",
    "SomeRefused",
    "Stopped",
    "Task",
    "TaskLogEntry",
    "TaskStatus",
    "UserBudgetStatus",
    "WorkerStatus",
    "error_with_source",
    "find_workspace",
    "get_iris_ctx",
    "iris_ctx",
    "iris_ctx_scope",
    "use_grpc",
]
