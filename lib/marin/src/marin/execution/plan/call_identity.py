"""Digests of functions and calls: stable across processes, and different if the result could differ."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import inspect
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
    """A value has no digest that is stable across processes."""


def call_digest(
    fn: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any], identity: str | None = None
) -> str:
    """Return a digest of a call.

    Args:
        fn: The function. Its bound arguments and closed-over values are included.
        args: Its positional arguments.
        kwargs: Its keyword arguments, in any order.
        identity: A result of `function_identity`, used in the digest instead of the function.

    Raises:
        Unidentified: A value in the call cannot be pickled. The message names it.
    """
    where = f"a call of {function_name(fn)}"
    try:
        return _digest(
            _pieces(("call", identity or fn, list(args), dict(kwargs)), functools.partial(_pickled, where), ())
        )
    except RecursionError:
        raise Unidentified(f"{where} holds a value that is nested too deeply to identify") from None


def bound_call_digest(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], identity: str | None = None
) -> str:
    """Return a digest of a call that is independent of its spelling: `f(1)`, `f(n=1)`, with or without defaults.

    Objects are identified by class and content. The code of a class is included if it belongs to the script or to a
    function. Arguments and errors are those of `call_digest`.
    """
    where = f"a call of {function_name(fn)}"
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
        bound.apply_defaults()
        given: Any = bound.arguments
    except (ValueError, TypeError):  # it has no signature, or refuses these arguments itself
        given = (args, dict(kwargs))
    parts = ("bound call", identity or fn, dict(given) if isinstance(given, Mapping) else given)
    try:
        return _digest(_pieces(parts, functools.partial(_by_parts, where), ()))
    except RecursionError:
        return call_digest(fn, args, kwargs, identity)


def function_identity(fn: Callable[..., Any]) -> str:
    """Return a digest of a function.

    A module's function is identified by its name alone: changed code does not change the digest. For a function of
    `__main__` the script's path is included, and for lambdas and inner functions their code and closed-over values.

    Raises:
        Unidentified: A value in the function cannot be pickled.
    """
    return call_digest(fn, (), {})


def _digest(pieces: Iterable[bytes]) -> str:
    hasher = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        hasher.update(b"%d:" % len(piece))
        hasher.update(piece)
    return hasher.hexdigest()


# Gives the bytes of an object that is none of those that `_pieces` knows.
_OfObject = Callable[[Any, tuple[int, ...]], Iterable[bytes]]


def _pieces(value: Any, of_object: _OfObject, above: tuple[int, ...]) -> Iterator[bytes]:
    """Yield bytes that identify a value, including its type but not the order of dicts and sets.

    Args:
        value: The value.
        of_object: Called for other objects.
        above: Ids of the surrounding containers, outermost first. A reference to one of them yields its distance.
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
            yield from _pieces(item, of_object, within)
    elif kind in (set, frozenset, dict):
        yield f"{kind.__name__} {len(value)}".encode()
        yield from sorted(_joined(item, of_object, within) for item in (value.items() if kind is dict else value))
    elif isinstance(value, type):
        yield f"type {_name_of_type(value)}".encode()
    elif isinstance(value, _TEXT_TYPES):
        yield f"{_name_of_type(kind)} {value!r}".encode()
    elif callable(value) and (parts := _function_parts(value)) is not None:
        yield b"function"
        yield from _pieces(parts, of_object, within)
    elif dataclasses.is_dataclass(value):
        yield f"dataclass {_name_of_type(kind)}".encode()
        for field in dataclasses.fields(value):
            if field.name == MARK:
                continue
            yield from _pieces((field.name, getattr(value, field.name, None)), of_object, within)
    else:
        yield from of_object(value, within)


def _joined(value: Any, of_object: _OfObject, above: tuple[int, ...]) -> bytes:
    return b"".join(b"%d:%b" % (len(piece), piece) for piece in _pieces(value, of_object, above))


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
    """Return the code and closed-over values that distinguish functions defined at the same place."""
    cells = [cell.cell_contents if is_filled(cell) else None for cell in fn.__closure__ or ()]
    return (_code_parts(fn.__code__), cells, fn.__defaults__, fn.__kwdefaults__)


def _is_of_its_module(fn: types.FunctionType) -> bool:
    """Return whether a function, or its wrapper, is its module's object of that name."""
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
    """Return the running script's path relative to its project, which is equal in two checkouts."""
    path = os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")
    from rigging.config_discovery import find_project_root

    root = find_project_root(pathlib.Path(path).parent)
    return path if root is None else os.path.relpath(path, root)


def is_filled(cell: types.CellType) -> bool:
    """Return whether the variable that a function closes over has a value."""
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


def _by_parts(where: str, value: Any, above: tuple[int, ...]) -> Iterator[bytes]:
    """Yield bytes that identify an object by the parts of its pickle, and a class without a module by its code.

    The pickle itself would include the globals of the class's functions, which differ between processes.
    """
    kind = type(value)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # of the object's own methods
        reduced = None
    if not isinstance(reduced, tuple):
        yield from _pickled(where, value, above)
        return
    make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    parts = (make, arguments, state, items and list(items), pairs and list(pairs), _classes_without_module(kind))
    yield f"object {_name_of_type(kind)}".encode()
    yield from _pieces(parts, functools.partial(_by_parts, where), above)


def _classes_without_module(kind: type[Any]) -> list[Any]:
    """Return the code of an object's classes that belong to the script or to a function."""
    return [
        (_name_of_type(base), [(name, _code_of_member(member)) for name, member in sorted(vars(base).items())])
        for base in kind.__mro__
        if base.__module__ == "__main__" or "<locals>" in base.__qualname__
    ]


def _code_of_member(member: Any) -> Any:
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    if isinstance(member, property):
        return [_code_of_member(part) for part in (member.fget, member.fset, member.fdel)]
    if isinstance(member, types.FunctionType):
        return (_code_parts(member.__code__), member.__defaults__, member.__kwdefaults__)
    return member if isinstance(member, (bool, int, float, bytes)) else None


def _pickled(where: str, value: Any, _above: tuple[int, ...]) -> list[bytes]:
    import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise Unidentified(
            f"{where} holds a {type(value).__name__} that cannot be pickled ({type(error).__name__}: {error}), so it "
            "cannot be identified"
        ) from error
    return [f"pickle {_name_of_type(type(value))} ".encode() + content]
