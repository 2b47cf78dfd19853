"""The server's side of one client's session across connections. Every call runs once, and every result is kept until
the client has received it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from iris.actor.server.hosted import HostedActor, HostedCall
from iris.actor.transport.frame_queue import FrameQueue, Number
from iris.actor.transport.payload import INLINE_BYTES, NOTHING, WHOLE_BYTES, Assembly, Chunks
from iris.actor.transport.wire import Buffer, Envelope, next_blob
from iris.rpc.generated import actor_pb2 as pb

_WORDS: Final = {
    pb.REFUSAL_NO_ACTOR: "no actor of that name is here",
    pb.REFUSAL_NO_METHOD: "the actor has no public method of that name",
    pb.REFUSAL_DEADLINE: "its deadline passed before it could begin",
    pb.REFUSAL_CANCELLED: "it was cancelled",
    pb.REFUSAL_STOPPED: "the actor was shut down before the call began",
}


class MemoryBudget:
    """Limits the bytes of large arguments that are not yet in use. Grants requests in order.

    Args:
        limit: The limit in bytes. A single call is always admitted.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[HostedCall, Callable[[], object]]] = deque()
        self._holding: set[HostedCall] = set()

    @property
    def used(self) -> int:
        """The admitted bytes that are not released."""
        return self._used

    def ask(self, call: HostedCall, grant: Callable[[], object]) -> None:
        self._waiting.append((call, grant))
        self._grant()

    def release(self, call: HostedCall) -> None:
        """Release the memory of a call whose arguments are unpickled or dropped."""
        if call in self._holding:
            self._holding.remove(call)
            self._used -= call.size
        else:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not call)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and (not self._used or self._used + self._waiting[0][0].size <= self._limit):
            call, grant = self._waiting.popleft()
            self._holding.add(call)
            self._used += call.size
            grant()


class _End:
    __slots__ = ("_call",)

    def __init__(self, call: HostedCall) -> None:
        self._call = call

    def fill(self, envelope: Envelope[pb.ServerFrames]) -> int:
        end, data = self._call.end, self._call.end_data
        assert end is not None
        told = envelope.message.ends.add()
        told.CopyFrom(end)
        texts = end.ByteSize() if end.failed or end.refusal else 0
        if data.size > WHOLE_BYTES:
            told.size = data.size
            return 256 + texts
        if data.size > INLINE_BYTES:
            told.attached = True
            envelope.attach(*data.pieces)
        else:
            told.inline = bytes(data.whole)
        return data.size + 64 + texts


