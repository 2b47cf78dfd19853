import asyncio
import hashlib
import os
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker.paths import WorkPaths
from iris.worker.prepare.bundle import BundleStore
from iris.worker.types import PreparationFailed
from rigging.errors import MarinError, NotFound, Unavailable

Play = Callable[[Callable[[FakeController, InProcessWorker], Awaitable[None]]], None]
JOB = "/user/job/0:0"


@pytest.mark.e2e
def test_a_task_sees_the_bundle_and_its_writes_stay_its_own(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(
            {"run.sh*": "#!/bin/sh\ncat data/in.txt > out.txt; cat out.txt empty\n", "data/in.txt": "in", "empty": ""}
        )
        controller.send(run=[run_command("./run.sh", bundle=bundle)])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, controller.output(JOB)) == (TaskState.SUCCEEDED, b"in\n"), end.error
        root = worker.paths.bundles / bundle
        assert sorted(os.listdir(root)) == ["data", "empty", "run.sh"]
        assert (root / "data/in.txt").stat().st_mode & 0o777 == 0o644
        assert (root / "run.sh").stat().st_mode & 0o777 == 0o755
        assert os.listdir(worker.paths.layers) == []

    play(scenario)


@pytest.mark.e2e
def test_a_task_finds_the_empty_folders_of_its_bundle(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        manifest = pb.BundleManifest(format=1, directories=["logs", "deep/er"])
        bundle = controller.add_blob(manifest.SerializeToString())
        for attempt in range(2):
            write = "find . -type d | sort; touch logs/x deep/er/y && ls logs"
            controller.send(run=[run_command("sh", "-c", write, bundle=bundle, attempt=attempt)])
            name = f"/user/job/0:{attempt}"
            (end,) = await controller.until_ended(name)
            assert controller.output(name).decode() == ".\n./deep\n./deep/er\n./logs\nx\n", end.error

    play(scenario)


@pytest.mark.e2e
def test_only_what_is_lacking_is_fetched_once(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        big = os.urandom(3_000_000)
        first = controller.add_bundle({"big": big, "a": "1"}, part_bytes=1_100_000)
        controller.send(run=[run_command("true", bundle=first, indexes=range(4))])
        await controller.until_ended(*(f"/user/job/{index}:0" for index in range(4)))
        assert len(controller.blob_requests) == 2  # the manifest, then its parts
        assert (worker.paths.bundles / first / "big").read_bytes() == big
        second = controller.add_bundle({"big": big, "a": "2"}, part_bytes=1_100_000)
        controller.send(run=[run_command("true", bundle=second, job_id="/user/b")])
        await controller.until_ended("/user/b/0:0")
        assert [len(request) for request in controller.blob_requests[2:]] == [1, 1]

    play(scenario)


@pytest.mark.e2e
def test_a_bundle_that_the_controller_lacks_is_the_jobs_failure(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command("true", bundle="0" * 64)])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.failure) == (TaskState.FAILED, FailureKind.START)
        assert "no blob 000000" in end.error

    play(scenario)


@pytest.mark.e2e
def test_what_is_damaged_on_the_workers_disk_is_fetched_again(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        payload = controller.add_blob(pickle.dumps((print, ("called",), {})))
        bundle = controller.add_bundle({"a": "content", "b": "more"})
        for digest in controller.blobs:
            (worker.paths.blobs / digest).write_bytes(b"garbage")
        controller.send(run=[run_command("cat", "a", "b", bundle=bundle)])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, controller.output(JOB)) == (TaskState.SUCCEEDED, b"contentmore\n"), end.error
        for attempt in range(2):
            controller.send(run=[run_command(payload=payload, job_id="/user/call", attempt=attempt)])
            (end,) = await controller.until_ended(f"/user/call/0:{attempt}")
            assert (end.state, controller.output(f"/user/call/0:{attempt}")) == (TaskState.SUCCEEDED, b"called\n")
            (worker.paths.blobs / payload).write_bytes(b"damaged later")

    play(scenario)


class BreaksOff:
    """A source that fails `times` times with `error` before it sends `data`."""

    def __init__(self, data: bytes, error: MarinError, times: int) -> None:
        self.data, self.error, self.times = data, error, times

    async def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]:
        (digest,) = digests
        yield digest, 0, self.data[:2], False
        if self.times:
            self.times -= 1
            raise self.error
        yield digest, 2, self.data[2:], True


