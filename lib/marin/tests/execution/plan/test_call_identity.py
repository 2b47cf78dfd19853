import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import itertools
import pathlib
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from marin.execution.jobs.remote import remote
from marin.execution.plan.call_identity import Unidentified, call_digest, function_identity


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Shade(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any = 0
    y: Any = 0

    def norm(self) -> int:
        return 1


@dataclasses.dataclass(frozen=True)
class Vector:
    x: Any = 0
    y: Any = 0


@dataclasses.dataclass
class Partly:
    x: int = dataclasses.field(init=False)


class Counter:
    def __init__(self, start: int) -> None:
        self.start = start

    def add(self, n: int) -> int:
        return self.start + n

    def subtract(self, n: int) -> int:
        return self.start - n

    def __call__(self) -> int:
        return self.start


def plain(n: int) -> int:
    return n


def other(n: int) -> int:
    return n


@functools.wraps(plain)
def wrapped(n: int) -> int:
    return plain(n) + 1


def twice(fn: Callable[[int], int]) -> Callable[[int], int]:
    @functools.wraps(fn)
    def wrapper(n: int) -> int:
        return fn(fn(n))

    return wrapper


@twice
def decorated(n: int) -> int:
    return n


def digest(value: Any) -> str:
    return call_digest(plain, [value], {})


# Every two of these are different values.
VALUES: list[Any] = [
    None, True, False, 0, 1, 1.0, 0.0, -0.0, 1j, "", "1", "None", "\ud800", b"", b"1", bytearray(b"1"), [], (), {},
    set(), frozenset(), [None], [1, 2], [2, 1], (1, 2), [[1], 2], [[1, 2]], [1, [2]], {1, 2}, frozenset({1, 2}), {1: 2},
    {2: 1}, {1: 2, 3: 4}, {"1": 2}, [(1, 2)], {(1, 2)}, ["a", "b"], ["ab"], ["a,b"], Colour.RED, Colour.BLUE, Shade.RED,
    "red", Colour, Shade, int, bool, Point(), Point(1), Point(0, 1), Vector(1), Point(Point(1)),
    datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2), datetime.time(1), datetime.timedelta(1),
    decimal.Decimal("1"), decimal.Decimal("1.0"), pathlib.PurePosixPath("/a"), pathlib.PureWindowsPath("/a"), "/a",
    uuid.UUID(int=1), plain, wrapped, other, len, max, [].append, functools.partial(plain), functools.partial(plain, 1),
    functools.partial(plain, n=1), functools.partial(other, 1), Counter(1).add, Counter(2).add, Counter(1).subtract,
    Counter(1), Counter(2), collections.OrderedDict(a=1), Partly(), str.upper, str.lower, range(3), range(4),
    [b"xbytes", b"y"], [b"x", b"bytesy"],
]  # fmt: skip


def test_different_values_have_different_digests() -> None:
    digests = [digest(value) for value in VALUES]
    pairs = itertools.combinations(range(len(VALUES)), 2)
    assert [(VALUES[i], VALUES[j]) for i, j in pairs if digests[i] == digests[j]] == []
    assert all(len(found) == 32 for found in digests)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ({0, 8}, {8, 0}),  # the order of a set is that of its making here, and that of hash seeds elsewhere
        ({"k": frozenset([0, 8])}, {"k": frozenset([8, 0])}),
        (Point(1, [2]), Point(1, [2])),
        (Counter(1).add, Counter(1).add),
        (functools.partial(plain, 1, k=2), functools.partial(plain, 1, k=2)),
        (remote(plain), plain),
        (decorated, decorated.__wrapped__),  # type: ignore[attr-defined]
        (Partly(), Partly()),
        ([].append, [].append),
        (Counter(3), Counter(3)),
        (functools.partial(plain, {"a": 1, "b": 2}), functools.partial(plain, {"b": 2, "a": 1})),
        (functools.partial(plain, k=1, n=2), functools.partial(plain, n=2, k=1)),
        (Point({"a": 1, "b": 2}).norm, Point({"b": 2, "a": 1}).norm),
        ({"a": 1, "b": 2}.get, {"b": 2, "a": 1}.get),
    ],
)
def test_equal_values_have_one(one: Any, two: Any) -> None:
    assert digest(one) == digest(two)


def test_the_function_and_where_a_value_stands_count() -> None:
    found = {
        call_digest(plain, [1, 2], {}), call_digest(other, [1, 2], {}), call_digest(plain, [1], {"n": 2}),
        call_digest(plain, [], {"n": 2}), call_digest(plain, [], {"m": 2}), call_digest(plain, [[1, 2]], {}),
    }  # fmt: skip
    assert len(found) == 6
    assert function_identity(plain) == call_digest(plain, (), {})


