"""Functions of an output path under its lock."""

from pathlib import Path

import pytest

from marin.execution.lease.status_file import PreviousTaskFailedError, StatusFile, StepAlreadyDone, distributed_lock
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS


def test_it_runs_once_under_a_true_status(tmp_path: Path) -> None:
    seen: list[object] = []

    @distributed_lock
    def make(output_path: str, n: int) -> int:
        status = StatusFile(output_path)
        seen.append((n, status.status, status.has_active_lock()))
        return n + 1

    path = str(tmp_path / "out")
    assert make(path, 3) == 4
    assert StatusFile(path).status == STATUS_SUCCESS
    assert not StatusFile(path).has_active_lock()
    with pytest.raises(StepAlreadyDone):
        make(path, 4)
    assert seen == [(3, STATUS_RUNNING, True)]


def test_what_failed_is_tried_again_unless_told_otherwise(tmp_path: Path) -> None:
    path = str(tmp_path / "out")

    def fail(output_path: str) -> None:
        raise ValueError("bad")

    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            distributed_lock(fail)(path)
    assert StatusFile(path).status == STATUS_FAILED
    with pytest.raises(PreviousTaskFailedError, match="failed previously"):
        distributed_lock(force_run_failed=False)(fail)(path)
