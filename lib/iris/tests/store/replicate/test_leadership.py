import sqlite3
from pathlib import Path
from typing import cast

import pytest

from iris.core.state.changes import Changes
from iris.domain.entities import Job
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.states import JobState
from iris.store.damage import DatabaseDamaged
from iris.store.db import DATABASE_NAME
from iris.store.replicate.layout import Generation
from iris.store.replicate.leadership import acquire, acquire_lease
from iris.store.replicate.remote import RemoteState, position, read_waiting
from iris.store.replicate.rewind import rewind
from iris.store.store import Store
from rigging.distributed_lock import Lease, LeaseLock
from rigging.errors import Conflict


def commit(state_dir: Path, count: int, generation: int = 1) -> None:
    store = Store.open(state_dir, generation=generation, clock_ms=lambda: 1000)
    for number in range(count):
        spec = JobSpec(JobId(f"/ann/j{number}"), CommandEntrypoint(("true",)))
        store.commit(Changes.of([Job(spec, JobState.PENDING, 1, sequence=number)]))
    store.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "remote")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Of a controller whose five commits wait in the journal; the first three are in a remote snapshot, too."""
    commit(tmp_path / "state", 3)
    remote = RemoteState(str(tmp_path / "remote"))
    remote.put_generation(Generation(1, 0))
    remote.put_snapshot(1, tmp_path / "state" / DATABASE_NAME, tmp_path / "scratch", 1000)
    commit(tmp_path / "state", 2)
    return tmp_path / "state"


def forget(state_dir: Path, until: int) -> None:
    """Let the journal begin later, as after commits were told to be off the machine."""
    connection = sqlite3.connect(state_dir / DATABASE_NAME)
    with connection:
        connection.execute("DELETE FROM journal WHERE sequence <= ?", (until,))
    connection.close()


def needs_snapshot(url: str, state_dir: Path) -> bool:
    leadership = acquire(url, state_dir)
    leadership.lock.release()
    return leadership.needs_snapshot


def test_what_leads_up_to_it_needs_no_snapshot_and_a_new_directory_does(url: str, state: Path, tmp_path: Path) -> None:
    commit(tmp_path / "first", 1)
    assert needs_snapshot(str(tmp_path / "new"), tmp_path / "first")
    RemoteState(url).put_segment(1, read_waiting(state / DATABASE_NAME, 3, 2**20))
    forget(state, 5)
    assert not needs_snapshot(url, state)
    assert not list(state.glob("superseded-*"))
    assert not needs_snapshot(url, tmp_path / "other"), "an empty directory gets the remote state"
    assert position(tmp_path / "other" / DATABASE_NAME)[1] == 5


@pytest.mark.parametrize(("journal_begins", "needs"), [(1, False), (4, False), (5, True), (6, True)])
def test_the_journal_or_a_snapshot_closes_the_gap(url: str, state: Path, journal_begins: int, needs: bool) -> None:
    """Without either a restore would carry out later commits on a state that they do not fit."""
    forget(state, journal_begins - 1)
    assert needs_snapshot(url, state) is needs
    assert position(state / DATABASE_NAME)[1] == 5, "the local database is the newer, and stays"


@pytest.mark.parametrize("newer", ["by commits", "by its generation"])
def test_a_remote_state_that_is_newer_takes_the_place_of_the_database(url: str, state: Path, newer: str) -> None:
    remote = RemoteState(url)
    if newer == "by commits":
        remote.put_segment(1, read_waiting(state / DATABASE_NAME, 3, 2**20))
        connection = sqlite3.connect(state / DATABASE_NAME)
        with connection:
            connection.execute("UPDATE replication SET sequence = 4")
        connection.close()
    else:
        remote.put_generation(Generation(2, 3))
    assert not needs_snapshot(url, state)
    aside = "1-4" if newer == "by commits" else "1-5"
    assert [place.name for place in state.glob("superseded-*")] == [f"superseded-{aside}"]
    assert position(state / DATABASE_NAME)[1] == (5 if newer == "by commits" else 3)


def test_each_reign_has_a_generation_of_its_own_that_says_where_it_begins(url: str, state: Path) -> None:
    RemoteState(url).put_generation(Generation(41, 3))
    first = acquire(url, state)
    first.lock.release()
    second = acquire(url, state)
    second.lock.release()
    assert (first.generation, second.generation) == (42, 43)
    assert RemoteState(url).listing().generations[-1] == Generation(43, position(state / DATABASE_NAME)[1])


def test_a_refusal_gives_the_lease_back_at_once(url: str, state: Path, tmp_path: Path) -> None:
    commit(tmp_path / "foreign", 1, generation=0)
    with pytest.raises(Conflict, match="is no part of the history"):
        acquire(url, tmp_path / "foreign", 100.0)
    assert not needs_snapshot(url, state)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / DATABASE_NAME).write_bytes(b"no database" * 1000)
    with pytest.raises(DatabaseDamaged, match="is damaged: it does not start like a database") as refused:
        acquire(url, tmp_path / "damaged", 100.0)
    assert url in str(refused.value), "the command that gets it back"
    assert not needs_snapshot(url, state)


class Held:
    """A lease that another holds; `renews` tells whether that one lives."""

    def __init__(self, renews: bool) -> None:
        self._renews = renews
        self._looks = 0
        self.tries = 0

    def holder(self) -> Lease:
        self._looks += 1
        return Lease("another", float(self._looks if self._renews else 1))

    def try_acquire(self) -> bool:
        self.tries += 1
        return False


@pytest.mark.parametrize(("renews", "waited"), [(True, 0.0), (False, 3.0)])
def test_a_dead_holder_is_waited_for_and_a_living_one_is_not(renews: bool, waited: float) -> None:
    pauses: list[float] = []
    lease = Held(renews)
    with pytest.raises(Conflict, match=r"another controller uses the remote state x: .* by another"):
        acquire_lease(cast(LeaseLock, lease), "x", 2.0, lambda: 1000.0 + sum(pauses), pauses.append)
    assert waited <= sum(pauses) <= waited + 0.5
    assert lease.tries == len(pauses) + 1


def test_going_back_twice_does_not_overwrite_what_was_moved_away(url: str, state: Path) -> None:
    done = rewind(url, state, None)
    assert (done.sequence, done.moved_to) == (3, state / "superseded-1-5")
    commit(state, 2)
    assert position(state / DATABASE_NAME) == (1, 5)
    with pytest.raises(Conflict, match=r"already exists; move it away, then restore again"):
        rewind(url, state, None)
    assert position(state / DATABASE_NAME) == (1, 5), "nothing was moved"


def test_a_damaged_database_is_kept_as_such(url: str, state: Path) -> None:
    (state / DATABASE_NAME).write_bytes(b"no database" * 1000)
    done = rewind(url, state, None)
    assert done.moved_to is not None
    assert done.moved_to.name.startswith("damaged-")
    assert (done.moved_to / DATABASE_NAME).read_bytes().startswith(b"no database")
