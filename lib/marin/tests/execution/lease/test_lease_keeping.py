"""Leases in a run: who may take them over and when, and what a step that lost its lease may still do."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.lease.step_lease import LeaseTerms
from marin.execution.report.events import StepEnd
from marin.execution.run.plan_source import run_tasks
from marin.execution.run.step_task import StepTask
from rigging.distributed_lock import LeaseLostError

SHORT = LeaseTerms(renew_seconds=0.02, timeout_seconds=0.3)


def steal(path: str) -> None:
    """Put a living lease of another machine in the place of whoever holds it."""
    Path(path, ".executor_status.lock").write_text(json.dumps({"worker_id": "thief", "timestamp": time.time()}))


def test_what_runs_elsewhere_is_stopped_when_the_lease_is_lost(tmp_path: Path) -> None:
    stopped = threading.Event()

    def work() -> None:
        steal(str(tmp_path))
        assert stopped.wait(20)
        raise RuntimeError("the job was terminated")

    task = StepTask("a", str(tmp_path), frozenset(), work, stop=stopped.set)
    [result] = run_tasks([task], {}, terms=SHORT)
    assert result.end is StepEnd.LOST
    assert isinstance(result.error, LeaseLostError)
    assert "terminated" in str(result.error.__cause__)


def test_a_lease_that_nobody_renews_is_taken_over_after_its_time(tmp_path: Path) -> None:
    """As after a kill -9 on another machine: the lease file stands still, and that is all there is to see."""
    steal(str(tmp_path))
    StatusFile(str(tmp_path)).write_status(STATUS_RUNNING)
    ran = []
    task = StepTask("a", str(tmp_path), frozenset(), lambda: ran.append(time.monotonic()))
    started = time.monotonic()
    [result] = run_tasks([task], {str(tmp_path): STATUS_RUNNING}, terms=SHORT)
    assert result.end is StepEnd.SUCCEEDED
    assert ran[0] - started >= SHORT.timeout_seconds
    assert StatusFile(str(tmp_path)).status == STATUS_SUCCESS


def test_waiting_for_another_run_takes_no_place(tmp_path: Path) -> None:
    """With one place, a step whose output another run is making does not keep this run from its other steps."""
    other = open_step_lease(str(tmp_path / "shared"), "other")
    assert other.begin(force_run_failed=True)
    tasks = [
        StepTask("shared", str(tmp_path / "shared"), frozenset(), lambda: pytest.fail("ran")),
        StepTask("own", str(tmp_path / "own"), frozenset(), lambda: other.end(STATUS_SUCCESS)),
    ]
    results = run_tasks(tasks, {}, max_concurrent=1)
    assert [result.end for result in results] == [StepEnd.CACHED, StepEnd.SUCCEEDED]


def test_a_status_of_the_older_form_is_replaced(tmp_path: Path) -> None:
    Path(tmp_path, ".executor_status").write_text('{"status": "RUNNING"}\n{"status": "FAILED"}\n')
    lease = open_step_lease(str(tmp_path), "a")
    assert lease.begin(force_run_failed=True)
    lease.end(STATUS_SUCCESS)
    assert Path(tmp_path, ".executor_status").read_text() == "SUCCESS"
