"""Source without parts that do not affect its behaviour: comments, docstrings, blank lines, `remote` decorators."""

from __future__ import annotations

import ast
import hashlib
import io
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any, Final

_DIGITS: Final = 16
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


def source_digest(text: str) -> str:
    """Return `source` and the digest of a text, in the form for records."""
    return f"source {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGITS]}"


def bare_source(source: str) -> str:
    """Return a definition's source without comments, docstrings, blank lines and `remote` decorators."""
    text = textwrap.dedent(source)
    return joined(bare_lines(text, ast.parse(text)))


def joined(lines: Iterable[str]) -> str:
    """Return the non-blank lines as one text."""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def bare_lines(text: str, tree: ast.Module) -> list[str]:
    """Return the lines of a source without comments, docstrings and `remote` decorators.

    Args:
        text: The source.
        tree: The parsed source.
    """
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline) if "#" in text else ():
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for first, last in _ignored_lines(tree):
        lines[first - 1 : last] = [""] * (last - first + 1)
    return lines


def _ignored_lines(tree: ast.Module) -> Iterator[tuple[int, int]]:
    # Expressions hold no definitions, and are most of a tree.
    waiting: list[Any] = [*tree.body]
    while waiting:
        node = waiting.pop()
        for part in _BLOCKS:
            waiting += getattr(node, part, ())
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        first = node.body[0]
        is_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
        # One on the line of its `def` is left: it cannot be cut out with the line.
        if is_docstring and first.lineno > node.lineno:
            yield first.lineno, first.end_lineno or first.lineno
        for decorator in node.decorator_list:
            if _is_remote(decorator):
                yield decorator.lineno, decorator.end_lineno or decorator.lineno


def _is_remote(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return name == "remote"
