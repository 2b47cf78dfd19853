"""The process that reads for callers: its lines, its rounds, and what is said when it cannot."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from iris.controller.logs.search_process import Task
from iris.controller.logs.searcher import Searcher, Searchers
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logfilter import LineChoice
from iris.rpc.logformat import decode_all, encode
from rigging.errors import InvalidRequest, Unavailable

T = 1_790_000_000_000
KEY: LogKey = ("/ann/a", 0, 0)


def add(store: LogStore, *lines: str) -> None:
    for line in lines:
        store.append(KEY, store.size(KEY), encode(False, T, line.encode()))


async def round_of(searcher: Searcher, last: bool = True) -> list[str]:
    async with aclosing(searcher.round([KEY], {}, last)) as parts:
        return [record.data.decode() async for _, data in parts for record in decode_all(data)]


def task(searchers: Searchers, grep: str = "") -> Task:
    return Task(searchers.root, searchers.remote, LineChoice(grep))


async def test_round_after_round(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    searchers = Searchers(str(tmp_path))
    async with searchers.begin(task(searchers, "a")) as searcher:
        add(store, "a 1", "b", "a 2")
        assert await round_of(searcher, last=False) == ["a 1", "a 2"]
        add(store, "a 3", "ü")
        assert await round_of(searcher) == ["a 3"]


@pytest.mark.process
async def test_a_pattern_that_never_ends_is_given_up_and_the_loop_goes_on(tmp_path: Path) -> None:
    add(LogStore(tmp_path), "a" * 60)
    searchers = Searchers(str(tmp_path), patience_s=1.0)

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(InvalidRequest, match=r"no line was found for 1 s: pattern '\(a\+\)\+\$b' is too costly"):
        async with searchers.begin(task(searchers, "(a+)+$b")) as searcher:
            await round_of(searcher)
    ticking.cancel()
    assert ticks > 5


async def test_storage_that_fails_is_told(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs")
    add(store, "x")
    moved = tmp_path / "logs/ann/a/~0.0.log"
    size = moved.stat().st_size
    moved.rename(tmp_path / f"logs/ann/a/~0.0.0-{size}.moved")
    (tmp_path / f"logs/ann/a/~0.0.0-{size}.moved").write_text("logs/ann/a/x")
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote/logs").write_text("")
    searchers = Searchers(str(tmp_path / "logs"), "nosuch://bucket")
    with pytest.raises(Unavailable, match=r"the logs cannot be read now: .*nosuch"):
        async with searchers.begin(task(searchers)) as searcher:
            await round_of(searcher)


@pytest.mark.process
async def test_there_are_only_so_many_and_their_processes_end_with_them(tmp_path: Path) -> None:
    searchers = Searchers(str(tmp_path), most=1)
    async with searchers.begin(task(searchers)) as searcher:
        assert await round_of(searcher) == []
        with pytest.raises(Unavailable, match="1 readers of filtered logs are already running; try again"):
            async with searchers.begin(task(searchers)):
                pass
    began = time.monotonic()
    async with searchers.begin(task(searchers)) as searcher:
        assert await round_of(searcher) == []
    assert time.monotonic() - began < 50
