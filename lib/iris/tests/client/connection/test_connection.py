from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from iris.client.connection import connection as module
from iris.client.connection.connection import CALL_TIMEOUT, UPLOAD_TIMEOUT, Connection, RetryDeadline, Stubs, is_away
from iris.client.errors import ControllerUnreachable
from iris.rpc.controller_address import ControllerAddress, parse_address
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import Conflict, InvalidRequest, MarinError, NotFound
from support.iris.rpc_error import FakeRpcError

AWAY = FakeRpcError(grpc.StatusCode.UNAVAILABLE)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


class Place:
    """Where the controller is; counts how often that is asked."""

    def __init__(self) -> None:
        self.endpoint = ControllerAddress("127.0.0.1:1", "t")
        self.asked: list[bool] = []

    def __call__(self, answered: bool) -> ControllerAddress:
        self.asked.append(answered)
        return self.endpoint


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def connection(place: Place) -> Iterator[Connection]:
    found = Connection(place, reconnect_timeout=60, connect_timeout=10)
    yield found
    found.close()


def test_nothing_is_asked_before_the_first_call(connection: Connection, place: Place) -> None:
    assert (connection.address, connection.found, connection.lends) == ("unknown", False, False)
    assert place.asked == []
    call = connection.current()
    assert connection.current() is call
    assert place.asked == [False]
    assert (connection.address, connection.found) == ("127.0.0.1:1", True)
    assert dict(call.metadata)["authorization"] == "Bearer t"
    assert "iris-attempt-id" not in dict(call.metadata)
    assert connection.controller_address() == place.endpoint
    assert "t'" not in repr(place.endpoint)


def test_a_task_that_waits_names_its_attempt(place: Place) -> None:
    connection = Connection(place, attempt_id="/a/b/0:1", reconnect_timeout=1)
    assert connection.lends
    assert dict(connection.current().metadata)["iris-attempt-id"] == "/a/b/0:1"
    connection.close()


def test_a_call_may_take_longer_once_the_controller_answered(connection: Connection, place: Place) -> None:
    assert connection.current().timeout == 10
    assert connection.time_limit() == 10
    assert connection.run(lambda call: call.timeout) == 10
    assert connection.current().timeout == CALL_TIMEOUT
    assert connection.time_limit() == 60
    short = Connection(place, reconnect_timeout=3, connect_timeout=10)
    assert short.time_limit() == 3


def away(call: Stubs) -> None:
    raise AWAY


def test_it_is_tried_again_with_growing_pauses_until_its_time_is_up(
    connection: Connection, place: Place, clock: Clock
) -> None:
    with pytest.raises(ControllerUnreachable) as gone:
        connection.run(away, retry=False)
    assert clock.slept == []
    with pytest.raises(ControllerUnreachable, match=r"at 127\.0\.0\.1:1 cannot be reached: connection refused") as gone:
        connection.run(away)
    assert not gone.value.was_connected
    assert clock.now == pytest.approx(110.0)
    assert len(place.asked) == len(clock.slept) + 1, "after every pause"
    assert not any(place.asked)
    assert max(clock.slept) <= 1.2
    assert clock.slept[0] < 0.05
    connection.note_answer()
    clock.slept.clear()
    with pytest.raises(ControllerUnreachable, match="is gone: connection refused") as gone:
        connection.run(away)
    assert gone.value.was_connected
    assert sum(clock.slept) == pytest.approx(60.0)
    assert place.asked[-1] is True


def test_a_long_absence_is_told_once_however_many_notice_and_again_after_the_next_answer(
    connection: Connection, clock: Clock
) -> None:
    told: list[str] = []
    connection.on_interrupted = told.append
    retry_deadline = connection.retry_deadline()
    for _ in range(6):
        retry_deadline.pause(AWAY)
    assert told == [], "it never answered"
    for absence in (1, 2):
        connection.note_answer()
        calls = [RetryDeadline(connection), RetryDeadline(connection)]
        for call in calls:
            call.pause(AWAY)
        clock.now += 0.9
        calls[0].pause(AWAY)
        assert len(told) == absence - 1
        clock.now += 0.2
        for call in calls * 3:
            call.pause(AWAY)
        assert told == ["the controller at 127.0.0.1:1 does not answer; trying for 60 s"] * absence
    calls[0].reset()
    calls[0].pause(AWAY)
    assert clock.slept[-1] < 0.05, "the pauses begin anew"
    assert len(told) == 2
    clock.now += 2
    calls[0].pause(AWAY)
    assert len(told) == 3


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INTERNAL])
def test_a_refusal_is_not_repeated(connection: Connection, clock: Clock, code: grpc.StatusCode) -> None:
    def refuse(call: Stubs) -> None:
        raise FakeRpcError(code, "no such job")

    with pytest.raises(MarinError, match="no such job") as refused:
        connection.run(refuse)
    assert isinstance(refused.value, NotFound) is (code is grpc.StatusCode.NOT_FOUND)
    assert clock.slept == []


