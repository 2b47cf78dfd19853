"""All calls of a process to one actor: which are made again, which fail and why; connection and places are played."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from fray.testing.waiting import eventually_async
from iris.actor.client.caller import DEFAULT_LIMITS, Caller, ClientLimits
from iris.actor.client.pending import PendingCall, Reply
from iris.actor.client.places import Location, Place, Target
from iris.actor.errors import ActorStopped
from iris.actor.transport.payload import dump, dump_arguments
from iris.rpc.generated import actor_pb2 as pb
from rigging.errors import Conflict, Denied, MarinError, Unavailable
from support.iris.loops import ShiftedLoop

FIRST, SECOND = Place("h:1", "life 1", "counter"), Place("h:2", "life 2", "counter")
NEW = pb.ActorWelcome(resumed=False)
BROKEN = Unavailable("broken")
REFUSED = Unavailable("refused")


class Where:
    """Says where the actor is as the test wants it."""

    label = "counter"

    def __init__(self) -> None:
        self.now = Location(FIRST)
        self.opened = self.closed = 0
        self._on_change: Callable[[], object] = lambda: None

    def open(self, on_change: Callable[[], object]) -> None:
        self.opened += 1
        self._on_change = on_change

    def close(self) -> None:
        self.closed += 1

    def move(self, place: Place | None, ended: str = "", error: MarinError | None = None) -> None:
        self.now = Location(place, ended, error)
        self._on_change()


class Link:
    """One connection, which the test welcomes and breaks."""

    def __init__(self, place: Place, session: str, calls: Caller, key: bytes) -> None:
        assert key == b"key"
        self.place, self.session, self.calls = place, session, calls
        self.last_word = 0.0
        self.outstanding: list[int] = []
        self.sent: list[str] = []
        self.cancelled: list[str] = []
        self.withdrawn: list[str] = []
        self.finished: list[bool] = []
        self.closed = False
        self.has_it_all = True
        self.answer: asyncio.Future[pb.ActorWelcome] = asyncio.get_running_loop().create_future()
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, whoami: str, outstanding: list[int]) -> pb.ActorWelcome:
        assert whoami == "a test"
        self.outstanding = outstanding
        return await self.answer

    def send(self, call: PendingCall) -> None:
        call.sent = True
        self.sent.append(call.method)

    def cancel(self, call: PendingCall) -> None:
        self.cancelled.append(call.method)

    def withdraw(self, call: PendingCall) -> None:
        self.withdrawn.append(call.method)

    async def finish(self, forget: bool) -> bool:
        self.finished.append(forget)
        return self.has_it_all

    async def run(self, over: Coroutine[Any, Any, None]) -> None:
        ending = asyncio.ensure_future(over)
        await asyncio.wait([ending, self.broken], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if self.broken.done():
            self.broken.result()
        else:
            self.calls.leaving()

    async def close(self) -> None:
        self.closed = True

    def settle(self, *calls: PendingCall) -> None:
        """The results are here."""
        for call in calls:
            self.calls.settled(call, Reply(pb.CallEnd(call=call.number), dump(call.method).whole))


class Bench:
    """A caller, and what becomes of its calls.

    Attributes:
        now_s: What the caller's clock says; None: it runs.
    """

    def __init__(self, loop: ShiftedLoop, limits: ClientLimits) -> None:
        self._loop = loop
        self.where = Where()
        self.links: list[Link] = []
        self.now_s: float | None = None
        target, make_link = cast(Target, self.where), cast(Any, self._link)
        self.caller = Caller(
            loop, target, b"key", "a test", reconnect_timeout=5.0, limits=limits, make_link=make_link, clock=self._clock
        )

    def _clock(self) -> float:
        return time.monotonic() if self.now_s is None else self.now_s

    def _link(self, *arguments: Any) -> Link:
        self.links.append(Link(*arguments))
        return self.links[-1]

    def call(self, method: str, retries: int = 0, deadline: float | None = None) -> PendingCall:
        made = PendingCall(method, dump_arguments((), {}), deadline, retries, lambda: None)
        self.caller.submit(made)
        return made

    async def advance(self, seconds: float) -> None:
        """Let the loop's clock be so much later, and everything happen that is due then."""
        self._loop.ahead_s += seconds
        await turns()

    async def link(self, number: int = 1) -> Link:
        """The connection of that number, when it is tried."""
        await eventually_async(lambda: len(self.links) >= number, f"connection {number} is tried")
        await asyncio.sleep(0)
        return self.links[number - 1]

    async def connected(self, number: int = 1, resumed: bool = False, known: tuple[int, ...] = ()) -> Link:
        link = await self.link(number)
        link.answer.set_result(pb.ActorWelcome(resumed=resumed, known=known))
        await turns()
        return link


