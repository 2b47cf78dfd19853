import os
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from iris.core.state.changes import Changes
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import NO_TASKS, Stopping, UserBudget
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.job_spec import CommandEntrypoint
from iris.domain.resources import Device, Resources
from iris.domain.states import JobState, PreemptionReason, PriorityBand, TaskState
from iris.store.damage import DatabaseDamaged
from iris.store.db import DATABASE_NAME, MIGRATIONS, SchemaTooNew, SchemaTooOld, migrate_to, migrations
from iris.store.store import Store
from rigging.errors import Conflict
from support.iris.stored_jobs import FULL_SPEC, PLAIN_SPEC, WORKER, make_job, make_tasks
from support.rigging.power_loss import LossyDisk

from .test_damage import loaded


def test_everything_committed_comes_back_equal_after_a_restart(tmp_path: Path) -> None:
    counts = tuple(range(len(NO_TASKS)))
    job = make_job(
        FULL_SPEC, state=JobState.FAILED, started_at_ms=6, finished_at_ms=7, error="task 0 failed: exit code 3",
        exit_code=3, exit_signal=9, deciding_task_id=TaskId("/ann/train/child/0"), idempotency_key="key",
        task_counts=counts, first_attempt=4, waits="/ann/b:any", ready_at_ms=6,
    )  # fmt: skip
    tasks = make_tasks(
        FULL_SPEC, state=TaskState.FAILED, attempt=5, worker_id=WorkerId("w1"), failures=1, preemptions=2,
        exit_code=3, exit_signal=9, error="exit code 3", started_at_ms=8, finished_at_ms=9,
        causes=("attempt 4 on w1: lost", 'a "quoted" one'),
    )  # fmt: skip
    plain = make_job(PLAIN_SPEC, sequence=2)
    store = Store.open(tmp_path / "state")
    store.commit(Changes.of([plain, job], [*make_tasks(PLAIN_SPEC), *tasks], [WORKER]))
    store.close()

    stored = loaded(tmp_path / "state")
    assert stored.jobs == (job, plain)
    assert stored.tasks == (*make_tasks(PLAIN_SPEC), *tasks)
    assert stored.workers == (WORKER,)


def test_a_job_that_takes_an_ended_jobs_name_replaces_its_spec_and_all_its_tasks(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    old = replace(PLAIN_SPEC, replicas=5)
    job, tasks = make_job(old), make_tasks(old)
    store.commit(Changes.of([job], tasks))
    ended = replace(job, state=JobState.SUCCEEDED, finished_at_ms=9)
    done = replace(tasks[0], state=TaskState.SUCCEEDED, attempt=0)
    store.commit(Changes.of([ended], [done]))
    assert store.load().jobs == (ended,), "a later record replaces the earlier"
    assert store.load().tasks == (done, *tasks[1:])
    store.close()
    store = Store.open(tmp_path)
    new = replace(PLAIN_SPEC, entrypoint=CommandEntrypoint(("false",)), replicas=2)
    store.commit(replace(Changes.of([make_job(new, sequence=2)], make_tasks(new)), replaced={new.job_id}))
    store.close()
    stored = loaded(tmp_path)
    assert [(job.spec, job.sequence) for job in stored.jobs] == [(new, 2)]
    assert [task.index for task in stored.tasks] == [0, 1]


def test_a_failed_commit_writes_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    broken = replace(make_tasks(PLAIN_SPEC)[0], error=object())
    with pytest.raises(sqlite3.Error):
        store.commit(Changes.of([make_job(PLAIN_SPEC)], [broken], [WORKER]))
    assert store.load().jobs == ()
    assert store.load().workers == ()
    store.commit(Changes.of([make_job(PLAIN_SPEC)]))
    assert [job.spec for job in store.load().jobs] == [PLAIN_SPEC]
    store.close()


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o777)
    store = Store.open(state)
    store.commit(Changes.of([make_job(FULL_SPEC)]))
    assert state.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in state.iterdir()}
    assert f"{DATABASE_NAME}-wal" in modes
    assert set(modes.values()) == {0o600}, modes
    store.close()


