import asyncio
import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin.execution.artifact import Artifact, PathMetadata
from marin.execution.disk_cache import cache_path, disk_cache, locked_disk_cache
from marin.execution.lease.status_file import StatusFile, StepAlreadyDone, distributed_lock
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from rigging.errors import InvalidRequest

calls: list[object] = []


@pytest.fixture(autouse=True)
def _own_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "prefix"))


@disk_cache
def double(n: int, *, label: str = "") -> int:
    calls.append((n, label))
    return 2 * n


def test_each_set_of_arguments_is_computed_once() -> None:
    assert [double(2), double(2), double(3), double(2, label="x")] == [4, 4, 6, 4]
    assert calls == [(2, ""), (3, ""), (2, "x")]
    assert double.__name__ == "double"


def test_a_path_of_its_own_holds_one_result(tmp_path: Path) -> None:
    def locate(name: str) -> PathMetadata:
        calls.append(name)
        return PathMetadata(name)

    cached = disk_cache(locate, output_path=str(tmp_path / "out"))
    assert cached("a") == cached("b") == PathMetadata("a")
    assert calls == ["a"]
    assert StatusFile(str(tmp_path / "out")).status == STATUS_SUCCESS


def test_other_ways_to_store(tmp_path: Path) -> None:
    def save(value: bytes, path: str) -> None:
        Path(path, "data").write_bytes(value)

    @disk_cache(output_path=str(tmp_path / "out"), save_fn=save, load_fn=lambda path: Path(path, "data").read_bytes())
    def make() -> bytes:
        calls.append("make")
        return b"\x00"

    assert make() == make() == b"\x00"
    assert calls == ["make"]
    with pytest.raises(InvalidRequest, match="load_fn is missing"):
        locked_disk_cache(make, save_fn=save)


def test_a_failure_is_tried_again(tmp_path: Path) -> None:
    path = str(tmp_path / "out")

    @disk_cache(output_path=path)
    def fragile() -> str:
        calls.append(None)
        if len(calls) == 1:
            raise ValueError("bad luck")
        return "fine"

    with pytest.raises(ValueError, match="bad luck"):
        fragile()
    assert StatusFile(path).status == STATUS_FAILED
    assert fragile() == fragile() == "fine"
    assert len(calls) == 2


def test_callers_at_once_compute_it_once(tmp_path: Path) -> None:
    go_on = threading.Event()

    @locked_disk_cache(output_path=str(tmp_path / "out"))
    def slow() -> int:
        calls.append(StatusFile(str(tmp_path / "out")).status)
        go_on.wait(20)
        return 7

    results: list[int] = []
    callers = [threading.Thread(target=lambda: results.append(slow())) for _ in range(4)]
    for caller in callers:
        caller.start()
    go_on.set()
    for caller in callers:
        caller.join(20)
    assert results == [7] * 4
    assert calls == [STATUS_RUNNING]


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Fetcher:
    """Coroutines under the cache, in all its forms."""

    @locked_disk_cache
    async def inner(self, n: int) -> int:
        await asyncio.sleep(0)
        calls.append("inner")
        return n

    @locked_disk_cache
    async def locked(self, n: int) -> int:
        calls.append("outer")
        return 2 * await self.inner(n)

    @disk_cache
    async def plain(self, n: int) -> int:
        return await self.locked(n)

    def __getstate__(self) -> tuple[()]:
        return ()


@in_a_loop
async def test_the_value_of_a_coroutine_is_kept(tmp_path: Path) -> None:
    fetcher = Fetcher()
    # More callers than a pool has threads wait for the one that computes, which needs another cached call.
    assert await asyncio.gather(*(fetcher.locked(3) for _ in range(50))) == [6] * 50
    assert calls == ["outer", "inner"]
    assert [await fetcher.plain(3), await fetcher.plain(3), await fetcher.plain(4)] == [6, 6, 8]
    assert calls == ["outer", "inner"] * 2

    async def make(path: str) -> str:
        await asyncio.sleep(0)
        calls.append(StatusFile(path).status)
        return "made"

    path = str(tmp_path / "out")
    once = disk_cache(distributed_lock(make), output_path=path)
    assert [await once(path), await once(path)] == ["made"] * 2
    assert calls[4:] == [STATUS_RUNNING]
    with pytest.raises(StepAlreadyDone):
        await distributed_lock(make)(path)


@pytest.mark.parametrize("cache", [disk_cache, locked_disk_cache])
@in_a_loop
async def test_a_cancelled_coroutine_has_failed_and_can_be_called_again(tmp_path: Path, cache: Any) -> None:
    begun, path = asyncio.Event(), str(tmp_path / "out")

    @cache(output_path=path)
    async def work(forever: bool) -> str:
        begun.set()
        await asyncio.sleep(1e6 * forever)
        return "done"

    task = asyncio.create_task(work(True))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert StatusFile(path).status == STATUS_FAILED
    assert await work(False) == "done"


@dataclass(frozen=True)
class Point:
    x: float


