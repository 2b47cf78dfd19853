"""What the view forgets of jobs and workers is as if it had never been there."""

from iris.core.state.view import ClusterView
from iris.domain.events import WorkerDisconnected, WorkerLost
from iris.domain.ids import JobId, WorkerId
from iris.domain.states import TaskState
from iris.testing.scheduling import InMemoryCluster, resources

W = WorkerId("w")


def known(view: ClusterView) -> dict[str, set[str]]:
    return {
        "jobs": set(view.jobs),
        "tasks": set(view.tasks),
        "demands": set(view.demands),
        "keys": set(view.job_of_key),
        "lost": set(view.lost),
        "workers": set(view.workers),
        "loads": set(view.loads),
    }


def ended(cluster: InMemoryCluster, name: str, key: str = "") -> JobId:
    job_id = cluster.submit(name, key=key)
    cluster.schedule()
    cluster.observe(f"{name}/0:0", TaskState.SUCCEEDED)
    return job_id


def test_a_job_leaves_nothing_and_the_others_stay(cluster):
    ended(cluster, "/u/kept", "key-1")
    before = known(cluster.view)
    cluster.view.forget_job(ended(cluster, "/u/gone", "key-2"))
    assert known(cluster.view) == before
    assert cluster.view.job_of_key == {"key-1": "/u/kept"}


def test_what_was_given_up_of_it_goes_with_it(cluster):
    cluster.submit("/u/gone")
    cluster.submit("/u/kept")
    cluster.schedule()
    cluster.do(WorkerLost(W, "not heard"))
    cluster.stop("/u/gone")
    assert set(cluster.view.lost) == {"/u/gone/0:0", "/u/kept/0:0"}
    cluster.view.forget_job(JobId("/u/gone"))
    assert set(cluster.view.lost) == {"/u/kept/0:0"}


def test_a_key_that_another_job_has_by_now_stays(cluster):
    first = ended(cluster, "/u/first", "key")
    cluster.view.job_of_key["key"] = JobId("/u/second")
    cluster.view.forget_job(first)
    assert cluster.view.job_of_key == {"key": "/u/second"}


def test_a_worker_leaves_nothing_and_the_others_stay(cluster):
    before = known(cluster.view)
    cluster.connect("v", resources(1))
    cluster.do(WorkerDisconnected(WorkerId("v"), "a"))
    cluster.view.forget_worker(WorkerId("v"))
    assert known(cluster.view) == before


def test_what_was_given_up_on_it_goes_with_it(cluster):
    cluster.connect("v", resources(4, 16, 100))
    cluster.submit(need=resources(3), replicas=2)
    cluster.schedule()
    for name in ("w", "v"):
        cluster.do(WorkerLost(WorkerId(name), "not heard"))
    assert len(cluster.view.lost) == 2
    cluster.view.forget_worker(W)
    assert {lost.worker_id for lost in cluster.view.lost.values()} == {"v"}
