"""Writing through the mirror: into the local prefix, and nowhere else."""

import contextlib
from typing import Any

import pytest

from rigging.errors import InvalidRequest
from rigging.filesystem import atomic_write, read_bytes_or_none, write_bytes_atomic

STORES = ("local", "memory", "gcs", "s3")


@pytest.fixture(params=STORES)
def regions(request: pytest.FixtureRequest, make_regions: Any) -> Any:
    made = make_regions(request.param, "local")
    made.put(1, "d/there", b"there")
    yield made
    assert made.files(1) == ["d/there"]
    assert made.has(1, "d/there") == b"there", "other regions are never written"


def test_writes_go_to_the_local_prefix(regions: Any):
    fs = regions.fs
    with fs.open("new/deep/file", "wb") as stream:
        stream.write(b"1")
    fs.pipe_file("new/piped", b"2")
    fs.touch("new/touched")
    with fs.open("d/there", "wb") as stream:
        stream.write(b"mine")
    assert {path: regions.has(0, path) for path in regions.files(0)} == {
        "new/deep/file": b"1",
        "new/piped": b"2",
        "new/touched": b"",
        "d/there": b"mine",
    }
    assert fs.cat_file("d/there") == b"mine"


def test_what_is_marked_as_changed_keeps_its_content_and_else_is_emptied(regions: Any):
    with contextlib.suppress(NotImplementedError, ValueError):  # objects have no time that could be set
        regions.fs.touch("d/there", truncate=False)
    assert regions.has(0, "d/there") == b"there", "it was brought first"
    regions.fs.touch("d/there")
    assert regions.has(0, "d/there") == b""


def test_exclusive_creation_looks_at_all_regions(regions: Any):
    with pytest.raises(FileExistsError, match="this or another region"):
        regions.fs.open("d/there", "xb")
    with pytest.raises(FileExistsError, match="this or another region"):
        regions.fs.pipe_file("d/there", b"", mode="create")
    with regions.fs.open("d/new", "xb") as stream:
        stream.write(b"x")
    assert regions.has(0, "d/new") == b"x"


def test_moving_and_copying_bring_the_file_first(regions: Any):
    fs = regions.fs
    fs.cp_file("d/there", "d/copy")
    fs.mv("d/there", "e/moved")
    assert regions.files(0) == ["d/copy", "e/moved"]
    assert regions.has(0, "d/copy") == regions.has(0, "e/moved") == b"there"
    fs.mv("e/moved", "f/again")
    fs.mv("f", "g", recursive=True)
    assert regions.files(0) == ["d/copy", "g/again"]


def test_removing_touches_the_local_prefix_only(regions: Any):
    fs = regions.fs
    fs.cat_file("d/there")
    fs.rm("d/there")
    assert regions.files(0) == []
    assert fs.exists("d/there")
    for remove in (fs.rm_file, fs.rm):
        with pytest.raises(FileNotFoundError, match=r"only in .*which is kept"):
            remove("d/there")
    fs.pipe({"d/a1": b"", "d/a2": b"", "d/b": b""})
    fs.rm("d/a*")
    assert regions.files(0) == ["d/b"]
    fs.rm("d", recursive=True)
    assert regions.files(0) == []
    with pytest.raises(InvalidRequest, match="whole prefix"):
        fs.rm("", recursive=True)


def test_atomic_writes_work_through_the_mirror(regions: Any):
    write_bytes_atomic("mirror://d/there", b"whole")
    assert regions.has(0, "d/there") == b"whole"
    with atomic_write("mirror://w/x", "w") as stream:
        stream.write("text")
    assert read_bytes_or_none("mirror://w/x") == b"text"
    assert regions.files(0) == ["d/there", "w/x"]


@pytest.mark.parametrize("store", ["local", "memory"])
def test_appending_brings_the_file_first(make_regions: Any, store):
    regions = make_regions(store, "local")
    regions.put(1, "d/there", b"there")
    with regions.fs.open("d/there", "ab") as stream:
        stream.write(b" and here")
    assert regions.has(0, "d/there") == b"there and here"
    assert regions.has(1, "d/there") == b"there"


def test_a_transaction_publishes_at_its_end(make_regions: Any):
    regions = make_regions("local", "memory")
    with regions.fs.transaction:
        with regions.fs.open("d/x", "wb") as stream:
            stream.write(b"x")
        assert regions.has(0, "d/x") is None
    assert regions.has(0, "d/x") == b"x"
