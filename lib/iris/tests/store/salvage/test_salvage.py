"""What salvage leaves behind: private files, nothing of its work, and all of it on the disk."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.ids import JobId
from iris.domain.states import JobState, TaskState
from iris.store.damage import DATABASE_NAME
from iris.store.replicate.remote import position
from iris.store.salvage.salvage import Salvaged, damage_of, salvage
from iris.store.store import Store
from rigging.errors import Conflict, MarinError
from support.iris.stored_jobs import PLAIN_SPEC, WORKER, make_job, make_tasks
from support.rigging.power_loss import LossyDisk

from .test_rules import counts, loaded, replace

OLDEST = min((Path(__file__).parents[1] / "databases").glob("*.sql"))


def break_head(state_dir: Path) -> None:
    """The tables are all there; nothing tells where."""
    path = state_dir / DATABASE_NAME
    content = path.read_bytes()
    path.write_bytes(bytes(100) + content[100:])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Of a controller whose state is kept elsewhere, too; the head of its database is gone."""
    state_dir = tmp_path / "disk" / "state"
    store = Store.open(state_dir, generation=3, clock_ms=lambda: 1000)
    store.commit(Changes.of(workers=[WORKER]))
    for number, ended in enumerate((True, False), 1):
        spec = replace(PLAIN_SPEC, job_id=JobId(f"/ann/j{number}"))
        task_state = TaskState.SUCCEEDED if ended else TaskState.PENDING
        job_state = JobState.SUCCEEDED if ended else JobState.PENDING
        job = make_job(spec, number, state=job_state, task_counts=counts(task_state, 1))
        store.commit(Changes.of([job], make_tasks(spec, state=task_state)))
    store.close()
    break_head(state_dir)
    return state_dir


def jobs(state_dir: Path) -> list[tuple[str, JobState]]:
    return [(job.job_id, job.state) for job in loaded(state_dir).jobs]


BOTH = [("/ann/j1", JobState.SUCCEEDED), ("/ann/j2", JobState.PENDING)]


def test_all_of_it_is_read_again_and_what_was_there_is_beside_it(state: Path) -> None:
    damaged = (state / DATABASE_NAME).read_bytes()
    done = salvage(state, 0.0)
    place = state / "damaged-19700101T000000Z"
    rows = {"jobs": 2, "tasks": 2, "workers": 1, "budgets": 0, "endpoints": 0}
    assert done == Salvaged("its beginning is not that of a database", rows, (), place, is_whole=True)
    assert (place / DATABASE_NAME).read_bytes() == damaged
    assert place.stat().st_mode & 0o777 == 0o700
    assert (state / DATABASE_NAME).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in state.iterdir()) == [place.name, DATABASE_NAME, "iris.db.lock"]
    assert position(state / DATABASE_NAME)[0] == 0, "its history and that of the copy elsewhere part here"
    assert damage_of(state) == ""
    assert jobs(state) == BOTH


@pytest.mark.parametrize("names_survive", [False, True])
def test_it_is_there_after_a_power_failure(state: Path, tmp_path: Path, names_survive: bool) -> None:
    disk = LossyDisk(tmp_path / "disk")
    with disk.recording():
        salvage(state)
    left = disk.after_power_loss(tmp_path / "left", names_survive=names_survive)
    disk.close()
    assert jobs(left / "state") == BOTH


def test_what_cannot_be_read_at_all_is_left_as_it_is_and_nobody_is_kept_out(state: Path) -> None:
    (state / DATABASE_NAME).write_bytes(b"\1" * 8192)
    with pytest.raises(MarinError, match=r"nothing can be read of .*; it is left as it is"):
        salvage(state)
    assert (state / DATABASE_NAME).read_bytes() == b"\1" * 8192
    assert sorted(path.name for path in state.iterdir()) == [DATABASE_NAME, "iris.db.lock"]
    assert damage_of(state) == "its beginning is not that of a database"


def test_it_is_not_done_beside_a_controller(state: Path, tmp_path: Path) -> None:
    used = Store.open(tmp_path / "used")
    for look in (salvage, damage_of):
        with pytest.raises(Conflict, match="another controller already uses"):
            look(tmp_path / "used")
    used.close()
    assert damage_of(tmp_path / "used") == ""
    with pytest.raises(Conflict, match="nothing is wrong with"):
        salvage(tmp_path / "used")
    assert damage_of(tmp_path / "empty") == "", "there is nothing that could be damaged"


def test_a_database_of_an_older_release_has_all_the_tables_it_had(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    connection.executescript(OLDEST.read_text())
    connection.close()
    (tmp_path / "whole").mkdir()
    shutil.copy(tmp_path / DATABASE_NAME, tmp_path / "whole")
    break_head(tmp_path)
    assert salvage(tmp_path).notes == ()
    assert jobs(tmp_path) == jobs(tmp_path / "whole") != []
    assert loaded(tmp_path) == loaded(tmp_path / "whole"), "what later releases keep elsewhere was moved there"
