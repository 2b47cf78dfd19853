"""The places in a source file where a small mistake can be planted, and the mistakes.

Omitted are parts that tests should not check: texts, docstrings, log messages, annotations, `assert`, `__repr__`. Also
omitted are invisible changes: `del name`, the size of a cache, and `strict=` of zip, which like `assert` only finds
mistakes of the program itself. Changes that always fail by type (a string minus a string) are omitted, too, because
they would only flatter the result.
"""

import ast
import difflib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import add, lshift, mul, sub

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
_CALCULATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.LShift: lshift,
    ast.Pow: pow,
}
_FUNCTIONS = {"max": "min", "min": "max", "any": "all", "all": "any"}
_METHODS = {
    "startswith": "endswith",
    "endswith": "startswith",
    "partition": "rpartition",
    "rpartition": "partition",
    "popleft": "pop",
}
_COUNTED = 64  # what is larger is a size or a time that somebody chose; nothing depends on one more
_UNSEEN_KEYWORDS = {"usedforsecurity", "maxsize", "cached_statements"}  # said to the interpreter; sizes of caches
_LOGGING = {"logger", "logging", "log", "_log", "warnings"}
_TEXTS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Dict, ast.Set)
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake: `replacement` instead of the bytes `start` to `end` of a file.

    Args:
        file: Path inside the repository. line: The line of the first changed byte, from 1.
        function: Qualified name of the innermost function or class around it; "" at the module's level.
    """

    file: str
    line: int
    function: str
    operator: str
    start: int
    end: int
    replacement: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """The changed lines, without context."""
        before, after = source.decode().splitlines(), self.apply(source).decode().splitlines()
        lines = list(difflib.unified_diff(before, after, lineterm="", n=0))
        return "\n".join(lines[2:])

    def changes_program(self, source: bytes) -> bool:
        """Return whether the mistake makes a different valid program (`break` outside of a loop is invalid, `''` equals
        `""`)."""
        changed = self.apply(source)
        try:
            compile(changed, self.file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))

    def key(self, source: bytes) -> str:
        """A key that is equal only for the same mistake in the same text."""
        text = f"{self.file}:{self.start}:{self.end}:{self.replacement}:".encode()
        return hashlib.sha256(text + source).hexdigest()[:16]


def find_mutations(file: str, source: bytes) -> list[Mutation]:
    """Return every mistake that can be planted in a file, in text order."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda item: (item.start, item.end, item.operator, item.replacement))


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Mutation] = []
        self._file = file
        self._source = source
        self._scope: list[str] = []
        self._returns: list[ast.expr | None] = []
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    # ---- where nothing is planted ----

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: they are texts, and their positions are wrong before Python 3.12."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions, which are for readers and type checkers."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in _UNSEEN_KEYWORDS:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Skip arguments, which only have annotations."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any("Protocol" in ast.unparse(base) for base in node.bases):
            return
        self._scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: _FUNCTION) -> None:
        if node.name in ("__repr__", "__str__") or any("overload" in ast.unparse(item) for item in node.decorator_list):
            return
        self._scope.append(node.name)
        self._returns.append(node.returns)
        for default in (*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._returns.pop()
        self._scope.pop()

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test):
            return
        for value in ("True", "False"):
            self._replace(node.test, f"condition {value}", value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if _root_name(function) in _LOGGING or _root_name(function) in ("TypeVar", "NewType", "cast"):
            return
        if isinstance(function, ast.Name) and function.id == "zip":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "strict"]
        if isinstance(function, ast.Name) and function.id in _FUNCTIONS:
            self._replace(function, "function", _FUNCTIONS[function.id])
        if isinstance(function, ast.Attribute) and function.attr in _METHODS:
            end = self._at(function.end_lineno, function.end_col_offset)
            self._plant(end - len(function.attr), end, "method", _METHODS[function.attr])
        plain = [argument for argument in node.args if isinstance(argument, ast.Name | ast.Attribute)]
        if len(node.args) == len(plain) == 2 and _root_name(function) not in (*_FUNCTIONS, "isinstance", "issubclass"):
            first, second = (self._text(argument) for argument in node.args)
            whole = (self._start(node.args[0]), self._end(node.args[1]))
            self._plant(*whole, "swapped arguments", f"{second}, {first}")
        self.generic_visit(node)

    # ---- statements ----

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Constant):
            return
        if isinstance(value, ast.Call) and _root_name(value.func) not in _LOGGING:
            self._replace(node, "dropped call", "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        is_kept = all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
        # In a constructor the name would be missing, which any test notices.
        if is_kept and self._scope[-1:] != ["__init__"]:
            self._replace(node, "dropped assignment", "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "dropped assignment", "pass")
        operator = _ARITHMETIC.get(type(node.op))
        if operator and not isinstance(node.value, _TEXTS) and not _is_text(node.value):
            self._between(node.target, node.value, f"({operator[0]})=", "arithmetic", operator[1] + "=")
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        if not all(isinstance(target, ast.Name) for target in node.targets):
            self._replace(node, "dropped statement", "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        if "NotImplementedError" not in self._text(node):
            self._replace(node, "dropped raise", "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "loop control", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        for other in ("break", "pass"):
            self._replace(node, "loop control", other)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        default = _default(self._returns[-1] if self._returns else None, self._text(node.value))
        if default != self._text(node.value):
            self._replace(node.value, "returned default", default)
        self.visit(node.value)

    # ---- expressions ----

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            pattern, others = _COMPARISONS[type(operator)]
            for other in others:
                self._between(left, right, rf"({pattern})", "comparison", other)
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, rf"\b({word})\b", "boolean", other)
        for value in node.values:
            # An operand that decides nothing: `True and x` is x, `False or x` is x.
            self._replace(value, "dropped operand", "True" if word == "and" else "False")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self._start(node)
            gap = re.match(rb"not\s*", self._source[start:])
            if gap:
                self._plant(start, start + gap.end(), "removed not", "")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        value = _value_of(node)
        if value is not None and value > _COUNTED and "0o" not in self._text(node):
            return  # `1 << 18` is a size like 262144
        operator = _ARITHMETIC.get(type(node.op))
        sides = (node.left, node.right)
        is_text = any(isinstance(side, _TEXTS) or _is_text(side) for side in sides)
        is_path = isinstance(node.op, ast.Div) and not any(_is_number(side) for side in sides)
        is_type = isinstance(node.op, ast.BitOr) and any(_looks_like_type(side) for side in sides)
        if operator and not (is_text or is_path or is_type):
            self._between(node.left, node.right, f"({operator[0]})", "arithmetic", operator[1])
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._replace(node.test, "condition negated", f"not ({self._text(node.test)})")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._replace(condition, "dropped filter", "True")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, "constant", str(not node.value))
        elif isinstance(node.value, int) and (node.value <= _COUNTED or self._text(node).startswith("0o")):
            self._replace(node, "constant", str(node.value + 1))

    # ---- planting ----

    def _replace(self, node: ast.expr | ast.stmt, operator: str, replacement: str) -> None:
        if self._text(node) != replacement:
            self._plant(self._start(node), self._end(node), operator, replacement)

    def _between(self, left: ast.expr, right: ast.expr, pattern: str, operator: str, replacement: str) -> None:
        start, end = self._end(left), self._start(right)
        found = re.search(pattern.encode(), self._source[start:end])
        if found:
            self._plant(start + found.start(1), start + found.end(0), operator, replacement)

    def _plant(self, start: int, end: int, operator: str, replacement: str) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        self.found.append(Mutation(self._file, line, ".".join(self._scope), operator, start, end, replacement))

    def _at(self, line: int | None, column: int | None) -> int:
        assert line is not None
        assert column is not None
        return self._lines[line - 1] + column

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._at(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._at(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self._source[self._start(node) : self._end(node)].decode()


def changed_lines(diff: str) -> list[str]:
    """Return the removed and added lines, independent of place and indentation."""
    return [line[0] + line[1:].strip() for line in diff.splitlines() if line[:1] in ("-", "+")]


def functions_of(source: bytes) -> Iterator[tuple[str, int, int]]:
    """Return the qualified name and the first and last line of every function of a file, outer functions first."""

    def walk(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, _FUNCTION | ast.ClassDef):
                inner = (*scope, child.name)
            if isinstance(child, _FUNCTION):
                yield ".".join(inner), child.lineno, child.end_lineno or child.lineno
            yield from walk(child, inner)

    return walk(ast.parse(source), ())


def _root_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _value_of(node: ast.expr) -> float | None:
    """Return the value of a number, or of an expression of numbers; None for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _CALCULATIONS:
        return None
    left, right = _value_of(node.left), _value_of(node.right)
    return None if left is None or right is None else _CALCULATIONS[type(node.op)](left, right)


def _looks_like_type(node: ast.expr) -> bool:
    name = ast.unparse(node)
    return name == "None" or name in ("str", "bytes", "int", "float", "list", "dict") or name[:1].isupper()


def _default(annotation: ast.expr | None, value: str) -> str:
    """Return a wrong value of the annotated type."""
    kind = ast.unparse(annotation) if annotation is not None else ""
    if kind == "bool":
        return f"not ({value})"
    if "None" in kind:
        return "None"
    for start, default in (
        ("int", "0"), ("float", "0.0"), ("str", "''"), ("bytes", "b''"), ("list", "[]"), ("Sequence", "()"),
        ("tuple", "()"), ("dict", "{}"), ("Mapping", "{}"), ("set", "set()"), ("frozenset", "frozenset()"),
        ("Iterator", "iter(())"), ("Iterable", "()"),
    ):  # fmt: skip
        if kind.startswith(start):
            return default
    return "None"
