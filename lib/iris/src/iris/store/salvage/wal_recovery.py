"""Reading a damaged write-ahead log page by page: SQLite itself reads none of the pages behind the first bad one.

Each frame's checksum goes on from that of the frame before it, as that one states it, so every frame can be told right
or wrong by itself. What differs in one word of four bytes is put right by its checksum; any other page is as the log or
the database has it from another commit.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from iris.store.wal import FRAME_HEADER, HEADER, MAGIC, read_index, wal_checksum

_WORD: Final = 2**32
_Sums = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RecoveredPages:
    """The pages that the commits in a log amount to.

    Args:
        pages: The newest image of each page that can be read. size: How many pages the database has; 0: no commit.
        repaired: How many frames were put right. lost: How many pages are not as they were last committed.
    """

    pages: dict[int, bytes]
    size: int
    repaired: int
    lost: int


def recover_pages(database: Path) -> RecoveredPages:
    """Read the write-ahead log of a closed database, page by page."""
    wal = database.with_name(database.name + "-wal")
    index = read_index(database.with_name(database.name + "-shm"))
    content = wal.read_bytes() if wal.exists() else b""
    missing = 0 if index is None else max(index.committed - index.copied, 0)
    if len(content) <= HEADER:
        return RecoveredPages({}, 0, 0, missing)
    magic, _, page_size = struct.unpack_from(">3I", content)
    if page_size < 512 or page_size & (page_size - 1) or page_size > 65536:
        page_size = 4096
    frames = _frames(content, MAGIC.get(magic, "<"), page_size, _base(database))
    salt = content[16:24]
    commits = [i for i, frame in enumerate(frames) if frame.is_right and frame.commit and frame.salt == salt]
    last = commits[-1] if commits else -1
    pages: dict[int, bytes] = {}
    stale: set[int] = set()
    unknown = 0
    for frame in frames[: last + 1]:
        if frame.is_right:
            pages[frame.page] = frame.image
            stale.discard(frame.page)
        elif 0 < frame.page <= frames[last].commit:
            stale.add(frame.page)
        else:
            unknown += 1
    lost = len(stale) + unknown
    if index is not None and index.salt == salt:
        lost += max(index.committed - max(last + 1, index.copied), 0)
    elif last < 0:
        lost += len(frames)
    repaired = sum(frame.is_repaired for frame in frames[: last + 1])
    return RecoveredPages(pages, frames[last].commit if last >= 0 else 0, repaired, lost)


def apply_pages(copy: Path, found: RecoveredPages) -> None:
    """Write the pages into a copy of the database, which needs its log no more then."""
    if not found.size or not found.pages:
        return
    page_size = len(next(iter(found.pages.values())))
    with copy.open("r+b") as file:
        for number, image in found.pages.items():
            if number <= found.size:
                file.seek((number - 1) * page_size)
                file.write(image)
        file.truncate(found.size * page_size)


@dataclass(frozen=True, slots=True)
class _Frame:
    page: int
    commit: int  # pages of the database after this commit; 0: the commit goes on
    salt: bytes
    image: bytes
    is_right: bool
    is_repaired: bool = False


def _base(database: Path) -> bytes:
    return database.read_bytes() if database.exists() else b""


def _frames(content: bytes, order: str, page_size: int, base: bytes) -> list[_Frame]:
    former: dict[int, bytes] = {}  # the newest image of each page so far
    count = (len(content) - HEADER) // (FRAME_HEADER + page_size)
    starts: tuple[_Sums, ...] = (_sums(content, 24), wal_checksum(order, content[:24], (0, 0)))
    found: list[_Frame] = []
    for number in range(count):
        begin = HEADER + number * (FRAME_HEADER + page_size)
        data = content[begin : begin + 8] + content[begin + FRAME_HEADER : begin + FRAME_HEADER + page_size]
        stated = _sums(content, begin + 16)
        computed = [wal_checksum(order, data, start) for start in dict.fromkeys(starts)]
        is_right = stated in computed
        is_repaired = False
        if not is_right and number + 1 < count and _follows(content, begin, order, page_size, computed):
            is_right = is_repaired = True  # only its checksum is damaged
        if not is_right and content[begin + 8 : begin + 16] == content[16:24]:
            following = begin + FRAME_HEADER + page_size
            is_last = content[following + 8 : following + 16] != content[16:24]
            candidates = dict.fromkeys(_repairs(order, data, computed, stated, is_last))
            likely = [it for it in candidates if len(candidates) == 1 or _was_so(it, data, former, base, page_size)]
            if len(likely) == 1:
                data, is_right, is_repaired = likely[0], True, True
        page, commit = struct.unpack_from(">2I", data)
        if is_right:
            former[page] = data[8:]
        found.append(_Frame(page, commit, content[begin + 8 : begin + 16], data[8:], is_right, is_repaired))
        starts = (stated, *computed)
    return found


def _follows(content: bytes, begin: int, order: str, page_size: int, starts: list[_Sums]) -> bool:
    """True if the frame after the one at `begin` continues one of these checksums."""
    begin += FRAME_HEADER + page_size
    data = content[begin : begin + 8] + content[begin + FRAME_HEADER : begin + FRAME_HEADER + page_size]
    return any(wal_checksum(order, data, start) == _sums(content, begin + 16) for start in starts)


def _was_so(repaired: bytes, damaged: bytes, former: dict[int, bytes], base: bytes, page_size: int) -> bool:
    """True if the word that a repair changes becomes equal to that of the page's former image.

    What differs in a word's highest byte alone can be repaired at a few places with the same sums.
    """
    (page,) = struct.unpack_from(">I", repaired)
    before = former.get(page) or base[(page - 1) * page_size : page * page_size] if page else b""
    place = next(at for at in range(len(damaged)) if repaired[at] != damaged[at]) // 4 * 4
    return place < 8 or repaired[place : place + 4] == before[place - 8 : place - 4]


def _sums(content: bytes, at: int) -> _Sums:
    first, second = struct.unpack_from(">2I", content, at)
    return first, second


def _repairs(order: str, data: bytes, computed: list[_Sums], stated: _Sums, is_last: bool) -> Iterator[bytes]:
    """Yield `data` with one word changed, so that its checksum is the stated one.

    Args:
        order: Byte order of the checksums, for `struct`.
        data: The damaged bytes.
        computed: Checksums that `data` may have.
        stated: The checksum that it should have.
        is_last: No frame behind it tells whether the checksum itself is damaged, which looks as the last word's damage.
    """
    weights = _weights(len(data) // 4)
    for sums in computed:
        first, second = (stated[0] - sums[0]) % _WORD, (stated[1] - sums[1]) % _WORD
        if is_last and not first:
            continue
        for place, (one, two) in enumerate(weights):
            change = first * pow(one, -1, _WORD) % _WORD if one & 1 else second * pow(two, -1, _WORD) % _WORD
            if change and one * change % _WORD == first and two * change % _WORD == second:
                (word,) = struct.unpack_from(f"{order}I", data, 4 * place)
                yield data[: 4 * place] + struct.pack(f"{order}I", (word + change) % _WORD) + data[4 * place + 4 :]


@cache
def _weights(words: int) -> list[_Sums]:
    """By how much both sums grow when a word grows by one; one of the two is odd."""
    found: list[_Sums] = [(0, 1)]
    while len(found) < words:
        one, two = found[-1]
        found.append((two, (one + two) % _WORD))
    found.reverse()
    return found
