"""The guard over real gcsfs and s3fs: the test servers count the bytes that really crossed."""

import _thread
import asyncio
import io
import logging
import pickle
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rigging.errors import Denied
from rigging.filesystem import CrossRegionGuardedFS, filesystem, open_url, url_to_fs
from rigging.filesystem.budget import GB, TransferBudget, TransferBudgetExceeded, mirror_budget
from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server

SIZE = 3000
CONTENT = bytes(index % 251 for index in range(SIZE))


def test_an_open_file_is_charged_by_blocks_when_it_fetches_them(fs: Any, away: str, gcs_server: GcsServer) -> None:
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


def test_options_of_an_open_file_arrive(fs: Any, away: str, here: str) -> None:
    options = {"cache_type": "blockcache", "cache_options": {"maxblocks": 3}}
    for path in (away, here):
        with fs.open(f"{path}/a", block_size=500, **options) as handle:
            assert (handle.cache.blocksize, handle.cache.maxblocks) == (500, 3)
    with fs._open(f"{here}/cached", "wb") as handle:  # as `filecache` and others do, with nothing else
        handle.write(b"x")
    assert fs.cat_file(f"{here}/cached") == b"x"


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


def test_guards_of_one_filesystem_are_equal(fs: Any, tmp_path: Path) -> None:
    again, path = url_to_fs("gs://marin-us-central2/x")
    assert again == filesystem("gs") == filesystem("gcs") == fs
    assert path == "marin-us-central2/x"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(filesystem, "gs").result().unguarded is fs.unguarded, "in any thread"
    other = CrossRegionGuardedFS(fs=fs.unguarded, budget=TransferBudget(1))
    assert other is not fs
    assert other == fs != fs.unguarded
    assert len({other, fs}) == 1
    for url in (str(tmp_path), f"file://{tmp_path}", "memory://x"):
        assert not isinstance(url_to_fs(url)[0], CrossRegionGuardedFS), "what is not in a region"


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
        with fs.transaction:
            with fs.open(f"{away}/later", "wb") as handle:
                handle.write(b"1")
            assert not fs.exists(f"{away}/later"), "a transaction publishes at its end"
        fs.rm([f"{away}/new", f"{away}/later"])
        with open_url(f"gs://{away}/z.gz", "wt", compression="infer") as handle:
            handle.write("squeezed")
    assert fs.unguarded.cat_file(f"{away}/written") == b"text"
    with open_url(f"gs://{away}/z.gz", "rt", compression="infer") as handle:
        assert handle.read() == "squeezed"


def test_what_cannot_be_sized_fails_closed_and_what_is_missing_is_just_missing(
    fs: Any, away: str, budget: TransferBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = (fs.cat_file, fs.open, fs.head, fs.cat)
    for read in reads:
        with pytest.raises(FileNotFoundError):
            read(f"{away}/none")
    assert fs.cat([f"{away}/none"], on_error="omit") == {}

    def refused(path: Any, **_: Any) -> Any:
        raise PermissionError("no storage.objects.get")

    def sizeless(path: Any, **_: Any) -> Any:
        return {"name": path, "size": None, "type": "file"}

    for info, why in ((refused, r"asking for it failed: PermissionError"), (sizeless, "the store says None")):
        monkeypatch.setattr(fs.unguarded, "info", info)
        for read in reads:
            with pytest.raises(Denied, match=rf"gs://{away}/a: cannot read it: .* its size is unknown \({why}"):
                read(f"{away}/a")
    assert budget.bytes_used == 0
    assert fs.cat_file(f"{away}/a", 0, 10) == CONTENT[:10], "a range says its own size"
    assert budget.bytes_used == 10


def test_without_a_region_or_with_a_payer_reads_need_no_budget(
    fs: Any, away: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "ada")
    with mirror_budget(0) as budget, caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert fs.cat_file(f"{away}/a") == CONTENT
        fs.copy(f"{away}/a", "marin-us-central2/paid")
        monkeypatch.delenv("MARIN_I_WILL_PAY_FOR_ALL_FEES")
        with pytest.raises(TransferBudgetExceeded):
            fs.cat_file(f"{away}/a")
        monkeypatch.delenv("MARIN_PREFIX")
        with fs.open(f"{away}/a") as handle:
            assert handle.read() == fs.cat_file(f"{away}/a") == CONTENT
    assert budget.bytes_used == 0
    told = [record for record in caplog.messages if "ada" in record and "gs://marin-eu-west4" in record]
    assert 1 <= len(told) <= 2, "once for each kind of thing, not for each read"


def test_the_location_of_a_bucket_is_asked_once_and_one_that_hides_it_is_elsewhere(
    fs: Any, gcs_server: GcsServer, budget: TransferBudget, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for bucket, location in (("near", "US-CENTRAL2"), ("us", "US"), ("far", "ASIA-EAST1"), ("shy", "us-central2")):
        gcs_server.create_bucket(f"guard-{bucket}", location)
        fs.unguarded.pipe_file(f"guard-{bucket}/a", CONTENT)
    info = fs.unguarded.info

    def shy(path: str, **kwargs: Any) -> Any:
        return {"name": path, "size": 0, "type": "directory"} if path == "guard-shy" else info(path, **kwargs)

    monkeypatch.setattr(fs.unguarded, "info", shy)
    gcs_server.reset_traffic()
    for bucket, used in (("near", 0), ("us", 0), ("far", 2), ("shy", 4)):
        for _ in range(2):
            fs.cat_file(f"guard-{bucket}/a")
        assert budget.bytes_used == used * SIZE
    asked = {name: traffic.requests["buckets.get"] for name, traffic in gcs_server.traffic().items()}
    assert asked == {"guard-near": 1, "guard-us": 1, "guard-far": 1, "guard-shy": 0}
    assert len([text for text in caplog.messages if "guard-shy" in text]) == 1


def test_caches_and_archives(fs: Any, away: str, gcs_server: GcsServer, budget: TransferBudget, tmp_path: Path) -> None:
    for _ in range(2):
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


def test_s3_is_elsewhere_unless_it_is_the_prefix_and_a_stream_costs_the_whole_file_at_once(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, budget: TransferBudget
) -> None:
    fs, path = url_to_fs("s3://marin-s3-one/guard/a")
    fs.pipe_file(path, CONTENT)
    monkeypatch.setenv("MARIN_PREFIX", "s3://marin-s3-two/x")
    fs.cat_file(path)
    assert budget.bytes_used == 0, "no region is known"
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")
    fs.cat_file(path)
    assert budget.bytes_used == SIZE

    async def read() -> bytes:
        fs = filesystem("s3", asynchronous=True, skip_instance_cache=True)
        handle = await fs.open_async(path)
        data: bytes = await handle.read(10)
        await handle.close()
        return data

    assert asyncio.run(read()) == CONTENT[:10]
    assert budget.bytes_used == 2 * SIZE
    with mirror_budget(1 / GB), pytest.raises(TransferBudgetExceeded, match="guard/a"):
        asyncio.run(read())


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
    with pytest.raises(TransferBudgetExceeded):
        CrossRegionGuardedFS(fs=fs.unguarded, budget=own).cat([f"{away}/a", f"{away}/b"])
