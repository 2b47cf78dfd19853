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
    SubmitsMany,
    TellsHours,
    TellsPendingReason,
    TellsRegions,
    TellsStart,
)
from fray.waiting import wait_all

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
    "SubmitsMany",
    "TellsHours",
    "TellsPendingReason",
    "TellsRegions",
    "TellsStart",
    "wait_all",
]
