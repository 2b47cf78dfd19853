"""The two inputs of a workload simulation: the arrivals and the hosts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.states import PriorityBand


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job of the workload.

    Args:
        at_s: Time of submission from the start. duration_s: Duration of each of its tasks.
        need: The resources of one task. group_by: Makes the job a gang: all its tasks run on hosts with the same value
            of this attribute.
        origin: Its source, for messages, e.g. "trace.csv, line 7".
    """

    at_s: float
    user: str
    band: PriorityBand
    tasks: int
    need: Resources
    duration_s: float
    group_by: str = ""
    origin: str = ""

    def spec(self, number: int) -> JobSpec:
        """Return the job as passed to the controller."""
        return JobSpec(
            JobId(f"/{self.user}/job{number}"),
            CommandEntrypoint(("simulated",)),
            self.need,
            replicas=self.tasks,
            coscheduling_group_by=self.group_by if self.tasks > 1 else "",
            band=self.band,
            max_retries_preemption=1_000_000,
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """One host of the fleet."""

    name: WorkerId
    capacity: Resources
    attributes: Mapping[str, str] = field(default_factory=dict)


GIB = 1 << 30


def amount(cpu: float, memory_gib: float, device: str, devices: int) -> Resources:
    """Return resources from cores, GiB, and accelerators such as "tpu v5p-64" or "gpu H100"."""
    kind, _, variant = device.partition(" ")
    accelerator = Device(kind, variant.strip(), devices) if kind else None
    return Resources(round(cpu * 1000), round(memory_gib * GIB), 0, accelerator)
