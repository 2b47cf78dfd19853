from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

from iris.client.connection import calls as module
from iris.client.connection.calls import JobCalls
from iris.client.connection.streams import SessionBroken
from iris.client.errors import ControllerUnreachable
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import AlreadyExists, NotFound
from support.iris.played_connection import PlayedConnection


class CallSession:
    """Answers everything; counts."""

    def __init__(self, connection: Any, ends: Any) -> None:
        self.is_over = self.closed = False
        self.error: grpc.RpcError | None = None
        self.timeouts: list[float] = []
        self.waited: list[tuple[Any, bool, float]] = []
        connection.sessions.append(self)

    def start(self) -> "CallSession":
        return self

    def close(self) -> None:
        self.closed = True

    def call(self, calls: Sequence[pb.ClientCall], timeout: float) -> list[pb.ClientReply]:
        if self.error is not None:
            raise self.error
        self.timeouts.append(timeout)
        return [self._reply(call) for call in calls]

    def wait(self, jobs: Any, *, any_of_them: bool, timeout: float) -> tuple[dict[str, Any], bool]:
        self.waited.append((jobs, any_of_them, timeout))
        return {}, True

    def _reply(self, call: pb.ClientCall) -> pb.ClientReply:
        if "bad" in (call.submit.spec.job_id + call.stop.job_id):
            code = grpc.StatusCode.ALREADY_EXISTS if call.HasField("submit") else grpc.StatusCode.NOT_FOUND
            return pb.ClientReply(error=pb.CallError(code=code.value[0], message="refused"))
        if call.HasField("submit"):
            return pb.ClientReply(submitted=pb.SubmitJobResponse(job_id=call.submit.spec.job_id))
        return pb.ClientReply(stopped=pb.StopJobResponse(stopped_job_ids=[call.stop.job_id]))


class Connection(PlayedConnection):
    """A channel: calls by themselves are counted; `sessions` are those that were begun on it."""

    socket = "/s/controller.sock"

    def __init__(self) -> None:
        super().__init__(
            SubmitJob=lambda request: self._count(request.spec.job_id) or pb.SubmitJobResponse(job_id=self.alone[-1]),
            StopJob=lambda request: self._count(request.job_id) or pb.StopJobResponse(stopped_job_ids=self.alone[-1:]),
        )
        self.closing: list[Callable[[], None]] = []
        self.opened: list[tuple[Any, ...]] = []
        self.sessions: list[CallSession] = []
        self.alone: list[str] = []
        self.refusal: Exception | None = None

    def _count(self, job_id: str) -> None:
        self.alone.append(job_id)
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    found = Connection()

    def open_stream(*given: Any) -> Any:
        found.opened.append(given)
        return given[1]

    monkeypatch.setattr(module, "CallSession", CallSession)
    monkeypatch.setattr(module, "open_stream", open_stream)
    return found


@pytest.fixture
def calls(connection: Connection) -> JobCalls:
    return JobCalls(connection)  # type: ignore[arg-type]


def submit(*names: str) -> list[pb.SubmitJobRequest]:
    return [pb.SubmitJobRequest(spec=pb.JobSpec(job_id=name)) for name in names]


def stop(*names: str) -> list[pb.StopJobRequest]:
    return [pb.StopJobRequest(job_id=name) for name in names]


def test_two_calls_go_by_themselves_and_the_third_begins_a_session(connection: Connection, calls: JobCalls) -> None:
    for _ in range(5):
        calls.stop(stop("/u/0"))
    assert connection.alone == ["/u/0"] * 5, "a single stop needs no session"
    connection.alone.clear()
    for name in ("/u/1", "/u/2", "/u/3", "/u/4"):
        [reply] = calls.submit(submit(name))
        assert reply.job_id == name
    assert connection.alone == ["/u/1", "/u/2"]
    assert len(connection.sessions) == 1
    assert calls.stop(stop("/u/1"))[0].stopped_job_ids == ["/u/1"]
    assert connection.alone == ["/u/1", "/u/2"], "what is open is used"


def test_a_submission_and_a_wait_need_no_session(connection: Connection, calls: JobCalls) -> None:
    calls.submit(submit("/u/1"))
    assert calls.wait([("/u/1", "")], any_of_them=False, seconds=3) is None
    assert connection.sessions == []
    assert calls.wait([("/u/1", "k")], any_of_them=True, seconds=3) == ({}, True)
    assert connection.sessions[0].waited == [([("/u/1", "k")], True, 3)]


def test_several_together_share_a_session_and_may_take_longer(connection: Connection, calls: JobCalls) -> None:
    replies = calls.submit(submit("/u/1", "/u/bad", "/u/3"))
    assert [type(reply) for reply in replies] == [pb.SubmitJobResponse, AlreadyExists, pb.SubmitJobResponse]
    results = calls.stop(stop("/u/1", "/u/bad"))
    assert [type(reply) for reply in results] == [pb.StopJobResponse, NotFound]
    assert str(results[1]) == "refused"
    assert connection.alone == []
    [session] = connection.sessions
    assert session.timeouts == [12.0 + 0.03, 12.0 + 0.02]


def test_a_session_that_is_over_is_replaced_and_nothing_of_it_is_kept(connection: Connection, calls: JobCalls) -> None:
    for number in range(3):
        calls.submit(submit(f"/u/{number}", "/u/x"))
        connection.sessions[-1].is_over = True
    assert len(connection.sessions) == 3
    assert connection.opened == [("/s/controller.sock", connection, connection.metadata, 12.0)] * 3
    calls.stop(stop("/u/1"))
    assert connection.alone == ["/u/1"]
    [close] = connection.closing
    close()
    assert [session.closed for session in connection.sessions] == [False, False, True], "it ends with its channel"


def test_another_channel_has_another_session(connection: Connection, calls: JobCalls) -> None:
    calls.submit(submit("/u/1", "/u/2"))
    connection.clients = Connection()
    connection.closing = []  # the former channel has closed its own
    calls.submit(submit("/u/3", "/u/4"))
    assert (len(connection.sessions), len(connection.clients.sessions)) == (1, 1)


def test_other_errors_of_a_session_are_the_connections(connection: Connection, calls: JobCalls) -> None:
    calls.submit(submit("/u/1", "/u/2"))
    connection.sessions[0].error = SessionBroken(grpc.StatusCode.UNAVAILABLE, "gone")
    with pytest.raises(SessionBroken):
        calls.submit(submit("/u/3", "/u/4"))
    assert connection.alone == []


def test_a_refusal_is_a_result_and_an_absence_an_error(connection: Connection, calls: JobCalls) -> None:
    connection.refusal = NotFound("no such job")
    assert calls.submit(submit("/u/1")) == calls.stop(stop("/u/1")) == [connection.refusal]
    connection.refusal = ControllerUnreachable("gone", was_connected=True)
    for call in (lambda: calls.submit(submit("/u/1")), lambda: calls.stop(stop("/u/1"))):
        with pytest.raises(ControllerUnreachable):
            call()


def test_a_wait_goes_through_what_is_open_but_not_where_it_lends_the_cpu_of_a_task(connection: Connection) -> None:
    """Only a call of its own can say which attempt waits."""
    for lends, answer in ((False, ({}, True)), (True, None)):
        calls = JobCalls(connection, lends=lends)  # type: ignore[arg-type]
        calls.submit(submit("/u/1", "/u/2"))
        for _ in range(4):
            assert calls.wait([("/u/1", "k")], any_of_them=False, seconds=3) == answer
