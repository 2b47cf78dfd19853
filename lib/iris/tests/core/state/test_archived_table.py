from hypothesis import given
from hypothesis import strategies as st

from iris.core.state.archived_table import ArchivedTable
from iris.core.state.names import NameFilter
from iris.core.state.view import ClusterView
from iris.domain.entities import Job, Task
from iris.domain.ids import AttemptId, JobId, task_id
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.states import JobState, TaskState

OLD = JobId("/ann/old")


def tasks(job_id: JobId, count: int = 2, state: TaskState = TaskState.SUCCEEDED) -> list[Task]:
    return [Task(task_id(job_id, index), job_id, index, state, 0) for index in range(count)]


class Archive:
    """Has one job, which was submitted with the key k."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def job_of(self, job_id: JobId) -> Job | None:
        self.asked.append(f"job {job_id}")
        spec = JobSpec(OLD, CommandEntrypoint(("true",)), replicas=2)
        return Job(spec, JobState.SUCCEEDED, 1, 2, 3, sequence=1, idempotency_key="k") if job_id == OLD else None

    def tasks_of(self, job_id: JobId) -> list[Task]:
        self.asked.append(f"tasks {job_id}")
        return tasks(job_id) if job_id == OLD else []


def test_ended_jobs_are_fetched_once_and_names_that_are_unknown_are_asked_for_once() -> None:
    archive = Archive()
    view = ClusterView.load([], [], [], archive)
    for _ in range(2):
        assert view.find_attempt(AttemptId("/ann/none/0:0")) == (None, -1)
        assert view.job(OLD).state is JobState.SUCCEEDED
        assert view.find_attempt(AttemptId("/ann/old/1:0"))[0] == tasks(OLD)[1]
    assert archive.asked == ["tasks /ann/none", "job /ann/old", "tasks /ann/old"]
    view.forget_job(OLD)
    assert OLD not in view.jobs, "although the archive has it until the commit"


def test_trim_drops_the_longest_shelved_and_never_a_job_that_was_not_shelved() -> None:
    fetched: list[JobId] = []
    table: ArchivedTable[JobId, list[Task]] = ArchivedTable(4, len)
    table.attach(lambda name: fetched.append(name) or tasks(name))
    names = [JobId(f"/ann/{name}") for name in "abcd"]
    for name in names:
        table[name] = tasks(name)
    for name in names[1:]:
        table.evict(name)
    table.trim()
    assert list(table) == [names[0], names[2], names[3]]
    assert fetched == []
    assert table[names[1]] == tasks(names[1])
    table.trim()
    assert set(table) == {names[0], names[1], names[3]}


def test_a_job_that_takes_the_name_of_a_shelved_one_stays_in_memory_and_all_do_without_an_archive() -> None:
    for is_attached in (True, False):
        table: ArchivedTable[JobId, list[Task]] = ArchivedTable(0, len)
        if is_attached:
            table.attach(tasks)
        table[OLD] = tasks(OLD)
        table.evict(OLD)
        fresh = tasks(OLD, 3, TaskState.PENDING)
        if is_attached:
            table[OLD] = fresh
        table.trim()
        assert list(table) == [OLD]


def test_a_new_name_is_not_looked_up_once_all_names_are_known() -> None:
    archive = Archive()
    view = ClusterView.load([], [], [], archive)
    assert view.jobs.get(JobId("/ann/early")) is None
    view.names.complete(NameFilter([OLD]))
    assert view.jobs.get(JobId("/ann/late")) is None
    assert archive.asked == ["job /ann/early"]
    assert view.job(OLD).state is JobState.SUCCEEDED


@given(st.lists(st.text()), st.lists(st.text()))
def test_a_filter_of_names_never_denies_one_that_it_has(before: list[str], later: list[str]) -> None:
    names = NameFilter(later, is_complete=False)
    names.complete(NameFilter(before))
    assert all(name in names for name in before + later)


def test_a_filter_of_a_hundred_thousand_names_denies_nearly_all_others() -> None:
    names = NameFilter(f"/ann/{number}" for number in range(100_000))
    assert sum(f"/bob/{number}" in names for number in range(10_000)) < 20
