"""Instantiation: turn a config with placeholders into the config that a step's function receives."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from marin.execution.config.copying import copy_config, shallow_copy
from marin.execution.config.prefix import under_prefix
from marin.execution.config.step import ExecutorStep, InputName, is_absolute
from marin.execution.config.values import MirroredValue, OutputName, VersionedValue
from marin.execution.config.visitor import LEAF_TYPES, ConfigVisitor, dataclass_field_names, shape
from marin.execution.config.walk import check_resolved, is_constructed_again
from rigging.errors import InvalidRequest, NotFound

T = TypeVar("T")

MIRROR_SCHEME = "mirror://"

_UNSET = object()  # a field with init=False may not have been set yet

Resolve = Callable[[Any], Any]


def instantiate_config(
    config: T, output_path: str | None, output_paths: Mapping[ExecutorStep[Any], str], prefix: str
) -> T:
    """Return a copy of `config` in which every placeholder is replaced by its value.

    Its containers, dataclasses and models are private copies (see `copy_config`), so changes in them affect no other
    config. `config` is never modified.

    Args:
        config: Any nesting of dataclasses, pydantic models, attrs classes, mappings, sequences and sets.
        output_path: The value of `this_output_path()`; None if the config must not contain it.
        output_paths: The output path of every step in the config.
        prefix: The storage root for hardcoded inputs and mirrored paths.

    Raises:
        NotFound: The config refers to a step that is not in `output_paths`.
        InvalidRequest: The config contains `this_output_path()` without an output path, or a placeholder that cannot be
            replaced in its place.
    """

    def resolve(placeholder: Any) -> Any:
        if type(placeholder) is VersionedValue:  # by far the most frequent, and most often plain
            value = placeholder.value
            return value if type(value) in LEAF_TYPES else _rebuilt(value, resolve)
        if isinstance(placeholder, ExecutorStep):
            placeholder = placeholder.as_input_name()
        if isinstance(placeholder, InputName):
            return _input_path(placeholder, output_paths, prefix)
        if isinstance(placeholder, OutputName):
            if output_path is None:
                raise InvalidRequest(f"{placeholder!r}: this config is not a step's, so it has no output path")
            return _join(output_path, placeholder.name)
        if isinstance(placeholder, MirroredValue):
            return mirror_path(_rebuilt(placeholder.value, resolve), prefix)
        return _rebuilt(placeholder.value, resolve)

    result = rebuild(config, resolve)
    check_resolved(result)
    return copy_config(result)


def resolve_local_placeholders(config: T, output_path: str) -> T:
    """Return a copy of `config` with the step's own placeholders filled in, and unchanged inputs.

    Output names become paths and versioned values plain values. A mirrored path becomes a path unless it is an input.
    """

    def resolve(placeholder: Any) -> Any:
        if isinstance(placeholder, OutputName):
            return _join(output_path, placeholder.name)
        if isinstance(placeholder, VersionedValue):
            return _rebuilt(placeholder.value, resolve)
        if isinstance(placeholder, MirroredValue):
            value = _rebuilt(placeholder.value, resolve)
            if isinstance(value, (ExecutorStep, InputName)):
                return dataclasses.replace(placeholder, value=value)
            return mirror_path(value, None)
        return placeholder

    return rebuild(config, resolve)


def mirror_path(path: Any, prefix: str | None) -> str:
    """Return the `mirror://` form of a path. A path below the prefix becomes relative to it.

    Raises:
        InvalidRequest: `path` is not a path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidRequest(f"mirrored({path!r}): expected a path relative to the prefix, or an input")
    text = os.fspath(path)
    if text.startswith(MIRROR_SCHEME):
        return text
    root = prefix.rstrip("/") + "/" if prefix is not None else None
    if root is not None and text.startswith(root):
        text = text[len(root) :]
    elif is_absolute(text) and "://" not in text:
        raise InvalidRequest(f"mirrored({text!r}): an absolute path has no mirror; write it relative to the prefix")
    return MIRROR_SCHEME + text


