"""The guard over real gcsfs and s3fs: the test servers count the bytes that really crossed."""

import _thread
import asyncio
import logging
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rigging.errors import Denied
from rigging.filesystem import (
    CrossRegionGuardedFS,
    TransferBudget,
    TransferBudgetExceeded,
    filesystem,
    mirror_budget,
    open_url,
    url_to_fs,
)
from rigging.filesystem.budget import GB
from rigging.testing.gcs_server import GcsServer
from rigging.testing.s3_server import S3Server

SIZE = 3000
CONTENT = bytes(index % 251 for index in range(SIZE))


def open_and_read(fs: Any, path: str) -> bytes:
    with fs.open(path) as handle:
        data: bytes = handle.read()
        return data


def test_head_and_ranges_take_only_what_they_return(
    fs: Any, away: str, gcs_server: GcsServer, budget: TransferBudget
) -> None:
    gcs_server.reset_traffic()
    assert fs.head(f"{away}/a", 5) + fs.tail(f"{away}/a", 3) == CONTENT[:5] + CONTENT[-3:]
    assert fs.tail(f"{away}/a", 10 * SIZE) == CONTENT
    assert gcs_server.traffic()["marin-eu-west4"].bytes_out == budget.bytes_used == 8 + SIZE


def test_an_open_file_is_charged_by_the_blocks_that_it_fetches_when_it_fetches_them(
    fs: Any, away: str, gcs_server: GcsServer
) -> None:
    gcs_server.reset_traffic()
    with mirror_budget(1) as first, fs.open(f"{away}/a", block_size=500, cache_type="blockcache") as handle:
        assert first.bytes_used == 0
        assert handle.read(10) == CONTENT[:10]
        assert first.bytes_used == 500
        handle.seek(1200)
        assert handle.read(50) == CONTENT[1200:1250]
        assert first.bytes_used == 1000
        with mirror_budget(1) as second:
            handle.seek(2500)
            assert handle.read() == CONTENT[2500:]
        assert (first.bytes_used, second.bytes_used) == (1000, 500)
        with mirror_budget(499 / GB), pytest.raises(TransferBudgetExceeded, match="/a"):
            handle.seek(600) and handle.read(1)
    assert gcs_server.traffic()["marin-eu-west4"].bytes_out == 1500


@pytest.mark.parametrize("cache", ["all", "none", "readahead", "bytes", "mmap", "first", "background"])
def test_every_kind_of_cache_is_charged(cache: str, fs: Any, away: str, budget: TransferBudget) -> None:
    with fs.open(f"{away}/a", block_size=SIZE, cache_type=cache) as handle:
        assert handle.read() == CONTENT
    assert budget.bytes_used == SIZE


def test_files_and_filesystems_stay_guarded_when_they_are_pickled(fs: Any, away: str, budget: TransferBudget) -> None:
    copy = pickle.loads(pickle.dumps(fs))
    assert isinstance(copy, CrossRegionGuardedFS)
    assert copy == fs
    with fs.open(f"{away}/a", block_size=100) as handle:
        handle.seek(2900)
        with pickle.loads(pickle.dumps(handle)) as again:
            assert again.read() == CONTENT[2900:]
        opened = pickle.loads(pickle.dumps(open_url(f"gs://{away}/a")))
    with opened as handle:
        assert handle.read() == CONTENT
    assert budget.bytes_used == 100 + SIZE


def test_a_pickled_guard_charges_by_the_region_where_it_is_used(fs: Any, here: str) -> None:
    code = (
        "import os, pickle, sys; fs = pickle.load(sys.stdin.buffer);"
        "from rigging.filesystem import current_budget;"
        f"fs.cat_file({here + '/a'!r}); print(current_budget().bytes_used)"
    )
    import os

    environment = {**os.environ, "MARIN_PREFIX": "gs://marin-eu-west4"}
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(fs), capture_output=True, check=True, env=environment
    )
    assert int(done.stdout) == SIZE


def test_there_is_one_guard_for_one_filesystem(fs: Any) -> None:
    again, path = url_to_fs("gs://marin-us-central2/x")
    assert again is filesystem("gs") is filesystem("gcs") is fs
    assert path == "marin-us-central2/x"
    seen = []
    thread = threading.Thread(target=lambda: seen.append(filesystem("gs")))
    thread.start()
    thread.join()
    assert seen[0] is fs


