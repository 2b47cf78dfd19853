"""Logs of steps that run as jobs, in a bucket, where nothing can be appended to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from marin.cli.main import run as run_command
from marin.execution.lease.fencing import LeaseToken
from marin.execution.log.job_files import JobLogFiles
from marin.execution.log.sections import Section
from rigging.filesystem import read_bytes_or_none
from support.rigging.shared import shared_gcs_server

pytestmark = pytest.mark.process


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    server = shared_gcs_server()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    # Each process would look for a metadata server for seconds.
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    fsspec.filesystem("gs").clear_instance_cache()
    name = f"logs-{os.urandom(6).hex()}"
    server.create_bucket(name)
    server.reset_traffic()
    yield f"gs://{name}/p"
    fsspec.filesystem("gs").clear_instance_cache()


def text(path: str, name: str = ".log") -> str:
    return (read_bytes_or_none(f"{path}/{name}") or b"").decode()


def test_a_job_whose_run_lost_the_lease_writes_beside_the_log(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What another run writes in `.log` stays; the command shows both."""
    fs = fsspec.filesystem("gs")
    path = f"{bucket}/a-000001"
    fs.pipe_file(f"{path}/.executor_status", b"RUNNING")
    fs.pipe_file(f"{path}/.executor_status.lock", b'{"worker_id": "another", "timestamp": 1}')
    section = Section("=== attempt 1, 2026-01-01T00:00:00.000+00:00, host, process 7 of its job")
    for is_fresh in (True, False):  # while it has the lease, it writes the log itself
        held = JobLogFiles(path, section, is_fresh, LeaseToken(path, "another")).open(".log")
        held.write(f"fresh {is_fresh}\n".encode())
        held.close(keep=True)
    assert text(path) == "fresh True\nfresh False\n"
    fs.pipe_file(f"{path}/.log", b"another's\n")
    files = JobLogFiles(path, section, False, LeaseToken(path, "mine"))
    file = files.open(".log")
    file.write(f"{section.opening}\nmine\n".encode())
    file.close(keep=True)
    assert text(path) == "another's\n"
    assert files.read() == f"another's\n{section.opening}\nmine\n"
    assert run_command(["logs", path]) == 0
    assert capsys.readouterr().out == f"another's\n{section.opening}\nmine\n"
