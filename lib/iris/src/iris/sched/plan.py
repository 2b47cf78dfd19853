"""One scheduling round: a pure function of the view."""

from dataclasses import dataclass, field

from iris.core.gang_rules import is_gang
from iris.core.view import ClusterView, Demand
from iris.domain.entities import Job
from iris.domain.ids import JobId, TaskId, WorkerId, task_id
from iris.sched.explain import Offer, explain_miss
from iris.sched.fit import Host, candidates, hosts_of
from iris.sched.gang import place_gang
from iris.sched.order import jobs_in_order


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round decided.

    Args:
        assignments: Tasks to start, each with its worker, in order of priority.
        reasons: For every job that still has pending tasks, why its first one is not placed.
    """

    assignments: list[tuple[TaskId, WorkerId]] = field(default_factory=list)
    reasons: dict[JobId, str] = field(default_factory=dict)


def plan_round(view: ClusterView, now_ms: int) -> Plan:
    """Choose workers for as many pending tasks as fit: by band, then age of the job, then index of the task.

    A job that does not fit does not hold up those behind it. Cpu that waiting attempts lend counts as free.

    Args:
        view: Never modified.
        now_ms: Unix ms; no rule depends on it yet.
    """
    del now_ms
    round_ = _Round(view)
    for job in jobs_in_order(view):
        round_.place(job)
    return round_.plan


class _Round:
    """Free capacity and what has been found not to fit, for one round."""

    def __init__(self, view: ClusterView) -> None:
        self.plan = Plan()
        self._view = view
        self._hosts = hosts_of(view) if view.queue else []
        # Capacity only shrinks in a round: a request that missed once misses until the end of it.
        self._missed: dict[Demand, str] = {}
        self._candidates: dict[Demand, list[Host]] = {}

    def place(self, job: Job) -> None:
        """Place what fits of the job's pending tasks, or say why not."""
        job_id = job.spec.job_id
        held = self._view.held_counts.get(job_id)
        if held:
            self.plan.reasons[job_id] = f"waits for {held} earlier {'attempt' if held == 1 else 'attempts'} to end"
        elif is_gang(job.spec):
            self._place_gang(job)
        else:
            self._place_each(job)

    def _place_each(self, job: Job) -> None:
        job_id = job.spec.job_id
        demand = self._view.demands[job_id]
        reason = self._missed.get(demand)
        if reason is not None:
            self.plan.reasons[job_id] = reason
            return
        need = demand.resources
        found = self._candidates.get(demand)
        if found is None:
            found = self._candidates[demand] = candidates(demand, self._hosts)
        assignments = self.plan.assignments
        for negated in reversed(self._view.pending[job_id]):
            while found and not found[-1].fits(need):
                found.pop()
            if not found:
                self.plan.reasons[job_id] = self._miss(demand)
                return
            found[-1].take(need)
            assignments.append((task_id(job_id, -negated), found[-1].worker.worker_id))

    def _place_gang(self, job: Job) -> None:
        job_id, spec = job.spec.job_id, job.spec
        demand = self._view.demands[job_id]
        waiting = self._view.pending[job_id]
        within = None
        if len(waiting) < spec.replicas:
            within = self._group_of_running(job)
        placed = place_gang(len(waiting), spec.coscheduling_group_by, demand, self._hosts, within)
        if isinstance(placed, str):
            self.plan.reasons[job_id] = placed
            return
        for negated, worker_id in zip(reversed(waiting), placed, strict=True):
            self.plan.assignments.append((task_id(job_id, -negated), worker_id))

    def _group_of_running(self, job: Job) -> str | None:
        for task in self._view.tasks[job.spec.job_id]:
            if task.state.is_live and task.worker_id is not None:
                return self._view.workers[task.worker_id].attributes.get(job.spec.coscheduling_group_by)
        return None

    def _miss(self, demand: Demand) -> str:
        offers = [
            Offer(host.worker.worker_id, host.worker.capacity, host.free, host.worker.attributes)
            for host in self._hosts
        ]
        reason = explain_miss(demand.resources, demand.constraints, offers, len(self._view.workers))
        self._missed[demand] = reason
        return reason
