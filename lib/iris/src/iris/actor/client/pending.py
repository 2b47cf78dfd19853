"""A call on the caller's side."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Final

from iris.actor.errors import ActorStopped
from iris.actor.transport.payload import INLINE_BYTES, Assembly, Pickle, load, load_error
from iris.actor.transport.wire import Buffer, Envelope
from iris.rpc.generated import actor_pb2 as pb
from rigging.errors import DeadlineExceeded, InvalidRequest, MarinError, NotFound

_REFUSALS: Final[dict[int, type[MarinError]]] = {
    pb.REFUSAL_NO_ACTOR: NotFound,
    pb.REFUSAL_NO_METHOD: InvalidRequest,
    pb.REFUSAL_DEADLINE: DeadlineExceeded,
    pb.REFUSAL_CANCELLED: ActorStopped,
    pb.REFUSAL_STOPPED: ActorStopped,
}

_asking = threading.Lock()


class Reply:
    """The pickled result of a call. The first thread that needs the value unpickles it."""

    __slots__ = ("_data", "_end", "_value")

    def __init__(self, end: pb.CallEnd, data: Buffer) -> None:
        self._end = end
        self._data: Buffer = data
        self._value: object = self

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled before it started."""
        return self._end.refusal == pb.REFUSAL_CANCELLED

    def value(self) -> object:
        """Return the method's result, or raise its exception."""
        end, data = self._end, self._data  # in this order with `_value`: another thread may be in here
        if end.refusal:
            raise _REFUSALS.get(end.refusal, InvalidRequest)(end.error)
        if self._value is self:
            self._value = load_error(data, end.error, end.traceback) if end.failed else load(data)
            self._data = b""
        if end.failed:
            assert isinstance(self._value, BaseException)
            raise self._value.with_traceback(None)  # else it grows by each who asks
        return self._value


class PendingCall:
    """A call from its creation to its end.

    Attributes:
        number: Its number in the session. sent: Whether it is fully sent, so that the actor may have started it.
        tried: Whether an earlier life of the actor may have started it.
        whole: Whether its large arguments are sent with the call.
        retries_left: How many retries remain after the actor died; negative means no limit.
        deadline: A `time.monotonic` value. future: Its result for waiters; set early if the call is cancelled.
    """

    __slots__ = (
        "actor", "assembly", "data", "deadline", "end", "future", "method", "number", "retries_left", "sent", "timer",
        "tried", "whole", "withdrawal",
    )  # fmt: skip

    def __init__(
        self, method: str, data: Pickle, deadline: float | None, retries: int, on_end: Callable[[], object]
    ) -> None:
        self.method = method
        self.data = data
        self.deadline = deadline
        self.retries_left = retries
        self.future: Future[Reply] = Future()
        self.future.add_done_callback(lambda _: on_end())
        self.number = 0
        self.actor = ""
        self.sent = False
        self.tried = False
        self.whole = False
        self.withdrawal: Future[bool] | None = None
        self.end: pb.CallEnd | None = None
        self.assembly: Assembly | None = None
        self.timer: asyncio.TimerHandle | None = None

    def fill(self, envelope: Envelope[pb.ClientFrames]) -> int:
        """Return the frame that starts it (see `frame_queue.Frame`)."""
        if self.future.done():
            return 0  # cancelled while it waited
        start = envelope.message.starts.add(call=self.number, actor=self.actor, method=self.method)
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            start.deadline_ms = max(1, round(left * 1000))
        size = self.data.size
        if size <= INLINE_BYTES:
            start.inline = bytes(self.data.whole)
        elif self.whole:
            start.attached = True
            envelope.attach(*self.data.pieces)
        else:
            start.size = size
            return 256
        self.sent = True
        return size + 64

    def mark_sent(self) -> None:
        """Record that the last piece of its pickle was sent."""
        self.sent = True

    def ask_withdrawal(self) -> "Future[bool]":
        """Return the future answer to the call's withdrawal, shared by all threads. Callable from any thread."""
        with _asking:
            if self.withdrawal is None:
                self.withdrawal = Future()
            return self.withdrawal

    def answer_withdrawal(self, never_runs: bool) -> None:
        """Answer the waiters for the call's withdrawal, unless already answered."""
        if self.withdrawal is not None and not self.withdrawal.done():
            self.withdrawal.set_result(never_runs)

    def settle(self, reply: Reply) -> None:
        self.stop_timer()
        with contextlib.suppress(InvalidStateError):  # it was taken back
            self.future.set_result(reply)
        self.answer_withdrawal(reply.is_cancelled)

    def fail(self, error: MarinError) -> None:
        self.stop_timer()
        self.take_back(error)
        self.answer_withdrawal(False)

    def take_back(self, error: MarinError) -> bool:
        """End the call for its waiters. Return False if it had ended. Callable from any thread."""
        try:
            self.future.set_exception(error)
        except InvalidStateError:
            return False
        return True

    def stop_timer(self) -> None:
        """Cancel the deadline timer, which would keep the arguments alive."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
