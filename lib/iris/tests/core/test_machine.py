"""Any events in any order: the reducer, the view, the scheduler and reconciliation keep every promise."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from iris.core.reduce import reduce
from iris.core.timers import expired, next_deadline
from iris.core.view import ClusterView
from iris.domain.constraints import Constraint, ConstraintOp, evaluate
from iris.domain.effects import JobEnded, JobSettled, StartAttempt
from iris.domain.entities import CommandEntrypoint, JobSpec
from iris.domain.events import (
    AttemptMissing,
    AttemptObserved,
    Event,
    JobSubmitted,
    LendCpu,
    StopRequested,
    WorkerDisconnected,
    WorkerLost,
)
from iris.domain.ids import AttemptId, JobId, WorkerId, parent_of
from iris.domain.resources import Device, Resources
from iris.domain.states import FailureKind, PriorityBand, TaskState
from iris.sched.testing import GB, InMemoryCluster, resources
from rigging.errors import AlreadyExists, Conflict, NotFound

CAPACITIES = {
    "w1": (resources(2, 4, 10), {"slice": "a"}),
    "w2": (resources(2, 4, 10, Device("gpu", "H100", 2)), {"slice": "a"}),
    "w3": (resources(1, 8, 10), {"slice": "b"}),
}
NAMES = ("/u/a", "/u/b", "/u/a/c", "/u/a/c/d", "/u/b/e")
SEEN = (
    TaskState.BUILDING,
    TaskState.RUNNING,
    TaskState.SUCCEEDED,
    TaskState.FAILED,
    TaskState.KILLED,
    TaskState.WORKER_FAILED,
)

workers = st.sampled_from(sorted(CAPACITIES)).map(WorkerId)
job_ids = st.sampled_from(NAMES).map(JobId)
needs = st.builds(
    Resources,
    st.sampled_from([1000, 500, 0, 2000, 64_000]),
    st.sampled_from([0, GB, 3 * GB]),
    st.sampled_from([0, 4 * GB]),
    st.sampled_from([None, None, None, Device("gpu", "", 1), Device("gpu", "A100", 1, ("H100",))]),
)
specs = st.builds(
    JobSpec,
    job_id=job_ids,
    entrypoint=st.just(CommandEntrypoint(("true",))),
    resources=needs,
    replicas=st.integers(1, 4),
    max_retries_failure=st.integers(0, 2),
    max_retries_preemption=st.integers(0, 2),
    timeout_ms=st.sampled_from([0, 0, 30]),
    scheduling_timeout_ms=st.sampled_from([0, 0, 30]),
    constraints=st.sampled_from([(), (), (), (Constraint("slice", ConstraintOp.EQ, ("a",)),)]),
    coscheduling_group_by=st.sampled_from(["", "", "slice"]),
    band=st.sampled_from(PriorityBand),
)


class Anything(RuleBasedStateMachine):
    """Adversarial events: workers repeat themselves, come late, contradict each other, and forget."""

    @initialize()
    def start(self) -> None:
        self.cluster = InMemoryCluster()
        self.started: list[tuple[AttemptId, WorkerId]] = []
        for name, (capacity, attributes) in CAPACITIES.items():
            self.cluster.connect(name, capacity, **attributes)
        self.submit(JobSpec(JobId("/u/a"), CommandEntrypoint(("true",)), resources(1), replicas=3), "")
        self.submit(
            JobSpec(JobId("/u/a/c"), CommandEntrypoint(("true",)), resources(1), coscheduling_group_by="slice"), ""
        )
        self.schedule()

    # ---- promises about each single event ----

    def do(self, event: Event) -> None:
        view = self.cluster.view
        twice = [reduce(view, event, self.cluster.now_ms) for _ in range(2)]
        assert twice[0] == twice[1], "reduce changed the view"
        jobs, tasks = dict(view.jobs), {task.task_id: task for of_job in view.tasks.values() for task in of_job}
        settled = {job_id for job_id in view.jobs if view.is_settled(job_id)}
        outcome = self.cluster.do(event)
        for job_id, job in jobs.items():
            if job.state.is_terminal and view.jobs[job_id] != job:
                assert isinstance(event, JobSubmitted), f"{job} became {view.jobs[job_id]} by {event}"
                assert view.jobs[job_id].sequence > job.sequence
        for old in tasks.values():
            job = view.jobs[old.job_id]
            if old.index >= job.spec.replicas:
                continue
            new = view.tasks[old.job_id][old.index]
            assert new.attempt >= old.attempt
            if old.state.is_terminal and new != old and job.sequence == jobs[old.job_id].sequence:
                assert job.spec.coscheduling_group_by, f"{old} became {new}"
                assert (old.state, new.state) == (TaskState.SUCCEEDED, TaskState.PENDING)
        assert {effect.job_id for effect in outcome.effects if isinstance(effect, JobEnded)} == {
            job_id
            for job_id, job in view.jobs.items()
            if job.state.is_terminal and not (job_id in jobs and jobs[job_id].state.is_terminal)
        }
        told = {effect.job_id for effect in outcome.effects if isinstance(effect, JobSettled)}
        now_settled = {job_id for job_id in view.jobs if view.is_settled(job_id)}
        assert told <= now_settled
        assert now_settled - settled <= told, "a job settled and nobody was told"
        assert not [effect for effect in outcome.effects if isinstance(effect, StartAttempt)]

    def pick(self, data: st.DataObject) -> tuple[AttemptId, WorkerId] | None:
        """An attempt of the past or present, the recent ones more often."""
        if not self.started:
            return None
        recent = st.sampled_from(self.started[-6:])
        return data.draw(recent | st.sampled_from(self.started))

    # ---- events ----

    @rule(spec=specs, key=st.sampled_from(["", "", "k1", "k2"]))
    def submit(self, spec: JobSpec, key: str) -> None:
        view = self.cluster.view
        known = view.jobs.get(spec.job_id)
        parent = parent_of(spec.job_id)
        try:
            self.do(JobSubmitted(spec, key))
        except AlreadyExists:
            assert known is not None
            assert not known.state.is_terminal
        except NotFound:
            assert parent not in view.jobs
        except Conflict:
            assert parent is not None
            assert view.jobs[parent].state.is_terminal

    @rule()
    def schedule(self) -> None:
        cluster = self.cluster
        before = len(cluster.effects)
        plan = cluster.schedule()
        new = [effect for effect in cluster.effects[before:] if isinstance(effect, StartAttempt)]
        assert not {effect.attempt_id for effect in new} & {name for name, _ in self.started}, "a number came twice"
        self.started.extend((effect.attempt_id, effect.worker_id) for effect in new)
        assert set(plan.reasons) == set(cluster.view.pending)
        for job_id, reason in plan.reasons.items():
            assert reason
            spec = cluster.view.jobs[job_id].spec
            if job_id in cluster.view.held_counts or spec.coscheduling_group_by:
                continue
            for worker in cluster.view.workers.values():
                willing = worker.connected and evaluate(spec.constraints, worker.attributes)
                fits = spec.resources.fits(cluster.view.free(worker.worker_id))
                assert not (willing and fits), f"{job_id} would fit on {worker.worker_id}, but {reason}"

    @rule(
        data=st.data(),
        state=st.sampled_from(SEEN),
        kind=st.sampled_from(FailureKind),
        elsewhere=st.none() | st.none() | st.none() | workers,
        times=st.integers(1, 2),
    )
    def observe(
        self, data: st.DataObject, state: TaskState, kind: FailureKind, elsewhere: WorkerId | None, times: int
    ) -> None:
        picked = self.pick(data)
        if picked is None:
            return
        event = AttemptObserved(picked[0], elsewhere or picked[1], state, 1, 0, "", kind, self.cluster.now_ms)
        before = self.cluster.view.find_attempt(picked[0])[0]
        for _ in range(times):
            self.do(event)
        if event.worker_id != picked[1]:
            assert self.cluster.view.find_attempt(picked[0])[0] == before, "believed a worker that never had it"
        assert not reduce(self.cluster.view, event, self.cluster.now_ms).changes, "a repeated report changed something"

    @rule(data=st.data(), state=st.sampled_from(SEEN), kind=st.sampled_from(FailureKind))
    def go_on(self, data: st.DataObject, state: TaskState, kind: FailureKind) -> None:
        """An attempt that its worker really has moves on, and the scheduler reacts."""
        bookings = self.cluster.view.bookings
        if bookings:
            booking = bookings[data.draw(st.sampled_from(sorted(bookings)))]
            self.do(AttemptObserved(booking.attempt_id, booking.worker_id, state, 1, failure_kind=kind))
            self.schedule()

    @rule(job_id=job_ids)
    def succeed(self, job_id: JobId) -> None:
        """Everything of one job that lives succeeds, so that long stories happen too."""
        for task in list(self.cluster.view.tasks.get(job_id, ())):
            if task.state.is_live and task.worker_id is not None:
                self.do(AttemptObserved(task.attempt_id, task.worker_id, TaskState.SUCCEEDED))

    @rule(job_id=job_ids, again=st.none() | specs)
    def stop(self, job_id: JobId, again: JobSpec | None) -> None:
        """A job is stopped, and perhaps submitted again while its attempts are on their way out."""
        if job_id not in self.cluster.view.jobs:
            return
        self.do(StopRequested(job_id, "by a user"))
        if again is not None:
            self.submit(replace(again, job_id=job_id), "")
            self.schedule()

    @rule(data=st.data(), on=st.booleans())
    def lend(self, data: st.DataObject, on: bool) -> None:
        picked = self.pick(data)
        if picked is None:
            return
        view = self.cluster.view
        booking = view.bookings.get(picked[0])
        free = view.free(picked[1]).cpu_millis
        self.do(LendCpu(picked[0], on))
        if booking is None or booking.stopping:
            assert view.free(picked[1]).cpu_millis == free
        elif booking.waits == int(on):  # the first wait began, or the last ended
            assert abs(view.free(picked[1]).cpu_millis - free) in (0, booking.resources.cpu_millis)
        held = sum(other.resources.cpu_millis for other in view.attempts_on(picked[1]) if not other.waits)
        assert view.committed(picked[1]).cpu_millis == held

    @rule(worker_id=workers)
    def disconnect(self, worker_id: WorkerId) -> None:
        self.do(WorkerDisconnected(worker_id, self.cluster.view.workers[worker_id].instance_id))

    @rule(worker_id=workers)
    def lose(self, worker_id: WorkerId) -> None:
        self.do(WorkerLost(worker_id, "not seen for 60 s"))
        assert not self.cluster.view.loads[worker_id].bookings

    @rule(data=st.data())
    def miss(self, data: st.DataObject) -> None:
        picked = self.pick(data)
        if picked is not None:
            self.do(AttemptMissing(picked[0], "not in the inventory"))

    @rule(worker_id=workers, new=st.booleans(), data=st.data())
    def reconnect(self, worker_id: WorkerId, new: bool, data: st.DataObject) -> None:
        mine = [name for name, worker in self.started if worker == worker_id][-8:]
        names = data.draw(st.lists(st.sampled_from(mine), unique=True)) if mine else []
        inventory = [AttemptObserved(name, worker_id, data.draw(st.sampled_from(SEEN)), 1) for name in names]
        instance = f"i{self.cluster.now_ms}" if new else self.cluster.view.workers[worker_id].instance_id
        result = self.cluster.reconnect(worker_id, instance, inventory)
        view = self.cluster.view
        held = {booking.attempt_id for booking in view.attempts_on(worker_id)}
        assert held <= set(names) | set(result.to_start), "something is booked that the worker does not have"
        for name in result.to_start:
            task, number = view.find_attempt(name)
            assert task is not None
            if task.attempt == number and name in view.bookings and not view.bookings[name].stopping:
                assert task.state is TaskState.ASSIGNED
                assert not new

    @rule()
    def pass_time(self) -> None:
        due = next_deadline(self.cluster.view)
        if due is None:
            return
        self.cluster.now_ms = max(self.cluster.now_ms, due)
        events = expired(self.cluster.view, self.cluster.now_ms)
        assert events
        for event in events:
            self.do(event)
        later = next_deadline(self.cluster.view)
        assert later is None or later > due

    @rule()
    def restart_the_controller(self) -> None:
        """Only stored records survive; what lives, waits and is due is the same as before."""
        old = self.cluster.view
        tasks = [task for of_job in old.tasks.values() for task in of_job]
        self.cluster.view = new = ClusterView.load(old.jobs.values(), tasks, old.workers.values())
        assert (new.jobs, new.tasks, new.workers) == (old.jobs, old.tasks, old.workers)
        assert (new.queue, new.pending, new.live_jobs, new.children) == (
            old.queue,
            old.pending,
            old.live_jobs,
            old.children,
        )
        assert new.job_of_key == old.job_of_key
        assert new.next_sequence == old.next_sequence
        assert new.deadlines.due(1 << 60) == old.deadlines.due(1 << 60)
        for worker in old.workers.values():
            self.do(WorkerDisconnected(worker.worker_id, worker.instance_id))

    def teardown(self) -> None:
        """In the end everything can be ended, and nothing is left."""
        if not hasattr(self, "cluster"):
            return
        view = self.cluster.view
        for job_id in list(view.live_jobs):
            self.do(StopRequested(job_id, "the end"))
        for booking in list(view.bookings.values()):
            self.do(AttemptObserved(booking.attempt_id, booking.worker_id, TaskState.KILLED))
        assert all(view.is_settled(job_id) for job_id in view.jobs)
        for worker_id, load in view.loads.items():
            assert not load.bookings
            left = (load.cpu_millis, load.memory_bytes, load.disk_bytes, load.device_count)
            assert left == (0, 0, 0, 0), f"{worker_id} leaks {left}"


Anything.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None, print_blob=True)
TestAnything = Anything.TestCase