def test_what_is_not_in_a_region_has_no_guard(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}", "memory://x"):
        assert not isinstance(url_to_fs(url)[0], CrossRegionGuardedFS)


def test_names_and_sizes_and_writes_are_free(fs: Any, away: str) -> None:
    with mirror_budget(0):
        assert fs.info(f"{away}/a")["size"] == fs.size(f"{away}/a") == SIZE
        assert sorted(fs.find(away)) == fs.ls(away, detail=False) == [f"{away}/a", f"{away}/b"]
        assert fs.exists(f"gs://{away}/a")
        assert fs.du(away) == 2 * SIZE
        assert fs.glob(f"{away}/*") == [f"{away}/a", f"{away}/b"]
        assert fs.isdir(away)
        fs.pipe_file(f"{away}/new", b"1")
        with fs.open(f"{away}/written", "w") as handle:
            handle.write("text")
        with fs.transaction, fs.open(f"{away}/later", "wb") as handle:
            handle.write(b"1")
        fs.rm([f"{away}/new", f"{away}/later"])
        with open_url(f"gs://{away}/z.gz", "wt", compression="infer") as handle:
            handle.write("squeezed")
    assert fs.unguarded.cat_file(f"{away}/written") == b"text"
    with open_url(f"gs://{away}/z.gz", "rt", compression="infer") as handle:
        assert handle.read() == "squeezed"


def test_copies_cost_when_the_places_differ_not_when_the_bucket_is_away(
    fs: Any, here: str, away: str, budget: TransferBudget
) -> None:
    fs.copy(f"{away}/a", f"{away}/a2")
    fs.mv(f"{away}/a2", f"{away}/a3")
    assert budget.bytes_used == 0
    fs.copy(f"{here}/a", f"{away}/a4")
    assert budget.bytes_used == SIZE, "leaving this region costs as well"
    fs.copy([f"{away}/a", f"{away}/b"], [f"{here}/c", f"{here}/d"])
    assert budget.bytes_used == 3 * SIZE


def test_an_unknown_size_fails_closed(fs: Any, away: str, budget: TransferBudget, monkeypatch) -> None:
    monkeypatch.setattr(fs.unguarded, "info", lambda path, **_: {"name": path, "size": None, "type": "file"})
    for read in (fs.cat_file, fs.open, fs.head, fs.cat):
        with pytest.raises(Denied, match=rf"gs://{away}/a: not read: .* its size is not known \(the store says None"):
            read(f"{away}/a")
    assert fs.cat_file(f"{away}/a", 0, 10) == CONTENT[:10], "a range says its own size"
    assert budget.bytes_used == 10


def test_a_failed_stat_fails_closed_and_what_is_missing_is_just_missing(
    fs: Any, away: str, budget: TransferBudget, monkeypatch, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{away}/none")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{away}/none")
    assert fs.cat([f"{away}/none"], on_error="omit") == {}

    def refused(path: Any, **kwargs: Any) -> Any:
        raise PermissionError("no storage.objects.get")

    monkeypatch.setattr(fs.unguarded, "info", refused)
    monkeypatch.setattr(fs.unguarded, "sizes", refused)
    for read in (fs.cat_file, fs.open, fs.head, lambda path: fs.get([path, path], [str(tmp_path)] * 2)):
        with pytest.raises(Denied, match=r"asking for it failed: PermissionError.*no storage\.objects\.get"):
            read(f"{away}/a")
    assert budget.bytes_used == 0


