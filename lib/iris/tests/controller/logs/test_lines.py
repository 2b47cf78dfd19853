import struct
import zlib
from pathlib import Path

import pytest

from iris.controller.logs.lines import start_of_line
from iris.controller.logs.remote import RemotePieces
from iris.controller.logs.store import LogStore
from iris.rpc.logformat import encode
from support.iris.logs import KEY, LIMIT, T, fill, numbered_lines, tend_all


@pytest.mark.parametrize("form", ["raw", "packed", "moved", "cut", "cut and packed"])
def test_each_line_is_found_by_its_number_at_most_a_block_before(tmp_path: Path, form: str) -> None:
    remote = RemotePieces(f"file://{tmp_path}/remote")
    store = LogStore(tmp_path / "logs", LIMIT)
    store.append(KEY, 0, encode(True, T, b"a note", note=True) + encode(False, T, b"begun, ", partial=True))
    begin = store.size(KEY)
    if "cut" in form:
        data = numbered_lines(10_000)
        for place in range(0, len(data), 20_000):
            store.append(KEY, begin + place, data[place : place + 20_000])
    else:
        fill(store, 10_000)
    if form in ("packed", "moved", "cut and packed"):
        tend_all(store, remote if form == "moved" else None)
    reader = LogStore(tmp_path / "logs", LIMIT, fetch=remote.get)
    for wanted in (1, 2, 700, 5000, 9999, 10_000, -1, -300, -20_000):
        place = start_of_line(store.log(KEY), wanted)
        assert place is not None
        offset, number = place
        line = wanted if wanted > 0 else max(10_001 + wanted, 1)
        assert line - 12_000 < number <= line
        records = [each for each in reader.read(KEY, offset) if not (each.note or each.partial)]
        assert int(records[line - number].data.split()[1]) == line - 1, wanted
    place = start_of_line(store.log(KEY), 10_001)
    assert place == (store.complete_size(KEY), 10_001)


def test_of_a_piece_packed_by_an_earlier_release_lines_have_no_numbers(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs", LIMIT)
    fill(store, 10_000)
    tend_all(store, None)
    packed = next(iter(sorted(tmp_path.rglob("*.zst"))))
    packed.write_bytes(as_before(packed.read_bytes()))
    reader = LogStore(tmp_path / "logs", LIMIT)
    assert start_of_line(reader.log(KEY), 1) is None
    assert len(list(reader.read(KEY, 0))) == 10_000


def as_before(data: bytes) -> bytes:
    """Return a packed piece in the form without numbers of lines."""
    _, count, _ = struct.unpack_from("<8sII", data)
    rows = [data[16 + 29 * row : 16 + 29 * row + 25] for row in range(count)]
    return (
        struct.pack("<8sII", b"IrisLog1", count, zlib.crc32(b"".join(rows))) + b"".join(rows) + data[16 + 29 * count :]
    )
