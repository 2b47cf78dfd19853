"""The walk through a config: every versioned value and every input it holds, each with its dotted path."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from marin.execution.encode import JSON_SCALARS, UnstableValue, encode, field_path, reference_order
from marin.execution.hidden import find_inside, is_inert
from marin.execution.refs import InputName, MirroredValue, OutputName, VersionedValue
from marin.execution.shapes import Shape, shape_of
from marin.execution.step import PLACEHOLDERS, ExecutorStep
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
        return _walk_nothing
    if dataclasses.is_dataclass(kind):
        return _walk_dataclass
    if issubclass(kind, dict):
        return _walk_dict
    if issubclass(kind, (list, tuple)):
        return _walk_sequence
    if issubclass(kind, (set, frozenset)):
        return _walk_set
    shape = shape_of(kind)
    if shape is not None:
        return functools.partial(_walk_shape, shape)
    return _walk_nothing if is_inert(kind) else _walk_opaque


# What a class is to the walk is looked up, not asked of each of its instances again.
_walkers: dict[type[Any], _Walker] = {}


def _walk_nothing(obj: Any, prefix: str, visitor: _Visitor) -> None:
    del obj, prefix, visitor


def _walk_dataclass(obj: Any, prefix: str, visitor: _Visitor) -> None:
    dot = prefix + "." if prefix else ""
    for name in dataclass_field_names(type(obj)):
        # A field with init=False may not have been set yet.
        value = getattr(obj, name, None)
        kind = type(value)
        if kind is VersionedValue:
            visitor.on_versioned(dot + name, value.value)  # type: ignore[union-attr]
        elif kind not in LEAF_TYPES:
            _walk(value, dot + name, visitor)


def _walk_sequence(obj: Any, prefix: str, visitor: _Visitor) -> None:
    for index, value in enumerate(obj):
        if type(value) not in LEAF_TYPES:
            _walk(value, field_path(prefix, f"[{index}]"), visitor)


def _walk_dict(obj: dict[Any, Any], prefix: str, visitor: _Visitor) -> None:
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
    for key, value in shape.parts(obj):
        if shape.is_sequence:
            _walk(value, field_path(prefix, f"[{key}]"), visitor)
        else:
            _walk_entry(key, value, prefix, visitor)


def _walk_opaque(obj: Any, prefix: str, visitor: _Visitor) -> None:
    del visitor
    _refuse_placeholder_in(obj, prefix, f"an object of type {type(obj).__name__}")


def _refuse_placeholder_in(obj: Any, prefix: str, what: str) -> None:
    found = find_inside(obj, _is_placeholder)
    if found is None:
        return
    where, placeholder = found
    raise InvalidRequest(
        f"field {prefix or '(config)'!r}: {what} holds {placeholder!r}{f' at {where}' if where else ''}, where it "
        "would neither count in the version nor be replaced by its value; configs are made of dataclasses, pydantic "
        "models, attrs classes, mappings with string keys, and sequences"
    )


def _is_placeholder(obj: Any) -> bool:
    return isinstance(obj, PLACEHOLDERS)


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

    _walk_whole(config, _Visitor(refuse, lambda prefix, value: refuse(prefix, VersionedValue(value)), refuse))


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
        version[prefix] = refer(reference)

    def note_versioned(prefix: str, value: Any) -> None:
        version[prefix] = value if type(value) in JSON_SCALARS else encode(value, prefix, refer)

    _walk_whole(obj, _Visitor(note_input, note_versioned))
    return collected
