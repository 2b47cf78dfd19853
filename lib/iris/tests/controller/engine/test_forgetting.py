"""What may be forgotten: nothing that is in use, and nothing that changes in the same batch."""

import pytest

from iris.controller.engine.transaction import Transaction
from iris.core.state.batch import Batch
from iris.domain.effects import JobForgotten
from iris.domain.events import JobSubmitted, WorkerDisconnected
from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.states import TaskState
from support.iris.scheduling import InMemoryCluster, resources

PARENT, CHILD = JobId("/u/a"), JobId("/u/a/b")
WORKER = WorkerId("w")


@pytest.fixture
def cluster() -> InMemoryCluster:
    """One worker; a job that runs on it, and one below it."""
    made = InMemoryCluster()
    made.connect("w", resources(4, 16))
    made.submit(PARENT)
    made.submit(CHILD)
    made.schedule()
    return made


def transaction(cluster: InMemoryCluster) -> Transaction:
    return Transaction(cluster.view, cluster.now_ms, Batch())


def finish(cluster: InMemoryCluster, *job_ids: JobId) -> None:
    for job_id in job_ids:
        cluster.observe(f"{job_id}/0:0", TaskState.SUCCEEDED)


def test_jobs_that_have_ended_are_forgotten_and_who_keeps_anything_of_them_is_told(cluster: InMemoryCluster) -> None:
    finish(cluster, CHILD)
    now = transaction(cluster)
    assert now.forget_job(CHILD)
    assert not now.forget_job(PARENT), "it runs"
    finish(cluster, PARENT)
    assert now.forget_job(PARENT)
    assert now.batch.changes.forgotten_jobs == {PARENT, CHILD}
    assert [effect for effect in now.batch.effects if isinstance(effect, JobForgotten)] == [
        JobForgotten(CHILD),
        JobForgotten(PARENT),
    ]
    assert not cluster.view.jobs
    assert not now.forget_job(PARENT), "it is gone"


def test_a_job_is_not_forgotten_while_anything_of_it_runs(cluster: InMemoryCluster) -> None:
    assert not transaction(cluster).forget_job(CHILD)
    cluster.stop(CHILD)
    assert not transaction(cluster).forget_job(CHILD), "its attempt is still on its way out"
    cluster.observe(f"{CHILD}/0:0", TaskState.KILLED)
    assert transaction(cluster).forget_job(CHILD)


def test_a_job_that_changes_in_this_batch_is_not_forgotten_in_it(cluster: InMemoryCluster) -> None:
    """Its record would be written behind its removal."""
    finish(cluster, CHILD, PARENT)
    now = transaction(cluster)
    assert now.forget_job(CHILD)
    now.apply(JobSubmitted(JobSpec(PARENT, CommandEntrypoint(("true",)), resources()), ""))
    cluster.stop(PARENT)
    assert not now.forget_job(PARENT)


def disconnect(now: Transaction) -> None:
    now.apply(WorkerDisconnected(WORKER, now.view.workers[WORKER].instance_id))


def test_a_worker_is_forgotten_when_it_is_away(cluster: InMemoryCluster) -> None:
    disconnect(transaction(cluster))
    assert not transaction(cluster).forget_worker(WORKER), "attempts may live there"
    cluster.connect("w", resources(4, 16))
    finish(cluster, CHILD, PARENT)
    assert not transaction(cluster).forget_worker(WORKER), "it is connected"
    now = transaction(cluster)
    disconnect(now)
    assert not now.forget_worker(WORKER), "it changes in this batch"
    later = transaction(cluster)
    assert later.forget_worker(WORKER)
    assert later.batch.changes.forgotten_workers == {WORKER}
    assert not later.forget_worker(WORKER), "it is gone"
