"""A worker that does not start is tried again, ever more slowly, and what it said is told."""

import asyncio
import contextlib
import fcntl
import os
import re
import subprocess
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


def played(paths: LocalPaths, *words: str, **settings: float) -> list[str]:
    """What was told of as many starts as there are words."""

    async def play() -> list[str]:
        starts = Starts(*words)
        keeper = WorkerKeeper(paths, starts.another, starts.on_trouble, **settings)
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


def lock_of_a_process(paths: LocalPaths, process: "subprocess.Popen[bytes]") -> int:
    """Makes a process the holder of the worker's lock, as far as the keeper can see; returns the descriptor."""
    descriptor = os.open(paths.worker_lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, f"{process.pid}\n".encode())
    return descriptor


@pytest.mark.parametrize("when", ["before it is watched", "while it is watched", "after the keeper has closed"])
def test_a_worker_that_ends_is_replaced_while_the_controller_lives(paths, when):
    process = subprocess.Popen(["sleep", "100"])
    descriptor = lock_of_a_process(paths, process)

    def end() -> None:
        process.kill()
        process.wait()

    async def play() -> int:
        starts = Starts()
        another = asyncio.Event()
        loop = asyncio.get_running_loop()

        def start() -> WorkerStart:
            loop.call_soon_threadsafe(another.set)
            return starts.another()

        keeper = WorkerKeeper(paths, start, starts.on_trouble)
        if when == "before it is watched":
            end()
        keeper.on_worker()
        if when == "after the keeper has closed":
            keeper.close()
        if process.poll() is None:
            end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3 if when == "after the keeper has closed" else 20):
                await another.wait()
                await asyncio.to_thread(eventually, lambda: keeper.is_starting, "the other is watched")
        keeper.close()
        assert not keeper.is_starting
        return another.is_set()

    assert asyncio.run(play()) is (when != "after the keeper has closed")
    os.close(descriptor)


def test_a_worker_whose_process_cannot_be_started_is_tried_again_and_why_is_told(paths):
    async def play() -> list[str]:
        starts = Starts("no room")
        tries: list[int] = []

        def start() -> WorkerStart:
            tries.append(1)
            if len(tries) == 1:
                raise OSError("no more processes")
            return Starts("no luck").another()

        keeper = WorkerKeeper(paths, start, starts.told.append)
        keeper.watch_start(starts.another())
        await asyncio.to_thread(eventually, lambda: len(starts.told) >= 3, "three troubles")
        keeper.close()
        return starts.told

    assert asyncio.run(play()) == ["no room", "no more processes", "no luck"]


def test_a_start_that_comes_too_late_is_let_go(paths):
    """The controller has left meanwhile; nobody would read what that process says."""

    async def play() -> None:
        keeper = WorkerKeeper(paths, Starts().another, lambda trouble: None)
        keeper.close()
        reader, writer = os.pipe()
        keeper.watch_start(WorkerStart(reader, 0))
        with pytest.raises(BrokenPipeError):
            os.write(writer, b"x")
        os.close(writer)
        assert not keeper.is_starting

    asyncio.run(play())


def test_one_that_lived_long_is_replaced_at_once_again(paths, caplog):
    played(paths, *["no"] * 4, steady_seconds=0.0)
    waits = [float(word) for word in re.findall(r"starting another in ([0-9.]+) s", caplog.text)]
    assert len(waits) == 4
    assert max(waits) < 0.3


def test_only_the_last_line_of_this_starts_log_is_told(paths):
    paths.worker_log.write_text("of the worker before\n")

    async def play() -> list[str]:
        starts = Starts("")
        keeper = WorkerKeeper(paths, starts.another, starts.on_trouble)
        start = starts.another()
        keeper.watch_start(WorkerStart(start.words, paths.worker_log.stat().st_size))
        async with asyncio.timeout(20):
            await starts.done.wait()
        keeper.close()
        return starts.told

    assert asyncio.run(play()) == ["it ended before it joined"]


def test_watching_one_process_after_the_other_leaves_nothing_open(paths):
    before = len(os.listdir("/proc/self/fd"))
    process = subprocess.Popen(["sleep", "100"])
    lock = lock_of_a_process(paths, process)

    async def play() -> None:
        keeper = WorkerKeeper(paths, Starts().another, lambda trouble: None)
        for _ in range(3):
            keeper.on_worker()
        keeper.close()

    asyncio.run(play())
    process.kill()
    process.wait()
    os.close(lock)
    assert len(os.listdir("/proc/self/fd")) == before
