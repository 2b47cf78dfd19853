import errno
import io
import itertools
import os
import pickle
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rigging.errors import InvalidRequest
from rigging.filesystem.budget import TransferBudget, TransferBudgetExceeded, mirror_budget
from rigging.mirror.fs import MirrorFileSystem

# The conftest.py gives what runs on S3 pytest.mark.process.

STORES = ("local", "memory", "gcs", "s3")
PAIRS = tuple(itertools.product(STORES, STORES))
DATA = bytes(range(256)) * 40


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_file_found_elsewhere_is_copied_once_and_charged_once(make_regions: Any, budget: TransferBudget, here, there):
    regions = make_regions(here, there)
    for name, content in (("a/b.bin", DATA), ("empty", b"")):
        regions.put(1, name, content)
        with regions.fs.open(name) as stream:
            assert stream.read() == content
        assert regions.has(0, name) == content
        assert regions.fs.cat_file(name) == content
    assert budget.bytes_used == len(DATA)
    assert regions.files(0) == ["a/b.bin", "empty"], "nothing but the copy may be left"
    assert regions.files(1) == ["a/b.bin", "empty"], "the source is only read"


@pytest.mark.parametrize("size", [100, 3 * 2**20])
def test_a_file_is_copied_to_and_from_a_filesystem_of_another_kind(make_regions: Any, budget: TransferBudget, size):
    data = os.urandom(size)
    for here, there in (("disk", "local"), ("local", "disk")):
        regions = make_regions(here, there, chunk_bytes=2**20)
        regions.put(1, "a/b/c", data)
        with regions.fs.open("a/b/c") as stream:
            assert stream.read() == data
        assert regions.has(0, "a/b/c") == data
        assert regions.files(0) == ["a/b/c"]
    assert budget.bytes_used == 2 * size


def test_machinery_of_another_region_is_not_brought(make_regions: Any):
    regions = make_regions("local", "local")
    for path in ("d/.marin-tmp-1", ".marin-mirror/copies/x.json"):
        regions.put(1, path, b"1")
        with pytest.raises(FileNotFoundError, match="no region has this file"):
            regions.fs.cat_file(path)
    regions.fs.cat_ranges(["d/.marin-tmp-1"], [0], [1])
    assert regions.files(0) == []


def test_what_is_local_is_read_without_asking_other_regions(make_regions: Any, gcs: Any, budget: TransferBudget):
    regions = make_regions("local", "gcs")
    regions.put(0, "x", b"here")
    regions.put(1, "x", b"there")
    gcs.reset_traffic()
    with regions.fs.open("x") as stream:
        assert stream.read() == b"here"
    assert regions.fs.info("x")["size"] == 4
    assert not gcs.traffic()
    assert budget.bytes_used == 0


def test_the_first_region_of_the_table_that_has_it_is_the_source(make_regions: Any):
    regions = make_regions("local", "memory", "memory")
    regions.put(2, "x", b"second")
    assert regions.fs.cat_file("x") == b"second"
    regions.put(1, "y", b"first")
    regions.put(2, "y", b"second")
    assert regions.fs.cat_file("y") == b"first"


def test_a_changed_prefix_counts_at_the_next_use(make_regions: Any, make_prefix: Any, monkeypatch: pytest.MonkeyPatch):
    regions = make_regions("local", "memory")
    regions.put(1, "x", b"x")
    regions.fs.cat_file("x")
    elsewhere = make_prefix("local")
    monkeypatch.setenv("MARIN_PREFIX", elsewhere)
    assert regions.fs.cat_file("x") == b"x"
    assert os.path.exists(f"{elsewhere}/x")
    with regions.fs.open("y", "wb") as stream:
        stream.write(b"y")
    assert os.path.exists(f"{elsewhere}/y")
    assert not os.path.exists(f"{regions.prefixes[0]}/y")


def test_what_no_region_has_is_not_found_and_the_prefixes_are_named(make_regions: Any, monkeypatch: Any):
    regions = make_regions("local", "local")
    here, there = regions.prefixes
    monkeypatch.setenv("MARIN_MIRROR_PREFIXES", f"{here},{there},{there}-misspelt")
    with pytest.raises(FileNotFoundError, match="no region has this file") as caught:
        regions.fs.open("nowhere/x")
    assert f"looked in {here}, {there}, {there}-misspelt [no such directory])" in str(caught.value)
    assert caught.value.errno == errno.ENOENT
    assert os.listdir(here) == []
    regions.put(1, "d/x", b"x")
    with pytest.raises(IsADirectoryError):
        regions.fs.open("d")
    monkeypatch.setenv("MARIN_PREFIX", "mirror://x")
    with pytest.raises(InvalidRequest, match="cannot have itself as a region"):
        MirrorFileSystem().exists("x")


