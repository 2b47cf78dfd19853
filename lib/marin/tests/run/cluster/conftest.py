"""Fixtures for the operation of clusters, with a fake `ray` program that records its calls."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from marin.run import connection
from marin.run.cluster.cli import context
from marin.run.cluster.jobs.unpacking import JOB_PREFIX
from marin.run.cluster.nodes.google import GoogleNodes
from support.google.server import GoogleServer
from support.marin.fake_ray import FakeRay
from support.marin.jobs_server import Job, JobsServer

INFRA = Path(__file__).parents[5] / "infra"


@pytest.fixture
def gcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleServer]:
    with GoogleServer() as server:

        def nodes(provider: Mapping[str, Any]) -> GoogleNodes:
            token = {"type": "credentials_token", "credentials": "t"}
            return GoogleNodes({**provider, "gcp_credentials": token}, endpoint=server.address)

        monkeypatch.setattr(context, "GoogleNodes", nodes)
        yield server


@pytest.fixture
def ray(
    tmp_path: Path, project: Path, server: JobsServer, gcp: GoogleServer, monkeypatch: pytest.MonkeyPatch
) -> FakeRay:
    """A project with the files of infra/ and a running cluster. `ray` is the fake program."""
    home = tmp_path / "ray"
    (home / "head" / ".ray").mkdir(parents=True)
    (home / "head" / ".ray" / "auth_token").write_text("secret-of-the-head\n")
    fake = FakeRay(home)
    program = fake.write_program()
    which = shutil.which

    def find(name: str, path: str | None = None) -> str | None:
        return str(program) if name == "ray" else which(name, path=path)

    monkeypatch.setattr(connection.shutil, "which", find)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    shutil.copytree(INFRA, project / "infra")
    server.on_submit = _end_unpacking
    fake.set(jobs_port=int(server.address.rpartition(":")[2]))
    return fake


def _end_unpacking(job: Job) -> None:
    if job.body["submission_id"].startswith(JOB_PREFIX):
        job.end("SUCCEEDED", 0)