def test_a_read_that_fails_gives_its_reservation_back(
    fs: Any, away: str, budget: TransferBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        used.append(budget.bytes_used)
        raise ConnectionError("cable cut")

    monkeypatch.setattr(fs.unguarded, "cat_file", broken)
    with pytest.raises(ConnectionError):
        fs.cat_file(f"{away}/a")
    assert (used, budget.bytes_used) == ([SIZE], 0)


def test_without_a_region_nothing_crosses(fs: Any, away: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_PREFIX")
    with mirror_budget(0):
        assert fs.cat_file(f"{away}/a") == CONTENT
        assert open_and_read(fs, f"{away}/a") == CONTENT


def test_the_payer_is_logged_by_name_and_reads_without_a_budget(
    fs: Any, away: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "ada")
    with mirror_budget(0) as budget, caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert fs.cat_file(f"{away}/a") == CONTENT
        fs.copy(f"{away}/a", "marin-us-central2/paid")
    assert budget.bytes_used == 0
    told = [record for record in caplog.messages if "ada" in record and "gs://marin-eu-west4" in record]
    assert 1 <= len(told) <= 2, "once for each kind of thing, not for each read"
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", " ")
    with mirror_budget(0), pytest.raises(TransferBudgetExceeded):
        fs.cat_file(f"{away}/a")


def make_bucket(server: GcsServer, name: str, location: str) -> None:
    server.create_bucket(name, location)
    filesystem("gs").unguarded.pipe_file(f"{name}/a", CONTENT)


def test_the_location_of_a_bucket_is_asked_once(fs: Any, gcs_server: GcsServer, budget: TransferBudget) -> None:
    make_bucket(gcs_server, "guard-near", "US-CENTRAL2")
    make_bucket(gcs_server, "guard-far", "ASIA-EAST1")
    make_bucket(gcs_server, "guard-us", "US")
    make_bucket(gcs_server, "guard-eu", "EU")
    gcs_server.reset_traffic()
    for _ in range(3):
        fs.cat_file("guard-near/a")
        fs.cat_file("guard-us/a")
    assert budget.bytes_used == 0
    fs.cat_file("guard-far/a")
    fs.cat_file("guard-eu/a")
    assert budget.bytes_used == 2 * SIZE
    asked = {name: traffic.requests["buckets.get"] for name, traffic in gcs_server.traffic().items()}
    assert asked == {"guard-near": 1, "guard-far": 1, "guard-us": 1, "guard-eu": 1}


def test_a_bucket_that_hides_its_location_counts_as_elsewhere(
    fs: Any, gcs_server: GcsServer, budget: TransferBudget, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_bucket(gcs_server, "guard-shy", "us-central2")
    info = fs.unguarded.info

    def shy(path: str, **kwargs: Any) -> Any:
        return {"name": path, "size": 0, "type": "directory"} if "/" not in path else info(path, **kwargs)

    monkeypatch.setattr(fs.unguarded, "info", shy)
    fs.cat_file("guard-shy/a")
    fs.cat_file("guard-shy/a")
    assert budget.bytes_used == 2 * SIZE
    assert len([text for text in caplog.messages if "guard-shy" in text]) == 1


def test_caches_and_archives_have_the_guard_inside(
    fs: Any, away: str, gcs_server: GcsServer, budget: TransferBudget, tmp_path: Path
) -> None:
    import io
    import zipfile

    with open_url(f"simplecache::gs://{away}/a", simplecache={"cache_storage": str(tmp_path)}) as handle:
        assert handle.read() == CONTENT
    with open_url(f"simplecache::gs://{away}/a", simplecache={"cache_storage": str(tmp_path)}) as handle:
        assert handle.read() == CONTENT
    assert budget.bytes_used == SIZE, "once: the second time it comes from the cache"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("member", CONTENT)
    fs.pipe_file(f"{away}/x.zip", archive.getvalue())
    gcs_server.reset_traffic()
    budget.reset()
    with open_url(f"zip://member::gs://{away}/x.zip") as handle:
        assert handle.read() == CONTENT
    assert budget.bytes_used == gcs_server.traffic()["marin-eu-west4"].bytes_out > 0
    cached = filesystem("filecache", target_protocol="gs", cache_storage=str(tmp_path / "f"))
    budget.reset()
    assert cached.cat_file(f"{away}/b") == CONTENT
    assert budget.bytes_used == SIZE


def test_a_chain_that_cannot_be_charged_is_refused_when_it_crosses(fs: Any, here: str, away: str) -> None:
    with pytest.raises(Denied, match=r"cannot be charged.*mirror://"):
        url_to_fs(f"zip://a::simplecache::gs://{away}/x.zip")
    with pytest.raises(Denied, match="cannot be charged"):
        filesystem("zip", fo=f"{away}/x.zip", target_protocol="gs")
    assert url_to_fs(f"dir::simplecache::gs://{here}/a")[0] is not None


def test_concurrent_reads_share_the_budget_of_their_block(fs: Any, away: str, gcs_server: GcsServer) -> None:
    gcs_server.reset_traffic()
    refused = []

    def read() -> None:
        try:
            fs.cat_file(f"{away}/a")
        except TransferBudgetExceeded:
            refused.append(1)

    with mirror_budget(5 * SIZE / GB) as budget:
        threads = [threading.Thread(target=read) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert budget.bytes_used == gcs_server.traffic()["marin-eu-west4"].bytes_out == 5 * SIZE
    assert len(refused) == 7


def test_s3_is_elsewhere_unless_it_is_the_prefix(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, budget: TransferBudget
) -> None:
    fs, path = url_to_fs("s3://marin-s3-one/guard/a")
    fs.pipe_file(path, CONTENT)
    monkeypatch.setenv("MARIN_PREFIX", "s3://marin-s3-two/x")
    fs.cat_file(path)
    assert budget.bytes_used == 0, "no region is known"
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")
    fs.cat_file(path)
    with fs.open(path) as handle:
        assert handle.read(10) == CONTENT[:10]
    assert budget.bytes_used == 2 * SIZE


def test_a_stream_that_is_opened_asynchronously_costs_the_whole_file_at_once(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, budget: TransferBudget
) -> None:
    plain, path = url_to_fs("s3://marin-s3-one/guard/streamed")
    plain.pipe_file(path, CONTENT)
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")

    async def read() -> bytes:
        fs = filesystem("s3", asynchronous=True, skip_instance_cache=True)
        handle = await fs.open_async(path)
        data: bytes = await handle.read(10)
        await handle.close()
        return data

    assert asyncio.run(read()) == CONTENT[:10]
    assert budget.bytes_used == SIZE
    with mirror_budget(1 / GB), pytest.raises(TransferBudgetExceeded, match="streamed"):
        asyncio.run(read())


def test_an_asynchronous_filesystem_is_guarded_in_its_own_loop(away: str, here: str, budget: TransferBudget) -> None:
    async def main() -> None:
        fs = filesystem("gs", asynchronous=True, skip_instance_cache=True)
        session = await fs.unguarded._set_session()
        try:
            assert await fs._cat_file(f"{away}/a", 0, 10) == CONTENT[:10]
            assert await fs._cat_file(f"{here}/a") == CONTENT
            assert (await fs._info(f"{away}/a"))["size"] == SIZE
        finally:
            await session.close()

    asyncio.run(main())
    assert budget.bytes_used == 10


def test_a_guard_belongs_to_the_block_that_it_was_made_in(away: str, fs: Any) -> None:
    """Threads that know nothing of blocks, as those of C++, charge it all the same."""
    done = threading.Event()
    own = TransferBudget(SIZE)

    def read(guard: Any) -> None:
        guard.cat_file(f"{away}/a")
        done.set()

    with mirror_budget(1) as budget:
        inside = filesystem("gs")
        _thread.start_new_thread(read, (inside,))
        assert done.wait(20)
        assert budget.bytes_used == SIZE
    assert filesystem("gs") is fs
    with pytest.raises(TransferBudgetExceeded):
        CrossRegionGuardedFS(fs=fs.unguarded, budget=own).cat([f"{away}/a", f"{away}/b"])


def test_equal_guards_are_one_key(fs: Any) -> None:
    other = CrossRegionGuardedFS(fs=fs.unguarded, budget=TransferBudget(1))
    assert other is not fs
    assert other == fs
    assert len({other, fs}) == 1
    assert fs != fs.unguarded


def test_options_of_an_open_file_arrive(fs: Any, away: str, here: str) -> None:
    options = {"cache_type": "blockcache", "cache_options": {"maxblocks": 3}}
    for path in (away, here):
        with fs.open(f"{path}/a", block_size=500, **options) as handle:
            assert (handle.cache.blocksize, handle.cache.maxblocks) == (500, 3)


def test_a_file_that_a_cache_of_fsspec_opens_is_there_once_it_is_closed(fs: Any, here: str) -> None:
    """`filecache` and others call `_open` with the path and the mode alone."""
    with fs._open(f"{here}/cached", "wb") as handle:
        handle.write(b"x")
    assert fs.cat_file(f"{here}/cached") == b"x"


def test_a_transaction_publishes_at_its_end(fs: Any, here: str) -> None:
    with fs.transaction:
        with fs.open(f"{here}/later", "wb") as handle:
            handle.write(b"x" * 10)
        assert not fs.exists(f"{here}/later")
    fs.invalidate_cache()
    assert fs.cat_file(f"{here}/later") == b"x" * 10
