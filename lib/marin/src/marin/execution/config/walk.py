"""The walk through a config: every versioned value and every input it holds, each with its dotted path."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

from marin.execution.config.encode import (
    JSON_SCALARS,
    UnstableValue,
    encode,
    field_path,
    reference_order,
    refuse_description,
)
from marin.execution.config.hidden import find_inside, is_inert, is_iterator
from marin.execution.config.placeholder import MARK, may_hold_description
from marin.execution.config.shapes import Shape, shape_of
from marin.execution.config.step import PLACEHOLDERS, ExecutorStep, InputName
from marin.execution.config.values import MirroredValue, OutputName, VersionedValue
from rigging.errors import InvalidRequest

LEAF_TYPES = frozenset({str, int, float, bool, bytes, complex, type(None)})


@dataclass(frozen=True, slots=True)
class InputNameEvent:
    """An input (a step counts as the input of its whole output) at a dotted path."""

    prefix: str
    input_name: InputName


@dataclass(frozen=True, slots=True)
class VersionedEvent:
    """A versioned value at a dotted path; inputs inside the value are not events of their own."""

    prefix: str
    value: Any


WalkEvent = InputNameEvent | VersionedEvent


@dataclass(frozen=True, slots=True)
class CollectedConfig:
    """What a config says about its step.

    Attributes:
        dependencies: Steps it waits for, one entry per reference, in walk order.
        pseudo_dependencies: Steps it only names (`nonblocking()`), likewise.
        version: Dotted path to encoded versioned value or `DEP[i]`, in walk order.
    """

    dependencies: list[ExecutorStep[Any]]
    pseudo_dependencies: list[ExecutorStep[Any]]
    version: dict[str, Any]


_field_names: dict[type[Any], tuple[str, ...]] = {}


def dataclass_field_names(cls: type[Any]) -> tuple[str, ...]:
    """Names of a dataclass's fields in order, those with `init=False` included."""
    names = _field_names.get(cls)
    if names is None:
        names = _field_names[cls] = tuple(field.name for field in dataclasses.fields(cls))
    return names


def walk_config(obj: Any) -> Iterator[WalkEvent]:
    """Yield every versioned value and input of a config in walk order.

    Fields of dataclasses, pydantic models and attrs classes in order, mappings in theirs, sequences by index; members
    of a set that hold something to report come sorted, because the order of a set differs from process to process.

    Raises:
        InvalidRequest: something to report stands where it cannot be replaced (in a dict key, under a key that is no
            string, in an object of another kind), or the config contains itself.
    """
    events: list[WalkEvent] = []
    _walk_whole(
        obj,
        _Visitor(
            lambda prefix, reference: events.append(InputNameEvent(prefix, reference)),
            lambda prefix, value: events.append(VersionedEvent(prefix, value)),
        ),
    )
    return iter(events)


@dataclass(frozen=True, slots=True)
class _Visitor:
    """Who is told of what the walk finds, each at its dotted path."""

    on_input: Callable[[str, InputName], None]
    on_versioned: Callable[[str, Any], None]
    on_output: Callable[[str, OutputName], None] = lambda *_: None
    is_final: bool = False
    """Whether the config is the one that the function gets: classes that derive something have done so."""
    looks_at_texts: bool = True
    """Not in a class that derives some: it may have done so from placeholders, and does so again from the values."""


def _walk_whole(obj: Any, visitor: _Visitor) -> None:
    try:
        _walk(obj, "", visitor)
    except RecursionError:
        raise InvalidRequest(
            f"a config of type {type(obj).__name__} contains itself or is nested too deeply to walk"
        ) from None


_Walker = Callable[[Any, str, _Visitor], None]


def _walk(obj: Any, prefix: str, visitor: _Visitor) -> None:
    kind = type(obj)
    if kind in LEAF_TYPES:
        if kind is str and visitor.looks_at_texts:
            refuse_description(obj, prefix)
        return
    walker = _walkers.get(kind)
    if walker is None:
        walker = _walkers[kind] = _walker_of(kind)
    walker(obj, prefix, visitor)


def _walker_of(kind: type[Any]) -> _Walker:
    if issubclass(kind, ExecutorStep):
        return lambda obj, prefix, visitor: visitor.on_input(prefix, obj.as_input_name())
    if issubclass(kind, InputName):
        return lambda obj, prefix, visitor: visitor.on_input(prefix, obj)
    if issubclass(kind, VersionedValue):
        return lambda obj, prefix, visitor: visitor.on_versioned(prefix, obj.value)
    if issubclass(kind, MirroredValue):
        return lambda obj, prefix, visitor: _walk(obj.value, prefix, visitor)
    if issubclass(kind, OutputName):
        return lambda obj, prefix, visitor: visitor.on_output(prefix, obj)
    if issubclass(kind, (Enum, type)):
        return _walk_opaque
    if dataclasses.is_dataclass(kind):
        return _walk_dataclass
    walker = _walker_of_builtin(kind)
    if walker is not None:
        return (
            functools.partial(_walk_with_attributes, walker)
            if hasattr(kind, "__dict__") and kind.__dictoffset__
            else walker
        )
    shape = shape_of(kind)
    if shape is not None:
        return functools.partial(_walk_shape, shape)
    return _walk_nothing if is_inert(kind) else _walk_opaque


