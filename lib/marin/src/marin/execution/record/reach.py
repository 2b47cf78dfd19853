"""Find the definitions that a function reaches in the modules of the user's own projects. Pure, on module tables.

A name leads to its definition, through imports into other modules. If code reads a module itself, as in `getattr(words,
name)`, or names it by a text (`import_module`), the whole module is reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from marin.execution.record.module_table import ModuleTable
from marin.execution.version.differences import Difference

WHOLE: Final = "*"
"""Means the whole module, among the names reached in it."""

MOST_NAMES: Final = 200
"""A record of more definitions has one digest for each file."""

Reached = dict[str, set[str]]
"""Names by module."""


def reach(module: str, names: Iterable[str], table_of: Callable[[str], ModuleTable | None]) -> Reached:
    """Return the definitions reached from definitions of a module, including these.

    Args:
        module: The module's name.
        names: The definitions, or `WHOLE`.
        table_of: Returns the table of an own module; None for other modules.
    """
    seen: Reached = {}
    followed: set[str] = set()
    waiting: Reached = {module: set(names)}
    while waiting:
        module, wanted = waiting.popitem()
        table = table_of(module)
        if table is None:
            continue
        paths, texts, others = _follow(table, wanted, seen.setdefault(module, set()))
        targets = [(text, WHOLE) for text in texts]
        # Many definitions use the same ones of other modules.
        targets += [target for path in paths - followed if (target := _in_modules(path, table_of)) is not None]
        targets += [target for other in others for target in _by_stars(other, table, table_of)]
        followed |= paths
        for place, name in targets:
            if name not in seen.get(place, ()):
                waiting.setdefault(place, set()).add(name)
    return {module: names for module, seen_here in seen.items() if (names := _defined(seen_here, table_of(module)))}


def _defined(names: set[str], table: ModuleTable | None) -> set[str]:
    return set() if table is None else {name for name in names if name == WHOLE or name in table.definitions}


def _follow(table: ModuleTable, names: Iterable[str], seen: set[str]) -> tuple[set[str], set[str], set[str]]:
    """Follow names inside their module; add them to `seen`.

    Returns:
        Their targets: import paths, module names in strings, and names that star imports may bind.
    """
    paths: set[str] = set()
    texts: set[str] = set()
    others: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name == WHOLE:
            waiting += table.definitions
        elif name in table.definitions:
            definition = table.definition(name)
            waiting += definition.uses
            waiting += [WHOLE] if definition.is_open or "" in definition.texts else ()
            paths.update(definition.paths)
            texts.update(text.strip(".") for text in definition.texts if text)
            others.update(definition.others)
        elif name in table.imports:
            paths.update(table.imported(name))
        else:
            others.add(name)
    return paths, texts, others


def _by_stars(
    name: str, table: ModuleTable, table_of: Callable[[str], ModuleTable | None]
) -> Iterator[tuple[str, str]]:
    for module in table.stars:
        other = table_of(module)
        if other is not None and (name in other.definitions or name in other.imports or other.stars):
            yield module, name


def _in_modules(path: str, table_of: Callable[[str], ModuleTable | None]) -> tuple[str, str] | None:
    """Return the meaning of `a.b.c`: the longest prefix that is a module, and the next name, or the whole module."""
    module, name = path, WHOLE
    while module:
        table = table_of(module)
        if table is not None:
            is_known = name == WHOLE or name in table.definitions or name in table.imports or table.stars
            return module, name if is_known else WHOLE
        module, _, name = module.rpartition(".")
    return None


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
