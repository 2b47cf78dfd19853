import pytest

from iris.core.rules.reduce import expired, next_deadline
from iris.domain.events import Preempted
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.states import FailureKind, TaskState
from support.iris.scheduling import InMemoryCluster, resources

FAILED = {"failure_kind": FailureKind.USER, "exit_code": 1}


@pytest.fixture
def failed(cluster: InMemoryCluster) -> InMemoryCluster:
    """A task has failed once."""
    cluster.launch(max_retries_failure=3, retry_delay_ms=1000)
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    cluster.observe("/u/job/0:0", TaskState.FAILED, **FAILED)
    return cluster


def pass_time(cluster: InMemoryCluster) -> int:
    """Let the time of the next retry come; return how long that took."""
    due = next_deadline(cluster.view)
    assert due is not None
    waited, cluster.now_ms = due - cluster.now_ms, due
    for event in expired(cluster.view, cluster.now_ms):
        cluster.do(event)
    return waited


def test_each_retry_waits_twice_as_long_and_nothing_is_assigned_before(failed):
    waits = []
    for attempt in (1, 2, 3):
        assert not failed.schedule().assignments
        assert failed.view.delays.of_job(JobId("/u/job"))[0][1] == 0
        waits.append(pass_time(failed))
        failed.schedule()
        assert (failed.task().attempt, failed.task().retry_at_ms) == (attempt, 0)
        failed.observe(f"/u/job/0:{attempt}", TaskState.FAILED, **FAILED)
    assert [round(wait / 1000 / 2**n) for n, wait in enumerate(waits)] == [1, 1, 1]
    assert failed.job().state.is_terminal
    assert next_deadline(failed.view) is None


def test_it_waits_on_after_a_restart_of_the_controller(failed, restarted):
    due = next_deadline(failed.view)
    failed.view = restarted(failed.view)
    assert next_deadline(failed.view) == due
    assert not failed.schedule().assignments
    pass_time(failed)
    failed.schedule()
    assert failed.task().state is TaskState.ASSIGNED


def test_a_stop_ends_the_wait(failed):
    failed.stop("/u/job")
    assert next_deadline(failed.view) is None
    assert failed.job().state.is_terminal


def test_a_preemption_restarts_at_once(cluster):
    cluster.launch(max_retries_failure=3, retry_delay_ms=1000)
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    cluster.do(Preempted(AttemptId("/u/job/0:0"), "more urgent work"))
    cluster.observe("/u/job/0:0", TaskState.KILLED)
    cluster.schedule()
    assert cluster.task().attempt == 1


@pytest.mark.parametrize("kind", [FailureKind.DISK, FailureKind.WORKER])
def test_starts_that_fail_by_the_host_come_later_each_time_and_a_full_disk_does_not_close_it(cluster, kind):
    cluster.launch(max_retries_preemption=9)
    waits = []
    for attempt in range(3):
        cluster.observe(f"/u/job/0:{attempt}", TaskState.WORKER_FAILED, failure_kind=kind, error="no room")
        assert not cluster.schedule().assignments
        waits.append(pass_time(cluster))
        cluster.schedule()
    assert [round(wait / 1000 / 2**n) for n, wait in enumerate(waits)] == [1, 1, 1]
    worker = cluster.view.workers[WorkerId("w")]
    assert (worker.strikes, bool(worker.cordon_reason)) == ((0, False) if kind is FailureKind.DISK else (3, True))
    assert bool(worker.cordoned_at_ms) == bool(worker.cordon_reason)


def test_a_chip_that_stays_busy_closes_its_host_at_once_and_is_not_charged(cluster):
    cluster.launch(max_retries_preemption=9)
    cluster.observe("/u/job/0:0", TaskState.FAILED, failure_kind=FailureKind.DEVICE, error="/dev/accel0 is in use")
    worker = cluster.view.workers[WorkerId("w")]
    assert worker.cordon_reason == "an accelerator stays busy: /u/job/0:0: /dev/accel0 is in use"
    assert (cluster.task().failures, cluster.task().state) == (0, TaskState.PENDING)


def test_what_ran_and_was_lost_by_its_host_restarts_at_once(cluster):
    cluster.launch(max_retries_preemption=9)
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    cluster.observe("/u/job/0:0", TaskState.WORKER_FAILED, failure_kind=FailureKind.WORKER)
    cluster.schedule()
    assert cluster.task().attempt == 1


def test_a_gang_waits_as_a_whole(cluster):
    for name in ("c0", "c1"):
        cluster.connect(name, resources(1, 16), pool="c")
    cluster.launch(replicas=2, coscheduling_group_by="pool", max_retries_failure=1, retry_delay_ms=1000)
    for index in range(2):
        cluster.observe(f"/u/job/{index}:0", TaskState.RUNNING)
    cluster.observe("/u/job/0:0", TaskState.FAILED, **FAILED)
    cluster.observe("/u/job/1:0", TaskState.KILLED)
    assert not cluster.schedule().assignments
    pass_time(cluster)
    cluster.schedule()
    assert {cluster.task(f"/u/job/{index}").attempt for index in range(2)} == {1}
