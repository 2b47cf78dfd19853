"""JobService: submits, reads, waits for and stops jobs."""

# ruff: noqa: ARG002  # every method takes grpc's context and a request, needed or not

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any, Final

from iris.controller.access.authority import check_live, may_read
from iris.controller.access.interceptor import current_caller, current_principal
from iris.controller.clients.sessions import Submitted
from iris.controller.context import Controller
from iris.controller.logs.reader import Batch, LogQuery, read_logs
from iris.controller.services.queue_places import QueuePlaces
from iris.controller.services.submissions import begin_submission, stop_response
from iris.controller.workers.silent import silent_attempts
from iris.core.state.view import ClusterView
from iris.domain.entities import Job, SilentAttempt, Task
from iris.domain.events import LendCpu
from iris.domain.ids import AttemptId, JobId, TaskId, is_task_id, parse_attempt_id, parse_task_id
from iris.domain.job_spec import CommandEntrypoint
from iris.domain.states import TaskState
from iris.domain.usage import AttemptUse
from iris.rpc.auth import PrincipalKind
from iris.rpc.convert import (
    add_history,
    job_state_to_wire,
    job_states_from_wire,
    job_status,
    task_status,
    update_from_wire,
)
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.logfilter import ANY_ATTEMPT, LineChoice
from iris.rpc.protocol import ATTEMPT_ID_KEY, MAX_BLOB_CHUNK_BYTES
from rigging.errors import Denied, InvalidRequest, NotFound

_DEFAULT_LIST_LIMIT: Final = 200
_MAX_LIST_LIMIT: Final = 10_000
_MAX_WAIT_S: Final = 3600.0
_LISTED_AT_ONCE: Final = 50
_TASKS_AT_ONCE: Final = 200
_TASKS_OF_A_PAGE: Final = 500
_SCANNED_AT_ONCE: Final = 10_000
_NO_PLACE: Final = (0, 0)

Context = Any  # grpc's own, which is untyped here


