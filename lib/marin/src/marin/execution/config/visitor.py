"""The traversal of configs: a classification of objects, and the base class of visitors.

Objects are classified once per class. A visitor is one traversal: it finds placeholders (`walk`), replaces them
(`instantiate`), copies (`copying`), or describes (`unversioned`, `record.info`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

from marin.execution.config.shapes import Shape, shape_of
from marin.execution.config.step import ExecutorStep, InputName
from marin.execution.config.values import MirroredValue, OutputName, VersionedValue

LEAF_TYPES = frozenset({str, int, float, bool, bytes, complex, type(None)})

_field_names: dict[type[Any], tuple[str, ...]] = {}


def dataclass_field_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of a dataclass's fields in order, including those with `init=False`."""
    names = _field_names.get(cls)
    if names is None:
        names = _field_names[cls] = tuple(field.name for field in dataclasses.fields(cls))
    return names


class ObjectKind(Enum):
    """Kinds of objects in a config. The value is the suffix of the visitor's method."""

    LEAF = "leaf"
    """A text, number, bool or None, of exactly one of `LEAF_TYPES`."""
    STEP = "step"
    INPUT = "input"
    VERSIONED = "versioned"
    MIRRORED = "mirrored"
    OUTPUT = "output"
    CONSTANT = "constant"
    """A class or a member of an enum."""
    DATACLASS = "dataclass"
    DICT = "dict"
    SEQUENCE = "sequence"
    """A list or a tuple."""
    SET = "set"
    SCALAR = "scalar"
    """An instance of a subclass of a text or number type."""
    SHAPED = "shaped"
    """Another kind of object with parts: see `shapes`."""
    OTHER = "other"


_KIND_OF_PLACEHOLDER: dict[type[Any], ObjectKind] = {
    ExecutorStep: ObjectKind.STEP,
    InputName: ObjectKind.INPUT,
    VersionedValue: ObjectKind.VERSIONED,
    MirroredValue: ObjectKind.MIRRORED,
    OutputName: ObjectKind.OUTPUT,
}
PLACEHOLDERS = tuple(_KIND_OF_PLACEHOLDER)
"""Placeholder types: the step's function receives a value instead."""
PLACEHOLDER_KINDS = frozenset(_KIND_OF_PLACEHOLDER.values())

_BUILTINS: tuple[tuple[type[Any] | tuple[type[Any], ...], ObjectKind], ...] = (
    (dict, ObjectKind.DICT),
    ((list, tuple), ObjectKind.SEQUENCE),
    ((set, frozenset), ObjectKind.SET),
    ((str, int, float, bytes), ObjectKind.SCALAR),
)


def object_kind(cls: type[Any]) -> ObjectKind:
    """Return how traversals of a config treat the instances of a class."""
    if cls in LEAF_TYPES:
        return ObjectKind.LEAF
    for base, kind in _KIND_OF_PLACEHOLDER.items():
        if issubclass(cls, base):
            return kind
    if issubclass(cls, (Enum, type)):
        return ObjectKind.CONSTANT
    if dataclasses.is_dataclass(cls):
        return ObjectKind.DATACLASS
    for bases, kind in _BUILTINS:
        if issubclass(cls, bases):
            return kind
    return ObjectKind.OTHER if shape_of(cls) is None else ObjectKind.SHAPED


def _unchanged(visitor: ConfigVisitor, obj: Any) -> Any:
    del visitor
    return obj


class ConfigVisitor:
    """A traversal of a config. `visit` calls the method for an object's kind; methods visit its content.

    A subclass defines a method `visit_{kind}` for each kind that it treats specially. Other placeholders go to
    `visit_placeholder`, all else to `visit_other`. These two, and `visit_leaf`, return the object by default.
    """

    __slots__ = ()

    visit_leaf: ClassVar[Callable[..., Any]] = _unchanged
    visit_placeholder: ClassVar[Callable[..., Any]] = _unchanged
    visit_other: ClassVar[Callable[..., Any]] = _unchanged

    _methods: ClassVar[dict[type[Any], Callable[..., Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # What a class is to a walk is looked up, not asked of each of its instances again.
        cls._methods = {}

    def visit(self, obj: Any) -> Any:
        """Visit an object and return the result of the visitor's method."""
        kind = type(obj)
        method = self._methods.get(kind)
        if method is None:
            method = self._methods[kind] = self.method_for(kind)
        return method(self, obj)

    def visit_at(self, obj: Any, path: str) -> Any:
        """Visit an object at a dotted path, for visitors whose methods take a path."""
        kind = type(obj)
        method = self._methods.get(kind)
        if method is None:
            method = self._methods[kind] = self.method_for(kind)
        return method(self, obj, path)

    @classmethod
    def method_for(cls, kind: type[Any]) -> Callable[..., Any]:
        """Return the method for instances of a class."""
        what = object_kind(kind)
        general = "visit_placeholder" if what in PLACEHOLDER_KINDS else "visit_other"
        method: Callable[..., Any] = getattr(cls, f"visit_{what.value}", None) or getattr(cls, general)
        return method


def shape(obj: Any) -> Shape:
    """Return the shape of an object of kind SHAPED."""
    found = shape_of(type(obj))
    assert found is not None
    return found
