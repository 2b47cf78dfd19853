"""Shows workers' hosts in `iris cluster status`: address, release, and clock difference."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from iris.cli.output import duration
from iris.domain.constraints import TASK_USERS_ATTRIBUTE

if TYPE_CHECKING:
    from iris.client.types import WorkerStatus

HOST_COLUMNS: Final = ("address", "version", "clock")


def host_cells(worker: "WorkerStatus") -> tuple[str, str, str]:
    """Return the cells of HOST_COLUMNS for a worker. The clock is relative to the controller's."""
    version = f"{worker.version} (protocol {worker.protocol_version})" if worker.version else "-"
    return worker.address or "-", version, _clock(worker)


def clock_lines(workers: Iterable["WorkerStatus"]) -> list[str]:
    """Return a warning for each worker whose clock differs much from the controller's."""
    return [
        f"clock:      {worker.worker_id} is {_distance(worker.clock_skew_ms or 0)} the controller; times of its log "
        "lines are off by as much"
        for worker in workers
        if worker.has_far_clock
    ]


def rival_lines(workers: Iterable["WorkerStatus"]) -> list[str]:
    """Return a warning for each worker whose name a second host also uses."""
    return [
        f"copy:       {worker.worker_id} runs at {worker.address or 'an unknown address'}, and a copy of its work "
        f"directory at {worker.rival_address}, which is refused; is it no copy, `iris worker revoke {worker.worker_id}`"
        for worker in workers
        if worker.rival_address
    ]


def shared_identity_lines(workers: Iterable["WorkerStatus"]) -> list[str]:
    """Return a line with the number of hosts on which tasks run as their worker's user; none for an embedded worker."""
    count = sum(
        worker.connected and worker.address not in ("", "unix") and TASK_USERS_ATTRIBUTE not in worker.attributes
        for worker in workers
    )
    hosts = "1 host" if count == 1 else f"{count} hosts"
    return [f"on {hosts} tasks run as their worker's user, and can read its credential (--task-users)"] if count else []


def _clock(worker: "WorkerStatus") -> str:
    if worker.clock_skew_ms is None:
        return "-"
    return f"{worker.clock_skew_ms / 1000:+.3f} s ±{worker.clock_error_ms / 1000:.3f}"


def _distance(skew_ms: int) -> str:
    return f"{duration(abs(skew_ms) / 1000)} {'ahead of' if skew_ms > 0 else 'behind'}"