def scaled(k: Any, x: Any = 1) -> Any:
    calls.append(k)
    return [k, x]


@pytest.mark.parametrize(
    "value", [(1, (2,)), {1, 2}, {1: "a"}, Point(1), {"k": b"x"}, np.float32(1), None, functools.partial(len)], ids=repr
)
def test_a_hit_returns_what_the_first_call_returned(value: Any) -> None:
    cached = disk_cache(scaled)
    first, hit = cached(value), cached(value)
    assert len(calls) == 1
    assert type(hit[0]) is type(first[0])
    assert repr(hit) == repr(first)


PLAIN = {"path": "x"}


@pytest.mark.parametrize(("kind", "result"), [(PathMetadata, PathMetadata("x")), ("OnlyForTypeCheckers", PLAIN)])
def test_results_of_earlier_releases_are_still_read(tmp_path: Path, kind: Any, result: Any) -> None:
    path = str(tmp_path / "old")
    Artifact.save(PLAIN, path)
    StatusFile(path).write_status(STATUS_SUCCESS)

    def locate() -> Any:
        raise AssertionError("computed again")

    locate.__annotations__["return"] = kind
    assert disk_cache(locate, output_path=path)() == result


def test_what_cannot_be_told_apart_or_kept_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"a call of .*double holds a lock that cannot be pickled"):
        double(threading.Lock())  # type: ignore[arg-type]

    @disk_cache
    def make_lock() -> Any:
        return threading.Lock()

    with pytest.raises(InvalidRequest, match=r"a result of type lock cannot be pickled .*; give save_fn and load_fn"):
        make_lock()
    assert cache_path(double, (1,), {}) == cache_path(double, (1,), {}) != cache_path(double, (2,), {})


def cut_off(stored: bytes) -> bytes:
    return stored[: len(stored) // 2]


def one_letter_changed(stored: bytes) -> bytes:
    return stored.replace(b"word", b"ward")


def without_digest(stored: bytes) -> bytes:
    return stored[: stored.rindex(b"\nsha256:")]


@pytest.mark.parametrize("cache", [disk_cache, locked_disk_cache])
@pytest.mark.parametrize(
    "damage",
    [cut_off, one_letter_changed, lambda _: b"", lambda stored: cut_off(without_digest(stored)), None],
    ids=["cut off", "one letter", "empty", "cut off, of an older release", "gone"],
)
def test_a_damaged_result_is_computed_again_said_and_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cache: Any, damage: Any
) -> None:
    file = tmp_path / "out" / "data.pkl"

    @cache(output_path=str(tmp_path / "out"))
    def make() -> str:
        calls.append(None)
        return "word" * 20

    assert make() == make() == "word" * 20
    if damage is None:
        file.unlink()
    else:
        damaged = damage(file.read_bytes())
        file.write_bytes(damaged)
    assert make() == make() == "word" * 20
    assert len(calls) == 2
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(str(file))
    assert "computed again" in said
    if damage is not None:
        assert Path(f"{file}.damaged").read_bytes() == damaged


def test_a_result_of_an_older_release_and_one_whose_class_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "out" / "data.pkl"
    cached = disk_cache(scaled, output_path=str(tmp_path / "out"))
    assert cached(1) == [1, 1]
    file.write_bytes(without_digest(file.read_bytes()))
    assert cached(2) == [1, 1]
    file.write_bytes(b"cgone_module\nGone\n.")
    with pytest.raises(ModuleNotFoundError):
        cached(3)
    assert file.read_bytes() == b"cgone_module\nGone\n."


def test_a_call_is_one_however_it_is_written() -> None:
    cached = locked_disk_cache(scaled)
    assert [cached(1), cached(k=1), cached(1, 1), cached(x=1, k=1)] == [[1, 1]] * 4
    assert calls == [1]


class Changing:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.number = self.made

    def __repr__(self) -> str:
        return "Changing()"


def test_three_misses_in_a_row_that_look_alike_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    cached = disk_cache(scaled)
    for value in (1, 2, 3, 4, Changing(), Changing()):
        cached(value)
    assert not caplog.records
    for _ in range(3):
        cached(Changing())
    [said] = [record.getMessage() for record in caplog.records]
    assert "scaled(Changing()): 3 calls in a row have equal text" in said


SCRIPT = """
import sys
from marin.execution.disk_cache import disk_cache

SEEN = []  # of the script: it differs from process to process

class Text:
    def __init__(self, text):
        self.text = text

    def shout(self):
        SEEN.append(self.text)
        return self.text {change}

@disk_cache
def shouted(text):
    print("computed")
    return text.shout()

SEEN.append(sys.argv[1])
shouted(Text("a"))
"""


@pytest.mark.process
def test_objects_of_the_script_itself_are_found_by_the_next_process(tmp_path: Path) -> None:
    def run(argument: str, change: str = "* 2") -> str:
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.replace("{change}", change))
        return subprocess.run([sys.executable, script, argument], capture_output=True, text=True, check=True).stdout

    assert [run("1"), run("2"), run("2", "* 3")] == ["computed\n", "", "computed\n"]
