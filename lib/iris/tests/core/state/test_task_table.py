from iris.core.state.task_table import TaskTable
from iris.core.state.view import ClusterView
from iris.domain.entities import Job, Task
from iris.domain.ids import AttemptId, JobId, task_id
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.states import JobState, TaskState

OLD, NEW = JobId("/ann/old"), JobId("/ann/new")


def job(job_id: JobId, replicas: int = 2, state: JobState = JobState.SUCCEEDED, sequence: int = 1) -> Job:
    spec = JobSpec(job_id, CommandEntrypoint(("true",)), replicas=replicas)
    return Job(spec, state, 1, 2, 3, sequence=sequence)


def tasks(job_id: JobId, count: int = 2, state: TaskState = TaskState.SUCCEEDED) -> list[Task]:
    return [Task(task_id(job_id, index), job_id, index, state, 0) for index in range(count)]


class Archive:
    def __init__(self) -> None:
        self.asked: list[JobId] = []

    def __call__(self, job_id: JobId) -> list[Task]:
        self.asked.append(job_id)
        return tasks(job_id)


def test_tasks_of_an_ended_job_are_fetched_once_and_only_when_asked_for() -> None:
    archive = Archive()
    view = ClusterView.load([job(OLD)], [], [], archive)
    assert view.find_attempt(AttemptId("/ann/none/0:0")) == (None, -1)
    assert archive.asked == []
    assert view.task(task_id(OLD, 1)).state is TaskState.SUCCEEDED
    assert view.find_attempt(AttemptId("/ann/old/1:0"))[0] == tasks(OLD)[1]
    assert archive.asked == [OLD]


def test_trim_drops_the_longest_shelved_and_never_a_job_that_was_not_shelved() -> None:
    archive = Archive()
    names = [JobId(f"/ann/{name}") for name in "abcd"]
    table = TaskTable({name: job(name) for name in names}, archive, shelf_tasks=4)
    for name in names:
        table[name] = tasks(name)
    for name in names[1:]:
        table.evict(name)
    table.trim()
    assert set(table) == {names[0], names[2], names[3]}
    assert archive.asked == []
    assert table[names[1]] == tasks(names[1])
    table.trim()
    assert set(table) == {names[0], names[1], names[3]}


def test_a_job_that_takes_the_name_of_a_shelved_one_stays_in_memory_and_all_do_without_an_archive() -> None:
    table = TaskTable({OLD: job(OLD)}, Archive(), shelf_tasks=0)
    table[OLD] = tasks(OLD)
    table.evict(OLD)
    fresh = tasks(OLD, 3, TaskState.PENDING)
    table[OLD] = fresh
    table.trim()
    assert dict.__getitem__(table, OLD) is fresh
    table = TaskTable({OLD: job(OLD)}, None, shelf_tasks=0)
    table[OLD] = tasks(OLD)
    table.evict(OLD)
    table.trim()
    assert OLD in table