def _walker_of_builtin(kind: type[Any]) -> _Walker | None:
    if issubclass(kind, dict):
        return _walk_dict
    if issubclass(kind, (list, tuple)):
        return _walk_sequence
    if issubclass(kind, (set, frozenset)):
        return _walk_set
    return _walk_nothing if issubclass(kind, (str, int, float, bytes)) else None


# What a class is to the walk is looked up, not asked of each of its instances again.
_walkers: dict[type[Any], _Walker] = {}


def _walk_nothing(obj: Any, prefix: str, visitor: _Visitor) -> None:
    del obj, prefix, visitor


def _walk_with_attributes(walker: _Walker, obj: Any, prefix: str, visitor: _Visitor) -> None:
    walker(obj, prefix, visitor)
    _refuse_in_attributes(obj, (), prefix)


def _refuse_in_attributes(obj: Any, fields: Collection[str], prefix: str) -> None:
    """Refuse placeholders in attributes of an object that are none of its fields: cached properties, say."""
    for name, value in obj.__dict__.items():
        if name not in fields and type(value) not in LEAF_TYPES:
            _refuse_placeholder_in(value, field_path(prefix, name), f"the attribute {name!r}, which is no field,")


def _walk_dataclass(obj: Any, prefix: str, visitor: _Visitor) -> None:
    dot = prefix + "." if prefix else ""
    names = dataclass_field_names(type(obj))
    attributes = getattr(obj, "__dict__", None)
    has_others = attributes is not None and len(attributes) > len(names)
    look_at_texts = may_hold_description() and visitor.looks_at_texts
    if (has_others or look_at_texts) and not visitor.is_final and is_constructed_again(type(obj)):
        has_others = look_at_texts = False
        visitor = dataclasses.replace(visitor, looks_at_texts=False)
    if has_others:
        _refuse_in_attributes(obj, names, prefix)
    for name in names:
        # A field with init=False may not have been set yet.
        value = getattr(obj, name, None)
        kind = type(value)
        if kind is VersionedValue:
            visitor.on_versioned(dot + name, value.value)  # type: ignore[union-attr]
        elif kind not in LEAF_TYPES or (look_at_texts and kind is str):
            _walk(value, dot + name, visitor)


def is_constructed_again(kind: type[Any]) -> bool:
    """Whether a dataclass is made again by its constructor: what it derives or checks must see the real values."""
    return hasattr(kind, "__post_init__") and not _needs_init_only_values(kind)


def _needs_init_only_values(kind: type[Any]) -> bool:
    """Whether it takes an `InitVar`, which `fields()` leaves out and no instance keeps: it cannot be made again."""
    every_field: Mapping[str, Any] = kind.__dataclass_fields__
    return len(every_field) > len(dataclass_field_names(kind)) and any(
        "InitVar" in str(field.type) for field in every_field.values()
    )


def _walk_sequence(obj: Any, prefix: str, visitor: _Visitor) -> None:
    for index, value in enumerate(obj):
        kind = type(value)
        if kind not in LEAF_TYPES or (kind is str and may_hold_description()):
            _walk(value, field_path(prefix, f"[{index}]"), visitor)


def _walk_dict(obj: dict[Any, Any], prefix: str, visitor: _Visitor) -> None:
    if MARK in obj:
        raise InvalidRequest(
            f"field {prefix or '(config)'!r}: what was {obj[MARK]} has been taken apart, by dataclasses.asdict or "
            "model_dump, so it would neither count in the version nor be replaced; give the object itself, or "
            "{field.name: getattr(config, field.name) for field in dataclasses.fields(config)}"
        )
    for key, value in obj.items():
        _walk_entry(key, value, prefix, visitor)


def _walk_entry(key: Any, value: Any, prefix: str, visitor: _Visitor) -> None:
    if isinstance(key, str):
        _walk(value, field_path(prefix, key), visitor)
        return
    if type(key) not in LEAF_TYPES:
        _refuse_placeholder_in(key, prefix, f"the dict key {key!r}")
    if any(True for _ in walk_config(value)):
        raise InvalidRequest(
            f"field {prefix or '(config)'!r}: the dict holds a versioned value or an input under the key {key!r} "
            f"of type {type(key).__name__}; keys on the way to one must be strings"
        )


def _walk_shape(shape: Shape, obj: Any, prefix: str, visitor: _Visitor) -> None:
    if shape.has_fields and hasattr(obj, "__dict__") and (visitor.is_final or not hasattr(obj, "__attrs_post_init__")):
        _refuse_in_attributes(obj, [key for key, _ in shape.parts(obj)], prefix)
    for key, value in shape.parts(obj):
        if shape.is_sequence:
            _walk(value, field_path(prefix, f"[{key}]"), visitor)
        else:
            _walk_entry(key, value, prefix, visitor)


