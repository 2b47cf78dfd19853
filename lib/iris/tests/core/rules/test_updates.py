import pytest

from iris.core.rules.reduce import next_deadline
from iris.domain.entities import UserBudget
from iris.domain.events import BudgetSet, JobUpdated
from iris.domain.ids import JobId
from iris.domain.states import PriorityBand, TaskState
from rigging.errors import Conflict, Denied, NotFound
from support.iris.scheduling import InMemoryCluster, resources

JOB = JobId("/u/job")


@pytest.mark.parametrize("fields", [{}, {"replicas": 2, "coscheduling_group_by": "arch"}])
def test_a_waiting_job_gets_another_band_and_size(cluster: InMemoryCluster, fields) -> None:
    cluster.connect("v", resources(8, 16), arch="x")
    cluster.submit("/u/first", resources(8))
    cluster.submit("/u/job", resources(100), **fields)
    cluster.do(JobUpdated(JOB, band=PriorityBand.PRODUCTION, cpu_millis=1000))
    assert cluster.view.queue[0][2] == JOB
    spec = cluster.job().spec
    assert (spec.band, spec.resources.cpu_millis, spec.resources.memory_bytes) == (1, 1000, 1 << 30)
    assert cluster.schedule().assignments[0][0] == "/u/job/0"


def test_limits_of_a_running_job_change_and_its_resources_do_not(cluster: InMemoryCluster, restarted) -> None:
    cluster.launch(timeout_ms=5_000)
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    started = cluster.job().started_at_ms
    cluster.do(JobUpdated(JOB, timeout_ms=60_000, max_retries_failure=1))
    assert next_deadline(cluster.view) == started + 60_000
    cluster.view = restarted(cluster.view)
    assert next_deadline(cluster.view) == started + 60_000
    with pytest.raises(Conflict, match="job /u/job has started, so its cpu, memory cannot change"):
        cluster.do(JobUpdated(JOB, cpu_millis=1, memory_bytes=1))
    cluster.do(JobUpdated(JOB, timeout_ms=0))
    assert next_deadline(cluster.view) is None
    cluster.observe("/u/job/0:0", TaskState.FAILED)
    assert cluster.task().state is TaskState.PENDING, "it may be retried now"


def test_a_limit_of_the_wait_can_be_set_and_taken_away_until_the_first_start(cluster: InMemoryCluster) -> None:
    cluster.submit()
    cluster.do(JobUpdated(JOB, scheduling_timeout_ms=9_000))
    assert next_deadline(cluster.view) == cluster.job().submitted_at_ms + 9_000
    cluster.do(JobUpdated(JOB, scheduling_timeout_ms=0))
    assert next_deadline(cluster.view) is None


def test_the_budget_counts_and_an_ended_job_stays_as_it_is(cluster: InMemoryCluster) -> None:
    cluster.submit()
    cluster.do(BudgetSet(UserBudget("u", 0, PriorityBand.INTERACTIVE)))
    with pytest.raises(Denied, match="user u may not submit in the production band"):
        cluster.do(JobUpdated(JOB, band=PriorityBand.PRODUCTION))
    cluster.stop(JOB)
    with pytest.raises(Conflict, match=r"job /u/job has ended \(killed\); only live jobs can be updated"):
        cluster.do(JobUpdated(JOB, timeout_ms=1))
    with pytest.raises(NotFound):
        cluster.do(JobUpdated(JobId("/u/none"), timeout_ms=1))
