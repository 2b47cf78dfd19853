"""IrisClient: submit jobs, watch them, stop them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import Connection
from iris.client.connection.discovery import ClusterTarget, cluster_at, find_cluster, local_cluster
from iris.client.connection.waiting import poll_jobs, wait_jobs
from iris.client.connection.wire import cluster_status, job_status, query_result, stopped, task_status
from iris.client.endpoints import EndpointResolver
from iris.client.job import Job, handles
from iris.client.job_env import JobEnv
from iris.client.logs.stream import LogSelection, read_logs
from iris.client.old_words import ReservationEntry, Seconds, policy_of, reserved, seconds_of, warn_of_image
from iris.client.operator import Operator
from iris.client.plan import JobLimits, JobPlan
from iris.client.submission.submit import Submitter, chosen_policy
from iris.client.task_exceptions import fetch_exception
from iris.client.types import (
    ClusterStatus,
    JobStatus,
    LogLine,
    QueryResult,
    Stopped,
    TaskLogEntry,
    TaskStatus,
    log_entries,
)
from iris.cluster.constraints import Constraint
from iris.cluster.types import (
    CoschedulingConfig,
    DeviceSpec,
    Entrypoint,
    EnvironmentSpec,
    ExistingJobPolicy,
    JobName,
    JobState,
    PriorityBand,
    ResourceSpec,
)
from iris.domain.ids import user_of
from iris.rpc import iris_pb2 as pb
from rigging.arguments import as_list
from rigging.errors import MarinError
from rigging.quantities import check_count, check_seconds
from rigging.timing import Timestamp

MOST_LISTED: Final = 1000


class IrisClient:
    """A client of one cluster; use it as a context manager or call `shutdown`. Thread-safe.

    Made by `remote`, `local` or `connect`. Inside a job its submissions are child jobs of that job.

    Args:
        connection: How the controller is reached.
        workspace: Directory whose files go along with each job, whatever it is: a git repository, a project or a plain
            folder (docs/iris-cli.md says which files); None: none, or inside a job that job's own.
        user: Who submits; None: the user of the token, or the login name where that is an admin's.
        inside: The job this process runs as.
        on_warning: Called with each line the user should see about the workspace or a job; None: it is logged.
        on_notice: Called with what was sent of the workspace, and which environment jobs get; None: it is logged.
        inherit_workspace: False: without a workspace jobs have none inside a job, too.
        same_machine: Whether the cluster's workers see this machine's files, as those of the local cluster do.
    """

    def __init__(
        self,
        connection: Connection,
        workspace: Path | str | None = None,
        *,
        user: str | None = None,
        inside: JobEnv | None = None,
        on_warning: Callable[[str], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        inherit_workspace: bool = True,
        same_machine: bool = False,
        calls: JobCalls | None = None,
    ) -> None:
        self._connection = connection
        self._calls = calls or JobCalls(connection, lends=connection.lends)
        self._user = user
        self._inside = inside
        self._on_warning = on_warning
        self._on_notice = on_notice
        self._same_machine = same_machine
        self._submitter = Submitter(
            connection,
            Path(workspace) if workspace is not None else None,
            user=user,
            inside=inside,
            warn=on_warning,
            notice=on_notice,
            inherit=inherit_workspace,
            same_machine=same_machine,
            calls=self._calls,
        )

    @classmethod
    def remote(
        cls,
        address: str,
        workspace: Path | str | None = None,
        *,
        token: str | None = None,
        token_file: str | None = None,
        user: str | None = None,
    ) -> "IrisClient":
        """A client of the controller at `address` ("host:port").

        Args:
            address: Where it listens; "http://" or "grpc://" in front is dropped.
            workspace: See the class.
            token: What the controller asks for; or
            token_file: a file that holds it, read again at each connection. Inside a job of that controller the
                job's own token is the default.
            user: See the class.

        Raises:
            InvalidRequest: No "host:port".
        """
        return cls.of(cluster_at(address, token=token, token_file=token_file), workspace, user=user)

    @classmethod
    def local(cls, workspace: Path | str | None = None, *, user: str | None = None) -> "IrisClient":
        """A client of this user's own cluster on this machine, which is started when it does not run.

        Raises:
            Unavailable: It could not be started; the message says why.
        """
        return cls.of(local_cluster(), workspace, user=user)

    @classmethod
    def connect(
        cls, cluster: str | None = None, workspace: Path | str | None = None, *, config: str | None = None
    ) -> "IrisClient":
        """Return a client of the cluster that the command line would use.

        Args:
            cluster: Its name in the configuration; None: as `find_cluster` chooses.
            workspace: As of the class.
            config: Path of a configuration file; None: those that `find_cluster` reads.
        """
        return cls.of(find_cluster(cluster, config=config), workspace)

    @classmethod
    def of(
        cls,
        target: ClusterTarget,
        workspace: Path | str | None = None,
        *,
        user: str | None = None,
        on_warning: Callable[[str], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        on_interrupted: Callable[[str], None] | None = None,
        inherit_workspace: bool = True,
    ) -> "IrisClient":
        """Return a client of a cluster that was chosen.

        Args:
            target: The cluster.
            workspace: As of the class.
            user: As of the class; None: the one that the target names.
            on_warning: As of the class.
            on_notice: As of the class.
            on_interrupted: Called once, with one line for people, when a controller that answered before is away.
            inherit_workspace: As of the class.
        """
        connection = target.connect(on_interrupted=on_interrupted)
        return cls(
            connection,
            workspace,
            user=user or target.user or None,
            inside=target.inside,
            on_warning=on_warning,
            on_notice=on_notice,
            inherit_workspace=inherit_workspace,
            same_machine=target.same_machine,
        )

    def with_workspace(self, workspace: Path | str | None) -> "IrisClient":
        """The same client for jobs with another workspace; it shares this one's connection, which closes both."""
        return IrisClient(
            self._connection,
            workspace,
            user=self._user,
            inside=self._inside,
            on_warning=self._on_warning,
            on_notice=self._on_notice,
            same_machine=self._same_machine,
            calls=self._calls,
        )

    def submit(
        self,
        entrypoint: Entrypoint,
        name: str,
        resources: ResourceSpec | None = None,
        environment: EnvironmentSpec | None = None,
        ports: Sequence[str] | None = None,
        scheduling_timeout: Seconds | None = None,
        constraints: Sequence[Constraint] | None = None,
        coscheduling: CoschedulingConfig | None = None,
        replicas: int = 1,
        max_retries_failure: int = 0,
        max_retries_preemption: int = 1000,
        timeout: Seconds | None = None,
        user: str | None = None,
        priority_band: PriorityBand | str | None = None,
        *,
        max_task_failures: int = 0,
        reserve: bool = False,
        exclusive: bool = False,
        fence_after: float | None = None,
        working_dir: str | None = None,
        description: str = "",
        existing: ExistingJobPolicy | str = ExistingJobPolicy.FAIL,
        adopt_existing: bool = False,
        idempotency_key: str | None = None,
        reservation: Sequence[ReservationEntry | ResourceSpec | DeviceSpec] | None = None,
        existing_job_policy: ExistingJobPolicy | str | None = None,
        preemption_policy: object = None,  # noqa: ARG002 - accepted for old callers
        task_image: str | None = None,
    ) -> Job:
        """Submit a job; when this returns it is stored by the controller and will not be lost.

        Args:
            entrypoint: The command or callable that each task runs.
            name: Names the job among the live ones of its user (or of its parent job): no "/".
            resources: Needs of each task; None: one core and 1 GB.
            environment: Extra packages and variables. Inside a job whose workspace is used on, extras and pip packages
                that are not given are those of that job. Variables named MARIN_* are passed on from this process.
            ports: Names of ports to allocate, at most 100; a task finds them as IRIS_PORT_<NAME>.
            scheduling_timeout: Seconds until the first task is placed, or the job fails; None: no limit.
            constraints: On the workers' attributes.
            coscheduling: Makes the tasks a gang, placed, restarted and stopped together.
            replicas: Number of tasks; of a gang on TPU slices, rounded up to whole slices, with a warning.
            max_retries_failure: Number of times that a task starts again after it failed.
            max_retries_preemption: Number of times that a task starts again after its worker was lost.
            timeout: Seconds from the first task's start, after which the job fails; None: no limit.
            user: Instead of the client's; not inside a job.
            priority_band: "production", "interactive" or "batch"; None: the parent job's, or "interactive".
            max_task_failures: Tasks that may fail for good before the job fails; not for gangs.
            reserve: Hold the accelerators without attaching them to the tasks.
            exclusive: A task never has two live attempts, even when its host is out of reach: the host ends an attempt
                `fence_after` seconds after its last contact with the controller, and the next one waits for that.
            fence_after: Only with `exclusive`; None: 600 s.
            working_dir: Directory of the workspace in which the tasks run, e.g. "sub/folder"; "" is its top. None: the
                current one, when that is in the workspace, else its top.
            description: The purpose of the job, in a line for people.
            existing: The policy for when a live job has that name: fail, adopt it, or replace it.
            adopt_existing: Short for `existing="adopt"`.
            idempotency_key: Submissions with one key make one job; None: each makes its own.
            reservation: Devices to hold while the job lives; held when there is one for each task, all alike.
            existing_job_policy: "error", "keep" or "recreate", as older programs say `existing`.
            preemption_policy: Not used.
            task_image: Not used, with a warning: tasks run from the workspace.

        Raises:
            InvalidRequest: The request can never be met; the message says what is allowed.
            JobAlreadyExists: A live job of that name exists.
            ControllerUnreachable: The controller does not answer.
        """
        wanted = ResourceSpec() if resources is None else resources
        holding = reserved(wanted, replicas, reservation) if reservation else None
        warn_of_image(task_image)
        if existing_job_policy is not None:
            existing = policy_of(existing_job_policy)
        plan = JobPlan(
            entrypoint=entrypoint,
            name=name,
            user=user,
            resources=holding or wanted,
            environment=EnvironmentSpec() if environment is None else environment,
            replicas=replicas,
            limits=JobLimits(
                max_retries_failure,
                max_retries_preemption,
                seconds_of(timeout),
                seconds_of(scheduling_timeout),
                max_task_failures,
            ),
            constraints=() if constraints is None else constraints,
            coscheduling=coscheduling,
            ports=() if ports is None else ports,
            priority_band=priority_band,
            reserve=reserve or holding is not None,
            exclusive=exclusive,
            fence_after=fence_after,
            working_dir=working_dir,
            description=description,
        )
        return self.submit_plan(
            plan, existing=chosen_policy(existing, adopt=adopt_existing), idempotency_key=idempotency_key
        )

    def submit_plan(
        self,
        plan: JobPlan,
        *,
        existing: ExistingJobPolicy | str = ExistingJobPolicy.FAIL,
        idempotency_key: str | None = None,
    ) -> Job:
        """Submit a job that is described by a `JobPlan`; all else as in `submit`."""
        submission = self._submitter.submit(plan, existing=existing, idempotency_key=idempotency_key)
        return Job(self, submission.job_id, submission.key)

    def submit_many(
        self, plans: Sequence[JobPlan], *, existing: ExistingJobPolicy | str = ExistingJobPolicy.FAIL
    ) -> list[Job]:
        """Submit many jobs together, far cheaper than one by one; return their handles, in the same order.

        Args:
            plans: The jobs.
            existing: The policy for when a live job has the name of one.

        Raises:
            InvalidRequest: One can never work; none was submitted.
            SomeRefused: The cluster refused some; it has the handles of the others, which are stored.
            ControllerUnreachable: The controller does not answer.
        """
        return handles(self, self._submitter.submit_many(plans, existing=existing))

    @property
    def user(self) -> str:
        """The user to whom the jobs submitted here belong."""
        return user_of(self.full_name_prefix())

    def full_name_prefix(self) -> str:
        """Return the start of the full names of jobs submitted here: "/user", or inside a job that job's id."""
        return self._submitter.prefix()

    def job(self, job_id: str) -> Job:
        """A handle of a job that exists already (nothing is asked until it is used)."""
        return Job(self, str(JobName.from_string(job_id).job))

    def status(self, job_id: str | JobName) -> JobStatus:
        """Return the status of a job. Raises NotFound."""
        reply = self._connection.ask(lambda c: c.jobs.GetJob, pb.GetJobRequest(job_id=str(job_id)))
        return job_status(reply)

    def job_state(self, job_id: str | JobName) -> JobState:
        """Return the state of a job. Raises NotFound."""
        return self.status(job_id).state

    def terminate(self, job_id: str | JobName, reason: str = "", *, include_children: bool = True) -> list[str]:
        """Stop a job and its live children; return the ids of those stopped (none: it had ended before).

        The decision is final when this returns; `wait_jobs` waits until the processes are gone.

        Args:
            job_id: The job.
            reason: Shown to users.
            include_children: False: its child jobs go on.

        Raises:
            NotFound: There is no such job.
        """
        return list(self.stop(job_id, reason, include_children=include_children).job_ids)

    def stop(self, job_id: str | JobName, reason: str = "", *, include_children: bool = True) -> Stopped:
        """Stop as `terminate`; the answer also names attempts that may live on where they cannot be stopped now."""
        (result,) = self.stop_many([job_id], reason, include_children=include_children)
        if isinstance(result, MarinError):
            raise result
        return result

    def stop_many(
        self, job_ids: Sequence[str | JobName], reason: str = "", *, include_children: bool = True
    ) -> list[Stopped | MarinError]:
        """Stop as `stop` many jobs in one decision; return for each its result, or why it could not be stopped."""
        keep = not include_children
        requests = [pb.StopJobRequest(job_id=str(job_id), reason=reason, keep_children=keep) for job_id in job_ids]
        return [reply if isinstance(reply, MarinError) else stopped(reply) for reply in self._calls.stop(requests)]

    def terminate_prefix(self, prefix: str | JobName, reason: str = "") -> list[JobName]:
        """Stop the live jobs whose names begin with `prefix`, with their children; return those that were stopped."""
        live = [state for state in JobState if state and not state.is_terminal]
        found = self.list_jobs("/" + str(prefix)[1:].partition("/")[0], states=live, limit=MOST_LISTED)
        stopped_now: dict[JobName, None] = {}
        for status in found:
            if status.job_id.startswith(str(prefix)):
                stopped_now.update(dict.fromkeys(map(JobName.known, self.terminate(status.job_id, reason))))
        return list(stopped_now)

    def list_jobs(
        self,
        prefix: str | JobName | None = "",
        states: Iterable[JobState] = (),
        limit: int = 0,
        *,
        state: JobState | None = None,
    ) -> list[JobStatus]:
        """Return jobs, newest first.

        Args:
            prefix: Only those below "/user" or "/user/job".
            states: Only those in one of these states; none: in any.
            limit: At most so many; 0: 200.
            state: Only those in this state.
        """
        wanted = [pb.JobState.Value(f"JOB_STATE_{each.name}") for each in (*states, *((state,) if state else ()))]
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
    ) -> Iterator[LogLine]:
        """Read the output of a task or job, without gap or repeat, also when the controller restarts.

        Args:
            task_id: A task ("/user/job/0") or a job ("/user/job").
            since: Unix time in seconds; lines printed before are left out.
            max_lines: The last ones (the first ones with `from_start`); 0: all.
            from_start: Begin with the first line.
            follow: Go on until the job has ended.
            include_children: Also the jobs below.

        Raises:
            NotFound: At the first line asked for.
        """
        since_ms = round(check_seconds(since, "since", zero=True) * 1000)
        count = check_count(max_lines, "max_lines")
        query = LogSelection(str(task_id), include_children, since_ms, count, from_start, follow)
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

    def exception(self, status: JobStatus) -> BaseException | None:
        """Return the exception of a failed callable of this client's user; None where it cannot be had."""
        return fetch_exception(self._connection, self.user, status)

    def poll_jobs(
        self, job_ids: Sequence[str], *, any: bool = False, seconds: float = 0
    ) -> tuple[list[JobStatus], bool]:
        """Wait as `wait_jobs` for at most `seconds` (up to about a minute); also return whether the wait is over."""
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
            BudgetExceeded: It took too long.
        """
        request = pb.QueryRequest(sql=sql, max_rows=check_count(max_rows, "max_rows"))
        return query_result(self._connection.ask(lambda c: c.cluster.Query, request))

    def stop_cluster(self, *, stop_jobs: bool = False) -> list[str]:
        """Make the controller leave; returns the jobs stopped for it. Raises Conflict when live jobs are to be kept."""
        request = pb.ShutdownRequest(stop_jobs=stop_jobs)
        reply = self._connection.ask(lambda c: c.cluster.Shutdown, request, retry=False)
        return list(reply.stopped_job_ids)

    @property
    def operator(self) -> Operator:
        """The calls of operators: cordons, budgets, checkpoints."""
        return Operator(self._connection)

    @property
    def address(self) -> str:
        """The address at which the controller was found last, "host:port"."""
        return self._connection.address

    @property
    def resolver(self) -> EndpointResolver:
        """Finds what tasks registered; outside of a job only by full names."""
        return EndpointResolver(self._connection, self._inside.job_id if self._inside else "")

    @property
    def connection(self) -> Connection:
        """The connection to the controller."""
        return self._connection

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - accepted for old callers
        """Close the connection; jobs go on, whatever `wait` says."""
        self._connection.close()

    def __enter__(self) -> "IrisClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
