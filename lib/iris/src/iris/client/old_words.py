"""What programs written for iris's ancestor say to `IrisClient.submit`, in the words of today."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iris.cluster.types import DeviceSpec, ExistingJobPolicy, ResourceSpec
from rigging.errors import InvalidRequest
from rigging.timing import Duration

logger = logging.getLogger(__name__)

Seconds = float | Duration
"""A length of time: seconds, or a Duration."""

_POLICIES: Final = {
    "unspecified": ExistingJobPolicy.FAIL,
    "error": ExistingJobPolicy.FAIL,
    "keep": ExistingJobPolicy.ADOPT,
    "recreate": ExistingJobPolicy.REPLACE,
}


def seconds_of(length: Seconds | None) -> float | None:
    """Return a length of time in seconds."""
    return length.to_seconds() if isinstance(length, Duration) else length


def policy_of(policy: ExistingJobPolicy | str) -> ExistingJobPolicy | str:
    """Return an `existing_job_policy` ("error", "keep", "recreate", or a policy of today) as one of today."""
    if isinstance(policy, ExistingJobPolicy):
        return policy
    return _POLICIES.get(policy.lower().removeprefix("existing_job_policy_"), policy)


@dataclass(frozen=True, slots=True)
class ReservationEntry:
    """One device, with its host's share, to be held while a job lives."""

    resources: ResourceSpec


def reserved(
    resources: ResourceSpec, replicas: int, reservation: Sequence[ReservationEntry | ResourceSpec | DeviceSpec]
) -> ResourceSpec | None:
    """Return the resources with which a job's own tasks hold a reservation; None when they cannot.

    They can when there is one entry for each task, all of one device. What else is asked for is not held: the jobs that
    use it wait until there is room, as they would without a reservation.

    Raises:
        InvalidRequest: An entry has no device.
    """
    devices = [_device_of(entry) for entry in reservation]
    if len(devices) == replicas and len(set(devices)) == 1 and resources.device is None:
        return replace(resources, device=devices[0])
    logger.warning(
        "the reservation of %d devices is not held: the job has %d tasks, and each can hold one; jobs that use the "
        "devices wait for them",
        len(devices),
        replicas,
    )
    return None


def _device_of(entry: Any) -> DeviceSpec:
    found = getattr(entry, "resources", entry)
    device = found if isinstance(found, DeviceSpec) else getattr(found, "device", None)
    if not isinstance(device, DeviceSpec):
        raise InvalidRequest(f"reservation: {entry!r} names no device; use ResourceSpec(device=tpu_device(...))")
    return device


def warn_of_image(image: str | None) -> None:
    """Say that tasks have no image, if one was asked for."""
    if image is not None:
        logger.warning("task_image %r is not used: tasks run from the workspace, without images", image)
