"""The definitions of one module, from its source alone: their digests, and the names that they read."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from marin.execution.record.bare_source import bare_lines, joined, source_digest

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_NAMESPACES: Final = frozenset({"globals", "eval", "exec"})
_IMPORTERS: Final = frozenset({"import_module", "__import__"})


class Definition(NamedTuple):
    """The statements at a module's top level that define one name, or change its value.

    Attributes:
        lines: First and last line of each statement.
        uses: The definitions of the module that they read.
        paths: Names that they read through imports, with attributes: `steps.words.count`.
        others: Further names that they read, in a module with `from words import *`.
        texts: Beginnings of the names of modules that they import by a text (`import_module(f"steps.{name}")`); "" if
            the beginning is unknown.
        is_open: Whether they may read any name of the module (`globals()`, `eval`).
        digest: The digest of the statements' bare source.
    """

    lines: tuple[tuple[int, int], ...]
    uses: tuple[str, ...]
    paths: tuple[str, ...]
    others: tuple[str, ...]
    texts: tuple[str, ...]
    is_open: bool
    digest: str

    def has_line(self, line: int) -> bool:
        """Return whether one of the statements contains this line."""
        return any(first <= line <= last for first, last in self.lines)


@dataclass(frozen=True, slots=True)
class ModuleTable:
    """A module's definitions.

    Attributes:
        digest: The digest of its whole bare source.
        definitions: The definitions, by name. A kept table has plain tuples; `definition` converts them.
        imports: For each name bound by an import, at the top level or in a function: the module, and the name in it or
            None.
        stars: The modules of `from module import *`.
        lines: Its bare lines; none in a kept table.
    """

    digest: str
    definitions: dict[str, Definition]
    imports: dict[str, list[tuple[str, str | None]]]
    stars: list[str]
    lines: Sequence[str] = ()

    def definition(self, name: str) -> Definition:
        """Return the definition of a name."""
        found = self.definitions[name]
        if type(found) is not Definition:
            found = self.definitions[name] = Definition._make(found)
        return found

    def imported(self, chain: str) -> list[str]:
        """Return the target of a name, perhaps with attributes, by the imports: `steps.words.count`."""
        root, dot, rest = chain.partition(".")
        return [(f"{module}.{name}" if name else module) + dot + rest for module, name in self.imports.get(root, ())]


def parsed(path: str) -> tuple[str, ast.Module]:
    """Return the text of a file and its tree.

    Raises:
        OSError: The file cannot be read.
        SyntaxError: The file is not valid Python.
        ValueError: The file is not text.
    """
    with tokenize.open(path) as file:
        source = file.read()
    return source, ast.parse(source)


def table_of(source: str, tree: ast.Module, module: str, *, is_package: bool) -> ModuleTable:
    """Return the definitions of a module.

    Args:
        source: The module's source.
        tree: The parsed source.
        module: Its dotted name.
        is_package: Whether the module is a package's `__init__`, which matters for relative imports.
    """
    lines = bare_lines(source, tree)
    imports, stars = _imports_in(tree, module if is_package else module.rpartition(".")[0])
    found: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        if isinstance(statement, _IMPORTS) or _is_guard(statement):
            continue
        for name in _names_defined(statement):
            if name not in imports:
                found.setdefault(name, []).append(statement)
    table = ModuleTable(source_digest(joined(lines)), {}, imports, stars, lines)
    table.definitions.update({name: _definition(found[name], found.keys(), table, lines) for name in found})
    return table


def text_of_lines(lines: Sequence[str], parts: Iterable[tuple[int, int]]) -> str:
    """Return the lines of a definition as one text.

    Args:
        lines: The bare lines of the module.
        parts: First and last line of each statement.
    """
    return "\n".join(joined(lines[first - 1 : last]) for first, last in parts)


def _definition(
    statements: Sequence[ast.stmt], defined: Collection[str], table: ModuleTable, lines: Sequence[str]
) -> Definition:
    chains = {chain for statement in statements for chain in _names_read(statement, frozenset())}
    roots = {chain.partition(".")[0] for chain in chains}
    nodes = [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)]
    calls = [node for node in nodes if _dotted(node.func).rpartition(".")[2] in _IMPORTERS]
    parts = tuple(map(_lines_of, statements))
    return Definition(
        lines=parts,
        uses=_sorted(roots.intersection(defined)),
        paths=_sorted(path for chain in chains for path in table.imported(chain)),
        others=_sorted(roots.difference(defined, table.imports) if table.stars else ()),
        texts=_sorted(_beginning(node.args[0]) if node.args else "" for node in calls),
        is_open=not _NAMESPACES.isdisjoint(chains),
        digest=source_digest(text_of_lines(lines, parts)),
    )


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _lines_of(statement: ast.stmt) -> tuple[int, int]:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return first, statement.end_lineno or first


def _is_guard(statement: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":` or `if TYPE_CHECKING:`, which no function reads."""
    if not isinstance(statement, ast.If):
        return False
    test = ast.unparse(statement.test)
    return test.endswith("TYPE_CHECKING") or test.startswith("__name__ ==")


