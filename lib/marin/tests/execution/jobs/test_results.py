"""A finished step whose return value cannot be stored is done, and that is said loudly."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from marin.execution import Executor, ExecutorStep, this_output_path, versioned
from marin.execution.jobs.results import keep_result
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.step_lease import LeaseTerms
from rigging.filesystem import read_bytes_or_none
from rigging.testing.faults import Fault, FaultKind
from rigging.testing.s3_server import S3Server
from rigging.testing.shared import shared_s3_server


class BadModel:
    def model_dump(self, mode: str) -> Any:
        raise ZeroDivisionError("model_dump is broken")


class Files:
    """An output path whose disk fails so many times."""

    def __init__(self, failures: list[OSError]) -> None:
        self.failures = failures
        self.content: dict[str, bytes] = {".artifact": b'"older"'}

    def write(self, name: str, content: bytes) -> None:
        if self.failures:
            raise self.failures.pop()
        self.content[name] = content

    def remove(self, name: str) -> None:
        self.content.pop(name, None)


def test_a_disk_that_is_full_for_a_while_is_waited_for_and_said_to_be_full_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = Files([OSError(errno.ENOSPC, "No space left on device")] * 4)
    keep_result(7, "/out", files)
    assert files.content == {".artifact": b"7"}
    [told] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "its return value cannot be stored yet, which is tried for 20 s: the disk of / is full: " in told.message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_what_cannot_be_stored_is_said_and_leaves_no_older_value(number: int, caplog: pytest.LogCaptureFixture) -> None:
    files = Files([OSError(number, os.strerror(number))] * 10_000)
    keep_result(7, "/out", files, patience_seconds=0.3)
    assert "RETURN VALUE IS NOT KEPT" in caplog.text
    assert ("the disk of / is full: " if number == errno.ENOSPC else os.strerror(number)) in caplog.text
    assert files.content == {}


def test_a_model_that_raises_fails_no_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    executor = Executor(str(tmp_path), str(tmp_path / "experiments"))
    step = ExecutorStep(name="a", fn=lambda _: BadModel(), config=this_output_path())
    executor.run([step])
    path = executor.output_paths[step]
    assert StatusFile(path).status == "SUCCESS"
    assert not Path(path, ".artifact").exists()
    assert "RETURN VALUE IS NOT KEPT" in caplog.text
    assert "BadModel cannot be stored as JSON (ZeroDivisionError: model_dump is broken)" in caplog.text


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    server = shared_s3_server()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    yield server
    server.clear_faults()
    fsspec.filesystem("s3").clear_instance_cache()


@pytest.mark.parametrize("times", [4, None])
def test_a_store_that_is_away_for_a_while_fails_no_finished_step(
    server: S3Server, times: int | None, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = f"b{hashlib.md5(request.node.nodeid.encode()).hexdigest()}"
    server.create_bucket(bucket)
    root = f"s3://{bucket}/prefix"
    executor = Executor(root, f"{root}/experiments")
    executor.lease_terms = LeaseTerms(patience_seconds=20 if times else 1)

    def work(_: Any) -> str:
        server.inject(Fault(FaultKind.ERROR, match=r"\.artifact", times=times))
        return "kept"

    step = ExecutorStep(name="a", fn=work, config=versioned(times))
    executor.run([step])
    server.clear_faults()
    path = executor.output_paths[step]
    assert StatusFile(path).status == "SUCCESS"
    assert read_bytes_or_none(f"{path}/.artifact") == (b'"kept"' if times else None)
    assert ("RETURN VALUE IS NOT KEPT" in caplog.text) is (times is None)
