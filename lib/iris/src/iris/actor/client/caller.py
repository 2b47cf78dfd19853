"""The calls of this process to one actor, in a session that survives lost connections and, with retries, restarts of
the actor.
"""

import asyncio
import contextlib
import copy
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

from iris.actor.client.link import Calls, Link
from iris.actor.client.pending import PendingCall, Reply
from iris.actor.client.places import Place, Target
from iris.actor.errors import ActorDied, ActorStopped
from iris.actor.transport.frame_queue import Handoff
from iris.rpc.status_map import from_rpc_error
from rigging.errors import Conflict, DeadlineExceeded, Denied, InvalidRequest, MarinError, Unavailable
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

RECONNECT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class ClientLimits:
    """Limits of one client.

    Args:
        idle_s: Seconds without a call after which the connection is closed.
        max_in_flight: Maximum number of unfinished calls. Further calls wait.
    """

    idle_s: float = 60.0
    max_in_flight: int = 10_000


DEFAULT_LIMITS: Final = ClientLimits()


class Caller:
    """The session with one actor. Belongs to the event loop; `submit`, `cancel` and `close` may be called from any
    thread.

    Args:
        key: The key of the actor's user.
        whoami: The caller's name in the actor's log.
        reconnect_timeout: Seconds without a connection to a known address after which calls fail.
        limits: The client's limits.
        make_link: Creates a connection.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        target: Target,
        key: bytes,
        whoami: str,
        reconnect_timeout: float = RECONNECT_TIMEOUT_S,
        limits: ClientLimits = DEFAULT_LIMITS,
        make_link: Callable[[Place, str, Calls, bytes], Link] = Link,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._target = target
        self._key = key
        self._whoami = whoami
        self._reconnect_timeout = reconnect_timeout
        self._idle_s = limits.idle_s
        self._make_link = make_link
        self._clock = clock
        self._session = secrets.token_hex(16)
        self._next_number = 1
        self._calls: dict[int, PendingCall] = {}
        self._link: Link | None = None
        self._unreached = ""  # the address that could not be reached at the last try, and why
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._submitted: Handoff[PendingCall] = Handoff(loop, self._take)
        self._cancelled: Handoff[PendingCall] = Handoff(loop, self._drop)
        self._withdrawn: Handoff[PendingCall] = Handoff(loop, self._withdraw)

    @property
    def label(self) -> str:
        """A readable name of the actor."""
        return self._target.label

    def submit(self, call: PendingCall) -> None:
        """Make a call. Calls of one thread start in order."""
        self._submitted.put(call)

    def cancel(self, call: PendingCall) -> None:
        """Cancel a call: it does not run if it has not started, and its result is dropped."""
        self._cancelled.put(call)

    def withdraw(self, call: PendingCall) -> bool:
        """Cancel a call unless it has started, wait for the actor's answer, and return whether it was cancelled."""
        answer = call.ask_withdrawal()
        self._withdrawn.put(call)
        return answer.result()

    async def flush(self) -> None:
        """Wait until the actor's server has received every call so far, without waiting for results."""
        while self._calls:
            if self._link is None or any(not call.sent for call in self._calls.values()):
                # Looked at now and then, as only a process that ends asks for it.
                await asyncio.sleep(0.005)
                continue
            link, self._link = self._link, None
            if await link.finish(forget=False):
                return
        if self._link is not None:
            link, self._link = self._link, None
            await link.finish(forget=True)

    async def close(self) -> None:
        """Close the connection. Running calls fail with Conflict, although the actor may complete them."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._fail_all(lambda call: Conflict(f"{self._what(call)}: the client was closed"))

    # ---- calls in and out ----

    def _take(self, call: PendingCall) -> None:
        if call.future.done():
            return  # cancelled before it came here
        if self._closed:
            call.fail(Conflict(f"{self._what(call)}: the client was closed"))
            return
        call.number = self._next_number
        self._next_number += 1
        self._calls[call.number] = call
        if call.deadline is not None:
            call.timer = self._loop.call_later(max(0.0, call.deadline - self._clock()), self._expire, call)
        if self._link is not None:
            self._link.send(call)
        elif self._task is None or self._task.done():
            self._target.open(self._changed.set)
            self._task = self._loop.create_task(self._run())
        else:
            self._changed.set()

    def _drop(self, call: PendingCall) -> None:
        call.stop_timer()
        if self._calls.pop(call.number, None) is not None and self._link is not None:
            self._link.cancel(call)
        call.answer_withdrawal(False)

    def _withdraw(self, call: PendingCall) -> None:
        if call.tried:
            call.answer_withdrawal(False)
        elif not call.sent:
            call.answer_withdrawal(call.take_back(ActorStopped(f"{self._what(call)} was cancelled")))
            self._drop(call)
        elif self._calls.get(call.number) is not call:
            call.answer_withdrawal(False)
        elif self._link is not None:
            self._link.withdraw(call)

    def _expire(self, call: PendingCall) -> None:
        self._drop(call)
        why = f" ({self._unreached})" if self._unreached else ""
        call.fail(DeadlineExceeded(f"{self._what(call)}: no result before its deadline{why}"))

    def settled(self, call: PendingCall, reply: Reply) -> None:
        """Record, for the link, that the call has ended."""
        del self._calls[call.number]
        call.settle(reply)

    def leaving(self) -> bool:
        """Record, for the link, that the connection closes. Return True if it closes for good, with no calls left."""
        if self._calls and not self._closed:
            return False
        self._link = None  # what is called from here on needs a new one
        return True

    def find(self, number: int) -> PendingCall | None:
        """Return, for the link, an unfinished call."""
        return self._calls.get(number)

    def _what(self, call: PendingCall) -> str:
        return f"{call.method!r} of actor {self._target.label}"

    # ---- connections ----

    async def _run(self) -> None:
        backoff = ExponentialBackoff(initial=0.02, maximum=1.0, factor=1.6, jitter=0.2)
        unreachable_since: float | None = None
        try:
            while True:
                self._changed.clear()
                now = self._target.now
                if now.error is not None:
                    self._refuse_all(now.error)
                elif now.place is None:
                    self._not_there(now.ended)
                    unreachable_since = None
                elif self._calls:
                    problem = await self._serve(now.place)
                    self._unreached = "" if problem is None else f"{now.place.address}: {problem}"
                    if problem is None:
                        unreachable_since = None
                        backoff.reset()
                    else:
                        unreachable_since = unreachable_since or self._clock()
                        self._judge(now.place, problem, unreachable_since)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(backoff.next_interval()):
                            await self._changed.wait()
                    continue
                if not await self._wait():
                    return
        except Exception as error:  # a fault of ours: no caller must wait for ever because of it
            self._break_down(error)
        finally:
            self._target.close()

    def _break_down(self, fault: Exception) -> None:
        """Fail all calls. The next call starts a new session."""
        logger.error("the connection to actor %s failed", self._target.label, exc_info=fault)
        why = f"its client failed; the method may have run: {type(fault).__name__}: {fault}"
        self._fail_all(lambda call: MarinError(f"{self._what(call)}: {why}"))

    async def _wait(self) -> bool:
        """Wait for a call or a change. Return False at the idle timeout."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    await self._changed.wait()
                return True
            except TimeoutError:
                if not self._calls:
                    return False

    def _not_there(self, ended: str) -> None:
        """Handle an actor without a location: fail calls that may have started; let others wait for its next life, if
        any.
        """
        if ended:
            self._fail_all(lambda call: ActorDied(f"{self._what(call)}: the actor has ended: {ended}"))
        else:
            self._lose("the actor died")

    def _lose(self, why: str) -> None:
        """Fail calls that may have started, or retry them if requested."""
        for call in list(self._calls.values()):
            if not call.sent:
                continue
            if call.retries_left:
                call.retries_left -= 1
                call.sent, call.tried, call.end, call.assembly = False, True, None, None
                continue
            del self._calls[call.number]
            call.fail(ActorDied(f"{self._what(call)}: {why} before it answered; the method may have run"))

    def _judge(self, place: Place, problem: MarinError, since: float) -> None:
        """Handle a failed or broken connection."""
        if isinstance(problem, Denied | InvalidRequest | Conflict):
            self._refuse_all(problem)
            return
        now = self._target.now
        if now.place is not None and now.place.life != place.life:
            self._lose("the actor died and restarted")
        elif now.place is not None and self._clock() - since > self._reconnect_timeout:
            limit = f"for {self._reconnect_timeout:g} s"
            self._fail_all(
                lambda call: ActorDied(f"{self._what(call)}: {place.address} did not answer {limit}: {problem}")
            )

    async def _serve(self, place: Place) -> MarinError | None:
        """Serve one connection to its end. Return None if it was established, otherwise why it was not."""
        link = self._make_link(place, self._session, self, self._key)
        made = False
        try:
            outstanding = [number for number, call in self._calls.items() if call.sent]
            welcome = await link.open(self._whoami, outstanding)
            made = True
            if not welcome.resumed:
                self._lose("the actor restarted")
            known = set(welcome.known)
            self._link, self._unreached = link, ""
            for call in list(self._calls.values()):
                if call.number not in known:
                    call.sent = False
                if call.withdrawal is not None and not call.withdrawal.done():
                    self._withdraw(call)
                if not call.sent and not call.future.done():
                    link.send(call)
            await link.run(self._until_over(link))
        except grpc.aio.AioRpcError as error:
            if not made:
                return from_rpc_error(error)
        except MarinError as error:
            if not made or not isinstance(error, Unavailable):
                return error
        finally:
            self._link = None
            await link.close()
        return None

    async def _until_over(self, link: Link) -> None:
        """Wait until the actor has moved or the idle timeout expires."""
        while True:
            self._changed.clear()
            now = self._target.now
            if now.place is not None and now.place.life != link.place.life:
                return
            if now.ended and not self._calls:
                return
            try:
                async with asyncio.timeout(self._idle_s):
                    await self._changed.wait()
            except TimeoutError:
                if not self._calls and self._clock() - link.last_word >= self._idle_s:
                    return

    def _refuse_all(self, error: MarinError) -> None:
        # An exception for each: raised in many places, one would gather the traces of all.
        self._fail_all(lambda _: copy.copy(error))

    def _fail_all(self, error_of: Callable[[PendingCall], MarinError]) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(error_of(call))
