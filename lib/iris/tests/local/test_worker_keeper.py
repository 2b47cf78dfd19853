import contextlib
import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually_async
from iris.local.state import LocalPaths, held_lock
from iris.local.worker_keeper import WorkerKeeper, WorkerStart


class Starts:
    """A keeper of processes that are played: each says its words, if it has any, and ends."""

    def __init__(self, paths: LocalPaths, **settings: float) -> None:
        self.words: list[str | OSError] = []
        self.told: list[str] = []
        self.count = 0
        self.keeper = WorkerKeeper(paths, self.another, self.told.append, **settings)

    def another(self, log_start: int = 0) -> WorkerStart:
        self.count += 1
        words = self.words.pop(0) if self.words else None
        if isinstance(words, OSError):
            raise words
        reader, writer = os.pipe()
        if words is not None:
            os.write(writer, words.encode())
            os.close(writer)
        return WorkerStart(reader, log_start)

    async def play(self, *words: str | OSError, log_start: int = 0) -> list[str]:
        """What is told of as many starts as there are words."""
        self.words = list(words)
        self.keeper.watch_start(self.another(log_start))
        await eventually_async(lambda: len(self.told) >= len(words), "all is told")
        return self.told


@pytest.fixture
def paths(tmp_path: Path) -> LocalPaths:
    (tmp_path / "worker").mkdir()
    return LocalPaths(tmp_path)


async def test_what_a_worker_says_before_it_ends_is_told_and_it_is_tried_again_until_one_joins(paths):
    starts = Starts(paths, steady_seconds=0.0)
    assert await starts.play("no room\n", "still no\nroom", OSError("no more processes"), "no luck") == [
        "no room", "still no room", "no more processes", "no luck",
    ]  # fmt: skip
    with held_lock(paths.worker_lock, timeout=1):
        starts.keeper.on_worker()
    assert starts.told[4:] == [""], "one that joins ends the trouble"
    starts.keeper.close()


@pytest.mark.parametrize(
    ("log", "told"), [("Traceback\nMemoryError\n\n", ": MemoryError"), ("", "")], ids=["its own", "of one before"]
)
async def test_of_one_that_says_nothing_the_end_of_its_log_is_told(paths, log, told):
    paths.worker_log.write_text("of the worker before\n")
    start = paths.worker_log.stat().st_size
    with paths.worker_log.open("a") as file:
        file.write(log)
    starts = Starts(paths)
    assert await starts.play("", log_start=start) == [f"it exited before it joined{told}"]
    starts.keeper.close()


@pytest.mark.parametrize("steady", [False, True])
async def test_tries_become_rarer_but_one_that_lived_long_is_replaced_at_once(paths, caplog, steady):
    starts = Starts(paths, **({"steady_seconds": 0.0} if steady else {}))
    await starts.play(*["no"] * 3)
    waits = [float(word) for word in re.findall(r"starting another in ([0-9.]+) s", caplog.text)]
    assert len(waits) == 3
    if steady:
        assert max(waits) < 0.3
    else:
        assert waits == sorted(waits)
        assert waits[-1] > 0.6
    starts.keeper.close()


async def test_one_that_finds_another_worker_there_is_no_trouble(paths):
    starts = Starts(paths)
    with held_lock(paths.worker_lock, timeout=1):
        starts.words = [""]
        starts.keeper.watch_start(starts.another())
        await eventually_async(lambda: not starts.keeper.is_starting, "it has ended")
    assert starts.told == []
    starts.keeper.close()


@pytest.fixture
def process(paths: LocalPaths) -> Iterator["subprocess.Popen[bytes]"]:
    """Holds the worker's lock, as far as the keeper can see."""
    with subprocess.Popen(["sleep", "100"]) as process, open(paths.worker_lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(process.pid, file=lock, flush=True)
        yield process
        process.kill()


@pytest.mark.parametrize("when", ["before it is watched", "while it is watched", "after the keeper has closed"])
async def test_a_worker_that_ends_is_replaced_while_the_controller_lives(paths, process, when):
    starts = Starts(paths)
    is_closed = when == "after the keeper has closed"
    if when == "before it is watched":
        process.kill()
        process.wait()
    starts.keeper.on_worker()
    if is_closed:
        starts.keeper.close()
    process.kill()
    process.wait()
    with contextlib.suppress(AssertionError):
        await eventually_async(lambda: starts.keeper.is_starting, "the other is watched", 0.3 if is_closed else 20)
    assert starts.keeper.is_starting is not is_closed
    assert starts.count == (0 if is_closed else 1)
    starts.keeper.close()
    assert not starts.keeper.is_starting


async def test_watching_leaves_nothing_open_and_a_start_that_comes_too_late_is_let_go(paths, process):
    keeper = Starts(paths).keeper
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        keeper.on_worker()
    keeper.close()
    assert len(os.listdir("/proc/self/fd")) <= before, "fewer is no leak: an earlier test's may be closed meanwhile"
    keeper = Starts(paths).keeper
    keeper.close()
    reader, writer = os.pipe()
    keeper.watch_start(WorkerStart(reader, 0))
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    assert not keeper.is_starting
