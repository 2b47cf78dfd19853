"""The server's side of one client without a connection: what it takes, keeps and forgets."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from iris.actor.client.pending import PendingCall
from iris.actor.server.hosted import HostedCall
from iris.actor.server.session import CallerSession, MemoryBudget
from iris.actor.transport.frame_queue import FrameQueue
from iris.actor.transport.payload import Pickle, dump_arguments
from iris.actor.transport.wire import Envelope, pack, unpack_server
from iris.rpc import actor_pb2 as pb


def start(number: int, method: str, *args: Any) -> pb.CallStart:
    return pb.CallStart(call=number, actor="bench", method=method, inline=bytes(dump_arguments(args, {}).whole))


class Queue:
    """Stands in for a hosted actor of which the test is the thread."""

    def __init__(self) -> None:
        self.calls: list[HostedCall] = []

    def has_method(self, name: str) -> bool:
        return bool(name)

    def submit(self, call: HostedCall) -> None:
        call.begun = True
        self.calls.append(call)

    def drop(self, call: HostedCall) -> bool:
        return not call.begun


def test_an_end_that_is_there_before_the_loop_has_heard_of_it_is_told_once() -> None:
    async def ends() -> tuple[list[int], int]:
        actor, first, second = Queue(), FrameQueue(pb.ServerFrames), FrameQueue(pb.ServerFrames)
        session = CallerSession("session", "a test", {"bench": actor}, MemoryBudget(1))  # type: ignore[dict-item]
        session.attach(first, [])
        session.take(Envelope(pb.ClientFrames(starts=[start(7, "make")])))
        (call,) = actor.calls
        call.end_data, call.end = Pickle(bytes(3_000_000)), pb.CallEnd(call=7)
        assert session.attach(second, [7]) == [7]
        session.finish(call)
        second.close()
        told, size = [], 0
        while (envelope := await second.next()) is not None:
            there = unpack_server(pack(envelope))
            told += [end.call for end in there.message.ends]
            size += sum(map(len, there.blobs))
        return told, size

    assert asyncio.run(ends()) == ([7], 3_000_000)


LARGE = bytes(dump_arguments((bytes(1000),), {}).whole)


def take(session: CallerSession, *blobs: bytes, **frames: Any) -> None:
    session.take(Envelope(pb.ClientFrames(**frames), blobs))


def in_session(test: Callable[[CallerSession, Queue, MemoryBudget], None], limit: int = 10_000) -> None:
    """Run a test with a session that a connection serves; what it says is thrown away."""

    async def run() -> None:
        actor, admission = Queue(), MemoryBudget(limit)
        session = CallerSession("session", "a test", {"bench": actor}, admission)  # type: ignore[dict-item]
        session.attach(FrameQueue(pb.ServerFrames), [])
        test(session, actor, admission)

    asyncio.run(run())


def begin(session: CallerSession, *numbers: int) -> None:
    for number in numbers:
        take(session, starts=[pb.CallStart(call=number, actor="bench", method="size", size=len(LARGE))])


def test_chunks_of_a_call_that_was_cancelled_are_thrown_away_and_those_of_others_are_not() -> None:
    """They were under way when it was: to take them for a fault would end all calls of the connection."""

    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        begin(session, 1, 2)
        take(session, LARGE[:500], LARGE[:500], chunks=[pb.Chunk(call=1), pb.Chunk(call=2)])
        take(session, cancels=[1])
        take(session, LARGE[500:], LARGE[500:], chunks=[pb.Chunk(call=1), pb.Chunk(call=2)])
        assert [call.number for call in actor.calls] == [2]
        assert bytes(actor.calls[0].data or b"") == LARGE
        session.release(actor.calls[0])
        assert admission.used == 0, "what was cancelled leaves its room to others"

    in_session(test)


def test_a_call_waits_for_those_that_its_client_made_before() -> None:
    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        begin(session, 1, 2)
        take(session, starts=[start(3, "note", 3)])
        take(session, LARGE, chunks=[pb.Chunk(call=2)])
        assert actor.calls == []
        take(session, cancels=[1])
        assert [call.number for call in actor.calls] == [2, 3]

    in_session(test)


def test_large_arguments_are_let_in_as_there_is_room_in_their_order() -> None:
    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        begin(session, 1, 2, 3)
        assert admission.used == 2 * len(LARGE)
        take(session, LARGE, chunks=[pb.Chunk(call=3)])  # not let in yet
        take(session, LARGE, LARGE, chunks=[pb.Chunk(call=2), pb.Chunk(call=1)])
        assert [call.number for call in actor.calls] == [1, 2]
        session.release(actor.calls[0])
        assert admission.used == 2 * len(LARGE), "the third has come in for the first"
        session.release(actor.calls[1])
        take(session, LARGE, chunks=[pb.Chunk(call=3)])
        session.release(actor.calls[2])
        assert admission.used == 0

    in_session(test, limit=2 * len(LARGE))


def test_an_argument_larger_than_the_limit_is_let_in_alone() -> None:
    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        begin(session, 1, 2)
        assert admission.used == len(LARGE)
        take(session, cancels=[1])
        assert admission.used == len(LARGE), "now the second"
        session.detach(session.frame_queue)  # type: ignore[arg-type]
        assert admission.used == 0

    in_session(test, limit=10)


def test_what_a_client_does_not_wait_for_any_more_is_forgotten() -> None:
    """It has the result, and its word of that was lost with the connection: to keep it would be for ever."""

    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        take(session, starts=[start(1, "make"), start(2, "make")])
        for call in actor.calls:
            call.end_data, call.end = Pickle(b"result"), pb.CallEnd(call=call.number)
            session.finish(call)
        assert session.attach(FrameQueue(pb.ServerFrames), [2]) == [2]
        assert session.attach(FrameQueue(pb.ServerFrames), [1, 2]) == [2]

    in_session(test)


def test_a_call_that_did_not_begin_keeps_no_arguments() -> None:
    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        begin(session, 1, 2)
        take(session, LARGE, chunks=[pb.Chunk(call=2)])
        waiting = session._calls[2]
        assert waiting.data is not None
        take(session, cancels=[2])
        assert waiting.data is None

    in_session(test)


def test_many_calls_are_spread_over_messages() -> None:
    """A message may have 64 MB, and one that holds up the others for long should not be made at all."""

    async def sizes() -> list[int]:
        frame_queue = FrameQueue(pb.ClientFrames)
        for _ in range(100):
            frame_queue.put(PendingCall("note", dump_arguments((os.urandom(15_000),), {}), None, 0, lambda: None))
        frame_queue.close()
        found = []
        while (envelope := await frame_queue.next()) is not None:
            found.append(len(pack(envelope)))
        return found

    found = asyncio.run(sizes())
    assert sum(found) > 1_500_000
    assert max(found) < 300_000


def numbers(frames: "list[Envelope[pb.ServerFrames]]") -> tuple[list[int], list[int]]:
    """The calls whose arguments are asked for, and those that are told to have ended."""
    goes = [number for envelope in frames for number in envelope.message.goes]
    return goes, [end.call for envelope in frames for end in envelope.message.ends]


async def said(frame_queue: "FrameQueue[pb.ServerFrames]") -> "list[Envelope[pb.ServerFrames]]":
    """All that waits to be sent; nothing may be said by this connection afterwards."""
    frame_queue.close()
    found = []
    while (envelope := await frame_queue.next()) is not None:
        found.append(envelope)
    return found


def test_the_newer_connection_ends_the_older_one_and_hears_the_rest() -> None:
    async def run() -> None:
        actor, first, second = Queue(), FrameQueue(pb.ServerFrames), FrameQueue(pb.ServerFrames)
        session = CallerSession("session", "a test", {"bench": actor}, MemoryBudget(1))  # type: ignore[dict-item]
        session.attach(first, [])
        take(session, starts=[start(1, "make")])
        waiting = asyncio.create_task(first.next())
        await asyncio.sleep(0)
        session.attach(second, [1])
        assert await asyncio.wait_for(waiting, 10) is None
        session.detach(first)
        assert session.frame_queue is second, "the end of the older one is nothing to the newer"
        (call,) = actor.calls
        call.end_data, call.end = Pickle(b"result"), pb.CallEnd(call=1)
        session.finish(call)
        assert numbers(await said(second)) == ([], [1])

    asyncio.run(run())


def test_a_call_that_is_said_twice_runs_once() -> None:
    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        take(session, starts=[start(1, "note"), start(1, "note")])
        begin(session, 2, 2)
        assert [call.number for call in actor.calls] == [1]
        assert admission.used == len(LARGE)

    in_session(test)


def test_what_cannot_run_is_refused_with_the_reason() -> None:
    async def run() -> list[tuple[int, int, str]]:
        actor, frame_queue = Queue(), FrameQueue(pb.ServerFrames)
        session = CallerSession("session", "a test", {"bench": actor}, MemoryBudget(10_000))  # type: ignore[dict-item]
        session.attach(frame_queue, [])
        take(session, starts=[start(1, "note"), pb.CallStart(call=2, actor="none", method="a"), start(3, "")])
        begin(session, 4)
        session.stop()
        take(session, starts=[start(5, "late")])
        assert [call.number for call in actor.calls] == [1], "what has begun is left alone"
        return [
            (end.call, end.refusal, end.error) for envelope in await said(frame_queue) for end in envelope.message.ends
        ]

    def text(method: str, why: str, actor: str = "bench") -> str:
        return f"{method!r} of actor {actor!r} did not run: {why}"

    assert asyncio.run(run()) == [
        (2, pb.REFUSAL_NO_ACTOR, text("a", "no actor of that name is here", "none")),
        (3, pb.REFUSAL_NO_METHOD, text("", "the actor has no public method of that name")),
        (4, pb.REFUSAL_STOPPED, text("size", "the actor was shut down before the call began")),
        (5, pb.REFUSAL_STOPPED, text("late", "the actor was shut down before the call began")),
    ]


def test_a_call_that_waits_for_room_at_its_deadline_is_refused_and_one_that_began_in_time_is_not() -> None:
    class Patient(Queue):
        def submit(self, call: HostedCall) -> None:
            self.calls.append(call)

    async def run() -> None:
        actor, frame_queue = Patient(), FrameQueue(pb.ServerFrames)
        session = CallerSession("session", "a test", {"bench": actor}, MemoryBudget(10_000))  # type: ignore[dict-item]
        session.attach(frame_queue, [])
        begun, late = start(1, "note"), start(2, "note")
        begun.deadline_ms = late.deadline_ms = 1
        take(session, starts=[begun, late])
        actor.calls[0].begun = True
        told = await asyncio.wait_for(frame_queue.next(), 20)
        assert told is not None
        assert [(end.call, end.refusal) for end in told.message.ends] == [(2, pb.REFUSAL_DEADLINE)]
        assert actor.calls[0].end is None

    asyncio.run(run())


def test_a_result_that_is_taken_back_before_it_is_fetched_is_not_kept() -> None:
    def test(session: CallerSession, actor: Queue, admission: MemoryBudget) -> None:
        take(session, starts=[start(1, "make"), start(2, "make")])
        for call in actor.calls:
            call.end_data, call.end = Pickle(bytes(3_000_000)), pb.CallEnd(call=call.number)
            session.finish(call)
        take(session, cancels=[77, 1], acks=[78, 2])  # the first of each are of nothing
        assert [call.end_data.size for call in actor.calls] == [0, 0]
        take(session, cancels=[1], acks=[2])  # said once more
        assert session.attach(FrameQueue(pb.ServerFrames), [1, 2]) == []

    in_session(test)


def test_long_error_texts_of_calls_with_large_ends_are_spread_over_messages() -> None:
    """All in one they would be more than a connection takes."""

    async def told() -> list[int]:
        actor, frame_queue = Queue(), FrameQueue(pb.ServerFrames)
        session = CallerSession("session", "a test", {"bench": actor}, MemoryBudget(1))  # type: ignore[dict-item]
        session.attach(frame_queue, [])
        session.take(Envelope(pb.ClientFrames(starts=[start(number, "make") for number in range(4)])))
        for call in actor.calls:
            call.end_data = Pickle(bytes(3_000_000))
            call.end = pb.CallEnd(call=call.number, failed=True, traceback="x" * 200_000)
            session.finish(call)
        frame_queue.close()
        found = []
        while (envelope := await frame_queue.next()) is not None:
            found.append(len(envelope.message.ends))
        return [count for count in found if count]

    assert asyncio.run(told()) == [2, 2]
