"""What goes to an actor comes out as it went in, however large, and as it was at that moment."""

import pickle
from typing import Any

import pytest

from iris.actor.transport.payload import INLINE_BYTES, Assembly, Chunks, dump, dump_arguments, load

LARGE = bytes(range(256)) * (INLINE_BYTES // 128)


class Block:
    """Pickles what it holds as a buffer, as arrays do."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Block, (pickle.PickleBuffer(self.held),)


@pytest.mark.parametrize("value", [None, 7, "text", b"", b"\x00" * 10, LARGE, "é" * 100_000, {"a": (LARGE, 1)}])
def test_values_of_every_size_come_back(value: object) -> None:
    assert load(dump(value).whole) == value
    assert load(memoryview(bytearray(dump(value).whole))) == value
    assert load(dump_arguments((1, value, LARGE), {"more": value}).whole) == ((1, value, LARGE), {"more": value})


def test_a_buffer_that_could_be_written_still_can_and_others_cannot() -> None:
    for open_one in (bytearray(LARGE), bytearray(b"small")):
        back = load(dump(Block(open_one)).whole).held
        assert back == open_one
        memoryview(back)[0] = 1
    for closed_one in (LARGE, b"small"):
        assert memoryview(load(dump(Block(closed_one)).whole).held).readonly


def test_what_is_changed_after_the_call_was_made_is_not_sent() -> None:
    held = bytearray(LARGE)
    data = dump_arguments((Block(held),), {})
    held[0] ^= 0xFF
    (block,), _ = load(data.whole)
    assert block.held == LARGE


def test_chunks_put_together_again_are_the_pickle() -> None:
    data = dump(LARGE * 20)
    chunks, assembly = Chunks(1, data), Assembly(data.size)
    while not assembly.add(chunks.next()):
        assert not chunks.done
    assert chunks.done
    assert load(assembly.data) == LARGE * 20
    with pytest.raises(ValueError, match=r"bytes of .* announced"):
        assembly.add(b"more")
