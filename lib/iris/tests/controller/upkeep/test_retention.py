"""What is forgotten: by age and by count, never what is in use, with the logs and blobs that belong to it."""

import asyncio
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.controller.config.controller_config import ControllerConfig
from iris.controller.engine.engine import Engine
from iris.controller.logs.store import LogStore
from iris.controller.storage.blobs import BlobStore
from iris.controller.upkeep.retention import Retention
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.errors import StorageUnavailable
from iris.domain.events import JobSubmitted, StopRequested
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from iris.store.history import History
from iris.store.store import Store
from support.iris.controller import running_controller
from support.iris.stored_jobs import FULL_SPEC, make_job
from support.iris.users import job_spec
from support.iris.worker import ScriptedWorker, succeed_at_once

DAY_MS = 86_400_000
CONFIG = ControllerConfig(state_dir=Path("unused"), history_max_age_s=30 * 86_400, history_max_jobs=3)


@pytest.mark.parametrize(("ended_at_ms", "forgotten"), [(1_000, 1), (1 << 60, 0)], ids=["chosen", "used again since"])
async def test_a_name_that_is_used_again_is_not_forgotten_and_many_logs_go_a_few_at_a_time(
    ended_at_ms: int, forgotten: int, tmp_path: Path
) -> None:
    store = Store.open(tmp_path)
    engine = Engine(ClusterView(), store, lambda: ended_at_ms, lambda _: None)
    await engine.submit(JobSubmitted(JobSpec(JobId("/ann/a"), CommandEntrypoint(("true",)))))
    await engine.submit(StopRequested(JobId("/ann/a")))
    logs = LogStore(tmp_path / "logs")
    for index in range(450):
        logs.append(("/ann/a", index, 0), 0, encode(False, 1, b"x"))
    history = create_autospec(History, instance=True)
    history.forgettable.return_value = [JobId("/ann/a")]
    rounds = Retention(CONFIG, engine, logs, BlobStore(tmp_path / "blobs"), history, lambda *_: 0)
    forgetting = asyncio.create_task(rounds.forget_jobs())
    seen = set()
    while not forgetting.done():
        seen.add(len(logs.keys("/ann/a")))
        await asyncio.sleep(0)
    assert seen == ({450, 250, 50, 0} if forgotten else {450}), "others have their turns meanwhile"
    assert await forgetting == forgotten
    assert len(store.load().jobs) == len(engine.view.jobs) == 1 - forgotten
    engine.close()
    store.close()


