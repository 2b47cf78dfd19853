"""The JSON form of versioned values. Output paths of existing data depend on every byte of it: do not change it."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import itertools
import pathlib
import re
import sys
import uuid
from collections.abc import Callable
from typing import Any

from marin.execution.config.hidden import find_inside, is_inert
from marin.execution.config.partial_text import is_shortened, left_out_of_text
from marin.execution.config.placeholder import OMIT_DEFAULT_METADATA, described_in
from marin.execution.config.step import ExecutorStep, InputName
from marin.execution.config.values import DEFAULT_MIRROR_BUDGET_GB, MirroredValue
from marin.execution.config.visitor import PLACEHOLDERS
from rigging.errors import InvalidRequest

# What a default repr shows of where an object happens to lie in memory.
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{6,}")

# Types whose text follows from their value alone, even when it looks like an address.
_TEXT_TYPES = (
    bytes,
    bytearray,
    range,
    slice,
    complex,
    datetime.date,
    datetime.time,
    datetime.timezone,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    re.Pattern,
)

# Types whose hash does not depend on PYTHONHASHSEED or on an address, so that a set of them has one order.
_SEEDLESS_HASH_TYPES = (int, float, complex, decimal.Decimal, fractions.Fraction)

# Values that are their own JSON form.
JSON_SCALARS = frozenset({bool, int, float, str, type(None)})

Refer = Callable[[InputName], str]


class UnstableValue(InvalidRequest):
    """A versioned value whose encoding would differ between processes."""


def field_path(prefix: str, part: str) -> str:
    """Return `part` below the dotted path `prefix`."""
    return f"{prefix}.{part}" if prefix else part


def reference_order(reference: InputName) -> str:
    """Return a sort key for inputs that is the same in every process."""
    step_name = reference.step.name if reference.step is not None else ""
    return f"{step_name}\0{reference.name or ''}\0{reference.block_on_step}"


def encode(value: Any, field: str, refer: Refer) -> Any:
    """Return the JSON form of a versioned value.

    Args:
        value: The argument of `versioned()`.
        field: Its dotted path, for messages.
        refer: Called for each input inside the value, in traversal order. Returns its replacement text.

    Returns:
        An argument for `json.dumps(..., sort_keys=True)`, with dict keys unchanged.

    Raises:
        UnstableValue: The value has no text that is stable across processes.
    """
    if type(value) in JSON_SCALARS and type(value) is not str:
        return value
    try:
        return _encode(value, field, refer)
    except RecursionError:
        raise UnstableValue(
            f"field {field!r}: the versioned {type(value).__name__} contains itself or is nested too deeply"
        ) from None


def _encode(value: Any, field: str, refer: Refer) -> Any:
    scalar = _encode_scalar(value, field)
    if scalar is not NotImplemented:
        return scalar
    if isinstance(value, enum.Enum):
        return _encode(value.value, field, refer)
    if isinstance(value, ExecutorStep):
        return refer(value.as_input_name())
    if isinstance(value, InputName):
        return refer(value)
    if isinstance(value, datetime.timedelta):
        return {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_encode(item, field_path(field, f"[{index}]"), refer) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return _encode_dict(value, field, refer)
    if isinstance(value, (set, frozenset)):
        return _encode_set(value, field, refer)
    if isinstance(value, MirroredValue):
        # Its budget is no part of any path; this is the text that the default budget has always had.
        return {"value": _encode(value.value, field_path(field, "value"), refer), "budget_gb": DEFAULT_MIRROR_BUDGET_GB}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode_dataclass(value, field, refer)
    if not is_inert(type(value)):
        _refuse_hidden(value, field)
    _refuse_partial(value, field)
    return stable_text(value, field)


def _refuse_partial(value: Any, field: str) -> None:
    """Refuse a value that is versioned by its text if different values could have the same text."""
    missing = left_out_of_text(value)
    if missing:
        raise UnstableValue(
            f"field {field!r}: the text of the versioned {type(value).__name__} does not show {missing}, so that would "
            "not count; version its parts: a dict of plain values (model_dump(), attrs.asdict), a dataclass or a list"
        )


def _refuse_hidden(value: Any, field: str) -> None:
    """Refuse a value that is versioned by its text if the text would hide an input or the order of a set."""
    found = find_inside(value, lambda item: isinstance(item, PLACEHOLDERS) or _is_unordered_set(item))
    if found is None:
        return
    where, item = found
    if isinstance(item, PLACEHOLDERS):
        what, why = repr(item), "which its text would hide; use a dataclass, dict, list or tuple"
    else:
        what, why = (
            f"the set {_short(item)}",
            "whose order depends on the process's hash seed; use a sorted list or tuple",
        )
    at = f" at {where}" if where else ""
    raise UnstableValue(f"field {field!r}: the versioned {type(value).__name__} holds {what}{at}, {why}")


def _is_unordered_set(value: Any) -> bool:
    return (
        isinstance(value, (set, frozenset)) and len(value) > 1 and not all(_has_seedless_hash(item) for item in value)
    )


def _encode_scalar(value: Any, field: str = "") -> Any:
    if type(value) in JSON_SCALARS:
        if type(value) is str:
            refuse_description(value, field)
        return value
    if isinstance(value, enum.Enum):
        return NotImplemented
    # json writes subclasses of these (numpy's float64, say) as the plain number or text.
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    return NotImplemented


def refuse_description(text: str, field: str) -> None:
    """Refuse text that contains the description of a placeholder."""
    if described_in(text):
        raise InvalidRequest(
            f"field {field or '(config)'!r}: the text {_short(text)} has the description of a step, an input or a "
            "versioned value in it, made by !r or of a list of them; give them as values, and make the text of what "
            "the step's function gets"
        )


def _encode_dict(value: dict[Any, Any], field: str, refer: Refer) -> dict[Any, Any]:
    for key in value:
        if isinstance(key, enum.Enum) and not isinstance(key, (str, int, float)):
            raise UnstableValue(f"field {field!r}: dict key {key!r} is not a JSON key; use {key!r}.value")
        if key is not None and not isinstance(key, (str, int, float)):
            raise UnstableValue(
                f"field {field!r}: dict key {key!r} of type {type(key).__name__} has no JSON form; "
                "use keys that are all strings or all numbers"
            )
    kinds = {_key_kind(key) for key in value}
    if len(kinds) > 1:
        raise UnstableValue(
            f"field {field!r}: the dict mixes keys of type {' and '.join(sorted(kinds))}, which have no order; "
            "use keys of one type"
        )
    return {_encode_scalar_key(key): _encode(item, field_path(field, str(key)), refer) for key, item in value.items()}


def _key_kind(key: Any) -> str:
    if key is None:
        return "None"
    return "str" if isinstance(key, str) else "number"


def _encode_scalar_key(key: Any) -> Any:
    if isinstance(key, enum.Enum):
        key = key.value
    return _encode_scalar(key)


def _encode_dataclass(value: Any, field: str, refer: Refer) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for item in dataclasses.fields(value):
        if not hasattr(value, item.name):
            continue
        content = getattr(value, item.name)
        if item.metadata.get(OMIT_DEFAULT_METADATA) and content == _default_of(item):
            continue
        encoded[item.name] = _encode(content, field_path(field, item.name), refer)
    return encoded


def _default_of(item: dataclasses.Field[Any]) -> Any:
    return item.default_factory() if callable(item.default_factory) else item.default


def _encode_set(value: set[Any] | frozenset[Any], field: str, refer: Refer) -> str:
    inputs = [item.as_input_name() if isinstance(item, ExecutorStep) else item for item in value]
    if any(isinstance(item, InputName) for item in inputs):
        return _encode_set_with_inputs(inputs, type(value), field, refer)
    if _is_unordered_set(value):
        raise UnstableValue(
            f"field {field!r}: the order of the set {_short(value)} depends on the process's hash seed; "
            "use a sorted list or tuple"
        )
    for item in value:
        _encode(item, field, refer)
    # Members with one hash stand in the order in which they were added: in a set made anew, in one order.
    return stable_text(type(value)(_sorted(value)), field)


def _sorted(value: set[Any] | frozenset[Any]) -> list[Any]:
    try:
        return sorted(value) if all(item == item for item in value) else sorted(value, key=repr)  # not so: NaN
    except TypeError:
        return sorted(value, key=repr)


def _encode_set_with_inputs(items: list[Any], kind: type, field: str, refer: Refer) -> str:
    inputs = sorted((item for item in items if isinstance(item, InputName)), key=reference_order)
    for first, second in itertools.pairwise(inputs):
        if reference_order(first) == reference_order(second):
            raise UnstableValue(
                f"field {field!r}: the set holds two inputs called {reference_order(first).split(chr(0))[0]!r}, "
                "which have no order that is the same in every process; use a list"
            )
    texts = [repr(refer(item)) for item in inputs]
    texts += sorted(repr(_encode(item, field, refer)) for item in items if not isinstance(item, InputName))
    inside = "{" + ", ".join(texts) + "}"
    return inside if kind is set else f"{kind.__name__}({inside})"


def _has_seedless_hash(item: Any) -> bool:
    if isinstance(item, enum.Enum) and not isinstance(item, int):
        return False
    if isinstance(item, (tuple, frozenset)):
        return all(_has_seedless_hash(part) for part in item)
    return isinstance(item, _SEEDLESS_HASH_TYPES) or _is_numpy(item, "number", "bool_")


def _is_numpy(value: Any, *class_names: str) -> bool:
    # A value can only be numpy's when numpy has been imported; importing it here would slow down every start.
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, tuple(getattr(numpy, name) for name in class_names))


def stable_text(value: Any, field: str) -> str:
    """Return `str(value)`, if it is stable across processes.

    Raises:
        UnstableValue: The value is an array, a function, or its text shows a memory address.
    """
    if isinstance(value, (bytes, bytearray)):
        return repr(value)  # the same text, and allowed under `python -bb`
    if isinstance(value, slice):
        for part in (value.start, value.stop, value.step):
            stable_text(part, field)
    if _is_numpy(value, "void") and value.dtype.names:
        raise UnstableValue(
            f"field {field!r}: the text of a numpy record shows neither the names nor the types of its fields; version "
            "a dict of them: dict(zip(record.dtype.names, record.tolist()))"
        )
    if isinstance(value, _TEXT_TYPES) or _is_numpy(value, "generic", "dtype"):
        return str(value)
    if hasattr(type(value), "__array__"):
        raise UnstableValue(
            f"field {field!r}: an array of type {type(value).__name__} cannot be versioned (its text is shortened and "
            "depends on print options); version what it is made from, or use a list"
        )
    text = str(value)
    if _ADDRESS.search(text):
        raise UnstableValue(
            f"field {field!r}: the text of {_short(value)} shows a memory address, which differs from run to run; "
            "version a name or a plain value in its place (a dataclass is encoded by its fields)"
        )
    if is_shortened(text):
        raise UnstableValue(
            f"field {field!r}: the text of the versioned {type(value).__name__} is shortened (three dots stand for "
            "members), so the rest would not count; version what it is made from: a list or a dict of plain values"
        )
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
