"""`map_files` with functions, places and ends that nobody means to have."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fray.backends.local import LocalClient
from marin.run import FilesFailed, MapFilesResult, map_files
from rigging.errors import Conflict, InvalidRequest
from support.iris.small_disk import small_disk
from support.marin.buckets import bucket_root

NAMES = [str(number) for number in range(20)]


def copy_name(source: str, path: str) -> None:
    Path(path).write_text(source)


def mapped(fn: Any, place: Path, client: LocalClient, **options: Any) -> MapFilesResult:
    return map_files(fn, NAMES, lambda name: place / "out" / name, client=client, max_workers=2, **options)


def made(place: Path) -> list[str]:
    return sorted(os.listdir(place / "out"), key=lambda name: (len(name), name))


@pytest.mark.process
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


def test_what_else_the_function_leaves_or_removes_harms_no_other(threads: LocalClient, tmp_path: Path) -> None:
    seen: list[str] = []

    def fn(source: str, path: str) -> None:
        seen.extend(os.listdir(os.path.dirname(path)))
        os.mkdir(path + ".d")
        for name in (path + ".part", path + ".d/x", path):
            copy_name(source, name)
        if source == "3":
            shutil.rmtree(os.path.dirname(path))

    result = mapped(fn, tmp_path, threads, raise_on_failure=False)
    assert seen == [], "nor is it there for the next file"
    assert [failure.input for failure in result.failures] == ["3"]
    assert made(tmp_path) == [name for name in NAMES if name != "3"]


def test_names_that_are_no_text(threads: LocalClient, tmp_path: Path) -> None:
    name, manifest = os.fsdecode(b"caf\xe9"), tmp_path / "m.jsonl"

    def fn(source: str, path: str) -> None:
        Path(path).write_bytes(os.fsencode(source))

    inputs = [name, "\u00e9"]
    assert map_files(fn, inputs, lambda name: tmp_path / "out" / name, client=threads, manifest=manifest).succeeded == 2
    lines = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
    assert {line["input"] for line in lines} == set(inputs)
    assert "\u00e9" in manifest.read_text(encoding="utf-8"), "text stays readable"


def test_what_can_be_no_manifest(threads: LocalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for manifest in ("", "folder/", "folder", 7):
        with pytest.raises(InvalidRequest, match=f"manifest {manifest!r} is "):
            mapped(copy_name, tmp_path, threads, manifest=manifest)
    assert os.listdir(tmp_path) == ["folder"]


def test_two_runs_do_not_write_one_manifest(threads: LocalClient, tmp_path: Path) -> None:
    url = tmp_path / "m.jsonl"
    hold = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(1); input()"
    command = [sys.executable, "-u", "-S", "-c", hold, f"{url}.partial"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        with pytest.raises(Conflict, match=r"m.jsonl' is being written by another run"):
            mapped(copy_name, tmp_path, threads, manifest=url)
        assert not (tmp_path / "out").exists()
        other.kill()
    assert mapped(copy_name, tmp_path, threads, manifest=url).succeeded == 20


@pytest.mark.process
def test_a_full_disk_leaves_no_half_output_and_the_next_run_goes_on(threads: LocalClient, tmp_path: Path) -> None:
    def fn(source: str, path: str) -> None:
        Path(path).write_bytes(source.encode() * 50_000)

    with small_disk(tmp_path / "disk", "1m") as disk:
        if disk is None:
            pytest.skip("NOT TESTED: this user may not mount")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            mapped(copy_name, tmp_path, threads, manifest=disk.root / "m")
        disk.empty()
        disk.fill(leave=200_000)
        result = mapped(fn, disk.root, threads, raise_on_failure=False, max_retries_failure=0)
        assert result.failed > 0
        assert result.succeeded > 0
        assert all("No space left" in failure.error for failure in result.failures)
        whole = set(made(disk.root))
        assert all((disk.root / "out" / name).stat().st_size == len(name) * 50_000 for name in whole)
        disk.empty()
        again = mapped(fn, disk.root, threads, max_retries_failure=0, raise_on_failure=False)
        assert again.existed == len(whole)
        assert again.succeeded > 0


@pytest.fixture(params=["gs", "s3"])
def bucket(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"b{hashlib.md5(request.node.nodeid.encode()).hexdigest()}"
    with bucket_root(request.param, name) as url:
        yield url


@pytest.mark.process
def test_buckets(threads: LocalClient, bucket: str, tmp_path: Path) -> None:
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
    doubled = [name.encode() * 2 for name in NAMES[:8] if name != "5"]
    assert [fs.cat_file(output) for output in outputs if "/5 " not in output] == doubled
    fs.invalidate_cache()
    root = bucket.partition("//")[2]
    assert sorted(fs.ls(bucket, detail=False)) == [f"{root}/{name}" for name in ("in", "m.jsonl", "new folder")]
    fs.pipe_file(inputs[5], b"6")
    again = map_files(fn, inputs, outputs, **options)
    assert (again.succeeded, again.existed) == (1, 7)
    lines = [json.loads(line) for line in fs.cat_file(f"{bucket}/m.jsonl").splitlines()]
    assert {line["output"] for line in lines if line["status"] == "existed"} == {*outputs} - {outputs[5]}
    with pytest.raises(InvalidRequest, match=r"manifest '.*there/m.jsonl' cannot be written: "):
        mapped(copy_name, tmp_path, threads, manifest=f"{bucket}-that-is-not-there/m.jsonl")
    assert not (tmp_path / "out").exists()


def test_a_coroutine_function_is_awaited_and_a_generator_function_refused(threads: LocalClient, tmp_path: Path) -> None:
    async def fn(source: str, path: str) -> None:
        copy_name(source, path)

    def generator(source: str, path: str) -> Iterator[None]:
        copy_name(source, path)
        yield

    with pytest.raises(InvalidRequest, match="generator"):
        mapped(generator, tmp_path, threads, manifest=tmp_path / "m")
    assert os.listdir(tmp_path) == []
    assert mapped(fn, tmp_path, threads).succeeded == 20
    assert made(tmp_path) == NAMES