def _walk_opaque(obj: Any, prefix: str, visitor: _Visitor) -> None:
    del visitor
    if is_iterator(type(obj)):
        raise InvalidRequest(
            f"field {prefix or '(config)'!r}: a {type(obj).__name__} can be read only once, so what it gives could "
            "neither count in the version nor be replaced; use a list"
        )
    _refuse_placeholder_in(obj, prefix, f"an object of type {type(obj).__name__}")


def _refuse_placeholder_in(obj: Any, prefix: str, what: str) -> None:
    found = find_inside(obj, lambda item: isinstance(item, PLACEHOLDERS))
    if found is None:
        return
    where, placeholder = found
    raise InvalidRequest(
        f"field {prefix or '(config)'!r}: {what} holds {placeholder!r}{f' at {where}' if where else ''}, where it "
        "would neither count in the version nor be replaced by its value; configs are made of dataclasses, pydantic "
        "models, attrs classes, mappings with string keys, and sequences"
    )


def check_resolved(config: Any) -> None:
    """Refuse a config for a step's function in which something is still a placeholder.

    Raises:
        InvalidRequest: Naming the field.
    """

    def refuse(prefix: str, placeholder: Any) -> None:
        raise InvalidRequest(
            f"field {prefix or '(config)'!r}: {placeholder!r} is still there after everything was resolved, so the "
            "step's function would get it in place of its value; something in the config's class makes it anew"
        )

    _walk_whole(
        config,
        _Visitor(refuse, lambda prefix, value: refuse(prefix, VersionedValue(value)), refuse, is_final=True),
    )


def _walk_set(obj: set[Any] | frozenset[Any], prefix: str, visitor: _Visitor) -> None:
    members = [(member, list(walk_config(member))) for member in obj]
    reporting = [(member, events) for member, events in members if events]
    keyed = sorted(
        ((tuple(_event_order(event) for event in events), member, events) for member, events in reporting),
        key=lambda entry: entry[0],
    )
    for (key, member, events), (next_key, next_member, next_events) in itertools.pairwise(keyed):
        if key == next_key and _steps_of(events) != _steps_of(next_events):
            raise UnstableValue(
                f"field {prefix!r}: the set holds {member!r} and {next_member!r}, which cannot be told apart by name, "
                "so their order would differ from run to run; use a list"
            )
    for index, (_, member, _) in enumerate(keyed):
        _walk(member, field_path(prefix, f"[{index}]"), visitor)


def _event_order(event: WalkEvent) -> tuple[str, str]:
    if isinstance(event, InputNameEvent):
        return event.prefix, reference_order(event.input_name)
    return event.prefix, repr(encode(event.value, event.prefix, reference_order))


def _steps_of(events: list[WalkEvent]) -> list[ExecutorStep[Any] | None]:
    return [reference.step for event in events for reference in references(event)]


def references(event: WalkEvent) -> list[InputName]:
    """The inputs of one event: itself, or those inside a versioned value."""
    if isinstance(event, InputNameEvent):
        return [event.input_name]
    if type(event.value) in LEAF_TYPES:
        return []
    found: list[InputName] = []

    def note(reference: InputName) -> str:
        found.append(reference)
        return reference_order(reference)

    encode(event.value, event.prefix, note)
    return found


def upstream_steps(obj: Any) -> list[ExecutorStep[Any]]:
    """The steps that a config refers to, blocking or not, each once, in walk order."""
    steps = [reference.step for event in walk_config(obj) for reference in references(event)]
    return list(dict.fromkeys(step for step in steps if step is not None))


def _refuse_second(prefix: str) -> NoReturn:
    raise InvalidRequest(
        f"field {prefix!r}: two places of the config are written so (a key with a dot in it, and a key below another), "
        "and only one of them would count; rename one"
    )


def collect_dependencies_and_version(obj: Any) -> CollectedConfig:
    """Walk a config once and give its dependencies and the "config" part of its step's version.

    Raises:
        InvalidRequest: a versioned value has no encoding that is the same in every process (the field is named).
    """
    version: dict[str, Any] = {}
    collected = CollectedConfig([], [], version)
    count = 0

    def refer(reference: InputName) -> str:
        nonlocal count
        if reference.step is None:
            return reference.name or ""
        steps = collected.dependencies if reference.block_on_step else collected.pseudo_dependencies
        steps.append(reference.step)
        text = f"DEP[{count}]" + (f"/{reference.name}" if reference.name else "")
        count += 1
        return text

    def note_input(prefix: str, reference: InputName) -> None:
        if prefix in version:
            _refuse_second(prefix)
        version[prefix] = refer(reference)

    def note_versioned(prefix: str, value: Any) -> None:
        if prefix in version:
            _refuse_second(prefix)
        kind = type(value)
        if kind in JSON_SCALARS and not (kind is str and may_hold_description()):
            version[prefix] = value
        else:
            version[prefix] = encode(value, prefix, refer)

    _walk_whole(obj, _Visitor(note_input, note_versioned))
    return collected
