"""Runs on an object store, by requests counted at a server: few, and safe against whoever took the lease over."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.lease.step_lease import LeaseTerms
from marin.execution.record.output_state import read_statuses
from marin.execution.remote import remote
from marin.execution.report.event_log import EventLog
from marin.execution.report.events import StepEnd
from rigging.distributed_lock import LeaseLostError
from rigging.errors import StepFailed
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.testing import eventually
from rigging.testing.faults import Fault, FaultKind
from rigging.testing.gcs_server import GcsServer
from rigging.testing.s3_server import S3Server
from rigging.testing.shared import shared_gcs_server, shared_s3_server

pytestmark = pytest.mark.e2e

MakeStep = Callable[..., ExecutorStep[Any]]


Server = GcsServer | S3Server
PROTOCOLS = {GcsServer: "gs", S3Server: "s3"}


@pytest.fixture(scope="module", params=[shared_gcs_server, shared_s3_server])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server: Server = request.param()
    protocol = PROTOCOLS[type(server)]
    before = dict(os.environ)
    os.environ.update(server.environment())
    fsspec.filesystem(protocol).clear_instance_cache()
    yield server
    fsspec.filesystem(protocol).clear_instance_cache()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def root(server: Server, request: pytest.FixtureRequest) -> str:
    """A prefix of this test's own, in a bucket of its own whose requests are counted from zero."""
    bucket = f"b{hashlib.md5(request.node.nodeid.encode()).hexdigest()}"
    server.create_bucket(bucket)
    server.clear_faults()
    server.reset_traffic()
    return f"{PROTOCOLS[type(server)]}://{bucket}/prefix"


def put(files: dict[str, bytes]) -> None:
    [protocol] = {path.partition("://")[0] for path in files}
    fsspec.filesystem(protocol).pipe({path.partition("://")[2]: content for path, content in files.items()})


def elsewhere(renew_seconds: float, timeout_seconds: float) -> LeaseTerms:
    """Terms of a machine of which nothing but its leases can be seen."""
    return LeaseTerms(renew_seconds, timeout_seconds, new_id=lambda: f"elsewhere-{os.urandom(6).hex()}")


def requests(server: Server) -> Counter[str]:
    return sum((traffic.requests for traffic in server.traffic().values()), Counter())


def run(root: str, steps: list[ExecutorStep[Any]], **options: Any) -> Executor:
    executor = Executor(root, f"{root}/experiments")
    executor.observers = []
    executor.run(steps, **options)
    return executor


def test_a_step_takes_six_requests_and_a_cached_one_none(server: Server, root: str, make_step: MakeStep) -> None:
    steps = [make_step(f"all/s{index}", versioned(index)) for index in range(30)]
    run(root, steps[:1])  # what is asked once in a process, such as for credentials
    server.reset_traffic()
    run(root, steps[1:])
    first = requests(server)
    per_run = 2  # one listing; one file about the run
    assert first.total() <= 6 * 29 + per_run, first
    server.reset_traffic()
    executor = run(root, steps)
    assert {result.end for result in executor.results} == {StepEnd.CACHED}
    assert requests(server).total() <= per_run, requests(server)  # of a cached step the listing is all


