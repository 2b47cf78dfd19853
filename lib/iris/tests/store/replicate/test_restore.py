import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.entities import Job
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.states import JobState
from iris.rpc.auth import load_or_create_secret
from iris.store.db import DATABASE_NAME
from iris.store.journal import Entry
from iris.store.replicate.layout import Generation
from iris.store.replicate.remote import RemoteState, first_waiting, position, read_waiting
from iris.store.replicate.restore import restore, set_aside
from iris.store.store import Store
from rigging.errors import Conflict, MarinError
from support.rigging.power_loss import LossyDisk

from .conftest import job_ids

SECRET = b"ab" * 32


def job(number: int) -> Job:
    spec = JobSpec(JobId(f"/ann/job-{number}"), CommandEntrypoint(("true",)))
    return replace(Job(spec, JobState.PENDING, 1, sequence=number))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Of a controller that has made five commits, none of which is known to be off the machine."""
    store = Store.open(tmp_path / "origin", generation=1, clock_ms=lambda: 1000)
    for number in range(1, 6):
        store.commit(Changes.of([job(number)]))
    store.close()
    return tmp_path / "origin" / DATABASE_NAME


@pytest.fixture
def remote(database: Path, tmp_path: Path) -> RemoteState:
    """Where that controller's database and secret are kept."""
    remote = RemoteState(str(tmp_path / "remote"))
    remote.put_generation(Generation(1, 0))
    remote.put_snapshot(1, database, tmp_path / "scratch", 1000)
    remote.put_secret("secret", SECRET)
    return remote


def test_a_secret_comes_back_with_the_state_and_is_private(remote: RemoteState, tmp_path: Path) -> None:
    remote.put_secret("notify-secret", b"key")
    assert restore(remote, tmp_path / "new") == 5
    assert (tmp_path / "new/notify-secret").read_bytes() == b"key"
    assert load_or_create_secret(tmp_path / "new/secret") == bytes.fromhex(SECRET.decode())
    assert (tmp_path / "new/secret").stat().st_mode & 0o777 == 0o600
    assert len(job_ids(tmp_path / "new")) == 5


def test_commits_that_are_gone_end_a_restore_with_their_name(remote: RemoteState, tmp_path: Path) -> None:
    """Whoever removed an object from the bucket is to hear which; no state without it is put in its place."""
    remote.put_segment(1, [Entry(6, 1000, "[]"), Entry(7, 1001, "[]")])
    [segment] = (tmp_path / "remote/journal").iterdir()
    listed = remote.listing()
    segment.unlink()
    with pytest.raises(MarinError, match=f"{segment.name} is gone"):
        remote.get_segment(listed.segments[0])


def test_a_secret_that_is_there_stays_when_a_database_is_put_beside_it(remote: RemoteState, tmp_path: Path) -> None:
    """As when only the database was lost: what workers and users were given is of the secret that is there."""
    (tmp_path / "new").mkdir(mode=0o700)
    mine = load_or_create_secret(tmp_path / "new/secret")
    restore(remote, tmp_path / "new")
    assert load_or_create_secret(tmp_path / "new/secret") == mine
    assert len(job_ids(tmp_path / "new")) == 5


def test_an_interrupted_restore_is_begun_anew_and_no_database_overwritten(remote: RemoteState, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new/iris.db.restoring").write_bytes(b"half of a database")
    restore(remote, tmp_path / "new")
    assert len(job_ids(tmp_path / "new")) == 5
    assert not (tmp_path / "new/iris.db.restoring").exists()
    with pytest.raises(Conflict, match=r"iris\.db exists; restore into an empty directory"):
        restore(remote, tmp_path / "new")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LossyDisk]:
    (tmp_path / "disk").mkdir()
    disk = LossyDisk(tmp_path / "disk")
    with disk.recording():
        yield disk
    disk.close()


@pytest.mark.parametrize("names_survive", [False, True])
def test_what_was_restored_is_there_after_a_power_failure(
    names_survive: bool, remote: RemoteState, disk: LossyDisk, tmp_path: Path
) -> None:
    restore(remote, tmp_path / "disk")
    left = disk.after_power_loss(tmp_path / "left", names_survive=names_survive)
    assert load_or_create_secret(left / "secret") == bytes.fromhex(SECRET.decode())
    assert len(job_ids(left)) == 5


def remove_from_journal(database: Path, condition: str) -> None:
    connection = sqlite3.connect(database)
    connection.execute(f"DELETE FROM journal WHERE {condition}")
    connection.commit()
    connection.close()


def numbers(database: Path, after: int, most_bytes: int = 2**20) -> list[int]:
    return [entry.sequence for entry in read_waiting(database, after, most_bytes)]


def test_commits_are_read_in_order_and_about_so_many_bytes_at_once(database: Path) -> None:
    assert numbers(database, 0) == [1, 2, 3, 4, 5]
    assert numbers(database, 2) == [3, 4, 5]
    assert numbers(database, 2, most_bytes=1) == [3], "at least one, or it would never go on"
    two = sum(len(entry.payload) for entry in read_waiting(database, 0, 2**20)[:2])
    assert numbers(database, 0, most_bytes=two) == [1, 2]


@pytest.mark.parametrize(
    ("gone", "after"), [("sequence = 1", 0), ("sequence < 4", 2), ("sequence = 3", 2), ("sequence > 5", 5)]
)
def test_a_gap_in_the_journal_is_never_uploaded(database: Path, gone: str, after: int) -> None:
    """A restore would replay what comes behind it on a state that it does not fit."""
    remove_from_journal(database, gone)
    with pytest.raises(MarinError, match=f"the journal of {database} does not go on from commit {after}"):
        read_waiting(database, after, 2**20)


def test_the_first_commit_that_waits(database: Path) -> None:
    assert first_waiting(database) == 1
    remove_from_journal(database, "sequence < 3")
    assert first_waiting(database) == 3
    remove_from_journal(database, "1")
    assert first_waiting(database) is None


def test_the_position_of_a_database(database: Path, tmp_path: Path) -> None:
    assert position(database) == (1, 5)
    sqlite3.connect(tmp_path / "old.db").close()
    assert position(tmp_path / "old.db") == (0, 0), "of a release without a journal"
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE replication (a)")
    other.close()
    with pytest.raises(MarinError, match=f"cannot use the database {tmp_path / 'other.db'}: no such column"):
        position(tmp_path / "other.db")
    (tmp_path / "no.db").write_bytes(b"no database" * 100)
    with pytest.raises((MarinError, sqlite3.DatabaseError)):
        position(tmp_path / "no.db")


def test_a_database_is_set_aside_with_what_sqlite_keeps_beside_it(tmp_path: Path) -> None:
    for name in ("iris.db", "iris.db-wal", "iris.db-shm", "secret"):
        (tmp_path / name).write_text(name)
    place = set_aside(tmp_path, "1-5")
    assert place == tmp_path / "superseded-1-5"
    assert place.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in place.iterdir()) == ["iris.db", "iris.db-shm", "iris.db-wal"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "superseded-1-5"]


def test_removing_what_is_gone_already_removes_the_rest(remote: RemoteState) -> None:
    names = [item.name for item in remote.listing().snapshots]
    remote.remove(["journal/1-9-9-9", *names])
    assert remote.listing().snapshots == []
