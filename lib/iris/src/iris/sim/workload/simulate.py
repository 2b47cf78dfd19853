"""Runs a workload on a fleet: the real reducer and the real scheduling rounds, event by event."""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from iris.core.rules.reduce import reduce
from iris.core.state.booking import PlacementKey
from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, StartAttempt, StopAttempt
from iris.domain.events import (
    Assigned,
    AttemptObserved,
    Event,
    JobSubmitted,
    WorkerConnected,
    WorkerDisconnected,
    WorkerGone,
)
from iris.domain.ids import AttemptId, JobId, WorkerId, user_of
from iris.domain.job_spec import JobSpec
from iris.domain.resources import Resources, weight
from iris.domain.states import PriorityBand, TaskState
from iris.sched.feasible import impossible_reason
from iris.sched.fit import may_run_on
from iris.sched.plan import Planner, plan_round
from iris.sim.workload.model import Arrival, Machine
from rigging.errors import InvalidRequest

# Times of zero mean "not yet" in the records.
_EPOCH_MS: Final = 1_000_000_000_000
_PROGRESS_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of one task for its first start. `is_over` is False if the task was still waiting at the end."""

    user: str
    band: PriorityBand
    seconds: float
    is_over: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet between two times: cores and accelerators; `waiting` tasks; `*_stranded` are free on hosts that suit a
    pending task.
    """

    at_s: float
    cores_used: float
    devices_used: float
    cores_stranded: float
    devices_stranded: float
    waiting: int


@dataclass
class SimulationResult:
    """The result of a simulation.

    Args:
        refused: Jobs that no host could ever run, with the reason. stuck: Jobs never placed completely, with the
            reason.
        preemptions: Number of preemptions by the victim's band. lost_core_s: Weight times seconds of interrupted runs.
    """

    cores: float
    devices: float
    samples: list[Sample] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    preemptions: dict[PriorityBand, int] = field(default_factory=dict)
    lost_core_s: float = 0.0
    refused: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    jobs: int = 0
    tasks: int = 0
    ended_tasks: int = 0
    end_s: float = 0.0


Happening = Arrival | AttemptObserved | Callable[[], None]


@dataclass(slots=True)
class _Run:
    job_id: JobId
    worker_id: WorkerId
    need: Resources
    started_ms: int


