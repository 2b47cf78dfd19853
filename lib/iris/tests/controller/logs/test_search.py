"""Searching: the same lines as if each had been looked at, whatever form the log is in."""

import random
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from iris.controller.logs.keeper import leftovers
from iris.controller.logs.remote import RemotePieces
from iris.controller.logs.search import Search
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logfilter import LineChoice, LineFilter
from iris.rpc.logformat import Record, decode_all, encode
from support.iris.logs import KEY, LIMIT, T, keeper_of, tend_all

PATTERNS = [
    r"step=4\d\d ",
    "rare",
    r"^step=1000 ",
    r"x$",
    r"\bERROR\b",
    "(?i)error|rare",
    r"x{9} (ERROR|é)",
    r"=\d{5}",
    "",
    "é",
    "lost",
]


def random_log(rng: random.Random, count: int) -> bytes:
    """Lines, and some of everything else: pieces of lines, notes, lines of both streams, damage."""
    records = []
    for i in range(count):
        text = f"step={i} " + "x" * rng.randrange(80)
        if rng.random() < 0.003:
            text += rng.choice([" ERROR", " rare", " é", " INFO"])
        kind = rng.random()
        note, partial = kind < 0.0005, 0.0005 < kind < 0.002
        data = b"5 bytes lost" if note else text.encode()
        records.append(encode(rng.random() < 0.2, T + i, data, partial, note))
        if rng.random() < 0.0003:
            records.append(b"\xff" * rng.randrange(1, 50))
    return b"".join(records)


def written(root: Path, rng: random.Random, count: int, limit: int = LIMIT) -> LogStore:
    store = LogStore(root, limit)
    log = random_log(rng, count)
    position = 0
    while position < len(log):
        piece = log[position : position + rng.randrange(1, 60_000)]
        store.append(KEY, position, piece)
        position += len(piece)
    return store


def expected(store: LogStore, choice: LineChoice, since_ms: int) -> list[Record]:
    if not choice.grep and not choice.level:  # pieces of lines need not wait for their ends
        return [record for record in store.read(KEY, 0, since_ms) if record.at_ms <= (choice.until_ms or 2**63)]
    lines: LineFilter[Record] = LineFilter(choice)
    taken = [piece for record in store.read(KEY, 0, since_ms) for piece in lines.take(record)]
    return [*taken, *lines.finish()]


def found(search: Search, last: bool = True, begin: Mapping[LogKey, int] = MappingProxyType({})) -> list[Record]:
    return [record for _, data in search.round([KEY], begin, last) for record in decode_all(data)]


def shown(records: list[Record]) -> list[tuple[int, bytes]]:
    return [(record.at_ms, record.data) for record in records]


@pytest.mark.parametrize(("limit", "count"), [(LIMIT, 2500), pytest.param(2**19, 12_000, marks=pytest.mark.process)])
def test_the_same_lines_as_one_by_one(tmp_path: Path, limit: int, count: int) -> None:
    rng = random.Random(limit)
    store = written(tmp_path / "logs", rng, count, limit)
    remote = RemotePieces(f"file://{tmp_path}/remote")
    choices = [(LineChoice(pattern), 0) for pattern in PATTERNS]
    choices += [(LineChoice(pattern, until_ms=T + count // 2), T + count // 4) for pattern in PATTERNS]
    choices += [(LineChoice(pattern, level="warning"), 0) for pattern in PATTERNS]
    wanted = [shown(expected(store, choice, since)) for choice, since in choices]
    keeper = keeper_of(store, remote)
    for step in ("as it came", "packed in part", "moved in part"):
        pieces = list(leftovers(store.root))
        for piece in rng.sample(pieces, len(pieces) // 2) if step != "as it came" else ():
            keeper.tend(piece)
        for (choice, since), lines in zip(choices, wanted, strict=True):
            reader = LogStore(tmp_path / "logs", limit, fetch=remote.get)
            assert shown(found(Search(reader, choice, since))) == lines, (step, choice)


def test_a_later_round_gives_what_came_since(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs", LIMIT)
    search = Search(LogStore(tmp_path / "logs", LIMIT), LineChoice(r"[05]$"))
    seen = []
    for first in range(0, 6000, 600):
        lines = b"".join(encode(False, T + i, b"line %d" % i) for i in range(first, first + 600))
        store.append(KEY, store.size(KEY), lines)
        tend_all(store)
        seen += [int(record.data.split()[1]) for record in found(search, last=False)]
    assert seen == list(range(0, 6000, 5))


def test_it_begins_where_another_reader_stopped(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs", LIMIT)
    store.append(KEY, 0, b"".join(encode(False, T, b"%d" % i) for i in range(5)))
    third = list(store.read(KEY, 0))[2].end
    assert [record.data for record in found(Search(store, LineChoice()), begin={KEY: third})] == [b"3", b"4"]


@pytest.mark.parametrize(("from_start", "lines"), [(True, ["0", "1", "2"]), (False, ["7", "8", "9"])])
def test_the_first_or_last_lines_of_several_logs_by_time(tmp_path: Path, from_start: bool, lines: list[str]) -> None:
    store = LogStore(tmp_path / "logs", LIMIT)
    keys: list[LogKey] = [("/ann/a", 0, 0), ("/ann/a/child", 1, 0)]
    for i in range(10):
        store.append(keys[i % 2], store.size(keys[i % 2]), encode(False, T + i, b"%d" % i))
    search = Search(store, LineChoice(r"\d"), max_lines=3, from_start=from_start)
    read = [record.data.decode() for _, data in search.round(keys, {}, last=False) for record in decode_all(data)]
    assert (read, search.has_all) == (lines, from_start)
    store.append(keys[0], store.size(keys[0]), encode(False, T + 10, b"10"))
    later = [data for _, data in search.round(keys, {}, last=True)]
    assert later == ([] if from_start else [encode(False, T + 10, b"10")])


def test_a_damaged_block_is_marked_and_the_rest_found(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs", 2**24)
    for first in range(10_000, 70_000, 1000):
        lines = b"".join(encode(False, T + i, b"line %d of many" % i) for i in range(first, first + 1000))
        store.append(KEY, store.size(KEY), lines)
    tend_all(store)
    packed = sorted(tmp_path.rglob("~*.zst"), key=lambda path: path.name)[0]
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 0xFF
    packed.write_bytes(data)
    reader = LogStore(tmp_path / "logs", 2**24)
    read = found(Search(reader, LineChoice("7 of many")))
    holes = [re.match(rb"([\d,]+) bytes of the log cannot be read", record.data) for record in read if record.note]
    assert len(holes) == 1
    assert holes[0]
    lost = int(holes[0][1].replace(b",", b"")) // len(encode(False, T, b"line 10000 of many"))
    assert 6000 - lost // 10 - 2 <= len(read) <= 6000 - lost // 10 + 2
