"""Asking the mirror: all regions as one, nothing copied, machinery hidden, the local entry first."""

import itertools
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from rigging.distributed_lock import create_lock
from rigging.filesystem.budget import TransferBudget

STORES = ("local", "memory", "gcs", "s3")


@pytest.fixture(params=[(a, b) for a, b in itertools.product(STORES, STORES) if a != b or a == "local"])
def regions(request: pytest.FixtureRequest, make_regions: Any, budget: TransferBudget) -> Any:
    """Two regions: `d/both` differs, `d/here` and `d/there`, `d/sub/deep` and `e/x` are in one only."""
    made = make_regions(*request.param)
    made.put(0, "d/both", b"12345")
    made.put(0, "d/here", b"1")
    made.put(1, "d/both", b"123456789")
    made.put(1, "d/there", b"12")
    made.put(1, "d/sub/deep", b"123")
    made.put(1, "e/x", b"1234")
    yield made
    assert made.files(0) == ["d/both", "d/here"], "asking must not copy"
    assert budget.bytes_used == 0


def test_everything_is_answered_from_the_union(regions: Any):
    fs = regions.fs
    assert fs.ls("d", detail=False) == ["d/both", "d/here", "d/sub", "d/there"]
    assert fs.ls("", detail=False) == ["d", "e"]
    sizes = {entry["name"]: entry["size"] for entry in fs.ls("mirror://d") if entry["type"] == "file"}
    assert sizes == {"d/both": 5, "d/here": 1, "d/there": 2}
    assert fs.ls("d/there", detail=False) == ["d/there"]
    assert fs.find("d") == ["d/both", "d/here", "d/sub/deep", "d/there"]
    assert fs.find("d/there") == ["d/there"]
    assert fs.find("d", maxdepth=1) == ["d/both", "d/here", "d/there"]
    assert fs.find("nowhere") == []
    assert fs.find("e", detail=True)["e/x"]["mirror_prefix"] == regions.prefixes[1].rstrip("/")
    assert fs.glob("d/*ere") == ["d/here", "d/there"]
    assert fs.glob("**/x") == ["e/x"]
    assert [(root, sorted(dirs), sorted(files)) for root, dirs, files in fs.walk("d")] == [
        ("d", ["sub"], ["both", "here", "there"]),
        ("d/sub", [], ["deep"]),
    ]
    assert fs.du("") == 5 + 1 + 2 + 3 + 4
    assert fs.sizes(["d/both", "e/x"]) == [5, 4]


def test_entries_are_of_the_first_region_that_has_them(regions: Any):
    fs = regions.fs
    assert (fs.info("d/both")["size"], fs.info("d/both")["name"]) == (5, "d/both")
    assert fs.info("d/there")["mirror_prefix"] == regions.prefixes[1].rstrip("/")
    assert fs.info("")["type"] == fs.info("d/sub")["type"] == "directory"
    assert [fs.exists(path) for path in ("e/x", "e/y")] == [True, False]
    assert [fs.isfile(path) for path in ("e/x", "e")] == [True, False]
    assert [fs.isdir(path) for path in ("e", "e/x")] == [True, False]
    with pytest.raises(FileNotFoundError, match="e/y"):
        fs.info("e/y")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fs.ls("nowhere")


@pytest.mark.parametrize("store", ["local", "memory", "gcs"])
def test_locks_and_temporary_files_are_not_listed(make_regions: Any, store):
    regions = make_regions(store, "local")
    regions.put(0, "d/uv.lock", b"data")
    regions.put(0, "d/.marin-tmp-123", b"")
    regions.put(1, "d/.marin-tmp-456", b"")
    regions.put(1, ".marin-mirror/copies/x", b"")
    lock = create_lock(f"{regions.prefixes[0]}/d/.executor_status.lock")
    other = create_lock(f"{regions.prefixes[1]}/d/.executor_status.lock")
    assert lock.try_acquire()
    assert other.try_acquire()
    for _ in range(2):
        assert regions.fs.ls("d", detail=False) == ["d/uv.lock"]
        assert regions.fs.find("") == ["d/uv.lock"]
        assert regions.fs.du("") == 4
        assert regions.fs.glob("**/*.lock") == ["d/uv.lock"]
        lock.release()
    assert not regions.fs.exists("d/.marin-tmp-456")


def test_what_marks_a_version_is_of_the_region_that_has_the_file(make_regions: Any):
    regions = make_regions("local", "local")
    regions.put(0, "d/here", b"1")
    regions.put(1, "d/there", b"12")
    for region, name in ((0, "d/here"), (1, "d/there")):
        raw, path = regions.raw(region), f"{regions.prefixes[region]}/{name}"
        for mark in ("created", "modified", "checksum", "ukey"):
            assert getattr(regions.fs, mark)(name) == getattr(raw, mark)(path) is not None, mark
    with pytest.raises(FileNotFoundError, match="d/none"):
        regions.fs.modified("d/none")


def test_an_empty_union_is_an_empty_directory(make_regions: Any):
    """memory:// and object stores have no directory before there is a file in it."""
    regions = make_regions("memory", "memory")
    fs = regions.fs
    assert fs.info("") == {"name": "", "size": 0, "type": "directory", "mirror_prefix": regions.prefixes[0]}
    assert [fs.exists(""), fs.isdir(""), fs.isfile(""), fs.ls(""), fs.find("")] == [True, True, False, [], []]
    with pytest.raises(ValueError, match="maxdepth must be at least 1"):
        fs.find("", maxdepth=0)
    fs = make_regions("local", "memory").fs
    fs.makedirs("d/empty")
    assert fs.ls("d/empty") == []
    assert fs.find("d", withdirs=True) == ["d", "d/empty"]


@pytest.mark.process
def test_a_signed_url_leads_to_the_region_that_has_the_file(make_regions: Any):
    regions = make_regions("local", "s3")
    regions.put(1, "d/x", b"1")
    bucket = regions.prefixes[1].split("/")[2]
    signed = regions.fs.sign("d/x", expiration=77)
    assert f"/{bucket}/base/d/x?" in signed
    assert "77" in signed or "Expires" in signed


def test_listings_that_the_local_filesystem_remembers_are_forgotten(make_regions: Any, monkeypatch: Any):
    regions = make_regions("local", "local")
    forgotten: list[Any] = []
    monkeypatch.setattr(LocalFileSystem, "invalidate_cache", lambda self, path=None: forgotten.append(path))
    regions.fs.invalidate_cache()
    regions.fs.invalidate_cache("mirror://d/x")
    assert forgotten == [None, f"{regions.prefixes[0]}/d/x"]