def made(offset: Any, name: str = "x") -> Callable[..., Any]:
    return lambda n, k=1, *, m=2: n + offset + k + m


def test_of_inner_functions_code_and_what_they_hold_count() -> None:
    def keyword(n: int, k: int = 1, *, m: int = 3) -> int:
        return n

    def same_names(n: int, k: int = 1, *, m: int = 2) -> int:
        return n

    functions = [
        made(1), made(2), made(plain), made([1]), keyword, same_names,
        lambda n: n + 1, lambda n: n + 2, lambda n: n - 1, lambda m: m + 1, lambda n: abs(n), lambda n: len(n),
        lambda n: (lambda k: k + 1)(n), lambda n: (lambda k: k + 2)(n),
        lambda n, k=1: n, lambda n, k=2: n, lambda n, *, k=1: n, lambda n, *, k=2: n,
    ]  # fmt: skip
    assert len({function_identity(fn) for fn in functions}) == len(functions)
    assert function_identity(made(1)) == function_identity(made(1))


def test_a_function_that_calls_itself_from_a_cell_that_is_not_filled_yet() -> None:
    def outer() -> Callable[[], Any]:
        def inner() -> Any:
            return late

        found = function_identity(inner)
        late = 1
        assert function_identity(inner) != found
        return inner

    assert function_identity(outer())


def test_of_decorators_that_are_no_names_of_their_module_what_they_hold_counts() -> None:
    def times(factor: int, fn: Callable[[int], int]) -> Callable[[int], int]:
        @functools.wraps(fn)
        def scaled(n: int) -> int:
            return factor * fn(n)

        return scaled

    functions = [plain, times(2, plain), times(3, plain), times(2, other), times(2, times(3, plain))]
    assert len({function_identity(fn) for fn in functions}) == len(functions)
    assert function_identity(times(2, plain)) == function_identity(times(2, plain))


def test_what_holds_itself_is_known_by_how_far_up_it_is() -> None:
    def countdown(start: int) -> Callable[[int], Any]:
        def count(n: int) -> Any:
            return start if n == 0 else count(n - 1)

        return count

    assert function_identity(countdown(1)) == function_identity(countdown(1)) != function_identity(countdown(2))
    circle: list[Any] = [1]
    circle.append(circle)
    wider: list[Any] = [1]
    wider.append([1, wider])
    assert digest(circle) != digest(wider)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    # At the end of the stack the collector would run finalizers of others, which fail there.
    gc.disable()
    try:
        with pytest.raises(Unidentified, match=r"a call of .*plain holds a value that is nested too deeply"):
            digest(deep)
    finally:
        gc.enable()


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(
        Unidentified,
        match=r"^a call of .*plain holds a lock that cannot be pickled \(TypeError: .*cannot be identified$",
    ):
        call_digest(plain, [{"k": [threading.Lock()]}], {})
    lock = threading.Lock()
    with pytest.raises(Unidentified, match="holds a lock"):
        function_identity(lambda: lock)


class RayLike:
    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self.remote = self.options = None
        self.lock = threading.Lock()  # as Ray's own, it cannot be pickled everywhere

    def __call__(self) -> None: ...


def test_a_ray_function_is_known_by_its_name() -> None:
    one, two = RayLike(plain), RayLike(other)
    assert digest(one) != digest(two)
    assert digest(one) == digest(RayLike(plain))


def in_script(path: pathlib.Path, text: str) -> list[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"from marin.execution.plan.call_identity import *\nimport dataclasses\n{text}\n")
    command = [sys.executable, path.name]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.process
def test_of_a_script_its_place_in_the_project_counts(tmp_path: pathlib.Path) -> None:
    text = (
        "def fn(): pass\nclass C: pass\n@dataclasses.dataclass\nclass D: pass\n"
        "print(function_identity(fn), function_identity(C), call_digest(len, [D()], {}))"
    )
    one = in_script(tmp_path / "a/x.py", text)
    assert len(set(one)) == 3
    assert not set(one) & set(in_script(tmp_path / "a/y.py", text))
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "pyproject.toml").write_text("[project]\nname = 'p'\n")
    first = in_script(tmp_path / "first/sub/x.py", text)
    assert first == in_script(tmp_path / "second/sub/x.py", text), "another checkout"
    assert first != in_script(tmp_path / "second/x.py", text)
