"""Sections of a cluster file, read by a table of keys. Problems are noted in the document, with line and suggestion."""

import difflib
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from iris.controller.config.document import Document
from iris.controller.config.kinds import Kind, Table
from rigging.errors import InvalidRequest
from rigging.redaction import redact_string
from rigging.text.yaml_files import Filled, unset_variables


class Section:
    """A mapping in the file with its location. A wrong value is noted, and its default returned.

    Args:
        content: The section's content.
        name: The dotted name of the section; "" for the whole file.
        file: The file.
        keys: The allowed keys.
    """

    def __init__(self, content: object, name: str, file: Document, keys: Table) -> None:
        self._name = name
        self._file = file
        self._keys = keys
        self._content: Mapping[Any, Any] = content if isinstance(content, dict) else {}
        if not isinstance(content, dict):
            known = ", ".join(keys)
            file.refuse(name, f" is {shown(content)}; it must be a mapping of {known}")
        for key in self._content:
            if key not in keys:
                near = difflib.get_close_matches(str(key), keys, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(keys)}"
                file.refuse(self._inner(str(key)), f" is unknown; {hint}")

    @property
    def content(self) -> Mapping[Any, Any]:
        """Return the section's content as read."""
        return self._content

    @property
    def keys(self) -> Table:
        """Return the allowed keys."""
        return self._keys

    @property
    def name(self) -> str:
        """Return the section's path in the file; empty for the whole file."""
        return self._name

    def where(self, key: str) -> str:
        """Return file, line and the key's path, for messages."""
        return self._file.where(self._inner(key))

    def refuse(self, key: str, allowed: str, value: object = None) -> None:
        """Note that a value is wrong. A value that looks like a secret is not shown.

        Args:
            key: The value's key.
            allowed: The allowed values, to follow "must be".
            value: The wrong value; None for that of the content.
        """
        wrong = self._content.get(key) if value is None else value
        self._file.refuse(self._inner(key), f" is {shown(wrong)}; it must be {allowed}")

    def note(self, key: str, problem: str) -> None:
        """Note a problem whose text follows the key."""
        self._file.refuse(self._inner(key), f": {problem}")

    def refuse_with(self, key: str, error: InvalidRequest) -> None:
        """Note another reader's error, which shows the value; not so if the value is of a variable."""
        value = self._content.get(key)
        self.note(key, f"the value of {value!r} is not valid" if isinstance(value, Filled) else str(error))

    def has(self, key: str) -> bool:
        return self._content.get(key) is not None

    def section(self, key: str) -> "Section":
        content = self._content.get(key)
        return Section({} if content is None else content, self._inner(key), self._file, self._keys[key].keys)

    def sections(self, key: str) -> "list[Section]":
        items = self._content.get(key) or []
        keys = self._keys[key].keys
        if isinstance(items, dict):
            named = [self._named(f"{self._inner(key)}.{name}", name, item) for name, item in items.items()]
        elif isinstance(items, list):
            named = [(f"{self._inner(key)}[{i}]", item) for i, item in enumerate(items)]
        else:
            named = []
            self.refuse(key, self._keys[key].must_be)
        made = [Section(item, place, self._file, keys) for place, item in named]
        return [item for item, (_, content) in zip(made, named, strict=True) if isinstance(content, dict)]

    def _named(self, place: str, name: object, item: object) -> tuple[str, object]:
        """Return an item of a mapping by name. The item may repeat its name."""
        if item is None or not isinstance(item, dict):
            return place, {"name": name} if item is None else item
        if item.get("name", name) != name:
            self._file.refuse(f"{place}.name", f" is {shown(item['name'])}; it must be {name!r}, or left out")
        return place, {"name": name, **item}

    def text(self, key: str) -> str:
        return str(self._read(key))

    def texts(self, key: str) -> tuple[tuple[str, str], ...]:
        found: tuple[tuple[str, str], ...] = self._read(key)
        return found

    def names(self, key: str) -> tuple[str, ...]:
        found: tuple[str, ...] = self._read(key)
        return found

    def whole(self, key: str) -> int:
        return int(self._read(key))

    def number(self, key: str) -> float:
        return float(self._read(key))

    def flag(self, key: str) -> bool:
        return bool(self._read(key))

    def _read(self, key: str) -> Any:
        entry, value = self._keys[key], self._content.get(key)
        if value is None and not entry.required:
            return entry.default
        unset = unset_variables(value)
        for name in unset:
            self.note(key, f"the variable {name} is not set; set it, or write $$ for $")
        if unset:
            return entry.default
        try:
            return entry.read(value)
        except ValueError as error:
            self.refuse(key, str(error))
            return entry.default

    def _inner(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def shown(value: object) -> str:
    """Return a value of the file for messages: shortened, without what looks like a secret or is of a variable."""
    if value is None:
        return "missing"
    short = reprlib.Repr()
    short.maxstring = short.maxother = 200
    return redact_string(short.repr(value))


def walk(section: Section) -> Iterator[tuple[Section, str]]:
    """Yield each known key below a section with its own section, in the file's order; note unknown keys."""
    for key in section.content:
        entry = section.keys.get(key)
        if entry is None:
            continue
        yield section, key
        if entry.kind is Kind.SECTION and section.has(key):
            yield from walk(section.section(key))
        elif entry.kind is Kind.ITEMS:
            for item in section.sections(key):
                yield from walk(item)
