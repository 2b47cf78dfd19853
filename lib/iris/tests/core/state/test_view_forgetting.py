"""What the view forgets of jobs and workers is as if it had never been there."""

from iris.core.state.view import ClusterView
from iris.domain.events import WorkerDisconnected, WorkerLost
from iris.domain.ids import JobId, WorkerId
from iris.domain.states import TaskState
from support.iris.scheduling import InMemoryCluster, resources

W = WorkerId("w")


def known(view: ClusterView) -> dict[str, set[str]]:
    tables = ("jobs", "tasks", "demands", "lost", "workers", "loads")
    return {name: set(getattr(view, name)) for name in tables}


def ended(cluster: InMemoryCluster, name: str) -> JobId:
    job_id = cluster.launch(name)
    cluster.observe(f"{name}/0:0", TaskState.SUCCEEDED)
    return job_id


def test_a_job_leaves_nothing_and_the_others_stay(cluster):
    ended(cluster, "/u/kept")
    before = known(cluster.view)
    cluster.view.forget_job(ended(cluster, "/u/gone"))
    assert known(cluster.view) == before


def test_a_worker_leaves_nothing_and_the_others_stay(cluster):
    before = known(cluster.view)
    cluster.connect("v", resources(1))
    cluster.do(WorkerDisconnected(WorkerId("v"), "a"))
    cluster.view.forget_worker(WorkerId("v"))
    assert known(cluster.view) == before


def test_what_was_given_up_goes_with_its_job_and_with_its_worker(cluster):
    cluster.connect("v", resources(4, 16, 100))
    cluster.submit("/u/gone", resources(1))
    cluster.launch("/u/kept", resources(3), replicas=2)
    for name in ("w", "v"):
        cluster.do(WorkerLost(WorkerId(name), "not heard"))
    cluster.stop("/u/gone")
    assert len(cluster.view.lost) == 3
    cluster.view.forget_job(JobId("/u/gone"))
    assert {lost.job_id for lost in cluster.view.lost.values()} == {"/u/kept"}
    cluster.view.forget_worker(W)
    assert [lost.worker_id for lost in cluster.view.lost.values()] == ["v"]