def test_what_counts_as_away() -> None:
    away = {code for code in grpc.StatusCode if is_away(FakeRpcError(code))}
    assert away == {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
    assert not is_away(grpc.RpcError())


def test_a_controller_that_moved_or_has_another_token_gets_another_channel(
    connection: Connection, place: Place
) -> None:
    first = connection.current()
    connection.reconnect()
    assert connection.current() is first, "it is where it was"
    for endpoint in (ControllerAddress("127.0.0.1:2", "t"), ControllerAddress("127.0.0.1:2", "u")):
        place.endpoint = endpoint
        connection.reconnect()
        second = connection.current()
        assert second is not first
        assert dict(second.metadata)["authorization"] == f"Bearer {endpoint.token}"
        assert connection.address == "127.0.0.1:2"


def test_after_the_end_nothing_is_possible_and_nothing_is_repeated(connection: Connection, clock: Clock) -> None:
    def end(call: Stubs) -> None:
        connection.close()
        raise AWAY

    with pytest.raises(MarinError) as ended:
        connection.run(end)
    assert not isinstance(ended.value, ControllerUnreachable)
    assert clock.slept == []
    for use in (connection.current, connection.controller_address, lambda: connection.run(lambda call: None)):
        with pytest.raises(Conflict, match="shut down"):
            use()
    connection.reconnect()
    connection.close()


def test_an_upload_that_fails_here_is_no_failure_of_the_controller(connection: Connection) -> None:
    class Blobs:
        def UploadBlobs(self, messages: Iterator[Any], *, timeout: float, metadata: Any) -> None:
            assert timeout == UPLOAD_TIMEOUT
            seen.extend(messages)

        def FindMissingBlobs(self, request: Any, *, timeout: float, metadata: Any) -> pb.FindMissingBlobsResponse:
            return pb.FindMissingBlobsResponse(digests=request.digests[1:])

    seen: list[Any] = []
    call = Stubs(*[Blobs()] * 8, (), 1.0)
    connection.current = lambda: call
    assert connection.missing_blobs(["a", "b"]) == ["b"]
    message = pb.UploadBlobsRequest()
    connection.upload_blobs(lambda: iter([message]))
    assert seen == [message]

    def changed() -> Iterator[pb.UploadBlobsRequest]:
        yield message
        raise Conflict("a file changed")

    with pytest.raises(Conflict, match="a file changed"):
        connection.upload_blobs(changed)


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 60.0), ("0", 0.0), ("2.5", 2.5), ("soon", None), ("-1", None), ("nan", None)]
)
def test_how_long_it_may_be_away_can_be_set(
    text: str, seconds: float | None, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_RECONNECT_TIMEOUT", text)
    if seconds is None:
        with pytest.raises(InvalidRequest, match=f"IRIS_RECONNECT_TIMEOUT='{text}': give a number"):
            Connection(place)
        return
    connection = Connection(place)
    connection.note_answer()
    assert connection.time_limit() == seconds


def test_addresses() -> None:
    for text, target in (("h:1", "h:1"), (" h:65535/ ", "h:65535"), ("grpc://10.0.0.2:7", "10.0.0.2:7")):
        assert parse_address(text) == target
    for text in ("", "h", ":1", "h:0", "h:65536", "h:x", "h:-1", "a/b:1"):
        with pytest.raises(InvalidRequest, match="must be host:port"):
            parse_address(text)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ("failed to connect to all addresses; last error: x: Connection refused", "connection refused"),
        ("recvmsg:Connection reset by peer", "connection reset"),
        ("something else", "something else"),
    ],
)
def test_why_it_is_away_is_said_shortly(connection: Connection, details: str, words: str) -> None:
    error = connection.unreachable(FakeRpcError(grpc.StatusCode.UNAVAILABLE, details))
    assert str(error) == f"the controller at unknown cannot be reached: {words}"
