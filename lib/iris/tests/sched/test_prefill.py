"""What is prefilled: to whom, how much, and never past what comes first."""

import pytest

from iris.domain.events import WorkerCordoned
from iris.domain.ids import WorkerId
from iris.domain.states import TaskState
from iris.sched.plan import RoundPlan
from iris.sched.prefill import MAX_PREFILLED
from support.iris.scheduling import InMemoryCluster, resources

SHORT_MS = 3


def connect(cluster: InMemoryCluster, name: str = "w", cores: int = 2) -> None:
    cluster.connect(name, resources(cores, 64))


def fill(cluster: InMemoryCluster, ran_ms: float | None = SHORT_MS, replicas: int = 400, **spec: object) -> RoundPlan:
    """An array of which as many tasks run as fit; such tasks are known to take `ran_ms`."""
    cluster.submit("/u/array", replicas=replicas, **spec)
    plan = cluster.schedule()
    for task, _ in plan.assignments:
        cluster.observe(f"{task}:0", TaskState.RUNNING)
    if ran_ms is not None:
        cluster.view.run_times.note_end(("u", cluster.view.demands["/u/array"]), ran_ms)
    return cluster.schedule()


def counts(plan: RoundPlan) -> dict[str, int]:
    workers = [worker for _, worker in plan.prefilled]
    return {worker: workers.count(worker) for worker in dict.fromkeys(workers)}


def test_short_tasks_are_prefilled_in_order(cluster: InMemoryCluster) -> None:
    connect(cluster)
    plan = fill(cluster)
    assert plan.assignments == []
    assert [task for task, _ in plan.prefilled[:3]] == ["/u/array/2", "/u/array/3", "/u/array/4"]
    assert counts(plan) == {"w": 100 * 2 // (SHORT_MS + 2)}


@pytest.mark.parametrize(("ran_ms", "expected"), [(0, MAX_PREFILLED), (48, 4), (98, 2), (190, 1), (300, 0), (None, 0)])
def test_how_many_depends_on_how_long_they_run(cluster: InMemoryCluster, ran_ms: float | None, expected: int) -> None:
    connect(cluster)
    assert len(fill(cluster, ran_ms).prefilled) == expected


def test_more_is_added_when_half_of_it_has_begun(cluster: InMemoryCluster) -> None:
    connect(cluster)
    prefilled = [f"{task}:0" for task, _ in fill(cluster).prefilled]
    running = ["/u/array/0:0", "/u/array/1:0"]
    added = []
    for name in prefilled[: len(prefilled) // 2]:
        cluster.observe(name, TaskState.BUILDING)
        cluster.observe(running.pop(0), TaskState.SUCCEEDED, started_at_ms=1, at_ms=1 + SHORT_MS)
        running.append(name)
        added.append(len(cluster.schedule().prefilled))
    assert added[:-1] == [0] * (len(added) - 1)
    assert added[-1] == len(prefilled) // 2


@pytest.mark.parametrize(
    "spec",
    [
        {"ports": ("http",)},
        {"exclusive": True, "fence_after_ms": 1000},
    ],
)
def test_not_plain_ones_are_not(cluster: InMemoryCluster, spec: dict[str, object]) -> None:
    cluster.connect("w", resources(2, 64))
    assert fill(cluster, **spec).prefilled == []


def test_other_workers_keep_their_share(cluster: InMemoryCluster) -> None:
    connect(cluster, "w1")
    connect(cluster, "w2")
    assert counts(fill(cluster, replicas=4 + 11)) == {"w1": 5, "w2": 5}


@pytest.mark.parametrize("is_stopped", [False, True], ids=["another user's", "on its way out"])
def test_where_something_else_runs_nothing_is_prefilled(cluster: InMemoryCluster, is_stopped: bool) -> None:
    connect(cluster)
    cluster.launch("/eve/long", replicas=1 if is_stopped else 2)
    if is_stopped:
        cluster.stop("/eve/long")
    assert fill(cluster).prefilled == []


def test_nothing_goes_past_a_request_that_comes_first(cluster: InMemoryCluster) -> None:
    connect(cluster)
    fill(cluster, ran_ms=None)
    cluster.view.run_times.note_end(("u", cluster.view.demands["/u/array"]), SHORT_MS)
    cluster.submit("/eve/large", resources(2, 1))
    assert cluster.schedule().prefilled == [], "eve has had nothing yet"
    cluster.stop("/eve/large")
    assert cluster.schedule().prefilled, "else there would have been some"


def test_a_request_that_can_never_fit_there_holds_up_nobody(cluster: InMemoryCluster) -> None:
    connect(cluster)
    cluster.connect("big", resources(64, 64))
    cluster.launch("/eve/all", resources(64, 1))
    cluster.submit("/u/large", resources(64, 1))
    assert counts(fill(cluster)) == {"w": 100 * 2 // (SHORT_MS + 2)}


def test_users_take_turns(cluster: InMemoryCluster) -> None:
    connect(cluster, cores=16)
    for user in ("ann", "bob"):
        cluster.submit(f"/{user}/array", replicas=400)
        cluster.view.run_times.note_end((user, cluster.view.demands[f"/{user}/array"]), SHORT_MS)
    for task, _ in cluster.schedule().assignments:
        cluster.observe(f"{task}:0", TaskState.RUNNING)
    assert cluster.view.usage.held("ann") == cluster.view.usage.held("bob")
    users = [task.split("/")[1] for task, _ in cluster.schedule().prefilled]
    assert users[:24] == ["bob"] * 8 + ["ann"] * 8 + ["bob"] * 8, "bob has had less by now"
    assert len(users) == MAX_PREFILLED


def test_a_cordoned_worker_gets_none(cluster: InMemoryCluster) -> None:
    connect(cluster)
    fill(cluster, ran_ms=None)
    cluster.do(WorkerCordoned(WorkerId("w"), "bad disk"))
    cluster.view.run_times.note_end(("u", cluster.view.demands["/u/array"]), SHORT_MS)
    assert cluster.schedule().prefilled == []


def test_separate_jobs_of_a_kind_are_prefilled_too(cluster: InMemoryCluster) -> None:
    connect(cluster)
    for number in range(60):
        cluster.submit(f"/u/job-{number}")
    for task, _ in cluster.schedule().assignments:
        cluster.observe(f"{task}:0", TaskState.RUNNING)
    cluster.view.run_times.note_end(("u", cluster.view.demands["/u/job-0"]), SHORT_MS)
    plan = cluster.schedule()
    assert [task for task, _ in plan.prefilled] == [f"/u/job-{number}/0" for number in range(2, 42)]
