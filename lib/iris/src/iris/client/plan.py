"""Validates the jobs that users describe, and converts them to iris's form."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from iris.cluster.constraints import Constraint, validate_constraint
from iris.cluster.types import CoschedulingConfig, Entrypoint, EnvironmentSpec, HealthCheck, PriorityBand, ResourceSpec
from iris.domain.ids import JobId, validate_job_id, validate_name
from iris.domain.job_spec import AFTER_CONDITIONS, MAX_FENCE_AFTER_MS, CallableEntrypoint, CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.runtime import TaskRuntime
from iris.domain.webhooks import parse_webhook
from rigging.arguments import as_list, as_texts, check_text, check_type
from rigging.errors import InvalidRequest
from rigging.text.quantities import check_count, check_seconds

_SHORTEST_S: Final = 0.001
_BANDS: Final = ", ".join(band.word for band in PriorityBand)


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Retries and time limits of a job. `IrisClient.submit` explains the fields."""

    max_retries_failure: int = 0
    max_retries_preemption: int = 1000
    timeout: float | None = None
    scheduling_timeout: float | None = None
    max_task_failures: int = 0
    retry_window: float | None = None
    retry_delay: float = 1.0


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job to submit. `IrisClient.submit` explains the fields.

    Args:
        limits: Retries and time limits (see `JobLimits`).
        parent: The live parent job, "/user/job"; None for the current job, if there is one.
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
    image: str | None = None
    description: str = ""
    notify_url: str = ""
    health: HealthCheck | None = None
    stall_timeout: float | None = None
    grace: float | None = None
    soft_limits: bool | None = None
    limits_said: bool | None = None
    cpu_quota: bool = False
    start_at: float | None = None
    max_running: int | None = None
    after: Sequence[str] = ()
    parent: str | None = None


def checked_plans(plans: Iterable[JobPlan]) -> list[JobPlan]:
    """Return the plans with their lists (or iterators) read. Raise InvalidRequest for an argument of a wrong type."""
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
    ports, after = as_texts(plan.ports, "ports"), as_texts(plan.after, "after")
    return replace(plan, constraints=constraints, ports=ports, after=after)


def _check_types(plan: JobPlan) -> None:
    entrypoint = "an Entrypoint: use Entrypoint.from_command(program, *args) or Entrypoint.from_callable(fn, *args)"
    check_type(plan.entrypoint, Entrypoint, "entrypoint", entrypoint)
    check_text(plan.name, "name")
    check_text(plan.description, "description")
    check_type(plan.health, (HealthCheck, type(None)), "health", "a HealthCheck, or None")
    check_text(plan.notify_url, "notify_url")
    if plan.notify_url:
        parse_webhook(plan.notify_url)
    check_type(plan.resources, ResourceSpec, "resources", "a ResourceSpec")
    check_type(plan.environment, EnvironmentSpec, "environment", "an EnvironmentSpec")
    check_type(plan.limits, JobLimits, "limits", "JobLimits")
    gang = "a CoschedulingConfig, or None"
    check_type(plan.coscheduling, (CoschedulingConfig, type(None)), "coscheduling", gang)
    check_type(plan.priority_band, (PriorityBand, str, type(None)), "priority_band", f"one of {_BANDS}, or None")
    check_type(plan.reserve, bool, "reserve", "True or False")
    check_type(plan.exclusive, bool, "exclusive", "True or False")
    check_type(plan.soft_limits, (bool, type(None)), "soft_limits", "True, False or None")
    check_type(plan.limits_said, (bool, type(None)), "limits_said", "True, False or None")
    check_type(plan.cpu_quota, bool, "cpu_quota", "True or False")
    check_type(plan.fence_after, (int, float, type(None)), "fence_after", "a number of seconds, or None")
    texts = ("user", plan.user), ("working_dir", plan.working_dir), ("image", plan.image), ("parent", plan.parent)
    for what, text in texts:
        if text is not None:
            check_text(text, what)


