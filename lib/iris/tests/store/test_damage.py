"""Damaged databases: never taken for whole or for new ones, and made again from what can be read."""

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.entities import Job, Task
from iris.domain.ids import JobId
from iris.domain.states import JobState, TaskState
from iris.store.damage import DATABASE_NAME, DatabaseDamaged
from iris.store.db import connect, lock
from iris.store.salvage.salvage import damage_of, salvage
from iris.store.store import Store, Stored
from iris.testing.stored_jobs import FULL_SPEC, make_job, make_tasks
from rigging.errors import Conflict, MarinError

DB, WAL = DATABASE_NAME, DATABASE_NAME + "-wal"
JOBS = 300


def fill(store: Store, first: int, last: int) -> None:
    chance = random.Random(first)
    for number in range(first, last + 1):
        # Damage inside of free text cannot be told, so there is none.
        spec = replace(
            FULL_SPEC,
            job_id=JobId(f"/ann/j{number:03}"),
            env_vars={"A": "x" * chance.randrange(200)},
            replicas=2,
            description="",
        )
        ended = number % 2 == 0
        counts = tuple(2 if state is (TaskState.SUCCEEDED if ended else TaskState.PENDING) else 0 for state in states())
        job = make_job(spec, number, state=JobState.SUCCEEDED if ended else JobState.PENDING, task_counts=counts)
        tasks = make_tasks(spec, state=TaskState.SUCCEEDED if ended else TaskState.PENDING)
        store.commit(Changes(jobs={spec.job_id: job}, tasks={task.task_id: task for task in tasks}))


def states() -> Iterator[TaskState | None]:
    known = {int(state): state for state in TaskState}
    return (known.get(number) for number in range(max(known) + 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Stored]:
    """A directory as a killed controller leaves it, one that was closed in order, and what is in both."""
    root = tmp_path_factory.mktemp("made")
    store = Store.open(root / "open")
    fill(store, 1, JOBS - 60)
    with contextlib.closing(sqlite3.connect(root / "open" / DB)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fill(store, JOBS - 59, JOBS)  # so few that all of the write-ahead log counts, wherever it is damaged
    whole = store.load()
    shutil.copytree(root / "open", root / "killed")
    store.close()
    return root / "killed", root / "open", whole


def cut(at: float) -> Callable[[bytearray], bytes]:
    return lambda data: bytes(data[: round(len(data) * at)])


def blank(at: float, size: int) -> Callable[[bytearray], bytes]:
    def damage(data: bytearray) -> bytes:
        start = round(len(data) * at) // 4096 * 4096
        data[start : start + size] = bytes(len(data[start : start + size]))
        return bytes(data)

    return damage


def scribble(at: float, size: int) -> Callable[[bytearray], bytes]:
    def damage(data: bytearray) -> bytes:
        start = round(len(data) * at)
        data[start : start + size] = random.Random(7).randbytes(len(data[start : start + size]))
        return bytes(data)

    return damage


def other_byte(after: bytes) -> Callable[[bytearray], bytes]:
    def damage(data: bytearray) -> bytes:
        data[data.index(after) + len(after)] ^= 0xFF
        return bytes(data)

    return damage


CASES = [
    ("closed", DB, cut(0)),
    ("closed", DB, cut(0.001)),
    ("closed", DB, cut(0.5)),
    ("closed", DB, cut(0.9)),
    ("closed", DB, blank(0, 100)),
    ("closed", DB, blank(0, 4096)),
    ("closed", DB, blank(0.62, 8192)),
    ("closed", DB, blank(0.9, 4096)),
    ("closed", DB, scribble(0.7, 5000)),
    ("closed", DB, other_byte(b'/ann/j200{"entrypoint')),
    ("killed", DB, cut(0)),
    ("killed", DB, cut(0.4)),
    ("killed", WAL, cut(0)),
    ("killed", WAL, cut(0.5)),
    ("killed", WAL, blank(0, 4096)),
    ("killed", WAL, blank(0.5, 4096)),
    ("killed", WAL, scribble(0.3, 1)),
]


def damaged(
    made: tuple[Path, Path, Stored], place: Path, which: str, name: str, how: Callable[[bytearray], bytes]
) -> None:
    shutil.copytree(made[0] if which == "killed" else made[1], place)
    (place / name).write_bytes(how(bytearray((place / name).read_bytes())))


def loaded(place: Path) -> Stored:
    store = Store.open(place)
    try:
        store.load(lean=True)
        return store.load()
    finally:
        store.close()


@pytest.mark.parametrize(("which", "name", "how"), CASES)
def test_damage_is_told_with_the_command_that_helps(
    made: tuple[Path, Path, Stored], tmp_path: Path, which: str, name: str, how: Callable[[bytearray], bytes]
) -> None:
    place = tmp_path / "state"
    damaged(made, place, which, name, how)
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.name in (DB, WAL)}
    with pytest.raises(DatabaseDamaged, match="is damaged: ") as told:
        loaded(place)
    assert f"`iris cluster controller salvage --state-dir {place}`" in str(told.value)
    assert "xxxx" not in str(told.value), "no variable of a job is shown"
    if which == "closed":
        assert {name: (place / name).read_bytes() for name in before} == before


@pytest.mark.parametrize(("which", "name", "how"), CASES)
def test_what_can_be_read_is_salvaged_and_nothing_else(
    made: tuple[Path, Path, Stored], tmp_path: Path, which: str, name: str, how: Callable[[bytearray], bytes]
) -> None:
    place = tmp_path / "state"
    damaged(made, place, which, name, how)
    known = {job.job_id: job for job in made[2].jobs}
    if which == "closed" and (place / name).stat().st_size < 4096:
        with pytest.raises(MarinError, match="nothing can be read"):
            salvage(place)
        return
    done = salvage(place)
    found = loaded(place)
    assert (done.moved_to / name).exists()
    assert damage_of(place) == ""
    for job in found.jobs:
        if known[job.job_id].state.is_terminal:
            # Its variables, which lie apart, are of no more use, and may be lost.
            job = replace(job, spec=replace(job.spec, env_vars=known[job.job_id].spec.env_vars))
        if job != known[job.job_id]:
            assert job.state is JobState.KILLED
            assert "database was damaged" in job.error
            assert known[job.job_id].state is JobState.PENDING
    tasks = {task.task_id: task for task in made[2].tasks}
    assert all(task == tasks[task.task_id] or task.state is TaskState.KILLED for task in found.tasks)
    assert len(found.jobs) == done.rows["jobs"]


def test_a_hole_in_the_middle_leaves_most(made: tuple[Path, Path, Stored], tmp_path: Path) -> None:
    place = tmp_path / "state"
    damaged(made, place, "closed", DB, blank(0.6, 4096))
    salvage(place)
    assert len(loaded(place).jobs) > 0.7 * JOBS


def test_a_fresh_directory_is_no_damage_but_one_whose_database_is_gone_is(tmp_path: Path) -> None:
    assert loaded(tmp_path / "fresh").jobs == ()
    (tmp_path / "used" / "logs" / "ann" / "a").mkdir(parents=True)
    assert loaded(tmp_path / "used").jobs == ()
    (tmp_path / "used" / DB).unlink()
    (tmp_path / "used" / "logs" / "ann" / "a" / "~0.0.log").write_bytes(b"x")
    with pytest.raises(DatabaseDamaged, match="the file is gone, but the logs of its jobs are in"):
        loaded(tmp_path / "used")


def test_a_start_that_was_cut_off_while_it_made_the_database_is_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / (DB + ".new")).write_bytes(b"half")
    assert loaded(tmp_path).jobs == ()


