"""Digests of functions and calls: equal in every process, different where the result could differ."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import os
import pathlib
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from marin.execution.config.placeholder import MARK
from marin.execution.config.step import ExecutorStep, InputName
from marin.execution.config.values import MirroredValue, OutputName, VersionedValue
from marin.execution.jobs.remote import RemoteCallable, function_name
from rigging.errors import InvalidRequest

_TEXT_TYPES: Final = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, pathlib.PurePath, uuid.UUID)

# Paths of stored results hold the names that these types had when the first of them were made.
_STORED_NAMES: Final[Mapping[type[Any], str]] = {
    ExecutorStep: "marin.execution.step.ExecutorStep",
    **{
        kind: f"marin.execution.refs.{kind.__qualname__}"
        for kind in (InputName, OutputName, VersionedValue, MirroredValue)
    },
}


class Unidentified(InvalidRequest):
    """A value has no digest that is the same in another process."""


def call_digest(
    fn: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any], identity: str | None = None
) -> str:
    """Return a digest of a call.

    Args:
        fn: The function; arguments bound to it and values it closes over count.
        args: Its positional arguments.
        kwargs: Its keyword arguments; their order does not count.
        identity: Counts instead of the function; made by `function_identity`.

    Raises:
        Unidentified: A value in the call cannot be pickled; the message names it.
    """
    hasher = hashlib.md5(usedforsecurity=False)
    where = f"a call of {function_name(fn)}"
    try:
        for piece in _pieces(("call", identity or fn, list(args), dict(kwargs)), where, ()):
            hasher.update(b"%d:" % len(piece))
            hasher.update(piece)
    except RecursionError:
        raise Unidentified(f"{where} holds something that is nested too deeply to be told from others") from None
    return hasher.hexdigest()


def function_identity(fn: Callable[..., Any]) -> str:
    """Return a digest of a function.

    A module's function counts by its name alone; a change of its code does not change the digest. For a function of
    `__main__` the script's path counts, too; for lambdas and inner functions their code and the values they close over.

    Raises:
        Unidentified: A value that the function holds cannot be pickled.
    """
    return call_digest(fn, (), {})


def _pieces(value: Any, where: str, above: tuple[int, ...]) -> Iterator[bytes]:
    """Yield bytes that identify a value: its type counts, the order of dicts and sets does not.

    Args:
        value: The value.
        where: The place it was found at, for errors.
        above: Ids of the containers around it, outermost first; a reference back to one of them yields its distance.
    """
    kind = type(value)
    if id(value) in above:
        yield f"circle {len(above) - above.index(id(value))}".encode()
        return
    within = (*above, id(value))
    if value is None or kind in (bool, int, float, complex, str):
        yield f"{kind.__name__} {value!r}".encode("utf-8", "surrogatepass")
    elif kind in (bytes, bytearray):
        yield kind.__name__.encode()
        yield bytes(value)
    elif isinstance(value, enum.Enum):
        yield f"enum {_name_of_type(kind)}.{value.name}".encode()
    elif kind in (list, tuple):
        yield f"{kind.__name__} {len(value)}".encode()
        for item in value:
            yield from _pieces(item, where, within)
    elif kind in (set, frozenset, dict):
        yield f"{kind.__name__} {len(value)}".encode()
        yield from sorted(_joined(item, where, within) for item in (value.items() if kind is dict else value))
    elif isinstance(value, type):
        yield f"type {_name_of_type(value)}".encode()
    elif isinstance(value, _TEXT_TYPES):
        yield f"{_name_of_type(kind)} {value!r}".encode()
    elif callable(value) and (parts := _function_parts(value)) is not None:
        yield b"function"
        yield from _pieces(parts, where, within)
    elif dataclasses.is_dataclass(value):
        yield f"dataclass {_name_of_type(kind)}".encode()
        for field in dataclasses.fields(value):
            if field.name == MARK:
                continue
            yield from _pieces((field.name, getattr(value, field.name, None)), where, within)
    else:
        yield _pickled(value, where)


def _joined(value: Any, where: str, above: tuple[int, ...]) -> bytes:
    return b"".join(b"%d:%b" % (len(piece), piece) for piece in _pieces(value, where, above))


def _function_parts(fn: Any) -> tuple[Any, ...] | None:
    """Return the values that identify a function; None for other callable objects."""
    if isinstance(fn, RemoteCallable):
        return _function_parts(fn.fn)
    if getattr(type(fn), "wraps_function", False):  # a decorator of ours that is a class
        return _function_parts(fn.__wrapped__)
    if isinstance(fn, functools.partial):
        return ("partial", fn.func, list(fn.args), dict(fn.keywords))
    if isinstance(fn, types.MethodType):
        return ("method", fn.__func__, fn.__self__)
    if isinstance(fn, types.FunctionType):
        plain = fn.__wrapped__ if hasattr(fn, "__wrapped__") else None
        if plain is not None and callable(plain):
            parts = _function_parts(plain)
            return parts if parts is None or _is_of_its_module(fn) else ("wrapper", *parts, *_inner_parts(fn))
        name = _function_place(fn)
        return (name,) if "<" not in fn.__qualname__ else (name, *_inner_parts(fn))
    if isinstance(fn, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        owner = getattr(fn, "__self__", None)
        bound = None if owner is None or isinstance(owner, types.ModuleType) else owner
        return (function_name(fn), bound)
    if hasattr(fn, "remote") and hasattr(fn, "options"):
        return (function_name(fn),)  # a Ray remote function
    return None


def _inner_parts(fn: types.FunctionType) -> tuple[Any, ...]:
    """Return the code and held values that distinguish functions defined at the same place."""
    cells = [cell.cell_contents if _is_filled(cell) else None for cell in fn.__closure__ or ()]
    return (_code_parts(fn.__code__), cells, fn.__defaults__, fn.__kwdefaults__)


def _is_of_its_module(fn: types.FunctionType) -> bool:
    """True if a function, or a wrapper around it, is what its module has under its name."""
    found: Any = sys.modules.get(fn.__module__)
    for part in fn.__qualname__.split("."):
        found = getattr(found, part, None)
    seen: set[int] = set()
    while found is not None and found is not fn and id(found) not in seen:
        seen.add(id(found))
        found = found.fn if isinstance(found, RemoteCallable) else getattr(found, "__wrapped__", None)
    return found is fn


def _function_place(fn: types.FunctionType) -> str:
    name = function_name(fn)
    if not name.startswith("__main__."):
        return name
    return f"{_main_file()}:{name}"


def _main_file() -> str:
    """Return the running script's path relative to its project: equal for two checkouts of it."""
    path = os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")
    from rigging.config_discovery import find_project_root

    root = find_project_root(pathlib.Path(path).parent)
    return path if root is None else os.path.relpath(path, root)


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _code_parts(code: types.CodeType) -> tuple[Any, ...]:
    constants = [_code_parts(item) if isinstance(item, types.CodeType) else item for item in code.co_consts]
    return (code.co_code, constants, code.co_names, code.co_varnames)


def _name_of_type(kind: type[Any]) -> str:
    stored = _STORED_NAMES.get(kind)
    if stored is not None:
        return stored
    place = _main_file() + ":" if kind.__module__ == "__main__" else ""
    return f"{place}{kind.__module__}.{kind.__qualname__}"


def _pickled(value: Any, where: str) -> bytes:
    import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise Unidentified(
            f"{where} holds a {type(value).__name__} that cannot be pickled ({type(error).__name__}: {error}), so it "
            "cannot be told from others"
        ) from error
    return f"pickle {_name_of_type(type(value))} ".encode() + content
