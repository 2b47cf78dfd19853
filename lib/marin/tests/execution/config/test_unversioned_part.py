"""What is written down of a config besides its version: every kind of value, and nothing that is a secret."""

import collections
import dataclasses
import datetime
import enum
import pathlib
from typing import Any

import pytest

from marin.execution import ExecutorStep, InputName, mirrored, this_output_path, versioned
from marin.execution.config.unversioned import described, unversioned_part

RAW = ExecutorStep(name="raw", fn=None, config=None)


class Colour(enum.Enum):
    RED = "red"


class Number(int):
    """A number with a name."""


@dataclasses.dataclass
class Config:
    x: Any = None
    y: Any = None
    late: Any = dataclasses.field(init=False, repr=False)


class Wordless:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def plain(n: int) -> int:
    return n


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (None, None), (True, True), (3, 3), (0.5, 0.5), ("t", "t"), (b"t", "b't'"), (1j, "1j"), (Colour.RED, "red"),
        (Number(4), 4), (datetime.timedelta(1, 2, 3), {"days": 1, "seconds": 2, "microseconds": 3}),
        (datetime.date(2024, 1, 2), "2024-01-02"), (pathlib.PurePosixPath("/a"), "/a"), ([1, "a"], [1, "a"]),
        ((1, 2), [1, 2]), ([], []), ({}, {}), (set(), []), ({"b", "a"}, ["a", "b"]), (frozenset({1}), [1]),
        ({"k": 1, 2: 3}, {"k": 1, "2": 3}), ({plain: 1}, {f"{__name__}.plain": 1}),
        (collections.deque([1, 2]), [1, 2]), (collections.UserDict(a=1), {"a": 1}), (plain, f"{__name__}.plain"),
        (Config, f"{__name__}.Config"), (len, "builtins.len"), (Config(1, [2]), {"x": 1, "y": [2], "late": None}),
        (this_output_path("sub"), "this_output_path('sub')"), (mirrored("m", budget_gb=3), "m"),
        (Wordless(), "<Wordless, whose text raises RuntimeError>"),
    ],
)  # fmt: skip
def test_each_kind_of_value_has_a_form(value: Any, part: Any) -> None:
    assert unversioned_part({"k": value}) == {"k": part}
    assert unversioned_part([value]) == {"config": [part]}
    assert unversioned_part(5) == {"config": 5}


@pytest.mark.parametrize(
    "counts", [versioned(1), RAW, RAW / "f", InputName(None, "/p"), this_output_path(), mirrored(versioned("m"))]
)
def test_what_counts_in_the_version_is_left_out(counts: Any) -> None:
    assert unversioned_part(counts) == {}
    assert unversioned_part({"a": counts, "b": 1}) == {"b": 1}
    assert unversioned_part({"a": {"b": counts}}) == {}
    assert unversioned_part([counts, 5, counts, 7]) == {"[1]": 5, "[3]": 7}
    assert unversioned_part([counts]) == {}
    assert unversioned_part(collections.deque([counts, 5])) == {"[1]": 5}
    assert unversioned_part({"s": {counts, 5}}) == {"s": [5]} if counts.__hash__ else True
    assert unversioned_part(Config(counts, {"k": [counts, 2]})) == {"y": {"k": {"[1]": 2}}, "late": None}


def test_where_an_object_lies_in_memory_is_not_told() -> None:
    class Thing:
        pass

    assert described(Thing()) == f"<{__name__}.{Thing.__qualname__} object>"
    assert "0x" not in described("at 0x7f0000000000 and 0xabcdef123")
    assert described(b"\x00") == "b'\\x00'"
    assert described(bytearray(b"a")) == "bytearray(b'a')"
    assert described("0x12345") == "0x12345", "too short for an address"