@pytest.mark.parametrize("names_survive", [False, True])
def test_a_new_database_is_there_after_a_power_failure(names_survive: bool, tmp_path: Path) -> None:
    """A database that vanished would be made anew and empty, beside logs and jobs that run."""
    (tmp_path / "disk").mkdir()
    disk = LossyDisk(tmp_path / "disk")
    with disk.recording():
        Store.open(tmp_path / "disk").close()
    left = disk.after_power_loss(tmp_path / "left", names_survive=names_survive)
    disk.close()
    assert (left / DATABASE_NAME).exists()


def test_a_start_writes_nothing_that_need_not_be(tmp_path: Path) -> None:
    """On a full disk it could not."""
    Store.open(tmp_path).close()
    store = Store.open(tmp_path)
    wal = tmp_path / f"{DATABASE_NAME}-wal"
    assert not wal.exists() or wal.stat().st_size == 0
    store.close()


class Refusing:
    """A connection on which each statement fails with `code`, once that is set."""

    def __init__(self) -> None:
        self.code = 0
        self.in_transaction = False

    def execute(self, *args: object) -> list[object]:
        if not self.code:
            return []
        error = sqlite3.OperationalError("what it says may be secret")
        error.sqlite_errorcode = self.code
        raise error

    def close(self) -> None: ...


def test_a_disk_that_does_not_answer_is_no_damage(tmp_path: Path) -> None:
    connection = Refusing()
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    store = Store(cast(sqlite3.Connection, connection), lock, tmp_path / DATABASE_NAME)

    for code, kind in (
        (sqlite3.SQLITE_FULL, StorageUnavailable),
        (sqlite3.SQLITE_IOERR, StorageUnavailable),
        (sqlite3.SQLITE_IOERR_READ, StorageUnavailable),
        (sqlite3.SQLITE_ERROR, DatabaseDamaged),
    ):
        connection.code = code
        with pytest.raises(kind) as refused:
            store.tasks_of(JobId("/ann/a"))
        with pytest.raises(kind):
            store.load()
        assert ("secret" in str(refused.value)) is (kind is StorageUnavailable)
        with pytest.raises(sqlite3.OperationalError if kind is DatabaseDamaged else kind):
            store.commit(Changes.of([make_job(PLAIN_SPEC)]))
    connection.code = sqlite3.SQLITE_CORRUPT
    with pytest.raises(DatabaseDamaged):
        store.commit(Changes.of([make_job(PLAIN_SPEC)]))
    store.close()


