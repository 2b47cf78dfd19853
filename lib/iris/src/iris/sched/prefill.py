"""Prefilling: a full worker gets a few extra attempts, which it starts as soon as an attempt of the same kind ends.

A slot is then refilled without a round trip to the controller, and ends and starts are sent in batches. Only plain
tasks whose kind (user and demand) runs shortly are prefilled, where tasks of this kind run, and only as many as the
worker will start within _PREFILL_MS. The worker hands back attempts that it could not start in time.

No worker is prefilled on which an earlier request in the scheduling order waits for room, because a refilled slot would
bypass that request.
"""

from collections.abc import Iterable, Iterator, Set
from typing import Final

from iris.core.state.booking import Demand, Kind
from iris.core.state.prefill import may_be_prefilled
from iris.core.state.view import ClusterView
from iris.domain.entities import Job
from iris.domain.ids import AttemptId, user_of
from iris.sched.fit import Host, Pool

_PREFILL_MS: Final = 100
_START_MS: Final = 2
"""Time that a slot is busy in addition to an attempt's run, in ms."""
MAX_PREFILLED: Final = 64
"""Maximum number of prefilled attempts per worker."""


class PrefillShares:
    """The amounts of work that may be prefilled in one round."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._left: dict[Kind, dict[Host, int]] = {}
        self._given: dict[Host, int] = {}
        self._closed: dict[Demand, Set[Host]] = {}

    def close(self, demand: Demand, hosts: Set[Host]) -> None:
        """Record that a request waits for room on one of these hosts, so that later requests are not prefilled
        there.
        """
        self._closed[demand] = hosts

    def share_out(self, job: Job, demand: Demand, pool: Pool, count: int, waiting: int) -> Iterator[tuple[Host, int]]:
        """Yield hosts for at most `count` tasks of a job, each with a number of tasks, and deduct it from the host's
        share.

        Args:
            job: The job.
            demand: Its tasks' demand.
            pool: The hosts that fit the demand.
            count: Maximum number of tasks to assign.
            waiting: Number of the job's unplaced tasks, including these.
        """
        if not may_be_prefilled(job.spec):
            return
        kind = (user_of(job.spec.job_id), demand)
        left = self._left.get(kind)
        if left is None:
            left = self._left[kind] = self._shares(kind, pool, max(waiting, self._view.waiting_demands.get(demand, 0)))
        for host in list(left):
            if self._is_closed(host):
                del left[host]  # for the rest of the round
                continue
            given = min(count, left[host], MAX_PREFILLED - len(host.load.prefilled) - self._given.get(host, 0))
            if given <= 0:
                del left[host]
                continue
            yield host, given
            count -= given
            left[host] -= given
            self._given[host] = self._given.get(host, 0) + given
            if not count:
                return

    def _shares(self, kind: Kind, pool: Pool, waiting: int) -> dict[Host, int]:
        expected_ms = self._view.run_times.expected_ms(kind)
        if expected_ms is None or not _target(pool.most(kind[1].resources), expected_ms):
            return {}
        hosts = [host for host in pool.hosts if _may_have(host, kind)]
        shares: dict[Host, int] = {}
        for host in hosts:
            target = _target(host.load.running[kind], expected_ms)
            there = len(host.load.prefilled)
            # By the dozen: nothing is added before half of it has begun.
            if there <= target // 2 and there < target:
                shares[host] = min(target - there, waiting // len(hosts))
        return shares

    def _is_closed(self, host: Host) -> bool:
        capacity = host.worker.capacity
        return any(host in hosts and demand.resources.fits(capacity) for demand, hosts in self._closed.items())


def _target(running: int, expected_ms: float) -> int:
    """Return how many prefilled attempts a host should have beside that many running ones."""
    return min(int(_PREFILL_MS * running / (expected_ms + _START_MS)), MAX_PREFILLED)


def _may_have(host: Host, kind: Kind) -> bool:
    load = host.load
    return kind in load.running and not load.lenders and host.coming is None and host.held_by is None


def with_room(hosts: Iterable[Host]) -> Iterator[AttemptId]:
    """Return prefilled attempts whose host now has room for them."""
    for host in hosts:
        if host.held_by is not None:
            continue
        for booking in host.load.prefilled.values():
            if not booking.stopping and host.fits(booking.resources):
                host.take(booking.resources)
                yield booking.attempt_id
