"""Every core- and chip-millisecond of a worker has exactly one use."""

import contextlib
from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris.core.ledger.ledger import Ledger
from iris.core.state.batch import Batch
from iris.core.state.changes import Reduction
from iris.core.state.view import ClusterView
from iris.domain.endpoints import CHECKPOINT, RegisteredEndpoint
from iris.domain.events import (
    AttemptObserved,
    EndpointRegistered,
    Event,
    LendCpu,
    Preempted,
    WorkerDisconnected,
    WorkerGone,
    WorkerHeard,
    WorkerLate,
    WorkerLost,
)
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Device
from iris.domain.states import TaskState
from iris.domain.usage import HOUR_MS, LedgerRow, Owner, Use
from iris.sim.capacity import Capacity
from rigging.errors import Conflict, MarinError
from support.iris.scheduling import InMemoryCluster, resources

LIVE = (TaskState.BUILDING, TaskState.RUNNING)
CHIPS = resources(1, device=Device("gpu", "H100", 2))
LARGE = resources(4, device=Device("gpu", "H100", 4))
Sums = dict[Use, tuple[int, int]]


class Metered(InMemoryCluster):
    """A cluster with a ledger, whose rows are kept like the store keeps them."""

    def __init__(self, *workers: str) -> None:
        super().__init__()
        self.batch, self.is_batching = Batch(), False
        self.rows: dict[tuple[int, Owner], LedgerRow] = {}
        self.capacity = Capacity()
        self.ledger = Ledger(self.view, self.now_ms, by=lambda worker: worker.worker_id)
        for name in workers:
            self.connect(name, resources(4, 16, 100, Device("gpu", "H100", 4)), pool="p")

    def do(self, event: Event) -> Reduction:
        outcome = super().do(event)
        self.batch.add(outcome)
        if not self.is_batching:
            self.commit()
        return outcome

    def commit(self) -> None:
        self.ledger.note(self.batch.changes, self.now_ms - 1)
        self.capacity.look(self.view, self.now_ms - 1)
        self.batch, self.is_batching = Batch(), False

    def save(self) -> None:
        self.capacity.look(self.view, self.now_ms)
        for _ in self.ledger.settle(self.now_ms):
            pass
        self.rows |= {(row.start_ms, row.owner): row for row in self.ledger.changed(self.now_ms)}

    def restart(self, load_again: Callable[[ClusterView], ClusterView]) -> None:
        self.save()
        self.view = load_again(self.view)
        self.capacity.look(self.view, self.now_ms)
        newest = max(start_ms for start_ms, _ in self.rows)
        rows = [
            row
            for row in self.rows.values()
            if row.start_ms == newest or row.core_ms[Use.RUNNING] or row.chip_ms[Use.RUNNING]
        ]
        self.ledger = Ledger(self.view, self.now_ms, rows, lambda worker: worker.worker_id)

    def sums(self, user: str = "u") -> Sums:
        """Return core-seconds and chip-seconds by use."""
        self.save()
        found: dict[Use, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for row in self.rows.values():
            for use in Use if row.owner.user == user else ():
                cores, chips = found[use]
                found[use] = cores + row.core_ms[use], chips + row.chip_ms[use]
        rounded = {use: (round(cores / 1000), round(chips / 1000)) for use, (cores, chips) in found.items()}
        return {use: amounts for use, amounts in rounded.items() if any(amounts)}

    def judge(self) -> None:
        self.save()
        counted: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for row in self.rows.values():
            assert min(*row.core_ms, *row.chip_ms) >= 0
            cores, chips = counted[row.owner.group]
            counted[row.owner.group] = cores + sum(row.core_ms), chips + sum(row.chip_ms)
        assert list(self.capacity.violations({}, counted)) == []


def step(cluster: Metered, what: str, number: int, load_again: Callable[[ClusterView], ClusterView]) -> None:
    view = cluster.view
    worker = view.workers[sorted(view.workers)[number % len(view.workers)]]
    attempts = sorted(view.bookings)
    attempt = attempts[number % len(attempts)] if attempts else AttemptId("/u/none/0:0")
    match what:
        case "submit":
            need = (resources(1), resources(3), CHIPS)[number % 3]
            cluster.launch(f"/u/job{number}", need, replicas=number % 3 + 1, max_retries_failure=2)
        case "reserve":
            cluster.launch("/u/tree", CHIPS, reserve=True)
        case "child":
            cluster.launch(f"/u/tree/child{number}", CHIPS)
        case "start" | "fail" | "succeed":
            state = {"start": LIVE[number % 2], "fail": TaskState.FAILED, "succeed": TaskState.SUCCEEDED}[what]
            cluster.observe(attempt, state, exit_code=int(what == "fail"), at_ms=cluster.now_ms)
        case "lend" | "unlend":
            cluster.do(LendCpu(attempt, what == "lend"))
        case "checkpoint":
            name = f"{attempt.rpartition('/')[0]}/{CHECKPOINT}"
            cluster.do(EndpointRegistered(RegisteredEndpoint(name, attempt, "-", {}, cluster.now_ms)))
        case "stop":
            cluster.stop(f"/u/job{number}")
        case "late" | "heard" | "lost" | "disconnect":
            name = worker.worker_id
            events = {"late": WorkerLate(name, 1), "heard": WorkerHeard(name), "lost": WorkerLost(name, "silent")}
            cluster.do(events.get(what) or WorkerDisconnected(name, worker.instance_id))
        case "return":
            cluster.reconnect(worker.worker_id, f"i{number % 2}", [])
        case "keep":
            cluster.ledger.keep({worker.worker_id: JobId("/u/job0")}, cluster.now_ms)
        case "save":
            cluster.save()
        case "restart":
            cluster.restart(load_again)
    cluster.schedule()


OPS = [
    *("submit", "submit", "reserve", "child", "start", "start", "start", "fail", "succeed", "lend", "unlend", "stop"),
    *("late", "heard", "lost", "disconnect", "return", "return", "keep", "save", "restart"),
    "checkpoint",
]
LIMITS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@LIMITS
@given(st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 6), st.integers(0, 2 * HOUR_MS)), max_size=40))
def test_the_uses_add_up_to_the_capacity(restarted, steps: list[tuple[str, int, int]]) -> None:
    cluster = Metered("w", "x")
    for what, number, passed in steps:
        cluster.now_ms += passed
        cluster.is_batching = what in ("fail", "succeed", "lost", "submit", "stop")  # with the round that follows
        with contextlib.suppress(MarinError):
            step(cluster, what, number, restarted)
        cluster.commit()
    cluster.now_ms += 1000
    cluster.judge()


