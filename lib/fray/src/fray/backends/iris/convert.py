"""Translate fray's job requests into Iris's. No other module of fray uses both vocabularies."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Final

from fray.sending.pickling import dumps
from fray.types import (
    DEFAULT_DISK,
    CpuConfig,
    EnvironmentConfig,
    GpuConfig,
    JobRequest,
    JobStatus,
    ResourceConfig,
    TpuConfig,
)
from fray.types import Entrypoint as FrayEntrypoint
from iris.client import JobLimits, JobPlan
from iris.cluster.constraints import (
    Constraint,
    ConstraintOp,
    WellKnownAttribute,
    region_constraint,
    zone_constraint,
)
from iris.cluster.types import (
    CoschedulingConfig,
    DeviceSpec,
    Entrypoint,
    EnvironmentSpec,
    JobState,
    ResourceSpec,
    gpu_device,
    tpu_device,
)
from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_topology

_STATUS: Final[Mapping[JobState, JobStatus]] = {
    JobState.PENDING: JobStatus.PENDING,
    JobState.BUILDING: JobStatus.PENDING,
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.SUCCEEDED: JobStatus.SUCCEEDED,
    JobState.FAILED: JobStatus.FAILED,
    JobState.KILLED: JobStatus.STOPPED,
    JobState.WORKER_FAILED: JobStatus.FAILED,
    JobState.UNSCHEDULABLE: JobStatus.FAILED,
}


def to_iris_plan(request: JobRequest, environment: EnvironmentConfig) -> JobPlan:
    """Translate a request for Iris.

    Raises:
        InvalidRequest: Iris does not support something in the request. The message names it.
    """
    hosts = slice_hosts(request)
    return JobPlan(
        entrypoint=to_iris_entrypoint(request.entrypoint, f"job {request.name!r}", environment.workspace),
        name=request.name,
        resources=to_iris_resources(request.resources),
        environment=to_iris_environment(environment, request.resources),
        image=environment.docker_image or request.resources.image,
        constraints=to_iris_constraints(request.resources),
        coscheduling=None if hosts is None else CoschedulingConfig(group_by=WellKnownAttribute.TPU_NAME),
        replicas=request.replica_count,
        limits=JobLimits(
            max_retries_failure=request.max_retries_failure,
            max_retries_preemption=request.max_retries_preemption,
            max_task_failures=request.max_task_failures,
        ),
        description=request.description,
        limits_said=_limits_said(request.resources),
    )


def to_iris_entrypoint(entrypoint: FrayEntrypoint, what: str, workspace: str | None) -> Entrypoint:
    """Convert a program to a command, and a callable to a pickle. The pickle includes modules that are neither in the
    workspace nor installed.

    Args:
        entrypoint: A callable or a program.
        what: The value's name in errors.
        workspace: The folder that the job receives; None for none.

    Raises:
        InvalidRequest: The callable cannot be pickled; `what` names it.
    """
    if entrypoint.binary_entrypoint is not None:
        return Entrypoint.from_command(entrypoint.binary_entrypoint.command, *entrypoint.binary_entrypoint.args)
    entry = entrypoint.callable_entrypoint
    assert entry is not None
    call: tuple[Any, ...] = (entry.callable, tuple(entry.args), dict(entry.kwargs))
    roots = () if workspace is None else (os.path.realpath(workspace),)
    return Entrypoint.from_pickle(dumps(call, what, roots), Entrypoint(fn=entry.callable).display)


def to_iris_resources(resources: ResourceConfig) -> ResourceSpec:
    """Return the resources of one task. Disk is reserved only on request, because few or no tasks would fit on hosts
    with small disks.
    """
    disk = None if resources.disk == DEFAULT_DISK else resources.disk
    return ResourceSpec(cpu=resources.cpu, memory=resources.ram, disk=disk, device=to_iris_device(resources))


def _limits_said(resources: ResourceConfig) -> bool:
    """Return whether the request states a replica's memory. Never for TPUs, where a replica owns its host."""
    return resources.ram != ResourceConfig().ram and not isinstance(resources.device, TpuConfig)


def to_iris_device(resources: ResourceConfig) -> DeviceSpec | None:
    """Return the accelerators of one task: the chips of a TPU host, GPUs, or none."""
    device, alternatives = resources.device, tuple(resources.device_alternatives or ())
    match device:
        case CpuConfig():
            return None
        case GpuConfig():
            return dataclasses.replace(gpu_device(device.variant, device.count), alternatives=alternatives)
        case TpuConfig():
            if device.topology is not None:
                raise InvalidRequest(
                    f"TPU {device.variant} with topology {device.topology!r}: Iris chooses slices by type only; leave "
                    "topology out"
                )
            return tpu_device([device.variant, *alternatives])


def to_iris_environment(environment: EnvironmentConfig, resources: ResourceConfig) -> EnvironmentSpec:
    """Return packages, extras and variables, with the remaining transfer budget and the device's variables."""
    # Not at the top: the storage libraries behind it are heavy, and a process that only waits for jobs needs none.
    from rigging.filesystem.budget import budget_environment

    return EnvironmentSpec(
        pip_packages=tuple(environment.pip_packages),
        env_vars={**budget_environment(), **resources.device.default_env_vars(), **environment.env_vars},
        extras=tuple(environment.extras),
    )


def to_iris_constraints(resources: ResourceConfig) -> tuple[Constraint, ...]:
    """Return constraints on where the job may run. `preemptible=True` allows preemptible capacity but does not require
    it.
    """
    constraints = []
    if not resources.preemptible:
        # Not preemptible_constraint(False): machines of one's own do not say whether they can be taken away.
        constraints.append(Constraint(WellKnownAttribute.PREEMPTIBLE, ConstraintOp.NE, ("true",)))
    if resources.regions:
        constraints.append(region_constraint(list(resources.regions)))
    if resources.zone is not None:
        constraints.append(zone_constraint(resources.zone))
    return tuple(constraints)


def slice_hosts(request: JobRequest) -> int | None:
    """Return the number of hosts of one slice for a gang on whole TPU slices; None if tasks are placed one by one.

    Raises:
        InvalidRequest: The replicas do not fill whole slices.
    """
    device = request.resources.device
    if not isinstance(device, TpuConfig):
        return None
    hosts = get_tpu_topology(device.variant).vm_count
    if hosts == 1 and request.resources.replicas == 1:
        return None  # whatever has copies of it, such as a group of actors: each is for itself
    if request.replica_count % hosts:
        raise InvalidRequest(
            f"job {request.name!r} asks for {request.replica_count} hosts of TPU {device.variant}, whose slices have "
            f"{hosts}; replicas must be a multiple of that (ResourceConfig.with_tpu sets them by slice_count)"
        )
    return hosts if request.replica_count > 1 else None


def to_fray_status(state: JobState) -> JobStatus:
    """Translate a job's state to fray's."""
    return _STATUS[state]
