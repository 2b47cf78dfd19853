"""A finished step whose return value cannot be stored is done, and that is said loudly."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep, this_output_path
from marin.execution.jobs.results import keep_result, keep_result_of_job, take_result_of_job
from marin.execution.lease.status_file import StatusFile
from rigging.distributed_lock import LeaseLostError
from rigging.errors import Unavailable


class BadModel:
    def model_dump(self, mode: str) -> Any:
        raise ZeroDivisionError("model_dump is broken")


class Files:
    """An output path whose disk fails so many times."""

    def __init__(self, failures: list[Exception]) -> None:
        self.failures = failures
        self.content: dict[str, bytes] = {".artifact": b'"older"'}

    def write(self, name: str, content: bytes) -> None:
        if self.failures:
            raise self.failures.pop()
        self.content[name] = content

    def remove(self, name: str) -> None:
        self.content.pop(name, None)


def test_a_disk_that_is_full_for_a_while_is_waited_for_and_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    files = Files([OSError(errno.ENOSPC, "No space left on device")] * 2)
    keep_result(7, "/out", files)
    assert files.content[".artifact"] == b"7"
    [told] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "its return value cannot be stored yet; retrying for 20 s: the disk of / is full: " in told.message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "x"), "the disk of / is full: "), (OSError(errno.EROFS, "read-only"), "read-only"),
        (OSError(errno.EACCES, "denied"), "denied"), (Unavailable("no store"), "Unavailable: no store"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_leaves_no_older_value(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files([error] * 10_000)
    keep_result(7, "/out", files, patience_seconds=0.1)
    assert "RETURN VALUE IS NOT STORED" in caplog.text
    assert words in caplog.text
    assert files.content == {}


def test_a_model_that_raises_fails_no_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    executor = Executor(str(tmp_path), str(tmp_path / "experiments"))
    step = ExecutorStep(name="a", fn=lambda _: BadModel(), config=this_output_path())
    executor.run([step])
    path = executor.output_paths[step]
    assert StatusFile(path).status == "SUCCESS"
    assert not Path(path, ".artifact").exists()
    assert "RETURN VALUE IS NOT STORED" in caplog.text
    assert "BadModel cannot be stored as JSON (ZeroDivisionError: model_dump is broken)" in caplog.text


class LostFiles:
    """An output path that another has by now."""

    def write(self, name: str, content: bytes = b"") -> None:
        raise LeaseLostError("another has it")

    remove = write


def test_a_value_of_a_step_that_was_lost_is_left_for_who_adopted_the_job_and_outside_of_a_job_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IRIS_JOB_ID", raising=False)
    with pytest.raises(LeaseLostError):
        keep_result_of_job(7, str(tmp_path), LostFiles())
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("IRIS_JOB_ID", "job-1")
    keep_result_of_job(7, str(tmp_path), LostFiles())
    with pytest.raises(LeaseLostError, match="another has it"):
        take_result_of_job(str(tmp_path), "job-1", LostFiles())
    take_result_of_job(str(tmp_path), "job-2", LostFiles())
