"""A call as its caller knows it: the frame that begins it, and what its end becomes."""

import pickle
import time
from types import SimpleNamespace
from typing import Any

import pytest

from iris.actor.client.pending import PendingCall, Reply
from iris.actor.errors import ActorStopped, RemoteError, RemoteTraceback
from iris.actor.transport.payload import INLINE_BYTES, Pickle, dump, load_error
from iris.actor.transport.wire import Envelope
from iris.rpc.generated import actor_pb2 as pb
from rigging.errors import DeadlineExceeded, InvalidRequest, NotFound


def call_with(size: int = 10, deadline: float | None = None, whole: bool = False) -> PendingCall:
    made = PendingCall("add", Pickle(b"x" * size), deadline, 0, lambda: None)
    made.number, made.actor, made.whole = 7, "counter", whole
    return made


def begun(call: PendingCall) -> tuple[Envelope[pb.ClientFrames], int]:
    envelope = Envelope(pb.ClientFrames())
    return envelope, call.fill(envelope)


class TestItsFrame:
    def test_a_small_call_has_its_arguments_in_it(self) -> None:
        call = call_with(INLINE_BYTES)
        envelope, size = begun(call)
        start = pb.CallStart(call=7, actor="counter", method="add", inline=b"x" * INLINE_BYTES)
        assert list(envelope.message.starts) == [start]
        assert (call.sent, size, envelope.pieces) == (True, INLINE_BYTES + 64, [])

    @pytest.mark.parametrize("whole", [True, False], ids=["there is room", "there is none"])
    def test_a_larger_one_goes_along_or_says_how_large_it_is_and_is_not_sent_yet(self, whole: bool) -> None:
        call = call_with(INLINE_BYTES + 1, whole=whole)
        envelope, size = begun(call)
        more = {"attached": True} if whole else {"size": INLINE_BYTES + 1}
        assert list(envelope.message.starts) == [pb.CallStart(call=7, actor="counter", method="add", **more)]
        assert sum(map(len, envelope.pieces[1:])) == (INLINE_BYTES + 1 if whole else 0)
        assert (call.sent, size) == (whole, INLINE_BYTES + 65 if whole else 256)
        call.mark_sent()
        assert call.sent

    def test_the_time_that_is_left_goes_along(self) -> None:
        (start,) = begun(call_with(deadline=time.monotonic() + 50))[0].message.starts
        assert 45_000 < start.deadline_ms <= 50_000
        (late,) = begun(call_with(deadline=time.monotonic() - 50))[0].message.starts
        assert late.deadline_ms == 1, "0 would be no deadline"

    def test_one_that_was_taken_back_while_it_waited_is_not_sent(self) -> None:
        call = call_with()
        call.fail(NotFound("taken back"))
        envelope, size = begun(call)
        assert (list(envelope.message.starts), size, call.sent) == ([], 0, False)


class TestItsEnd:
    @pytest.mark.parametrize("value", [[1, 2], None])
    def test_a_value_is_unpickled_once(self, value: Any) -> None:
        reply = Reply(pb.CallEnd(call=7), dump(value).whole)
        first = reply.value()
        assert first == value
        assert reply.value() is first

    @pytest.mark.parametrize(
        ("refusal", "kind"),
        [
            (pb.REFUSAL_NO_ACTOR, NotFound),
            (pb.REFUSAL_NO_METHOD, InvalidRequest),
            (pb.REFUSAL_DEADLINE, DeadlineExceeded),
            (pb.REFUSAL_CANCELLED, ActorStopped),
            (pb.REFUSAL_STOPPED, ActorStopped),
            (99, InvalidRequest),
        ],
    )
    def test_each_refusal_is_an_error_of_its_kind(self, refusal: Any, kind: type[Exception]) -> None:
        with pytest.raises(kind, match="no room") as raised:
            Reply(pb.CallEnd(call=7, refusal=refusal, error="no room"), b"").value()
        assert type(raised.value) is kind

    def test_what_the_method_raised_is_raised_to_each_who_asks_and_does_not_grow(self) -> None:
        end = pb.CallEnd(call=7, failed=True, error="KeyError: 'x'", traceback="in there")
        reply = Reply(end, dump(KeyError("x")).whole)
        depths = []
        for _ in range(3):
            with pytest.raises(KeyError) as raised:
                reply.value()
            depths.append(len(raised.traceback))
            assert str(raised.value.__cause__) == "\nin there"
        assert len(set(depths)) == 1

    def test_a_timer_does_not_outlive_its_call(self) -> None:
        for end in (lambda call: call.settle(Reply(pb.CallEnd(), b"")), lambda call: call.fail(NotFound("gone"))):
            call, cancelled = call_with(), []
            call.timer = SimpleNamespace(cancel=lambda cancelled=cancelled: cancelled.append(True))  # type: ignore[assignment]
            end(call)
            assert (cancelled, call.timer, call.future.done()) == ([True], None, True)

    def test_a_call_ends_once_and_the_first_end_stays(self) -> None:
        made = call_with()
        assert made.take_back(InvalidRequest("no"))
        assert not made.take_back(InvalidRequest("late"))
        made.settle(Reply(pb.CallEnd(), b""))
        made.fail(InvalidRequest("later"))
        assert str(made.future.exception()) == "no"


def fails_when_loaded() -> object:
    raise RuntimeError("the class is not itself here")


class Strange:
    def __reduce__(self) -> Any:
        return fails_when_loaded, ()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", ""),
        (pickle.dumps(Strange()), " (it cannot be made again here: RuntimeError: the class is not itself here)"),
        (dump("text").whole, ""),
    ],
    ids=["no pickle", "cannot be made again", "no exception"],
)
def test_of_errors_that_cannot_travel_the_text_must_do(data: bytes, why: str) -> None:
    error = load_error(data, "Odd: no", "frames")
    assert type(error) is RemoteError
    assert str(error) == f"Odd: no{why}"
    assert isinstance(error.__cause__, RemoteTraceback)
    assert str(error.__cause__) == "\nframes"