class CallerSession:
    """The calls of one client. Belongs to the event loop.

    Args:
        caller: A readable name of the client.

    Attributes:
        visits: The number of connections that have served it.
    """

    def __init__(
        self, session_id: str, caller: str, actors: Mapping[str, HostedActor], admission: MemoryBudget
    ) -> None:
        self.session_id = session_id
        self.caller = caller
        self._actors = actors
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, HostedCall] = {}
        self._assemblies: dict[int, Assembly] = {}
        self._lines: dict[str, deque[HostedCall]] = {}
        self._frame_queue: FrameQueue[pb.ServerFrames] | None = None
        self._stopped = False
        self.visits = 0

    @property
    def frame_queue(self) -> "FrameQueue[pb.ServerFrames] | None":
        """The frame queue of the current connection."""
        return self._frame_queue

    # ---- connections ----

    def attach(self, frame_queue: "FrameQueue[pb.ServerFrames]", outstanding: Iterable[int]) -> list[int]:
        """Attach a new connection, and return the client's pending calls that have arrived completely.

        Results of ended calls are sent after the welcome message.
        """
        if self._frame_queue is not None:
            self._frame_queue.close()
            self._frame_queue = None
        self._drop_partial()
        wanted = set(outstanding)
        for call in [call for number, call in self._calls.items() if number not in wanted]:
            # It was taken back, or its result is there; the client's word of that was lost.
            self.refuse(call, pb.REFUSAL_CANCELLED)
            if call.end is not None:
                self._acknowledge(call.number)
        self._frame_queue = frame_queue
        self.visits += 1
        for call in self._calls.values():
            if call.end is not None:
                self._send_end(call)
        return [number for number in outstanding if number in self._calls]

    def detach(self, frame_queue: "FrameQueue[pb.ServerFrames]") -> None:
        """Detach a finished connection. Running calls continue."""
        if self._frame_queue is frame_queue:
            self._frame_queue = None
            self._drop_partial()

    # ---- what the client says ----

    def take(self, envelope: Envelope[pb.ClientFrames]) -> None:
        frames, blobs = envelope.message, iter(envelope.blobs)
        for number in frames.acks:
            self._acknowledge(number)
        for start in frames.starts:
            self._start(start, next_blob(blobs) if start.attached else start.inline)
        for chunk in frames.chunks:
            self._add(chunk.call, next_blob(blobs))
        for number in frames.cancels:
            call = self._calls.get(number)
            if call is None:
                continue
            if call.end is not None:
                self._acknowledge(number)  # the rest of a large result is not asked for
            else:
                self.refuse(call, pb.REFUSAL_CANCELLED)
        for number in frames.withdrawals:
            call = self._calls.get(number)
            if call is not None:
                self.refuse(call, pb.REFUSAL_CANCELLED)
            if (call is None or call.end is None) and self._frame_queue is not None:
                self._frame_queue.put(Number("begun", number))

    def _start(self, start: pb.CallStart, data: Buffer) -> None:
        if start.call in self._calls:
            return
        call = HostedCall(start.call, start.actor, start.method, start.size, self)
        self._calls[start.call] = call
        actor = self._actors.get(start.actor)
        if actor is None:
            self.refuse(call, pb.REFUSAL_NO_ACTOR)
            return
        if not actor.has_method(start.method):
            self.refuse(call, pb.REFUSAL_NO_METHOD)
            return
        if self._stopped:
            self.refuse(call, pb.REFUSAL_STOPPED)
            return
        if start.deadline_ms:
            call.timer = self._loop.call_later(start.deadline_ms / 1000, self.refuse, call, pb.REFUSAL_DEADLINE)
        if not start.size:
            call.data = data
            if start.actor not in self._lines:
                actor.submit(call)
                return
        self._lines.setdefault(start.actor, deque()).append(call)
        if start.size:
            self._admission.ask(call, lambda: self._let_in(call))

    def _acknowledge(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            return
        # A queue of frames may know the call for a while yet.
        call.end_data = NOTHING
        if self._frame_queue is not None:
            self._frame_queue.drop_stream(number)

    def _let_in(self, call: HostedCall) -> None:
        self._assemblies[call.number] = Assembly(call.size)
        if self._frame_queue is not None:
            self._frame_queue.put(Number("goes", call.number))

    def _add(self, number: int, piece: Buffer) -> None:
        assembly = self._assemblies.get(number)
        if assembly is None:
            return  # cancelled meanwhile
        if assembly.add(piece):
            del self._assemblies[number]
            call = self._calls[number]
            call.data = assembly.data
            self._advance(call.actor)

    def _advance(self, name: str) -> None:
        """Start complete calls, in the order of the client."""
        line = self._lines[name]
        while line and line[0].data is not None:
            self._actors[name].submit(line.popleft())
        if not line:
            del self._lines[name]

    # ---- how calls end ----

    def finish(self, call: HostedCall) -> None:
        """Record that the actor finished a call."""
        if call.timer is not None:
            _stop_timer(call)
        if self._calls.get(call.number) is call:
            self._send_end(call)

    def refuse(self, call: HostedCall, refusal: "pb.Refusal.ValueType") -> None:
        """End a call that has not started. Do not change a running call."""
        actor = self._actors.get(call.actor)
        if call.end is not None or (actor is not None and not actor.drop(call)):
            return
        self._forget_arguments(call)
        text = f"{call.method!r} of actor {call.actor!r} did not run: {_WORDS[refusal]}"
        call.end = pb.CallEnd(call=call.number, refusal=refusal, error=text)
        self.finish(call)

    def stop(self) -> None:
        """Refuse all calls that have not started, and all later ones."""
        self._stopped = True
        self.refuse_all(pb.REFUSAL_STOPPED)

    def refuse_all(self, refusal: "pb.Refusal.ValueType") -> None:
        """End all calls that have not started."""
        for call in list(self._calls.values()):
            self.refuse(call, refusal)

    def release(self, call: HostedCall) -> None:
        """Release the memory of a call's large arguments."""
        self._admission.release(call)

    def _send_end(self, call: HostedCall) -> None:
        frame_queue = self._frame_queue
        if frame_queue is None or call.announced == self.visits:
            return  # the end is known from the moment it is there, so it may have been in time for `attach`
        call.announced = self.visits
        frame_queue.put(_End(call))
        if call.end_data.size > WHOLE_BYTES:
            frame_queue.put(_Stream(frame_queue, call))

    def _forget_arguments(self, call: HostedCall) -> None:
        line = self._lines.get(call.actor)
        if line is not None and call in line:
            line.remove(call)
            if line:
                self._advance(call.actor)
            else:
                del self._lines[call.actor]
        self._assemblies.pop(call.number, None)
        call.data = None
        if call.size:
            self.release(call)

    def _drop_partial(self) -> None:
        # The client sends again whatever is not wholly here, and what came whole behind it: it must not overtake. The
        # last first, or the room that one leaves would be given to the next.
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for call in reversed(line):
                del self._calls[call.number]
                self._forget_arguments(call)
                if call.timer is not None:
                    _stop_timer(call)


def _stop_timer(call: HostedCall) -> None:
    assert call.timer is not None
    call.timer.cancel()
    call.timer = None


class _Stream:
    """Starts to send a large result, after the frame that announces it."""

    __slots__ = ("_call", "_frame_queue")

    def __init__(self, frame_queue: "FrameQueue[pb.ServerFrames]", call: HostedCall) -> None:
        self._frame_queue = frame_queue
        self._call = call

    def fill(self, envelope: Envelope[pb.ServerFrames]) -> int:
        del envelope
        if self._call.end_data is not NOTHING:  # else it was taken back
            self._frame_queue.stream(Chunks(self._call.number, self._call.end_data))
        return 0
