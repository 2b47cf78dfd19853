"""The traversal of a config that yields every versioned value and input with its dotted path."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
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
from marin.execution.config.step import ExecutorStep, InputName
from marin.execution.config.values import MirroredValue, OutputName, VersionedValue
from marin.execution.config.visitor import (
    LEAF_TYPES,
    PLACEHOLDERS,
    ConfigVisitor,
    ObjectKind,
    dataclass_field_names,
    object_kind,
    shape,
)
from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class InputNameEvent:
    """An input at a dotted path. A step counts as the input of its whole output."""

    prefix: str
    input_name: InputName


@dataclass(frozen=True, slots=True)
class VersionedEvent:
    """A versioned value at a dotted path. Inputs inside the value are not separate events."""

    prefix: str
    value: Any


WalkEvent = InputNameEvent | VersionedEvent


@dataclass(frozen=True, slots=True)
class CollectedConfig:
    """The dependencies and version that a config gives its step.

    Attributes:
        dependencies: The steps it waits for, one entry per reference, in traversal order.
        pseudo_dependencies: The steps of non-blocking inputs, likewise.
        version: Dotted path to encoded versioned value or `DEP[i]`, in traversal order.
    """

    dependencies: list[ExecutorStep[Any]]
    pseudo_dependencies: list[ExecutorStep[Any]]
    version: dict[str, Any]


def walk_config(obj: Any) -> Iterator[WalkEvent]:
    """Yield every versioned value and input of a config in traversal order.

    Fields of dataclasses, pydantic models and attrs classes come in order, mappings in their own order, sequences by
    index. Set members that contain versioned values or inputs are sorted, because a set's order differs between
    processes.

    Raises:
        InvalidRequest: A placeholder cannot be replaced where it is (a dict key, below a key that is not a string, in
            an object of another kind), or the config contains itself.
    """
    events: list[WalkEvent] = []
    _walk_whole(
        obj,
        _PlaceholderFinder(
            lambda prefix, reference: events.append(InputNameEvent(prefix, reference)),
            lambda prefix, value: events.append(VersionedEvent(prefix, value)),
        ),
    )
    return iter(events)


def _walk_whole(obj: Any, finder: _PlaceholderFinder) -> None:
    try:
        finder.visit_at(obj, "")
    except RecursionError:
        raise InvalidRequest(
            f"a config of type {type(obj).__name__} contains itself or is nested too deeply to walk"
        ) from None


class _PlaceholderFinder(ConfigVisitor):
    """Call a function for every placeholder of a config, and refuse misplaced ones.

    Args:
        on_input: Called for each input.
        on_versioned: Called for each versioned value.
        on_output: Called for each `this_output_path()`.
        is_final: Whether the config is the final one for the function, so that derived fields are computed.
    """

    __slots__ = ("_is_final", "_looks_at_texts", "_on_input", "_on_output", "_on_versioned")

    def __init__(
        self,
        on_input: Callable[[str, InputName], None],
        on_versioned: Callable[[str, Any], None],
        on_output: Callable[[str, OutputName], None] = lambda *_: None,
        *,
        is_final: bool = False,
    ) -> None:
        self._on_input = on_input
        self._on_versioned = on_versioned
        self._on_output = on_output
        self._is_final = is_final
        # Not in a class that derives some: it may have done so from placeholders, and does so again from the values.
        self._looks_at_texts = True

    @classmethod
    def method_for(cls, kind: type[Any]) -> Callable[..., Any]:
        """Return the method for instances of a class. Extra attributes of a builtin's subclass are checked, too."""
        method = super().method_for(kind)
        what = object_kind(kind)
        if what is ObjectKind.OTHER and is_inert(kind):
            return cls.visit_scalar
        if what not in _BUILTIN_KINDS or not (hasattr(kind, "__dict__") and kind.__dictoffset__):
            return method

        def visit_with_attributes(self: _PlaceholderFinder, obj: Any, path: str) -> None:
            method(self, obj, path)
            _refuse_in_attributes(obj, (), path)

        return visit_with_attributes

    def visit_leaf(self, obj: Any, path: str) -> None:
        """Refuse text that contains a placeholder's description."""
        if type(obj) is str and self._looks_at_texts:
            refuse_description(obj, path)

    def visit_scalar(self, obj: Any, path: str) -> None:
        """Ignore values that cannot contain a placeholder."""

    def visit_placeholder(self, obj: Any, path: str) -> None:
        """Ignore a placeholder that neither depends on a step nor is part of the version."""

    def visit_step(self, obj: ExecutorStep[Any], path: str) -> None:
        """Report the step's whole output."""
        self._on_input(path, obj.as_input_name())

    def visit_input(self, obj: InputName, path: str) -> None:
        """Report an input."""
        self._on_input(path, obj)

    def visit_versioned(self, obj: VersionedValue[Any], path: str) -> None:
        """Report a versioned value. The encoding handles inputs inside the value."""
        self._on_versioned(path, obj.value)

    def visit_mirrored(self, obj: MirroredValue[Any], path: str) -> None:
        """Visit the mirrored path."""
        self.visit_at(obj.value, path)

    def visit_output(self, obj: OutputName, path: str) -> None:
        """Report a `this_output_path()`."""
        self._on_output(path, obj)

    def visit_dataclass(self, obj: Any, path: str) -> None:
        """Visit the fields in order."""
        dot = path + "." if path else ""
        names = dataclass_field_names(type(obj))
        attributes = getattr(obj, "__dict__", None)
        has_others = attributes is not None and len(attributes) > len(names)
        look_at_texts = may_hold_description() and self._looks_at_texts
        finder = self
        if (has_others or look_at_texts) and not self._is_final and is_constructed_again(type(obj)):
            has_others = look_at_texts = False
            finder = copy.copy(self)
            finder._looks_at_texts = False
        if has_others:
            _refuse_in_attributes(obj, names, path)
        for name in names:
            # A field with init=False may not be set yet.
            value = getattr(obj, name, None)
            kind = type(value)
            if kind is VersionedValue:
                self._on_versioned(dot + name, value.value)  # type: ignore[union-attr]
            elif kind not in LEAF_TYPES or (look_at_texts and kind is str):
                finder.visit_at(value, dot + name)

    def visit_sequence(self, obj: Any, path: str) -> None:
        """Visit the members by index."""
        for index, value in enumerate(obj):
            kind = type(value)
            if kind not in LEAF_TYPES or (kind is str and may_hold_description()):
                self.visit_at(value, field_path(path, f"[{index}]"))

    def visit_dict(self, obj: dict[Any, Any], path: str) -> None:
        """Visit the values in the dict's order."""
        if MARK in obj:
            raise InvalidRequest(
                f"field {path or '(config)'!r}: what was {obj[MARK]} has been taken apart, by dataclasses.asdict or "
                "model_dump, so it would neither count in the version nor be replaced; give the object itself, or "
                "{field.name: getattr(config, field.name) for field in dataclasses.fields(config)}"
            )
        for key, value in obj.items():
            self._visit_entry(key, value, path)

    def _visit_entry(self, key: Any, value: Any, path: str) -> None:
        if isinstance(key, str):
            self.visit_at(value, field_path(path, key))
            return
        if type(key) not in LEAF_TYPES:
            _refuse_placeholder_in(key, path, f"the dict key {key!r}")
        if any(True for _ in walk_config(value)):
            raise InvalidRequest(
                f"field {path or '(config)'!r}: the dict holds a versioned value or an input under the key {key!r} "
                f"of type {type(key).__name__}; keys on the way to one must be strings"
            )

    def visit_set(self, obj: set[Any] | frozenset[Any], path: str) -> None:
        """Visit the members with placeholders, sorted, because a set's order differs between processes."""
        members = [(member, list(walk_config(member))) for member in obj]
        reporting = [(member, events) for member, events in members if events]
        keyed = sorted(
            ((tuple(_event_order(event) for event in events), member, events) for member, events in reporting),
            key=lambda entry: entry[0],
        )
        for (key, member, events), (next_key, next_member, next_events) in itertools.pairwise(keyed):
            if key == next_key and _steps_of(events) != _steps_of(next_events):
                raise UnstableValue(
                    f"field {path!r}: the set holds {member!r} and {next_member!r}, which cannot be told apart by "
                    "name, so their order would differ from run to run; use a list"
                )
        for index, (_, member, _) in enumerate(keyed):
            self.visit_at(member, field_path(path, f"[{index}]"))

    def visit_shaped(self, obj: Any, path: str) -> None:
        """Visit the parts."""
        parts = shape(obj)
        looks_at_others = self._is_final or not hasattr(obj, "__attrs_post_init__")
        if parts.has_fields and hasattr(obj, "__dict__") and looks_at_others:
            _refuse_in_attributes(obj, [key for key, _ in parts.parts(obj)], path)
        for key, value in parts.parts(obj):
            if parts.is_sequence:
                self.visit_at(value, field_path(path, f"[{key}]"))
            else:
                self._visit_entry(key, value, path)

    def visit_other(self, obj: Any, path: str) -> None:
        """Refuse an iterator, and an object that contains a placeholder."""
        if is_iterator(type(obj)):
            raise InvalidRequest(
                f"field {path or '(config)'!r}: a {type(obj).__name__} can be read only once, so what it gives could "
                "neither count in the version nor be replaced; use a list"
            )
        _refuse_placeholder_in(obj, path, f"an object of type {type(obj).__name__}")


