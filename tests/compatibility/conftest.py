"""What older calls are tried on: storage of their own, and no cluster but their own."""

import os
from collections.abc import Iterator

import pytest

from rigging.filesystem.bucket_location import BUCKET_LOCATIONS
from rigging.filesystem.region import forget_metadata
from rigging.testing.gcs_server import GcsServer
from rigging.testing.s3_server import S3Server
from rigging.testing.shared import shared_gcs_server, shared_s3_server

# gcsfs reads it when it is imported; else it asks a Google service about each bucket for a minute.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

OF_A_PLACE = ("MARIN_PREFIX", "GCE_METADATA_HOST", "MARIN_I_WILL_PAY_FOR_ALL_FEES", "MARIN_MIRROR_BUDGET_GB")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests see neither this machine's prefix nor its region."""
    for name in OF_A_PLACE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("rigging.filesystem.region.may_be_gcp", lambda environ: False)
    forget_metadata()
    BUCKET_LOCATIONS.forget()
    yield
    forget_metadata()
    BUCKET_LOCATIONS.forget()


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch, tmp_path) -> str:
    """A storage root of the test's own."""
    root = str(tmp_path / "prefix")
    monkeypatch.setenv("MARIN_PREFIX", root)
    return root


@pytest.fixture
def in_us_central2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs in this region."""
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")


@pytest.fixture(scope="session")
def gcs_process() -> GcsServer:
    server = shared_gcs_server()
    server.create_bucket("old-us-central2", "us-central2")
    server.create_bucket("old-eu-west4", "europe-west4")
    return server


@pytest.fixture(scope="session")
def s3_process() -> S3Server:
    server = shared_s3_server()
    server.create_bucket("old-s3")
    return server


@pytest.fixture
def gcs_server(gcs_process: GcsServer, monkeypatch: pytest.MonkeyPatch) -> GcsServer:
    """What gs:// URLs reach; it has the buckets old-us-central2 and old-eu-west4, in these regions."""
    for name, value in gcs_process.environment().items():
        monkeypatch.setenv(name, value)
    return gcs_process


@pytest.fixture
def s3_server(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """What s3:// URLs reach; it has the bucket old-s3."""
    for name, value in s3_process.environment().items():
        monkeypatch.setenv(name, value)
    return s3_process
