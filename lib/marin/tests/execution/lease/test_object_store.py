"""Runs on an object store, by requests counted at a server: few, and safe against whoever took the lease over."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.record.output_state import read_statuses
from marin.execution.remote import remote
from marin.execution.report.events import StepEnd
from rigging.filesystem import read_bytes_or_none
from support.marin.steps import MakeStep
from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server
from support.rigging.shared import shared_gcs_server, shared_s3_server

pytestmark = pytest.mark.process


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


def requests(server: Server) -> Counter[str]:
    return sum((traffic.requests for traffic in server.traffic().values()), Counter())


def run(root: str, steps: list[ExecutorStep[Any]]) -> Executor:
    executor = Executor(root, f"{root}/experiments")
    executor.observers = []
    executor.run(steps)
    return executor


def speak(config: Any) -> int:
    print("step", config.x)
    return int(config.x)


AS_JOBS = pytest.param("processes", marks=pytest.mark.soak)


@pytest.mark.parametrize("where", ["here", "in-process", AS_JOBS])
def test_a_step_that_prints_takes_at_most_eight_requests_with_all_that_a_run_records(
    server: Server, root: str, make_step: MakeStep, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Lock, RUNNING, info file, a look at the lock, value, log, SUCCESS, unlock: the run reads nothing of a job's."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # each process would look for a metadata server for seconds
    fn, count = speak if where == "here" else remote(speak), 4

    def run_all(numbers: range) -> Executor:
        executor = Executor(root, f"{root}/experiments")  # with the observers that a script has
        with LocalClient(processes=where == "processes") as client, set_current_client(client):
            executor.run([make_step(f"all/s{index}", versioned(index), fn=fn) for index in numbers])
        return executor

    run_all(range(1))  # what is asked once in a process, and of an empty prefix
    server.reset_traffic()
    executor = run_all(range(1, count + 1))
    # Its info file and its event log; which outputs are there; its code, changes and packages, each looked for first.
    of_run = 9
    assert requests(server).total() <= 8 * count + of_run, requests(server)
    for step, path in executor.output_paths.items():
        assert f"step {step.config.x.value}\n" in (read_bytes_or_none(f"{path}/.log") or b"").decode()
        assert read_bytes_or_none(f"{path}/.artifact") == str(step.config.x.value).encode()
    logs = fsspec.filesystem(root.partition(":")[0]).glob(f"{root}/experiments/*.events.jsonl", refresh=True)
    ends = [
        json.loads((read_bytes_or_none(f"{root.partition('/')[0]}//{log}") or b"").splitlines()[-1]) for log in logs
    ]
    assert [end["event"] for end in ends] == ["run_ended"] * 2


def test_a_step_takes_six_requests_and_one_for_each_input_and_a_cached_one_none(
    server: Server, root: str, make_step: MakeStep
) -> None:
    steps = [make_step(f"all/s{index}", versioned(index)) for index in range(30)]
    run(root, steps[:1])  # what is asked once in a process, such as for credentials
    server.reset_traffic()
    run(root, steps[1:])
    per_run = 2  # one listing; one file about the run
    assert requests(server).total() <= 6 * 29 + per_run, requests(server)
    server.reset_traffic()
    executor = run(root, steps)
    assert {result.end for result in executor.results} == {StepEnd.CACHED}
    assert requests(server).total() <= per_run, requests(server)  # of a cached step the listing is all
    server.reset_traffic()
    run(root, [make_step("all/sum", steps[:3])])
    assert requests(server).total() <= 6 + 3 + per_run, requests(server)


def test_a_thousand_statuses_take_few_requests(server: Server, root: str) -> None:
    paths = [f"{root}/all/s{index:04}-abcdef" for index in range(1000)]
    put({f"{path}/.executor_status": b"SUCCESS" for path in paths[::2]})
    put({f"{path}/.executor_info": b"{}" for path in paths[::2]})
    server.reset_traffic()
    statuses = read_statuses(paths)
    assert statuses == {path: STATUS_SUCCESS if index % 2 == 0 else None for index, path in enumerate(paths)}
    assert requests(server).total() <= 20, requests(server)
    # A listing that would be long is cut, and what it did not reach is asked for one by one.
    paths = [f"{root}/more/s{index}-abcdef" for index in range(4)]
    put({f"{paths[1]}/shard-{index}": b"x" for index in range(1200)})
    words = [b"SUCCESS", b"FAILED", b'{"status": "RUNNING"}\n{"status": "SUCCESS"}\n', b"RUNNING"]
    put({f"{path}/.executor_status": word for path, word in zip(paths, words, strict=True)})
    assert list(read_statuses(paths).values()) == ["SUCCESS", "FAILED", "SUCCESS", "RUNNING"]


def test_many_leases_at_once_keep_their_connections(
    server: Server, root: str, make_step: MakeStep, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run(root, [make_step(f"s{index}", versioned(index)) for index in range(200)])
    assert "onnection pool is full" not in caplog.text
