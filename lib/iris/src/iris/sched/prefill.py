"""Prefilling: a worker that is full gets a little more, to start it the moment something of the kind ends there.

A slot is then filled again without a word with the controller, and ends and starts travel by the dozen. It is done for
plain tasks only, while those of that user and demand are seen to be short, where such tasks run, and only as many as
the worker will have started within _PREFILL_MS. What it could not start in time it hands back.

Nothing is prefilled where a request that comes earlier in the order of service waits for room: a slot is passed
on without the controller, so it would go past that request.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from iris.core.state.booking import Demand, Kind
from iris.core.state.prefill import may_be_prefilled
from iris.core.state.view import ClusterView
from iris.domain.entities import Job
from iris.domain.ids import AttemptId, user_of
from iris.sched.fit import Host, Pool

_PREFILL_MS: Final = 100
_START_MS: Final = 2
"""Time for which a slot is busy besides an attempt's run."""
MAX_PREFILLED: Final = 64
"""On one worker."""


class PrefillShares:
    """Shares of work that may be prefilled in one round."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._left: dict[Kind, dict[Host, int]] = {}
        self._given: dict[Host, int] = {}
        self._closed: dict[Demand, frozenset[Host]] = {}

    def close(self, demand: Demand, hosts: frozenset[Host]) -> None:
        """A request waits for room on one of these hosts: nothing that comes after it may be prefilled there."""
        self._closed[demand] = hosts

    def share_out(self, job: Job, demand: Demand, pool: Pool, count: int, waiting: int) -> Iterator[tuple[Host, int]]:
        """Yield hosts for at most `count` tasks of a job, each with a number; these are taken off the hosts' shares.

        Args:
            job: The job.
            demand: Its tasks' demand.
            pool: The hosts that suit the demand.
            count: Most tasks to assign.
            waiting: So many tasks of the job are not placed, these included.
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
        if expected_ms is None:
            return {}
        hosts = [host for host in pool.hosts if _may_have(host, kind)]
        shares: dict[Host, int] = {}
        for host in hosts:
            target = min(int(_PREFILL_MS * host.load.running[kind] / (expected_ms + _START_MS)), MAX_PREFILLED)
            there = len(host.load.prefilled)
            # By the dozen: nothing is added before half of it has begun.
            if there <= target // 2 and there < target:
                shares[host] = min(target - there, waiting // len(hosts))
        return shares

    def _is_closed(self, host: Host) -> bool:
        capacity = host.worker.capacity
        return any(host in hosts and demand.resources.fits(capacity) for demand, hosts in self._closed.items())


def _may_have(host: Host, kind: Kind) -> bool:
    load = host.load
    return kind in load.running and not load.lenders and host.coming is None and host.held_by is None


def with_room(hosts: Iterable[Host]) -> Iterator[AttemptId]:
    """Attempts that were prefilled and need not wait any more, as their host has room for them after all."""
    for host in hosts:
        if host.held_by is not None:
            continue
        for booking in host.load.prefilled.values():
            if not booking.stopping and host.fits(booking.resources):
                host.take(booking.resources)
                yield booking.attempt_id
