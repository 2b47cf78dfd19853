"""Explain pending work in one sentence that names the tightest shortfall with its numbers."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from iris.core.state.booking import Demand
from iris.core.state.view import ClusterView
from iris.domain.constraints import Constraint, evaluate
from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.resources import SLICE_ATTRIBUTE, Device, Resources, format_cores, shortfalls
from iris.sched.fit import Host, has_device, may_run_on
from iris.sched.gang import Groups, usable
from iris.sched.preferences import preference_text
from rigging.text.quantities import format_size

_MAX_NAMED = 5
DISK_HINT = ": ask for less with --disk or ResourceSpec(disk=...), 0 for none"


class Offer(NamedTuple):
    """A worker's free and total capacity, for explanations."""

    worker_id: WorkerId
    capacity: Resources
    free: Resources
    attributes: Mapping[str, str]


def explain_task(demand: Demand, hosts: Sequence[Host], view: ClusterView) -> str:
    """Return why no worker takes such a task now.

    Args:
        demand: The task's demand.
        hosts: The workers that accept new work.
        view: Knows the other workers, too.
    """
    need = demand.resources
    absent = _explain_absence(need, demand.constraints, hosts, view)
    if absent is not None:
        return absent
    able = [host for host in hosts if may_run_on(demand, host.worker)]
    text = explain_shortfall(
        need,
        [Offer(host.worker.worker_id, host.worker.capacity, host.free, host.worker.attributes) for host in able],
    )
    # Where other work is in the way of the whole request: the worker that is nearest, if it is large enough when empty.
    nearest = min(
        (host for host in able if need.fits(host.worker.capacity) and not host.fits(need)),
        key=lambda host: shortfalls(need, host.free)[0].severity,
        default=None,
    )
    text += preference_text(demand.constraints)
    return text if nearest is None else text + _in_the_way(nearest, need)


def _in_the_way(host: Host, need: Resources) -> str:
    """Return the job whose task holds most of a host's scarcest resource. It may be the waiting job itself."""
    scarce = shortfalls(need, host.free)[0].dimension
    held: Counter[JobId] = Counter()
    for booking in host.load.bookings.values():
        held[booking.job_id] += amount_of(scarce, booking.held)
    if not held:
        return ""
    job_id, amount = held.most_common(1)[0]
    return f"; next expected when a task of {job_id} ends" if amount else ""


def explain_gang(spec: JobSpec, groups: Groups, size: int, count: int, view: ClusterView) -> str:
    """Return why `count` groups with room for `size` tasks each are not available now.

    Args:
        spec: The job.
        groups: The hosts by group.
        size: Tasks in each group.
        count: Number of groups.
        view: Knows the other workers, too.
    """
    key = spec.coscheduling_group_by
    hosts = [host for members in groups.members.values() for host in members]
    if not hosts:
        return _explain_no_group(spec, view)
    unit = _group_word(spec)
    what = (
        f"needs {size} hosts of one {unit}" if key == SLICE_ATTRIBUTE else f"needs room for {size} tasks in one {unit}"
    )
    if count > 1:
        what = f"needs {count} whole {unit}s of {size} hosts each"
    rooms = {value: groups.room(value, size) for value in groups.members}
    enough = sum(room >= size for room in rooms.values())
    if count > 1 and enough:
        what += f" ({enough} of them free now)"
    short = {value: room for value, room in rooms.items() if room < size}
    if not short:
        return f"{what}; there are {len(rooms)}"
    best = max(short, key=lambda value: (short[value], value))
    match = f"{len(rooms)} {unit}{'s match' if len(rooms) > 1 else ' matches'}"
    text = f"{what}; {match}, the best, {best}, has room for {short[best]}"
    return text + _next_expected(groups.members[best], groups.need)


def _explain_no_group(spec: JobSpec, view: ClusterView) -> str:
    key = spec.coscheduling_group_by
    workers = [worker for worker in view.workers.values() if worker.is_open]
    if not workers:
        return _explain_no_worker(view)
    if not any(key in worker.attributes for worker in workers):
        return f"no connected worker has the attribute {key!r}, by which the gang of {spec.replicas} is grouped"
    grouped = [worker for worker in workers if key in worker.attributes]
    unmet = explain_constraints(spec.constraints, [worker.attributes for worker in grouped])
    if unmet is not None:
        return unmet
    willing = [worker.capacity for worker in grouped if evaluate(spec.constraints, worker.attributes)]
    absent = explain_device(spec.resources, willing)
    return absent or f"no {key} matches"


def _group_word(spec: JobSpec) -> str:
    device = spec.resources.accelerator
    if spec.coscheduling_group_by == SLICE_ATTRIBUTE:
        return f"{device.variant} slice" if device is not None and device.variant else "slice"
    return spec.coscheduling_group_by


def _next_expected(hosts: Sequence[Host], need: Resources) -> str:
    """Return the job that holds most of these hosts, as part of a sentence."""
    held: Counter[JobId] = Counter()
    kept: Counter[JobId] = Counter()
    for host in hosts:
        if usable(host, None) and host.fits(need):
            continue
        held.update({booking.job_id for booking in host.load.bookings.values()})
        if host.held_by is not None:
            kept[host.held_by] += 1
    if held:
        return f"; next expected when job {held.most_common(1)[0][0]} ends"
    if kept:
        return f"; the rest is kept free for job {kept.most_common(1)[0][0]}"
    return ""


