"""The client and its jobs, under the module path that experiments import."""

from fray.errors import JobAlreadyExists, JobFailed
from fray.protocols import (
    Client,
    FindsEndedJobs,
    GivesAttemptOutputs,
    GivesNewOutput,
    GivesReplicaLogs,
    JobHandle,
    JobHours,
    RunsRayFunctions,
    StopsMany,
    SubmitsMany,
    TellsHours,
    TellsPendingReason,
    TellsRegions,
    TellsStart,
)
from fray.waiting import stop_parts, wait_all

__all__ = [
    "Client",
    "FindsEndedJobs",
    "GivesAttemptOutputs",
    "GivesNewOutput",
    "GivesReplicaLogs",
    "JobAlreadyExists",
    "JobFailed",
    "JobHandle",
    "JobHours",
    "RunsRayFunctions",
    "StopsMany",
    "SubmitsMany",
    "TellsHours",
    "TellsPendingReason",
    "TellsRegions",
    "TellsStart",
    "stop_parts",
    "wait_all",
]
