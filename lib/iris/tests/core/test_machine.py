"""Any events in any order: the reducer, the view, the scheduler and reconciliation keep every promise.

That the machine can fail is shown by `test_a_planted_fault_is_caught`, which plants, one at a time, what it finds
within tens of stories, so that the hundred of an ordinary run are enough.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from iris.core.rules import draft, gang_rules, silence_rules
from iris.core.rules.contact import ContactRules, Contacts
from iris.core.rules.reduce import reduce
from iris.core.rules.timers import expired, next_deadline
from iris.core.state.booking import Booking
from iris.core.state.load import WorkerLoad
from iris.core.state.view import ClusterView
from iris.domain.constraints import AHEAD_ATTRIBUTE, Constraint, ConstraintOp, evaluate
from iris.domain.effects import JobEnded, JobSettled, StartAttempt
from iris.domain.entities import Task, UserBudget, Worker
from iris.domain.events import (
    AttemptMissing,
    AttemptObserved,
    BudgetSet,
    Event,
    JobSubmitted,
    LendCpu,
    StopRequested,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerGone,
    WorkerHeard,
    WorkerLost,
    WorkerUncordoned,
)
from iris.domain.ids import AttemptId, JobId, WorkerId, parent_of
from iris.domain.job_spec import CommandEntrypoint, JobSpec, is_gang, waits_for_host
from iris.domain.resources import Device, Resources
from iris.domain.states import FailureKind, PriorityBand, TaskState
from iris.sched import fit, gang, plan, preempt
from iris.sched.plan import RoundPlan
from iris.sched.reserve import RESERVE_AFTER_MS
from rigging.errors import AlreadyExists, Conflict, MarinError, NotFound
from support.iris.scheduling import GB, InMemoryCluster, resources

from .conftest import load_again

pytestmark = pytest.mark.process

CAPACITIES = {
    "w1": (resources(2, 4, 10), {"slice": "a", AHEAD_ATTRIBUTE: "true"}),
    "w2": (resources(2, 4, 10, Device("gpu", "H100", 2)), {"slice": "a", AHEAD_ATTRIBUTE: "true"}),
    "w3": (resources(1, 8, 10), {"slice": "b"}),
}
NAMES = ("/u/a", "/u/b", "/u/a/c", "/u/a/c/d", "/u/b/e")
SEEN = sorted({*TaskState} - {TaskState.PREEMPTED, TaskState.UNSCHEDULABLE})

FENCE_MS = 400
RULES = ContactRules(late_after_ms=40, lost_after_ms=100, fence_margin_ms=30)
LOOK_EVERY_MS = 10

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
    max_task_failures=st.sampled_from([0, 0, 1]),
).flatmap(
    lambda spec: st.sampled_from(
        [
            spec,
            replace(spec, reserve=spec.resources.accelerator is not None),
            replace(spec, exclusive=True, fence_after_ms=FENCE_MS),
        ]
    )
)


class Anything(RuleBasedStateMachine):
    """Adversarial events: workers repeat themselves, come late, contradict each other, and forget."""

    @initialize()
    def start(self) -> None:
        self.cluster = InMemoryCluster()
        self.started: list[tuple[AttemptId, WorkerId]] = []
        self.contacts = Contacts(RULES, self.cluster.now_ms)
        self.heard: dict[WorkerId, int] = {}
        self.maybe_alive: dict[AttemptId, tuple[WorkerId, JobSpec]] = {}  # exclusive ones
        for name, (capacity, attributes) in CAPACITIES.items():
            self.cluster.connect(name, capacity, **attributes)
            self.begin_contact(WorkerId(name))
        self.submit(JobSpec(JobId("/u/a"), CommandEntrypoint(("true",)), resources(1), replicas=3), "")
        only = JobSpec(JobId("/u/only"), CommandEntrypoint(("true",)), resources(0.1, 0), replicas=2)
        self.submit(replace(only, exclusive=True, fence_after_ms=FENCE_MS), "")
        for name in ("/u/a/c", "/u/b"):
            gang_spec = JobSpec(JobId(name), CommandEntrypoint(("true",)), resources(0.25, 0), replicas=2)
            self.submit(replace(gang_spec, coscheduling_group_by="slice", max_retries_failure=2), "")
        self.schedule()

    # ---- promises about each single event ----

    def do(self, event: Event) -> None:
        view = self.cluster.view
        twice = [reduce(view, event, self.cluster.now_ms) for _ in range(2)]
        assert twice[0] == twice[1], "reduce changed the view"
        jobs, tasks = dict(view.jobs), {task.task_id: task for of_job in view.tasks.values() for task in of_job}
        settled = {job_id for job_id in view.jobs if view.is_settled(job_id)}
        outcome = self.cluster.do(event)
        self.note_ends(event)
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
            assert new.failures <= job.spec.max_retries_failure + 1, f"{new} failed too often"
            assert new.preemptions <= job.spec.max_retries_preemption + 1, f"{new} was preempted too often"
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

    def note_ends(self, event: Event) -> None:
        """What ended exclusive attempts for all that anybody can know."""
        match event:
            case AttemptObserved(name, worker_id, state) if state.is_terminal or state is TaskState.PENDING:
                if self.maybe_alive.get(name, ("",))[0] == worker_id:
                    del self.maybe_alive[name]
            case AttemptMissing(name):
                self.maybe_alive.pop(name, None)
            case WorkerGone(worker_id):
                gone = [name for name, (where, _) in self.maybe_alive.items() if where == worker_id]
                for name in gone:
                    del self.maybe_alive[name]

    def begin_contact(self, worker_id: WorkerId) -> None:
        self.note_contact(worker_id)
        self.contacts.begin(worker_id, self.cluster.now_ms)

    def note_contact(self, worker_id: WorkerId) -> None:
        now_ms = self.cluster.now_ms
        before = self.heard.get(worker_id, now_ms)
        for name, (where, spec) in list(self.maybe_alive.items()):
            if where == worker_id and now_ms >= before + spec.fence_after_ms:
                del self.maybe_alive[name]  # its host ended it while there was no contact
        self.heard[worker_id] = now_ms

    def check_exclusive(self, started: list[tuple[AttemptId, WorkerId]]) -> None:
        """No attempt of an exclusive job starts while an earlier one may live, wherever that is."""
        view, now_ms = self.cluster.view, self.cluster.now_ms
        for name, worker_id in started:
            task, _ = view.find_attempt(name)
            job = view.jobs[task.job_id]
            for other, (where, spec) in list(self.maybe_alive.items()):
                earlier, number = view.find_attempt(other)
                if earlier is None or earlier.task_id != task.task_id or number < job.first_attempt:
                    continue
                # Its host ends it, counted from when that was in contact last.
                assert now_ms >= self.heard[where] + spec.fence_after_ms, f"{name} began while {other} may live"
                del self.maybe_alive[other]
            if job.spec.exclusive:
                self.maybe_alive[name] = (worker_id, job.spec)

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
        bands = {name: cluster.view.jobs[booking.job_id].spec.band for name, booking in cluster.view.bookings.items()}
        was_ending = any(booking.stopping for booking in cluster.view.bookings.values())
        found = cluster.schedule()
        self.check_preemptions(found, bands)
        for job_id in cluster.view.live_jobs:
            spec, waiting = cluster.view.jobs[job_id].spec, cluster.view.pending.get(job_id, ())
            if is_gang(spec):
                assert len(waiting) in (0, spec.replicas), f"{job_id} runs in part: {waiting}"
                assert len({task.attempt for task in cluster.view.tasks[job_id]}) == 1, f"{job_id} restarted in part"
        started = [effect for effect in cluster.effects[before:] if isinstance(effect, StartAttempt)]
        assert set(found.begun) <= {name for name, _ in self.started}, "what was never assigned ahead begins"
        new = [effect for effect in started if effect.attempt_id not in found.begun]
        assert not {effect.attempt_id for effect in new} & {name for name, _ in self.started}, "a number came twice"
        assert all(cluster.view.workers[effect.worker_id].is_open for effect in new), "a closed worker got work"
        self.started.extend((effect.attempt_id, effect.worker_id) for effect in new)
        self.check_exclusive([(effect.attempt_id, effect.worker_id) for effect in new])
        moved = {cluster.view.find_attempt(event.attempt_id)[0].job_id for event in found.preemptions}
        over = set(found.reasons) - set(cluster.view.pending)
        # A job that was to wait may have ended with its other tasks, or its parent, that were preempted once too often.
        assert not over or (found.preemptions and not over & set(cluster.view.live_jobs))
        assert set(cluster.view.pending) - moved <= set(found.reasons), "a job waits and nobody knows why"
        is_kept = any("kept free" in reason for reason in found.reasons.values())
        for job_id, reason in found.reasons.items():
            assert reason
            spec = cluster.view.jobs[job_id].spec
            if job_id in cluster.view.held_counts or spec.coscheduling_group_by:
                continue
            if found.preemptions or was_ending or is_kept:
                continue  # what is free may be promised to somebody who comes first
            for worker in cluster.view.workers.values():
                willing = worker.is_open and evaluate(spec.constraints, worker.attributes)
                fits = cluster.view.loads[worker.worker_id].has_room(spec.resources, worker.capacity)
                assert not (willing and fits), f"{job_id} would fit on {worker.worker_id}, but {reason}"

    def check_preemptions(self, found: RoundPlan, bands: dict[AttemptId, PriorityBand]) -> None:
        """Only downward, never production, and only for somebody who waits for it then."""
        urgent = min((self.cluster.view.jobs[name].spec.band for name in found.reasons), default=PriorityBand.BATCH)
        for event in found.preemptions:
            assert bands[event.attempt_id] > urgent, f"{event} is not downward"
            assert bands[event.attempt_id] is not PriorityBand.PRODUCTION
            beneficiary = JobId(event.reason.split()[2])
            assert self.cluster.view.jobs[beneficiary].spec.band < bands[event.attempt_id]
            assert beneficiary in found.reasons

    @rule(worker_id=workers, drain=st.booleans())
    def cordon(self, worker_id: WorkerId, drain: bool) -> None:
        self.do(WorkerCordoned(worker_id, "looks bad", drain))
        if drain:
            assert all(booking.stopping for booking in self.cluster.view.attempts_on(worker_id))

    @rule(silent=st.lists(workers, unique=True), for_ms=st.sampled_from([50, 120, 300, 450]))
    def pass_in_silence(self, silent: list[WorkerId], for_ms: int) -> None:
        """Some workers are frozen or cut off for a while; the others are heard."""
        cluster, contacts = self.cluster, self.contacts
        contacts.look(cluster.view, cluster.now_ms)  # the time before is nobody's silence
        for _ in range(0, for_ms, LOOK_EVERY_MS):
            for worker in list(cluster.view.workers.values()):
                if worker.connected and worker.worker_id not in silent:
                    self.note_contact(worker.worker_id)
                    if contacts.heard(worker.worker_id, cluster.now_ms):
                        self.do(WorkerHeard(worker.worker_id))
            for event in contacts.look(cluster.view, cluster.now_ms):
                if isinstance(event, WorkerLost):
                    self.disconnect(event.worker_id)
                self.do(event)
            cluster.now_ms += LOOK_EVERY_MS
            self.schedule()

    @rule(worker_id=workers)
    def remove(self, worker_id: WorkerId) -> None:
        """An operator says that a host is gone; refused while it is connected."""
        if self.cluster.view.workers[worker_id].connected:
            with pytest.raises(Conflict, match="is connected"):
                self.do(WorkerGone(worker_id, "says an operator"))
        else:
            self.do(WorkerGone(worker_id, "says an operator"))
            assert not self.cluster.view.loads[worker_id].bookings
            assert not self.cluster.view.lost_on(worker_id)

    @rule(worker_id=workers)
    def uncordon(self, worker_id: WorkerId) -> None:
        self.do(WorkerUncordoned(worker_id))

    @rule(limit=st.sampled_from([0.0, 0.5, 2.0]))
    def set_budget(self, limit: float) -> None:
        self.do(BudgetSet(UserBudget("u", limit)))

    @rule()
    def grow_old(self) -> None:
        """Everything that waits has waited long."""
        if next_deadline(self.cluster.view) is None:
            self.cluster.now_ms += RESERVE_AFTER_MS

    @rule(
        data=st.data(), state=st.sampled_from(SEEN), kind=st.sampled_from(FailureKind),
        elsewhere=st.none() | st.none() | st.none() | workers, times=st.integers(1, 2),
    )  # fmt: skip
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
        if before is not None and before.attempt_id != picked[0]:
            assert self.cluster.view.task(before.task_id) == before, "believed a report of a former attempt"
        assert not reduce(self.cluster.view, event, self.cluster.now_ms).changes, "a repeated report changed something"

    @rule(data=st.data(), state=st.sampled_from(SEEN), kind=st.sampled_from(FailureKind))
    def go_on(self, data: st.DataObject, state: TaskState, kind: FailureKind) -> None:
        """An attempt that its worker really has moves on, and the scheduler reacts."""
        bookings = self.cluster.view.bookings
        if bookings:
            booking = bookings[data.draw(st.sampled_from(sorted(bookings)))]
            self.do(AttemptObserved(booking.attempt_id, booking.worker_id, state, 1, failure_kind=kind))
            self.schedule()

    @rule(data=st.data(), state=st.sampled_from(SEEN), kind=st.sampled_from(FailureKind))
    def speak_late(self, data: st.DataObject, state: TaskState, kind: FailureKind) -> None:
        """An attempt fails, perhaps the next begins, and then the worker of the former has something more to say."""
        bookings = self.cluster.view.bookings
        if not bookings:
            return
        booking = bookings[data.draw(st.sampled_from(sorted(bookings)))]
        self.do(AttemptObserved(booking.attempt_id, booking.worker_id, TaskState.FAILED, 1))
        self.schedule()
        before = self.cluster.view.find_attempt(booking.attempt_id)[0]
        self.do(AttemptObserved(booking.attempt_id, booking.worker_id, state, 1, failure_kind=kind))
        if before is not None and before.attempt_id != booking.attempt_id:
            assert self.cluster.view.task(before.task_id) == before, "believed a report of a former attempt"

    @rule(band=st.sampled_from(PriorityBand), cores=st.sampled_from([1, 2]))
    def press(self, band: PriorityBand, cores: int) -> None:
        """More work comes to a cluster that is full of work of its band and of batch work; then all of it goes."""
        crowd = (("batch", 1, PriorityBand.BATCH), ("same", cores, band), ("more", cores, band))
        for name, need, of_band in crowd:
            job_id = JobId(f"/u/{name}")
            self.submit(JobSpec(job_id, CommandEntrypoint(("true",)), resources(need, 0), replicas=2, band=of_band), "")
            self.schedule()
        for name, _, _ in crowd:
            self.do(StopRequested(JobId(f"/u/{name}"), "the crowd goes"))
        gone = {f"/u/{name}" for name, _, _ in crowd}
        for booking in list(self.cluster.view.bookings.values()):
            if booking.job_id in gone:
                self.do(AttemptObserved(booking.attempt_id, booking.worker_id, TaskState.KILLED))

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
        held = sum(other.cpu_millis for other in view.attempts_on(picked[1]))
        assert view.committed(picked[1]).cpu_millis == held

    @rule(worker_id=workers)
    def disconnect(self, worker_id: WorkerId) -> None:
        self.do(WorkerDisconnected(worker_id, self.cluster.view.workers[worker_id].instance_id))

    @rule(worker_id=workers)
    def lose(self, worker_id: WorkerId) -> None:
        self.do(WorkerLost(worker_id, "not seen for 60 s"))
        view = self.cluster.view
        for booking in view.attempts_on(worker_id):
            assert waits_for_host(view.jobs[booking.job_id].spec), f"{booking.attempt_id} is waited for"

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
        view = self.cluster.view
        there = set(names)
        for name in [name for name, (where, _) in self.maybe_alive.items() if where == worker_id]:
            # What it lacks is gone; but for a start that the same process never got, which is sent again.
            if name not in there and (new or view.find_attempt(name)[0].state is not TaskState.ASSIGNED):
                del self.maybe_alive[name]
        for event in inventory:
            self.note_ends(event)
        result = self.cluster.reconnect(worker_id, instance, inventory)
        self.begin_contact(worker_id)
        undecided = {name for name in view.lost_on(worker_id) if name not in view.bookings}
        assert undecided <= view.returned.keys(), "the worker has said what it has"
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
        self.cluster.view = new = load_again(old)
        for name in (
            *("jobs", "tasks", "workers", "queue", "pending", "live_jobs", "children", "job_of_key", "lost"),
            *("stopping_counts", "held_counts", "next_sequence"),
        ):
            assert getattr(new, name) == getattr(old, name), name
        assert new.deadlines.due(1 << 60) == old.deadlines.due(1 << 60)
        for worker in old.workers.values():
            self.do(WorkerDisconnected(worker.worker_id, worker.instance_id))
        self.contacts = Contacts(RULES, self.cluster.now_ms)
        for name in self.heard:
            self.contacts.begin(name, self.cluster.now_ms)

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


remove, find_attempt, units_on = WorkerLoad.remove, ClusterView.find_attempt, preempt.Victims.units_on


def keep_memory(load: WorkerLoad, booking: Booking) -> None:
    remove(load, booking)
    load.memory_bytes += booking.resources.memory_bytes


def believe_former(view: ClusterView, name: str) -> tuple[Task | None, int]:
    task, number = find_attempt(view, name)
    return task, task.attempt if task is not None else number


def all_hosts(view: ClusterView, among: object = None) -> list[fit.Host]:
    found = enumerate(view.workers.values())
    return [fit.Host(worker, view.loads[worker.worker_id], order) for order, worker in found]


def units_of_band(self: preempt.Victims, host: fit.Host, band: PriorityBand) -> list[preempt.Unit]:
    return units_on(self, host, PriorityBand(max(band - 1, 1)))


def never(*given: object) -> bool:
    return False


FAULTS = {
    "what an attempt held in memory is not given back": [(WorkerLoad, "remove", keep_memory)],
    "reports of former attempts are believed": [(ClusterView, "find_attempt", believe_former)],
    "other members of a gang go on when one restarts": [(gang_rules, "restart_with", never)],
    "a gang is placed on hosts of another": [(gang, "usable", lambda host, job_id: True)],
    "work of the same band is preempted": [(preempt.Victims, "units_on", units_of_band)],
    "cordoned workers still get work": [(plan, "hosts_of", all_hosts)],
    "exclusive attempts are given up with their worker": [
        (module, "waits_for_host", never) for module in (silence_rules, draft)
    ],
    "workers that are late still get work": [
        (Worker, "is_open", property(lambda worker: worker.connected and not worker.cordon_reason))
    ],
    "an exclusive attempt starts elsewhere too early": [
        (ContactRules, "fenced_after_ms", lambda rules, spec: spec.fence_after_ms // 2)
    ],
}
SLOW = "an exclusive attempt starts elsewhere too early"


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.soak if name == SLOW else ()) for name in FAULTS]
)
def test_a_planted_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, replacement in FAULTS[fault]:
        monkeypatch.setattr(owner, name, replacement)
    # Ends at the first find. A fault that takes longer to find asks for a rule that leads to it.
    search = settings(
        max_examples=3000, stateful_step_count=50, deadline=None, phases=[Phase.generate], database=None,
        report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    with pytest.raises((AssertionError, MarinError, KeyError, IndexError)):
        run_state_machine_as_test(Anything, settings=search)


Anything.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, print_blob=True)
TestAnything = Anything.TestCase


@pytest.mark.soak
def test_anything_for_longer():
    longer = settings(max_examples=400, stateful_step_count=60, deadline=None, print_blob=True)
    run_state_machine_as_test(Anything, settings=longer)