async def turns() -> None:
    """Let everything happen that can happen now."""
    for _ in range(10):
        await asyncio.sleep(0)


async def error_of(call: PendingCall) -> str:
    """The kind and text of the error that a call ends with."""
    await eventually_async(call.future.done, "the call ends")
    with pytest.raises(MarinError) as failed:
        call.future.result()
    return f"{type(failed.value).__name__}: {failed.value}"


@pytest.fixture
def limits() -> ClientLimits:
    return DEFAULT_LIMITS


@pytest.fixture
def bench(runner: asyncio.Runner, loop: ShiftedLoop, limits: ClientLimits) -> Iterator[Bench]:
    async def made() -> Bench:
        return Bench(loop, limits)

    bench = runner.run(made())
    yield bench
    runner.run(bench.caller.close())


async def test_after_a_break_what_the_server_does_not_know_is_said_again(bench: Bench) -> None:
    assert bench.caller.label == "counter"
    calls = [bench.call(name) for name in "abc"]
    first = await bench.connected()
    assert (first.place, first.outstanding, first.sent) == (FIRST, [], ["a", "b", "c"])
    assert [first.calls.find(number) for number in (1, 2, 3, 4)] == [*calls, None]
    first.settle(calls[0])
    assert first.calls.find(1) is None
    first.broken.set_exception(BROKEN)
    second = await bench.link(2)
    assert first.closed
    calls.append(bench.call("d"))
    await bench.connected(2, resumed=True, known=(2,))
    assert second.session == first.session
    assert (second.outstanding, second.sent) == ([2, 3], ["c", "d"])
    assert not any(call.future.done() for call in calls[1:])


async def test_what_may_have_begun_in_an_earlier_life_fails_unless_it_may_be_made_again(bench: Bench) -> None:
    once, twice, always = bench.call("once"), bench.call("twice", 1), bench.call("always", -1)
    (await bench.connected()).broken.set_exception(BROKEN)
    second = await bench.connected(2)
    why = "the actor restarted before it answered; the method may have run"
    assert await error_of(once) == f"ActorDied: 'once' of actor counter: {why}"
    assert second.sent == ["twice", "always"]
    second.broken.set_exception(BROKEN)
    third = await bench.connected(3)
    assert (await error_of(twice)).startswith("ActorDied: ")
    assert third.sent == ["always"]
    assert not always.future.done()


async def test_a_call_is_withdrawn_unless_it_may_have_begun(bench: Bench) -> None:
    before = bench.call("before")
    assert await asyncio.to_thread(bench.caller.withdraw, before)
    with pytest.raises(ActorStopped, match="'before' of actor counter was cancelled"):
        before.future.result()
    tried, asked, late = bench.call("tried", retries=1), bench.call("asked", retries=1), bench.call("late", retries=1)
    link = await bench.connected()
    assert link.sent == ["tried", "asked", "late"]
    answers = [asyncio.create_task(asyncio.to_thread(bench.caller.withdraw, call)) for call in (asked, late)]
    await eventually_async(lambda: sorted(link.withdrawn) == ["asked", "late"], "the actor is asked")
    link.broken.set_exception(BROKEN)
    # What is not known there has not begun; what is known is asked for again.
    link = await bench.connected(2, resumed=True, known=(tried.number, late.number))
    assert await answers[0]
    assert link.withdrawn == ["late"]
    late.answer_withdrawal(False)
    assert not await answers[1]
    link.broken.set_exception(BROKEN)
    await bench.connected(3, resumed=False)
    assert not await asyncio.to_thread(bench.caller.withdraw, tried), "its first life may have run it"
    assert not tried.future.done()


