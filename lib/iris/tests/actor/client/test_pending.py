"""A call as its caller knows it: the frame that begins it, and what its end becomes."""

import pickle
import time
from typing import Any

import pytest

from iris.actor.client.pending import PendingCall, Reply
from iris.actor.errors import ActorStopped, RemoteError, RemoteTraceback
from iris.actor.transport.payload import INLINE_BYTES, Pickle, dump, load_error
from iris.actor.transport.wire import Envelope
from iris.rpc import actor_pb2 as pb
from rigging.errors import DeadlineExceeded, InvalidRequest, NotFound


def call_with(size: int = 10, deadline: float | None = None) -> PendingCall:
    made = PendingCall("add", Pickle(b"x" * size), deadline, 0, lambda: None)
    made.number, made.actor = 7, "counter"
    return made


def begun(call: PendingCall) -> tuple[Envelope[pb.ClientFrames], int]:
    envelope = Envelope(pb.ClientFrames())
    return envelope, call.fill(envelope)


class TestItsFrame:
    def test_a_small_call_has_its_arguments_in_it(self) -> None:
        call = call_with(INLINE_BYTES)
        envelope, size = begun(call)
        (start,) = envelope.message.starts
        assert (start.call, start.actor, start.method, start.inline) == (7, "counter", "add", b"x" * INLINE_BYTES)
        assert (start.size, start.attached, start.deadline_ms) == (0, False, 0)
        assert (call.sent, size) == (True, INLINE_BYTES + 64)
        assert envelope.pieces == []

    def test_a_larger_one_goes_along_where_there_is_room(self) -> None:
        call = call_with(INLINE_BYTES + 1)
        call.whole = True
        envelope, size = begun(call)
        (start,) = envelope.message.starts
        assert (start.attached, start.inline, start.size) == (True, b"", 0)
        assert sum(map(len, envelope.pieces[1:])) == INLINE_BYTES + 1
        assert (call.sent, size) == (True, INLINE_BYTES + 65)

    def test_or_says_how_large_it_is_and_is_not_sent_before_its_last_piece(self) -> None:
        call = call_with(INLINE_BYTES + 1)
        envelope, size = begun(call)
        (start,) = envelope.message.starts
        assert (start.attached, start.inline, start.size) == (False, b"", INLINE_BYTES + 1)
        assert not call.sent
        assert 0 < size < 1024
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
    def test_a_value_is_unpickled_once(self) -> None:
        reply = Reply(pb.CallEnd(call=7), dump([1, 2]).whole)
        first = reply.value()
        assert first == [1, 2]
        assert reply.value() is first

    def test_none_is_a_value(self) -> None:
        assert Reply(pb.CallEnd(call=7), dump(None).whole).value() is None

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
        class Timer:
            cancelled = 0

            def cancel(self) -> None:
                self.cancelled += 1

        for end in (lambda call: call.settle(Reply(pb.CallEnd(), b"")), lambda call: call.fail(NotFound("gone"))):
            call, timer = call_with(), Timer()
            call.timer = timer  # type: ignore[assignment]
            end(call)
            assert (timer.cancelled, call.timer, call.future.done()) == (1, None, True)


def fails_when_loaded() -> object:
    raise RuntimeError("the class is not itself here")


class Strange:
    def __reduce__(self) -> Any:
        return fails_when_loaded, ()


class TestErrorsThatCannotTravel:
    def test_without_a_pickle_the_text_must_do(self) -> None:
        error = load_error(b"", "Odd: no", "frames")
        assert type(error) is RemoteError
        assert (str(error), str(error.__cause__)) == ("Odd: no", "\nframes")

    def test_what_cannot_be_made_again_is_told_with_the_reason(self) -> None:
        error = load_error(pickle.dumps(Strange()), "Odd: no", "frames")
        assert type(error) is RemoteError
        why = "RuntimeError: the class is not itself here"
        assert str(error) == f"Odd: no (it cannot be made again here: {why})"
        assert isinstance(error.__cause__, RemoteTraceback)

    def test_what_is_no_exception_is_not_raised(self) -> None:
        error = load_error(dump("text").whole, "Odd: no", "frames")
        assert type(error) is RemoteError
        assert str(error) == "Odd: no"


def test_a_call_ends_once_and_the_first_end_stays() -> None:
    made = PendingCall("add", Pickle(b"x"), None, 0, lambda: None)
    assert made.take_back(InvalidRequest("no"))
    assert not made.take_back(InvalidRequest("late"))
    made.settle(Reply(pb.CallEnd(), b""))
    made.fail(InvalidRequest("later"))
    assert str(made.future.exception()) == "no"
