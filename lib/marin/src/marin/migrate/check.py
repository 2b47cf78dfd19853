"""Find code that will not work here, in scripts, without running them."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from marin.execution.config.step import check_relative_name
from marin.migrate.advice import LIBRARIES, instead_of
from marin.migrate.names import OURS, Missing, call_problem, is_installed, resolve, star_names
from rigging.errors import InvalidRequest, NotFound

#: Calls that stand for a path which is known only when the step runs.
_NOT_TEXT: Final = {
    "this_output_path": 'this_output_path("x")',
    "output_path_of": "output_path_of(step, 'x')",
    "ExecutorStep": "step / 'x'",
    "InputName": "input / 'x'",
}
_CATCH_IMPORT_ERRORS: Final = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_SKIPPED_DIRECTORIES: Final = frozenset({"__pycache__", "node_modules", "venv"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A problem in a script.

    Attributes:
        path: The script.
        line: The line, from 1.
        problem: The description of the problem.
        instead: The replacement.
    """

    path: str
    line: int
    problem: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}; {self.instead}"


def check_paths(paths: Sequence[str]) -> tuple[int, list[Finding]]:
    """Check scripts, and all scripts in directories.

    Returns:
        The number of files read, and the findings.

    Raises:
        InvalidRequest: A path is empty, or is neither a file nor a directory.
        NotFound: The file or directory does not exist.
    """
    if "" in paths:
        raise InvalidRequest("a path is empty; give a script or a directory of scripts ('.' for the current one)")
    files = [file for path in paths for file in _scripts(Path(path))]
    return len(files), [finding for file in files for finding in check_file(file)]


def check_file(path: Path) -> list[Finding]:
    """Return the problems of a script by line, without running it. An unreadable file is one finding."""

    def unread(problem: str, instead: str, line: int = 1) -> list[Finding]:
        return [Finding(str(path), line, problem, instead)]

    if path.suffix == ".ipynb":
        return unread(
            "notebooks are not supported", "export it (`jupyter nbconvert --to script`), and check the script"
        )
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
        reader = _Reader(str(path), _roots(path), _bound_names(tree))
        reader.visit(tree)
    except SyntaxError as error:
        return unread(f"not Python: {error.msg}", "correct it", error.lineno or 1)
    except OSError as error:
        return unread(f"it cannot be read: {error.strerror or error}", "make it readable")
    except ValueError as error:  # of older patch releases: of a NUL
        return unread(f"not Python: {error}", "correct it")
    except (RecursionError, MemoryError):  # of the parser, which tells no line, or of the visits
        return unread("an expression is nested too deeply to parse", "split it, or keep the data in a file")
    return sorted(set(reader.findings))


