"""Logs over real gRPC: followed, chosen by text, level, time and attempt, and from the remote state."""

from typing import Any

import grpc
import pytest

from iris.client.connection.wire import log_lines
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from support.iris.worker import ScriptedWorker

SUCCEEDED = pb.TASK_STATE_SUCCEEDED
A, B = "/ann/a/0:0", "/ann/a/b/0:0"
T = 1_790_000_000_000


def lines(*texts: str, at_ms: int = T) -> bytes:
    return b"".join(encode(False, at_ms + i, text.encode()) for i, text in enumerate(texts))


def start(user: Any, worker: ScriptedWorker, name: str = "/ann/a", **spec: Any) -> None:
    user.submit(name, **spec)
    for i in range(spec.get("replicas", 1)):
        worker.wait_for_start(f"{name}/{i}:0")


def ship(worker: ScriptedWorker, attempt: str, offset: int, data: bytes) -> int:
    worker.append_log(attempt, offset, data)
    worker.wait_for_log_ack(attempt, offset + len(data))
    return offset + len(data)


def test_following_gives_every_line_once_and_ends_with_the_job(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    offset = ship(worker, A, 0, lines("one"))
    call = user.jobs.FetchLogs(pb.FetchLogsRequest(id="/ann/a", follow=True), timeout=30)
    assert [line.data for line in log_lines(next(call))] == [b"one"]
    two = lines("two")
    offset = ship(worker, A, offset, two[:9])  # a record cut in the middle is not shown
    offset = ship(worker, A, offset, two[9:])
    assert [line.data for line in log_lines(next(call))] == [b"two"]
    # The end is told before the last bytes: the follower must have them all the same.
    last = lines("three")
    worker.observe(A, SUCCEEDED, log_size=offset + len(last))
    ship(worker, A, offset, last)
    assert [line.data for batch in call for line in log_lines(batch)] == [b"three"]


def test_logs_of_what_does_not_exist(user: Any) -> None:
    user.submit("/ann/a")
    for name, reason in (("/ann/x", "job /ann/x does not exist"), ("/ann/a/5", "job /ann/a has tasks 0 to 0")):
        with pytest.raises(grpc.RpcError, match=reason) as refused:
            user.logs(name)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_lines_of_a_job_and_its_child_by_time(user: Any, worker: ScriptedWorker) -> None:
    for name in ("/ann/a", "/ann/a/b"):
        user.submit(name)
        worker.wait_for_start(f"{name}/0:0")
    ship(worker, A, 0, lines("INFO a0", "ERROR a1", "trace of a1", "INFO a3"))
    ship(worker, B, 0, lines("ERROR b0", "INFO b1", at_ms=T + 1))
    both = {"include_children": True}
    assert user.logs("/ann/a", grep="[ab]1$", **both) == [b"ERROR a1", b"trace of a1", b"INFO b1"]
    assert user.logs("/ann/a", level="error", **both) == [b"ERROR a1", b"ERROR b0", b"trace of a1"]
    assert user.logs("/ann/a", since_ms=T + 1, until_ms=T + 2, grep="I", **both) == [b"INFO b1"]
    assert user.logs("/ann/a", grep="a", max_lines=2) == [b"trace of a1", b"INFO a3"]
    assert user.logs("/ann/a", grep="a", max_lines=2, from_start=True) == [b"INFO a0", b"ERROR a1"]


@pytest.mark.process
def test_one_attempt_of_several(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", max_retries_failure=1)
    worker.wait_for_start(A)
    ship(worker, A, 0, lines("first"))
    worker.observe(A, pb.TASK_STATE_FAILED, exit_code=1, log_size=len(lines("first")))
    worker.wait_for_start("/ann/a/0:1")
    ship(worker, "/ann/a/0:1", 0, lines("second"))
    assert user.logs("/ann/a") == [b"first", b"second"], "what failed attempts wrote stays"
    assert user.logs("/ann/a", attempt=0) == [b"first"]
    assert user.logs("/ann/a", attempt=1) == [b"second"]
    assert user.logs("/ann/a/0", attempt=2) == []


@pytest.mark.parametrize(
    ("query", "reason"), [({"grep": "("}, "not a regular expression"), ({"level": "loud"}, "not one of debug, info")]
)
def test_what_is_no_choice_is_refused(user: Any, worker: ScriptedWorker, query: dict[str, str], reason: str) -> None:
    user.submit("/ann/a")
    with pytest.raises(grpc.RpcError) as caught:
        user.logs("/ann/a", **query)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason in caught.value.details()
