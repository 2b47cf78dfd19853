"""Classes of every kind that a config may be made of, or may not."""

from __future__ import annotations

import collections
import functools
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any

import attr
import numpy as np
import pydantic

from marin.execution import ExecutorStep, versioned


@dataclass(frozen=True)
class Plain:
    x: Any = None
    y: list[Any] = field(default_factory=list)


class Model(pydantic.BaseModel):
    x: Any = None
    y: Any = None
    _kept: Any = pydantic.PrivateAttr(default=None)


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", frozen=True)
    x: Any = None


class DefaultsModel(pydantic.BaseModel):
    lr: float = versioned(0.1)


@attr.s(auto_attribs=True, frozen=True, slots=True)
class Attrs:
    x: Any = None
    _hidden: Any = None


@attr.s(auto_attribs=True)
class DerivedAttrs:
    x: Any = None
    length: int = attr.ib(init=False, default=-1)
    _hidden: Any = None

    def __attrs_post_init__(self) -> None:
        self.length = len(self.x) if isinstance(self.x, str) else -1


class Frozen(collections.abc.Mapping[str, Any]):
    """A mapping of a user's own that cannot be written to."""

    def __init__(self, content: Any) -> None:
        self._content = dict(content)

    def __getitem__(self, key: str) -> Any:
        return self._content[key]

    def __iter__(self) -> Any:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


class Thing:
    """An object that no config is made of."""

    def __init__(self, x: Any) -> None:
        self.x = x


class SlottedThing:
    __slots__ = ("__x",)

    def __init__(self, x: Any) -> None:
        self.__x = x


def object_array(x: Any) -> Any:
    array = np.empty(2, dtype=object)
    array[1] = x
    return array


WALKED: dict[str, Any] = {
    "dataclass": Plain,
    "pydantic": lambda x: Model(x=x),
    "pydantic extra": lambda x: OpenModel(more=x),
    "attrs": lambda x: Attrs(x=x),
    "attrs private": lambda x: Attrs(hidden=x),
    "attrs that derives": lambda x: DerivedAttrs(hidden=x),
    "dict": lambda x: {"k": x},
    "OrderedDict": lambda x: collections.OrderedDict(k=x),
    "MappingProxyType": lambda x: MappingProxyType({"k": x}),
    "UserDict": lambda x: collections.UserDict({"k": x}),
    "ChainMap": lambda x: collections.ChainMap({"j": 1}, {"k": x}),
    "own mapping": lambda x: Frozen({"k": x}),
    "list": lambda x: [0, x],
    "tuple": lambda x: (0, x),
    "deque": lambda x: collections.deque([0, x], maxlen=2),
    "UserList": lambda x: collections.UserList([0, x]),
}
"""Kind of container to a function that makes one which holds `x`."""

REFUSED: dict[str, Any] = {
    "SimpleNamespace": lambda x: SimpleNamespace(x=x),
    "object": Thing,
    "slots": SlottedThing,
    "partial": lambda x: functools.partial(print, x),
    "partial keyword": lambda x: functools.partial(print, end=x),
    "dict values": lambda x: {"k": x}.values(),
    "dict key": lambda x: {x: 1},
    "dict key tuple": lambda x: {(1, x): 1},
    "object array": object_array,
    "exception": ValueError,
    "thing in a list in a thing": lambda x: Thing([Thing({"k": x})]),
}

RAW: ExecutorStep[Any] = ExecutorStep(name="raw", fn=None, config=Plain(versioned(1)))
