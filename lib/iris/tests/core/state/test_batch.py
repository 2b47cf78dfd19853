from iris.core.state.batch import Batch
from iris.domain.effects import StartAttempt
from iris.domain.events import JobSubmitted, LendCpu
from iris.domain.ids import AttemptId, JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.states import JobState, TaskState


def test_the_last_record_wins_and_effects_keep_their_order(cluster):
    batch = Batch()
    assert not batch
    cluster.submit()
    cluster.schedule()
    for state in (TaskState.RUNNING, TaskState.SUCCEEDED):
        batch.add(cluster.observe("/u/job/0:0", state))
    assert batch.changes.tasks["/u/job/0"] == cluster.task()
    assert batch.changes.jobs["/u/job"].state is JobState.SUCCEEDED
    assert [type(effect).__name__ for effect in batch.effects] == [
        "JobChanged",
        "ForgetAttempt",
        "JobChanged",
        "JobEnded",
        "JobSettled",
    ]
    assert batch.changes.is_durable


def test_lending_needs_no_commit(cluster):
    cluster.submit()
    cluster.schedule()
    assert StartAttempt("/u/job/0:0", "w") in cluster.effects
    batch = Batch()
    batch.add(cluster.do(LendCpu(AttemptId("/u/job/0:0"), True)))
    assert batch
    assert not batch.changes.is_durable


def test_tasks_of_a_replaced_job_are_not_written_after_their_deletion(cluster):
    cluster.submit(replicas=3)
    batch = Batch()
    batch.add(cluster.stop("/u/job"))
    assert len(batch.changes.tasks) == 3
    batch.add(cluster.do(JobSubmitted(JobSpec(JobId("/u/job"), CommandEntrypoint(("true",))))))
    assert list(batch.changes.tasks) == ["/u/job/0"]
    assert batch.changes.replaced == {"/u/job"}
