"""Fixtures of servers for gs:// and s3:// URLs, to import in a conftest.py."""

import os
from collections.abc import Iterator
from typing import TypeVar

import pytest

from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server
from support.rigging.serving import TestServer
from support.rigging.shared import shared_gcs_server, shared_s3_server

# gcsfs reads it when it is imported, by whichever test; else it asks a Google service about each bucket for a minute.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

Server = TypeVar("Server", bound=TestServer)


@pytest.fixture(scope="session")
def gcs_process() -> GcsServer:
    server = shared_gcs_server()
    server.create_bucket("marin-us-central2", "us-central2")
    server.create_bucket("marin-eu-west4", "europe-west4")
    return server


@pytest.fixture(scope="session")
def s3_process() -> S3Server:
    server = shared_s3_server()
    server.create_bucket("marin-s3-one")
    server.create_bucket("marin-s3-two")
    return server


@pytest.fixture
def gcs_server(gcs_process: GcsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    """The GCS server of gs:// URLs, with buckets marin-us-central2 and marin-eu-west4 in these regions.

    It serves the whole session: use unique names (tmp_path.name) below the buckets.
    """
    yield from _as_configured(gcs_process, gcs_process.environment(), monkeypatch)


@pytest.fixture
def s3_server(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The S3 server of s3:// URLs, with buckets marin-s3-one and marin-s3-two, shared like `gcs_server`."""
    yield from _as_configured(s3_process, s3_process.environment(), monkeypatch)


def _as_configured(server: Server, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server.clear_faults()
    server.reset_traffic()
    yield server
    server.clear_faults()
