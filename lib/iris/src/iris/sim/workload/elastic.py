"""Runs a workload on slices that a policy creates and releases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iris.autoscale.model import SLICE_ATTRIBUTE, Outcome, SliceRecord, SliceState, SliceUse, worker_id_of
from iris.autoscale.planning.demand import demands
from iris.domain.events import WorkerConnected
from iris.domain.ids import WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.scale_groups import ScaleGroup
from iris.sched.feasible import impossible_reason
from iris.sim.workload.cloud import Cloud, Fate
from iris.sim.workload.model import Arrival
from iris.sim.workload.policies import Policy
from iris.sim.workload.simulate import Simulation, SimulationResult


@dataclass
class ElasticResult:
    """The results of a policy.

    Args:
        workload: The figures of the jobs.
        waiting_task_s: Seconds that tasks waited, also after losses, added up.
        host_s: Seconds of hosts that were paid for, from the request to the end. busy_host_s: With work.
        created, refused, lost, released: Numbers of slices.
    """

    workload: SimulationResult
    waiting_task_s: float = 0.0
    host_s: float = 0.0
    busy_host_s: float = 0.0
    created: int = 0
    refused: int = 0
    lost: int = 0
    released: int = 0


def simulate_elastic(arrivals: Sequence[Arrival], cloud: Cloud, policy: Policy, until_s: float) -> ElasticResult:
    """Simulate a workload whose hosts a policy provides.

    Args:
        arrivals: Jobs with their times.
        cloud: Makes slices.
        policy: Chooses them.
        until_s: When the simulation ends.
    """
    run = _Elastic(arrivals, cloud, policy, until_s)
    run.run()
    run.count_time()
    return run.result


class _Elastic(Simulation):
    """The attributes `slices` and `use` are what the policy sees."""

    def __init__(self, arrivals: Sequence[Arrival], cloud: Cloud, policy: Policy, until_s: float) -> None:
        super().__init__(arrivals, (), 5.0, until_s, None)
        self.result = ElasticResult(self.outcome)
        self._cloud, self._policy = cloud, policy
        self._groups = {group.name: group for group in cloud.groups}
        self._slices: dict[str, SliceRecord] = {}
        self._fates: dict[str, Fate] = {}
        self._slice_use: dict[str, SliceUse] = {}
        self._counted_ms = self._waiting = self._hosts = self._busy_hosts = self._stamp = 0
        self._look_ms = -1
        self._last_look_ms = round(until_s * 1000)
        self._look_again()

    def why_impossible(self, spec: JobSpec) -> str | None:
        """Return why no group could ever run a job."""
        return impossible_reason(spec, (), self._cloud.groups)

    def after_round(self) -> None:
        """Count what the time since the last round cost, and look."""
        self.count_time()
        self._see_use()
        self._waiting = sum(map(len, self.view.pending.values()))
        is_idle = any(not self._slice_use[name].busy for name in self._slices if name in self._slice_use)
        if (self.view.queue or is_idle) and (self._policy.acts_at_once or self._look_ms == self.now_ms):
            self._look()

    def _look_again(self) -> None:
        self._look_ms = self.now_ms
        next_ms = self.now_ms + round(self._policy.look_s * 1000)
        if next_ms <= self._last_look_ms:
            self.at(next_ms, self._look_again)

    def count_time(self) -> None:
        """Add up the time since the last count."""
        seconds = (self.now_ms - self._counted_ms) / 1000
        self._counted_ms = self.now_ms
        self.result.waiting_task_s += seconds * self._waiting
        self.result.host_s += seconds * self._hosts
        self.result.busy_host_s += seconds * self._busy_hosts

    def _see_use(self) -> None:
        touched = self.view.touched
        names = {worker_id.rpartition("-")[0] for worker_id in touched.since(self._stamp)}
        self._stamp = touched.stamp
        for name in names & self._slices.keys():
            record, loads = self._slices[name], self.view.loads
            hosts = self._groups[record.group].hosts_per_slice
            busy = sum(bool(loads[worker_id_of(name, number)].bookings) for number in range(hosts))
            before = self._slice_use.get(name, SliceUse()).busy
            self._busy_hosts += busy - before
            self._slice_use[name] = SliceUse(hosts, busy)
            if before and not busy:
                self._slices[name] = replace(record, used_ms=self.clock_ms)

    def _look(self) -> None:
        waiting = demands(self.view, self.clock_ms)
        create, release = self._policy.choose(self.clock_ms, waiting, self._slices, self._slice_use)
        for name in create:
            self._request(self._groups[name])
        for name in release:
            self.result.released += 1
            self._end_slice(name)

    def _request(self, group: ScaleGroup) -> None:
        name = f"{group.name}-{self.result.created}"
        self.result.created += 1
        fate = self._fates[name] = self._cloud.request(group, self.now_ms / 1000)
        is_made = fate.answer.outcome is Outcome.DONE
        self._hosts += group.hosts_per_slice if is_made else 0
        state = SliceState.BOOTING if is_made else SliceState.REQUESTED
        self._slices[name] = SliceRecord(name, group.name, state, self.clock_ms, self.clock_ms)
        self.at(round(fate.told_s * 1000), lambda: self._told(name, group, fate))

    def _told(self, name: str, group: ScaleGroup, fate: Fate) -> None:
        if name not in self._slices:
            return
        self._policy.answered(group, fate.answer, self.clock_ms)
        if fate.answer.outcome is not Outcome.DONE:
            self.result.refused += 1
            self._end_slice(name)
            return
        now = self.clock_ms
        self._slices[name] = replace(self._slices[name], state=SliceState.JOINED, joined_ms=now, used_ms=now)
        for number in range(group.hosts_per_slice):
            own = {"tpu-name": name, "tpu-worker-id": str(number), SLICE_ATTRIBUTE: name}
            attributes = {**group.host_attributes, **own}
            self.apply(WorkerConnected(worker_id_of(name, number), "one", group.host, attributes))
        if fate.lost_s * 1000 <= self._last_look_ms:
            self.at(round(fate.lost_s * 1000), lambda: self._lose(name))

    def _lose(self, name: str) -> None:
        record = self._slices.get(name)
        if record is not None:
            self.result.lost += 1
            self._policy.lost(record, self.clock_ms)
            self._end_slice(name)

    def _end_slice(self, name: str) -> None:
        """Let a slice go, with what runs there."""
        record, fate = self._slices.pop(name), self._fates.pop(name)
        size = self._groups[record.group].hosts_per_slice
        self._hosts -= size if fate.answer.outcome is Outcome.DONE else 0
        if record.state is not SliceState.JOINED:
            return
        self._busy_hosts -= self._slice_use.pop(name, SliceUse()).busy
        hosts = [worker_id_of(name, number) for number in range(size)]
        for worker_id in hosts:
            self.lose_worker(worker_id)
        for worker_id in hosts:
            self._forget(worker_id)

    def _forget(self, worker_id: WorkerId) -> None:
        if next(self.view.attempts_on(worker_id), None) is None:
            self.view.forget_worker(worker_id)
