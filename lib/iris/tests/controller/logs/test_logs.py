"""Logs over real gRPC: dedup by offset, tail, follow."""

import threading
from typing import Any

import grpc
import pytest

from iris.rpc import iris_pb2 as pb
from iris.rpc.logformat import encode
from iris.testing.worker import ScriptedWorker

SUCCEEDED = pb.TASK_STATE_SUCCEEDED
A = "/ann/a/0:0"


def lines(*texts: str, at_ms: int = 1) -> bytes:
    return b"".join(encode(False, at_ms + i, text.encode()) for i, text in enumerate(texts))


def start(user: Any, worker: ScriptedWorker, name: str = "/ann/a", **spec: Any) -> None:
    user.submit(name, **spec)
    for i in range(spec.get("replicas", 1)):
        worker.wait_for_start(f"{name}/{i}:0")


def ship(worker: ScriptedWorker, attempt: str, offset: int, data: bytes) -> int:
    worker.append_log(attempt, offset, data)
    worker.wait_for_log_ack(attempt, offset + len(data))
    return offset + len(data)


class Follower:
    """Follows in a thread, and lets a test wait for what it has got."""

    def __init__(self, user: Any, id: str, **query: Any) -> None:
        self._changed = threading.Condition()
        self.got: list[bytes] = []
        self.ended = False
        request = pb.FetchLogsRequest(id=id, follow=True, **query)
        self._call = user.jobs.FetchLogs(request, timeout=20)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for batch in self._call:
            with self._changed:
                self.got += [entry.data for entry in batch.entries]
                self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def wait(self, *expected: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.got) >= len(expected), 10), self.got
            assert self.got == list(expected)

    def wait_for_end(self) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: self.ended, 10), self.got
        return self.got


def test_bytes_sent_twice_are_kept_once(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    log = lines("one", "two", "three")
    ship(worker, A, 0, log[:30])
    ship(worker, A, 10, log[10:45])  # overlaps
    worker.append_log(A, 0, log[:20])  # all known
    worker.append_log(A, len(log) + 5, b"after a gap")
    ship(worker, A, 45, log[45:])
    assert user.logs("/ann/a") == [b"one", b"two", b"three"]
    assert user.logs("/ann/a/0") == [b"one", b"two", b"three"]


def test_a_gap_is_answered_with_what_is_here(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    worker.append_log(A, 100, b"x" * 50)
    worker.wait_for_log_ack(A, 0)
    assert user.logs("/ann/a") == []


def test_tail_since_and_start(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker, replicas=2)
    ship(worker, A, 0, lines("a1", "a2", "a3", at_ms=10))
    ship(worker, "/ann/a/1:0", 0, lines("b1", "b2", at_ms=11))
    assert user.logs("/ann/a") == [b"a1", b"a2", b"b1", b"a3", b"b2"]
    assert user.logs("/ann/a", max_lines=2) == [b"a3", b"b2"]
    assert user.logs("/ann/a", max_lines=2, from_start=True) == [b"a1", b"a2"]
    assert user.logs("/ann/a", since_ms=12) == [b"a3", b"b2"]
    assert user.logs("/ann/a/1", max_lines=1) == [b"b2"]


def test_following_gives_every_line_once_and_ends_with_the_job(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    offset = ship(worker, A, 0, lines("one"))
    follower = Follower(user, "/ann/a")
    follower.wait(b"one")
    two = lines("two")
    offset = ship(worker, A, offset, two[:9])  # a record cut in the middle is not shown
    offset = ship(worker, A, offset, two[9:])
    follower.wait(b"one", b"two")
    assert not follower.ended
    # The end is told before the last bytes: the follower must have them all the same.
    last = lines("three")
    worker.observe(A, SUCCEEDED, log_size=offset + len(last))
    ship(worker, A, offset, last)
    assert follower.wait_for_end() == [b"one", b"two", b"three"]


def test_following_the_tail(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    offset = ship(worker, A, 0, lines("one", "two", "three"))
    follower = Follower(user, "/ann/a", max_lines=1)
    follower.wait(b"three")
    ship(worker, A, offset, lines("four"))
    follower.wait(b"three", b"four")
    worker.observe(A, SUCCEEDED)
    assert follower.wait_for_end() == [b"three", b"four"]


def test_following_a_tree_shows_children_that_come_later(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    alone = Follower(user, "/ann/a")
    tree = Follower(user, "/ann/a", include_children=True)
    ship(worker, A, 0, lines("parent"))
    tree.wait(b"parent")
    start(user, worker, "/ann/a/child")
    ship(worker, "/ann/a/child/0:0", 0, lines("child"))
    tree.wait(b"parent", b"child")
    worker.observe(A, SUCCEEDED)  # the child is stopped with it, and its last words are still shown
    assert alone.wait_for_end() == [b"parent"]
    worker.wait_for_stop("/ann/a/child/0:0")
    ship(worker, "/ann/a/child/0:0", len(lines("child")), lines("bye"))
    worker.observe("/ann/a/child/0:0", pb.TASK_STATE_KILLED)
    assert tree.wait_for_end() == [b"parent", b"child", b"bye"]


def test_a_tree_is_its_ended_children_too_and_no_neighbour(user: Any, worker: ScriptedWorker) -> None:
    for number, name in enumerate(("/ann/a", "/ann/ab", "/ann/a/child", "/ann/a/child/of-it")):
        start(user, worker, name, cpu_millis=1, memory_bytes=1)
        ship(worker, f"{name}/0:0", 0, lines(name, at_ms=number + 1))
    for name in ("/ann/a/child/of-it", "/ann/a/child", "/ann/a"):
        worker.observe(f"{name}/0:0", SUCCEEDED)
        user.wait_one(name)
    assert user.logs("/ann/a", include_children=True) == [b"/ann/a", b"/ann/a/child", b"/ann/a/child/of-it"]
    assert user.logs("/ann/a/child", include_children=True) == [b"/ann/a/child", b"/ann/a/child/of-it"]
    assert user.logs("/ann/a") == [b"/ann/a"]


def test_following_an_ended_job_ends_at_once(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    ship(worker, A, 0, lines("one"))
    worker.observe(A, SUCCEEDED)
    user.wait_one("/ann/a")
    assert user.logs("/ann/a", follow=True) == [b"one"]


def test_a_job_that_takes_an_ended_jobs_name_does_not_show_its_logs(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    ship(worker, A, 0, lines("old"))
    worker.observe(A, SUCCEEDED)
    user.wait_one("/ann/a")
    user.submit("/ann/a")
    assert user.logs("/ann/a") == []
    worker.wait_for_start("/ann/a/0:1")
    ship(worker, "/ann/a/0:1", 0, lines("new"))
    assert user.logs("/ann/a") == [b"new"]


def test_entries_carry_everything(user: Any, worker: ScriptedWorker) -> None:
    start(user, worker)
    ship(worker, A, 0, encode(True, 7, b"\xff\x00", partial=True))
    (batch,) = user.jobs.FetchLogs(pb.FetchLogsRequest(id="/ann/a"))
    assert list(batch.entries) == [
        pb.LogEntry(task_id="/ann/a/0", attempt=0, is_stderr=True, at_ms=7, data=b"\xff\x00", partial=True)
    ]


def test_logs_of_what_does_not_exist(user: Any) -> None:
    user.submit("/ann/a")
    for name, reason in (("/ann/x", "job /ann/x does not exist"), ("/ann/a/5", "job /ann/a has tasks 0 to 0")):
        with pytest.raises(grpc.RpcError, match=reason) as refused:
            user.logs(name)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