def _explain_absence(
    need: Resources, constraints: tuple[Constraint, ...], hosts: Sequence[Host], view: ClusterView
) -> str | None:
    if not hosts:
        return _explain_no_worker(view)
    absent = explain_constraints(constraints, [host.worker.attributes for host in hosts])
    if absent is None:
        willing = [host.worker.capacity for host in hosts if evaluate(constraints, host.worker.attributes)]
        absent = explain_device(need, willing)
    return None if absent is None else absent + _cordoned_that_would_do(need, constraints, view)


def _cordoned_that_would_do(need: Resources, constraints: tuple[Constraint, ...], view: ClusterView) -> str:
    """Return the workers that would fit but accept no work, as the end of a sentence."""
    named = sorted(
        f"{worker.worker_id}: {worker.cordon_reason}"
        for worker in view.workers.values()
        if worker.cordon_reason and evaluate(constraints, worker.attributes) and has_device(need, worker.capacity)
    )
    return f"; cordoned, but would do: {_some(named)}" if named else ""


def _explain_no_worker(view: ClusterView) -> str:
    cordoned = sorted(
        f"{worker.worker_id}: {worker.cordon_reason}" for worker in view.workers.values() if worker.cordon_reason
    )
    if cordoned:
        return f"no worker takes work; {len(cordoned)} of {len(view.workers)} known are cordoned ({_some(cordoned)})"
    troubled = sorted(
        f"{worker.worker_id}: {worker.trouble}"
        for worker in view.workers.values()
        if worker.connected and worker.trouble and not worker.is_late
    )
    if troubled:
        return f"no worker takes work; {_some(troubled)}"
    silent = sorted(worker.worker_id for worker in view.workers.values() if worker.connected)
    if silent:
        return f"no worker takes work; not heard for two heartbeats: {_some(silent)}"
    return f"no worker is connected ({len(view.workers)} known)" if view.workers else "no worker is connected"


def explain_constraints(constraints: tuple[Constraint, ...], workers: Sequence[Mapping[str, str]]) -> str | None:
    """Return why the hard constraints rule out every worker; None if some worker meets them all."""
    if any(evaluate(constraints, attributes) for attributes in workers):
        return None
    hard = [constraint for constraint in constraints if not constraint.soft]
    for constraint in hard:
        if not any(constraint.evaluate(attributes) for attributes in workers):
            values = {attributes[constraint.key] for attributes in workers if constraint.key in attributes}
            if not values:
                return f"no worker has {constraint}; none has the attribute {constraint.key!r}"
            return f"no worker has {constraint}; workers have {_some(sorted(values))}"
    return f"no one worker has all of: {'; '.join(str(constraint) for constraint in hard)}"


def explain_device(need: Resources, capacities: Sequence[Resources]) -> str | None:
    """Return why no worker has the accelerator at all; None if some worker has it (busy or not)."""
    if any(has_device(need, capacity) for capacity in capacities):
        return None
    there = sorted({str(capacity.accelerator) for capacity in capacities if capacity.accelerator is not None})
    devices = f"there are {_some(there)}" if there else "no worker has an accelerator"
    return f"needs {_device_text(need.accelerator)}; {devices}"


def explain_shortfall(need: Resources, offers: Sequence[Offer]) -> str:
    """Return the tightest shortfall on the worker closest to fitting the request."""
    best: tuple[float, str] | None = None
    for offer in offers:
        lacking = shortfalls(need, offer.free)
        if lacking and (best is None or lacking[0].severity < best[0]):
            worst = lacking[0]
            total = amount_text(worst.dimension, offer.capacity)
            text = f"needs {worst.need}; worker {offer.worker_id} has {worst.have} of {total} free"
            if worst.dimension == "disk" and need.disk_bytes > offer.capacity.disk_bytes:
                text += f"{DISK_HINT}, or make room there"
            best = (worst.severity, text)
    return best[1] if best is not None else "waits for the next round"


def amount_of(dimension: str, resources: Resources) -> int:
    """Return the amount of one dimension as a comparable number."""
    if dimension == "cpu":
        return resources.cpu_millis
    if dimension == "memory":
        return resources.memory_bytes
    if dimension == "disk":
        return resources.disk_bytes
    device = resources.accelerator
    return device.count if device is not None else 0


def amount_text(dimension: str, resources: Resources) -> str:
    """Return the amount of one dimension (see `Shortfall.dimension`) in readable form."""
    amount = amount_of(dimension, resources)
    if dimension == "cpu":
        return format_cores(amount)
    return format_size(amount) if dimension in ("memory", "disk") else str(amount)


def _device_text(device: Device | None) -> str:
    return "no accelerator" if device is None else f"{max(device.count, 1)} x {device}"


def _some(names: Collection[str] | Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MAX_NAMED
    return ", ".join(listed[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
