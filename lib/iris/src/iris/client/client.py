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
    """A client of one cluster. Use it as a context manager or call `shutdown`. Thread-safe.

    Create it with `remote`, `local` or `connect`. Inside a job its submissions are child jobs of that job.

    Args:
        connection: The connection to the controller.
        workspace: The directory whose files each job receives: a git repository, a project or a plain folder
            (docs/iris-cli.md lists the files). None means no files, or inside a job that job's workspace.
        user: The submitting user; None for the token's user, or the login name if the token is an admin's.
        inside: The job that this process runs in.
        on_warning: Called with each warning about the workspace or a job; None logs them.
        on_notice: Called with a summary of the sent files, and with the environment of jobs; None logs them.
        inherit_workspace: If False, jobs without a workspace have none inside a job, too.
        same_machine: Whether the cluster's workers see this machine's files, like those of the local cluster.
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
        """Return a client of the controller at `address` ("host:port").

        Args:
            address: The controller's address. A leading "http://" or "grpc://" is dropped.
            workspace: As in the class.
            token: The token that the controller requires. Or pass `token_file`.
            token_file: A file with the token, which is read again at each connection. Inside a job of that controller
                the default is the job's own token.
            user: As in the class.

        Raises:
            InvalidRequest: The address is not "host:port".
        """
        return cls.of(cluster_at(address, token=token, token_file=token_file), workspace, user=user)

    @classmethod
    def local(cls, workspace: Path | str | None = None, *, user: str | None = None) -> "IrisClient":
        """Return a client of this user's own cluster on this machine, starting it if it is not running.

        Raises:
            Unavailable: The cluster could not be started. The message has the reason.
        """
        return cls.of(local_cluster(), workspace, user=user)

    @classmethod
    def connect(
        cls, cluster: str | None = None, workspace: Path | str | None = None, *, config: str | None = None
    ) -> "IrisClient":
        """Return a client of the cluster that the command line would use.

        Args:
            cluster: The cluster's name in the configuration; None for the choice of `find_cluster`.
            workspace: As in the class.
            config: The path of a configuration file; None for those that `find_cluster` reads.
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
        patience: float | None = None,
    ) -> "IrisClient":
        """Return a client of a chosen cluster.

        Args:
            target: The cluster.
            workspace: As in the class.
            user: As in the class; None for the target's user.
            on_warning: As in the class.
            on_notice: As in the class.
            on_interrupted: Called once with a message when a controller that answered before becomes unreachable.
            on_sending: Called repeatedly during the upload with the number of workspace bytes sent so far.
            inherit_workspace: As in the class.
            patience: Seconds that the controller may take to answer; None for the usual limits.
        """
        connection = target.connect(on_interrupted=on_interrupted, patience=patience)
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
        """Return a client for jobs with another workspace. Both share one connection; closing either closes it."""
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
        grace: float | None = None,
        soft_limits: bool | None = None,
        limits_said: bool | None = None,
        cpu_quota: bool = False,
        start_at: float | None = None,
        max_running: int | None = None,
        after: Sequence[str] | None = None,
        existing: ExistingJobPolicy | str = ExistingJobPolicy.FAIL,
        adopt_existing: bool = False,
        idempotency_key: str | None = None,
        reservation: Sequence[ReservationEntry | ResourceSpec | DeviceSpec] | None = None,
        existing_job_policy: ExistingJobPolicy | str | None = None,
        preemption_policy: object = None,
        task_image: str | None = None,
    ) -> Job:
        """Submit a job. On return the controller has stored it durably.

        Args:
            entrypoint: The command or callable of each task.
            name: The job's name, unique among the live jobs of its user (or of its parent job); no "/".
            resources: The resources of each task; None for one core and 1 GB.
            environment: Extra packages and variables. Inside a job whose workspace is inherited, extras and pip
                packages default to that job's. Variables named MARIN_* are forwarded from this process.
            ports: Names of ports to allocate, at most 100. A task finds them as IRIS_PORT_<NAME>.
            scheduling_timeout: Seconds until the job fails if no task is placed; None for no limit.
            constraints: Constraints on the workers' attributes.
            coscheduling: Make the tasks a gang: placed, restarted and stopped together.
            replicas: The number of tasks. For a gang on TPU slices it is rounded up to whole slices, with a warning.
            max_retries_failure: Maximum number of retries of a task after a failure.
            health: A command that checks whether a task is healthy; None for no check.
            stall_timeout: An attempt fails after this many seconds without a call of `iris.report_progress()`, and
                dumps its threads to its log. None for no limit.
            grace: Seconds between the notice of a preemption (`iris.preemption()`) and SIGKILL, at most 600. None for
                30. A platform may give less.
            retry_delay: Seconds before the first retry after a failure, plus or minus a quarter. Each further delay is
                twice as long, up to 5 minutes. Retries after a preemption are immediate.
            retry_window: Only failures in the last `retry_window` seconds count against `max_retries_failure`, so that
                a service survives occasional failures. None counts all.
            max_retries_preemption: Maximum number of retries of a task after it lost its worker.
            timeout: Seconds from the first task's start after which the job fails; None for no limit.
            user: Overrides the client's user; not allowed inside a job.
            priority_band: "production", "interactive" or "batch"; None for the parent job's, or "interactive".
            max_task_failures: Tasks that may fail for good before the job fails. Not for gangs.
            reserve: Reserve the accelerators without attaching them to the tasks.
            exclusive: A task never has two live attempts, even when its host is unreachable. The host ends an attempt
                `fence_after` seconds after its last contact with the controller. The next attempt starts only after
                that.
            fence_after: Only with `exclusive`; None for 600 s.
            working_dir: The tasks' working directory in the workspace, e.g. "sub/folder"; "" for the root. None for the
                current directory if it is in the workspace, else the root.
            description: The purpose of the job, in one line.
            notify_url: An http(s) address to which the controller posts the job's end (docs/how-to/services.md).
            soft_limits: Whether tasks may exceed their memory and disk limits (`limits_said`). None for the cluster's
                default, usually False. The cluster may refuse either value.
            limits_said: Whether `resources` are also limits. None: yes, unless memory is the default and disk is None.
                With `soft_limits=False`, the default memory is also a limit.
            cpu_quota: Never give a task more CPU than it requested, even while its host is idle.
            start_at: Unix time in seconds before which no task starts; None for at once. `scheduling_timeout` counts
                from there.
            max_running: Maximum number of tasks that run at the same time; None for all. Not for gangs.
            after: Jobs that must succeed before this one starts; with ":any" after its name, one must only end. If one
                does not succeed, this job ends UNSCHEDULABLE. `scheduling_timeout` counts from the last end.
            existing: What to do if a live job has the same name: fail, adopt it, or replace it.
            adopt_existing: Short for `existing="adopt"`.
            idempotency_key: Submissions with the same key create one job; None creates a new job each time.
            reservation: Devices to reserve for child jobs. The job's own tasks hold identical devices if each task can
                hold one; otherwise separate child jobs hold them. A TPU type with several hosts means a whole slice.
            existing_job_policy: "error", "keep" or "recreate": the older name of `existing`.
            preemption_policy: Ignored, because child jobs always continue when a task of their parent restarts. Any
                other policy causes a warning.
            task_image: The container image of the tasks (docs/containers.md); "" for none. None for the parent job's or
                the cluster's.

        Raises:
            InvalidRequest: The request can never succeed. The message names the allowed values.
            JobAlreadyExists: A live job has the same name.
            ControllerUnreachable: The controller does not answer.
        """
        warn_of_unused(preemption_policy)
        times = seconds_of(timeout), seconds_of(scheduling_timeout)
        plan = JobPlan(
            entrypoint=entrypoint, name=name, user=user, description=description, working_dir=working_dir,
            image=task_image,
            resources=ResourceSpec() if resources is None else resources, reserve=reserve,
            soft_limits=soft_limits, limits_said=limits_said, cpu_quota=cpu_quota,
            environment=EnvironmentSpec() if environment is None else environment,
            replicas=replicas, coscheduling=coscheduling, ports=() if ports is None else ports,
            constraints=() if constraints is None else constraints, priority_band=priority_band,
            limits=JobLimits(
                max_retries_failure, max_retries_preemption, *times, max_task_failures, retry_window, retry_delay
            ),
            exclusive=exclusive, fence_after=fence_after, notify_url=notify_url,
            health=health, stall_timeout=stall_timeout, grace=grace, start_at=start_at, max_running=max_running,
            after=() if after is None else after,
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
        """Submit a job described by a `JobPlan`. Otherwise like `submit`.

        Args:
            plan: The job.
            existing: What to do if a live job has the same name.
            idempotency_key: Submissions with the same key create one job; None creates a new job each time.
        """
        submission = self._submitter.submit(plan, existing=existing, idempotency_key=idempotency_key)
        return Job(self, submission.job_id, submission.key)

    def submit_many(
        self, plans: Sequence[JobPlan], *, existing: ExistingJobPolicy | str = ExistingJobPolicy.FAIL
    ) -> list[Job]:
        """Submit many jobs in one batch, which is much cheaper than one by one. Return their handles in order.

        Args:
            plans: The jobs.
            existing: What to do if a live job has the same name.

        Raises:
            InvalidRequest: A job can never succeed. No job was submitted.
            SomeRefused: The cluster refused some jobs. The error has the handles of the accepted ones.
            ControllerUnreachable: The controller does not answer.
        """
        return handles(self, self._submitter.submit_many(plans, existing=existing))

    @property
    def user(self) -> str:
        """The user who owns jobs submitted by this client."""
        return user_of(self.full_name_prefix())

    def full_name_prefix(self) -> str:
        """Return the start of the full names of this client's jobs: "/user", or inside a job that job's id."""
        return self._submitter.prefix()

    def job(self, job_id: str) -> Job:
        """Return a handle of an existing job. The controller is not contacted until the handle is used."""
        return Job(self, str(JobName.from_string(job_id).job))

    def exception(self, status: JobStatus) -> BaseException | None:
        """Return the exception of a failed callable of this client's user; None if it is not available."""
        return fetch_exception(self._connection, self.user, status)

    def results(self, status: JobStatus) -> Sequence[object]:
        """Return the return values of a successful job's tasks. Raise like `fetch_results`."""
        return fetch_results(self._connection, self.user, status)

    def stop_cluster(self, *, stop_jobs: bool = False) -> list[str]:
        """Stop the controller, and return the stopped jobs. Raise Conflict if there are live jobs and `stop_jobs` is
        off.
        """
        request = pb.ShutdownRequest(stop_jobs=stop_jobs)
        reply = self._connection.ask(lambda c: c.cluster.Shutdown, request, retry=False)
        return list(reply.stopped_job_ids)

    @property
    def operator(self) -> Operator:
        """The operations of cluster operators: cordons, budgets, checkpoints."""
        return Operator(self._connection)

    @property
    def resolver(self) -> EndpointResolver:
        """Finds endpoints that tasks registered. Outside of a job, names must be full."""
        return EndpointResolver(self._connection, self._inside.job_id if self._inside else "")

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - accepted for old callers
        """Close the connection. Jobs continue, whatever `wait` says."""
        self._connection.close()

    def __enter__(self) -> "IrisClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
