"""What is committed here is there, and comes back equal; two controllers never write one history."""

import asyncio
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris.core.state.changes import Changes
from iris.domain.entities import Job, Task, Worker
from iris.domain.ids import JobId, WorkerId, task_id
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import JobState, TaskState
from iris.store.replicate.leadership import acquire
from iris.store.replicate.remote import RemoteState
from iris.store.replicate.replicator import Pace, Replicator
from iris.store.replicate.restore import restore
from iris.store.replicate.rewind import rewind
from iris.store.store import Store
from rigging.errors import Conflict, NotFound
from rigging.testing import eventually

PACE = Pace(gather_s=0.01, lease_timeout_s=1.0)


def job(number: int, **fields: Any) -> Job:
    spec = JobSpec(JobId(f"/ann/job-{number}"), CommandEntrypoint(("true",)), env_vars={"N": str(number)})
    return replace(Job(spec, JobState.PENDING, 1, sequence=number), **fields)


def task(number: int, **fields: Any) -> Task:
    job_id = JobId(f"/ann/job-{number}")
    return replace(Task(task_id(job_id, 0), job_id, 0), **fields)


class ControllerRun:
    """One controller's hold of a state directory; its commits and snapshots are of `now_ms`."""

    def __init__(self, url: str, state_dir: Path, pace: Pace = PACE, now_ms: int = 1_000_000) -> None:
        self.deposed: list[str] = []
        self.now_ms = now_ms
        self.leadership = acquire(url, state_dir, pace.lease_timeout_s)
        self.store = Store.open(state_dir, self.leadership.generation, lambda: self.now_ms)
        assert self.store.journal is not None
        self.replicator = Replicator(self.leadership, state_dir, self.store.journal, pace, self.deposed.append)
        self.replicator.start()

    def end(self) -> None:
        self.replicator.close()
        self.store.close()


def with_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "remote") if request.param == "local" else f"memory://state-{uuid.uuid4().hex}"


def test_what_was_awaited_comes_back_equal_after_the_loss_of_the_disk(url: str, tmp_path: Path) -> None:
    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        worker = Worker(WorkerId("w1"), "one", Resources(1, 2, 3), {"zone": "a"})
        life.store.commit(Changes.of([job(1)], [task(1)], [worker]))
        life.store.commit(Changes.of([job(2)], [task(2)]))
        life.store.commit(Changes.of(tasks=[task(1, state=TaskState.ASSIGNED, attempt=0, worker_id=WorkerId("w1"))]))
        life.store.commit(Changes.of([job(1, sequence=3)], [task(1)]))  # the name is used again
        life.store.commit(Changes(forgotten_jobs={JobId("/ann/job-2")}))
        await life.replicator.wait()
        expected = life.store.load()
        life.end()
        shutil.rmtree(tmp_path / "a")
        again = ControllerRun(url, tmp_path / "b")
        assert again.store.load() == expected
        assert again.leadership.generation > life.leadership.generation
        # And it goes on from there.
        again.store.commit(Changes.of([job(9)], [task(9)]))
        await again.replicator.wait()
        expected = again.store.load()
        again.end()
        restore(RemoteState(url), tmp_path / "c")
        store = Store.open(tmp_path / "c")
        assert store.load() == expected
        store.close()

    with_loop(test)


