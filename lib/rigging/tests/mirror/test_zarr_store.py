"""zarr's own tests of stores over the mirror; and what its users do with arrays that another region has."""

import asyncio
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests

ROOT = "d/store"
OLD = ("c/0", "c/1", "zarr.json", "foo/zarr.json", "foo/c/0.0", "foo/0/0", "key", "z")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
class TestOverTheMirror(StoreTests[FsspecStore, cpu.Buffer]):
    """Each test begins with files that another region has, and that were removed here."""

    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def regions(self, make_regions: Any) -> Any:
        made = make_regions("local", "local")
        for name in OLD:
            made.put(1, f"{ROOT}/{name}", b"old")
        made.fs.rm(ROOT, recursive=True)
        made.put(1, "d/beside", b"not removed")
        return made

    @pytest.fixture
    def store_kwargs(self, regions: Any) -> dict[str, Any]:
        # zarr asks for a filesystem with coroutines; fsspec wraps ours.
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        return {"fs": AsyncFileSystemWrapper(regions.fs, asynchronous=True), "path": ROOT}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> FsspecStore:
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> FsspecStore:
        return self.store_cls(**store_kwargs)

    async def set(self, store: FsspecStore, key: str, value: Buffer) -> None:
        fsspec.filesystem("mirror").pipe_file(f"{ROOT}/{key}", value.to_bytes())

    async def get(self, store: FsspecStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(fsspec.filesystem("mirror").cat_file(f"{ROOT}/{key}"))

    def test_store_repr(self, store: FsspecStore) -> None:
        assert "FsspecStore" in repr(store)

    def test_store_supports_writes(self, store: FsspecStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: FsspecStore) -> None:
        assert store.supports_listing


@pytest.fixture
def there(make_regions: Any) -> Any:
    """A group with an array of sevens, and a dataset in parts, which another region has."""
    regions = make_regions("local", "local")
    group = zarr.open_group(f"{regions.prefixes[1]}/g", mode="w")
    group.create_array("x", shape=(8,), chunks=(2,), dtype="int64", fill_value=0)[:] = 7
    return regions


def test_zeros_that_are_written_over_an_array_of_another_region_stay(there: Any) -> None:
    array = zarr.open_array("mirror://g/x", mode="r+")
    array[:] = 0
    assert not np.any(zarr.open_array("mirror://g/x", mode="r")[:])


def test_an_array_that_is_made_anew_has_nothing_of_the_former_one(there: Any) -> None:
    array = zarr.open_array("mirror://g/x", mode="w", shape=(8,), chunks=(2,), dtype="int64", fill_value=0)
    array[:4] = 1
    assert list(zarr.open_array("mirror://g/x", mode="r")[:]) == [1, 1, 1, 1, 0, 0, 0, 0]


def test_a_deleted_array_is_deleted(there: Any) -> None:
    group = zarr.open_group("mirror://g", mode="r+")
    del group["x"]
    assert "x" not in zarr.open_group("mirror://g", mode="r")
    assert list(zarr.open_group(f"{there.prefixes[1]}/g", mode="r")["x"][:]) == [7] * 8, "there it is kept"


def test_a_dataset_that_is_written_anew_has_new_rows_only(make_regions: Any) -> None:
    regions = make_regions("local", "local")

    def table(value: int, keys: list[str]) -> pa.Table:
        return pa.table({"key": keys, "value": [value] * len(keys)})

    pq.write_to_dataset(table(1, ["a", "b", "c"]), f"{regions.prefixes[1]}/t", partition_cols=["key"])
    options = {"partition_cols": ["key"], "existing_data_behavior": "delete_matching", "basename_template": "n-{i}"}
    pq.write_to_dataset(table(2, ["a", "b"]), "t", filesystem=regions.fs, **options)
    read = pq.read_table("t", filesystem=regions.fs).to_pydict()
    assert sorted(zip(read["key"], read["value"], strict=True)) == [("a", 2), ("b", 2), ("c", 1)]
