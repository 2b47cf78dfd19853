"""What is committed here is there, and comes back equal; two controllers never write one history."""

import asyncio
import shutil
import threading
import uuid
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

from .conftest import job_ids, loaded

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


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "remote") if request.param == "local" else f"memory://state-{uuid.uuid4().hex}"


async def test_what_was_awaited_comes_back_equal_after_the_loss_of_the_disk(url: str, tmp_path: Path) -> None:
    life = ControllerRun(url, tmp_path / "a")
    worker = Worker(WorkerId("w1"), "one", Resources(1, 2, 3), {"zone": "a"}, cordoned_by="bob", cordoned_at_ms=7)
    life.store.commit(Changes.of([job(1)], [task(1)], [worker]))
    life.store.commit(Changes.of([job(2)], [task(2)]))
    life.store.commit(Changes.of(tasks=[task(1, state=TaskState.ASSIGNED, attempt=0, worker_id=WorkerId("w1"))]))
    again = job(1, sequence=3, hold="held")
    life.store.commit(replace(Changes.of([again], [task(1)]), replaced={again.job_id}))
    life.store.commit(Changes(forgotten_jobs={JobId("/ann/job-2")}))
    await life.replicator.wait()
    expected = life.store.load()
    assert [found.hold for found in expected.jobs] == ["held"]
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
    assert loaded(tmp_path / "c") == expected


async def test_going_back_to_a_time_makes_it_the_latest_state_also_for_a_controller_elsewhere(tmp_path: Path) -> None:
    url = str(tmp_path / "remote")
    life = ControllerRun(url, tmp_path / "a")
    at_ms = life.now_ms
    for number in (1, 2):
        life.store.commit(Changes.of([job(number)], [task(number)]))
        await life.replicator.wait()
        life.now_ms += 1
    with pytest.raises(Conflict, match="another controller uses the remote state"):
        rewind(url, tmp_path / "b", at_ms, PACE.lease_timeout_s)
    life.end()
    with pytest.raises(NotFound, match="no snapshot at or before 1000 ms"):
        rewind(url, tmp_path / "a", 1000, PACE.lease_timeout_s)
    with pytest.raises(NotFound, match=r"remote state .*/remotf: there is no snapshot"):
        rewind(str(tmp_path / "remotf"), tmp_path / "a", None)
    assert not (tmp_path / "remotf").exists(), "a mistyped place is left as it is"
    done = rewind(url, tmp_path / "a", at_ms, PACE.lease_timeout_s)
    assert done.moved_to is not None
    assert (done.moved_to / "iris.db").exists()
    restore(RemoteState(url), tmp_path / "d")
    assert job_ids(tmp_path / "d") == ["/ann/job-1"], "though no controller has started there yet"
    again = ControllerRun(url, tmp_path / "a")
    assert list((tmp_path / "a").glob("superseded-*")) == [done.moved_to], "what is there is the newest"
    assert [item.job_id for item in again.store.load().jobs] == ["/ann/job-1"]
    again.store.commit(Changes.of([job(3)], [task(3)]))
    again.replicator.snapshot()
    await again.replicator.wait()
    again.end()
    ControllerRun(url, tmp_path / "c").end()
    assert job_ids(tmp_path / "c") == ["/ann/job-1", "/ann/job-3"]


async def test_commits_go_on_while_a_snapshot_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
