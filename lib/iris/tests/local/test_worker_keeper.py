"""A worker that does not start is tried again, ever more slowly, and what it said is told."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from iris.local.state import LocalPaths, held_lock
from iris.local.worker_keeper import WorkerKeeper, WorkerStart
from rigging.testing import eventually


class Starts:
    """Stands for processes that were started: each says its words, if it has any, and ends."""

    def __init__(self, *words: str) -> None:
        self._words = list(words)
        self.told: list[str] = []
        self.done = asyncio.Event()

    def another(self) -> WorkerStart:
        reader, writer = os.pipe()
        if self._words:
            os.write(writer, self._words.pop(0).encode())
            os.close(writer)
        return WorkerStart(reader, 0)

    def on_trouble(self, trouble: str) -> None:
        self.told.append(trouble)
        if not self._words:
            self.done.set()


@pytest.fixture
def paths(tmp_path: Path) -> LocalPaths:
    (tmp_path / "worker").mkdir()
    return LocalPaths(tmp_path)


def played(paths: LocalPaths, *words: str) -> list[str]:
    """What was told of as many starts as there are words."""

    async def play() -> list[str]:
        starts = Starts(*words)
        keeper = WorkerKeeper(paths, starts.another, starts.on_trouble)
        keeper.watch_start(starts.another())
        async with asyncio.timeout(10):
            await starts.done.wait()
        keeper.close()
        return starts.told

    return asyncio.run(play())


def test_what_a_worker_says_before_it_ends_is_told_and_it_is_tried_again(paths):
    assert played(paths, "no room\n", "still no\nroom") == ["no room", "still no room"]


def test_of_one_that_says_nothing_the_end_of_its_log_is_told(paths):
    paths.worker_log.write_text("Traceback\nMemoryError\n\n")
    assert played(paths, "") == ["it ended before it joined: MemoryError"]


def test_tries_become_rarer(paths, caplog):
    played(paths, *["no"] * 4)
    waits = [float(word) for word in re.findall(r"starting another in ([0-9.]+) s", caplog.text)]
    assert len(waits) == 4
    assert waits == sorted(waits)
    assert waits[-1] > 2


def test_one_that_finds_another_worker_there_is_no_trouble(paths):
    async def play() -> list[str]:
        starts = Starts("")
        keeper = WorkerKeeper(paths, starts.another, starts.on_trouble)
        keeper.watch_start(starts.another())
        await asyncio.to_thread(eventually, lambda: not keeper.is_starting, "it has ended")
        keeper.close()
        return starts.told

    with held_lock(paths.worker_lock, timeout=1):
        assert asyncio.run(play()) == []


def test_a_worker_that_joins_ends_the_trouble(paths):
    async def play() -> list[str]:
        starts = Starts("no room")
        keeper = WorkerKeeper(paths, starts.another, starts.on_trouble)
        keeper.watch_start(starts.another())
        async with asyncio.timeout(10):
            await starts.done.wait()
        with held_lock(paths.worker_lock, timeout=1):
            keeper.on_worker()
        keeper.close()
        return starts.told

    assert asyncio.run(play()) == ["no room", ""]