_BUILTIN_KINDS = (ObjectKind.DICT, ObjectKind.SEQUENCE, ObjectKind.SET, ObjectKind.SCALAR)


def _refuse_in_attributes(obj: Any, fields: Collection[str], prefix: str) -> None:
    """Refuse placeholders in attributes of an object that are not fields, such as cached properties."""
    for name, value in obj.__dict__.items():
        if name not in fields and type(value) not in LEAF_TYPES:
            _refuse_placeholder_in(value, field_path(prefix, name), f"the attribute {name!r}, which is no field,")


def is_constructed_again(kind: type[Any]) -> bool:
    """Return whether instantiation calls a dataclass's constructor, so that derived and validated fields see the real
    values.
    """
    return hasattr(kind, "__post_init__") and not _needs_init_only_values(kind)


def _needs_init_only_values(kind: type[Any]) -> bool:
    """Return whether a dataclass takes an `InitVar`, which no instance keeps, so that it cannot be rebuilt."""
    every_field: Mapping[str, Any] = kind.__dataclass_fields__
    return len(every_field) > len(dataclass_field_names(kind)) and any(
        "InitVar" in str(field.type) for field in every_field.values()
    )


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
    """Check that a config for a step's function contains no placeholder.

    Raises:
        InvalidRequest: The config contains a placeholder. The message names the field.
    """

    def refuse(prefix: str, placeholder: Any) -> None:
        raise InvalidRequest(
            f"field {prefix or '(config)'!r}: {placeholder!r} is still there after everything was resolved, so the "
            "step's function would get it in place of its value; something in the config's class makes it anew"
        )

    _walk_whole(
        config,
        _PlaceholderFinder(refuse, lambda prefix, value: refuse(prefix, VersionedValue(value)), refuse, is_final=True),
    )