@pytest.mark.parametrize("trouble", ["in use", "newer", "older", "no database", "head", "content"])
def test_what_cannot_be_opened_is_let_go_at_once(trouble: str, tmp_path: Path) -> None:
    """Else who moves it away and tries again is refused by what was left open."""
    Store.open(tmp_path).close()
    path = tmp_path / DATABASE_NAME
    held = Store.open(tmp_path) if trouble == "in use" else None
    if trouble in ("newer", "older"):
        connection = sqlite3.connect(path)
        connection.execute("UPDATE schema_version SET version = ?", (999 if trouble == "newer" else 15,))
        connection.commit()
        connection.close()
    elif trouble != "in use":
        content = path.read_bytes()
        begin = {"no database": 0, "head": 18, "content": 4096}[trouble]
        path.write_bytes(content[:begin] + b"?" * 80 + content[begin + 80 :])
    before = len(os.listdir("/proc/self/fd"))
    first, last = migrations()[0][0], migrations()[-1][0]
    words = {
        "in use": "another controller already uses",
        "newer": f"version 999, this release knows versions up to {last}:",
        "older": f"version 15, this release knows versions from {first} on. Nothing was changed: ",
    }
    kind = {"in use": Conflict, "newer": SchemaTooNew, "older": SchemaTooOld}.get(trouble, DatabaseDamaged)
    with pytest.raises(kind, match=words.get(trouble, "is damaged: ")):
        Store.open(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    if held is not None:
        held.close()


def test_a_step_to_the_next_schema_is_taken_whole_or_not_at_all(connection: sqlite3.Connection, tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    shutil.copytree(MIGRATIONS, steps)
    last = migrations()[-1][0]
    (steps / f"{last + 1:04}_colours.sql").write_text("ALTER TABLE workers ADD COLUMN colour TEXT;")
    (steps / f"{last + 2:04}_twice.sql").write_text("CREATE TABLE more (a);\nCREATE TABLE more (a);")
    with pytest.raises(sqlite3.OperationalError, match="table more already exists"):
        migrate_to(connection, last + 2, steps)
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT max(version) FROM schema_version").fetchone() == (last + 1,)
    assert "colour" in {row[1] for row in connection.execute("PRAGMA table_info(workers)")}
    assert not connection.execute("PRAGMA table_info(more)").fetchall()


def test_a_lean_load_leaves_ended_jobs_to_be_asked_for(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    ended = make_job(FULL_SPEC, state=JobState.SUCCEEDED, finished_at_ms=9)
    live = make_job(PLAIN_SPEC, sequence=2)
    done = make_tasks(FULL_SPEC, state=TaskState.SUCCEEDED, attempt=0, causes=("one", "two"))
    store.commit(Changes.of([ended, live], [*done, *make_tasks(PLAIN_SPEC)]))
    stored = store.load(lean=True)
    assert (stored.jobs, stored.next_sequence) == ((live,), 3)
    assert store.job_of(FULL_SPEC.job_id) == ended
    assert list(stored.tasks) == make_tasks(PLAIN_SPEC)
    assert store.tasks_of(FULL_SPEC.job_id) == done
    assert store.tasks_of(JobId("/ann/none")) == []
    store.close()


def test_records_that_come_and_go_are_as_they_were_last(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    first = Stopping(JobId("/ann/a"), WorkerId("w1"), Resources(1000, device=Device("gpu", "H100", 2)))
    other = Stopping(JobId("/ann/a"), WorkerId("w2"), Resources(), True, (PreemptionReason.SPOT, 25_000))
    gone, left = (RegisteredEndpoint(f"/ann/a/{name}", AttemptId("/ann/a/0:0"), "h:1") for name in "xy")
    store.commit(Changes.of(budgets=[UserBudget("ann", 12.5, PriorityBand.BATCH), UserBudget("bob")]))
    store.commit(Changes.of(workers=[replace(WORKER, connected=True)], endpoints=[gone, left]))
    store.commit(Changes(stopping={AttemptId("/ann/a/0:0"): first, AttemptId("/ann/a/1:3"): other}))
    store.commit(Changes.of(budgets=[UserBudget("bob", 3)]))
    store.commit(Changes(stopping={AttemptId("/ann/a/0:0"): None}, endpoints={gone.endpoint_id: None}))
    store.close()
    stored = loaded(tmp_path)
    assert stored.budgets == (UserBudget("ann", 12.5, PriorityBand.BATCH), UserBudget("bob", 3))
    assert (stored.stopping, stored.endpoints) == ((("/ann/a/1:3", other),), (left,))
    assert stored.workers == (WORKER,), "none is connected after a restart"


def test_equal_specs_share_their_parts_in_memory(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    specs = [replace(FULL_SPEC, job_id=JobId(f"/ann/{name}")) for name in "ab"]
    store.commit(Changes.of([make_job(spec, sequence=number + 1) for number, spec in enumerate(specs)]))
    first, second = (job.spec for job in store.load().jobs)
    store.close()
    assert ([first, second], first.env_vars is second.env_vars) == (specs, True)


def test_a_live_job_that_lacks_a_task_is_damage(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.commit(Changes.of([make_job(FULL_SPEC)], make_tasks(FULL_SPEC)[:2]))
    with pytest.raises(DatabaseDamaged, match="/ann/train/child has 2 of its 3 tasks"):
        store.load(lean=True)
    store.close()
