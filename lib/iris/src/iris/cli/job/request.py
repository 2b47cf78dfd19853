"""Converts the options of `iris job run` to a job request."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.job.argv import parse_gpu, parse_reservation, parse_tpu
from rigging.project import FORWARDED_ENV_VARS
from rigging.project.code_state import code_variables
from rigging.topology import get_tpu_topology

if TYPE_CHECKING:
    from iris.client import IrisClient, Job
    from iris.cluster.constraints import Constraint
    from iris.cluster.types import DeviceSpec, HealthCheck

_SUBMIT_COMMAND: Final = "IRIS_RUN_COMMAND"
"""The variable with a job's submit command, for messages that suggest to submit it again."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `iris job run`."""

    cpu: float
    memory: str
    disk: str | None
    tpu: str | None
    gpu: str | None
    extras: tuple[str, ...]
    image: str | None
    pip_packages: tuple[str, ...]
    env: tuple[str, ...]
    env_files: tuple[str, ...]
    replicas: int | None
    gang: str | None
    max_retries: int
    timeout: float | None
    regions: tuple[str, ...]
    zone: str | None
    hosts: tuple[str, ...]
    not_hosts: tuple[str, ...]
    conditions: tuple["Constraint", ...]
    priority: str | None
    job_name: str | None
    description: str
    notify_url: str | None
    retry_window: float | None
    retry_delay: float
    health_cmd: str | None
    health_interval: float
    health_timeout: float
    health_retries: int
    stall_timeout: float | None
    grace: float | None
    start_at: datetime | None
    max_running: int | None
    after: tuple[str, ...]
    user: str | None
    preemptible: bool | None
    wait: bool
    terminate_on_exit: bool
    max_retries_preemption: int
    max_task_failures: int
    scheduling_timeout: float | None
    existing: str
    reserve: tuple[str, ...]
    exclusive: bool
    fence_after: float | None
    workspace: str | None
    no_workspace: bool
    enable_extra_resources: bool
    soft_limits: bool | None
    cpu_quota: bool
    quiet: bool
    memory_is_said: bool
    submit_command: str = ""


def submit_job(
    client: "IrisClient",
    options: RunOptions,
    variables: Mapping[str, str],
    command: Sequence[str],
    name: str,
    resources: Any,
) -> "Job":
    """Submit the job. Raise like `IrisClient.submit`, or click's errors about options.

    Args:
        client: The cluster.
        options: The command-line options.
        variables: Environment variables of the job.
        command: The command's arguments.
        name: The job's name; empty derives it from the command.
        resources: The resources of each task.
    """
    from iris.cluster.types import CoschedulingConfig, Entrypoint, EnvironmentSpec

    replicas, group_by = gang_of(options)
    forwarded = {name: os.environ[name] for name in FORWARDED_ENV_VARS if name in os.environ}
    told = {_SUBMIT_COMMAND: options.submit_command} if options.submit_command else {}
    if not options.no_workspace:
        told |= code_variables(options.workspace or ".")
    return client.submit(
        Entrypoint.from_command(*command),
        name,
        resources,
        EnvironmentSpec(options.pip_packages, {**forwarded, **told, **variables}, options.extras),
        constraints=_constraints(options),
        coscheduling=CoschedulingConfig(group_by) if group_by else None,
        replicas=replicas,
        max_retries_failure=options.max_retries,
        timeout=options.timeout,
        priority_band=options.priority,
        max_retries_preemption=options.max_retries_preemption,
        max_task_failures=options.max_task_failures,
        scheduling_timeout=options.scheduling_timeout,
        existing=options.existing,
        reserve="" in options.reserve,
        reservation=[entry for word in options.reserve if word for entry in parse_reservation(word)],
        exclusive=options.exclusive,
        fence_after=options.fence_after,
        description=options.description,
        task_image=options.image,
        notify_url=options.notify_url or "",
        retry_window=options.retry_window,
        retry_delay=options.retry_delay,
        health=None if options.health_cmd is None else _health(options, options.health_cmd),
        stall_timeout=options.stall_timeout,
        grace=options.grace,
        start_at=None if options.start_at is None else options.start_at.timestamp(),
        max_running=options.max_running,
        after=options.after,
        soft_limits=options.soft_limits,
        limits_said=True if options.memory_is_said else None,
        cpu_quota=options.cpu_quota,
    )


def _health(options: RunOptions, command: str) -> "HealthCheck":
    from iris.cluster.types import HealthCheck

    return HealthCheck(command, options.health_interval, options.health_timeout, options.health_retries)


def gang_of(options: RunOptions) -> tuple[int, str]:
    """Return the number of tasks, and the attribute that groups them as a gang; empty for no gang.

    By default the hosts of a whole TPU slice are a gang.
    """
    from iris.cluster.constraints import WellKnownAttribute

    by_device = WellKnownAttribute.TPU_NAME if options.tpu else WellKnownAttribute.POOL if options.gpu else "arch"
    group_by = "" if options.gang is None else options.gang or by_device
    if options.replicas is not None or options.tpu is None:
        return 1 if options.replicas is None else options.replicas, group_by
    hosts = get_tpu_topology(parse_tpu(options.tpu).variant).vm_count
    return hosts, (group_by or by_device) if hosts > 1 else ""


def resources_of(options: RunOptions) -> Any:
    """Return the resources of each task. Raise UsageError for unknown devices."""
    from iris.cluster.types import ResourceSpec

    if options.tpu is not None and options.gpu is not None:
        raise click.UsageError("--tpu and --gpu: a task has one kind of accelerator; give one of them")
    device: DeviceSpec | None = None
    if options.tpu is not None:
        device = parse_tpu(options.tpu)
    elif options.gpu is not None:
        device = parse_gpu(options.gpu)
    return ResourceSpec(options.cpu, options.memory, options.disk, device)


def _constraints(options: RunOptions) -> list["Constraint"]:
    from iris.cluster.constraints import (
        Constraint,
        ConstraintOp,
        WellKnownAttribute,
        preemptible_constraint,
        region_constraint,
        worker_constraint,
        zone_constraint,
    )

    constraints = list(options.conditions)
    if options.hosts:
        constraints.append(worker_constraint(options.hosts))
    constraints += [Constraint(WellKnownAttribute.WORKER_NAME, ConstraintOp.NE, (host,)) for host in options.not_hosts]
    if options.regions:
        constraints.append(region_constraint(options.regions))
    if options.zone:
        constraints.append(zone_constraint(options.zone))
    if options.preemptible is not None:
        constraints.append(preemptible_constraint(options.preemptible))
    return constraints
