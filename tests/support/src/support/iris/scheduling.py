"""A cluster of only the view, the reducer and the scheduler, for tests of decisions."""

from typing import Any

from iris.core.rules.reconcile import Reconciliation, reconcile
from iris.core.rules.reduce import reduce
from iris.core.state import invariants
from iris.core.state.changes import Reduction
from iris.core.state.view import ClusterView
from iris.domain.effects import Effect
from iris.domain.entities import Job, Task
from iris.domain.events import AttemptObserved, Event, JobSubmitted, StopRequested, WorkerConnected
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.states import TaskState
from iris.sched.plan import RoundPlan, plan_round

GB = 1 << 30


def resources(cpu: float = 1, memory_gb: float = 1, disk_gb: float = 0, device: Device | None = None) -> Resources:
    """Return resources, given in readable units."""
    return Resources(round(cpu * 1000), round(memory_gb * GB), round(disk_gb * GB), device)


class InMemoryCluster:
    """A cluster that applies events, one per millisecond, and checks all invariants after each."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self.now_ms = 1_000
        self.effects: list[Effect] = []

    def do(self, event: Event) -> Reduction:
        outcome = reduce(self.view, event, self.now_ms)
        self.view.apply(outcome.changes)
        self.effects.extend(outcome.effects)
        self.now_ms += 1
        invariants.check(self.view)
        return outcome

    def connect(self, name: str, capacity: Resources, instance: str = "a", **attributes: str) -> WorkerId:
        self.do(WorkerConnected(WorkerId(name), instance, capacity, attributes))
        return WorkerId(name)

    def reconnect(self, name: str, instance: str, inventory: list[AttemptObserved]) -> Reconciliation:
        """Reconnect a known worker and reconcile its inventory, like the controller."""
        worker = self.view.workers[WorkerId(name)]
        is_new = instance != worker.instance_id
        self.do(WorkerConnected(worker.worker_id, instance, worker.capacity, worker.attributes))
        result = reconcile(self.view, worker.worker_id, is_new, inventory)
        for event in result.events:
            self.do(event)
        return result

    def submit(self, name: str = "/u/job", need: Resources | None = None, key: str = "", **spec: Any) -> JobId:
        """Submit a job that runs `true`; `spec` are fields of JobSpec."""
        job_id = JobId(name)
        request = JobSpec(job_id, CommandEntrypoint(("true",)), need or resources(), **spec)
        self.do(JobSubmitted(request, key))
        return job_id

    def launch(self, name: str = "/u/job", need: Resources | None = None, **spec: Any) -> JobId:
        """Submit a job, and run one round."""
        job_id = self.submit(name, need, **spec)
        self.schedule()
        return job_id

    def schedule(self) -> RoundPlan:
        """Run one round and apply its assignments."""
        plan = plan_round(self.view, self.now_ms)
        for event in plan.events():
            self.do(event)
        return plan

    def observe(self, attempt: str, state: TaskState, **fields: Any) -> Reduction:
        """Report an attempt's state from its worker (or from `worker_id`)."""
        task, _ = self.view.find_attempt(attempt)
        booking = self.view.bookings.get(AttemptId(attempt))
        known = booking.worker_id if booking is not None else task.worker_id if task is not None else None
        worker_id = fields.pop("worker_id", known or WorkerId("w"))
        return self.do(AttemptObserved(AttemptId(attempt), worker_id, state, **fields))

    def stop(self, name: str, reason: str = "") -> Reduction:
        return self.do(StopRequested(JobId(name), reason))

    def job(self, name: str = "/u/job") -> Job:
        return self.view.job(JobId(name))

    def task(self, name: str = "/u/job/0") -> Task:
        return self.view.task(TaskId(name))
