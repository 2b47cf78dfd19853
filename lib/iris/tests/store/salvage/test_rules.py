"""What of a salvaged database may stay: records that can be read, jobs that are whole; what is told of the rest."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import NO_TASKS, UserBudget
from iris.domain.ids import AttemptId, JobId
from iris.domain.job_spec import JobSpec
from iris.domain.states import JobState, TaskState
from iris.store.damage import DATABASE_NAME
from iris.store.salvage.rules import ENDED, mend
from iris.store.store import Store, Stored
from support.iris.stored_jobs import PLAIN_SPEC, WORKER, make_job, make_tasks

NOW = 1234
LIVE = ("/ann/a", "/ann/a/child", "/ann/b")


def counts(state: TaskState, number: int) -> tuple[int, ...]:
    return tuple(number if index == state else 0 for index in range(len(NO_TASKS)))


def changes_of(spec: JobSpec, sequence: int, state: TaskState) -> Changes:
    job_state = JobState.SUCCEEDED if state is TaskState.SUCCEEDED else JobState.RUNNING
    job = make_job(spec, sequence, state=job_state, task_counts=counts(state, spec.replicas))
    tasks = make_tasks(spec, state=state, attempt=0, worker_id=WORKER.worker_id)
    endpoint = RegisteredEndpoint(f"{spec.job_id}/x", AttemptId(f"{spec.job_id}/0:0"), "h:1")
    return Changes.of([job], tasks, endpoints=[endpoint])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with live jobs of two tasks each, one that has ended, a worker and a budget."""
    place = tmp_path_factory.mktemp("made")
    store = Store.open(place)
    store.commit(Changes.of(workers=[WORKER], budgets=[UserBudget("ann", 2.0)]))
    for number, name in enumerate((*LIVE, "/ann/done"), 1):
        spec = replace(PLAIN_SPEC, job_id=JobId(name), replicas=2, env_vars={"A": "1"})
        state = TaskState.SUCCEEDED if name == "/ann/done" else TaskState.RUNNING
        store.commit(changes_of(spec, number, state))
    store.close()
    return place


def loaded(state_dir: Path) -> Stored:
    with closing(Store.open(state_dir)) as store:
        return store.load()


