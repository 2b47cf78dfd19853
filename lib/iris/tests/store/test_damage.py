"""Damaged databases: never taken for whole or for new ones."""

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.ids import JobId
from iris.domain.states import JobState, TaskState
from iris.store.damage import DATABASE_NAME, DatabaseDamaged
from iris.store.db import connect, lock
from iris.store.records import Stored
from iris.store.store import Store
from support.iris.stored_jobs import FULL_SPEC, make_job, make_tasks

DB, WAL = DATABASE_NAME, DATABASE_NAME + "-wal"
JOBS = 300


def counts(state: TaskState) -> tuple[int, ...]:
    return tuple(2 * (number == state) for number in range(max(TaskState) + 1))


def fill(store: Store, first: int, last: int) -> None:
    chance = random.Random(first)
    for number in range(first, last + 1):
        # Damage inside of free text cannot be told, so there is none.
        name, text = JobId(f"/ann/j{number:03}"), "x" * chance.randrange(200)
        spec = replace(FULL_SPEC, job_id=name, env_vars={"A": text}, replicas=2, description="")
        ended = number % 2 == 0
        state = TaskState.SUCCEEDED if ended else TaskState.PENDING
        job = make_job(spec, number, state=JobState.SUCCEEDED if ended else JobState.PENDING, task_counts=counts(state))
        store.commit(Changes.of([job], make_tasks(spec, state=state)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A directory as a killed controller leaves it, and one that was closed in order."""
    root = tmp_path_factory.mktemp("made")
    store = Store.open(root / "open")
    fill(store, 1, JOBS - 60)
    with contextlib.closing(sqlite3.connect(root / "open" / DB)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fill(store, JOBS - 59, JOBS)  # so few that all of the write-ahead log counts, wherever it is damaged
    shutil.copytree(root / "open", root / "killed")
    store.close()
    return root / "killed", root / "open"


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
    ("closed", DB, blank(0.6, 4096)),
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
QUICK = (CASES[6], CASES[15])
"""Damage of each file that the fast tests look at, too."""


def loaded(place: Path) -> Stored:
    with contextlib.closing(Store.open(place)) as store:
        store.load(lean=True)
        return store.load()


def damaged(made: tuple[Path, Path], place: Path, which: str, name: str, how: Callable[[bytearray], bytes]) -> None:
    shutil.copytree(made[0] if which == "killed" else made[1], place)
    (place / name).write_bytes(how(bytearray((place / name).read_bytes())))


@pytest.mark.parametrize(
    ("which", "name", "how"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.process) for case in CASES],
)
def test_damage_is_told_with_the_command_that_helps(
    made: tuple[Path, Path], tmp_path: Path, which: str, name: str, how: Callable[[bytearray], bytes]
) -> None:
    place = tmp_path / "state"
    damaged(made, place, which, name, how)
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.name in (DB, WAL)}
    with pytest.raises(DatabaseDamaged, match="is damaged: ") as told:
        loaded(place)
    assert f"`iris cluster controller restore --state-dir {place} " in str(told.value)
    assert "xxxx" not in str(told.value), "no variable of a job is shown"
    if which == "closed":
        assert {name: (place / name).read_bytes() for name in before} == before


def test_a_start_that_was_cut_off_while_it_made_the_database_is_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / (DB + ".new")).write_bytes(b"half")
    assert loaded(tmp_path).jobs == ()


def test_damage_that_a_commit_meets_is_told_as_at_a_start(made: tuple[Path, Path], tmp_path: Path) -> None:
    place = tmp_path / "state"
    shutil.copytree(made[1], place)
    connection = connect(place)
    connection.execute("PRAGMA cache_size=1")
    connection.execute("PRAGMA shrink_memory")
    store = Store(connection, lock(place), place / DB)
    data = bytearray((place / DB).read_bytes())
    data[4096:] = bytes(len(data) - 4096)  # under its feet, and under the pages that it has not read yet
    (place / DB).write_bytes(data)
    specs = [replace(FULL_SPEC, job_id=JobId(f"/ann/k{number}"), replicas=1) for number in range(JOBS)]
    jobs = [make_job(spec, JOBS + 1 + number) for number, spec in enumerate(specs)]
    with pytest.raises(DatabaseDamaged, match="iris cluster controller restore"):
        store.commit(Changes(jobs={job.job_id: job for job in jobs}))
    with pytest.raises(DatabaseDamaged, match="the tasks of /ann/j002 cannot be read"):
        store.tasks_of(JobId("/ann/j002"))
    store.close()
