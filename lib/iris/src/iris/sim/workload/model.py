"""The two inputs of a workload simulation: what arrives, and the hosts there are."""

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
        at_s: When it is submitted, from the beginning. duration_s: How long each of its tasks runs.
        need: Of one task. group_by: Makes it a gang: all tasks on hosts that share this attribute's value.
        origin: Where it comes from, for messages: "trace.csv, line 7".
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
        """The job as the controller knows it."""
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
    """Resources from cores, GiB, and accelerators written "tpu v5p-64" or "gpu H100"."""
    kind, _, variant = device.partition(" ")
    accelerator = Device(kind, variant.strip(), devices) if kind else None
    return Resources(round(cpu * 1000), round(memory_gib * GIB), 0, accelerator)