def test_a_commit_that_a_crash_cut_off_is_no_damage(made: tuple[Path, Path, Stored], tmp_path: Path) -> None:
    place = tmp_path / "state"
    shutil.copytree(made[0], place)
    (place / (DB + "-shm")).unlink()
    wal = place / WAL
    data = wal.read_bytes()
    # A frame that was being written: its salt is that of the others, its content is not.
    wal.write_bytes(data[: 32 + 900 * 4120] + data[32 + 900 * 4120 : 32 + 900 * 4120 + 2000])
    assert len(loaded(place).jobs) > 0


def test_what_is_whole_is_not_salvaged(made: tuple[Path, Path, Stored], tmp_path: Path) -> None:
    shutil.copytree(made[0], tmp_path / "state")
    with pytest.raises(Conflict, match="nothing is wrong with"):
        salvage(tmp_path / "state")
    assert loaded(tmp_path / "state") == made[2]


def test_a_live_job_of_which_something_is_missing_is_ended(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    parent = replace(FULL_SPEC, job_id=JobId("/ann/p"), replicas=1)
    child = replace(FULL_SPEC, job_id=JobId("/ann/p/c"), replicas=1)
    other = replace(FULL_SPEC, job_id=JobId("/ann/other"), replicas=1)
    for number, spec in enumerate((parent, child, other)):
        (task,) = make_tasks(spec)
        pending = tuple(int(state is TaskState.PENDING) for state in states())
        store.commit(
            Changes(jobs={spec.job_id: make_job(spec, number + 1, task_counts=pending)}, tasks={task.task_id: task})
        )
    store.close()
    connection = sqlite3.connect(tmp_path / DB)
    connection.execute("DELETE FROM tasks WHERE job_id = '/ann/p'")
    connection.commit()
    connection.close()
    with pytest.raises(DatabaseDamaged, match="/ann/p has 0 of its 1 tasks"):
        loaded(tmp_path)
    done = salvage(tmp_path)
    assert done.notes == ("2 live jobs are ended, as not all of them can be read: /ann/p, /ann/p/c",)
    found: dict[str, Job] = {job.job_id: job for job in loaded(tmp_path).jobs}
    assert {name: job.state.word for name, job in found.items()} == {
        "/ann/p": "killed", "/ann/p/c": "killed", "/ann/other": "pending",
    }  # fmt: skip
    ended: list[Task] = [task for task in loaded(tmp_path).tasks if task.job_id == "/ann/p"]
    assert [task.state for task in ended] == [TaskState.KILLED]


def test_damage_that_a_commit_meets_is_told_like_that_of_a_start(
    made: tuple[Path, Path, Stored], tmp_path: Path
) -> None:
    place = tmp_path / "state"
    shutil.copytree(made[1], place)
    connection = connect(place)
    connection.execute("PRAGMA cache_size=1")
    connection.execute("PRAGMA shrink_memory")
    store = Store(connection, lock(place), place / DB)
    data = bytearray((place / DB).read_bytes())
    data[4096:] = bytes(len(data) - 4096)  # under its feet, and under the pages that it has not read yet
    (place / DB).write_bytes(data)
    jobs = [
        make_job(replace(FULL_SPEC, job_id=JobId(f"/ann/k{number}"), replicas=1), JOBS + 1 + number)
        for number in range(JOBS)
    ]
    with pytest.raises(DatabaseDamaged, match="iris cluster controller salvage"):
        store.commit(Changes(jobs={job.job_id: job for job in jobs}))
    with pytest.raises(DatabaseDamaged, match="the tasks of /ann/j002 cannot be read"):
        store.tasks_of(JobId("/ann/j002"))
    store.close()