def _scripts(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for directory, names, files in os.walk(path):
            names[:] = sorted(name for name in names if name[0] != "." and name not in _SKIPPED_DIRECTORIES)
            found = (Path(directory, name) for name in sorted(files) if name.endswith(".py"))
            # A dangling link is told as a file that cannot be read; a pipe or a device would be waited for.
            yield from (file for file in found if file.is_file() or not file.exists())
    elif path.is_file():
        yield path
    elif path.exists():
        raise InvalidRequest(f"{path}: it is neither a file nor a directory; give a script or a directory of scripts")
    else:
        raise NotFound(f"{path}: there is no such file or directory")


def _roots(path: Path) -> list[Path]:
    """Return the directories above a script, where its imports may start."""
    return list(path.absolute().parents)


def _bound_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that a script binds other than by imports: variables, parameters, functions and classes."""
    found: set[str | None] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            found.add(node.name)
    return frozenset(name for name in found if name is not None)


def _caught_names(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"Exception"}
    return {child.id for child in ast.walk(handler.type) if isinstance(child, ast.Name)}


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class _Reader(ast.NodeVisitor):
    """Walk through a script and record its problems."""

    def __init__(self, path: str, roots: Sequence[Path], rebound: frozenset[str]) -> None:
        self.findings: list[Finding] = []
        self._path = path
        self._roots = roots
        self._rebound = rebound  # what such a name means depends on where it stands
        self._names: dict[str, str] = {}  # a name of the script -> the dotted name that it was imported as
        self._is_optional = False  # within a block that may fail, or is not run
        self._not_text: dict[str, str] = {}  # a name of the script -> what to write instead of its text

    def visit_Try(self, node: ast.Try) -> None:
        caught = {name for handler in node.handlers for name in _caught_names(handler)}
        self._visit_optional(node.body, bool(caught & _CATCH_IMPORT_ERRORS))
        for block in (node.handlers, node.orelse, node.finalbody):
            for child in block:
                self.visit(child)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._visit_optional(node.body, ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING")
        for child in node.orelse:
            self.visit(child)

    def _visit_optional(self, body: Sequence[ast.stmt], is_optional: bool) -> None:
        before = self._is_optional
        self._is_optional = before or is_optional
        for child in body:
            self.visit(child)
        self._is_optional = before

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if self._is_known(node, alias.name, alias.name):
                self._names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            return
        for alias in node.names:
            name = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            if not self._is_known(node, name, node.module):
                continue
            if alias.name != "*":
                self._names[alias.asname or alias.name] = name
            elif node.module.partition(".")[0] in OURS:
                self._names.update({name: f"{node.module}.{name}" for name in star_names(node.module)})

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        made = self._placeholder(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._names.pop(target.id, None)
                self._not_text.pop(target.id, None)
                if made is not None:
                    self._not_text[target.id] = made

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is None or name.partition(".")[0] not in OURS:
            self.generic_visit(node)
            return
        self._is_known(node, name, name.rpartition(".")[0])

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format" and _is_text(node.func.value):
            self._check_text(node, [*node.args, *(given.value for given in node.keywords)])
        name = self._dotted(node.func)
        if name is None:
            return
        kind = name.rpartition(".")[2]
        if name == "os.path.join" or kind == "str":
            self._check_text(node, node.args)
        if name.partition(".")[0] not in OURS:
            return
        try:
            function = resolve(name)
        except Missing:
            return  # told where it is imported
        keywords = tuple(given.arg for given in node.keywords if given.arg is not None)
        is_whole = len(keywords) == len(node.keywords) and not any(isinstance(a, ast.Starred) for a in node.args)
        problem = call_problem(function, len(node.args), keywords, is_whole=is_whole) if callable(function) else None
        if problem is not None:
            self._note(node, f"{name}: {problem}", instead_of(name) or "see docs/reference for its arguments")
        self._check_step_name(node, kind)
        if kind == "versioned" and node.args and isinstance(node.args[0], ast.Set | ast.SetComp):
            self._note(
                node,
                "versioned() of a set: its order, and so the path, may differ in each process",
                "write a sorted list: versioned(sorted(...))",
            )

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.generic_visit(node)
        self._check_text(node, [part.value for part in node.values if isinstance(part, ast.FormattedValue)])

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            self._check_text(node, [node.left, node.right])
        elif isinstance(node.op, ast.Mod) and _is_text(node.left):
            self._check_text(node, node.right.elts if isinstance(node.right, ast.Tuple) else [node.right])

    def _check_step_name(self, node: ast.Call, kind: str) -> None:
        if kind not in ("ExecutorStep", "StepSpec"):
            return
        given = {word.arg: word.value for word in node.keywords}
        name = given.get("name", node.args[0] if node.args else None)
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            try:
                check_relative_name(name.value, "step name")
            except InvalidRequest as error:
                problem, _, instead = str(error).partition("; ")
                self._note(node, problem, instead)

    def _check_text(self, node: ast.AST, values: Sequence[ast.expr]) -> None:
        for value in values:
            instead = self._not_text.get(value.id) if isinstance(value, ast.Name) else self._placeholder(value)
            if instead is not None:
                self._note(
                    node,
                    f"{ast.unparse(value)} has no text yet: its path is known only when the step runs",
                    f"write {instead} for a path below it",
                )

    def _placeholder(self, value: ast.expr) -> str | None:
        """Return the replacement for the text of a placeholder; None if `value` is not known to be a placeholder."""
        if not isinstance(value, ast.Call):
            return None
        name = self._dotted(value.func)
        return _NOT_TEXT.get(name.rpartition(".")[2]) if name and name.startswith("marin.execution") else None

    def _dotted(self, node: ast.AST) -> str | None:
        """Return the dotted name of an expression, as far as imports determine it."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        start = None if node.id in self._rebound else self._names.get(node.id)
        if start is None:
            return "str" if node.id == "str" and not parts else None
        return ".".join([start, *reversed(parts)])

    def _is_known(self, node: ast.AST, name: str, module: str) -> bool:
        """Return whether a module, or a name in it, can be imported. Record a problem if not."""
        package = name.partition(".")[0]
        if package in OURS:
            return self._is_ours(node, name, module)
        if self._is_optional or package in sys.stdlib_module_names or self._is_beside(module):
            return True
        if self._is_beside(package):
            self._note(node, f"{module} is not beside this script", "bring that module along")
            return False
        if not is_installed(package):
            advice = LIBRARIES.get(package, "install it (`uv pip install`, by its name on PyPI), or bring it along")
            self._note(node, f"{package} is not installed here", advice)
            return False
        return True

    def _is_ours(self, node: ast.AST, name: str, module: str) -> bool:
        try:
            resolve(name)
        except Missing as error:
            if self._is_optional or self._is_beside(module):
                return True
            known = instead_of(name)
            problem = str(error) if known is None else str(error).partition(";")[0]
            self._note(node, problem, known or "see docs/compatibility.md for the available names")
            return False
        return True

    def _is_beside(self, name: str) -> bool:
        """Return whether a module belongs to the script's own project."""
        place = Path(*name.split("."))
        places = [root / source / place for root in self._roots for source in ("", "src")]
        return any(found.with_suffix(".py").is_file() or found.is_dir() for found in places)

    def _note(self, node: Any, problem: str, instead: str) -> None:
        self.findings.append(Finding(self._path, node.lineno, problem, instead))
