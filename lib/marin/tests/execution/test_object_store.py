"""Runs on an object store, by requests counted at a server: few, and safe against whoever took the lease over."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest

from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.executor_step_status import STATUS_FAILED, STATUS_SUCCESS, StatusFile
from marin.execution.runner import Outcome
from marin.execution.standing import read_statuses
from marin.execution.step_lease import LeaseTerms, open_step_lease
from rigging.distributed_lock import LeaseLostError
from rigging.errors import StepFailed
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.testing.faults import Fault, FaultKind
from rigging.testing.gcs_server import GcsServer

pytestmark = pytest.mark.e2e

MakeStep = Callable[..., ExecutorStep[Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[GcsServer]:
    with GcsServer() as server:
        before = dict(os.environ)
        os.environ.update(server.environment())
        fsspec.filesystem("gs").clear_instance_cache()
        yield server
        fsspec.filesystem("gs").clear_instance_cache()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def root(server: GcsServer, request: pytest.FixtureRequest) -> str:
    """A prefix of this test's own, in a bucket of its own whose requests are counted from zero."""
    bucket = f"b{abs(hash(request.node.nodeid))}"
    server.create_bucket(bucket)
    server.clear_faults()
    server.reset_traffic()
    return f"gs://{bucket}/prefix"


def requests(server: GcsServer) -> Counter[str]:
    return sum((traffic.requests for traffic in server.traffic().values()), Counter())


def run(root: str, steps: list[ExecutorStep[Any]], **options: Any) -> Executor:
    executor = Executor(root, f"{root}/experiments")
    executor.observers = []
    executor.run(steps, **options)
    return executor


def test_a_step_takes_six_requests_and_a_cached_one_at_most_one(
    server: GcsServer, root: str, make_step: MakeStep
) -> None:
    steps = [make_step(f"all/s{index}", versioned(index)) for index in range(30)]
    run(root, steps[:1])  # what is asked once in a process, such as for credentials
    server.reset_traffic()
    run(root, steps[1:])
    first = requests(server)
    per_run = 2  # one listing, one file about the run
    assert first.total() <= 6 * 29 + per_run, first
    server.reset_traffic()
    executor = run(root, steps)
    assert {result.outcome for result in executor.results} == {Outcome.ALREADY_DONE}
    assert requests(server).total() <= per_run, requests(server)


def test_a_thousand_statuses_take_few_requests(server: GcsServer, root: str) -> None:
    paths = [f"{root}/all/s{index:04}-abcdef" for index in range(1000)]
    fs = fsspec.filesystem("gs")
    fs.pipe({f"{path}/.executor_status"[5:]: b"SUCCESS" for path in paths[::2]})
    fs.pipe({f"{path}/.executor_info"[5:]: b"{}" for path in paths[::2]})
    server.reset_traffic()
    statuses = read_statuses(paths)
    assert statuses == {path: STATUS_SUCCESS if index % 2 == 0 else None for index, path in enumerate(paths)}
    assert requests(server).total() <= 20, requests(server)


def test_statuses_among_many_other_files_are_right(server: GcsServer, root: str) -> None:
    """A listing that would be long is cut, and what it did not reach is asked for one by one."""
    paths = [f"{root}/all/s{index}-abcdef" for index in range(4)]
    fs = fsspec.filesystem("gs")
    fs.pipe({f"{paths[1]}/shard-{index}"[5:]: b"x" for index in range(1200)})
    words = [b"SUCCESS", b"FAILED", b'{"status": "RUNNING"}\n{"status": "SUCCESS"}\n', b"RUNNING"]
    fs.pipe({f"{path}/.executor_status"[5:]: word for path, word in zip(paths, words, strict=True)})
    assert list(read_statuses(paths).values()) == ["SUCCESS", "FAILED", "SUCCESS", "RUNNING"]


def test_what_failed_runs_again(server: GcsServer, root: str, make_step: MakeStep) -> None:
    broken = [True]

    def sometimes(_: Any) -> None:
        if broken[0]:
            raise ValueError("bad luck")

    step = make_step("a", fn=sometimes)
    executor = Executor(root, f"{root}/experiments")
    with pytest.raises(StepFailed, match="bad luck"):
        executor.run([step])
    path = executor.output_paths[step]
    assert StatusFile(path).status == STATUS_FAILED
    assert read_bytes_or_none(f"{path}/.executor_status.lock") is None
    broken[0] = False
    run(root, [step])
    assert StatusFile(path).status == STATUS_SUCCESS


def test_a_late_attempt_cannot_write_over_its_successor(server: GcsServer, root: str) -> None:
    path = f"{root}/out"
    first, second = (open_step_lease(path, name, LeaseTerms(0.02, 0.05)) for name in ("first", "second"))
    assert first.begin(force_run_failed=True)
    assert not second.begin(force_run_failed=True)
    ends = time.monotonic() + 20
    while not second.is_free() and time.monotonic() < ends:
        time.sleep(0.01)
    assert second.begin(force_run_failed=True)
    with pytest.raises(LeaseLostError):
        first.end(STATUS_SUCCESS)
    assert StatusFile(path).status == "RUNNING"
    assert StatusFile(path).has_active_lock()
    second.end(STATUS_SUCCESS)
    assert StatusFile(path).status == STATUS_SUCCESS
    assert not StatusFile(path).has_active_lock()


def test_the_locks_of_older_readers_are_respected(server: GcsServer, root: str) -> None:
    """The lock is the same file with the same content as that of `rigging.distributed_lock`."""
    path = f"{root}/out"
    lease = open_step_lease(path, "n")
    other = StatusFile(path, "another")
    assert other.try_acquire_lock()
    assert not lease.begin(force_run_failed=True)
    other.release_lock()
    assert lease.begin(force_run_failed=True)
    assert not other.try_acquire_lock()
    content = json.loads(read_bytes_or_none(f"{path}/.executor_status.lock") or b"")
    assert set(content) == {"worker_id", "timestamp"}
    lease.renew()
    lease.end(STATUS_SUCCESS)
    assert other.try_acquire_lock()


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP, FaultKind.ERROR])
def test_answers_that_get_lost_do_no_harm(server: GcsServer, root: str, kind: FaultKind) -> None:
    path = f"{root}/out"
    lease = open_step_lease(path, "n")
    server.inject(Fault(kind, match="^(POST|DELETE)", probability=0.5))
    assert lease.begin(force_run_failed=True)
    lease.renew()
    lease.end(STATUS_SUCCESS)
    server.clear_faults()
    assert StatusFile(path).status == STATUS_SUCCESS
    assert read_bytes_or_none(f"{path}/.executor_status.lock") is None


def test_another_version_at_the_path_is_found(server: GcsServer, root: str, make_step: MakeStep) -> None:
    step = make_step("a", versioned(1))
    executor = run(root, [step])
    info = f"{executor.output_paths[step]}/.executor_info"
    there = json.loads(read_bytes_or_none(info) or b"")
    there["version"]["config"] = {"x": 2}
    write_bytes_atomic(info, json.dumps(there).encode())
    with pytest.raises(RuntimeError, match=r"holds another version: step 'a' \(config \{'x': 2\}\)"):
        run(root, [step])
