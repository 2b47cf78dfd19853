"""Jobs as their submitters describe them, and the check that every part is of the right type."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from iris.cluster.constraints import Constraint
from iris.cluster.types import CoschedulingConfig, Entrypoint, EnvironmentSpec, PriorityBand, ResourceSpec
from rigging.arguments import as_list, as_texts, check_text, check_type


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
    """A job to submit, with the names of `IrisClient.submit`.

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


def checked_plans(plans: Iterable[JobPlan]) -> list[JobPlan]:
    """The plans with their lists (or iterators) read. Raises InvalidRequest for an argument of another type."""
    checked = []
    for place, plan in enumerate(as_list(plans, "plans", "JobPlan")):
        check_type(plan, JobPlan, f"plans[{place}]", "a JobPlan")
        checked.append(_checked(plan))
    return checked


def _checked(plan: JobPlan) -> JobPlan:
    # Only the types: what the arguments say is judged where it is used.
    constraints = as_list(plan.constraints, "constraints", "Constraint")
    for place, constraint in enumerate(constraints):
        check_type(constraint, Constraint, f"constraints[{place}]", "a Constraint")
    _check_types(plan)
    return replace(plan, constraints=constraints, ports=as_texts(plan.ports, "ports"))


def _check_types(plan: JobPlan) -> None:
    entrypoint = "an Entrypoint: use Entrypoint.from_command(program, *args) or Entrypoint.from_callable(fn, *args)"
    check_type(plan.entrypoint, Entrypoint, "entrypoint", entrypoint)
    check_text(plan.name, "name")
    check_type(plan.resources, ResourceSpec, "resources", "a ResourceSpec")
    check_type(plan.environment, EnvironmentSpec, "environment", "an EnvironmentSpec")
    check_type(plan.limits, JobLimits, "limits", "JobLimits")
    gang = "a CoschedulingConfig, or None"
    check_type(plan.coscheduling, (CoschedulingConfig, type(None)), "coscheduling", gang)
    bands = ", ".join(band.word for band in PriorityBand)
    check_type(plan.priority_band, (PriorityBand, str, type(None)), "priority_band", f"one of {bands}, or None")
    check_type(plan.reserve, bool, "reserve", "True or False")
    check_type(plan.exclusive, bool, "exclusive", "True or False")
    check_type(plan.fence_after, (int, float, type(None)), "fence_after", "a number of seconds, or None")
    for what, text in (("user", plan.user), ("working_dir", plan.working_dir)):
        if text is not None:
            check_text(text, what)