class Bench:
    """A copy of it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.connection = sqlite3.connect(place / DATABASE_NAME, isolation_level=None)

    def mend(self, *damaged: str) -> tuple[str, ...]:
        return mend(self.connection, frozenset(damaged), NOW)

    def execute(self, sql: str, *values: object) -> None:
        assert self.connection.execute(sql, values).rowcount > 0, "it changes something"

    def ids(self, table: str, column: str = "job_id") -> list[str]:
        return [row[0] for row in self.connection.execute(f"SELECT DISTINCT {column} FROM {table} ORDER BY 1")]

    def states(self) -> dict[str, str]:
        self.connection.close()
        found = loaded(self.place)
        self.tasks = {task.task_id: task for task in found.tasks}
        self.jobs = {job.job_id: job for job in found.jobs}
        return {name: job.state.word for name, job in self.jobs.items()}


@pytest.fixture
def bench(made: Path, tmp_path: Path) -> Iterator[Bench]:
    shutil.copytree(made, tmp_path / "state")
    copy = Bench(tmp_path / "state")
    yield copy
    copy.connection.close()


WHOLE = {**dict.fromkeys(LIVE, "running"), "/ann/done": "succeeded"}


def test_what_is_whole_stays_as_it_is_and_tables_of_which_more_was_there_are_told(bench: Bench) -> None:
    assert bench.mend() == ()
    assert bench.mend("workers", "budgets") == (
        "more was in the table budgets than could be read",
        "more was in the table workers than could be read",
    )
    assert bench.ids("endpoints", "name") == sorted(f"{name}/x" for name in LIVE), "those of ended jobs go"
    assert bench.states() == WHOLE


@pytest.mark.parametrize(
    ("sql", "note"),
    [
        ("UPDATE workers SET attributes = '{' WHERE worker_id = 'w1'", "1 records of the table workers"),
        ("UPDATE budgets SET max_band = 99", "1 records of the table budgets"),
        ("UPDATE endpoints SET metadata = 'x'", "4 records of the table endpoints"),
        ("UPDATE tasks SET state = 99 WHERE job_id = '/ann/done'", "2 records of the table tasks"),
        ("UPDATE tasks SET finished_at_ms = 'x' WHERE job_id = '/ann/done'", "2 records of the table tasks"),
        ("UPDATE tasks SET attempt = x'00' WHERE job_id = '/ann/done'", "2 records of the table tasks"),
    ],
)
def test_records_that_cannot_be_read_are_left_out_and_counted(bench: Bench, sql: str, note: str) -> None:
    bench.execute(sql)
    assert f"{note} are left out: they are damaged" in bench.mend()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE jobs SET state = 99 WHERE job_id = '/ann/done'",
        "UPDATE jobs SET submitted_at_ms = 'x' WHERE job_id = '/ann/done'",
        "UPDATE job_specs SET spec = '{}' WHERE job_id = '/ann/done'",
        "UPDATE job_specs SET spec = x'00' WHERE job_id = '/ann/done'",
        "DELETE FROM job_specs WHERE job_id = '/ann/done'",
        "UPDATE job_env_vars SET env_vars = '{' WHERE job_id = '/ann/done'",
    ],
)
def test_a_job_whose_record_is_damaged_is_left_out_with_all_that_is_its_own(bench: Bench, sql: str) -> None:
    bench.execute(sql)
    assert bench.mend() == ("1 jobs are left out, as not all of their record can be read: /ann/done",)
    for table in ("jobs", "job_specs", "job_env_vars", "tasks"):
        assert bench.ids(table) == list(LIVE), table
    assert bench.states() == dict.fromkeys(LIVE, "running")


def test_five_of_many_are_named(bench: Bench) -> None:
    bench.connection.execute("PRAGMA foreign_keys=OFF")
    columns = [row[1] for row in bench.connection.execute("PRAGMA table_info(jobs)")]
    rest = ", ".join(columns[1:])
    for number in range(6):
        job = f"/ann/x{number}"
        bench.execute(f"INSERT INTO jobs (job_id, {rest}) SELECT ?, {rest} FROM jobs WHERE job_id = '/ann/b'", job)
    (told,) = bench.mend()
    names = ", ".join(f"/ann/x{number}" for number in range(5))
    assert told == f"6 jobs are left out, as not all of their record can be read: {names} and 1 more"


class TestLiveJobs:
    def ended(self, bench: Bench, *names: str) -> None:
        states = bench.states()
        assert states == {name: "killed" if name in names else word for name, word in WHOLE.items()}
        for name in names:
            job = bench.jobs[JobId(name)]
            assert (job.error, job.finished_at_ms, job.counts) == (ENDED, NOW, {TaskState.KILLED: 2})
            tasks = [task for task in bench.tasks.values() if task.job_id == name]
            found = [(task.index, task.error, task.finished_at_ms) for task in tasks]
            assert found == [(0, ENDED, NOW), (1, ENDED, NOW)]

    @pytest.mark.parametrize(
        ("sql", "names"),
        [
            ("DELETE FROM tasks WHERE job_id = '/ann/b' AND task_index = 0", ["/ann/b"]),
            ("DELETE FROM tasks WHERE job_id = '/ann/b' AND task_index = 1", ["/ann/b"]),
            ("DELETE FROM tasks WHERE job_id = '/ann/a' AND task_index = 1", ["/ann/a", "/ann/a/child"]),
            ("UPDATE tasks SET worker_id = 'gone' WHERE job_id = '/ann/b' AND task_index = 1", ["/ann/b"]),
        ],
    )
    def test_one_that_lacks_something_is_ended_with_its_tree(self, bench: Bench, sql: str, names: list[str]) -> None:
        bench.execute(sql)
        told = f"{len(names)} live jobs are ended, as not all of them can be read: {', '.join(names)}"
        assert bench.mend() == (told,)
        left = sorted(f"{name}/x" for name in LIVE if name not in names)
        assert bench.ids("endpoints", "name") == left, "its endpoints go with it"
        self.ended(bench, *names)

    def test_one_without_its_parent_is_ended(self, bench: Bench) -> None:
        bench.execute("UPDATE jobs SET state = 99 WHERE job_id = '/ann/a'")
        bench.mend()
        states = bench.states()
        assert states == {"/ann/a/child": "killed", "/ann/b": "running", "/ann/done": "succeeded"}

    def test_one_that_may_have_had_variables_is_ended(self, bench: Bench) -> None:
        bench.execute("DELETE FROM job_env_vars WHERE job_id = '/ann/b'")
        assert bench.mend() == (), "it may have had none"
        assert len(bench.mend("job_env_vars")) == 2
        self.ended(bench, "/ann/b")

    def test_its_ended_tasks_stay_as_they_ended(self, bench: Bench) -> None:
        bench.execute("UPDATE tasks SET state = ? WHERE job_id = '/ann/b' AND task_index = 0", int(TaskState.SUCCEEDED))
        bench.execute("DELETE FROM tasks WHERE job_id = '/ann/b' AND task_index = 1")
        bench.mend()
        bench.states()
        assert bench.jobs[JobId("/ann/b")].counts == {TaskState.SUCCEEDED: 1, TaskState.KILLED: 1}
        first = next(task for task in bench.tasks.values() if task.task_id == "/ann/b/0")
        assert (first.state, first.error) == (TaskState.SUCCEEDED, "")

    def test_names_are_told_apart_exactly(self, bench: Bench) -> None:
        # To a pattern of SQL these are alike, and so are any characters where the name of a job has a `_`.
        bench.execute("UPDATE endpoints SET attempt_id = '/ann/B/0:0' WHERE name = '/ann/done/x'")
        bench.mend()
        assert "/ann/done/x" not in bench.ids("endpoints", "name")


def test_what_is_of_no_job_goes(bench: Bench) -> None:
    for table, columns in (("stopping", "?, ?, 'w1', '{}', 0"), ("lost_attempts", "?, ?, 'w1', '{}'")):
        for job in ("/ann/b", "/ann/none"):
            bench.execute(f"INSERT INTO {table} VALUES ({columns})", f"{job}/0:0", job)
    assert bench.mend() == ()
    assert bench.ids("stopping") == bench.ids("lost_attempts") == ["/ann/b"]
