"""Requests that no known worker could ever meet, refused before anything is stored."""

from collections.abc import Mapping, Sequence

from iris.domain.constraints import evaluate
from iris.domain.entities import JobSpec, is_gang
from iris.domain.ids import WorkerId
from iris.domain.resources import Resources, shortfalls
from iris.domain.tpu import tpu_mistake
from iris.sched.explain import amount_text, explain_constraints, explain_device, has_device

WorkerCapacity = tuple[WorkerId, Resources, Mapping[str, str]]


def impossible_reason(spec: JobSpec, worker_capacities: Sequence[WorkerCapacity]) -> str | None:
    """Why no worker could run a task of `spec` even when idle, or None when one could.

    Args:
        worker_capacities: Id, capacity and attributes of every known worker; with none, nothing is known to be
            impossible and the answer is None.

    Returns:
        The shortfall with the largest there is: "needs 64 cores; the largest worker (local) has 2".
    """
    mistake = tpu_mistake(spec.resources.accelerator, spec.replicas, spec.coscheduling_group_by)
    if mistake is not None or not worker_capacities:
        return mistake
    unmet = explain_constraints(spec.constraints, [attributes for _, _, attributes in worker_capacities])
    if unmet is not None:
        return unmet
    willing = [worker for worker in worker_capacities if evaluate(spec.constraints, worker[2])]
    absent = explain_device(spec.resources, [capacity for _, capacity, _ in willing])
    if absent is not None:
        return absent
    too_large = _too_large(spec.resources, [worker for worker in willing if has_device(spec.resources, worker[1])])
    if too_large is None and is_gang(spec):
        key = spec.coscheduling_group_by
        if not any(key in attributes for _, _, attributes in willing):
            return f"no worker has the attribute {key!r}, by which the gang of {spec.replicas} is grouped"
    return too_large


def _too_large(need: Resources, workers: Sequence[WorkerCapacity]) -> str | None:
    lacking = [shortfalls(need, capacity) for _, capacity, _ in workers]
    if not all(lacking):
        return None
    worst = min((found[0] for found in lacking), key=lambda shortfall: shortfall.severity)
    name, most, _ = max(workers, key=lambda worker: _amount(worst.dimension, worker[1]))
    if any(all(item.dimension != worst.dimension for item in found) for found in lacking):
        return f"needs {worst.need} with all else it asks for on one worker; no worker has all of that together"
    return f"needs {worst.need}; the largest worker ({name}) has {amount_text(worst.dimension, most)}"


def _amount(dimension: str, resources: Resources) -> int:
    if dimension == "cpu":
        return resources.cpu_millis
    if dimension == "memory":
        return resources.memory_bytes
    if dimension == "disk":
        return resources.disk_bytes
    device = resources.accelerator
    return device.count if device is not None else 0
