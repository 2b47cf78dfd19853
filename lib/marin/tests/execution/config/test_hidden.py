import collections
import dataclasses
import enum
import functools
import types
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from marin.execution.config.hidden import find_inside


class Needle:
    def __repr__(self) -> str:
        return "needle"

    def __hash__(self) -> int:
        return 7


NEEDLE = Needle()


def place(obj: Any) -> str | None:
    found = find_inside(obj, lambda item: item is NEEDLE)
    if found is None:
        return None
    assert found[1] is NEEDLE
    return found[0]


class Plain:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("_Slotted__hidden", "a", "unset")

    def __init__(self, a: Any) -> None:
        self.a = a


class Single:
    __slots__ = "only"

    def __init__(self, only: Any) -> None:
        self.only = only


class Private:
    __slots__ = ("__secret",)

    def __init__(self, secret: Any) -> None:
        self.__secret = secret


class _Below(Private):
    __slots__ = ("__dunder__", "__own")

    def __init__(self, own: Any) -> None:
        super().__init__(None)
        self.__own = own


@dataclasses.dataclass
class Data:
    x: Any
    late: Any = dataclasses.field(init=False)


class Property:
    @property
    def value(self) -> Any:
        raise AssertionError("properties are not called")


class Colour(enum.Enum):
    RED = NEEDLE


class Shade(enum.Enum):
    DARK = NEEDLE

    @property
    def value(self) -> Any:
        raise AssertionError("properties are not called")


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        (NEEDLE, ""), ([NEEDLE], "[0]"), ((1, NEEDLE), "[1]"), ({"k": NEEDLE}, "['k']"), ({NEEDLE: 1}, " key needle"),
        ({(1, NEEDLE): 1}, " key (1, needle)[1]"), ({NEEDLE}, "[...]"), (frozenset({NEEDLE}), "[...]"),
        ({"a": NEEDLE}.values(), "[...]"), (collections.deque([1, NEEDLE]), "[1]"),
        (MappingProxyType({"a": NEEDLE}), "['a']"), (collections.UserDict(a=NEEDLE), ".data['a']"),
        (Plain(x=1, y=NEEDLE), ".y"), (Slotted(NEEDLE), ".a"), (Single(NEEDLE), ".only"),
        (Private(NEEDLE), "._Private__secret"), (_Below(NEEDLE), "._Below__own"), (Data(NEEDLE), ".x"),
        (Data([{"k": NEEDLE}]), ".x[0]['k']"), (functools.partial(print, NEEDLE), ".args[0]"),
        (functools.partial(print, sep=NEEDLE), ".keywords['sep']"),
        (functools.partial(functools.partial(print, NEEDLE)), ".args[0]"),
        (functools.partial(Plain(call=NEEDLE).__class__), None), (ValueError("x", NEEDLE), ".args[1]"),
        (np.array([None, NEEDLE], dtype=object), ".flat[1]"), (np.array([[1, 2], [3, 4]]), None), (Property(), None),
        (Colour.RED, ".value"), (Shade.DARK, ".value"), (iter([1, NEEDLE]), "[...][1]"),
        (map(str, [NEEDLE]), "[...][0][...][0]"), ((item for item in [NEEDLE]), "[...][...][0]"),
        (np.array([(1, NEEDLE)], dtype=[("a", int), ("b", object)]), ".flat[0][1]"), (Colour, None),
        (lambda: NEEDLE, None), ("needle", None), (types, None), ([1, "a", None, {"k": (1, 2)}], None),
        ([[NEEDLE], NEEDLE], "[0][0]"), (Plain(a=[1], b={"x": Plain(c=NEEDLE)}), ".b['x'].c"),
    ],
)  # fmt: skip
def test_what_an_object_holds(obj: Any, where: str | None) -> None:
    assert place(obj) == where


def test_the_first_in_reading_order_is_meant_and_what_is_closed_is_not_looked_into() -> None:
    found = find_inside([1, [2, 30], 40], lambda item: isinstance(item, int) and item > 9)
    assert found == ("[1][1]", 30)
    assert find_inside([Plain(x=NEEDLE)], lambda item: item is NEEDLE, closed=(Plain,)) is None


class Text(str):
    """An inert type's subclass, which is not looked into."""


class Called(Plain):
    def __call__(self) -> None: ...


def noted(text: Text) -> Text:
    text.held = NEEDLE  # type: ignore[attr-defined]
    return text


@pytest.mark.parametrize(
    ("obj", "where"), [(functools.partial(Called(x=NEEDLE)), ".func.x"), (noted(Text()), None), ([noted(Text())], None)]
)
def test_subclasses_of_plain_types_and_objects_that_are_called(obj: Any, where: str | None) -> None:
    assert place(obj) == where


def test_an_iterator_that_was_looked_at_gives_all_that_it_would_have_given() -> None:
    looked_at = zip([1, 2], [3, 4], strict=True)
    assert place(looked_at) is None
    assert list(looked_at) == [(1, 3), (2, 4)]
