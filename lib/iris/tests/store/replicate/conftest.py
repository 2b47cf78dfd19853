import os
from contextlib import closing
from pathlib import Path

import pytest

from iris.store.records import Stored
from iris.store.store import Store
from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server
from support.rigging.shared import shared_gcs_server, shared_s3_server


def loaded(state_dir: Path) -> Stored:
    with closing(Store.open(state_dir)) as store:
        return store.load()


def job_ids(state_dir: Path) -> list[str]:
    return [job.job_id for job in loaded(state_dir).jobs]


# gcsfs reads it when it is imported, by whichever test; else it asks a Google service about each bucket for a minute.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"


@pytest.fixture(scope="session")
def gcs_process() -> GcsServer:
    server = shared_gcs_server()
    server.create_bucket("state-gcs", "us-central2")
    return server


@pytest.fixture(scope="session")
def s3_process() -> S3Server:
    server = shared_s3_server()
    server.create_bucket("state-s3")
    return server


@pytest.fixture
def remote_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A remote state directory on the storage of the test's parameter: file, gcs or s3."""
    if request.param == "file":
        return f"file://{tmp_path}/remote"
    server = request.getfixturevalue(f"{request.param}_process")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    server.clear_faults()
    return f"{'gs' if request.param == 'gcs' else 's3'}://state-{request.param}/{tmp_path.name}"
