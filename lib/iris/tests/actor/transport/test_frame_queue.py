"""What waits to be sent: in its order, in messages of bounded size, large pickles in turns."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from iris.actor.transport.frame_queue import FrameQueue, Handoff, Number
from iris.actor.transport.payload import CHUNK_BYTES, Chunks, Pickle
from iris.actor.transport.wire import Envelope
from iris.rpc import actor_pb2 as pb

Box = FrameQueue[pb.ClientFrames]


class Fat:
    """A frame that says how large it is."""

    def __init__(self, number: int, size: int) -> None:
        self._number = number
        self._size = size

    def fill(self, envelope: Envelope[Any]) -> int:
        envelope.message.acks.append(self._number)
        return self._size


async def emptied(frame_queue: Box) -> list[Envelope[pb.ClientFrames]]:
    frame_queue.close()
    found = []
    while (envelope := await frame_queue.next()) is not None:
        found.append(envelope)
    return found


def played(fill: Callable[[Box], object]) -> list[Envelope[pb.ClientFrames]]:
    async def play() -> list[Envelope[pb.ClientFrames]]:
        frame_queue: Box = FrameQueue(pb.ClientFrames)
        fill(frame_queue)
        return await emptied(frame_queue)

    return asyncio.run(play())


def test_small_frames_share_a_message_in_their_order() -> None:
    def fill(frame_queue: Box) -> None:
        for number in range(1000):
            frame_queue.put(Number("acks", number))

    (envelope,) = played(fill)
    assert list(envelope.message.acks) == list(range(1000))


def test_a_message_is_full_at_256_kib() -> None:
    def fill(frame_queue: Box) -> None:
        for number, kib in enumerate((255, 1, 256, 300, 1, 1)):
            frame_queue.put(Fat(number, kib * 1024))

    assert [list(envelope.message.acks) for envelope in played(fill)] == [[0, 1], [2], [3], [4, 5]]


def pickle_of(letter: bytes, chunks: float) -> Pickle:
    return Pickle(letter * round(CHUNK_BYTES * chunks))


def test_large_pickles_take_turns_a_chunk_a_message_and_tell_when_they_are_sent() -> None:
    told: list[str] = []

    def fill(frame_queue: Box) -> None:
        frame_queue.stream(Chunks(1, pickle_of(b"a", 2.5)), lambda: told.append("a"))
        frame_queue.stream(Chunks(2, pickle_of(b"b", 1)), lambda: told.append("b"))
        frame_queue.stream(Chunks(3, pickle_of(b"c", 1.5)))
        frame_queue.put(Number("acks", 9))

    envelopes = played(fill)
    assert [chunk.call for envelope in envelopes for chunk in envelope.message.chunks] == [1, 2, 3, 1, 3, 1]
    assert all(len(envelope.message.chunks) == 1 for envelope in envelopes)
    assert list(envelopes[0].message.acks) == [9], "small frames come with the first"
    assert told == ["b", "a"]
    sizes = [sum(map(len, envelope.pieces[1:])) for envelope in envelopes]
    assert sizes == [CHUNK_BYTES] * 4 + [CHUNK_BYTES // 2] * 2


def test_a_full_message_takes_no_chunk() -> None:
    def fill(frame_queue: Box) -> None:
        frame_queue.stream(Chunks(1, pickle_of(b"a", 1)))
        frame_queue.put(Fat(0, 256 * 1024))

    assert [len(envelope.message.chunks) for envelope in played(fill)] == [0, 1]


def test_a_pickle_that_is_dropped_is_sent_no_further_and_the_others_are() -> None:
    async def play() -> list[int]:
        frame_queue: Box = FrameQueue(pb.ClientFrames)
        for call in (1, 2):
            frame_queue.stream(Chunks(call, pickle_of(b"a", 2)))
        first = await frame_queue.next()
        assert first is not None
        frame_queue.drop_stream(1)
        frame_queue.drop_stream(7)
        return [chunk.call for envelope in [first, *await emptied(frame_queue)] for chunk in envelope.message.chunks]

    assert asyncio.run(play()) == [1, 2, 2]


def test_the_writer_wakes_for_each_thing_to_say_and_for_the_end() -> None:
    async def play() -> None:
        frame_queue: Box = FrameQueue(pb.ClientFrames)
        wakers: list[Callable[[], object]] = [
            lambda: frame_queue.put(Number("acks", 1)),
            lambda: frame_queue.stream(Chunks(1, Pickle(b"x"))),
        ]
        for wake in wakers:
            waiting = asyncio.create_task(frame_queue.next())
            await asyncio.sleep(0)
            assert not waiting.done()
            wake()
            assert await asyncio.wait_for(waiting, 20) is not None
        waiting = asyncio.create_task(frame_queue.next())
        await asyncio.sleep(0)
        frame_queue.close()
        assert await asyncio.wait_for(waiting, 20) is None

    asyncio.run(play())


def test_a_frame_without_hurry_waits_for_another_one() -> None:
    async def play() -> None:
        frame_queue: Box = FrameQueue(pb.ClientFrames)
        waiting = asyncio.create_task(frame_queue.next())
        await asyncio.sleep(0)
        frame_queue.put(Number("acks", 1), hurry=False)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        frame_queue.put(Number("acks", 2))
        envelope = await asyncio.wait_for(waiting, 20)
        assert envelope is not None
        assert list(envelope.message.acks) == [1, 2]
        frame_queue.wake()  # nobody waits: nothing happens

    asyncio.run(play())


def test_items_of_any_thread_come_to_the_loop_in_order_and_all_of_them() -> None:
    async def play() -> list[int]:
        came: list[int] = []
        all_here = asyncio.Event()

        def take(item: int) -> None:
            came.append(item)
            if len(came) == 300:
                all_here.set()

        handoff = Handoff(asyncio.get_running_loop(), take)
        threads = [
            threading.Thread(target=lambda first=first: [handoff.put(first + step) for step in range(100)])  # type: ignore[misc]
            for first in (0, 1000, 2000)
        ]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(all_here.wait(), 20)
        return came

    came = asyncio.run(play())
    assert sorted(came) == [first + step for first in (0, 1000, 2000) for step in range(100)]
    for first in (0, 1000, 2000):
        mine = [item for item in came if first <= item < first + 100]
        assert mine == sorted(mine)


def test_items_that_come_close_together_cause_one_wake_up() -> None:
    class Loop:
        def __init__(self) -> None:
            self.woken: list[Callable[[], object]] = []

        def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
            self.woken.append(callback)

    loop, took = Loop(), []
    handoff: Handoff[int] = Handoff(loop, took.append)  # type: ignore[arg-type]
    for number in range(3):
        handoff.put(number)
    assert len(loop.woken) == 1
    loop.woken[0]()
    assert took == [0, 1, 2]
    handoff.put(3)
    assert len(loop.woken) == 2
    loop.woken[1]()
    assert took == [0, 1, 2, 3]
