"""The read-only calls of `IrisClient`: jobs, their tasks and output, waits, workers, queries."""

from collections.abc import Iterable, Iterator, Sequence

from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import QUERY_TIMEOUT, Connection
from iris.client.connection.waiting import poll_jobs, wait_jobs
from iris.client.connection.wire import cluster_status, job_status, query_result, task_status, worker_with_attempts
from iris.client.job import Job
from iris.client.logs.stream import LogSelection, read_logs
from iris.client.types import (
    ClusterStatus,
    JobStatus,
    LogLine,
    QueryResult,
    TaskLogEntry,
    TaskStatus,
    WorkerStatus,
    log_entries,
)
from iris.cluster.types import JobName, JobState
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logfilter import LineChoice
from rigging.arguments import as_list, as_texts
from rigging.errors import InvalidRequest
from rigging.text.quantities import check_count, check_seconds
from rigging.timing import Timestamp


class ClusterReader:
    """Read the state of one cluster: the base of `IrisClient`. Thread-safe.

    Args:
        connection: The connection to the controller.
        calls: The calls about jobs, shared with submissions.
    """

    def __init__(self, connection: Connection, calls: JobCalls) -> None:
        self._connection = connection
        self._calls = calls

    @property
    def address(self) -> str:
        """The controller's last known address, "host:port"."""
        return self._connection.address

    @property
    def connection(self) -> Connection:
        """The connection to the controller."""
        return self._connection

    def status(self, job_id: str | JobName) -> JobStatus:
        """Return the status of a job. Raise NotFound."""
        reply = self._connection.ask(lambda c: c.jobs.GetJob, pb.GetJobRequest(job_id=str(job_id)))
        return job_status(reply)

    def job_state(self, job_id: str | JobName) -> JobState:
        """Return the state of a job. Raise NotFound."""
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
            prefix: Include only jobs below "/user" or "/user/job", or whose ids begin with it: "/user/begin*".
            states: Include only jobs in one of these states, by value or number; none for all.
            limit: Maximum number of jobs; 0 for 200.
            state: Include only jobs in this state.

        Raises:
            InvalidRequest: A state is not a JobState.
        """
        wanted = [_job_state(each) for each in (*states, *(() if state is None else (state,)))]
        request = pb.ListJobsRequest(prefix=str(prefix or ""), states=wanted, limit=check_count(limit, "limit"))
        reply = self._connection.ask(lambda c: c.jobs.ListJobs, request)
        return [job_status(job) for job in reply.jobs]

    def list_tasks(self, job_id: str | JobName, limit: int = 0) -> list[TaskStatus]:
        """Return the tasks of a job, by index.

        Args:
            job_id: The job.
            limit: Maximum number of tasks; 0 for all. Of a job with more tasks, failed ones come before running ones,
                then pending ones, then succeeded ones, and their usage is absent.

        Raises:
            NotFound: The job does not exist.
        """
        found: list[TaskStatus] = []
        first, limit = 0, check_count(limit, "limit")
        while True:
            request = pb.ListTasksRequest(job_id=str(job_id), limit=limit, first_index=first)
            reply = self._connection.ask(lambda c: c.jobs.ListTasks, request)
            found += map(task_status, reply.tasks)
            if not (first := reply.next_index):
                return found

    def task_status(self, task_id: str | JobName) -> TaskStatus:
        """Return the status of a task ("/user/job/0"). Raise NotFound."""
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
        """Return the output of a task or job so far as text. `read_logs` returns bytes and can follow the log.

        Args:
            target: A task ("/user/job/0") or a job ("/user/job").
            include_children: Include child jobs.
            start: Skip lines printed before this time.
            since_ms: Like `start`, as Unix time in milliseconds.
            since: Like `start`, as Unix time in seconds.
            max_lines: Maximum number of lines, counted from the end (from the start with `from_start`); 0 for all.
            from_start: Start with the first line.
            substring: Of the lines so far, include only those that contain this text.
            attempt_id: Of the lines so far, include only those of this attempt; -1 for all.

        Raises:
            NotFound: The job or task does not exist.
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
        """Read the output of a task or job without gaps or repeats, even if the controller restarts.

        Args:
            task_id: A task ("/user/job/0") or a job ("/user/job").
            since: Unix time in seconds. Lines printed before are skipped.
            max_lines: Maximum number of lines, counted from the end (from the start with `from_start`); 0 for all.
            from_start: Start with the first line.
            follow: Follow the log until the job has ended.
            include_children: Include child jobs.
            grep: Include only lines with a match of this regular expression. The controller does the search.
            level: Include only lines of this level and above: debug, info, warning, error, critical.
            until: Unix time in seconds. Lines printed later are skipped. 0 for no end.
            attempt: Include only this attempt of each task; -1 for all.

        Raises:
            InvalidRequest: An argument is not allowed.
            NotFound: Raised when the first line is requested.
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
        """Wait until all jobs (or one of them) have ended. Return their statuses in the given order.

        Args:
            jobs: Jobs or ids.
            any: Return when one of them has ended.
            timeout: Seconds; None for no limit. 0 or less only checks.

        Raises:
            DeadlineExceeded: The timeout expired. The jobs continue.
            NotFound: A job does not exist.
        """
        given = as_list(jobs, "jobs", "jobs or ids")
        wanted = [(job.job_id, job.key) if isinstance(job, Job) else (str(job), "") for job in given]
        return wait_jobs(self._connection, self._calls, wanted, any_of_them=any, timeout=timeout)

    def poll_jobs(
        self, job_ids: Sequence[str], *, any: bool = False, seconds: float = 0
    ) -> tuple[list[JobStatus], bool]:
        """Wait like `wait_jobs` for up to `seconds` (about a minute at most), and also return whether the wait is over.

        Args:
            job_ids: The jobs.
            any: Return when one of them has ended.
            seconds: Maximum time to wait; 0 only checks.
        """
        return poll_jobs(self._connection, job_ids, any_of_them=any, seconds=seconds)

    def cluster_status(self, *, all_workers: bool = False) -> ClusterStatus:
        """Return the controller and its workers. With `all_workers`, include disconnected workers."""
        request = pb.ClusterStatusRequest(all_workers=all_workers)
        return cluster_status(self._connection.ask(lambda c: c.cluster.Status, request))

    def workers(self, worker_ids: Sequence[str]) -> list[WorkerStatus]:
        """Return these workers with their attempts, gone or not. Unknown workers are omitted."""
        names = as_texts(worker_ids, "worker_ids")
        if not names:
            return []
        request = pb.ClusterStatusRequest(worker_ids=names)
        reply = self._connection.ask(lambda c: c.cluster.Status, request)
        return [worker_with_attempts(worker) for worker in reply.workers]

    def query(self, sql: str, max_rows: int = 0) -> QueryResult:
        """Return the answer to one SELECT over the controller's tables (docs/query.md).

        Args:
            sql: The SELECT statement.
            max_rows: Maximum number of rows; 0 for 1,000.

        Raises:
            InvalidRequest: The statement is not a valid SELECT.
            Denied: The statement is not only a SELECT.
            BudgetExceeded: The query took too long or too much memory, or another query of the user is still running.
        """
        request = pb.QueryRequest(sql=sql, max_rows=check_count(max_rows, "max_rows"))
        return query_result(self._connection.ask(lambda c: c.cluster.Query, request, seconds=QUERY_TIMEOUT))


def _job_state(state: object) -> "pb.JobState.ValueType":
    # Older programs give the number, which is public.
    numbers = () if isinstance(state, bool) else JobState
    known = next((each for each in numbers if each == state), None)
    if known is None:
        names = ", ".join(each.name for each in JobState)
        raise InvalidRequest(f"state of jobs: {state!r} is unknown; give one of JobState: {names}")
    return pb.JobState.Value(f"JOB_STATE_{known.name}")
