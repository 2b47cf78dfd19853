"""The calls of `IrisClient` that change nothing: jobs, their tasks and output, waits, workers, queries."""

from collections.abc import Iterable, Iterator, Sequence

from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import QUERY_TIMEOUT, Connection
from iris.client.connection.waiting import poll_jobs, wait_jobs
from iris.client.connection.wire import cluster_status, job_status, query_result, task_status
from iris.client.job import Job
from iris.client.logs.stream import LogSelection, read_logs
from iris.client.types import (
    ClusterStatus,
    JobStatus,
    LogLine,
    QueryResult,
    TaskLogEntry,
    TaskStatus,
    log_entries,
)
from iris.cluster.types import JobName, JobState
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logfilter import LineChoice
from rigging.arguments import as_list
from rigging.errors import InvalidRequest
from rigging.text.quantities import check_count, check_seconds
from rigging.timing import Timestamp


class ClusterReader:
    """Reads the state of one cluster: the base of `IrisClient`. Thread-safe.

    Args:
        connection: How the controller is reached.
        calls: The calls of jobs, which waits share with submissions.
    """

    def __init__(self, connection: Connection, calls: JobCalls) -> None:
        self._connection = connection
        self._calls = calls

    @property
    def address(self) -> str:
        """The address at which the controller was found last, "host:port"."""
        return self._connection.address

    @property
    def connection(self) -> Connection:
        """The connection to the controller."""
        return self._connection

    def status(self, job_id: str | JobName) -> JobStatus:
        """Return the status of a job. Raises NotFound."""
        reply = self._connection.ask(lambda c: c.jobs.GetJob, pb.GetJobRequest(job_id=str(job_id)))
        return job_status(reply)

    def job_state(self, job_id: str | JobName) -> JobState:
        """Return the state of a job. Raises NotFound."""
        return self.status(job_id).state

    def list_jobs(
        self,
        prefix: str | JobName | None = "",
        states: Iterable[JobState | int] = (),
        limit: int = 0,
        *,
        state: JobState | int | None = None,
    ) -> list[JobStatus]:
        """Return jobs, newest first.

        Args:
            prefix: Only those below "/user" or "/user/job".
            states: Only those in one of these states, or of these numbers; none: in any.
            limit: At most so many; 0: 200.
            state: Only those in this state.

        Raises:
            InvalidRequest: A state is no JobState.
        """
        wanted = [_job_state(each) for each in (*states, *(() if state is None else (state,)))]
        request = pb.ListJobsRequest(prefix=str(prefix or ""), states=wanted, limit=check_count(limit, "limit"))
        reply = self._connection.ask(lambda c: c.jobs.ListJobs, request)
        return [job_status(job) for job in reply.jobs]

    def list_tasks(self, job_id: str | JobName) -> list[TaskStatus]:
        """The tasks of a job, by index. Raises NotFound."""
        reply = self._connection.ask(lambda c: c.jobs.ListTasks, pb.ListTasksRequest(job_id=str(job_id)))
        return [task_status(task) for task in reply.tasks]

    def task_status(self, task_id: str | JobName) -> TaskStatus:
        """Return the status of a task ("/user/job/0"). Raises NotFound."""
        reply = self._connection.ask(lambda c: c.jobs.GetTask, pb.GetTaskRequest(task_id=str(task_id)))
        return task_status(reply)

    def fetch_task_logs(
        self,
        target: str | JobName,
        *,
        include_children: bool = False,
        start: Timestamp | None = None,
        since_ms: int = 0,
        since: float = 0,
        max_lines: int = 0,
        from_start: bool = False,
        substring: str = "",
        attempt_id: int = -1,
    ) -> list[TaskLogEntry]:
        """Return the output of a task or job so far, as text (`read_logs` gives it as it was printed, and follows it).

        Args:
            target: A task ("/user/job/0") or a job ("/user/job").
            include_children: Also the jobs below.
            start: Lines printed before are left out; or, as Unix time,
            since_ms: the same in milliseconds; or
            since: in seconds.
            max_lines: The last ones (the first ones with `from_start`); 0: all.
            from_start: Begin with the first line.
            substring: Only lines of these that have it.
            attempt_id: Only lines of these of this attempt; -1: of all.

        Raises:
            NotFound: There is no such job or task.
        """
        begin = max(start.epoch_ms() / 1000 if start is not None else 0, since_ms / 1000, since)
        lines = self.read_logs(
            target, since=begin, max_lines=max_lines, from_start=from_start, include_children=include_children
        )
        return [
            entry for entry in log_entries(lines) if substring in entry.data and attempt_id in (-1, entry.attempt_id)
        ]

    def read_logs(
        self,
        task_id: str | JobName,
        *,
        since: float = 0,
        max_lines: int = 0,
        from_start: bool = False,
        follow: bool = False,
        include_children: bool = False,
        grep: str = "",
        level: str = "",
        until: float = 0,
        attempt: int = -1,
    ) -> Iterator[LogLine]:
        """Read the output of a task or job, without gap or repeat, also when the controller restarts.

        Args:
            task_id: A task ("/user/job/0") or a job ("/user/job").
            since: Unix time in seconds; lines printed before are left out.
            max_lines: The last ones (the first ones with `from_start`); 0: all.
            from_start: Begin with the first line.
            follow: Go on until the job has ended.
            include_children: Also the jobs below.
            grep: Only lines that this regular expression matches somewhere; the controller looks for them.
            level: Only lines of this level and above: debug, info, warning, error, critical.
            until: Unix time in seconds; lines printed later are left out. 0: no end.
            attempt: Only this attempt of each task; -1: all.

        Raises:
            InvalidRequest: An argument is not allowed.
            NotFound: At the first line asked for.
        """
        until_ms = round(check_seconds(until, "until", zero=True) * 1000)
        choice = LineChoice(grep, level, until_ms, attempt)
        since_ms = round(check_seconds(since, "since", zero=True) * 1000)
        count = check_count(max_lines, "max_lines")
        query = LogSelection(str(task_id), include_children, since_ms, count, from_start, follow, choice)
        return read_logs(self._connection, query)

    def wait_jobs(
        self, jobs: Iterable[Job | JobName | str], any: bool = False, timeout: float | None = None
    ) -> list[JobStatus]:
        """Wait until all jobs (or one of them) have ended; return their statuses in the order given.

        Args:
            jobs: Jobs or ids.
            any: One end is enough.
            timeout: Seconds; None: no limit. 0 and less: only look.

        Raises:
            DeadlineExceeded: Time ran out; the jobs go on.
            NotFound: One does not exist.
        """
        given = as_list(jobs, "jobs", "jobs or ids")
        wanted = [(job.job_id, job.key) if isinstance(job, Job) else (str(job), "") for job in given]
        return wait_jobs(self._connection, self._calls, wanted, any_of_them=any, timeout=timeout)

    def poll_jobs(
        self, job_ids: Sequence[str], *, any: bool = False, seconds: float = 0
    ) -> tuple[list[JobStatus], bool]:
        """Wait as `wait_jobs` for at most `seconds` (up to about a minute); also return whether the wait is over.

        Args:
            job_ids: The jobs.
            any: One end is enough.
            seconds: The most to wait; 0: only look.
        """
        return poll_jobs(self._connection, job_ids, any_of_them=any, seconds=seconds)

    def cluster_status(self, *, all_workers: bool = False) -> ClusterStatus:
        """The controller and its workers; with `all_workers` those too that are known but gone."""
        request = pb.ClusterStatusRequest(all_workers=all_workers)
        return cluster_status(self._connection.ask(lambda c: c.cluster.Status, request))

    def query(self, sql: str, max_rows: int = 0) -> QueryResult:
        """Answer one SELECT over the controller's tables (docs/query.md).

        Args:
            sql: The SELECT.
            max_rows: Return at most so many; 0: 1,000.

        Raises:
            InvalidRequest: It is no valid SELECT.
            Denied: It is more than a SELECT.
            BudgetExceeded: It took too long or too much memory, or another query of the user is still being answered.
        """
        request = pb.QueryRequest(sql=sql, max_rows=check_count(max_rows, "max_rows"))
        return query_result(self._connection.ask(lambda c: c.cluster.Query, request, seconds=QUERY_TIMEOUT))


def _job_state(state: object) -> "pb.JobState.ValueType":
    # Older programs give the number, which is public.
    numbers = () if isinstance(state, bool) else JobState
    known = next((each for each in numbers if each == state), None)
    if known is None:
        names = ", ".join(each.name for each in JobState)
        raise InvalidRequest(f"state of jobs: {state!r} is none; give one of JobState: {names}")
    return pb.JobState.Value(f"JOB_STATE_{known.name}")
