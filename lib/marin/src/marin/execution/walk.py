"""The walk through a config: every versioned value and every input it holds, each with its dotted path."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from marin.execution.encode import UnstableValue, encode, field_path, reference_order
from marin.execution.refs import InputName, MirroredValue, OutputName, VersionedValue
from marin.execution.step import ExecutorStep
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

    Dataclass fields in order, dicts in insertion order, lists and tuples by index; the members of a set that hold
    something to report come sorted, because the order of a set differs from process to process.

    Raises:
        InvalidRequest: something to report stands under a dict key that is not a string, or the config contains itself.
    """
    events: list[WalkEvent] = []
    try:
        _walk(obj, "", events.append)
    except RecursionError:
        raise InvalidRequest(
            f"a config of type {type(obj).__name__} contains itself or is nested too deeply to walk"
        ) from None
    return iter(events)


def _walk(obj: Any, prefix: str, emit: Callable[[WalkEvent], None]) -> None:
    kind = type(obj)
    if kind in LEAF_TYPES:
        return
    if isinstance(obj, ExecutorStep):
        emit(InputNameEvent(prefix, obj.as_input_name()))
    elif isinstance(obj, InputName):
        emit(InputNameEvent(prefix, obj))
    elif isinstance(obj, VersionedValue):
        emit(VersionedEvent(prefix, obj.value))
    elif isinstance(obj, MirroredValue):
        _walk(obj.value, prefix, emit)
    elif isinstance(obj, (OutputName, Enum, type)):
        return
    elif dataclasses.is_dataclass(kind):
        dot = prefix + "." if prefix else ""
        for name in dataclass_field_names(kind):
            # A field with init=False may not have been set yet.
            value = getattr(obj, name, None)
            if type(value) not in LEAF_TYPES:
                _walk(value, dot + name, emit)
    elif isinstance(obj, dict):
        _walk_dict(obj, prefix, emit)
    elif isinstance(obj, (list, tuple)):
        for index, value in enumerate(obj):
            _walk(value, field_path(prefix, f"[{index}]"), emit)
    elif isinstance(obj, (set, frozenset)):
        _walk_set(obj, prefix, emit)


def _walk_dict(obj: dict[Any, Any], prefix: str, emit: Callable[[WalkEvent], None]) -> None:
    for key, value in obj.items():
        if isinstance(key, str):
            _walk(value, field_path(prefix, key), emit)
        elif any(True for _ in walk_config(value)):
            raise InvalidRequest(
                f"field {prefix or '(config)'!r}: the dict holds a versioned value or an input under the key {key!r} "
                f"of type {type(key).__name__}; keys on the way to one must be strings"
            )


def _walk_set(obj: set[Any] | frozenset[Any], prefix: str, emit: Callable[[WalkEvent], None]) -> None:
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
        _walk(member, field_path(prefix, f"[{index}]"), emit)


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
    collected = CollectedConfig([], [], {})
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

    for event in walk_config(obj):
        if isinstance(event, InputNameEvent):
            collected.version[event.prefix] = refer(event.input_name)
        else:
            collected.version[event.prefix] = encode(event.value, event.prefix, refer)
    return collected
