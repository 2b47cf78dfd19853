"""Functions whose results are kept."""

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin.execution.artifact import Artifact, PathMetadata
from marin.execution.disk_cache import cache_path, disk_cache, locked_disk_cache
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.plan.call_identity import function_identity
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


def test_while_it_is_computed_its_status_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "out")

    @locked_disk_cache(output_path=path)
    def look() -> str | None:
        return StatusFile(path).status

    assert look() == STATUS_RUNNING


def test_callers_at_once_compute_it_once(tmp_path: Path) -> None:
    go_on = threading.Event()

    @locked_disk_cache(output_path=str(tmp_path / "out"))
    def slow() -> int:
        calls.append(None)
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
    assert len(calls) == 1


@dataclass(frozen=True)
class Point:
    x: float


@dataclass(frozen=True)
class Vector:
    x: float


def scaled(k: Any, x: Any = 1) -> Any:
    calls.append(k)
    return [k, x]


def make_adder(k: Any) -> Callable[[int], Any]:
    def add(n: int) -> Any:
        return (k, n)

    return add


def scaled_by(k: int) -> Callable[[Callable[[int], Any]], Callable[[int], Any]]:
    def decorate(fn: Callable[[int], Any]) -> Callable[[int], Any]:
        @functools.wraps(fn)
        def wrapper(n: int) -> Any:
            return k, fn(n)

        return wrapper

    return decorate


class Multiplier:
    def __init__(self, k: int) -> None:
        self.k = k

    def times(self, n: int) -> int:
        return self.k * n


def pairs_of_functions() -> list[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    return [
        ("partial", functools.partial(scaled, k=2), functools.partial(scaled, k=3)),
        ("partial of a partial", functools.partial(functools.partial(scaled, 2), 1), functools.partial(scaled, 2, 2)),
        ("closure", make_adder(2), make_adder(3)),
        ("closure over functions", make_adder(make_adder(1)), make_adder(make_adder(2))),
        ("lambda", lambda n: n + 1, lambda n: n + 2),
        ("method", Multiplier(2).times, Multiplier(3).times),
        ("decorator", scaled_by(2)(make_adder(1)), scaled_by(3)(make_adder(1))),
        ("default", lambda n, k=1: n, lambda n, k=2: n),
    ]


@pytest.mark.parametrize(("one", "other"), [pair[1:] for pair in pairs_of_functions()], ids=lambda _: "")
def test_what_is_bound_to_a_function_counts(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    assert cache_path(one, (1,), {}) != cache_path(other, (1,), {})
    assert function_identity(one) == function_identity(one)
    again = {name: function_identity(first) for name, first, _ in pairs_of_functions()}
    assert function_identity(one) in again.values(), "made again, it is the same function"


def test_results_of_partials_are_kept_apart() -> None:
    two, three = (disk_cache(functools.partial(scaled, k)) for k in (2, 3))
    assert [two(), three(), two()] == [[2, 1], [3, 1], [2, 1]]
    assert calls == [2, 3]


def test_scripts_with_one_name_for_their_functions_are_kept_apart(tmp_path: Path) -> None:
    program = (
        "from marin.execution.disk_cache import disk_cache\n@disk_cache\ndef load():\n    return %r\nprint(load())\n"
    )
    texts = []
    for name, value in [("a", 1), ("b", 2), ("a", 3)]:
        script = tmp_path / f"{name}.py"
        script.write_text(program % value)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
        texts.append(done.stdout.strip())
    assert texts == ["1", "2", "1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), (True,)),
        ((1,), (1.0,)),
        (("1",), (1,)),
        (((1, 2),), ([1, 2],)),
        ((Point(1),), (Vector(1),)),
        ((b"1",), ("1",)),
    ],
    ids=str,
)
def test_arguments_of_other_types_are_other_arguments(one: Any, other: Any) -> None:
    assert cache_path(scaled, (one,), {}) != cache_path(scaled, (other,), {})


def test_equal_arguments_have_one_path_in_every_process() -> None:
    program = (
        "import pathlib, functools; from marin.execution.plan.call_identity import call_digest; import numpy as np\n"
        "print(call_digest(functools.partial(print, end='x'), [{'a', 'b', 'c'}, {'k': (1, {'y', 'z'})}, np.arange(3),"
        " pathlib.Path('/a'), len], {'b': 1, 'a': 2}))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in "12"
    }
    assert len(digests) == 1
    assert cache_path(scaled, ({"a": 1, "b": 2},), {}) == cache_path(scaled, ({"b": 2, "a": 1},), {})


@pytest.mark.parametrize(
    "value", [(1, (2,)), {1, 2}, {1: "a"}, Point(1), {"k": b"x"}, np.float32(1), None, functools.partial(len)], ids=repr
)
def test_a_hit_returns_what_the_first_call_returned(value: Any) -> None:
    cached = disk_cache(scaled)
    first, hit = cached(value), cached(value)
    assert len(calls) == 1
    assert type(hit[0]) is type(first[0])
    assert repr(hit) == repr(first)


def test_results_of_earlier_releases_are_still_read(tmp_path: Path) -> None:
    path = str(tmp_path / "old")
    Artifact.save({"path": "x"}, path)
    StatusFile(path).write_status(STATUS_SUCCESS)

    def locate() -> PathMetadata:
        raise AssertionError("computed again")

    assert disk_cache(locate, output_path=path)() == PathMetadata("x")


def test_results_of_earlier_releases_are_plain_where_the_annotation_means_nothing_here(tmp_path: Path) -> None:
    path = str(tmp_path / "old")
    Artifact.save({"path": "x"}, path)
    StatusFile(path).write_status(STATUS_SUCCESS)

    def locate() -> Any:
        raise AssertionError("computed again")

    locate.__annotations__["return"] = "OnlyForTypeCheckers"
    assert disk_cache(locate, output_path=path)() == {"path": "x"}


def test_what_cannot_be_told_apart_or_kept_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"a call of .*double holds a lock that cannot be pickled"):
        double(threading.Lock())  # type: ignore[arg-type]

    @disk_cache
    def make_lock() -> Any:
        return threading.Lock()

    with pytest.raises(InvalidRequest, match=r"a result of type lock cannot be pickled .*; give save_fn and load_fn"):
        make_lock()
    assert cache_path(double, (1,), {}) == cache_path(double, (1,), {}) != cache_path(double, (2,), {})