def simulate(
    arrivals: Sequence[Arrival],
    machines: Sequence[Machine],
    stop_s: float = 5.0,
    until_s: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> SimulationResult:
    """Simulate the workload to its end.

    Args:
        arrivals: Jobs with their times.
        machines: The fleet.
        stop_s: How long a preempted task takes to end; it restarts when it is placed again.
        until_s: When to end the simulation, even if jobs are running; None to end when all jobs have ended.
        progress: Called every two seconds of real time with a readable line.

    Raises:
        InvalidRequest: There is no host, or two hosts have the same name.
    """
    if not machines:
        raise InvalidRequest("the fleet has no host")
    return Simulation(arrivals, machines, stop_s, until_s, progress).run()


class Simulation:
    """A run of a workload; see `simulate`.

    Attributes:
        view: The cluster. now_ms: The time since the beginning.
    """

    def __init__(
        self,
        arrivals: Sequence[Arrival],
        machines: Sequence[Machine],
        stop_s: float,
        until_s: float | None,
        progress: Callable[[str], None] | None,
    ) -> None:
        if len({machine.name for machine in machines}) < len(machines):
            raise InvalidRequest("two hosts of the fleet have the same name; give each group a name of its own")
        self._arrivals = arrivals
        self._machines = machines
        self._offers = [(machine.name, machine.capacity, machine.attributes) for machine in machines]
        self._stop_ms = round(stop_s * 1000)
        self._until_ms = None if until_s is None else round(until_s * 1000)
        self._progress = progress
        self.now_ms = 0
        self.view = ClusterView()
        self._planner = Planner()
        self._events: list[tuple[int, int, Happening]] = []
        self._count = 0
        self._runs: dict[AttemptId, _Run] = {}
        self._leaving: dict[AttemptId, _Run] = {}
        self._durations: dict[JobId, int] = {}
        self._first_start: dict[JobId, set[int]] = {}
        self._used = [0, 0]  # millicores, devices
        self._willing: dict[PlacementKey, list[WorkerId]] = {}
        self.outcome = SimulationResult(
            sum(machine.capacity.cpu_millis for machine in machines) / 1000,
            sum(device.count for machine in machines if (device := machine.capacity.accelerator)),
        )

    @property
    def clock_ms(self) -> int:
        """Return the time as the cluster has it (Unix ms)."""
        return _EPOCH_MS + self.now_ms

    def run(self) -> SimulationResult:
        """Run to the end."""
        for machine in self._machines:
            self.apply(WorkerConnected(machine.name, "one", machine.capacity, machine.attributes))
        for arrival in self._arrivals:
            self.at(round(arrival.at_s * 1000), arrival)
        said = time.monotonic()
        while self._events and (self._until_ms is None or self._events[0][0] <= self._until_ms):
            self.now_ms = self._events[0][0]
            while self._events and self._events[0][0] == self.now_ms:
                self._happen(heapq.heappop(self._events)[2])
            self._schedule()
            self.after_round()
            if self._progress is not None and time.monotonic() - said > _PROGRESS_EVERY_S:
                said = time.monotonic()
                self._progress(self._status())
        self._finish()
        return self.outcome

    def after_round(self) -> None:
        """Note the figures after a scheduling round."""
        self._sample()

    def lose_worker(self, worker_id: WorkerId) -> None:
        """Let a host go, with everything on it."""
        self.apply(WorkerDisconnected(worker_id, "one"))
        self.apply(WorkerGone(worker_id, "its host is gone"))
        for runs in (self._runs, self._leaving):
            for name in [name for name, run in runs.items() if run.worker_id == worker_id]:
                self._use(runs.pop(name).need, -1)

    def _status(self) -> str:
        ended, tasks = self.outcome.ended_tasks, self.outcome.tasks
        return f"{self.now_ms / 3.6e6:.2f} h simulated; {ended} of {tasks} tasks submitted so far have ended"

    # ---- events ----

    def at(self, at_ms: int, what: Happening) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._events, (at_ms, self._count, what))

    def _happen(self, what: Happening) -> None:
        if isinstance(what, Arrival):
            self._submit(what)
        elif isinstance(what, AttemptObserved):
            self._end(what)
        else:
            what()

    def why_impossible(self, spec: JobSpec) -> str | None:
        """Return why no host could ever run a job."""
        return impossible_reason(spec, self._offers)

    def _submit(self, arrival: Arrival) -> None:
        spec = arrival.spec(self.outcome.jobs)
        self.outcome.jobs += 1
        reason = self.why_impossible(spec)
        if reason is not None:
            self.outcome.refused.append(f"{arrival.origin or spec.job_id}: {reason}")
            return
        self.outcome.tasks += spec.replicas
        self._durations[spec.job_id] = max(round(arrival.duration_s * 1000), 1)
        self._first_start[spec.job_id] = set()
        self.apply(JobSubmitted(spec))

    def _end(self, event: AttemptObserved) -> None:
        run = self._leaving.pop(event.attempt_id, None) if event.state is TaskState.KILLED else None
        if event.state is TaskState.SUCCEEDED:
            run = self._runs.pop(event.attempt_id, None)
            self.outcome.ended_tasks += run is not None
        if run is None:
            return  # it was told to stop before it came to its end
        self._use(run.need, -1)
        self.apply(event)

    def _schedule(self) -> None:
        if not self.view.queue:
            return
        plan = self._planner.plan_round(self.view, self.clock_ms)
        for preempted in plan.preemptions:
            self.apply(preempted)
        for task_id, worker_id in plan.assignments:
            self.apply(Assigned(task_id, worker_id))

    def apply(self, event: Event) -> None:
        """Apply an event, and begin and stop what follows from it."""
        outcome = reduce(self.view, event, self.clock_ms)
        self.view.apply(outcome.changes)
        for effect in outcome.effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, StartAttempt):
            task, _ = self.view.find_attempt(effect.attempt_id)
            assert task is not None
            spec = self.view.jobs[task.job_id].spec
            self._runs[effect.attempt_id] = _Run(task.job_id, effect.worker_id, spec.resources, self.now_ms)
            self._use(spec.resources, 1)
            self._note_start(spec, task.index)
            end = AttemptObserved(effect.attempt_id, effect.worker_id, TaskState.SUCCEEDED)
            self.at(self.now_ms + self._durations[task.job_id], end)
        elif isinstance(effect, StopAttempt) and effect.attempt_id in self._runs:
            run = self._leaving[effect.attempt_id] = self._runs.pop(effect.attempt_id)
            band = self.view.jobs[run.job_id].spec.band
            self.outcome.preemptions[band] = self.outcome.preemptions.get(band, 0) + 1
            self.outcome.lost_core_s += weight(run.need) * (self.now_ms - run.started_ms) / 1000
            stopped = AttemptObserved(effect.attempt_id, run.worker_id, TaskState.KILLED)
            self.at(self.now_ms + self._stop_ms, stopped)

    # ---- figures ----

    def _use(self, need: Resources, sign: int) -> None:
        device = need.accelerator
        self._used[0] += sign * need.cpu_millis
        self._used[1] += sign * (device.count if device is not None else 0)

    def _note_start(self, spec: JobSpec, index: int) -> None:
        started = self._first_start[spec.job_id]
        if index not in started:
            started.add(index)
            self._note_wait(spec, True)

    def _note_wait(self, spec: JobSpec, is_over: bool) -> None:
        waited = (self.clock_ms - self.view.jobs[spec.job_id].submitted_at_ms) / 1000
        self.outcome.waits.append(Wait(user_of(spec.job_id), spec.band, waited, is_over))

    def _sample(self) -> None:
        view = self.view
        cores = devices = 0
        if view.queue:
            hosts: dict[WorkerId, bool] = {}  # whether a waiting task wants its accelerators
            for _, _, job_id in view.queue:
                demand = view.demands[job_id]
                wants = demand.resources.accelerator is not None
                for worker_id in self._willing_hosts(job_id):
                    hosts[worker_id] = hosts.get(worker_id, False) or wants
            for worker_id, wants_device in hosts.items():
                free = view.free(worker_id)
                cores += max(free.cpu_millis, 0)
                if wants_device and free.accelerator is not None:
                    devices += max(free.accelerator.count, 0)
        waiting = sum(len(indexes) for indexes in view.pending.values())
        sample = Sample(self.now_ms / 1000, self._used[0] / 1000, self._used[1], cores / 1000, devices, waiting)
        self.outcome.samples.append(sample)

    def _willing_hosts(self, job_id: JobId) -> list[WorkerId]:
        demand = self.view.demands[job_id]
        found = self._willing.get(demand.placement_key)
        if found is None:
            workers = self.view.workers.values()
            found = self._willing[demand.placement_key] = [w.worker_id for w in workers if may_run_on(demand, w)]
        return found

    def _finish(self) -> None:
        if self._until_ms is not None:
            self.now_ms = max(self.now_ms, self._until_ms)
        self.outcome.end_s = self.now_ms / 1000
        reasons = plan_round(self.view, self.clock_ms).reasons
        for _, _, job_id in self.view.queue:
            spec = self.view.jobs[job_id].spec
            never = spec.replicas - len(self._first_start[job_id])
            if not self._events:
                self.outcome.stuck.append(f"{job_id}: {reasons[job_id]}")
            for _ in range(never):
                self._note_wait(spec, False)