def run(cluster: Metered, name: str, started_s: int, **spec: object) -> AttemptId:
    """Place a job's next attempt now, and start it after some seconds."""
    job_id = JobId(name)
    if job_id not in cluster.view.jobs:
        cluster.submit(name, LARGE, **spec)
    cluster.schedule()
    attempt = cluster.task(f"{name}/0").attempt_id
    cluster.now_ms += 1000 * started_s
    cluster.observe(attempt, TaskState.RUNNING, started_at_ms=cluster.now_ms)
    return attempt


def end(cluster: Metered, attempt: str, after_s: int, state: TaskState = TaskState.SUCCEEDED) -> None:
    cluster.now_ms += 1000 * after_s
    cluster.observe(attempt, state, exit_code=int(state is TaskState.FAILED), at_ms=cluster.now_ms)


def fails_then_succeeds(cluster: Metered) -> None:
    end(cluster, run(cluster, "/u/a", 10, max_retries_failure=1), 100, TaskState.FAILED)
    end(cluster, run(cluster, "/u/a", 20), 200)


def fails_after_a_checkpoint(cluster: Metered) -> None:
    attempt = run(cluster, "/u/a", 0)
    cluster.now_ms += 300_000
    endpoint = RegisteredEndpoint(f"/u/a/{CHECKPOINT}", attempt, "-", {}, cluster.now_ms)
    cluster.do(EndpointRegistered(endpoint))
    end(cluster, attempt, 40, TaskState.FAILED)


