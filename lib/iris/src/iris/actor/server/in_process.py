"""Calls of an actor from its own process, put directly into its queue."""

import asyncio
import threading
import time

from iris.actor.client.pending import PendingCall, Reply
from iris.actor.errors import ActorStopped
from iris.actor.server.hosted import HostedActor, HostedCall
from iris.actor.transport.loop import actor_loop
from iris.rpc.generated import actor_pb2 as pb
from rigging.errors import DeadlineExceeded


class InProcessCaller:
    """Replaces `Caller` if the actor is in this process."""

    def __init__(self, actor: HostedActor) -> None:
        self._actor = actor
        self._lock = threading.Lock()
        self._calls: dict[HostedCall, PendingCall] = {}
        self._hosted: dict[PendingCall, HostedCall] = {}
        self._stopped = False
        self._timers: dict[PendingCall, asyncio.TimerHandle] = {}
        """Accessed only in the loop's thread."""

    @property
    def label(self) -> str:
        """A readable name of the actor."""
        return repr(self._actor.name)

    def submit(self, call: PendingCall) -> None:
        """Make a call."""
        hosted = HostedCall(0, self._actor.name, call.method, 0, self)
        hosted.data = call.data.whole
        if not self._actor.has_method(call.method):
            end = pb.CallEnd(refusal=pb.REFUSAL_NO_METHOD, error=f"actor {self.label} has no method {call.method!r}")
            call.settle(Reply(end, b""))
            return
        with self._lock:
            stopped = self._stopped
            if not stopped:
                self._calls[hosted], self._hosted[call] = call, hosted
                self._actor.submit(hosted)
        if stopped:
            call.fail(self._gone(call))
        elif call.deadline is not None:
            actor_loop().call_soon_threadsafe(self._watch, call)

    def cancel(self, call: PendingCall) -> None:
        """Cancel a call: it does not run if it has not started."""
        with self._lock:
            hosted = self._hosted.pop(call, None)
            if hosted is not None:
                self._calls.pop(hosted, None)
        if hosted is not None:
            self._actor.drop(hosted)
            self._ended(call)

    def withdraw(self, call: PendingCall) -> bool:
        """Cancel a call unless it has started, and return whether it was cancelled."""
        with self._lock:
            hosted = self._hosted.get(call)
            if hosted is None or not self._actor.drop(hosted):
                return False
            del self._hosted[call], self._calls[hosted]
        taken = call.take_back(ActorStopped(f"{call.method!r} of actor {self.label} was cancelled"))
        self._ended(call)
        return taken

    def stop(self) -> None:
        """Refuse calls that have not started, and all later ones."""
        with self._lock:
            self._stopped = True
            waiting = [(hosted, call) for hosted, call in self._calls.items() if self._actor.drop(hosted)]
            for hosted, call in waiting:
                del self._calls[hosted], self._hosted[call]
        for _, call in waiting:
            call.fail(self._gone(call))
            self._ended(call)

    def finish(self, hosted: HostedCall) -> None:
        """Record that a call has ended."""
        with self._lock:
            call = self._calls.pop(hosted, None)
            if call is not None:
                del self._hosted[call]
        if call is not None and hosted.end is not None:
            call.settle(Reply(hosted.end, hosted.end_data.whole))
            self._ended(call)

    def release(self, hosted: HostedCall) -> None:
        """Do nothing, because calls of this process reserve no memory."""

    def _watch(self, call: PendingCall) -> None:
        if call.deadline is not None and not call.future.done():
            left = max(0.0, call.deadline - time.monotonic())
            self._timers[call] = asyncio.get_running_loop().call_later(left, self._expire, call)

    def _expire(self, call: PendingCall) -> None:
        self.cancel(call)
        call.fail(DeadlineExceeded(f"{call.method!r} of actor {self.label}: no result before its deadline"))

    def _ended(self, call: PendingCall) -> None:
        if call.deadline is not None:
            actor_loop().call_soon_threadsafe(self._unwatch, call)

    def _unwatch(self, call: PendingCall) -> None:
        timer = self._timers.pop(call, None)
        if timer is not None:
            timer.cancel()

    def _gone(self, call: PendingCall) -> ActorStopped:
        return ActorStopped(f"{call.method!r} of actor {self.label} did not run: the actor was shut down before")