def _names_defined(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds or modifies: `TABLE["a"] = f`, `TABLE.update(...)`."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    found = dict.fromkeys(_stored([statement]))
    for node in _without_functions([statement]):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found[_root(node)] = None
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found[_root(node.value.func)] = None
    yield from filter(None, found)


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _imports_in(tree: ast.Module, package: str) -> tuple[dict[str, list[tuple[str, str | None]]], list[str]]:
    found: dict[str, list[tuple[str, str | None]]] = {}
    stars: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                # `import a.b` binds `a`; what is read of it tells the rest.
                found.setdefault(name, []).append((alias.name if alias.asname else name, None))
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                if alias.name == "*":
                    stars.append(module)
                else:
                    found.setdefault(alias.asname or alias.name, []).append((module, alias.name))
    return found, stars


def _names_read(node: ast.AST, hidden: frozenset[str]) -> Iterator[str]:
    """Yield the names that code reads from its module, without annotations.

    Args:
        node: The code.
        hidden: Local names of the surrounding functions.
    """
    if isinstance(node, _FUNCTIONS):
        outside = [*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", [])]
        body = node.body if isinstance(node.body, list) else [node.body]
        inside = (hidden | _arguments(node) | set(_stored(body))) - _declared_global(body)
        for part in outside:
            yield from _names_read(part, hidden)
        for part in body:
            yield from _names_read(part, inside)
    elif isinstance(node, ast.Attribute) and (name := _dotted(node)):
        if name.partition(".")[0] not in hidden:
            yield name
    elif isinstance(node, ast.Name):
        if node.id not in hidden:
            yield node.id
    else:
        skipped = node.annotation if isinstance(node, ast.AnnAssign) else None
        for part in ast.iter_child_nodes(node):
            if part is not skipped:
                yield from _names_read(part, hidden)


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` for a chain of attributes; "" for any other expression."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(words)]) if isinstance(node, ast.Name) else ""


def _arguments(node: Function) -> set[str]:
    arguments = node.args
    return {
        item.arg
        for item in (
            *arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs,
            *filter(None, [arguments.vararg, arguments.kwarg]),
        )
    }  # fmt: skip


def _stored(body: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names that code binds outside of inner functions, without imports."""
    for node in _without_functions(body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _without_functions(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def _declared_global(body: Sequence[ast.AST]) -> set[str]:
    return {name for node in _without_functions(body) if isinstance(node, ast.Global) for name in node.names}


def _beginning(node: ast.expr) -> str:
    """Return the known beginning of a text expression."""
    if isinstance(node, ast.JoinedStr):
        return _beginning(node.values[0]) if node.values else ""
    if isinstance(node, ast.BinOp):
        return _beginning(node.left)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
