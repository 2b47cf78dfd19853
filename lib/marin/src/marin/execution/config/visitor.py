"""The walk through a config: what its objects are to every walk, and the base of the visitors that say what is done.

There is one classification of objects, looked up once a class. A visitor is one walk: it looks for placeholders
(`walk`), puts values in their place (`instantiate`), copies (`copying`), or describes (`unversioned`, `record.info`).
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
    """Return the names of a dataclass's fields in order, those with `init=False` included."""
    names = _field_names.get(cls)
    if names is None:
        names = _field_names[cls] = tuple(field.name for field in dataclasses.fields(cls))
    return names


class ObjectKind(Enum):
    """Kinds of objects in a config; the value ends the name of the visitor's method for them."""

    LEAF = "leaf"
    """A text, number, truth value or None, of exactly one of `LEAF_TYPES`."""
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
    """An instance of a subclass of a type of texts or numbers."""
    SHAPED = "shaped"
    """Of a further kind that can be taken apart: see `shapes`."""
    OTHER = "other"


_KIND_OF_PLACEHOLDER: dict[type[Any], ObjectKind] = {
    ExecutorStep: ObjectKind.STEP,
    InputName: ObjectKind.INPUT,
    VersionedValue: ObjectKind.VERSIONED,
    MirroredValue: ObjectKind.MIRRORED,
    OutputName: ObjectKind.OUTPUT,
}
PLACEHOLDERS = tuple(_KIND_OF_PLACEHOLDER)
"""Types that stand in a config for a value that the step's function receives."""
PLACEHOLDER_KINDS = frozenset(_KIND_OF_PLACEHOLDER.values())

_BUILTINS: tuple[tuple[type[Any] | tuple[type[Any], ...], ObjectKind], ...] = (
    (dict, ObjectKind.DICT),
    ((list, tuple), ObjectKind.SEQUENCE),
    ((set, frozenset), ObjectKind.SET),
    ((str, int, float, bytes), ObjectKind.SCALAR),
)


def object_kind(cls: type[Any]) -> ObjectKind:
    """Return what the instances of a class are to the walks through a config."""
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
    """One walk through a config. `visit` calls the method for what an object is; methods visit what it holds.

    A subclass has a method `visit_{kind}` for each kind that it treats in a way of its own; the others fall back:
    each placeholder to `visit_placeholder`, everything else to `visit_other`. These two, and `visit_leaf`, return the
    object unless a subclass says otherwise.
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
        """Visit an object, and return what the visitor's method for it returns."""
        kind = type(obj)
        method = self._methods.get(kind)
        if method is None:
            method = self._methods[kind] = self.method_for(kind)
        return method(self, obj)

    def visit_at(self, obj: Any, path: str) -> Any:
        """Visit an object at a dotted path; for visitors whose methods take one."""
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
    """Return the shape of an object whose kind is SHAPED."""
    found = shape_of(type(obj))
    assert found is not None
    return found
