"""A damaged write-ahead log: one wrong word is put right, pages behind the damage are read, what is lost is told."""

import random
import shutil
import sqlite3
import struct
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.ids import JobId
from iris.domain.states import JobState, TaskState
from iris.store.damage import DATABASE_NAME
from iris.store.salvage import wal_recovery
from iris.store.salvage.rules import MAY_HAVE_ENDED
from iris.store.salvage.salvage import Salvaged, salvage
from iris.store.salvage.wal_recovery import apply_pages, recover_pages
from iris.store.store import Store, Stored
from support.iris.stored_jobs import PLAIN_SPEC, WORKER, make_job, make_tasks

from .test_rules import counts, loaded, replace

WAL = DATABASE_NAME + "-wal"
FRAME = 24 + 4096


def commit(store: Store, name: str, sequence: int, state: TaskState) -> None:
    spec = replace(PLAIN_SPEC, job_id=JobId(name))
    job_state = JobState.SUCCEEDED if state is TaskState.SUCCEEDED else JobState.RUNNING
    job = make_job(spec, sequence, state=job_state, task_counts=counts(state, spec.replicas))
    store.commit(Changes.of([job], make_tasks(spec, state=state, attempt=0, worker_id=WORKER.worker_id)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stored]:
    """As a killed controller leaves it: `once` ran and ended, `live` runs."""
    root = tmp_path_factory.mktemp("made")
    store = Store.open(root / "open")
    store.commit(Changes.of(workers=[WORKER]))
    commit(store, "/ann/once", 1, TaskState.RUNNING)
    commit(store, "/ann/once", 1, TaskState.SUCCEEDED)
    commit(store, "/ann/live", 2, TaskState.RUNNING)
    whole = store.load()
    shutil.copytree(root / "open", root / "killed")
    store.close()
    return root / "killed", whole


def damaged(made: tuple[Path, Stored], place: Path, *flips: int, zeros: tuple[int, int] = (0, 0)) -> Path:
    shutil.copytree(made[0], place)
    data = bytearray((place / WAL).read_bytes())
    for at in flips:
        data[at] ^= 0x41
    data[zeros[0] : zeros[1]] = bytes(zeros[1] - zeros[0])
    (place / WAL).write_bytes(data)
    return place


def frames_of(place: Path) -> int:
    return ((place / WAL).stat().st_size - 32) // FRAME


def content(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_of_a_log_that_is_whole_the_same_comes_as_from_sqlite(made: tuple[Path, Stored], tmp_path: Path) -> None:
    found = recover_pages(made[0] / DATABASE_NAME)
    assert (found.repaired, found.lost) == (0, 0)
    shutil.copyfile(made[0] / DATABASE_NAME, tmp_path / "copy.db")
    apply_pages(tmp_path / "copy.db", found)
    shutil.copytree(made[0], tmp_path / "state")
    assert content(tmp_path / "copy.db") == content(tmp_path / "state" / DATABASE_NAME)
    place = damaged(made, tmp_path / "one frame less", zeros=(32 + FRAME, 32 + 2 * FRAME))
    assert recover_pages(place / DATABASE_NAME).lost == 1
    place = damaged(made, tmp_path / "no index")
    (place / f"{DATABASE_NAME}-shm").unlink()
    assert recover_pages(place / DATABASE_NAME) == found


@pytest.mark.process
def test_one_flipped_byte_anywhere_loses_nothing(made: tuple[Path, Stored], tmp_path: Path) -> None:
    chance = random.Random(7)
    frames = frames_of(made[0])
    whole = recover_pages(made[0] / DATABASE_NAME)
    places = [32 + frame * FRAME + at for frame in range(frames - 1) for at in (3, 5, 9, 17, 22)]
    places += [32 + chance.randrange(frames) * FRAME + 24 + 4 * chance.randrange(1023) + byte for byte in (0, 1, 2) * 6]
    places += [1, 9, 14, 25]  # the log's own head
    for number, at in enumerate(places):
        place = damaged(made, tmp_path / str(number), at)
        found = recover_pages(place / DATABASE_NAME)
        assert (found.pages, found.size, found.lost) == (whole.pages, whole.size, 0), at
        shutil.rmtree(place)


def test_a_flip_of_several_possible_places_is_never_guessed(made: tuple[Path, Stored], tmp_path: Path) -> None:
    chance = random.Random(8)
    whole = recover_pages(made[0] / DATABASE_NAME)
    repaired = 0
    for number in range(24):
        at = 32 + chance.randrange(frames_of(made[0])) * FRAME + 24 + 4 * chance.randrange(1023) + 3
        place = damaged(made, tmp_path / str(number), at)
        found = recover_pages(place / DATABASE_NAME)
        differing = [page for page, image in found.pages.items() if image != whole.pages[page]]
        assert len(differing) + len(whole.pages) - len(found.pages) == found.lost, at
        repaired += not found.lost
        shutil.rmtree(place)
    assert repaired > 12


def frame(page: int, data: bytes) -> bytes:
    """The first eight bytes of a frame's head, and its page."""
    return struct.pack(">II", page, 0) + data


@pytest.mark.parametrize(
    ("page", "found", "damaged_at", "was_so"),
    [
        (1, b"aaaaBBBB", 8, True),
        (1, b"xxxxBBBB", 8, False),
        (2, b"ccccDDDD", 15, True),
        (2, b"ccccdddd", 15, False),
        (3, b"from the log", 8, True),  # a later image than the database's
        (3, b"eeeeFFFF", 8, False),
        (2, b"ccccxxxx", 3, True),  # the frame's head: no page says what that was
    ],
)
def test_a_repair_gives_back_what_the_page_was(page: int, found: bytes, damaged_at: int, was_so: bool) -> None:
    base, former = b"aaaaBBBBccccDDDDeeeeFFFF", {3: b"from the log"}
    repaired = frame(page, found)
    damaged = bytearray(repaired)
    damaged[damaged_at] ^= 1
    assert wal_recovery._was_so(repaired, bytes(damaged), former, base, 8) is was_so


@pytest.mark.parametrize("part", [0.3, 0.62])
def test_one_flipped_byte_ends_and_repeats_nothing(made: tuple[Path, Stored], tmp_path: Path, part: float) -> None:
    at = round((made[0] / WAL).stat().st_size * part)
    place = damaged(made, tmp_path / "state", at)
    done = salvage(place)
    assert (done.notes, done.is_whole) == ((), True)
    assert loaded(place) == made[1]


def salvaged(place: Path) -> tuple[Salvaged, Stored]:
    done = salvage(place, 5.0)
    return done, loaded(place)


def last_page(made: tuple[Path, Stored]) -> tuple[int, int]:
    """Where the last frame's image is: no later one has its page."""
    begin = 32 + (frames_of(made[0]) - 1) * FRAME
    return begin + 24, begin + FRAME


def test_where_pages_are_lost_live_jobs_are_ended_and_named(made: tuple[Path, Stored], tmp_path: Path) -> None:
    place = damaged(made, tmp_path / "state", zeros=last_page(made))
    done, found = salvaged(place)
    assert not done.is_whole
    assert "pages of its newest commits cannot be read: what is here may be older" in done.notes[0]
    live = [job for job in found.jobs if not job.state.is_terminal]
    assert live == [], "none of them may run a second time"
    ended = {job.job_id: job.error for job in found.jobs}
    assert ended["/ann/once"] == ""


def test_what_may_still_run_holds_its_place_until_it_has_ended(made: tuple[Path, Stored], tmp_path: Path) -> None:
    place = damaged(made, tmp_path / "state")
    index = place / (DATABASE_NAME + "-shm")
    data = bytearray(index.read_bytes())
    frames = int.from_bytes(data[16:20], "little")
    for begin in (0, 48):  # the index says that there was one page more
        data[begin + 16 : begin + 20] = (frames + 1).to_bytes(4, "little")
    index.write_bytes(data)
    done, found = salvaged(place)
    assert "1 pages of its newest commits cannot be read" in done.notes[0]
    assert "1 live jobs are ended, as they may have ended already, and would run again: /ann/live" in done.notes
    jobs = {job.job_id: job for job in found.jobs}
    assert jobs[JobId("/ann/live")].error == MAY_HAVE_ENDED
    assert [name for name, _ in found.stopping] == [
        f"/ann/live/{index}:0" for index in range(jobs[JobId("/ann/live")].spec.replicas)
    ]


def test_jobs_of_which_only_logs_are_left_are_named_and_numbered_on(made: tuple[Path, Stored], tmp_path: Path) -> None:
    place = damaged(made, tmp_path / "state", zeros=last_page(made))
    for name in ("ann/lost/~0.0.log", "ann/lost/~0.1.65536.log", "ann/once/~0.0.log", "ann/live/~0.3.log"):
        (place / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "logs" / name).write_text(name)
    done, found = salvaged(place)
    assert any("jobs are lost, of which only logs are left" in note and "/ann/lost" in note for note in done.notes)
    assert (done.moved_to / "logs/ann/lost/~0.1.65536.log").read_text() == "ann/lost/~0.1.65536.log"
    assert not list((place / "logs/ann/lost").iterdir())
    assert (place / "logs/ann/once/~0.0.log").exists()
    if "/ann/live" in {job.job_id for job in found.jobs}:
        assert [task.attempt for task in found.tasks if task.task_id == "/ann/live/0"] == [3]
    place = damaged(made, tmp_path / "repaired", 32 + 24 + 100)
    (place / "logs/ann/live").mkdir(parents=True)
    (place / "logs/ann/live/~0.2.log").touch()
    done, found = salvaged(place)
    assert done.notes == ("1 live jobs are ended, as they may have ended already, and would run again: /ann/live",)
    assert [task.attempt for task in found.tasks if task.task_id == "/ann/live/0"] == [2]