async def test_an_actor_without_a_place_is_waited_for_until_it_has_ended(bench: Bench) -> None:
    began = bench.call("began")
    link = await bench.connected()
    bench.where.move(None)
    link.broken.set_exception(BROKEN)
    why = "the actor died before it answered; the method may have run"
    assert await error_of(began) == f"ActorDied: 'began' of actor counter: {why}"
    waits = bench.call("waits")
    await turns()
    assert not waits.future.done()
    bench.where.move(SECOND)
    again = await bench.connected(2)
    assert (again.place, again.sent) == (SECOND, ["waits"])
    again.broken.set_exception(BROKEN)
    bench.where.move(None, "its job failed")
    assert await error_of(waits) == "ActorDied: 'waits' of actor counter: the actor has ended: its job failed"


async def test_a_connection_is_given_up_when_the_actor_lives_elsewhere(bench: Bench) -> None:
    call = bench.call("call", 1)
    first = await bench.connected()
    bench.where.move(FIRST)
    await turns()
    assert not first.closed, "nothing has changed"
    bench.where.move(SECOND)
    second = await bench.connected(2)
    assert (first.closed, second.place, second.sent) == (True, SECOND, ["call"])
    second.settle(call)


async def test_a_refusal_fails_all_calls_each_with_an_error_of_its_own(bench: Bench) -> None:
    calls = [bench.call("a"), bench.call("b")]
    (await bench.link()).answer.set_exception(Denied("not one of this user's jobs"))
    assert [await error_of(call) for call in calls] == ["Denied: not one of this user's jobs"] * 2
    assert calls[0].future.exception() is not calls[1].future.exception()
    bench.where.move(None, error=Denied("no such user"))
    assert await error_of(bench.call("late")) == "Denied: no such user"


async def test_an_address_that_does_not_answer_for_long_is_given_up(bench: Bench) -> None:
    call = bench.call("call")
    for number, at in enumerate((100.0, 104.0, 105.0), 1):
        bench.now_s = at
        (await bench.link(number)).answer.set_exception(REFUSED)
        await turns()
        assert not call.future.done()
    bench.now_s = 105.1
    (await bench.link(4)).answer.set_exception(REFUSED)
    assert await error_of(call) == "ActorDied: 'call' of actor counter: h:1 did not answer for 5 s: refused"
    # A connection that was made counts anew.
    again = bench.call("again")
    bench.now_s = 120.0
    (await bench.connected(5)).broken.set_exception(BROKEN)
    bench.now_s = 140.0
    (await bench.link(6)).answer.set_exception(REFUSED)
    await turns()
    assert not again.future.done()


async def test_a_life_that_ended_while_it_could_not_be_reached_loses_what_it_may_have_begun(bench: Bench) -> None:
    call = bench.call("call")
    (await bench.connected()).broken.set_exception(BROKEN)
    second = await bench.link(2)
    bench.where.move(SECOND)
    second.answer.set_exception(REFUSED)
    why = "the actor died and restarted before it answered"
    assert (await error_of(call)).startswith(f"ActorDied: 'call' of actor counter: {why}")


async def test_a_call_that_is_taken_back_or_late_is_said_to_the_server(bench: Bench) -> None:
    back = bench.call("back")
    link = await bench.connected()
    late = bench.call("late", deadline=0.0)  # long ago
    assert await error_of(late) == "DeadlineExceeded: 'late' of actor counter: no result before its deadline"
    bench.caller.cancel(back)
    bench.caller.cancel(back)
    await turns()
    assert link.cancelled == ["late", "back"]
    assert link.calls.find(back.number) is None
    bench.call("gone").fail(Conflict("taken back at once"))
    await turns()
    assert "gone" not in link.sent


async def test_one_that_was_closed_fails_its_calls_and_those_that_come(bench: Bench) -> None:
    calls = [bench.call("a")]
    link = await bench.connected()
    await bench.caller.close()
    calls.append(bench.call("b"))
    for call in calls:
        assert await error_of(call) == f"Conflict: {call.method!r} of actor counter: the client was closed"
    assert (link.closed, bench.where.closed) == (True, 1)