def test_what_is_no_file_is_refused_without_opening_it(make_regions: Any):
    regions = make_regions("local", "local")
    regions.put(1, "d/x", b"x")
    os.mkfifo(f"{regions.prefixes[1]}/d/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(f"{regions.prefixes[1]}/d/socket"))  # such names are short
        for name, kind in (("pipe", "a FIFO"), ("socket", "a socket")):
            with pytest.raises(InvalidRequest, match=f"{regions.prefixes[1]}/d/{name} is {kind}, not a file"):
                regions.fs.cat_file(f"d/{name}")
    assert regions.files(0) == []


@pytest.mark.parametrize("here", ["local", "gcs"])
@pytest.mark.parametrize("name", ["cat", "get", "cat_ranges", "get of a list"])
def test_several_files_over_the_budget_are_refused_as_a_whole(make_regions: Any, tmp_path: Any, here, name):
    regions = make_regions(here, "memory")
    paths = [f"d/{number}" for number in range(3)]
    for path in paths:
        regions.put(1, path, bytes(100))
    read = {
        "cat": lambda: regions.fs.cat(paths),
        "get": lambda: regions.fs.get("d", str(tmp_path / "out"), recursive=True),
        "cat_ranges": lambda: regions.fs.cat_ranges(paths, [0] * 3, [1] * 3, on_error="raise"),
        "get of a list": lambda: regions.fs.get(paths, [str(tmp_path / path[2:]) for path in paths]),
    }[name]
    with mirror_budget(250 / 2**30) as budget:
        with pytest.raises(TransferBudgetExceeded, match=r"memory://.*/d/0 and 2 more.*300 bytes"):
            read()
        assert budget.bytes_used == 0
        assert regions.files(0) == []
        assert not list(tmp_path.rglob("out/d/?"))
        budget.reset(300)
        read()
        assert budget.bytes_used == 300


def test_copies_within_one_region_are_not_charged(make_prefix: Any, monkeypatch: Any, gcs: Any, budget: TransferBudget):
    for bucket in ("marin-us-east1", "marin-us-east5"):
        gcs.create_bucket(bucket, bucket.removeprefix("marin-"))
    monkeypatch.setenv("MARIN_MIRROR_PREFIXES", "gs://marin-us-east1/scratch,gs://marin-us-east5")
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-east1/mine")
    fs = fsspec.filesystem("gs")
    fs.pipe({"marin-us-east1/scratch/x": b"near", "marin-us-east5/y": b"far"})
    assert MirrorFileSystem().cat_file("x") == b"near"
    assert budget.bytes_used == 0
    assert MirrorFileSystem().cat_file("y") == b"far"
    assert budget.bytes_used == 3


@pytest.mark.parametrize("store", STORES)
def test_filesystem_and_open_files_are_pickled(make_regions: Any, store):
    regions = make_regions(store, "memory", chunk_bytes=6 * 2**20)
    regions.put(1, "x", b"0123456789")
    fs = pickle.loads(pickle.dumps(regions.fs))
    assert fs == regions.fs
    assert fs.settings == regions.fs.settings
    assert (fs.settings.chunk_bytes, fs.fsid) == (6 * 2**20, "mirror")
    with fs.open("x") as stream:
        assert stream.read(4) == b"0123"
        if store != "memory":  # fsspec's memory files carry no position
            assert pickle.loads(pickle.dumps(stream)).read() == b"456789"
    opened = pickle.loads(pickle.dumps(fsspec.open("mirror://x", "rt")))
    with opened as stream:
        assert stream.read() == "0123456789"


@pytest.mark.parametrize("store", STORES)
def test_many_threads_copy_one_file_once(make_regions: Any, budget: TransferBudget, store):
    regions = make_regions(store, "memory")
    count = 16 if store == "local" else 6
    data = os.urandom(3 * 2**20) if store == "local" else DATA
    regions.put(1, "x", data)
    barrier = threading.Barrier(count)

    def read(_: int) -> bytes:
        barrier.wait()
        with regions.fs.open("x") as stream:
            content: bytes = stream.read()
        return content

    with ThreadPoolExecutor(count) as pool:
        assert all(content == data for content in pool.map(read, range(count)))
    assert budget.bytes_used == len(data)


@pytest.mark.parametrize("here", ["local", "memory"])
def test_a_file_is_got_to_wherever_there_is_room_for_it(make_regions: Any, tmp_path: Path, here: str) -> None:
    regions = make_regions(here, "memory")
    for name in ("a", "d/b"):
        regions.put(1, name, DATA)
    regions.fs.get_file("a", tmp_path / "new" / "deep" / "a")
    assert (tmp_path / "new/deep/a").read_bytes() == DATA, "missing directories are made"
    for file in ({"lpath": io.BytesIO()}, {"lpath": "", "outfile": io.BytesIO()}):
        regions.fs.get_file("a", **file)
        assert list(file.values())[-1].getvalue() == DATA
    regions.fs.get_file("d", str(tmp_path / "d"))
    assert list((tmp_path / "d").iterdir()) == [], "a directory is only made"
    assert regions.files(0) == ["a"], "what was got is kept here, and nothing else"
