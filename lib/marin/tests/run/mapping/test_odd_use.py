"""`map_files` with functions, places and ends that nobody means to have."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fray.backends.local import LocalClient
from fray.errors import ActorLost
from iris.testing.small_disk import SmallDisk, small_disk
from marin.run import FilesFailed, MapFilesResult, map_files
from marin.run.mapping.worker import WorkerOptions, run_worker
from rigging.errors import Conflict, InvalidRequest, Unavailable
from rigging.testing.gcs_server import GcsServer
from rigging.testing.s3_server import S3Server
from rigging.testing.shared import shared_gcs_server, shared_s3_server

NAMES = [str(number) for number in range(20)]


@pytest.fixture
def threads() -> Iterator[LocalClient]:
    with LocalClient() as client:
        yield client


def copy_name(source: str, path: str) -> None:
    Path(path).write_text(source)


def mapped(fn: Any, place: Path, client: LocalClient, **options: Any) -> MapFilesResult:
    return map_files(fn, NAMES, lambda name: place / "out" / name, client=client, max_workers=2, **options)


def made(place: Path) -> list[str]:
    """Everything in the folder of outputs, also what is hidden."""
    return sorted(os.listdir(place / "out"), key=lambda name: (len(name), name))


def test_a_coroutine_function_is_awaited(threads: LocalClient, tmp_path: Path) -> None:
    async def fn(source: str, path: str) -> None:
        copy_name(source, path)

    assert mapped(fn, tmp_path, threads).succeeded == 20
    assert made(tmp_path) == NAMES


def test_a_generator_function_is_refused_before_anything_is_started(threads: LocalClient, tmp_path: Path) -> None:
    def fn(source: str, path: str) -> Iterator[None]:
        copy_name(source, path)
        yield

    with pytest.raises(InvalidRequest, match="generator"):
        mapped(fn, tmp_path, threads, manifest=tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_children_that_the_function_forks_do_not_go_on_as_workers(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def fn(source: str, path: str) -> None:
        with open(calls, "a") as file:
            file.write(f"{source}\n")
        if (child := os.fork()) == 0:
            return
        os.waitpid(child, 0)
        copy_name(source, path)

    with LocalClient(processes=True) as client:
        assert mapped(fn, tmp_path, client).succeeded == 20
    assert sorted(calls.read_text().split(), key=int) == NAMES
    assert made(tmp_path) == NAMES


def test_other_files_that_the_function_leaves_are_removed(threads: LocalClient, tmp_path: Path) -> None:
    seen: list[str] = []

    def fn(source: str, path: str) -> None:
        seen.extend(os.listdir(os.path.dirname(path)))
        os.mkdir(path + ".d")
        for name in (path + ".part", path + ".d/x", path):
            copy_name(source, name)

    assert mapped(fn, tmp_path, threads).succeeded == 20
    assert seen == [], "nor are they there for the next file"
    assert made(tmp_path) == NAMES


def test_a_function_that_removes_the_folder_it_writes_to_harms_no_other_file(
    threads: LocalClient, tmp_path: Path
) -> None:
    def fn(source: str, path: str) -> None:
        copy_name(source, path)
        if source == "3":
            shutil.rmtree(os.path.dirname(path))

    result = mapped(fn, tmp_path, threads, raise_on_failure=False)
    assert [failure.input for failure in result.failures] == ["3"]
    assert made(tmp_path) == [name for name in NAMES if name != "3"]


def test_names_that_are_no_text(threads: LocalClient, tmp_path: Path) -> None:
    name, manifest = os.fsdecode(b"caf\xe9"), tmp_path / "m.jsonl"
    result = map_files(
        copy_name_as_bytes, [name, "\u00e9"], lambda name: tmp_path / "out" / name, client=threads, manifest=manifest
    )
    assert result.succeeded == 2
    lines = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
    assert {line["input"] for line in lines} == {name, "\u00e9"}
    assert "\u00e9" in manifest.read_text(encoding="utf-8"), "text stays readable"


def copy_name_as_bytes(source: str, path: str) -> None:
    Path(path).write_bytes(os.fsencode(source))


@pytest.mark.parametrize("manifest", ["", "folder/", "folder", 7])
def test_manifests_that_cannot_be_one_are_refused(
    threads: LocalClient, tmp_path: Path, manifest: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidRequest, match=f"manifest {manifest!r} is "):
        mapped(copy_name, tmp_path, threads, manifest=manifest)
    assert os.listdir(tmp_path) == ["folder"]


def test_two_runs_do_not_write_one_manifest(threads: LocalClient, tmp_path: Path) -> None:
    url = tmp_path / "m.jsonl"
    hold = "import sys; from marin.run.mapping.manifest import Manifest; m = Manifest(sys.argv[1]); print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", hold, str(url)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(Conflict, match=r"m.jsonl' is being written by another run"):
            mapped(copy_name, tmp_path, threads, manifest=url)
        assert not (tmp_path / "out").exists()
        other.kill()
    assert mapped(copy_name, tmp_path, threads, manifest=url).succeeded == 20


def test_ctrl_c_in_the_middle_and_a_run_that_goes_on(threads: LocalClient, tmp_path: Path) -> None:
    interrupted: list[bool] = []

    def interrupt(result: MapFilesResult) -> None:
        if result.finished >= 5 and not interrupted:
            interrupted.append(True)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)  # the signal comes here

    def fn(source: str, path: str) -> None:
        time.sleep(0.02)
        copy_name(source, path)

    with pytest.raises(KeyboardInterrupt):
        mapped(fn, tmp_path, threads, manifest=tmp_path / "m", on_progress=interrupt, batch_seconds=0.01)
    assert not (tmp_path / "m").exists()
    told = {json.loads(line)["input"] for line in (tmp_path / "m.partial").read_text().splitlines()}
    before = {name: os.stat(tmp_path / "out" / name).st_mtime_ns for name in told}
    assert 5 <= len(before) < 20
    result = mapped(fn, tmp_path, threads, manifest=tmp_path / "m")
    assert result.existed >= len(before)
    assert result.total == 20
    assert {name: os.stat(tmp_path / "out" / name).st_mtime_ns for name in told} == before
    assert made(tmp_path) == NAMES


def test_what_killed_a_worker_is_told(tmp_path: Path) -> None:
    def fn(source: str, path: str) -> None:
        if source == "7":
            os.kill(os.getpid(), signal.SIGSEGV)
        copy_name(source, path)

    with LocalClient(processes=True) as client, pytest.raises(FilesFailed, match=r"'7': .*died.*SIGSEGV"):
        mapped(fn, tmp_path, client, max_retries_failure=0)


def test_workers_that_never_reach_the_queue_fail() -> None:
    class Gone:
        def exchange(self, *_: object) -> None:
            raise ActorLost("nothing listens at 127.0.0.1:9")

    with pytest.raises(Unavailable, match=r"cannot reach the process that called map_files: .*127.0.0.1:9"):
        run_worker(Gone(), WorkerOptions("q", "w", 1.0), copy_name)  # type: ignore[arg-type]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "1m") as found:
        if found is None:
            pytest.skip("NOT TESTED: this user may not mount")
        yield found


def test_a_full_disk_leaves_no_half_output_and_the_next_run_goes_on(threads: LocalClient, disk: SmallDisk) -> None:
    def fn(source: str, path: str) -> None:
        Path(path).write_bytes(source.encode() * 50_000)

    disk.fill(leave=200_000)
    result = mapped(fn, disk.root, threads, raise_on_failure=False, max_retries_failure=0)
    assert result.failed > 0
    assert result.succeeded > 0
    assert all("No space left" in failure.error for failure in result.failures)
    whole = set(made(disk.root))
    assert all((disk.root / "out" / name).stat().st_size == len(name) * 50_000 for name in whole)
    disk.empty()
    with contextlib.suppress(FilesFailed):
        again = mapped(fn, disk.root, threads, max_retries_failure=0, raise_on_failure=False)
    assert again.existed == len(whole)
    assert again.succeeded > 0


def test_a_manifest_on_a_full_disk_ends_the_run_with_that(
    threads: LocalClient, disk: SmallDisk, tmp_path: Path
) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        mapped(copy_name, tmp_path, threads, manifest=disk.root / "m")
    disk.empty()
    assert mapped(copy_name, tmp_path, threads, manifest=disk.root / "m").total == 20


Server = GcsServer | S3Server


@pytest.fixture(params=["gs", "s3"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    protocol: str = request.param
    server: Server = shared_gcs_server() if protocol == "gs" else shared_s3_server()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem(protocol).clear_instance_cache()
    name = f"b{hashlib.md5(request.node.nodeid.encode()).hexdigest()}"
    server.create_bucket(name)
    yield f"{protocol}://{name}"
    fsspec.filesystem(protocol).clear_instance_cache()


def test_buckets(threads: LocalClient, bucket: str) -> None:
    def fn(source: str, path: str) -> None:
        with fsspec.open(source, "rb") as file:
            data = file.read()
        if data == b"5":
            raise ValueError("not five")
        Path(path).write_bytes(data * 2)

    fs = fsspec.filesystem(bucket.partition(":")[0])
    inputs = [f"{bucket}/in/{name} &#.txt" for name in NAMES[:8]]
    for source, name in zip(inputs, NAMES, strict=False):
        fs.pipe_file(source, name.encode())
    outputs = [source.replace("/in/", "/new folder/") for source in inputs]
    options: dict[str, Any] = {"client": threads, "max_workers": 2, "manifest": f"{bucket}/m.jsonl"}
    with pytest.raises(FilesFailed, match=r"1 of 8 .*5 &.*ValueError: not five"):
        map_files(fn, inputs, outputs, **options)
    assert [fs.cat_file(output) for output in outputs if "/5 " not in output] == [
        name.encode() * 2 for name in NAMES[:8] if name != "5"
    ]
    fs.invalidate_cache()
    assert sorted(fs.ls(bucket, detail=False)) == [
        f"{bucket.partition('//')[2]}/{name}" for name in ("in", "m.jsonl", "new folder")
    ]
    fs.pipe_file(inputs[5], b"6")
    again = map_files(fn, inputs, outputs, **options)
    assert (again.succeeded, again.existed) == (1, 7)
    lines = [json.loads(line) for line in fs.cat_file(f"{bucket}/m.jsonl").splitlines()]
    assert {line["output"] for line in lines if line["status"] == "existed"} == {*outputs} - {outputs[5]}


def test_a_manifest_in_a_bucket_that_is_not_there_is_told_before_the_work(
    threads: LocalClient, bucket: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match=r"manifest '.*there/m.jsonl' cannot be written: "):
        mapped(copy_name, tmp_path, threads, manifest=f"{bucket}-that-is-not-there/m.jsonl")
    assert not (tmp_path / "out").exists()