def test_commits_that_a_crash_kept_from_the_remote_state_go_there_after_the_restart(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        life.store.commit(Changes.of([job(1)], [task(1)]))
        await life.replicator.wait()
        life.store.journal.on_commit = None  # the process is killed before the next upload
        life.store.commit(Changes.of([job(2)], [task(2)]))
        life.end()
        restarted = ControllerRun(url, tmp_path / "a")
        restarted.store.commit(Changes.of([job(3)], [task(3)]))
        await restarted.replicator.wait()
        restarted.end()
        restore(RemoteState(url), tmp_path / "b")
        store = Store.open(tmp_path / "b")
        assert [item.job_id for item in store.load().jobs] == ["/ann/job-1", "/ann/job-2", "/ann/job-3"]
        store.close()

    with_loop(test)


def test_a_second_controller_is_refused_while_the_first_renews_its_lease(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        with pytest.raises(Conflict, match=f"another controller uses the remote state {url}"):
            await asyncio.to_thread(acquire, url, tmp_path / "b", PACE.lease_timeout_s)
        assert not (tmp_path / "b" / "iris.db").exists()
        life.end()
        ControllerRun(url, tmp_path / "b").end()

    with_loop(test)


def test_a_deposed_controller_is_told_and_what_it_still_writes_is_ignored(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        old = ControllerRun(url, tmp_path / "a")
        old.store.commit(Changes.of([job(1)], [task(1)]))
        await old.replicator.wait()
        # Its lease vanishes, as when it was frozen for long and another took over.
        os.unlink(tmp_path / "remote" / "lease.lock")
        new = ControllerRun(url, tmp_path / "b")
        old.store.commit(Changes.of([job(2)], [task(2)]))
        await old.replicator.wait()
        new.store.commit(Changes.of([job(3)], [task(3)]))
        await new.replicator.wait()
        await asyncio.to_thread(eventually, lambda: old.deposed, "the old controller is told")
        assert "lease" in old.deposed[0]
        old.end()
        new.end()
        restore(RemoteState(url), tmp_path / "c")
        store = Store.open(tmp_path / "c")
        assert [item.job_id for item in store.load().jobs] == ["/ann/job-1", "/ann/job-3"]
        store.close()
        # Its machine comes back: its own database is not the truth any more, and is kept aside.
        back = ControllerRun(url, tmp_path / "a")
        assert [item.job_id for item in back.store.load().jobs] == ["/ann/job-1", "/ann/job-3"]
        assert len(list((tmp_path / "a").glob("superseded-*/iris.db"))) == 1
        back.end()

    with_loop(test)


def test_a_moment_can_be_restored(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a", now_ms=999)
        for number in (1, 2, 3):
            life.now_ms = number * 1000
            life.store.commit(Changes.of([job(number)], [task(number)]))
            await life.replicator.wait()
            if number == 2:
                life.replicator.snapshot()
        life.end()
        for count, at_ms in ((0, 999), (1, 1000), (1, 1999), (2, 2000), (3, 3000)):
            restore(RemoteState(url), tmp_path / f"at-{at_ms}", at_ms)
            store = Store.open(tmp_path / f"at-{at_ms}")
            assert len(store.load().jobs) == count
            store.close()

    with_loop(test)


def test_storage_that_fails_for_a_while_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "remote")
    original, failures = RemoteState.put_segment, []

    def put_segment(self: RemoteState, generation: int, entries: Any) -> None:
        if len(failures) < 3:
            failures.append(len(entries))
            raise OSError("503 slow down")
        original(self, generation, entries)

    monkeypatch.setattr(RemoteState, "put_segment", put_segment)

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        for number in (1, 2, 3):
            life.store.commit(Changes.of([job(number)], [task(number)]))
        await life.replicator.wait()
        life.end()
        assert len(failures) == 3
        restore(RemoteState(url), tmp_path / "b")
        store = Store.open(tmp_path / "b")
        assert len(store.load().jobs) == 3
        store.close()

    with_loop(test)


def test_a_database_with_another_history_is_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        ControllerRun(url, tmp_path / "a").end()
        store = Store.open(tmp_path / "b")
        store.commit(Changes.of([job(7)], [task(7)]))
        store.close()
        with pytest.raises(Conflict, match="is no part of the history"):
            await asyncio.to_thread(acquire, url, tmp_path / "b", PACE.lease_timeout_s)
        ControllerRun(url, tmp_path / "a").end()  # the refusal gave the lease back

    with_loop(test)


def test_a_restore_never_overwrites_a_database(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with pytest.raises(Conflict, match=r"iris\.db exists; restore into an empty directory"):
        restore(RemoteState(str(tmp_path / "remote")), tmp_path)


class Storage:
    """A remote state whose writes can be made to fail."""

    def __init__(self, remote: RemoteState, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_away = False
        put = remote.put_segment

        def put_segment(generation: int, entries: Any) -> None:
            if self.is_away:
                raise OSError("the storage does not answer")
            put(generation, entries)

        monkeypatch.setattr(remote, "put_segment", put_segment)


def test_an_outage_of_the_storage_fills_the_disk_not_the_memory_and_is_caught_up_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "remote")
    pace = replace(PACE, segment_bytes=20_000, memory_bytes=40_000, retry_s=(0.01, 0.05))

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a", pace)
        storage = Storage(life.leadership.remote, monkeypatch)
        storage.is_away = True
        for number in range(1, 301):
            life.store.commit(Changes.of([job(number)], [task(number)]))
        assert life.replicator.waiting_commits == 300
        assert life.replicator.bytes_in_memory < 45_000
        storage.is_away = False
        await life.replicator.wait()
        assert life.replicator.waiting_commits == 0
        assert life.replicator.bytes_in_memory == 0
        life.store.commit(Changes.of([job(301)], [task(301)]))
        await life.replicator.wait()
        expected = life.store.load()
        life.end()
        restore(RemoteState(url), tmp_path / "b")
        store = Store.open(tmp_path / "b")
        assert store.load() == expected
        store.close()

    with_loop(test)


def test_going_back_to_a_time_makes_it_the_latest_state_also_for_a_controller_elsewhere(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        life.store.commit(Changes.of([job(1)], [task(1)]))
        await life.replicator.wait()
        at_ms = life.now_ms
        life.now_ms += 1
        life.store.commit(Changes.of([job(2)], [task(2)]))
        await life.replicator.wait()
        with pytest.raises(Conflict, match="another controller uses the remote state"):
            rewind(url, tmp_path / "b", at_ms, PACE.lease_timeout_s)
        life.end()
        done = rewind(url, tmp_path / "a", at_ms, PACE.lease_timeout_s)
        assert done.moved_to is not None
        assert (done.moved_to / "iris.db").exists()
        again = ControllerRun(url, tmp_path / "a")
        assert [item.job_id for item in again.store.load().jobs] == ["/ann/job-1"]
        again.store.commit(Changes.of([job(3)], [task(3)]))
        again.replicator.snapshot()
        await again.replicator.wait()
        again.end()
        elsewhere = ControllerRun(url, tmp_path / "c")
        assert [item.job_id for item in elsewhere.store.load().jobs] == ["/ann/job-1", "/ann/job-3"]
        elsewhere.end()

    with_loop(test)


def test_what_was_gone_back_behind_does_not_count_even_before_a_controller_starts_there(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        for number in (1, 2):
            life.now_ms += number
            life.store.commit(Changes.of([job(number)], [task(number)]))
            await life.replicator.wait()
        life.end()
        rewind(url, tmp_path / "a", life.now_ms - 1, PACE.lease_timeout_s)
        # The machine that was rewound is lost before anything ran on it.
        restore(RemoteState(url), tmp_path / "b")
        store = Store.open(tmp_path / "b")
        assert [item.job_id for item in store.load().jobs] == ["/ann/job-1"]
        store.close()
        elsewhere = ControllerRun(url, tmp_path / "c")
        assert [item.job_id for item in elsewhere.store.load().jobs] == ["/ann/job-1"]
        elsewhere.end()

    with_loop(test)


def test_a_controller_that_starts_on_what_was_rewound_keeps_it(tmp_path: Path) -> None:
    """It is the newest there is: nothing is fetched or set aside again."""
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        for number in (1, 2):
            life.now_ms += number
            life.store.commit(Changes.of([job(number)], [task(number)]))
            await life.replicator.wait()
        life.end()
        done = rewind(url, tmp_path / "a", life.now_ms - 1, PACE.lease_timeout_s)
        again = ControllerRun(url, tmp_path / "a")
        assert list((tmp_path / "a").glob("superseded-*")) == [done.moved_to]
        assert again.leadership.generation > life.leadership.generation
        again.end()

    with_loop(test)


def test_going_back_further_than_the_history_is_refused_and_moves_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a")
        life.end()
        with pytest.raises(NotFound, match="no snapshot at or before 1000 ms"):
            rewind(url, tmp_path / "a", 1000, PACE.lease_timeout_s)
        assert (tmp_path / "a" / "iris.db").exists()
        ControllerRun(url, tmp_path / "a").end()

    with_loop(test)


def test_commits_go_on_and_leave_the_machine_while_a_snapshot_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        life = ControllerRun(str(tmp_path / "remote"), tmp_path / "a")
        put, begun, go_on = life.leadership.remote.put_snapshot, threading.Event(), threading.Event()

        def slow(*arguments: Any) -> Any:
            begun.set()
            assert go_on.wait(30)
            return put(*arguments)

        monkeypatch.setattr(life.leadership.remote, "put_snapshot", slow)
        snapshot = asyncio.ensure_future(asyncio.to_thread(life.replicator.snapshot))
        await asyncio.to_thread(begun.wait, 30)
        life.store.commit(Changes.of([job(1)], [task(1)]))
        await life.replicator.wait()
        assert not snapshot.done()
        go_on.set()
        assert (await snapshot).sequence == 1
        life.end()

    with_loop(test)


def test_commits_are_gathered_again_once_nobody_waits(tmp_path: Path) -> None:
    """Else one who waited once would make an object of every commit from then on."""
    url = str(tmp_path / "remote")

    async def test() -> None:
        life = ControllerRun(url, tmp_path / "a", replace(PACE, gather_s=30.0))
        life.store.commit(Changes.of([job(1)], [task(1)]))
        await life.replicator.wait()
        before = len(RemoteState(url).listing().segments)
        for number in range(2, 6):
            life.store.commit(Changes.of([job(number)], [task(number)]))
            await asyncio.sleep(0.01)  # time in which one that does not gather would write
        life.end()
        assert len(RemoteState(url).listing().segments) == before + 1

    with_loop(test)