def _input_path(reference: InputName, output_paths: Mapping[ExecutorStep[Any], str], prefix: str) -> str:
    if reference.step is None:
        return under_prefix(prefix, reference.name or "")
    path = output_paths.get(reference.step)
    if path is None:
        known = ", ".join(sorted(step.name for step in output_paths)) or "none"
        raise NotFound(f"the output path of step {reference.step.name!r} is not known; known steps: {known}")
    return _join(path, reference.name)


def _join(path: str, name: str | None) -> str:
    return path if name is None else os.path.join(path, name)


def rebuild(obj: T, resolve: Resolve) -> T:
    """Return `obj` with each placeholder replaced by `resolve(placeholder)`, or `obj` itself if it contains none."""
    try:
        result: T = _rebuilt(obj, resolve)
    except RecursionError:
        raise InvalidRequest(f"a config of type {type(obj).__name__} contains itself or is nested too deeply") from None
    return result


def _rebuilt(obj: Any, resolve: Resolve) -> Any:
    return _Rebuilder(resolve).visit(obj)


class _Rebuilder(ConfigVisitor):
    """Replace placeholders in each object. Return the object itself if it contains none."""

    __slots__ = ("_resolve",)

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def visit_placeholder(self, obj: Any) -> Any:
        """Return the placeholder's replacement."""
        return self._resolve(obj)

    def visit_sequence(self, obj: Any) -> Any:
        """Return a list, tuple or set with rebuilt members."""
        before = list(obj)
        after = [item if type(item) in LEAF_TYPES else self.visit(item) for item in before]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return obj
        if isinstance(obj, list):
            result = copy.copy(obj)  # keeps a subclass and its attributes
            result[:] = after
            return result
        if isinstance(obj, tuple) and hasattr(obj, "_make"):
            return type(obj)._make(after)  # a subclass may take other arguments
        return type(obj)(after)

    visit_set = visit_sequence

    def visit_dict(self, obj: dict[Any, Any]) -> dict[Any, Any]:
        """Return a dict with rebuilt values."""
        changed = {key: new for key, old in obj.items() if (new := self.visit(old)) is not old}
        if not changed:
            return obj
        result = copy.copy(obj)  # keeps a subclass, its order and its default factory
        for key, new in changed.items():
            result[key] = new  # a Counter's update() adds
        return result

    def visit_shaped(self, obj: Any) -> Any:
        """Return an object of a shape with rebuilt parts."""
        parts = shape(obj)
        changed = {key: new for key, old in parts.parts(obj) if (new := self.visit(old)) is not old}
        return parts.make(obj, changed) if changed else obj

    def visit_dataclass(self, obj: Any) -> Any:
        """Return a dataclass instance with rebuilt fields."""
        kind = type(obj)
        changed = {}
        for name in dataclass_field_names(kind):
            old = getattr(obj, name, _UNSET)
            if type(old) not in LEAF_TYPES and old is not _UNSET and (new := self.visit(old)) is not old:
                changed[name] = new
        if not changed:
            return obj
        if is_constructed_again(kind):
            return _constructed_again(obj, changed)
        result = shallow_copy(obj)
        for name, new in changed.items():
            object.__setattr__(result, name, new)
        return result


def _constructed_again(obj: Any, changed: Mapping[str, Any]) -> Any:
    """Construct `obj` anew with other field values, so that derived and validated fields see the real values."""
    init_fields = {field.name for field in dataclasses.fields(obj) if field.init}
    result = dataclasses.replace(obj, **{name: new for name, new in changed.items() if name in init_fields})
    for name in dataclass_field_names(type(obj)):
        if name not in init_fields and not hasattr(result, name) and hasattr(obj, name):
            object.__setattr__(result, name, changed.get(name, getattr(obj, name)))
    return result
