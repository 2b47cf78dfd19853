"""Rounds of a planner, which remembers the last round and looks at one job of a kind, and rounds that examine every job
decide the same.
"""

import random

import pytest

from iris.core.state import invariants
from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.entities import JobsPerUser, UserBudget
from iris.domain.events import (
    BudgetSet,
    JobUpdated,
    LendCpu,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerGone,
    WorkerLost,
    WorkerUncordoned,
)
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Device
from iris.domain.states import PriorityBand, TaskState
from iris.sched import fit, fleet
from iris.sched import plan as plan_module
from iris.sched.order import JobTurn, turns
from iris.sched.plan import Planner, plan_round
from iris.sched.reserve import RESERVE_AFTER_MS
from rigging.errors import MarinError
from support.iris.scheduling import InMemoryCluster, resources

TPU = Device("tpu", "v5p-8", 4)
ZONES = (
    Constraint("zone", ConstraintOp.EQ, ("a",)),
    Constraint("zone", ConstraintOp.IN, ("b", "a")),
    Constraint("zone", ConstraintOp.EQ, ("b",), soft=True),
)


def looked_at(cluster: InMemoryCluster, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many turns a round takes."""
    seen: list[JobTurn] = []
    with monkeypatch.context() as patch:
        patch.setattr(plan_module, "turns", lambda *given: (seen.append(turn) or turn for turn in turns(*given)))
        plan_round(cluster.view, now_ms)
    return len(seen)


def test_jobs_behind_the_first_that_fits_nowhere_are_not_looked_at(cluster, monkeypatch) -> None:
    cluster.connect("w", resources(2, 64))
    for number in range(100):
        cluster.submit(f"/u/job-{number}")
    assert looked_at(cluster, cluster.now_ms, monkeypatch) == 3
    plan = cluster.schedule()
    assert [task for task, _ in plan.assignments] == ["/u/job-0/0", "/u/job-1/0"]
    assert len(plan.reasons) == 98
    assert plan.reasons["/u/job-99"].startswith("needs 1 core; worker w has 0 of 2 free")
    assert "/u/job-0" not in plan.reasons
    cluster.stop("/u/job-99")
    assert "/u/job-99" not in plan.reasons


def test_of_each_kind_only_the_jobs_before_the_first_that_fits_nowhere_are_looked_at(cluster, monkeypatch) -> None:
    cluster.connect("w", resources(1, 64))
    for number in range(10):
        cluster.submit(f"/u/job-{number}")
    later = cluster.now_ms + RESERVE_AFTER_MS
    assert looked_at(cluster, later, monkeypatch) == 3, "one is placed, and one has the host reserved"
    small = cluster.submit("/u/small", resources(0))
    assert looked_at(cluster, cluster.now_ms, monkeypatch) == 3
    assert (f"{small}/0", "w") in cluster.schedule().assignments


class Life:
    """Random events of a cluster."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = InMemoryCluster()
        self.cluster.now_ms += 2 * RESERVE_AFTER_MS
        self.jobs = 0
        if self.chance.random() < 0.2:
            self.cluster.view.jobs_per_user = JobsPerUser(max_running=self.chance.randint(1, 4))
        self.users = self.chance.choice((("u",), ("u", "v", "w")))
        for number in range(self.chance.randint(2, 6)):
            self.connect(f"w{number}")

    def connect(self, name: str) -> None:
        chance = self.chance
        known = self.cluster.view.workers.get(WorkerId(name))
        device = TPU if chance.random() < 0.4 else None
        capacity = known.capacity if known else resources(chance.randint(1, 5), chance.randint(4, 16), 0, device)
        self.cluster.connect(name, capacity, zone=chance.choice("ab"), pool=chance.choice("xyz"))

    def submit(self) -> None:
        chance, spec = self.chance, {}
        self.jobs += 1
        device = Device("tpu", "v5p-8", chance.choice((1, 4))) if chance.random() < 0.25 else None
        spec["replicas"] = chance.choice((1, 1, 1, 2, 3, 12))
        if chance.random() < 0.2:
            spec |= {"replicas": chance.randint(2, 3), "coscheduling_group_by": "pool"}
        elif chance.random() < 0.2:
            spec["max_running"] = chance.randint(1, 3)
        if chance.random() < 0.25:
            spec["constraints"] = (chance.choice(ZONES),)
        name = f"/{chance.choice(self.users)}/job-{self.jobs}"
        if self.cluster.view.live_jobs and chance.random() < 0.1:
            name = f"{chance.choice(list(self.cluster.view.live_jobs))}/child-{self.jobs}"
        if device is not None and chance.random() < 0.1:
            spec["reserve"] = True
        need = resources(chance.choice((0, 1, 1, 1, 2, 3)), chance.choice((1, 1, 6)), 0, device)
        self.cluster.submit(name, need, band=chance.choice(list(PriorityBand)), **spec)

    def end(self) -> None:
        bookings = list(self.cluster.view.bookings.values())
        for booking in self.chance.sample(bookings, self.chance.randint(0, len(bookings))):
            if booking.attempt_id in self.cluster.view.bookings:
                state = TaskState.KILLED if booking.stopping else TaskState.SUCCEEDED
                self.cluster.observe(booking.attempt_id, self.chance.choice((state, state, TaskState.FAILED)))

    def begin(self) -> None:
        for booking in list(self.cluster.view.bookings.values()):
            if not (booking.stopping or booking.prefilled) and self.chance.random() < 0.5:
                self.cluster.observe(booking.attempt_id, TaskState.RUNNING)

    def happen(self) -> None:
        chance, cluster = self.chance, self.cluster
        worker = WorkerId(f"w{chance.randint(0, 6)}")
        attempt = chance.choice([AttemptId("/u/none/0:0"), *cluster.view.bookings])
        booking = cluster.view.bookings.get(attempt)
        event = chance.choice((
            BudgetSet(UserBudget(chance.choice(self.users), max_weight=chance.choice((0, 2.0)))),
            JobUpdated(chance.choice([JobId("/u/none"), *cluster.view.live_jobs]), band=chance.randint(1, 3)),
            LendCpu(attempt, not (booking and booking.waits)),
            WorkerCordoned(worker, "repairs"),
            WorkerUncordoned(worker),
            WorkerGone(worker, "gone"),
            WorkerLost(worker, "silent"),
            WorkerDisconnected(worker, "a"),
        ))  # fmt: skip
        try:
            cluster.do(event)
        except MarinError:
            if worker in cluster.view.workers and not cluster.view.loads[worker].bookings:
                cluster.view.forget_worker(worker)
            self.connect(str(worker))

    def go_on(self) -> None:
        for _ in range(self.chance.choice((0, 1, 1, 2, 6))):
            events = (self.submit, self.end, self.begin, self.happen, self.wait)
            self.chance.choices(events, (6, 2, 1, 2, 1))[0]()

    def wait(self) -> None:
        self.cluster.now_ms += self.chance.choice((1000, RESERVE_AFTER_MS))


@pytest.mark.parametrize("seed", range(150))
def test_a_planner_decides_the_same_as_a_round_that_examines_every_job(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_REBUILD_AT", seed % 2)  # at 0 nothing is built anew, however much has changed
    monkeypatch.setattr(fit, "_FEW", seed % 3 * 4)
    check = invariants.check
    monkeypatch.setattr(invariants, "check", lambda view: None)
    life, planner = Life(seed), Planner()
    view = life.cluster.view
    for _ in range(20):
        life.go_on()
        now_ms = life.cluster.now_ms
        quick = planner.plan_round(view, now_ms)
        thorough = plan_round(view, now_ms, every_job=True)
        assert list(quick.events()) == list(thorough.events())
        assert quick.kept == thorough.kept
        assert view.jobs_per_user.max_running or dict(quick.reasons) == dict(thorough.reasons)
        check(view)
        for event in quick.events() if life.chance.random() < 0.9 else ():
            life.cluster.do(event)
