"""A database of every earlier release opens with all that was in it. `databases/NNNN.sql` is what release N left."""

import sqlite3
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.ids import JobId
from iris.domain.states import JobState, TaskState
from iris.domain.usage import Usage
from iris.store.db import DATABASE_NAME, migrations
from iris.store.store import Store

DATABASES = sorted((Path(__file__).parent / "databases").glob("*.sql"))


def open_old(dump: Path, state_dir: Path) -> Store:
    connection = sqlite3.connect(state_dir / DATABASE_NAME)
    connection.executescript(dump.read_text())
    connection.close()
    return Store.open(state_dir)


def test_there_is_a_database_of_every_version_before_this() -> None:
    numbers = [number for number, _ in migrations()]
    assert [int(path.stem) for path in DATABASES] == numbers[:-1] == list(range(1, len(numbers)))


@pytest.mark.parametrize("dump", DATABASES, ids=lambda path: path.stem)
def test_everything_in_an_older_database_is_there_after_the_migration(dump: Path, tmp_path: Path) -> None:
    store = open_old(dump, tmp_path)
    stored = store.load()
    job, plain = stored.jobs
    assert (job.job_id, job.state, job.error, job.sequence) == (
        "/ann/train/child", JobState.FAILED, "task 0 failed: exit code 3", 1,
    )  # fmt: skip
    assert (job.exit_code, job.exit_signal, job.idempotency_key, job.first_attempt) == (3, 9, "key", 4)
    assert job.spec.env_vars == {"TOKEN": "secret", "UMLAUT": "ä\n"}
    assert job.spec.resources.device is not None
    assert job.spec.resources.device.alternatives == ("v4-8",)
    assert (plain.job_id, plain.spec.env_vars) == ("/ann/plain", {})
    assert [task.state for task in stored.tasks] == [TaskState.PENDING, *[TaskState.FAILED] * 3]
    assert (stored.workers[0].cordon_reason, stored.workers[0].strikes, stored.budgets) == ("", 0, ())
    assert stored.tasks[1].causes == ("attempt 4 on w1: lost", 'a "quoted" one')
    assert [(worker.worker_id, worker.attributes) for worker in stored.workers] == [("w1", {"zone": "a"})]
    # And it is of use: what is committed now is read again.
    store.commit(Changes.of([job], stored.tasks, stored.workers))
    assert store.load() == stored
    store.close()


@pytest.mark.parametrize("dump", DATABASES, ids=lambda path: path.stem)
def test_a_migrated_database_has_the_schema_of_a_new_one(dump: Path, tmp_path: Path) -> None:
    schemas = []
    for name in ("old", "new"):
        state_dir = tmp_path / name
        state_dir.mkdir()
        (open_old(dump, state_dir) if name == "old" else Store.open(state_dir)).close()
        connection = sqlite3.connect(state_dir / DATABASE_NAME)
        schemas.append(sorted(connection.execute("SELECT type, name, sql FROM sqlite_master")))
        connection.close()
    assert schemas[0] == schemas[1]


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    connection.executescript(DATABASES[0].read_text())
    connection.execute("CREATE TABLE job_env_vars (in_the_way)")
    connection.commit()
    before = sorted(connection.execute("SELECT * FROM job_specs"))
    with pytest.raises(Exception, match="job_env_vars already exists"):
        Store.open(tmp_path)
    assert sorted(connection.execute("SELECT * FROM job_specs")) == before
    assert connection.execute("SELECT max(version) FROM schema_version").fetchone() == (1,)
    connection.close()


def test_what_attempts_used_before_traffic_was_counted_is_kept(tmp_path: Path) -> None:
    store = open_old(Path(__file__).parent / "databases" / "0011.sql", tmp_path)
    ((name, use),) = store.usage_of(JobId("/ann/train/child")).items()
    before = Usage(cpu_ms=1500, memory_peak_bytes=4096, disk_peak_bytes=8192, processes_peak=3, at_ms=99)
    assert (name, use.worker_id, use.usage) == ("/ann/train/child/1:5", "w1", before)
    store.close()
