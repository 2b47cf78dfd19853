"""What a job is, as its submitter says it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from iris.cluster.constraints import Constraint
from iris.cluster.types import CoschedulingConfig, Entrypoint, EnvironmentSpec, PriorityBand, ResourceSpec


@dataclass(frozen=True, slots=True)
class JobLimits:
    """How often a job tries and how long, with the names of `IrisClient.submit`.

    Args:
        max_retries_failure: How often a task starts again after it failed.
        max_retries_preemption: How often it does after its worker was lost.
        timeout: Seconds from the first task's start, after which the job fails.
        scheduling_timeout: Seconds until the first task is placed, or the job fails.
        max_task_failures: Tasks that may fail for good before the job fails; not for gangs.
    """

    max_retries_failure: int = 0
    max_retries_preemption: int = 1000
    timeout: float | None = None
    scheduling_timeout: float | None = None
    max_task_failures: int = 0


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job is, with the names of `IrisClient.submit`.

    Args:
        entrypoint: What each task runs.
        name: Names the job among the live ones of its user (or of its parent job): no "/".
        user: Instead of the client's; not inside a job.
        resources: What each task needs.
        environment: Extra packages and variables. Inside a job whose workspace is used on, extras and pip packages
            that are not given are those of that job. Variables named MARIN_* are passed on from this process.
        replicas: Number of tasks; of a gang on TPU slices, rounded up to whole slices, with a warning.
        limits: Retries and times; see `JobLimits`.
        constraints: On the workers' attributes.
        coscheduling: Makes the tasks a gang.
        ports: Names of ports to allocate, at most 100; a task finds them as IRIS_PORT_<NAME>.
        priority_band: "production", "interactive" or "batch".
        reserve: Hold the accelerators without attaching them to the tasks.
        exclusive: A task never has two live attempts, even when its host is out of reach: the host ends an attempt
            `fence_after` seconds after its last contact with the controller, and the next one waits for that.
        fence_after: Only with `exclusive`; None: 600 s.
        working_dir: Where in the workspace the tasks run, e.g. "sub/folder"; "" is its top. None: in the directory
            that is the current one here, when that is in the workspace, else at its top.
    """

    entrypoint: Entrypoint
    name: str
    user: str | None = None
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    environment: EnvironmentSpec = field(default_factory=EnvironmentSpec)
    replicas: int = 1
    limits: JobLimits = JobLimits()
    constraints: Sequence[Constraint] = ()
    coscheduling: CoschedulingConfig | None = None
    ports: Sequence[str] = ()
    priority_band: PriorityBand | str | None = None
    reserve: bool = False
    exclusive: bool = False
    fence_after: float | None = None
    working_dir: str | None = None