class JobService(iris_pb2_grpc.JobServiceServicer):
    """Serves clients and tasks."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._places = QueuePlaces(controller.view)

    @property
    def _view(self) -> ClusterView:
        return self._controller.view

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        submitted = await (await begin_submission(self._controller, request, current_caller()))
        await self._controller.confirm()
        assert isinstance(submitted, Submitted)
        return pb.SubmitJobResponse(job_id=submitted.job_id, adopted=submitted.adopted)

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.JobStatus:
        await self._controller.engine.settled()
        job_id = JobId(request.job_id)
        status = self._status(self._view.job(job_id), request.include_spec)
        places = self._places.at(self._controller.clock_ms())
        status.queue_place, status.queue_length = places.get(job_id, _NO_PLACE)
        return status

    async def WaitJobs(self, request: pb.WaitJobsRequest, context: Context) -> pb.WaitJobsResponse:
        if not request.job_ids:
            raise InvalidRequest("WaitJobs names no job; give at least one")
        job_ids = [JobId(name) for name in request.job_ids]
        timeout_s = min(max(request.timeout_ms, 0) / 1000, _MAX_WAIT_S)
        await self._controller.engine.settled()
        with self._lending(context):
            done = await self._controller.waiters.wait(job_ids, request.any, timeout_s)
        # Those that the wait was not for may have moved meanwhile, and so may the job that waited.
        await self._controller.engine.settled()
        check_live(current_principal(), self._view)
        return pb.WaitJobsResponse(jobs=[self._status(self._view.job(job_id)) for job_id in job_ids], done=done)

    async def GetException(self, request: pb.GetExceptionRequest, context: Context) -> pb.GetExceptionResponse:
        await self._controller.engine.settled()
        job = self._view.job(JobId(request.job_id))
        if job.deciding_task_id is None or job.submitted_at_ms != request.submitted_at_ms:
            return pb.GetExceptionResponse()
        return pb.GetExceptionResponse(exception=self._controller.hub.exception(job.deciding_task_id))

    async def GetResult(self, request: pb.GetResultRequest, context: Context) -> pb.GetResultResponse:
        await self._controller.engine.settled()
        job = self._view.job(JobId(request.job_id))
        if job.submitted_at_ms != request.submitted_at_ms:
            raise NotFound(f"job {job.job_id} no longer exists; another job has its name")
        if isinstance(job.spec.entrypoint, CommandEntrypoint):
            command = job.spec.entrypoint.argv[0]
            raise InvalidRequest(
                f"job {job.job_id} runs the program {command!r}, which returns no value: wait for it, and read its "
                "logs or the files that it writes"
            )
        tasks = self._view.tasks[job.job_id]
        if not 0 <= request.task_index < len(tasks):
            raise InvalidRequest(f"job {job.job_id} has tasks 0 to {len(tasks) - 1}, not {request.task_index}")
        task = tasks[request.task_index]
        if task.state is not TaskState.SUCCEEDED:
            raise NotFound(f"task {task.task_id} has no result: it is {task.state.word}")
        if request.offset < 0:
            raise InvalidRequest(f"the offset {request.offset} of a result is below 0")
        data, size = await asyncio.to_thread(
            self._controller.hub.result, task.task_id, request.offset, MAX_BLOB_CHUNK_BYTES
        )
        if not size and task.finished_at_ms < self._controller.hub.store.results_since_ms:
            raise NotFound(
                f"what {task.task_id} returned is not available: it ended before the controller stored results"
            )
        return pb.GetResultResponse(data=data, size=size)

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        principal = current_principal()
        await self._controller.engine.settled()
        prefix = request.prefix.rstrip("/")
        if principal.kind is PrincipalKind.JOB:
            prefix = prefix or f"/{principal.user}"
        if prefix and not prefix.startswith("/"):
            raise InvalidRequest(f"prefix {request.prefix!r} must begin with '/', e.g. '/user' or '/user/job'")
        states = job_states_from_wire(request.states)
        limit = min(request.limit, _MAX_LIST_LIMIT) if request.limit > 0 else _DEFAULT_LIST_LIMIT
        history, answer = self._controller.history, pb.ListJobsResponse()
        newest = await asyncio.to_thread(history.newest, prefix, states, limit + 1)
        answer.truncated = len(newest) > limit
        below = await asyncio.to_thread(history.counts_below, [job.job_id for job in newest[:limit]])
        places = self._places.at(self._controller.clock_ms())
        for number, job in enumerate(newest[:limit], 1):
            status = answer.jobs.add()
            status.CopyFrom(self._listed(job, may_read(principal, job.job_id), places))
            for state, count in below.get(job.job_id, {}).items():
                status.descendant_counts.add(state=job_state_to_wire(state), count=count)
            if number % _LISTED_AT_ONCE == 0:
                await asyncio.sleep(0)  # a long list holds up nobody
        return answer

    async def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksResponse:
        await self._controller.engine.settled()
        job_id = self._view.job(JobId(request.job_id)).job_id
        tasks, answer = self._view.tasks[job_id], pb.ListTasksResponse()
        reason = self._controller.pending_reason(job_id)
        usage: dict[TaskId, list[tuple[AttemptId, AttemptUse]]] = {}
        if 0 < request.limit < len(tasks):
            tasks = await _worth_a_look(tasks, request.limit)
        else:
            if (first := request.first_index) < 0:
                raise InvalidRequest(f"first_index is {first}; it must be 0 or more")
            end = min(first + _TASKS_OF_A_PAGE, len(tasks))
            answer.next_index = end if end < len(tasks) else 0
            tasks = tasks[first:end]
            usage = self._usage(job_id, first, end - 1)
        silent = self._silent(job_id, tasks)
        for number, task in enumerate(list(tasks), 1):
            name = task.task_id
            answer.tasks.append(
                task_status(task, self._reason(task, reason), silent.get(name, ()), usage.get(name, ()))
            )
            if number % _TASKS_AT_ONCE == 0:
                await asyncio.sleep(0)  # a long list holds up nobody
        return answer

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.TaskStatus:
        await self._controller.engine.settled()
        task = self._view.task(TaskId(request.task_id))
        reason = self._reason(task, self._controller.pending_reason(task.job_id))
        silent, usage = self._silent(task.job_id, [task]), self._usage(task.job_id, task.index, task.index)
        status = task_status(task, reason, silent.get(task.task_id, ()), usage.get(task.task_id, ()))
        if request.with_history:
            add_history(status, self._controller.live_usage.history.of_task(task))
        return status

    async def StopJob(self, request: pb.StopJobRequest, context: Context) -> pb.StopJobResponse:
        stopped = await self._controller.stop_job(
            JobId(request.job_id), request.reason, request.keep_children, current_caller()
        )
        await self._controller.engine.settled()
        return stop_response(self._controller, stopped)

    async def HoldJob(self, request: pb.HoldJobRequest, context: Context) -> pb.HoldJobResponse:
        principal, hold = current_principal(), self._view.job(JobId(request.job_id)).hold
        own = (f"held by {principal.user} ", "held by /")
        if request.release and hold and principal.kind is not PrincipalKind.ADMIN and not hold.startswith(own):
            raise Denied(f"job {request.job_id} is {hold}: only an admin may release it")
        before = await self._controller.hold(JobId(request.job_id), request.release, current_caller())
        return pb.HoldJobResponse(before=before)

    async def RequeueJob(self, request: pb.RequeueJobRequest, context: Context) -> pb.RequeueJobResponse:
        was = await self._controller.requeue(JobId(request.job_id), current_caller())
        await self._controller.confirm()
        return pb.RequeueJobResponse(was=job_state_to_wire(was))

    async def UpdateJob(self, request: pb.UpdateJobRequest, context: Context) -> pb.UpdateJobResponse:
        await self._controller.update(update_from_wire(request), current_caller())
        return pb.UpdateJobResponse()

    async def FetchLogs(self, request: pb.FetchLogsRequest, context: Context) -> AsyncGenerator[pb.LogBatch, None]:
        await self._controller.engine.settled()
        index = None
        job_id = JobId(request.id)
        if is_task_id(request.id):
            self._view.task(TaskId(request.id))
            job_id, index = parse_task_id(request.id)
        else:
            self._view.job(job_id)
        if request.max_lines < 0 or request.since_ms < 0:
            raise InvalidRequest(f"max_lines ({request.max_lines}) and since_ms ({request.since_ms}) must be 0 or more")
        query = LogQuery(
            job_id=job_id,
            index=index,
            include_children=request.include_children and index is None,
            since_ms=request.since_ms,
            max_lines=request.max_lines,
            from_start=request.from_start,
            follow=request.follow,
            choice=LineChoice(
                request.grep,
                request.level,
                request.until_ms,
                request.attempt if request.HasField("attempt") else ANY_ATTEMPT,
            ),
        )
        if request.first_line:
            if index is None or not request.HasField("attempt") or query.include_children:
                raise InvalidRequest(
                    f"first_line ({request.first_line}) numbers the lines of one attempt: id must be a task's "
                    f"({request.id!r} is not, or children are included), and attempt must be set"
                )
            key = (job_id, index, request.attempt)
            place = self._controller.hub.start_of_line(key, request.first_line)
            if place is None:
                return  # an earlier release packed this log without counting its lines
            query = replace(query, begin=place[0], from_start=True)
            yield pb.LogBatch(first_line=place[1])
        async with aclosing(read_logs(self._controller.hub, query)) as batches:
            async for batch in batches:
                yield _log_batch(batch)

    def _silent(self, job_id: JobId, tasks: Sequence[Task]) -> dict[TaskId, list[SilentAttempt]]:
        found: dict[TaskId, list[SilentAttempt]] = {}
        for attempt in silent_attempts(self._view, self._controller.sessions, job_id, tasks):
            found.setdefault(parse_attempt_id(attempt.attempt_id)[0], []).append(attempt)
        return found

    def _usage(self, job_id: JobId, first: int, last: int) -> dict[TaskId, list[tuple[AttemptId, AttemptUse]]]:
        found: dict[TaskId, list[tuple[AttemptId, AttemptUse]]] = {}
        for name, use in self._controller.live_usage.of_tasks(job_id, first, last).items():
            found.setdefault(parse_attempt_id(name)[0], []).append((name, use))
        return found

    def _reason(self, task: Task, of_job: str) -> str:
        """Return why the task is not running. `of_job` is the reason of its job's first pending task."""
        if task.state is TaskState.PENDING:
            return of_job
        if task.state is TaskState.BUILDING:
            return self._controller.attempt_waits.of_attempt(task.attempt_id)
        booking = self._view.bookings.get(task.attempt_id) if task.state is TaskState.ASSIGNED else None
        if booking is None or not booking.prefilled:
            return ""
        return f"assigned to worker {task.worker_id}, where it begins when a task of its kind ends"

    def _status(self, job: Job, include_spec: bool = False) -> pb.JobStatus:
        return job_status(job, self._controller.pending_reason(job.job_id), include_spec)

    def _listed(self, job: Job, readable: bool, places: Mapping[JobId, tuple[int, int]]) -> pb.JobStatus:
        """Return a job for a list. Users see only names, states and times of other users' jobs."""
        status = self._status(job)
        status.queue_place, status.queue_length = places.get(job.job_id, _NO_PLACE)
        if not readable:
            status.ClearField("error")
            status.ClearField("display_command")
            status.ClearField("description")
        return status

    @contextmanager
    def _lending(self, context: Context) -> Iterator[None]:
        """Context manager: lend a task's CPUs to its children while it waits for them."""
        principal = current_principal()
        attempt = AttemptId(dict(context.invocation_metadata() or ()).get(ATTEMPT_ID_KEY, ""))
        task, number = self._view.find_attempt(attempt)
        if (
            principal.kind is not PrincipalKind.JOB
            or task is None
            or task.job_id != principal.name
            or task.attempt != number
            or not task.state.is_live
        ):
            yield
            return
        engine = self._controller.engine
        engine.post(LendCpu(attempt, True))
        try:
            yield
        finally:
            engine.post(LendCpu(attempt, False))


def _log_batch(batch: Batch) -> pb.LogBatch:
    parts = [pb.LogPart(task_id=f"{key[0]}/{key[1]}", attempt=key[2], records=data) for key, data in batch]
    return pb.LogBatch(parts=parts)


async def _worth_a_look(tasks: Sequence[Task], limit: int) -> list[Task]:
    """Return `limit` tasks in order: failed ones first, then live, pending, and succeeded ones."""
    by_rank: dict[int, list[Task]] = {rank: [] for rank in range(4)}
    for number, task in enumerate(list(tasks), 1):
        found = by_rank[_rank(task)]
        if len(found) < limit:
            found.append(task)
        if number % _SCANNED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return sorted([task for found in by_rank.values() for task in found][:limit], key=lambda task: task.index)


def _rank(task: Task) -> int:
    if task.state is TaskState.SUCCEEDED:
        return 3
    if task.state is TaskState.PENDING:
        return 2
    return 1 if task.state.is_live else 0
