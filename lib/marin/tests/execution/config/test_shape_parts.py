"""Shapes: the parts of an object, and how it is made again with other parts."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import pydantic
import pytest

from marin.execution.config.shapes import Shape, shape_of
from rigging.errors import InvalidRequest


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", arbitrary_types_allowed=True)
    x: Any = 1
    y: int = 2
    _private: Any = pydantic.PrivateAttr(default="p")


@attrs.define
class Attrs:
    x: Any = 1
    _under: Any = 2
    derived: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.derived = (self.x, self._under)


@attrs.define
class Slots:
    x: Any = 1
    y: Any = attrs.field(init=False)


@attrs.define(slots=False)
class Plain:
    x: Any = 1
    y: Any = attrs.field(init=False)


class OwnMapping(Mapping[str, Any]):
    def __init__(self, content: Any) -> None:
        self._content = dict(content)

    def __getitem__(self, key: str) -> Any:
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


class OwnSequence(Sequence[Any]):
    def __init__(self, content: Any) -> None:
        self._content = list(content)

    def __getitem__(self, index: Any) -> Any:
        return self._content[index]

    def __len__(self) -> int:
        return len(self._content)


class NamedList(collections.UserList):
    name = ""


class NamedDict(collections.UserDict):
    name = ""


def shape(obj: Any) -> Shape:
    found = shape_of(type(obj))
    assert found is not None
    return found


def parts(obj: Any) -> list[tuple[Any, Any]]:
    return list(shape(obj).parts(obj))


@pytest.mark.parametrize("kind", [int, str, bytes, bytearray, memoryview, range, object, set, frozenset])
def test_what_has_no_shape(kind: type[Any]) -> None:
    assert shape_of(kind) is None


def test_a_dataclass_of_pydantic_is_a_dataclass() -> None:
    @pydantic.dataclasses.dataclass
    class Both:
        x: int = 1

    assert shape_of(Both) is None


def test_models_have_fields_extras_and_private_attributes() -> None:
    model = Model(x=5, more=[1])
    model._private = "q"
    assert parts(model) == [("x", 5), ("y", 2), ("more", [1]), ("_private", "q")]
    again = shape(model).make(model, {"x": "any", "y": "no int", "more": 3, "_private": "r"})
    assert parts(again) == [("x", "any"), ("y", "no int"), ("more", 3), ("_private", "r")]
    assert parts(model) == [("x", 5), ("y", 2), ("more", [1]), ("_private", "q")], "the model itself stays"
    assert model.model_fields_set == {"x", "more"}
    assert parts(shape(model).make(model, {"y": 7})) == [("x", 5), ("y", 7), ("more", [1]), ("_private", "q")]
    partial = Model.model_construct(y=3)
    partial.__dict__.pop("x", None)
    assert parts(partial) == [("y", 3), ("_private", "p")]

    class Bare(pydantic.BaseModel):
        x: int = 1

    assert parts(Bare()) == [("x", 1)]
    assert parts(shape(Bare()).make(Bare(), {"x": 2})) == [("x", 2)]


def test_attrs_derive_anew_what_they_derive() -> None:
    obj = Attrs(1, 2)
    assert parts(obj) == [("x", 1), ("_under", 2), ("derived", (1, 2))]
    again = shape(obj).make(obj, {"_under": 5})
    assert parts(again) == [("x", 1), ("_under", 5), ("derived", (1, 5))]
    assert parts(shape(obj).make(obj, {"x": 7, "derived": "given"})) == [("x", 7), ("_under", 2), ("derived", "given")]


@pytest.mark.parametrize("kind", [Plain, Slots])
def test_an_attrs_field_that_is_not_set_stays_so(kind: type[Any]) -> None:
    plain = kind(3)
    assert parts(plain) == [("x", 3)], "what is not set is no part"
    changed = shape(plain).make(plain, {"x": 4})
    assert (parts(changed), parts(plain)) == ([("x", 4)], [("x", 3)])
    plain.y = 5
    assert parts(shape(plain).make(plain, {"x": 4})) == [("x", 4), ("y", 5)], "what was set later goes along"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (OwnMapping({"a": 1, "b": 2}), OwnMapping({"a": 1, "b": 9})),
        (MappingProxyType({"a": 1, "b": 2}), MappingProxyType({"a": 1, "b": 9})),
        (collections.UserDict(a=1, b=2), collections.UserDict(a=1, b=9)),
        (collections.ChainMap({"a": 1}, {"b": 2}), collections.ChainMap({"a": 1}, {"b": 9})),
        (collections.ChainMap({"b": 2}, {"b": 3}), collections.ChainMap({"b": 9}, {"b": 9})),
    ],
)
def test_mappings(obj: Any, expected: Any) -> None:
    assert parts(obj) == list(obj.items())
    assert not shape(obj).is_sequence
    before = dict(obj)
    again = shape(obj).make(obj, {"b": 9})
    assert type(again) is type(obj)
    assert dict(again) == dict(expected)
    assert getattr(again, "maps", None) == getattr(expected, "maps", None)
    assert dict(obj) == before


@pytest.mark.parametrize(
    "obj", [OwnSequence([1, 2, 3]), collections.deque([1, 2, 3], maxlen=3), collections.UserList([1, 2, 3])]
)
def test_sequences(obj: Any) -> None:
    assert parts(obj) == [(0, 1), (1, 2), (2, 3)]
    assert shape(obj).is_sequence
    again = shape(obj).make(obj, {1: "x"})
    assert (type(again), list(again), list(obj)) == (type(obj), [1, "x", 3], [1, 2, 3])
    assert getattr(again, "maxlen", None) == getattr(obj, "maxlen", None)


def test_what_a_container_has_besides_stays() -> None:
    for obj, changed in ((NamedList([1, 2]), {0: 5}), (NamedDict(a=1), {"a": 5})):
        obj.name = "mine"
        again = shape(obj).make(obj, changed)
        assert again.name == "mine"
        assert 5 in (again.values() if isinstance(again, NamedDict) else again)
        assert 5 not in (obj.values() if isinstance(obj, NamedDict) else obj)


class Sorting(OwnSequence):
    def __init__(self, content: Any) -> None:
        super().__init__(sorted(content))


class Refusing(OwnMapping):
    def __init__(self, content: Any) -> None:
        if content.get("a") == "wrong":
            raise TypeError("not this")
        super().__init__(content)


def test_a_container_that_makes_something_else_of_its_parts_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"Sorting in a config .*Sorting\(list\).*something else\); use a list"):
        shape(Sorting([1, 2])).make(Sorting([1, 2]), {0: 5})
    with pytest.raises(InvalidRequest, match=r"Refusing\(dict\), .* failed \(TypeError: not this\); use a dict"):
        shape(Refusing({"a": 1})).make(Refusing({"a": 1}), {"a": "wrong"})
    assert list(shape(Sorting([1, 2])).make(Sorting([1, 2]), {0: 0})) == [0, 2]
