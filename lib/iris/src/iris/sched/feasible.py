"""Detects requests that no worker could ever meet."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from iris.domain.constraints import DISK_SIZE_ATTRIBUTE, evaluate
from iris.domain.ids import WorkerId
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.resources import Resources, amount_of, shortfalls, tpu_mistake
from iris.domain.scale_groups import GROUP_ATTRIBUTE, ScaleGroup, offers, tasks_on
from iris.sched.explain import DISK_HINT, amount_text, device_text, explain_constraints, explain_device
from iris.sched.fit import has_device
from iris.sched.gang import group_size
from iris.sched.pythons import explain_python

WorkerCapacity = tuple[WorkerId, Resources, Mapping[str, str]]


def impossible_reason(
    spec: JobSpec, worker_capacities: Sequence[WorkerCapacity], scale_groups: tuple[ScaleGroup, ...] = ()
) -> str | None:
    """Return why no idle worker or host of a scale group could run a task of `spec`; None if one could.

    Args:
        spec: The job.
        worker_capacities: Id, capacity and attributes of every known worker.
        scale_groups: Hosts that the cluster may start. Without workers or groups the result is None.

    Returns:
        The text names the shortfall on the largest worker: "needs 64 cores; the largest worker (local) has 2".
    """
    worker_capacities = [
        *((name, at_most(capacity, attributes), attributes) for name, capacity, attributes in worker_capacities),
        *((WorkerId(name), host, attributes) for name, host, attributes in offers(scale_groups)),
    ]
    mistake = tpu_mistake(spec.resources.accelerator, spec.replicas, spec.coscheduling_group_by)
    if mistake is not None or not worker_capacities:
        return mistake
    unmet = explain_constraints(spec.constraints, [attributes for _, _, attributes in worker_capacities])
    if unmet is not None:
        return unmet
    willing = [worker for worker in worker_capacities if evaluate(spec.constraints, worker[2])]
    if not scale_groups:
        unmet = explain_python(spec.runtime, [attributes for _, _, attributes in willing])
        if unmet is not None:
            return unmet
    absent = explain_device(spec.resources, [capacity for _, capacity, _ in willing])
    if absent is not None:
        return absent
    too_large = _too_large(spec.resources, [worker for worker in willing if has_device(spec.resources, worker[1])])
    if too_large is None and is_gang(spec):
        key = spec.coscheduling_group_by
        known = {name for _, _, attributes in willing for name in attributes if not name.startswith("iris-")}
        if key not in known:
            absent = f"no worker has the attribute {key!r}, by which the gang of {spec.replicas} is grouped"
            return f"{absent}; workers have {', '.join(sorted(known)) or 'none'}"
        return _too_many(spec, willing, scale_groups)
    return too_large


def unholdable_reason(
    spec: JobSpec,
    beside: int,
    worker_capacities: Sequence[WorkerCapacity],
    scale_groups: tuple[ScaleGroup, ...] = (),
) -> str | None:
    """Return why even an idle cluster could not hold the whole reservation; None if it could.

    Args:
        spec: The job that holds the reservation.
        beside: Number of tasks of equal jobs that hold other parts of the same reservation.
        worker_capacities: As in `impossible_reason`, like `scale_groups`.
        scale_groups: Hosts that the cluster may start; their workers are not counted twice.
    """
    need, key = spec.resources, spec.coscheduling_group_by
    size = group_size(spec) if is_gang(spec) else 1
    names = {group.name for group in scale_groups}
    rooms: dict[str, int] = {}
    for name, capacity, attributes in worker_capacities:
        unit = attributes.get(key) if is_gang(spec) else name
        if unit is not None and attributes.get(GROUP_ATTRIBUTE) not in names and evaluate(spec.constraints, attributes):
            rooms[unit] = rooms.get(unit, 0) + tasks_on(at_most(capacity, attributes), need)
    found = sum(room // size for room in rooms.values())
    for group in scale_groups:
        if evaluate(spec.constraints, group.host_attributes):
            found += group.max_slices * (group.tasks_per_slice(need) // size)
    wanted = (beside + spec.replicas) // size
    if wanted <= found or not (worker_capacities or scale_groups):
        return None
    many = "s" if wanted > 1 else ""
    of = f"slice{many} of {size} hosts" if is_gang(spec) else f"task{many} with {device_text(need.accelerator)}"
    return f"needs {wanted} {of} at once; the cluster has room for {found}"


def at_most(capacity: Resources, attributes: Mapping[str, str]) -> Resources:
    """Return the maximum that a worker may offer, with its whole disk, because its free disk varies."""
    size = attributes.get(DISK_SIZE_ATTRIBUTE, "")
    if not size.isdecimal() or int(size) <= capacity.disk_bytes:
        return capacity
    return replace(capacity, disk_bytes=int(size))


def _too_many(spec: JobSpec, willing: Sequence[WorkerCapacity], scale_groups: tuple[ScaleGroup, ...]) -> str | None:
    """Return why the gang is larger than any possible slice of the scale groups."""
    need, key = spec.resources, spec.coscheduling_group_by
    if not scale_groups:
        return None
    there: dict[str, int] = {}
    for _, capacity, attributes in willing:
        value = attributes.get(key)
        if value is not None and need.fits(capacity):
            there[value] = there.get(value, 0) + 1
    size = group_size(spec)
    count = spec.replicas // size
    found = 0
    largest: tuple[int, str] | None = None
    for group in scale_groups:
        attributes = group.host_attributes
        if key not in attributes or not evaluate(spec.constraints, attributes) or not need.fits(group.host):
            continue
        room = group.tasks_per_slice(need)
        largest = max(largest or (0, ""), (room, group.name))
        found += group.max_slices if room >= size else 0
    if any(hosts >= size for hosts in there.values()) and count == 1:
        return None
    if found >= count:
        return None
    if largest is None:
        return None  # workers that no scale group has are grouped by it: what there is of them is not fixed
    if found == 0:
        return f"needs room for {size} tasks in one {key}; the largest (scale group {largest[1]}) has {largest[0]}"
    return f"needs {count} slices of {size} hosts; the scale groups that match have {found} at most"


def _too_large(need: Resources, workers: Sequence[WorkerCapacity]) -> str | None:
    lacking = [shortfalls(need, capacity) for _, capacity, _ in workers]
    if not all(lacking):
        return None
    worst = min((found[0] for found in lacking), key=lambda shortfall: shortfall.severity)
    name, most, _ = max(workers, key=lambda worker: amount_of(worst.dimension, worker[1]))
    if any(all(item.dimension != worst.dimension for item in found) for found in lacking):
        return f"needs {worst.need} together with its other needs on one worker; no worker has all of them"
    reason = f"needs {worst.need}; the largest worker ({name}) has {amount_text(worst.dimension, most)}"
    return reason + (DISK_HINT if worst.dimension == "disk" else "")
