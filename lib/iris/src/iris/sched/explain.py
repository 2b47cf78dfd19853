"""Why a request is not placed, in one sentence that names the tightest shortfall with its numbers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from iris.domain.constraints import Constraint, evaluate
from iris.domain.ids import WorkerId
from iris.domain.resources import Device, Resources, format_bytes, format_cores, shortfalls

_MAX_NAMED = 5


class Offer(NamedTuple):
    """A worker as seen by one who looks for room: what is free of what it has."""

    worker_id: WorkerId
    capacity: Resources
    free: Resources
    attributes: Mapping[str, str]


def explain_miss(need: Resources, constraints: tuple[Constraint, ...], offers: Sequence[Offer], known: int) -> str:
    """Why no offer takes the request now.

    Args:
        offers: The connected workers. known: How many workers there are with those that are not connected.
    """
    if not offers:
        return f"no worker is connected ({known} known)" if known else "no worker is connected"
    unmet = explain_constraints(constraints, [offer.attributes for offer in offers])
    if unmet is not None:
        return unmet
    willing = [offer for offer in offers if evaluate(constraints, offer.attributes)]
    absent = explain_device(need, [offer.capacity for offer in willing])
    if absent is not None:
        return absent
    return explain_shortfall(need, [offer for offer in willing if has_device(need, offer.capacity)])


def explain_constraints(constraints: tuple[Constraint, ...], workers: Sequence[Mapping[str, str]]) -> str | None:
    """Why the hard constraints rule out every worker, or None when some worker meets them all."""
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
    """Why no worker has the accelerator at all, or None when some worker has it (busy or not)."""
    if any(has_device(need, capacity) for capacity in capacities):
        return None
    there = sorted({str(capacity.accelerator) for capacity in capacities if capacity.accelerator is not None})
    devices = f"there are {_some(there)}" if there else "no worker has an accelerator"
    return f"needs {_device_text(need.accelerator)}; {devices}"


def explain_shortfall(need: Resources, offers: Sequence[Offer]) -> str:
    """The tightest shortfall on the worker that is nearest to taking the request."""
    best: tuple[float, str] | None = None
    for offer in offers:
        lacking = shortfalls(need, offer.free)
        if lacking and (best is None or lacking[0].severity < best[0]):
            worst = lacking[0]
            total = amount_text(worst.dimension, offer.capacity)
            text = f"needs {worst.need}; worker {offer.worker_id} has {worst.have} of {total} free"
            best = (worst.severity, text)
    return best[1] if best is not None else "waits for the next round"


def amount_text(dimension: str, resources: Resources) -> str:
    """How much of one dimension (see `Shortfall.dimension`) there is, as people write it."""
    if dimension == "cpu":
        return format_cores(resources.cpu_millis)
    if dimension == "memory":
        return format_bytes(resources.memory_bytes)
    if dimension == "disk":
        return format_bytes(resources.disk_bytes)
    device = resources.accelerator
    return str(device.count) if device is not None else "0"


def has_device(need: Resources, capacity: Resources) -> bool:
    """Whether a worker of that capacity has the kind of accelerator that is needed, whatever the count."""
    wanted, have = need.accelerator, capacity.accelerator
    return wanted is None or (have is not None and wanted.accepts(have))


def _device_text(device: Device | None) -> str:
    return "no accelerator" if device is None else f"{max(device.count, 1)} x {device}"


def _some(names: Collection[str] | Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MAX_NAMED
    return ", ".join(listed[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