def test_a_step_that_prints_takes_at_most_eight_requests_with_all_that_a_run_records(
    server: Server, root: str, make_step: MakeStep, capsys: pytest.CaptureFixture[str]
) -> None:
    def fn(config: Any) -> int:
        print("step", config.x)
        return config.x

    count = 20

    def run_all(numbers: range) -> Executor:
        executor = Executor(root, f"{root}/experiments")  # with the observers that a script has
        executor.run([make_step(f"all/s{index}", versioned(index), fn=fn) for index in numbers])
        return executor

    run_all(range(1))  # what is asked once in a process, and of an empty prefix
    server.reset_traffic()
    executor = run_all(range(1, count + 1))
    of_run = 2  # its info file and its event log
    assert requests(server).total() <= 8 * count + of_run, requests(server)
    for step, path in executor.output_paths.items():
        assert (read_bytes_or_none(f"{path}/.log") or b"").endswith(f"step {step.config.x.value}\n".encode())
        assert read_bytes_or_none(f"{path}/.artifact") == str(step.config.x.value).encode()
    assert executor.executor_info_path is not None
    assert "step 3" in capsys.readouterr().out


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_step_that_is_a_job_and_prints_takes_at_most_eight_requests(
    server: Server, root: str, make_step: MakeStep, monkeypatch: pytest.MonkeyPatch, processes: bool
) -> None:
    """Lock, RUNNING, info file, a look at the lock, value, log, SUCCESS, unlock: the run reads nothing of the job's."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # each process would look for a metadata server for seconds

    def fn(config: Any) -> int:
        print("step", config.x)
        return int(config.x)

    def run_all(numbers: range) -> Executor:
        executor = Executor(root, f"{root}/experiments")  # with the observers that a script has
        with LocalClient(processes=processes) as client, set_current_client(client):
            executor.run([make_step(f"all/s{index}", versioned(index), fn=remote(fn)) for index in numbers])
        return executor

    count = 4
    run_all(range(1))  # what is asked once in a process, and of an empty prefix
    server.reset_traffic()
    executor = run_all(range(1, count + 1))
    of_run = 3  # its info file and its event log; which outputs are there
    assert requests(server).total() <= 8 * count + of_run, requests(server)
    for step, path in executor.output_paths.items():
        assert f"step {step.config.x.value}\n" in (read_bytes_or_none(f"{path}/.log") or b"").decode()
        assert read_bytes_or_none(f"{path}/.artifact") == str(step.config.x.value).encode()


def test_steps_wait_for_a_slow_store_side_by_side(server: Server, root: str, make_step: MakeStep) -> None:
    server.inject(Fault(FaultKind.LATENCY, seconds=0.05))
    threads: set[int] = set()
    steps = [
        make_step(f"s{index}", versioned(index), fn=lambda _: threads.add(threading.get_ident())) for index in range(24)
    ]
    run(root, steps)
    assert len(threads) >= 8


def test_a_thousand_statuses_take_few_requests(server: Server, root: str) -> None:
    count = 1000
    paths = [f"{root}/all/s{index:04}-abcdef" for index in range(count)]
    put({f"{path}/.executor_status": b"SUCCESS" for path in paths[::2]})
    put({f"{path}/.executor_info": b"{}" for path in paths[::2]})
    server.reset_traffic()
    statuses = read_statuses(paths)
    assert statuses == {path: STATUS_SUCCESS if index % 2 == 0 else None for index, path in enumerate(paths)}
    assert requests(server).total() <= 20, requests(server)


def test_statuses_among_many_other_files_are_right(server: Server, root: str) -> None:
    """A listing that would be long is cut, and what it did not reach is asked for one by one."""
    paths = [f"{root}/all/s{index}-abcdef" for index in range(4)]
    put({f"{paths[1]}/shard-{index}": b"x" for index in range(1200)})
    words = [b"SUCCESS", b"FAILED", b'{"status": "RUNNING"}\n{"status": "SUCCESS"}\n', b"RUNNING"]
    put({f"{path}/.executor_status": word for path, word in zip(paths, words, strict=True)})
    assert list(read_statuses(paths).values()) == ["SUCCESS", "FAILED", "SUCCESS", "RUNNING"]


def test_what_failed_runs_again(server: Server, root: str, make_step: MakeStep) -> None:
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


def test_a_late_attempt_cannot_write_over_its_successor(server: Server, root: str) -> None:
    path = f"{root}/out"
    first, second = (open_step_lease(path, name, elsewhere(0.02, 0.05)) for name in ("first", "second"))
    assert first.begin(force_run_failed=True)
    assert not second.begin(force_run_failed=True)
    eventually(second.is_free, "the first one's lease runs out")
    assert second.begin(force_run_failed=True)
    with pytest.raises(LeaseLostError):
        first.end(STATUS_SUCCESS)
    assert StatusFile(path).status == "RUNNING"
    assert StatusFile(path).has_active_lock()
    second.end(STATUS_SUCCESS)
    assert StatusFile(path).status == STATUS_SUCCESS
    assert not StatusFile(path).has_active_lock()


def test_a_last_word_that_came_too_late_is_taken_back(
    server: Server, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is held up between its last look at the lock and its last word."""
    path = f"{root}/out"
    first, second = (open_step_lease(path, name, elsewhere(0.2, 0.5)) for name in ("first", "second"))
    assert first.begin(force_run_failed=True)
    assert not second.begin(force_run_failed=True)
    eventually(second.is_free, "the first one's lease runs out")
    assert second.begin(force_run_failed=True)
    monkeypatch.setattr(first, "seconds_left", lambda: 0.5)
    with pytest.raises(LeaseLostError):
        first.end(STATUS_SUCCESS)
    assert StatusFile(path).status == "RUNNING"
    second.end(STATUS_SUCCESS)
    assert StatusFile(path).status == STATUS_SUCCESS


