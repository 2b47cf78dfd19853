import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from iris.actor.transport.frame_queue import FrameQueue, Handoff, Number
from iris.actor.transport.payload import CHUNK_BYTES, Chunks, Pickle
from iris.actor.transport.wire import Envelope
from iris.rpc.generated import actor_pb2 as pb

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


def chunks(call: int, count: float) -> Chunks:
    return Chunks(call, Pickle(b"x" * round(CHUNK_BYTES * count)))


async def test_small_frames_share_a_message_in_their_order_until_it_is_full_at_256_kib() -> None:
    frame_queue: Box = FrameQueue(pb.ClientFrames)
    for number in range(1000):
        frame_queue.put(Number("acks", number))
    for number, kib in enumerate((247, 1, 256, 300, 1, 1)):
        frame_queue.put(Fat(number, kib * 1024 + 192 * (not number)))  # the first share their message with the numbers
    found = [list(envelope.message.acks) for envelope in await emptied(frame_queue)]
    assert found == [[*range(1000), 0, 1], [2], [3], [4, 5]]


async def test_large_pickles_take_turns_a_chunk_a_message_and_tell_when_they_are_sent() -> None:
    frame_queue: Box = FrameQueue(pb.ClientFrames)
    told: list[str] = []
    frame_queue.stream(chunks(1, 2.5), lambda: told.append("a"))
    frame_queue.stream(chunks(2, 1), lambda: told.append("b"))
    frame_queue.stream(chunks(3, 1.5))
    frame_queue.put(Number("acks", 9))
    envelopes = await emptied(frame_queue)
    assert [[chunk.call for chunk in envelope.message.chunks] for envelope in envelopes] == [
        [1],
        [2],
        [3],
        [1],
        [3],
        [1],
    ]
    assert list(envelopes[0].message.acks) == [9], "small frames come with the first"
    assert told == ["b", "a"]
    sizes = [sum(map(len, envelope.pieces[1:])) for envelope in envelopes]
    assert sizes == [CHUNK_BYTES] * 4 + [CHUNK_BYTES // 2] * 2


async def test_a_full_message_takes_no_chunk() -> None:
    frame_queue: Box = FrameQueue(pb.ClientFrames)
    frame_queue.stream(chunks(1, 1))
    frame_queue.put(Fat(0, 256 * 1024))
    assert [len(envelope.message.chunks) for envelope in await emptied(frame_queue)] == [0, 1]


async def test_a_pickle_that_is_dropped_is_sent_no_further_and_the_others_are() -> None:
    frame_queue: Box = FrameQueue(pb.ClientFrames)
    for call in (1, 2):
        frame_queue.stream(chunks(call, 2))
    first = await frame_queue.next()
    assert first is not None
    frame_queue.drop_stream(1)
    frame_queue.drop_stream(7)
    sent = [chunk.call for envelope in [first, *await emptied(frame_queue)] for chunk in envelope.message.chunks]
    assert sent == [1, 2, 2]


async def test_the_writer_wakes_for_each_thing_to_say_and_for_the_end() -> None:
    frame_queue: Box = FrameQueue(pb.ClientFrames)
    wakers: list[Callable[[], object]] = [
        lambda: frame_queue.put(Number("acks", 1)),
        lambda: frame_queue.stream(Chunks(1, Pickle(b"x"))),
        frame_queue.close,
    ]
    for wake in wakers:
        waiting = asyncio.create_task(frame_queue.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        wake()
        assert (await asyncio.wait_for(waiting, 20) is None) == (wake == frame_queue.close)


async def test_a_frame_without_hurry_waits_for_another_one() -> None:
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


async def test_items_of_any_thread_come_to_the_loop_in_order_and_all_of_them() -> None:
    came: list[int] = []
    all_here = asyncio.Event()

    def take(item: int) -> None:
        came.append(item)
        if len(came) == 300:
            all_here.set()

    handoff = Handoff(asyncio.get_running_loop(), take)

    def put(first: int) -> None:
        for step in range(100):
            handoff.put(first + step)

    for first in (0, 1000, 2000):
        threading.Thread(target=put, args=(first,)).start()
    await asyncio.wait_for(all_here.wait(), 20)
    for first in (0, 1000, 2000):
        assert [item for item in came if first <= item < first + 100] == list(range(first, first + 100))


def test_items_that_come_close_together_cause_one_wake_up() -> None:
    woken: list[Callable[[], object]] = []
    took: list[int] = []
    handoff: Handoff[int] = Handoff(SimpleNamespace(call_soon_threadsafe=woken.append), took.append)  # type: ignore[arg-type]
    for number in range(3):
        handoff.put(number)
    assert len(woken) == 1
    woken[0]()
    assert took == [0, 1, 2]
    handoff.put(3)
    assert len(woken) == 2
    woken[1]()
    assert took == [0, 1, 2, 3]
