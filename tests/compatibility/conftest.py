"""Fixtures for tests of older calls: separate storage and a separate cluster."""

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from iris.client import IrisClient
from iris.client.connection.discovery import local_cluster
from iris.local.start import LocalCluster
from iris.local.state import STATE_DIR_ENV, LocalPaths
from iris.local.stop import kill_cluster
from rigging.filesystem.bucket_location import BUCKET_LOCATIONS
from rigging.filesystem.region import forget_metadata
from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server
from support.rigging.shared import shared_gcs_server, shared_s3_server

# gcsfs reads it when it is imported; else it asks a Google service about each bucket for a minute.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

OF_A_PLACE = ("MARIN_PREFIX", "GCE_METADATA_HOST", "MARIN_I_WILL_PAY_FOR_ALL_FEES", "MARIN_MIRROR_BUDGET_GB")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide this machine's prefix and region from tests."""
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
    """A storage root for the test."""
    root = str(tmp_path / "prefix")
    monkeypatch.setenv("MARIN_PREFIX", root)
    return root


@pytest.fixture
def in_us_central2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the program run in this region."""
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
    """The server of gs:// URLs, with the buckets old-us-central2 and old-eu-west4 in these regions."""
    for name, value in gcs_process.environment().items():
        monkeypatch.setenv(name, value)
    return gcs_process


@pytest.fixture
def s3_server(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server of s3:// URLs, with the bucket old-s3."""
    for name, value in s3_process.environment().items():
        monkeypatch.setenv(name, value)
    return s3_process


@pytest.fixture(scope="session")
def iris_paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPaths]:
    """The paths of a local cluster for these tests."""
    paths = LocalPaths(tmp_path_factory.mktemp("iris"))
    yield paths
    kill_cluster(paths)


@pytest.fixture(scope="session")
def iris_client(iris_paths: LocalPaths) -> Iterator[IrisClient]:
    """A client of that cluster."""
    with IrisClient.of(local_cluster(LocalCluster(iris_paths)), inherit_workspace=False) as made:
        yield made


@pytest.fixture
def users_cluster(iris_paths: LocalPaths, iris_client: IrisClient, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of that cluster, owned by this user, so that clients find its token."""
    iris_client.list_jobs()
    monkeypatch.setenv(STATE_DIR_ENV, str(iris_paths.root))
    return iris_client.address


@pytest.fixture(scope="session")
def data_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The data library of `data_library/`, imported from a user's folder like the user's own code."""
    folder = tmp_path_factory.mktemp("user") / "code"
    source = Path(__file__).parent / "data_library"
    shutil.copytree(source, folder / "data_library", ignore=shutil.ignore_patterns("__pycache__"))
    sys.path.insert(0, str(folder))
    yield importlib.import_module("data_library")
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "data_library"]:
        del sys.modules[name]