def spec_of(
    plan: JobPlan,
    job_id: JobId,
    *,
    payload_digest: str,
    environment: EnvironmentSpec,
    replicas: int,
    runtime: Callable[[], TaskRuntime],
    bundle_digest: Callable[[], str],
) -> JobSpec:
    """Return the job of a plan.

    Args:
        plan: One of `checked_plans`.
        job_id: The full name.
        payload_digest: SHA-256 (hex) of the pickled callable; empty for a command.
        environment: The requested environment, with forwarded and inherited values.
        replicas: Number of tasks.
        runtime: Called after the rest of the plan is validated, because it may send the workspace.
        bundle_digest: Called after `runtime`.

    Raises:
        InvalidRequest: A value is not allowed. The message names the argument.
    """
    for constraint in plan.constraints:
        validate_constraint(constraint)
    entrypoint, asked, limits = plan.entrypoint, plan.resources, plan.limits
    return JobSpec(
        job_id=job_id,
        entrypoint=CommandEntrypoint(entrypoint.argv)
        if entrypoint.argv
        else CallableEntrypoint(payload_digest, entrypoint.display),
        resources=Resources(asked.cpu_millis, asked.memory_bytes, asked.disk_bytes, asked.device),
        extras=tuple(environment.extras),
        pip_packages=tuple(environment.pip_packages),
        env_vars=environment.env_vars,
        replicas=replicas,
        max_retries_failure=check_count(limits.max_retries_failure, "max_retries_failure"),
        max_retries_preemption=check_count(limits.max_retries_preemption, "max_retries_preemption"),
        max_task_failures=check_count(limits.max_task_failures, "max_task_failures"),
        retry_window_ms=_to_ms(limits.retry_window, "retry_window"),
        retry_delay_ms=_retry_delay_ms(limits),
        timeout_ms=_to_ms(limits.timeout, "timeout"),
        scheduling_timeout_ms=_to_ms(limits.scheduling_timeout, "scheduling_timeout"),
        constraints=tuple(plan.constraints),
        coscheduling_group_by=plan.coscheduling.group_by if plan.coscheduling else "",
        ports=tuple(plan.ports),
        band=PriorityBand.INTERACTIVE if plan.priority_band is None else parse_band(plan.priority_band),
        reserve=plan.reserve,
        exclusive=plan.exclusive,
        fence_after_ms=_fence_ms(plan),
        description=plan.description,
        notify_url=plan.notify_url,
        stall_timeout_ms=_to_ms(plan.stall_timeout, "stall_timeout"),
        grace_ms=_to_ms(plan.grace, "grace"),
        **_health(plan.health),
        enforced=_enforced(plan),
        start_at_ms=0 if plan.start_at is None else _to_ms(plan.start_at, "start_at"),
        max_running=_max_running(plan, replicas),
        after=_after(plan, job_id),
        limits_mode="" if plan.soft_limits is None else "soft" if plan.soft_limits else "enforced",
        runtime=runtime(),
        bundle_digest=bundle_digest(),
    )


def _max_running(plan: JobPlan, replicas: int) -> int:
    if plan.max_running is None:
        return 0
    most = check_count(plan.max_running, "max_running", least=1)
    if plan.coscheduling is not None and most < replicas:
        raise InvalidRequest(f"max_running is {most}, but the {replicas} tasks of a gang run together: leave it out")
    return most


def _after(plan: JobPlan, job_id: JobId) -> str:
    """Return the full ids and conditions. A name without "/" is a job beside this one."""
    waits: dict[str, str] = {}
    for text in plan.after:
        name, colon, condition = text.partition(":")
        if colon and condition not in AFTER_CONDITIONS:
            raise InvalidRequest(f"after names {text!r}; use {name}, {name}:ok (the same) or {name}:any")
        name = name if "/" in name else f"{job_id.rpartition('/')[0]}/{validate_name(name)}"
        if waits.setdefault(validate_job_id(name), condition or "ok") != (condition or "ok"):
            raise InvalidRequest(f"after names {name} with both conditions, ok and any: leave one out")
    return ",".join(f"{name}:{condition}" for name, condition in waits.items())


def _enforced(plan: JobPlan) -> str:
    """Return the enforced limits of tasks: only explicit values, never defaults."""
    if plan.soft_limits:
        if plan.cpu_quota:
            raise InvalidRequest("soft_limits and cpu_quota are both set: set only one")
        return ""
    asked, is_said = plan.resources, plan.limits_said
    if is_said is None:
        is_said = plan.soft_limits is False or asked.memory_bytes != ResourceSpec().memory_bytes
    words = (
        ("memory", is_said and asked.memory_bytes > 0),
        ("disk", plan.limits_said is not False and asked.disk is not None and asked.disk_bytes > 0),
        ("cpu", plan.cpu_quota and asked.cpu_millis > 0),
    )
    return ",".join(word for word, is_enforced in words if is_enforced)


def _health(health: HealthCheck | None) -> dict[str, Any]:
    if health is None:
        return {}
    return {
        "health_cmd": health.command,
        "health_interval_ms": _to_ms(health.interval, "health.interval"),
        "health_timeout_ms": _to_ms(health.timeout, "health.timeout"),
        "health_retries": max(check_count(health.retries, "health.retries"), 1),
    }


def _retry_delay_ms(limits: JobLimits) -> int:
    delay_ms = round(check_seconds(limits.retry_delay, "retry_delay", zero=True) * 1000)
    return delay_ms if limits.max_retries_failure else 0  # without retries nothing is said of them


def _to_ms(seconds: float | None, name: str) -> int:
    if seconds is None:
        return 0
    if check_seconds(seconds, name) < _SHORTEST_S:
        raise InvalidRequest(
            f"{name} must be at least {_SHORTEST_S} s, not {seconds!r}: the cluster counts milliseconds"
        )
    return round(seconds * 1000)


def _fence_ms(plan: JobPlan) -> int:
    if plan.fence_after is None:
        return 0
    if not plan.exclusive:
        raise InvalidRequest(f"fence_after is {plan.fence_after!r}, but the job is not exclusive: also set exclusive")
    if not 0 < plan.fence_after <= MAX_FENCE_AFTER_MS / 1000:
        limit = f"{MAX_FENCE_AFTER_MS // 1000} s"
        raise InvalidRequest(f"fence_after must be seconds above 0, at most {limit}, not {plan.fence_after!r}")
    return max(1, round(plan.fence_after * 1000))


def parse_band(band: PriorityBand | str) -> PriorityBand:
    """Return a band given by name. Raise InvalidRequest."""
    if isinstance(band, PriorityBand):
        return band
    try:
        return PriorityBand[band.upper()]
    except KeyError:
        raise InvalidRequest(f"priority band {band!r} is not one of {_BANDS}") from None
