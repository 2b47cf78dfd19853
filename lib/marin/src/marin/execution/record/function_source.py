"""The source of a step's function and of the names it uses in its own module, each as a short text or digest.

It is recorded beside an output, so that a later run detects other code. It is not part of the version.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import json
import linecache
import os
import re
import tokenize
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from marin.execution.config.array_text import CONSTANT_BYTES, array_text, is_array
from marin.execution.config.unversioned import described, unversioned_part
from marin.execution.jobs.remote import RemoteCallable
from marin.execution.jobs.step_call import is_ray_function
from marin.execution.record.bare_source import bare_source, source_digest
from marin.execution.record.held import attributes_of, table_in
from rigging.redaction import redact_value

# At most this many names of a module are followed from one function.
MOST_PARTS: Final = 200
_SHOWN_CHARACTERS: Final = 120
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_LASTING: Final = (tuple, frozenset)
_CHANGING: Final = (*_LASTING, list, dict, set)
_FUNCTIONS: Final = (types.FunctionType, type)
_GLOBAL_READS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})

# Looking for a class reads its whole module.
_class_sources: weakref.WeakKeyDictionary[type[Any], str | None] = weakref.WeakKeyDictionary()


def function_source(fn: Callable[..., Any] | None, held: Iterable[Any] = ()) -> dict[str, str]:
    """Return the parts of a function by name.

    The function, and recursively the functions and classes of its module that it names (also as base classes or in
    tables), have a digest of their bare source. Plain values have their text: named, closed-over or bound values,
    attributes of its object, and computed defaults. Names of other modules are not followed. Return {} if the source
    cannot be read.

    Args:
        fn: The function.
        held: Functions and classes contained in the function or its step's config (`held_by`). Those of the function's
            module have parts, too.
    """
    if fn is None:
        return {}
    found: dict[str, set[str]] = {}
    for name, text in (*_bound_values(fn), *_parts_of(fn, held)):
        found.setdefault(name, set()).add(text)
    # Lambdas, and functions named `_`, have one name.
    return {
        name: min(texts) if len(texts) == 1 else source_digest("\n".join(sorted(texts)))
        for name, texts in found.items()
    }


def _bound_values(fn: Any) -> Iterator[tuple[str, str]]:
    while isinstance(fn, (functools.partial, RemoteCallable)):
        if isinstance(fn, functools.partial):
            for index, value in enumerate(fn.args):
                yield f"argument {index}", _value_text(value)
            for name, value in fn.keywords.items():
                yield f"argument {name}", _value_text(value, name)
            fn = fn.func
        else:
            fn = fn.fn
    yield from _attribute_texts(fn.__self__ if isinstance(fn, types.MethodType) else fn)


def _attribute_texts(owner: Any) -> Iterator[tuple[str, str]]:
    """Yield the plain attributes of a called object, or of the object of a called method."""
    is_function = isinstance(owner, (*_FUNCTIONS, types.BuiltinFunctionType, types.ModuleType))
    if is_function or hasattr(owner, "__wrapped__") or is_ray_function(owner):
        return
    for name, value in attributes_of(owner).items():
        yield from _constant_text(name, value, f"attribute {name}", may_change=name[0] != "_")


def plain_function(fn: Any) -> Any:
    """Return the function behind wrappers, or the class of another callable object."""
    while True:
        if isinstance(fn, RemoteCallable):
            fn = fn.fn
        elif isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, types.MethodType):
            fn = fn.__func__
        elif is_ray_function(fn):
            return getattr(getattr(fn, "remote", None), "__wrapped__", None)
        elif not isinstance(fn, type) and hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return fn if isinstance(fn, (types.FunctionType, type)) else type(fn)


def _parts_of(fn: Any, held: Iterable[Any]) -> Iterator[tuple[str, str]]:
    start = plain_function(fn)
    module = getattr(start, "__module__", None)
    waiting: list[Any] = [start, *held]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_PARTS:
        item = waiting.pop()
        if item is None or id(item) in seen or getattr(item, "__module__", None) != module:
            continue
        seen.add(id(item))
        digest = _digest_of(item)
        if digest is not None:
            yield item.__qualname__, digest
        if isinstance(item, type):
            waiting += item.__bases__
        for function in _functions_of(item):
            if function.__module__ == "dataclasses":  # `__replace__` of Python 3.13
                continue
            for name, value in _computed_defaults(function):
                yield from _constant_text(name, value, f"default {name} of {function.__qualname__}", may_change=True)
                waiting += _functions_in([value])
            for name, value in _names_of(function):
                waiting += _functions_in(table_in(value))
                value = value if isinstance(value, type) else _followed(value)
                if isinstance(value, _FUNCTIONS):
                    waiting.append(value)
                    continue
                may_change = name.isupper() and name[0] != "_"
                yield from _constant_text(name, value, name, may_change)


def _followed(value: Any) -> Any:
    is_wrapped = isinstance(value, (functools.partial, RemoteCallable, types.MethodType)) or is_ray_function(value)
    return plain_function(value) if is_wrapped or (callable(value) and hasattr(value, "__wrapped__")) else value


def _functions_of(item: Any) -> Iterable[types.FunctionType]:
    if isinstance(item, types.FunctionType):
        return [item]
    members = (part for value in vars(item).values() for part in _parts_of_member(value))
    found = (_followed(getattr(value, "__func__", value)) for value in members)
    return [value for value in found if isinstance(value, types.FunctionType)]


def _parts_of_member(value: Any) -> tuple[Any, ...]:
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    return (value.func,) if isinstance(value, functools.cached_property) else (value,)


def _names_of(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names that a function reads from its module and closure, with their values."""
    for name in _global_names(fn.__code__):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not filled yet


