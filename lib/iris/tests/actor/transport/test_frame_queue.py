"""What waits to be sent: in its order, in messages of bounded size, large pickles in turns."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from iris.actor.transport.frame_queue import Handoff, Number, Outbox
from iris.actor.transport.payload import CHUNK_BYTES, Chunks, Pickle
from iris.actor.transport.wire import Parcel
from iris.rpc import actor_pb2 as pb

Box = Outbox[pb.ClientFrames]


class Fat:
    """A frame that says how large it is."""

    def __init__(self, number: int, size: int) -> None:
        self._number = number
        self._size = size

    def fill(self, parcel: Parcel[Any]) -> int:
        parcel.message.acks.append(self._number)
        return self._size


async def emptied(outbox: Box) -> list[Parcel[pb.ClientFrames]]:
    outbox.close()
    found = []
    while (parcel := await outbox.next()) is not None:
        found.append(parcel)
    return found


def played(fill: Callable[[Box], object]) -> list[Parcel[pb.ClientFrames]]:
    async def play() -> list[Parcel[pb.ClientFrames]]:
        outbox: Box = Outbox(pb.ClientFrames)
        fill(outbox)
        return await emptied(outbox)

    return asyncio.run(play())


def test_small_frames_share_a_message_in_their_order() -> None:
    def fill(outbox: Box) -> None:
        for number in range(1000):
            outbox.put(Number("acks", number))

    (parcel,) = played(fill)
    assert list(parcel.message.acks) == list(range(1000))


def test_a_message_is_full_at_256_kib() -> None:
    def fill(outbox: Box) -> None:
        for number, kib in enumerate((255, 1, 256, 300, 1, 1)):
            outbox.put(Fat(number, kib * 1024))

    assert [list(parcel.message.acks) for parcel in played(fill)] == [[0, 1], [2], [3], [4, 5]]


def pickle_of(letter: bytes, chunks: float) -> Pickle:
    return Pickle(letter * round(CHUNK_BYTES * chunks))


def test_large_pickles_take_turns_a_chunk_a_message_and_tell_when_they_are_sent() -> None:
    told: list[str] = []

    def fill(outbox: Box) -> None:
        outbox.stream(Chunks(1, pickle_of(b"a", 2.5)), lambda: told.append("a"))
        outbox.stream(Chunks(2, pickle_of(b"b", 1)), lambda: told.append("b"))
        outbox.stream(Chunks(3, pickle_of(b"c", 1.5)))
        outbox.put(Number("acks", 9))

    parcels = played(fill)
    assert [chunk.call for parcel in parcels for chunk in parcel.message.chunks] == [1, 2, 3, 1, 3, 1]
    assert all(len(parcel.message.chunks) == 1 for parcel in parcels)
    assert list(parcels[0].message.acks) == [9], "small frames come with the first"
    assert told == ["b", "a"]
    sizes = [sum(map(len, parcel.pieces[1:])) for parcel in parcels]
    assert sizes == [CHUNK_BYTES] * 4 + [CHUNK_BYTES // 2] * 2


def test_a_full_message_takes_no_chunk() -> None:
    def fill(outbox: Box) -> None:
        outbox.stream(Chunks(1, pickle_of(b"a", 1)))
        outbox.put(Fat(0, 256 * 1024))

    assert [len(parcel.message.chunks) for parcel in played(fill)] == [0, 1]


def test_a_pickle_that_is_dropped_is_sent_no_further_and_the_others_are() -> None:
    async def play() -> list[int]:
        outbox: Box = Outbox(pb.ClientFrames)
        for call in (1, 2):
            outbox.stream(Chunks(call, pickle_of(b"a", 2)))
        first = await outbox.next()
        assert first is not None
        outbox.drop_stream(1)
        outbox.drop_stream(7)
        return [chunk.call for parcel in [first, *await emptied(outbox)] for chunk in parcel.message.chunks]

    assert asyncio.run(play()) == [1, 2, 2]


def test_the_writer_wakes_for_each_thing_to_say_and_for_the_end() -> None:
    async def play() -> None:
        outbox: Box = Outbox(pb.ClientFrames)
        wakers: list[Callable[[], object]] = [
            lambda: outbox.put(Number("acks", 1)),
            lambda: outbox.stream(Chunks(1, Pickle(b"x"))),
        ]
        for wake in wakers:
            waiting = asyncio.create_task(outbox.next())
            await asyncio.sleep(0)
            assert not waiting.done()
            wake()
            assert await asyncio.wait_for(waiting, 20) is not None
        waiting = asyncio.create_task(outbox.next())
        await asyncio.sleep(0)
        outbox.close()
        assert await asyncio.wait_for(waiting, 20) is None

    asyncio.run(play())


def test_a_frame_without_hurry_waits_for_another_one() -> None:
    async def play() -> None:
        outbox: Box = Outbox(pb.ClientFrames)
        waiting = asyncio.create_task(outbox.next())
        await asyncio.sleep(0)
        outbox.put(Number("acks", 1), hurry=False)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        outbox.put(Number("acks", 2))
        parcel = await asyncio.wait_for(waiting, 20)
        assert parcel is not None
        assert list(parcel.message.acks) == [1, 2]
        outbox.wake()  # nobody waits: nothing happens

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
