"""IrisClient: submit jobs, watch them, stop them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import Connection
from iris.client.connection.discovery import ClusterTarget, cluster_at, find_cluster, local_cluster
from iris.client.endpoints import EndpointResolver
from iris.client.job import Job, handles
from iris.client.job_env import JobEnv
from iris.client.old_words import Seconds, policy_of, seconds_of, warn_of_unused
from iris.client.operator import Operator
from iris.client.plan import JobLimits, JobPlan
from iris.client.reservation import ReservationEntry, hold, holding
from iris.client.stopping import JobStopper
from iris.client.submission.submit import Submitter, chosen_policy
from iris.client.task_ends import fetch_exception, fetch_results
from iris.client.types import (
    JobStatus,
)
from iris.cluster.constraints import Constraint
from iris.cluster.types import (
    CoschedulingConfig,
    DeviceSpec,
    Entrypoint,
    EnvironmentSpec,
    ExistingJobPolicy,
    HealthCheck,
    JobName,
    PriorityBand,
    ResourceSpec,
)
from iris.domain.ids import user_of
from iris.rpc.generated import iris_pb2 as pb


class IrisClient(JobStopper):
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
        super().__init__(connection, calls or JobCalls(connection, lends=connection.lends))
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
        on_sending: Callable[[int], None] | None = None,
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
            on_sending: Called with the number of bytes of the workspace that have been sent, while it is sent.
            inherit_workspace: As of the class.
        """
        connection = target.connect(on_interrupted=on_interrupted)
        connection.on_sending = on_sending
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
        notify_url: str = "",
        retry_window: float | None = None,
        retry_delay: float = 1.0,
        health: HealthCheck | None = None,
        stall_timeout: float | None = None,
        soft_limits: bool | None = None,
        limits_said: bool | None = None,
        cpu_quota: bool = False,
        existing: ExistingJobPolicy | str = ExistingJobPolicy.FAIL,
        adopt_existing: bool = False,
        idempotency_key: str | None = None,
        reservation: Sequence[ReservationEntry | ResourceSpec | DeviceSpec] | None = None,
        existing_job_policy: ExistingJobPolicy | str | None = None,
        preemption_policy: object = None,
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
            health: A command that says whether a task does its work; None: none is asked.
            stall_timeout: Seconds: an attempt that has not called `iris.report_progress()` for so long writes its
                threads into its log and is ended, as a failure of the task. None: it never is.
            retry_delay: Seconds before the first retry after a failure, give or take a quarter; each further one waits
                twice as long, up to 5 minutes. Retries after a preemption do not wait.
            retry_window: Seconds: only failures of the last so many count against `max_retries_failure`, so that a
                service which fails now and then lives on; None: all count.
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
            notify_url: An http(s) address to which the controller posts the end of the job (docs/how-to/services.md).
            soft_limits: Whether tasks may use more memory and disk than `limits_said`; None: as the cluster has it,
                which is no unless its file says otherwise. It may refuse the one or the other.
            limits_said: Whether `resources` is meant as limits, too; None: unless memory is the default, and disk None.
                With `soft_limits=False` the default of memory is meant, too.
            cpu_quota: A task gets no more cpu than it asked for, even while its host is idle.
            existing: The policy for when a live job has that name: fail, adopt it, or replace it.
            adopt_existing: Short for `existing="adopt"`.
            idempotency_key: Submissions with one key make one job; None: each makes its own.
            reservation: Devices to hold for the jobs below it: by its own tasks where there is one for each, all alike,
                else by child jobs. A TPU type of several hosts is a whole slice.
            existing_job_policy: "error", "keep" or "recreate", as older programs say `existing`.
            preemption_policy: Not used: child jobs go on when a task of their parent starts again. A warning where it
                says the opposite.
            task_image: Not used, with a warning: tasks run from the workspace.

        Raises:
            InvalidRequest: The request can never be met; the message says what is allowed.
            JobAlreadyExists: A live job of that name exists.
            ControllerUnreachable: The controller does not answer.
        """
        warn_of_unused(task_image, preemption_policy)
        times = seconds_of(timeout), seconds_of(scheduling_timeout)
        plan = JobPlan(
            entrypoint=entrypoint, name=name, user=user, description=description, working_dir=working_dir,
            resources=ResourceSpec() if resources is None else resources, reserve=reserve,
            soft_limits=soft_limits, limits_said=limits_said, cpu_quota=cpu_quota,
            environment=EnvironmentSpec() if environment is None else environment,
            replicas=replicas, coscheduling=coscheduling, ports=() if ports is None else ports,
            constraints=() if constraints is None else constraints, priority_band=priority_band,
            limits=JobLimits(
                max_retries_failure, max_retries_preemption, *times, max_task_failures, retry_window, retry_delay
            ),
            exclusive=exclusive, fence_after=fence_after, notify_url=notify_url,
            health=health, stall_timeout=stall_timeout,
        )  # fmt: skip
        policy = chosen_policy(policy_of(existing_job_policy, existing), adopt=adopt_existing)
        held = holding(plan, reservation, replicas)
        plan = replace(plan, resources=held.resources, reserve=reserve or held.own)
        job = self.submit_plan(plan, existing=policy, idempotency_key=idempotency_key)
        if held.jobs:
            without_files = self.with_workspace(None)
            hold(job, held.jobs, lambda plan: without_files.submit_plan(plan, existing=ExistingJobPolicy.ADOPT))
        return job

    def submit_plan(
        self,
        plan: JobPlan,
        *,
        existing: ExistingJobPolicy | str = ExistingJobPolicy.FAIL,
        idempotency_key: str | None = None,
    ) -> Job:
        """Submit a job that is described by a `JobPlan`; all else as in `submit`.

        Args:
            plan: The job.
            existing: The policy for when a live job has that name.
            idempotency_key: Submissions with one key make one job; None: each makes its own.
        """
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

    def exception(self, status: JobStatus) -> BaseException | None:
        """Return the exception of a failed callable of this client's user; None where it cannot be had."""
        return fetch_exception(self._connection, self.user, status)

    def results(self, status: JobStatus) -> Sequence[object]:
        """Return what each task of a job that succeeded has returned; raises what `fetch_results` raises."""
        return fetch_results(self._connection, self.user, status)

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
    def resolver(self) -> EndpointResolver:
        """Finds what tasks registered; outside of a job only by full names."""
        return EndpointResolver(self._connection, self._inside.job_id if self._inside else "")

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - accepted for old callers
        """Close the connection; jobs go on, whatever `wait` says."""
        self._connection.close()

    def __enter__(self) -> "IrisClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
