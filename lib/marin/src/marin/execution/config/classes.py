"""The classes of a config's objects. A version cannot distinguish them, because it contains only values."""

from __future__ import annotations

import enum
import functools
import pathlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from marin.execution.config.encode import field_path
from marin.execution.config.placeholder import MARK
from marin.execution.config.shapes import Shape, shape_of
from marin.execution.config.step import ExecutorStep, InputName
from marin.execution.config.values import MirroredValue, OutputName, VersionedValue
from marin.execution.config.visitor import LEAF_TYPES, ConfigVisitor, dataclass_field_names

#: The path under which the class of a config itself stands.
WHOLE_CONFIG: Final = "(config)"
_KIND: Final = "kind "
# In place of the module of a class that came by value from the `__main__` of another process.
_SENT: Final = "(sent by value)"
_PLAIN: Final = (pathlib.PurePath,)
_PASSED: Final = LEAF_TYPES | {ExecutorStep, InputName, OutputName}


def classes_of(config: Any) -> dict[str, str]:
    """Return the class of every object in a config by its dotted path.

    Dataclasses, pydantic models, attrs classes, named tuples and plain objects get their class's name
    (`experiments.train.Adam`), enum members their own (`experiments.train.Optimizer.ADAM`). Other values that encode
    like plain ones get a kind (`kind tuple`, `kind pathlib.PosixPath`). Plain texts, numbers, lists and dicts, steps
    and inputs are omitted.
    """
    return classes_and_code(config)[0]


def classes_and_code(config: Any) -> tuple[dict[str, str], list[Any]]:
    """Return `classes_of(config)`, and the classes and callable objects that are values in the config."""
    found: dict[str, str] = {}
    code: list[Any] = []
    _Classes(found, code).visit_at(config, "")
    return found, code


def is_kind(name: str | None) -> bool:
    """Return whether a recorded class is missing, or only another spelling of a plain value."""
    return name is None or name.startswith(_KIND)


def class_name(cls: type[Any]) -> str:
    """Return `module.qualified_name`; for a class of the running script, the name under which it could be imported.

    A class pickled by value from another process's script has no importable name here: the text contains `_SENT`.
    """
    module = _main_module(cls) if cls.__module__ == "__main__" else cls.__module__
    if module == "pathlib._local":  # so Python 3.13 calls it, and no other
        module = "pathlib"
    return f"{module}.{cls.__qualname__}"


def _main_module(cls: type[Any]) -> str:
    main = sys.modules["__main__"]
    if not hasattr(main, cls.__qualname__.partition(".")[0]):
        return _SENT
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return "__main__" if file is None else _module_of_script(file)


@functools.cache
def _module_of_script(file: str) -> str:
    from rigging.config_discovery import find_project_root

    path = pathlib.Path(file).absolute().with_suffix("")
    root = find_project_root(path.parent)
    return path.name if root is None else ".".join(path.relative_to(root).parts)


class _Classes(ConfigVisitor):
    """Record the class of each visited object."""

    __slots__ = ("_code", "_found")

    def __init__(self, found: dict[str, str], code: list[Any]) -> None:
        self._found = found
        self._code = code

    def visit_leaf(self, obj: Any, path: str) -> None:
        """Ignore plain values."""

    def visit_placeholder(self, obj: Any, path: str) -> None:
        """Ignore steps, inputs and names of outputs."""

    def visit_versioned(self, obj: VersionedValue[Any], path: str) -> None:
        """Visit the versioned value."""
        self.visit_at(obj.value, path)

    def visit_mirrored(self, obj: MirroredValue[Any], path: str) -> None:
        """Visit the mirrored path."""
        self.visit_at(obj.value, path)

    def visit_constant(self, obj: Any, path: str) -> None:
        """Record an enum member's class and name (the version has its value), or a class's name."""
        if isinstance(obj, enum.Enum):
            self._note(path, f"{class_name(type(obj))}.{obj.name}")
        else:
            self._code.append(obj)

    def visit_scalar(self, obj: Any, path: str) -> None:
        """Record a subclass of text or numbers."""
        self._note(path, _KIND + class_name(type(obj)))

    def visit_dataclass(self, obj: Any, path: str) -> None:
        """Record the class, and visit the fields."""
        cls = type(obj)
        self._note(path, class_name(cls))
        if callable(obj):
            self._code.append(obj)
        self._each(((name, getattr(obj, name, None)) for name in dataclass_field_names(cls) if name != MARK), path)

    def visit_dict(self, obj: Mapping[Any, Any], path: str) -> None:
        """Record a subclass, and keys that JSON turns into text; visit the items."""
        if type(obj) is not dict:
            self._note(path, _KIND + class_name(type(obj)))
        elif not all(isinstance(key, str) for key in obj):
            self._note(path, _KIND + "dict with keys that are not texts")
        self._each(obj.items(), path)

    def visit_sequence(self, obj: Iterable[Any], path: str) -> None:
        """Record anything but a list, and visit the members. A named tuple has its class's name."""
        cls = type(obj)
        if cls is not list:
            is_named = issubclass(cls, tuple) and hasattr(cls, "_fields")
            self._note(path, class_name(cls) if is_named else _KIND + ("tuple" if cls is tuple else class_name(cls)))
        self._each(((f"[{index}]", item) for index, item in enumerate(obj)), path)

    def visit_set(self, obj: Any, path: str) -> None:
        """Ignore members, because they have no dotted path."""

    def visit_shaped(self, obj: Any, path: str) -> None:
        """Record the class of a model, and visit its parts."""
        found = shape_of(type(obj))
        assert isinstance(found, Shape)
        self._note(path, ("" if found.has_fields else _KIND) + class_name(type(obj)))
        parts = found.parts(obj)
        self._each(((f"[{key}]", item) for key, item in parts) if found.is_sequence else parts, path)

    def visit_other(self, obj: Any, path: str) -> None:
        """Record the class of an object that the version contains at most as text."""
        cls = type(obj)
        if callable(obj):
            self._code.append(obj)
        if cls.__module__ == "builtins":
            return
        is_plain = issubclass(cls, _PLAIN) or cls.__module__.partition(".")[0] in ("datetime", "decimal", "numpy")
        self._note(path, (_KIND if is_plain else "") + class_name(cls))

    def _each(self, items: Iterable[tuple[Any, Any]], path: str) -> None:
        for name, item in items:
            if type(item) is VersionedValue:
                item = item.value
            if type(item) not in _PASSED:
                self.visit_at(item, field_path(path, str(name)))

    def _note(self, path: str, name: str) -> None:
        if _SENT not in name:
            self._found[path or WHOLE_CONFIG] = name