def is_lost_as_a_gang_after_a_checkpoint(cluster: Metered) -> None:
    cluster.launch("/u/a", CHIPS, replicas=2, coscheduling_group_by="pool")
    for index in (0, 1):
        cluster.observe(f"/u/a/{index}:0", TaskState.RUNNING)
    cluster.now_ms += 100_000
    cluster.do(EndpointRegistered(RegisteredEndpoint(f"/u/a/{CHECKPOINT}", AttemptId("/u/a/1:0"), "-", {}, 1)))
    cluster.now_ms += 10_000
    cluster.do(WorkerLost(WorkerId("w"), "silent"))
    cluster.do(WorkerGone(WorkerId("w"), "gone"))


def saves_in_its_grace(cluster: Metered) -> None:
    attempt = run(cluster, "/u/a", 0)
    cluster.now_ms += 100_000
    cluster.do(Preempted(attempt, "more urgent work"))
    cluster.now_ms += 10_000
    cluster.do(EndpointRegistered(RegisteredEndpoint(f"/u/a/{CHECKPOINT}", attempt, "-", {}, cluster.now_ms)))
    with pytest.raises(Conflict, match="has ended"):
        cluster.do(EndpointRegistered(RegisteredEndpoint("/u/a/http", attempt, "h:1")))
    assert not len(cluster.view.endpoints)
    end(cluster, attempt, 5, TaskState.KILLED)


def waits(cluster: Metered) -> None:
    attempt = run(cluster, "/u/a", 0)
    cluster.now_ms += 50_000
    cluster.do(LendCpu(attempt, True))
    cluster.submit("/u/a/child", resources(1))
    cluster.schedule()
    cluster.observe("/u/a/child/0:0", TaskState.RUNNING)
    end(cluster, "/u/a/child/0:0", 100)
    cluster.do(LendCpu(attempt, False))
    end(cluster, attempt, 50)


def is_stopped_by_its_parent(cluster: Metered) -> None:
    run(cluster, "/u/a", 0)
    cluster.do(LendCpu(AttemptId("/u/a/0:0"), True))
    cluster.submit("/u/a/child", resources(2))
    cluster.schedule()
    cluster.observe("/u/a/child/0:0", TaskState.RUNNING)
    cluster.now_ms += 100_000
    cluster.stop("/u/a/child")
    end(cluster, "/u/a/child/0:0", 10, TaskState.KILLED)


def is_lost_and_returns(cluster: Metered) -> None:
    attempt = run(cluster, "/u/a", 0)
    cluster.now_ms += 30_000
    cluster.do(WorkerDisconnected(WorkerId("w"), "a"))
    cluster.do(WorkerLost(WorkerId("w"), "silent"))
    cluster.now_ms += 1_000_000  # no capacity
    seen = AttemptObserved(attempt, WorkerId("w"), TaskState.RUNNING)
    cluster.reconnect("w", "a", [seen])
    end(cluster, attempt, 70)


def is_kept_for(cluster: Metered) -> None:
    cluster.ledger.keep({WorkerId("w"): JobId("/u/a")}, cluster.now_ms)
    cluster.now_ms += 5_000
    cluster.ledger.keep({}, cluster.now_ms)


def holds_a_reservation(cluster: Metered) -> None:
    cluster.launch("/u/a", resources(0, device=Device("gpu", "H100", 4)), reserve=True)
    cluster.launch("/u/a/child", CHIPS)
    cluster.observe("/u/a/child/0:0", TaskState.RUNNING)
    cluster.now_ms += 10_000