class Rounds(Retention):
    """Counts what it does instead of doing it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def forget_jobs(self) -> int:
        self.done.append("jobs")
        if self.done.count("jobs") == 3:
            raise OSError("the disk is full")
        if self.done.count("jobs") == 5:
            raise StorageUnavailable("the database cannot be written")
        return 0

    async def forget_workers(self) -> int:
        self.done.append("workers")
        return 0

    async def forget_events(self) -> int:
        return 0

    async def shelve_logs(self) -> int:
        return 0

    async def remove_stray_logs(self) -> int:
        self.done.append("logs")
        return 0

    async def remove_blobs(self) -> int:
        self.done.append("blobs")
        return 0


def test_rounds_are_ten_minutes_apart_and_those_that_read_the_disk_six_hours(caplog: pytest.LogCaptureFixture) -> None:
    clock = 50_000.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        if clock >= 50_000 + 86_400:
            raise asyncio.CancelledError

    rounds = Rounds()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(rounds.run(lambda: clock, sleep))
    assert {name: rounds.done.count(name) for name in ("jobs", "workers", "logs", "blobs")} == {
        "jobs": 144, "workers": 142, "logs": 4, "blobs": 4
    }  # fmt: skip
    assert rounds.done[:4] == ["jobs", "workers", "logs", "blobs"], "at once after a start"
    assert "it is tried again in 600 s" in caplog.text


def age_everything(state_dir: Path) -> None:
    """As if two days had passed since."""
    store = Store.open(state_dir)
    stored = store.load()
    store.commit(
        Changes.of(
            [replace(job, finished_at_ms=max(job.finished_at_ms - 2 * DAY_MS, 0)) for job in stored.jobs],
            workers=[replace(worker, last_seen_at_ms=worker.last_seen_at_ms - 2 * DAY_MS) for worker in stored.workers],
        )
    )
    store.close()
    before = time.time() - 2 * 86_400
    for path in (state_dir / "blobs").rglob("*"):
        os.utime(path, (before, before))


def test_a_restart_forgets_old_jobs_with_their_logs_blobs_and_workers(tmp_path: Path, connect: Any) -> None:
    state_dir = tmp_path / "state"
    part, stray = b"print('hello')", b"nobody names me"
    manifest = pb.BundleManifest(format=1)
    manifest.files.add(path="a.py", size_bytes=len(part)).part_digests.append(digest(part))
    bundle = manifest.SerializeToString()
    with running_controller(state_dir) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1"), script=succeed_at_once):
            for name, blobs in (("/ann/old", [stray]), ("/ann/kept", [part, bundle])):
                spec = job_spec(name, bundle_digest=digest(blobs[1]) if blobs[1:] else "")
                user.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec, inline_blobs=blobs))
                user.wait_one(name)
    logs = LogStore(state_dir / "logs")
    for name in ("/ann/old", "/ann/old/child", "/ann/kept", "/ann/unknown"):
        logs.append((name, 0, 0), 0, b"x")
    age_everything(state_dir)
    store = Store.open(state_dir)
    (kept,) = (job for job in store.load().jobs if job.job_id == "/ann/kept")
    store.commit(Changes.of([replace(kept, finished_at_ms=kept.finished_at_ms + 2 * DAY_MS)]))
    store.close()
    with running_controller(state_dir, history_max_age_s=86_400.0, worker_timeout_s=6.0) as controller:
        user = connect(controller)
        blobs = BlobStore(state_dir / "blobs")
        eventually(lambda: not blobs.path(digest(stray)).exists(), "the unused blob is removed")
        with pytest.raises(grpc.RpcError, match="job /ann/old does not exist"):
            user.get("/ann/old")
        assert user.get("/ann/kept").state == pb.JOB_STATE_SUCCEEDED
        assert blobs.path(digest(part)).exists()
        assert blobs.path(digest(bundle)).exists()
    store = Store.open(state_dir)
    stored = store.load()
    store.close()
    assert [job.job_id for job in stored.jobs] == ["/ann/kept"]
    assert {task.job_id for task in stored.tasks} == {"/ann/kept"}
    assert stored.workers == ()
    assert list(LogStore(state_dir / "logs").stored_jobs()) == ["/ann/kept"]


def test_blobs_that_no_job_names_go_whatever_is_missing_of_others(tmp_path: Path) -> None:
    store, blobs = Store.open(tmp_path), BlobStore(tmp_path)
    bundle = pb.BundleManifest(format=1, files=[pb.BundleFile(path="a", size_bytes=1, part_digests=[digest(b"a")])])
    kept = [blobs.put(b"a"), blobs.put(bundle.SerializeToString())]
    gone = [blobs.put(b"b"), blobs.put(b"c")]
    specs = [replace(FULL_SPEC, job_id=JobId(f"/ann/{name}"), bundle_digest=name) for name in (digest(b"x"), kept[1])]
    store.commit(Changes.of([make_job(spec, number) for number, spec in enumerate(specs)]))
    for name in (*kept, *gone):
        os.utime(blobs.path(name), (1000, 1000))
    engine = create_autospec(Engine, instance=True)
    rounds = Retention(CONFIG, engine, LogStore(tmp_path / "logs"), BlobStore(tmp_path), store.history, lambda *_: 0)
    assert asyncio.run(rounds.remove_blobs()) == 2
    store.close()
    assert BlobStore(tmp_path).missing([*kept, *gone]) == gone


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
