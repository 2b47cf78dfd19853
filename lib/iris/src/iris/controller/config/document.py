"""The content of a cluster file, with lines of keys and the problems found in it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rigging.errors import InvalidRequest
from rigging.text.yaml_files import fill_variables, yaml_errors


class Document:
    """The content of a YAML file.

    Args:
        path: The file's path.
        content: Mappings, lists and scalars; None for an empty file.
        lines: Lines of keys, in the form `scale_groups[0].cpu`; empty if unknown.
    """

    def __init__(self, path: Path, content: object, lines: Mapping[str, int] | None = None) -> None:
        self.path = path
        self.content = content
        self._lines = {} if lines is None else lines
        self._origins: dict[str, str] = {}
        self._problems: dict[str, int] = {}

    def where(self, key: str) -> str:
        """Return the file, the key, and the line of the key or its nearest section, for messages."""
        line, name = self._place(key)
        return f"{self._at(line)}: {name}"

    def with_content(self, content: object, origins: Mapping[str, str]) -> "Document":
        """Return the document with other content, for the same problems.

        Args:
            content: The content. Keys in both keep their lines.
            origins: Where keys of the content, or sections, come from.
        """
        made = Document(self.path, content, self._lines)
        made._origins, made._problems = dict(origins), self._problems
        return made

    def refuse(self, key: str, problem: str, line: int = 0) -> None:
        """Note a problem. Its text follows the place: the key's line, or the given one."""
        found, name = self._place(key)
        line = line or found
        self._problems.setdefault(f"{self._at(line)}: {name}{problem}", line)

    def check(self) -> None:
        """Raise InvalidRequest with all problems, in the order of the file, if there are any."""
        if self._problems:
            raise InvalidRequest("\n".join(sorted(self._problems, key=lambda text: self._problems[text])))

    def _at(self, line: int) -> str:
        return f"{self.path}:{line}" if line else str(self.path)

    def _place(self, key: str) -> tuple[int, str]:
        """Return the line and name of a key of this content in the file."""
        for outer in _with_outer(key):
            if outer in self._origins:
                key = self._origins[outer] + key[len(outer) :]
                break
        line = next((self._lines[outer] for outer in _with_outer(key) if outer in self._lines), 0)
        return line, key or "the file"


def read_document(path: Path, environ: Mapping[str, str] | None = None) -> Document:
    """Read a YAML file, with `${VAR}` in its values replaced from the environment (os.environ by default).

    Duplicate keys are problems of the document. Raise InvalidRequest if the file cannot be read, is
    not YAML, or contains itself.
    """
    import yaml

    environ = os.environ if environ is None else environ
    with yaml_errors(f"the cluster config {path}"):
        text = path.read_text()
        content = yaml.safe_load(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    _check_for_circles(path, node, set(), set())
    lines: dict[str, int] = {}
    document = Document(path, fill_variables(content, environ), lines)
    for key, line in _keys_of(node, "", set()):
        if key in lines:
            document.refuse(key, f" is given twice; it is in line {lines[key]}, too", line)
        lines[key] = line
    return document


def _with_outer(key: str) -> Iterator[str]:
    """Yield a key, and the sections that it is in, innermost first."""
    while key:
        yield key
        key = key[: max(key.rfind("."), key.rfind("["), 0)]


def _check_for_circles(path: Path, node: Any, above: set[int], done: set[int]) -> None:
    """Refuse an alias to a surrounding node. Visit each node once, however many aliases it has."""
    if node is None or node.id == "scalar" or id(node) in done:
        return
    if id(node) in above:
        raise InvalidRequest(f"{path}:{node.start_mark.line + 1}: an alias below this stands for the whole of it")
    above.add(id(node))
    pairs = node.value if node.id == "mapping" else [(None, item) for item in node.value]
    for _, value in pairs:
        _check_for_circles(path, value, above, done)
    above.discard(id(node))
    done.add(id(node))


def _keys_of(node: Any, name: str, done: set[int]) -> Iterator[tuple[str, int]]:
    """Yield each key below a YAML node with its line; for aliased nodes, of the first occurrence."""
    if node is None or node.id == "scalar" or id(node) in done:
        return
    done.add(id(node))
    if node.id == "mapping":
        for key, value in node.value:
            inner = f"{name}.{key.value}" if name else str(key.value)
            yield inner, key.start_mark.line + 1
            yield from _keys_of(value, inner, done)
    else:
        for number, item in enumerate(node.value):
            yield f"{name}[{number}]", item.start_mark.line + 1
            yield from _keys_of(item, f"{name}[{number}]", done)
