"""Counts what pending jobs need that the scheduler's round has not placed, by kind of request. Pure."""

from dataclasses import dataclass

from iris.core.state.view import ClusterView
from iris.domain.constraints import Constraint
from iris.domain.ids import JobId
from iris.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Demand:
    """Pending tasks with equal needs, which wait for capacity and nothing else.

    Args:
        need: The resources of a task.
        constraints: The constraints on a task's host.
        tasks: The number of tasks; of gangs, a multiple of `gang_size * gang_slices`.
        gang_size: The tasks that need one slice for themselves; 0 for tasks that are placed singly.
        gang_slices: The slices that a gang needs at the same time.
        group_by: The attribute that a gang's hosts share.
        jobs: The first jobs, in the scheduler's order, for reasons: at most 16.
        region: The region that the jobs prefer; empty for none.
    """

    need: Resources
    constraints: tuple[Constraint, ...]
    tasks: int
    gang_size: int = 0
    gang_slices: int = 1
    group_by: str = ""
    jobs: tuple[JobId, ...] = ()
    region: str = ""


def demands(view: ClusterView, now_ms: int) -> tuple[Demand, ...]:
    """Return what waits for capacity after a scheduling round, in the scheduler's order.

    Args:
        view: The view after the round; never modified.
        now_ms: Unix ms.
    """
    del view, now_ms
    return ()
