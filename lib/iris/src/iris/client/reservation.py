"""Reservations: devices that a job holds while it lives, in the form of iris's predecessor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iris.client.job import Job
from iris.client.plan import JobLimits, JobPlan
from iris.cluster.types import CoschedulingConfig, DeviceSpec, Entrypoint, ResourceSpec
from iris.domain.resources import SLICE_ATTRIBUTE, slice_hosts
from rigging.errors import Conflict, InvalidRequest, MarinError

_RETRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ReservationEntry:
    """A device to reserve while a job lives, with its share of the host."""

    resources: ResourceSpec


@dataclass(frozen=True, slots=True)
class Holding:
    """The tasks and jobs that hold a job's reservation.

    Args:
        resources: The resources of the job's own tasks.
        own: Whether the job's own tasks hold the reservation.
        jobs: Child jobs that hold the reservation, without their parent.
    """

    resources: ResourceSpec
    own: bool = False
    jobs: tuple[JobPlan, ...] = ()


def holding(
    plan: JobPlan, reservation: Sequence[ReservationEntry | ResourceSpec | DeviceSpec] | None, replicas: int
) -> Holding:
    """Return the holders of a reservation: the job's own tasks if each can hold one device, else child jobs.

    A TPU type with several hosts means a whole slice, which a separate job holds.

    Args:
        plan: The job. Its child jobs get the same band.
        reservation: Devices to hold while the job lives.
        replicas: The number of the job's tasks.

    Raises:
        InvalidRequest: An entry has no device.
    """
    devices = [_device_of(entry) for entry in reservation or ()]
    if not devices:
        return Holding(plan.resources)
    alike = len(set(devices)) == 1 and (slice_hosts(devices[0]) or 1) == 1
    if alike and len(devices) == replicas and plan.resources.device is None:
        return Holding(replace(plan.resources, device=devices[0]), own=True)
    holders: list[JobPlan] = []
    for device in dict.fromkeys(devices):
        count, hosts = devices.count(device), slice_hosts(device) or 1
        # Slices are held one by one: each as soon as it is free.
        sizes = [count] if hosts == 1 else [hosts] * count
        holders += [_holder(plan, device, size, len(holders) + at, hosts) for at, size in enumerate(sizes)]
    return Holding(plan.resources, jobs=tuple(holders))


def hold(job: Job, holders: Sequence[JobPlan], submit: Callable[[JobPlan], object]) -> None:
    """Submit the child jobs that hold a job's reservation. If one is refused, stop the job.

    Args:
        job: The stored job.
        holders: See `Holding.jobs`.
        submit: Submits or finds one of them.

    Raises:
        MarinError: Raised by `submit`, unless the job has ended meanwhile.
    """
    try:
        for plan in holders:
            submit(replace(plan, parent=str(job.job_id)))
    except MarinError as error:
        if isinstance(error, Conflict) and job.state_only().is_terminal:
            return
        job.terminate("its reservation was refused")
        raise


def _holder(plan: JobPlan, device: DeviceSpec, replicas: int, number: int, hosts: int) -> JobPlan:
    return JobPlan(
        Entrypoint.from_command("sleep", "infinity"),
        f"reserve-{number}-{device.variant or device.kind}",
        resources=ResourceSpec(cpu=0, memory="16MB", device=device),
        replicas=replicas,
        reserve=True,
        coscheduling=CoschedulingConfig(SLICE_ATTRIBUTE) if hosts > 1 else None,
        priority_band=plan.priority_band,
        limits=JobLimits(_RETRIES, _RETRIES),
        description=f"holds accelerators for {plan.name}",
    )


def _device_of(entry: Any) -> DeviceSpec:
    found = getattr(entry, "resources", entry)
    device = found if isinstance(found, DeviceSpec) else getattr(found, "device", None)
    if not isinstance(device, DeviceSpec):
        raise InvalidRequest(f"reservation: {entry!r} names no device; use ResourceSpec(device=tpu_device(...))")
    return device