def _computed_defaults(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the defaults of a function that its source does not contain as literals, with their values."""
    if not fn.__defaults__ and not fn.__kwdefaults__:
        return
    code = fn.__code__
    positional = code.co_varnames[: code.co_argcount][-len(fn.__defaults__ or ()) :]
    values = dict(zip(positional, fn.__defaults__ or (), strict=False)) | (fn.__kwdefaults__ or {})
    for name in _parameters_with_expressions(code, code.co_filename):
        if name in values:
            yield name, values[name]


@functools.lru_cache(maxsize=4096)
def _parameters_with_expressions(code: types.CodeType, filename: str) -> tuple[str, ...]:
    source = _code_source(code, filename)
    try:
        tree = ast.parse(source or "")
    except SyntaxError:  # of a lambda that is cut out of its line
        return ()
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            positional = [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(reversed(positional), reversed(node.args.defaults), strict=False)]
            keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            found |= dict.fromkeys(item.arg for item, default in (*pairs, *keywords) if _is_computed(default))
    return tuple(found)


def _is_computed(default: ast.expr | None) -> bool:
    return default is not None and any(
        isinstance(part, (ast.Name, ast.Attribute, ast.Call)) for part in ast.walk(default)
    )


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    names = [item.argval for item in dis.get_instructions(code) if item.opname in _GLOBAL_READS]
    inner = (_global_names(item) for item in code.co_consts if isinstance(item, types.CodeType))
    return tuple(dict.fromkeys([*names, *(name for names in inner for name in names)]))


def _constant_text(name: str, value: Any, shown: str, may_change: bool) -> Iterator[tuple[str, str]]:
    """Yield the text of a value, if it is plain.

    Args:
        name: The value's name. A secret's name redacts the value.
        value: The value.
        shown: The name to yield.
        may_change: Whether lists, dicts, sets and arrays count as plain, like under a constant's name.
    """
    containers = _CHANGING if may_change else _LASTING
    try:
        if not _is_plain_value(value, containers):
            value = _with_names(value, containers)
            if not _is_plain_value(value, containers):
                return
    except RecursionError:  # it holds itself
        return
    yield shown, _value_text(value, name)


def _with_names(value: Any, containers: tuple[type[Any], ...]) -> Any:
    """Return a copy of a table with functions, classes and arrays replaced by texts."""
    if isinstance(value, _FUNCTIONS):
        return described(value)
    if is_array(value) and list in containers:
        text = array_text(value, CONSTANT_BYTES)
        return value if text is None else text
    if not isinstance(value, containers):
        followed = _followed(value)
        return value if followed is value or not isinstance(followed, _FUNCTIONS) else described(followed)
    if isinstance(value, dict):
        return {key: _with_names(item, containers) for key, item in value.items()}
    items = [_with_names(item, containers) for item in value]
    # An array that is not told is no member of a set.
    return frozenset(items) if isinstance(value, (set, frozenset)) else items if list in containers else tuple(items)


def _functions_in(table: Any) -> list[Any]:
    """Return the functions and classes in a table and in the tables inside it."""
    found: list[Any] = []
    waiting, seen = [table], set()
    while waiting and len(found) < MOST_PARTS:
        item = waiting.pop()
        if isinstance(item, _CHANGING):
            if id(item) not in seen:
                seen.add(id(item))
                waiting += item.values() if isinstance(item, dict) else item
        elif type(item) not in _PLAIN and isinstance(followed := _followed(item), _FUNCTIONS):
            found.append(followed)
    return found


def _is_plain_value(value: Any, containers: tuple[type[Any], ...]) -> bool:
    if isinstance(value, containers):
        parts = value.values() if isinstance(value, dict) else value
        return all(_is_plain_value(item, containers) for item in parts)
    return type(value) in _PLAIN


def _value_text(value: Any, name: str = "value") -> str:
    text = json.dumps(redact_value(unversioned_part({name: value})).get(name), sort_keys=True)
    return text if len(text) <= _SHOWN_CHARACTERS else source_digest(text)


def _digest_of(item: Any) -> str | None:
    if isinstance(item, types.FunctionType):
        text = _code_source(item.__code__, item.__code__.co_filename)
    else:
        text = _class_source(item)
    return None if text is None else source_digest(text)


@functools.lru_cache(maxsize=4096)
def _code_source(code: types.CodeType, filename: str) -> str | None:
    del filename  # equal code of two notebook cells may differ in its source (defaults), and then in this only
    try:
        if code.co_name == "<lambda>":
            return _lambda_source(code)
        lines = _lines_of(code)[code.co_firstlineno - 1 :]
        return bare_source("".join(inspect.getblock(lines))) if lines else None
    except (OSError, TypeError, SyntaxError, tokenize.TokenError, IndentationError):
        return None


def _lines_of(code: types.CodeType) -> list[str]:
    """Return the lines of the file of a code object, without `inspect`'s search through all modules."""
    path = code.co_filename
    if path not in linecache.cache and not os.path.exists(path):
        return inspect.findsource(code)[0]
    linecache.checkcache(path)
    return linecache.getlines(path) or inspect.findsource(code)[0]


def _class_source(kind: type[Any]) -> str | None:
    if kind not in _class_sources:
        try:
            text = inspect.getsource(kind)
            # Python 3.13 gives the lines of this number, of whatever file `__main__` has.
            is_it = re.search(rf"^\s*class\s+{kind.__name__}\b", text, re.MULTILINE)
            _class_sources[kind] = bare_source(text) if is_it else _members_source(kind)
        except (OSError, TypeError, SyntaxError, tokenize.TokenError, IndentationError):
            _class_sources[kind] = _members_source(kind)
    return _class_sources[kind]


def _members_source(kind: type[Any]) -> str | None:
    """Return the source of a class from a notebook cell, found through its fields and methods because Python cannot
    find it."""
    lines = []
    for name, annotation in sorted(vars(kind).get("__annotations__", {}).items()):
        default = vars(kind).get(name)
        shown = f" = {default!r}" if name in vars(kind) and type(default) in _PLAIN else ""
        lines.append(f"{name}: {inspect.formatannotation(annotation)}{shown}")
    for name, member in vars(kind).items():
        functions = (getattr(part, "__func__", part) for part in _parts_of_member(member))
        codes = [item.__code__ for item in functions if isinstance(item, types.FunctionType)]
        # Those that `dataclass` writes have no source.
        texts = [text for code in codes if (text := _code_source(code, code.co_filename)) is not None]
        lines += [f"{name}\n{text}" for text in texts]
    return "\n".join([kind.__qualname__, *lines]) if lines else None


def _lambda_source(code: types.CodeType) -> str:
    """Return the lambdas on a lambda's line, without the line's other code."""
    found = [node for node in _lambdas("".join(_lines_of(code))) if node[0] == code.co_firstlineno]
    return "\n".join(text for _, text in found)


@functools.lru_cache(maxsize=32)
def _lambdas(source: str) -> list[tuple[int, str]]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Lambda)]
    return [(node.lineno, ast.get_source_segment(source, node) or "") for node in nodes]
