"""The server's side of one client without a connection: what it takes, keeps and forgets."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from iris.actor.server.hosted import HostedCall
from iris.actor.server.session import CallerSession, MemoryBudget
from iris.actor.transport.frame_queue import FrameQueue
from iris.actor.transport.payload import Pickle, dump_arguments
from iris.actor.transport.wire import Envelope, pack, unpack_server
from iris.rpc.generated import actor_pb2 as pb

LARGE = bytes(dump_arguments((bytes(1000),), {}).whole)


class Queue:
    """Stands in for a hosted actor of which the test is the thread."""

    def __init__(self) -> None:
        self.calls: list[HostedCall] = []
        self.begins = True

    def has_method(self, name: str) -> bool:
        return bool(name)

    def submit(self, call: HostedCall) -> None:
        call.begun = self.begins
        self.calls.append(call)

    def drop(self, call: HostedCall) -> bool:
        return not call.begun


class Bench:
    """A session that a connection serves."""

    def __init__(self, limit: int) -> None:
        self.actor, self.admission = Queue(), MemoryBudget(limit)
        self.session = CallerSession("session", "a test", {"bench": self.actor}, self.admission)  # type: ignore[dict-item]
        self.attach()

    def attach(self, *outstanding: int) -> list[int]:
        """Another connection comes."""
        self.frame_queue = FrameQueue(pb.ServerFrames)
        return self.session.attach(self.frame_queue, outstanding)

    def take(self, *blobs: bytes, **frames: Any) -> None:
        self.session.take(Envelope(pb.ClientFrames(**frames), blobs))

    def begin(self, *numbers: int) -> None:
        """Calls with large arguments, which are to come in chunks."""
        for number in numbers:
            self.take(starts=[pb.CallStart(call=number, actor="bench", method="size", size=len(LARGE))])

    def start(self, *numbers: int, method: str = "note", deadline_ms: int = 0) -> None:
        """Calls with small arguments."""
        small = bytes(dump_arguments((), {}).whole)
        self.take(
            starts=[
                pb.CallStart(call=number, actor="bench", method=method, inline=small, deadline_ms=deadline_ms)
                for number in numbers
            ]
        )

    def end(self, data: bytes = b"result", traceback: str = "") -> None:
        """All calls that are there end."""
        for call in self.actor.calls:
            call.end_data = Pickle(data)
            call.end = pb.CallEnd(call=call.number, failed=bool(traceback), traceback=traceback)
            self.session.finish(call)

    @property
    def began(self) -> list[int]:
        return [call.number for call in self.actor.calls]

    async def said(self) -> list[Envelope[pb.ServerFrames]]:
        """All that waits to be sent; nothing may be said by this connection afterwards."""
        self.frame_queue.close()
        found = []
        while (envelope := await self.frame_queue.next()) is not None:
            found.append(unpack_server(pack(envelope)))
        return found

    async def ends(self) -> list[pb.CallEnd]:
        return [end for envelope in await self.said() for end in envelope.message.ends]


@pytest.fixture
def limit() -> int:
    return 10_000


@pytest.fixture
def bench(runner: asyncio.Runner, limit: int) -> Bench:
    async def made() -> Bench:
        return Bench(limit)

    return runner.run(made())


async def test_an_end_that_is_there_before_the_loop_has_heard_of_it_is_told_once(bench: Bench) -> None:
    bench.start(7)
    (call,) = bench.actor.calls
    call.end_data, call.end = Pickle(bytes(3_000_000)), pb.CallEnd(call=7)
    assert bench.attach(7) == [7]
    bench.session.finish(call)
    said = await bench.said()
    assert [end.call for each in said for end in each.message.ends] == [7]
    assert sum(len(blob) for each in said for blob in each.blobs) == 3_000_000


async def test_chunks_of_a_call_that_was_cancelled_are_thrown_away_and_those_of_others_are_not(bench: Bench) -> None:
    """They were under way when it was: to take them for a fault would end all calls of the connection."""
    both = [pb.Chunk(call=1), pb.Chunk(call=2)]
    bench.begin(1, 2)
    waiting = bench.session._calls[1]
    bench.take(LARGE[:500], LARGE[:500], chunks=both)
    bench.take(cancels=[1])
    bench.take(LARGE[500:], LARGE[500:], chunks=both)
    assert bench.began == [2]
    assert (bytes(bench.actor.calls[0].data or b""), waiting.data) == (LARGE, None)
    bench.session.release(bench.actor.calls[0])
    assert bench.admission.used == 0, "what was cancelled leaves its room to others"


async def test_a_call_waits_for_those_that_its_client_made_before(bench: Bench) -> None:
    bench.begin(1, 2)
    bench.start(3)
    bench.take(LARGE, chunks=[pb.Chunk(call=2)])
    assert bench.began == []
    bench.take(cancels=[1])
    assert bench.began == [2, 3]


async def test_what_waits_behind_a_cut_off_argument_is_to_be_sent_again(bench: Bench) -> None:
    bench.begin(1)
    bench.start(2)
    assert bench.attach(2) == []
    assert bench.admission.used == 0
    bench.start(1, 2)
    assert bench.began == [1, 2]


@pytest.mark.parametrize("limit", [2 * len(LARGE)], ids=["room for two"])
async def test_large_arguments_are_let_in_as_there_is_room_in_their_order(bench: Bench) -> None:
    bench.begin(1, 2, 3)
    assert bench.admission.used == 2 * len(LARGE)
    bench.take(LARGE, chunks=[pb.Chunk(call=3)])  # not let in yet
    bench.take(LARGE, LARGE, chunks=[pb.Chunk(call=2), pb.Chunk(call=1)])
    assert bench.began == [1, 2]
    bench.session.release(bench.actor.calls[0])
    assert bench.admission.used == 2 * len(LARGE), "the third has come in for the first"
    bench.session.release(bench.actor.calls[1])
    bench.take(LARGE, chunks=[pb.Chunk(call=3)])
    bench.session.release(bench.actor.calls[2])
    assert bench.admission.used == 0
    assert [list(each.message.goes) for each in await bench.said()] == [[1, 2, 3]]


@pytest.mark.parametrize("limit", [10])
async def test_an_argument_larger_than_the_limit_is_let_in_alone(bench: Bench) -> None:
    bench.begin(1, 2)
    assert bench.admission.used == len(LARGE)
    bench.take(cancels=[1])
    assert bench.admission.used == len(LARGE), "now the second"
    bench.session.detach(bench.frame_queue)
    assert bench.admission.used == 0


async def test_what_a_client_does_not_wait_for_any_more_is_forgotten(bench: Bench) -> None:
    """It has the result, and its word of that was lost with the connection: to keep it would be for ever."""
    bench.start(1, 2)
    bench.end()
    assert bench.attach(2) == [2]
    assert bench.attach(1, 2) == [2]


async def test_what_was_cancelled_while_the_client_was_away_does_not_run(bench: Bench) -> None:
    bench.actor.begins = False
    bench.start(1, 2)
    assert bench.attach(1) == [1]
    assert [(call.number, call.end is not None) for call in bench.actor.calls] == [(1, False), (2, True)]
    assert bench.actor.calls[1].end == pb.CallEnd(
        call=2, refusal=pb.REFUSAL_CANCELLED, error="'note' of actor 'bench' did not run: it was cancelled"
    )
    assert bench.attach(1, 2) == [1]


async def test_the_newer_connection_ends_the_older_one_and_hears_the_rest(bench: Bench) -> None:
    first = bench.frame_queue
    bench.start(1)
    waiting = asyncio.create_task(first.next())
    await asyncio.sleep(0)
    bench.attach(1)
    assert await asyncio.wait_for(waiting, 10) is None
    bench.session.detach(first)
    assert bench.session.frame_queue is bench.frame_queue, "the end of the older one is nothing to the newer"
    bench.end()
    assert [end.call for end in await bench.ends()] == [1]


async def test_a_call_that_is_said_twice_runs_once(bench: Bench) -> None:
    bench.start(1, 1)
    bench.begin(2, 2)
    assert bench.began == [1]
    assert bench.admission.used == len(LARGE)


async def test_what_cannot_run_is_refused_with_the_reason(bench: Bench) -> None:
    bench.start(1)
    bench.take(starts=[pb.CallStart(call=2, actor="none", method="a")])
    bench.start(3, method="")
    bench.begin(4)
    bench.session.stop()
    bench.start(5, method="late")
    assert bench.began == [1], "what has begun is left alone"

    def refused(number: int, refusal: Any, method: str, why: str, actor: str = "bench") -> pb.CallEnd:
        return pb.CallEnd(call=number, refusal=refusal, error=f"{method!r} of actor {actor!r} did not run: {why}")

    assert await bench.ends() == [
        refused(2, pb.REFUSAL_NO_ACTOR, "a", "no actor of that name is here", "none"),
        refused(3, pb.REFUSAL_NO_METHOD, "", "the actor has no public method of that name"),
        refused(4, pb.REFUSAL_STOPPED, "size", "the actor was shut down before the call began"),
        refused(5, pb.REFUSAL_STOPPED, "late", "the actor was shut down before the call began"),
    ]


async def test_a_call_that_waits_at_its_deadline_is_refused_and_one_that_began_in_time_is_not(bench: Bench) -> None:
    bench.actor.begins = False
    bench.start(1, 2, deadline_ms=1)
    bench.actor.calls[0].begun = True
    told = await asyncio.wait_for(bench.frame_queue.next(), 20)
    assert told is not None
    assert [(end.call, end.refusal) for end in told.message.ends] == [(2, pb.REFUSAL_DEADLINE)]
    assert bench.actor.calls[0].end is None


@pytest.mark.parametrize(
    "end_first", [lambda bench: bench.end(bytes(3_000_000)), lambda bench: None], ids=["ended", "still runs"]
)
async def test_a_result_that_is_taken_back_before_it_is_fetched_is_not_kept(
    bench: Bench, end_first: Callable[[Bench], None]
) -> None:
    bench.start(1, 2)
    end_first(bench)
    ended = bench.actor.calls[0].end is not None
    bench.take(cancels=[77, 1], acks=[78, 2])  # the first of each are of nothing
    bench.take(cancels=[1], acks=[2])  # said once more
    assert [call.end_data.size for call in bench.actor.calls] == [0, 0]
    assert bench.attach(1, 2) == ([] if ended else [1]), "what runs goes on"


async def test_long_error_texts_of_calls_with_large_ends_are_spread_over_messages(bench: Bench) -> None:
    """All in one they would be more than a connection takes."""
    bench.start(1, 2, 3, 4)
    bench.end(bytes(3_000_000), traceback="x" * 200_000)
    counts = [len(envelope.message.ends) for envelope in await bench.said()]
    assert [count for count in counts if count] == [2, 2]