async def test_a_fault_of_ours_fails_the_calls_and_the_next_one_begins_anew(bench: Bench) -> None:
    call = bench.call("call")
    (await bench.link()).answer.set_exception(ValueError("a defect"))
    why = "its client failed; the method may have run: ValueError: a defect"
    assert await error_of(call) == f"MarinError: 'call' of actor counter: {why}"
    await turns()
    assert bench.where.closed == 1
    bench.call("next")
    assert (await bench.connected(2)).sent == ["next"]
    assert bench.where.opened == 2


@pytest.mark.parametrize("limits", [ClientLimits(idle_s=1.0)], ids=["idle after a second"])
async def test_who_wants_nothing_for_long_lets_go_and_begins_anew(bench: Bench) -> None:
    call = bench.call("call")
    link = await bench.connected()
    for _ in range(3):
        await bench.advance(1.1)
    assert not link.closed, "somebody waits for a result"
    link.settle(call)
    link.last_word = float("inf")
    for _ in range(3):
        await bench.advance(1.1)
    assert not link.closed, "the server speaks"
    link.last_word = 0.0
    await bench.advance(1.1)
    assert link.closed
    for _ in range(2):  # the pause after every connection, and the time in which a call may come
        await bench.advance(1.1)
    assert bench.where.closed == 1
    bench.call("next")
    assert (await bench.connected(2)).sent == ["next"]
    assert bench.where.opened == 2


async def test_a_connection_is_left_for_good_only_when_nothing_is_asked_for(bench: Bench) -> None:
    calls = [bench.call("a")]
    link = await bench.connected()
    assert not bench.caller.leaving()
    calls.append(bench.call("b"))
    await turns()
    assert link.sent == ["a", "b"], "it is used on"
    link.settle(*calls)
    assert bench.caller.leaving()
    bench.call("c")
    await turns()
    assert link.sent == ["a", "b"], "what is called from here on needs a new one"


async def test_a_connection_to_an_actor_that_has_ended_is_kept_as_long_as_something_may_come(bench: Bench) -> None:
    call = bench.call("call")
    link = await bench.connected()
    bench.where.move(None, "its job has ended")
    await turns()
    assert not link.closed, "the result may be on its way"
    link.settle(call)
    bench.where.move(None, "its job has ended since")
    await eventually_async(lambda: link.closed, "the connection is closed")
    assert call.future.result().value() == "call"


@pytest.mark.parametrize("has_it_all", [True, False])
async def test_at_the_end_of_a_process_what_was_called_is_handed_over(bench: Bench, has_it_all: bool) -> None:
    call = bench.call("call")
    flushing = asyncio.create_task(bench.caller.flush())
    link = await bench.link()
    await turns()
    assert not flushing.done(), "there is no connection yet"
    link.has_it_all = has_it_all
    link.answer.set_result(NEW)
    if not has_it_all:
        await eventually_async(lambda: link.finished, "the connection has ended")
        assert not flushing.done()
        link.broken.set_exception(BROKEN)
        await bench.connected(2, resumed=True)
    await flushing
    assert bench.links[-1].finished == [False]
    assert not call.future.done()


async def test_at_the_end_of_a_process_without_calls_the_server_may_forget_it(bench: Bench) -> None:
    await bench.caller.flush()
    call = bench.call("call")
    link = await bench.connected()
    link.settle(call)
    await bench.caller.flush()
    await bench.caller.flush()
    assert link.finished == [True]


async def test_a_call_that_is_late_says_that_nobody_was_reached(bench: Bench) -> None:
    bench.now_s = 0.0
    call = bench.call("late", deadline=10.0)
    (await bench.link(1)).answer.set_exception(REFUSED)
    await turns()
    await bench.advance(10.0)
    text = "DeadlineExceeded: 'late' of actor counter: no result before its deadline"
    assert await error_of(call) == f"{text} (h:1: refused)"
    call = bench.call("late", deadline=10.0)
    await eventually_async(lambda: not bench.links[-1].answer.done(), "another connection is tried")
    bench.links[-1].answer.set_result(NEW)
    await turns()
    await bench.advance(10.0)
    assert await error_of(call) == text, "this one was heard"
