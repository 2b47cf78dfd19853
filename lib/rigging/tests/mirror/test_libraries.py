"""Libraries that read through fsspec, some from threads of their own: what crosses is charged where it was allowed.

Each reads 4 files of 1 MB from another region; the process's own budget is the default and must not be touched.
"""

from __future__ import annotations

import _thread
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import zarr

from rigging.filesystem import MirrorFileSystem, TransferBudget, current_budget, mirror_budget

FILES = 4
GB = 2**30


def parquet(seed: int) -> bytes:
    # One row group: DuckDB's threads share a Python file, its position included, when there are several, and read at
    # wrong places then, with fsspec's own local file system as well (66 of 100 queries).
    sink = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 2**62, 128 * 1024)
    pq.write_table(pa.table({"n": values}), sink, compression="none", use_dictionary=False, row_group_size=128 * 1024)
    return sink.getvalue()


@pytest.fixture
def regions(make_regions: Any) -> Any:
    """Two regions; the further one has `d/{0..3}.parquet` and the array `z`."""
    regions = make_regions("local", "local")
    for index in range(FILES):
        regions.put(1, f"d/{index}.parquet", parquet(index))
    array = zarr.create_array(f"{regions.prefixes[1]}/z", shape=(1 << 18,), chunks=(1 << 16,), dtype="int64")
    array[:] = np.random.default_rng(0).integers(0, 2**62, 1 << 18)
    return regions


@pytest.fixture
def process_untouched() -> Iterator[None]:
    """The use of the process's own budget does not change."""
    before = current_budget().bytes_used
    yield
    assert current_budget().bytes_used == before


def copied(regions: Any) -> int:
    return sum(len(regions.has(0, path)) for path in regions.files(0))


def with_pandas() -> int:
    return len(pd.read_parquet("mirror://d"))


def with_dataset() -> int:
    return int(ds.dataset("d", filesystem=fsspec.filesystem("mirror")).to_table().num_rows)


def with_duckdb() -> int:
    with duckdb.connect() as connection:
        connection.register_filesystem(fsspec.filesystem("mirror"))
        connection.execute("SET threads=4")
        [[count, _]] = connection.execute(
            "SELECT count(*), sum(n) FROM read_parquet('mirror://d/*.parquet')"
        ).fetchall()
        return int(count)


def with_zarr() -> int:
    array = zarr.open_array("mirror://z", mode="r")
    return int(np.asarray(array[:]).size) * 2


READERS = [with_pandas, with_dataset, with_duckdb, with_zarr]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.usefixtures("process_untouched")
def test_every_byte_is_charged_to_the_block_and_what_it_does_not_allow_is_not_copied(
    regions: Any, read: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with mirror_budget(2**20 / GB) as small, pytest.raises(Exception, match=r"exceed the transfer budget|No array"):
        read()
    assert copied(regions) <= small.bytes_used <= 2**20
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "1e-9")  # the process's, which has no part in it
    with mirror_budget(1) as budget:
        assert read() == FILES * 128 * 1024
    assert budget.bytes_used > 2**20
    # Threads of a library may go on after its call has failed: what they copy is charged to the block of that call.
    assert small.bytes_used + budget.bytes_used == copied(regions)


def in_a_foreign_thread(call: Callable[[], Any]) -> None:
    """Call in a thread that knows nothing of blocks, as those of C++ do not."""
    done = threading.Event()
    _thread.start_new_thread(lambda: (call(), done.set()), ())
    assert done.wait(20)


def test_a_filesystem_belongs_to_the_block_that_it_was_made_in(regions: Any) -> None:
    outside = fsspec.filesystem("mirror")
    with mirror_budget(1) as budget:
        inside = fsspec.filesystem("mirror")
        assert inside == fsspec.filesystem("mirror")
        assert inside != outside
        in_a_foreign_thread(lambda: inside.cat_file("d/0.parquet"))
        used = budget.bytes_used
        assert used == inside.bytes_copied == len(parquet(0))
        # One that was made outside of all blocks is charged by where it is used.
        outside.cat_file("d/1.parquet")
        assert budget.bytes_used > used
        with mirror_budget(1) as inner:
            assert fsspec.filesystem("mirror") != inside
            inside.cat_file("d/2.parquet")
            assert inner.bytes_used == 0
    assert fsspec.filesystem("mirror") == outside
    used = budget.bytes_used
    inside.cat_file("d/3.parquet")
    assert budget.bytes_used > used
    own = TransferBudget(10)
    fs = MirrorFileSystem(budget=own)
    assert fs is not MirrorFileSystem(budget=TransferBudget(10))
    assert fs.budget is own
    # A pickled one belongs to where it is unpickled.
    with mirror_budget(1):
        content = pickle.dumps(MirrorFileSystem())
    with mirror_budget(1) as later:
        assert pickle.loads(content).budget is later
