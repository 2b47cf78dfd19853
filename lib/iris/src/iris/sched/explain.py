"""Explains pending work in one sentence that names the tightest shortfall with its numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from iris.core.state.booking import Demand
from iris.core.state.view import ClusterView
from iris.domain.constraints import Constraint, ConstraintOp, evaluate
from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.resources import SLICE_ATTRIBUTE, Device, Resources, amount_of, format_cores, shortfalls
from iris.sched.fit import Host, has_device, may_run_on
from iris.sched.gang import Groups
from iris.sched.holders import next_gang_text, next_task_text
from iris.sched.out_of_use import explain_no_worker, out_of_use_text, some
from iris.sched.preferences import preference_text
from rigging.text.quantities import format_size

DISK_HINT = ": ask for less with --disk or ResourceSpec(disk=...), 0 for none"


class Offer(NamedTuple):
    """A worker's free and total capacity, for explanations."""

    worker_id: WorkerId
    capacity: Resources
    free: Resources
    attributes: Mapping[str, str]


def explain_task(demand: Demand, hosts: Sequence[Host], view: ClusterView, kept_for: JobId | None = None) -> str:
    """Return why no worker takes a task with this demand now.

    Args:
        demand: The task's demand.
        hosts: The workers that accept new work.
        view: The view, which also has the other workers.
        kept_for: The job, if a host is reserved for it.
    """
    need = demand.resources
    absent = _explain_absence(need, demand.constraints, hosts, view)
    if absent is not None:
        return absent
    able = [host for host in hosts if may_run_on(demand, host.worker)]
    large = [host for host in able if need.fits(host.worker.capacity)]
    theirs = [host for host in large if host.held_by not in (None, kept_for)]
    # A worker that is kept free for another job counts only if there is no other.
    asked = [host for host in large if host not in theirs] or theirs or able
    ready = [host for host in theirs if host.fits(need)]
    kept = [f"worker {host.worker.worker_id} has room, but is kept free for {host.held_by}" for host in ready[:1]]
    if kept and asked is theirs:
        return kept[0]
    text = explain_shortfall(
        need,
        [Offer(host.worker.worker_id, host.worker.capacity, host.free, host.worker.attributes) for host in asked],
    )
    text += preference_text(demand.constraints)
    others = _would_do(need, demand.constraints, view)
    if asked is able:
        return text + others
    lacking = [host for host in asked if not host.fits(need)]
    nearest = min(lacking, key=lambda host: shortfalls(need, host.free)[0].severity, default=None)
    if nearest is not None:
        text += f"; it is kept free for {nearest.held_by}" if asked is theirs else next_task_text(nearest, need)
    return "; ".join((text + others, *kept))


def explain_gang(spec: JobSpec, groups: Groups, size: int, count: int, view: ClusterView) -> str:
    """Return why there are not `count` groups with room for `size` tasks each now.

    Args:
        spec: The job.
        groups: The hosts by group.
        size: Tasks in each group.
        count: Number of groups.
        view: The view, which also has the other workers.
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
        return f"{what}; there are {len(rooms)}" + _would_do(groups.need, spec.constraints, view)
    best = max(short, key=lambda value: (short[value], value))
    match = f"{len(rooms)} {unit}{'s match' if len(rooms) > 1 else ' matches'}"
    text = f"{what}; {match}, the best, {best}, has room for {short[best]}"
    text += _would_do(groups.need, (*spec.constraints, Constraint(key, ConstraintOp.EQ, (best,))), view, "there")
    return text + next_gang_text(groups.members[best], groups.need)


def _explain_no_group(spec: JobSpec, view: ClusterView) -> str:
    key = spec.coscheduling_group_by
    workers = [worker for worker in view.workers.values() if worker.is_open]
    if not workers:
        return explain_no_worker(view)
    if not any(key in worker.attributes for worker in workers):
        text = f"no connected worker has the attribute {key!r}, by which the gang of {spec.replicas} is grouped"
        return text + _would_do(spec.resources, (*spec.constraints, Constraint(key, ConstraintOp.EXISTS)), view)
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


def _explain_absence(
    need: Resources, constraints: tuple[Constraint, ...], hosts: Sequence[Host], view: ClusterView
) -> str | None:
    if not hosts:
        return explain_no_worker(view)
    absent = explain_constraints(constraints, [host.worker.attributes for host in hosts])
    if absent is None:
        willing = [host.worker.capacity for host in hosts if evaluate(constraints, host.worker.attributes)]
        absent = explain_device(need, willing)
    return None if absent is None else absent + _would_do(need, constraints, view)


def _would_do(need: Resources, constraints: tuple[Constraint, ...], view: ClusterView, where: str = "") -> str:
    """Return the suitable workers that take no work, as the end of a sentence."""
    label = f"out of use {where}" if where else "suitable, but out of use"
    return out_of_use_text(
        label, view, lambda worker: evaluate(constraints, worker.attributes) and need.fits(worker.capacity)
    )


def explain_constraints(constraints: tuple[Constraint, ...], workers: Sequence[Mapping[str, str]]) -> str | None:
    """Return why no worker meets the hard constraints; None if a worker meets them."""
    if any(evaluate(constraints, attributes) for attributes in workers):
        return None
    hard = [constraint for constraint in constraints if not constraint.soft]
    for constraint in hard:
        if not any(constraint.evaluate(attributes) for attributes in workers):
            values = {attributes[constraint.key] for attributes in workers if constraint.key in attributes}
            if not values:
                return f"no worker has {constraint}; none has the attribute {constraint.key!r}"
            return f"no worker has {constraint}; workers have {some(sorted(values))}"
    return f"no one worker has all of: {'; '.join(str(constraint) for constraint in hard)}"


def explain_device(need: Resources, capacities: Sequence[Resources]) -> str | None:
    """Return why no worker has the accelerator; None if a worker has it, even if busy."""
    if any(has_device(need, capacity) for capacity in capacities):
        return None
    there = sorted({str(capacity.accelerator) for capacity in capacities if capacity.accelerator is not None})
    devices = f"there are {some(there)}" if there else "no worker has an accelerator"
    return f"needs {device_text(need.accelerator)}; {devices}"


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


def amount_text(dimension: str, resources: Resources) -> str:
    """Return the amount of one dimension (see `Shortfall.dimension`) in readable form."""
    amount = amount_of(dimension, resources)
    if dimension == "cpu":
        return format_cores(amount)
    return format_size(amount) if dimension in ("memory", "disk") else str(amount)


def device_text(device: Device | None) -> str:
    """Return the device of a request in readable form."""
    return "no accelerator" if device is None else f"{max(device.count, 1)} x {device}"
