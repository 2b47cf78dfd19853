"""Names the job that holds the resources that a pending job lacks, as the end of its reason."""

from collections import Counter
from collections.abc import Iterable

from iris.domain.ids import JobId
from iris.domain.resources import Resources, amount_of, shortfalls
from iris.sched.fit import Host


def next_task_text(host: Host, need: Resources) -> str:
    """Return a text that names the job with most of the resource the host lacks, possibly the waiting job itself."""
    held = _shares(host, need)
    return f"; next expected when a task of {_largest(held)} ends" if held else ""


def next_gang_text(hosts: Iterable[Host], need: Resources) -> str:
    """Return a text that names the job with most of the resource a group lacks, and the job that has reserved most
    hosts.
    """
    held: dict[JobId, float] = {}
    kept: Counter[JobId] = Counter()
    for host in hosts:
        if host.held_by is not None:
            kept[host.held_by] += 1
            continue
        in_the_way = dict.fromkeys(host.gangs, 1.0) or ({} if host.fits(need) else _shares(host, need))
        for job_id, share in in_the_way.items():
            held[job_id] = held.get(job_id, 0.0) + share
    text = f"; next expected when job {_largest(held)} ends" if held else ""
    if kept:
        job_id, count = kept.most_common(1)[0]
        text += f"; {count} {'host is' if count == 1 else 'hosts are'} kept free for job {job_id}"
    return text


def _shares(host: Host, need: Resources) -> dict[JobId, float]:
    """Return each job's share of the dimension with the host's largest shortfall."""
    scarce = shortfalls(need, host.free)[0].dimension
    held: Counter[JobId] = Counter()
    for booking in host.load.bookings.values():
        # A task that waits for its children lends its cpu: its end frees none.
        held[booking.job_id] += booking.cpu_millis if scarce == "cpu" else amount_of(scarce, booking.held)
    total = held.total()
    return {job_id: amount / total for job_id, amount in held.items() if amount}


def _largest(shares: dict[JobId, float]) -> JobId:
    return max(shares, key=shares.__getitem__)