@pytest.mark.parametrize(
    ("story", "uses"),
    [
        (
            fails_then_succeeds,
            {
                Use.PRODUCTIVE: (800, 800),
                Use.ENVIRONMENT: (40, 40),
                Use.RESTART: (80, 80),
                Use.LOST: (400, 400),
            },
        ),
        (fails_after_a_checkpoint, {Use.PRODUCTIVE: (1200, 1200), Use.LOST: (160, 160)}),
        (is_lost_as_a_gang_after_a_checkpoint, {Use.PRODUCTIVE: (200, 400), Use.LOST: (20, 40)}),
        (saves_in_its_grace, {Use.PRODUCTIVE: (400, 400), Use.RESTART: (60, 60)}),
        (waits, {Use.PRODUCTIVE: (500, 400), Use.WAITING: (300, 400)}),
        (
            is_stopped_by_its_parent,
            {Use.PRODUCTIVE: (220, 0), Use.WAITING: (220, 440)},
        ),
        (is_lost_and_returns, {Use.PRODUCTIVE: (400, 400)}),
        (is_kept_for, {Use.RESERVED: (20, 20)}),
        (holds_a_reservation, {Use.RUNNING: (10, 20), Use.RESERVED: (0, 20)}),
    ],
)
def test_what_time_was_used_for(story: Callable[[Metered], None], uses: Sums) -> None:
    cluster = Metered("w")
    story(cluster)
    assert cluster.sums() == uses
    cluster.judge()


def test_a_restart_and_the_turn_of_an_hour_change_nothing(restarted) -> None:
    cluster = Metered("w")
    attempt = run(cluster, "/u/a", 0)
    for minutes in (50, 30, 20):
        cluster.now_ms += 60_000 * minutes
        cluster.restart(restarted)
    assert cluster.sums() == {Use.RUNNING: (24_000, 24_000)}
    end(cluster, attempt, 0)
    assert cluster.sums() == {Use.PRODUCTIVE: (24_000, 24_000)}
    assert [row.core_ms[Use.PRODUCTIVE] // 60_000 for row in cluster.rows.values() if row.owner.user] == [200, 200]


def test_a_prefilled_attempt_that_is_handed_back_after_its_turn_came_holds_nothing() -> None:
    cluster = Metered("w")
    cluster.launch("/u/a", resources(1), replicas=9)
    for index in range(4):
        cluster.observe(f"/u/a/{index}:0", TaskState.RUNNING)
    cluster.observe("/u/a/0:0", TaskState.SUCCEEDED)
    cluster.schedule()  # prefills, now that the run time is known
    cluster.observe("/u/a/1:0", TaskState.SUCCEEDED)
    [begun] = cluster.schedule().begun
    cluster.now_ms += 1000
    cluster.is_batching = True
    cluster.observe(begun, TaskState.PENDING)
    cluster.schedule()
    assert cluster.task(begun.partition(":")[0]).attempt == 1, "it got its room again, in the same batch"
    cluster.commit()
    cluster.stop("/u/a")
    for booking in list(cluster.view.bookings.values()):
        cluster.observe(booking.attempt_id, TaskState.KILLED)
    before = cluster.sums()
    cluster.now_ms += 100_000
    assert cluster.sums() == before
    cluster.judge()


def test_small_jobs_share_a_row() -> None:
    cluster = Metered("w")
    for number in range(3):
        job_id = cluster.launch(f"/u/small{number}", resources(1))
        cluster.observe(f"{job_id}/0:0", TaskState.RUNNING)
        end(cluster, f"{job_id}/0:0", 20)
        cluster.save()
    long = cluster.launch("/u/long", resources(1))
    cluster.observe(f"{long}/0:0", TaskState.RUNNING)
    for _ in range(2):  # small at first
        cluster.now_ms += 40_000
        cluster.save()
    found = {row.owner.job: round(sum(row.core_ms) / 1000) for row in cluster.rows.values() if row.owner.user}
    assert found == {"": 60, "/u/long": 80}
