"""Find the definitions that a function reaches in the modules of the user's own projects. Pure, on module tables.

A name leads to its definition, through imports into other modules. If code reads a module itself, as in `getattr(words,
name)`, or names it by a text (`import_module`), the whole module is reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from marin.execution.record.module_table import Definition, ModuleTable
from marin.execution.version.differences import Difference

WHOLE: Final = "*"
"""Means the whole module, among the names reached in it."""

MOST_NAMES: Final = 200
"""A record of more definitions has one digest for each file."""

Reached = dict[str, set[str]]
"""Names by module."""


def reach(module: str, names: Iterable[str], table_of: Callable[[str], ModuleTable | None]) -> Reached:
    """Return the definitions reached from definitions of a module, including the latter.

    Args:
        module: The module's name.
        names: The definitions, or `WHOLE`.
        table_of: Returns the table of an own module; None for other modules.
    """
    found: Reached = {}
    waiting = [(module, name) for name in names]
    while waiting:
        module, name = waiting.pop()
        table = table_of(module)
        if table is None or name in found.get(module, ()):
            continue
        if name == WHOLE:
            found.setdefault(module, set()).add(WHOLE)
            waiting += ((module, other) for other in table.definitions)
        elif name in table.definitions:
            found.setdefault(module, set()).add(name)
            waiting += _used_by(table.definitions[name], module, table, table_of)
        else:
            waiting += _targets(name, table, table_of)
    return found


def _used_by(
    definition: Definition, module: str, table: ModuleTable, table_of: Callable[[str], ModuleTable | None]
) -> Iterator[tuple[str, str]]:
    for chain in definition.uses:
        if chain.partition(".")[0] in table.definitions:
            yield module, chain.partition(".")[0]
        else:
            yield from _targets(chain, table, table_of)
    if definition.is_open or "" in definition.texts:
        yield module, WHOLE
    for text in filter(None, definition.texts):
        yield text.strip("."), WHOLE


def _targets(
    chain: str, table: ModuleTable, table_of: Callable[[str], ModuleTable | None]
) -> Iterator[tuple[str, str]]:
    """Yield the definitions that a name, perhaps with attributes, may refer to through the imports of a module."""
    root, *rest = chain.split(".")
    for module, name in table.imports.get(root, ()):
        yield from _in_modules([*module.split("."), *filter(None, [name]), *rest], table_of)
    if root not in table.imports:
        for module in table.stars:
            other = table_of(module)
            if other is not None and (root in other.definitions or root in other.imports or other.stars):
                yield module, root


def _in_modules(words: list[str], table_of: Callable[[str], ModuleTable | None]) -> Iterator[tuple[str, str]]:
    """Yield the meaning of `a.b.c`: the longest prefix that is a module, and the next name, or the whole module."""
    for length in range(len(words), 0, -1):
        module = ".".join(words[:length])
        table = table_of(module)
        if table is None:
            continue
        name = words[length] if length < len(words) else WHOLE
        is_known = name == WHOLE or name in table.definitions or name in table.imports or table.stars
        yield module, name if is_known else WHOLE
        return


def recorded_reach(digests: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the record of reached definitions: digests by file and name, or for very many one digest per file.

    Args:
        digests: The digests of definitions, by file and name.
    """
    if sum(map(len, digests.values())) <= MOST_NAMES:
        return {file: dict(sorted(names.items())) for file, names in sorted(digests.items())}
    return {file: _one_digest(names) for file, names in sorted(digests.items())}


def reach_differences(old: object, new: Mapping[str, Any]) -> list[Difference]:
    """Return the definitions in which two records (`recorded_reach`) differ; [] if one of them is empty."""
    if not isinstance(old, dict) or not old or not new:
        return []
    return [item for file in dict.fromkeys([*new, *old]) for item in _in_file(file, old.get(file), new.get(file))]


def _in_file(file: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, str) or isinstance(new, str):
        before, after = (None if names is None else _one_digest(names) for names in (old, new))
        if before != after:
            yield Difference(f"source of {file}", before, after, is_code=True)
        return
    one, other = old or {}, new or {}
    for name in dict.fromkeys([*other, *one]):
        if one.get(name) != other.get(name):
            where = f"source of {file}{'' if name == WHOLE else f': {name}'}"
            yield Difference(where, one.get(name), other.get(name), is_code=True)


def _one_digest(names: Any) -> str:
    if not isinstance(names, Mapping):
        return str(names)
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(names.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
