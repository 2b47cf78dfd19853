import random

import pytest

from iris.controller.logs.packed import BLOCK_BYTES, DamagedPieceError, PackedPiece, pack
from iris.rpc.logformat import decode_all, encode

T = 1_790_000_000_000


def lines(count: int, seed: int = 0, **flags: bool) -> bytes:
    rng = random.Random(seed)
    return b"".join(
        encode(i % 3 == 0, T + i, b"line %d " % i + b"y" * rng.randrange(300), **flags) for i in range(count)
    )


def opened(data: bytes) -> PackedPiece:
    return PackedPiece.opened(lambda offset, count: data[offset : offset + count])


def unpacked(piece: PackedPiece) -> bytes:
    return b"".join(piece.unpacked(number) or b"" for number in range(len(piece.blocks)))


@pytest.mark.parametrize(
    "data", [b"", lines(1), lines(5000), lines(3000) + b"no record", lines(3000)[:-3], lines(3000)[20:], bytes(300_000)]
)
def test_what_goes_in_comes_out(data: bytes) -> None:
    piece = opened(pack(data))
    assert unpacked(piece) == data
    assert piece.size == len(data)
    for block in piece.blocks:
        assert piece.blocks[piece.block_at(block.start)] is block
        assert piece.blocks[piece.block_at(block.end - 1)] is block


def test_blocks_are_of_whole_records_and_say_when_they_were_written() -> None:
    piece = opened(pack(lines(5000)))
    assert len(piece.blocks) > 3
    assert piece.blocks[-1].place < piece.size / 4, "it takes a fraction of the room"
    for number, block in enumerate(piece.blocks):
        records = list(decode_all(piece.unpacked(number) or b""))
        assert records[-1].end == block.size <= BLOCK_BYTES + 400
        assert (block.first_ms, block.last_ms) == (records[0].at_ms, records[-1].at_ms)
        assert (block.whole, block.special) == (True, False)


@pytest.mark.parametrize("flag", ["partial", "note"])
def test_blocks_with_pieces_of_lines_or_notes_say_so(flag: str) -> None:
    piece = opened(pack(lines(10) + encode(False, T, b"x", **{flag: True})))
    assert [block.special for block in piece.blocks] == [True]
    piece = opened(pack(lines(10) + b"\xff" * 200_000))
    assert [block.whole for block in piece.blocks] == [True, False, False], "so do those of what is no record"


def test_a_piece_that_begins_within_a_record_is_in_blocks_of_records_from_the_next_on() -> None:
    data = lines(5000)
    piece = opened(pack(data[20:-5]))
    assert [block.whole for block in piece.blocks] == [False, *[True] * (len(piece.blocks) - 2), False]
    first = next(decode_all(data))
    assert piece.blocks[0].size == first.end - 20
    assert sum(len(list(decode_all(piece.unpacked(n) or b""))) for n in range(1, len(piece.blocks) - 1)) == 4998


def test_a_damaged_block_hides_itself_alone() -> None:
    data = bytearray(pack(lines(5000)))
    whole = opened(bytes(data))
    data[whole.blocks[1].place + 20] ^= 1
    piece = opened(bytes(data))
    assert [piece.unpacked(number) is None for number in range(3)] == [False, True, False]


@pytest.mark.parametrize("place", [0, 9, 13, 20])
def test_a_damaged_table_is_told(place: int) -> None:
    data = bytearray(pack(lines(5000)))
    data[place] ^= 1
    with pytest.raises(DamagedPieceError, match="table"):
        opened(bytes(data))
    with pytest.raises(DamagedPieceError, match="no table"):
        opened(bytes(data[:10]))