def test_the_locks_of_older_readers_are_respected(server: Server, root: str) -> None:
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
def test_answers_that_get_lost_do_no_harm(server: Server, root: str, kind: FaultKind) -> None:
    path = f"{root}/out"
    lease = open_step_lease(path, "n")
    server.inject(Fault(kind, match="^(POST|PUT|DELETE)", probability=0.5))
    assert lease.begin(force_run_failed=True)
    lease.renew()
    lease.end(STATUS_SUCCESS)
    server.clear_faults()
    assert StatusFile(path).status == STATUS_SUCCESS
    assert read_bytes_or_none(f"{path}/.executor_status.lock") is None


def test_another_version_at_the_path_is_found(server: Server, root: str, make_step: MakeStep) -> None:
    step = make_step("a", versioned(1))
    executor = run(root, [step])
    info = f"{executor.output_paths[step]}/.executor_info"
    there = json.loads(read_bytes_or_none(info) or b"")
    there["version"]["config"] = {"x": 2}
    write_bytes_atomic(info, json.dumps(there).encode())
    with pytest.raises(RuntimeError, match=r"holds another version: step 'a' \(config \{'x': 2\}\)"):
        run(root, [step])


def test_the_events_of_a_run_are_beside_its_info_file(server: Server, root: str, make_step: MakeStep) -> None:
    executor = Executor(root, f"{root}/experiments")
    log = EventLog(upload_seconds=0.01)  # so that the file is written again while the run goes on
    executor.observers = [log]
    executor.run([make_step("b", make_step("a", versioned(1)))])
    assert executor.executor_info_path is not None
    assert log.path is not None
    assert log.path.startswith(executor.executor_info_path.removesuffix(".json") + "-")
    events = [json.loads(line) for line in (read_bytes_or_none(log.path) or b"").splitlines()]
    assert [(event["event"], event.get("name")) for event in events] == [
        ("run_started", None),
        ("step_queued", "a"),
        ("step_queued", "b"),
        ("step_started", "a"),
        ("step_ended", "a"),
        ("step_started", "b"),
        ("step_ended", "b"),
        ("run_ended", None),
    ]


def test_many_leases_at_once_keep_their_connections(
    server: Server, root: str, make_step: MakeStep, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run(root, [make_step(f"s{index}", versioned(index)) for index in range(200)])
    assert "onnection pool is full" not in caplog.text


def test_a_dead_machines_lease_is_taken_over_after_its_time(server: Server, root: str, make_step: MakeStep) -> None:
    """The lease of a process that died stands still; whoever waits sees that, whatever its timestamp says."""
    step = make_step("a", versioned(1))
    executor = Executor(root, f"{root}/experiments")
    executor.observers = []
    executor.lease_terms = terms = elsewhere(0.05, 0.4)
    executor.compute_version(step)
    path = executor.output_paths[step]
    assert open_step_lease(path, "the dead one", terms).begin(force_run_failed=True)
    started = time.monotonic()
    executor.run([step])
    assert [result.end for result in executor.results] == [StepEnd.SUCCEEDED]
    assert time.monotonic() - started >= terms.timeout_seconds
    assert StatusFile(path).status == STATUS_SUCCESS


def test_a_run_killed_on_this_machine_is_followed_at_once(server: Server, root: str, make_step: MakeStep) -> None:
    """As on a local disk: that its process has ended can be seen, so nobody waits for its lease to run out."""
    step = make_step("a", versioned(1))
    executor = Executor(root, f"{root}/experiments")
    executor.observers = []
    executor.compute_version(step)
    path = executor.output_paths[step]
    program = (
        "from marin.execution.lease.opening import open_step_lease\n"
        f"assert open_step_lease({path!r}, 'x').begin(force_run_failed=True)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert StatusFile(path).status == STATUS_RUNNING
    started = time.monotonic()
    executor.run([step])
    assert [result.end for result in executor.results] == [StepEnd.SUCCEEDED]
    assert time.monotonic() - started < executor.lease_terms.timeout_seconds / 3
    assert StatusFile(path).status == STATUS_SUCCESS
