"""Submissions and stops, for every transport."""

import asyncio
from typing import Final

from iris.controller.access.authority import authorize, rule_of
from iris.controller.access.interceptor import current_principal
from iris.controller.clients.sessions import Answer, StoppedJobs
from iris.controller.context import Controller
from iris.controller.workers.silent import silent_attempts
from iris.domain.events import Caller
from iris.domain.ids import JobId, parent_of
from iris.domain.job_spec import awaited
from iris.domain.states import PriorityBand
from iris.rpc.convert import existing_policy_from_wire, job_state_to_wire, silent_attempt
from iris.rpc.generated import iris_pb2 as pb

_WAIT: Final = rule_of("JobService/WaitJobs")


async def begin_submission(
    controller: Controller, request: pb.SubmitJobRequest, caller: Caller
) -> "asyncio.Future[Answer]":
    """Store the included blobs and submit the job in the next batch. The future's result is a `Submitted`.

    Raise MarinError like `Controller.begin_submit`, immediately or in the future.
    """
    parent_id = parent_of(JobId(request.spec.job_id))
    parent = None if parent_id is None else controller.view.jobs.get(parent_id)
    band = PriorityBand.INTERACTIVE if parent is None else parent.spec.band
    spec = controller.specs.read(request.spec, band)
    for name in awaited(spec.after):
        authorize(current_principal(), _WAIT, name)
    for blob in request.inline_blobs:
        controller.blobs.put(blob)
    policy = existing_policy_from_wire(request.existing)
    return await controller.begin_submit(spec, request.idempotency_key, policy, caller)


def stop_response(controller: Controller, stopped: StoppedJobs) -> pb.StopJobResponse:
    """Return the response to a stop, with the attempts that may still run on unreachable hosts. The view must be
    committed.
    """
    if stopped.already is not None:
        return pb.StopJobResponse(already=job_state_to_wire(stopped.already))
    view, sessions = controller.view, controller.sessions
    known = (job_id for job_id in stopped.job_ids if job_id in view.jobs)
    silent = [found for job_id in known for found in silent_attempts(view, sessions, job_id)]
    return pb.StopJobResponse(stopped_job_ids=stopped.job_ids, silent=map(silent_attempt, silent))