def _event_order(event: WalkEvent) -> tuple[str, str]:
    if isinstance(event, InputNameEvent):
        return event.prefix, reference_order(event.input_name)
    return event.prefix, repr(encode(event.value, event.prefix, reference_order))


def _steps_of(events: list[WalkEvent]) -> list[ExecutorStep[Any] | None]:
    return [reference.step for event in events for reference in references(event)]


def references(event: WalkEvent) -> list[InputName]:
    """Return the inputs of one event: the event itself, or those inside a versioned value."""
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
    """Return the steps that a config refers to, blocking or not, without duplicates, in traversal order."""
    steps = [reference.step for event in walk_config(obj) for reference in references(event)]
    return list(dict.fromkeys(step for step in steps if step is not None))


def _refuse_second(prefix: str) -> NoReturn:
    raise InvalidRequest(
        f"field {prefix!r}: two places of the config are written so (a key with a dot in it, and a key below another), "
        "and only one of them would count; rename one"
    )


def collect_dependencies_and_version(obj: Any) -> CollectedConfig:
    """Traverse a config once. Return its dependencies and the "config" part of its step's version.

    Raises:
        InvalidRequest: A versioned value has no stable encoding. The message names the field.
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

    _walk_whole(obj, _PlaceholderFinder(note_input, note_versioned))
    return collected