@pytest.mark.parametrize(
    ("error", "times", "failure"),
    [
        (Unavailable("down"), 2, None),
        (Unavailable("down"), 1000, FailureKind.PREEMPTED),
        (NotFound("no such blob"), 1, FailureKind.START),
        (OSError(28, "No space left on device"), 1, FailureKind.WORKER),
    ],
)
def test_only_this_hosts_own_faults_count_against_it(
    tmp_path: Path, error: MarinError, times: int, failure: FailureKind | None
) -> None:
    async def test() -> None:
        paths = WorkPaths(tmp_path)
        paths.make()
        store = BundleStore(paths, BreaksOff(b"content", error, times), patience_s=0.2)
        digest = hashlib.sha256(b"content").hexdigest()
        if failure is None:
            assert (await store.blob(digest)).read_bytes() == b"content"
        else:
            with pytest.raises(PreparationFailed, match=str(error.args[-1])) as failed:
                await store.blob(digest)
            assert failed.value.kind is failure
            assert list(paths.blobs.iterdir()) == []

    asyncio.run(test())


@pytest.mark.e2e
def test_stop_while_building_ends_at_once_and_the_next_attempt_gets_the_bundle(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.serve_blobs.clear()
        bundle = controller.add_bundle({"a": "content"})
        controller.send(run=[run_command("cat", "a", bundle=bundle)])
        await controller.until(lambda: controller.blob_requests and JOB in controller.observations)
        assert controller.observations[JOB].state == TaskState.BUILDING
        controller.send(stop=[pb.StopAttempt(attempt_id=JOB, reason="enough")])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.error, end.pid) == (TaskState.KILLED, "enough", 0)
        controller.send(run=[run_command("cat", "a", bundle=bundle, attempt=1)])
        controller.serve_blobs.set()
        await controller.until_ended("/user/job/0:1")
        assert controller.output("/user/job/0:1") == b"content\n"

    play(scenario)


@pytest.mark.e2e
def test_damaged_blobs_and_manifests_are_found(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle({"a": "content"})
        part = controller.add_blob(b"content")
        controller.blobs[part] = b"CONTENT"
        evil = pb.BundleManifest(format=1, files=[pb.BundleFile(path="../../evil", part_digests=[part])])
        future = pb.BundleManifest(format=2)
        cases = {
            "/user/damaged": (bundle, "arrived damaged", FailureKind.PREEMPTED),
            "/user/evil": (
                controller.add_blob(evil.SerializeToString()),
                "not a plain relative path",
                FailureKind.START,
            ),
            "/user/future": (
                controller.add_blob(future.SerializeToString()),
                "this release reads format 1",
                FailureKind.START,
            ),
            "/user/noise": (controller.add_blob(b"\xff\xff\xff"), "not a bundle manifest", FailureKind.START),
        }
        controller.send(run=[run_command("true", bundle=digest, job_id=job) for job, (digest, *_) in cases.items()])
        for job, (_, reason, kind) in cases.items():
            (end,) = await controller.until_ended(f"{job}/0:0")
            assert (reason in end.error, end.failure) == (True, kind), end.error
        assert not (worker.paths.root.parent / "evil").exists()
        assert list(worker.paths.bundles.iterdir()) == []
        assert all(not path.name.startswith(".") for path in worker.paths.blobs.iterdir())

    play(scenario)


@pytest.mark.e2e
def test_a_bundle_left_half_written_by_a_killed_worker_is_made_anew(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle({"a": "whole"})
        half = worker.paths.bundles / bundle
        half.mkdir()
        (half / "a").write_text("ha")
        controller.send(run=[run_command("cat", "a", bundle=bundle)])
        await controller.until_ended(JOB)
        assert controller.output(JOB) == b"whole\n"

    play(scenario)


def test_single_flight_shares_a_failure_and_then_forgets_it(tmp_path: Path) -> None:
    from iris.worker.prepare.bundle import SingleFlight

    calls = 0

    async def work() -> Path:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if calls == 1:
            raise MarinError("no")
        return tmp_path

    async def test() -> None:
        flights: SingleFlight[Path] = SingleFlight()
        results = await asyncio.gather(*(flights.run("key", work) for _ in range(3)), return_exceptions=True)
        assert [str(result) for result in results] == ["no"] * 3
        assert await flights.run("key", work) == tmp_path
        assert calls == 2

    asyncio.run(test())
