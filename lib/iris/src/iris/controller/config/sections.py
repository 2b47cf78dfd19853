"""Sections of a YAML file, validated when read. Refusals name the file, line, key, value and allowed values."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rigging.errors import InvalidRequest
from rigging.redaction import redact_string
from rigging.text.quantities import parse_size
from rigging.text.yaml_files import yaml_errors

SECTIONS: Final = (
    "name",
    "controller",
    "storage",
    "scale_groups",
    "user_budgets",
    "jobs_per_user",
    "notify",
    "limits",
    "prices",
)
CONTROLLER_KEYS: Final = (
    *("address", "token_file", "host", "port", "insecure", "state_dir", "log_limit", "worker_lost_after"),
    *("dashboard_port", "partition_patience"),
)
STORAGE_KEYS: Final = ("remote_state_dir", "durability", "disk_reserve")
GROUP_KEYS: Final = (
    *("name", "accelerator", "cpu", "memory", "disk", "hosts_per_slice", "min_slices", "max_slices"),
    *("region", "zone", "preemptible", "attributes"),
)
ACCELERATOR_KEYS: Final = ("type", "variant", "count")
LIMITS_KEYS: Final = ("mode", "force", "unstated")
NOTIFY_KEYS: Final = ("url", "allow")
JOBS_PER_USER_KEYS: Final = ("max_pending", "max_running")
PRICE_KEYS: Final = ("name", "core_hour", "chip_hour")
BUDGET_KEYS: Final = ("name", "max_weight", "max_band")


class Document:
    """The content of a YAML file, with the line of each key.

    Args:
        path: The file's path.
        content: Mappings, lists and scalars; None for an empty file.
        lines: Lines of keys, in the form `scale_groups[0].cpu`; empty if unknown.
    """

    def __init__(self, path: Path, content: object, lines: Mapping[str, int] | None = None) -> None:
        self.path = path
        self.content = content
        self._lines = lines or {}

    def where(self, key: str) -> str:
        """Return the file, the key, and the line of the key or its nearest section, for messages."""
        place = key
        while place and place not in self._lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        line = f":{self._lines[place]}" if place else ""
        return f"{self.path}{line}: {key}"

    def with_content(self, content: object) -> "Document":
        """Return the document with other content. Keys in both keep their lines."""
        return Document(self.path, content, self._lines)


def read_document(path: Path) -> Document:
    """Read a YAML file. Raise InvalidRequest if the file cannot be read, is not YAML, has duplicate keys or contains
    itself.
    """
    import yaml

    with yaml_errors(f"the cluster config {path}"):
        text = path.read_text()
        content = yaml.safe_load(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    _check_for_circles(path, node, set(), set())
    lines: dict[str, int] = {}
    for key, line in _keys_of(node, "", set()):
        if key in lines:
            raise InvalidRequest(f"{path}:{line}: {key} is given twice; it is in line {lines[key]}, too")
        lines[key] = line
    return Document(path, content, lines)


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


class Section:
    """A mapping in the file with its location, for refusals.

    Args:
        content: The section's content.
        name: The dotted name of the section; "" for the whole file.
        file: The file.
        known: The allowed keys.
    """

    def __init__(self, content: object, name: str, file: Document, known: tuple[str, ...]) -> None:
        self._name = name
        self._file = file
        if not isinstance(content, dict):
            where = file.where(name) if name else f"{file.path}: the file"
            shown = redact_string(repr(content))
            raise InvalidRequest(f"{where} is {shown}; it must be a mapping of {', '.join(known)}")
        self._content: Mapping[Any, Any] = content
        for key in content:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise InvalidRequest(f"{self.where(str(key))} is unknown; {hint}")

    def where(self, key: str) -> str:
        """Return file, line and the key's path, for messages."""
        return self._file.where(self._inner(key))

    @property
    def content(self) -> Mapping[Any, Any]:
        """Return the section's content as read."""
        return self._content

    @property
    def name(self) -> str:
        """Return the section's path in the file; empty for the whole file."""
        return self._name

    def wrong(self, key: str, value: object, allowed: str) -> InvalidRequest:
        """Return the refusal of a value. A value that looks like a secret is not shown.

        Args:
            key: The value's key.
            value: The wrong value.
            allowed: The allowed values, to follow "must be".
        """
        return InvalidRequest(f"{self.where(key)} is {redact_string(repr(value))}; it must be {allowed}")

    def has(self, key: str) -> bool:
        return self._content.get(key) is not None

    def section(self, key: str, known: tuple[str, ...]) -> "Section":
        content = self._content.get(key)
        return Section({} if content is None else content, self._inner(key), self._file, known)

    def sections(self, key: str, known: tuple[str, ...]) -> "list[Section]":
        items = self._content.get(key) or []
        if isinstance(items, dict):
            return [self._named(key, name, item, known) for name, item in items.items()]
        if not isinstance(items, list):
            raise self.wrong(key, items, "a list, or a mapping by name")
        return [Section(item, f"{self._inner(key)}[{i}]", self._file, known) for i, item in enumerate(items)]

    def _named(self, key: str, name: object, item: object, known: tuple[str, ...]) -> "Section":
        """Return an item of a mapping by name. The item may repeat its name."""
        where = f"{self._inner(key)}.{name}"
        content = {} if item is None else item
        if isinstance(content, dict) and content.get("name", name) != name:
            raise InvalidRequest(
                f"{self._file.where(f'{where}.name')} is {content['name']!r}; it must be {name!r}, or left out"
            )
        return Section({"name": name, **content} if isinstance(content, dict) else content, where, self._file, known)

    def text(self, key: str) -> str:
        value = self._content.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, value, "text")
        return value

    def texts(self, key: str) -> tuple[tuple[str, str], ...]:
        found = self._content.get(key) or {}
        if not isinstance(found, dict) or not all(isinstance(v, str) for kv in found.items() for v in kv):
            raise self.wrong(key, found, "a mapping of texts to texts (put numbers and booleans into quotes)")
        return tuple(found.items())

    def choice(self, key: str, allowed: list[str], default: str) -> str:
        value = self._content.get(key, default)
        if value not in allowed:
            raise self.wrong(key, value, " or ".join(repr(item) for item in allowed))
        return str(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self._content.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, value, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, zero: str = "no limit") -> float:
        value = self._content.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise self.wrong(key, value, f"a number, 0 ({zero}) or more")
        return float(value)

    def cores(self, key: str) -> int:
        value = self._content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
            raise self.wrong(key, value, "a number of cores above 0")
        return round(value * 1000)

    def size(self, key: str) -> int:
        value = self._content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.wrong(key, value, "a size such as 448GB")
        try:
            return parse_size(value, key)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.where(key)}: {error}") from None

    def flag(self, key: str) -> bool:
        value = self._content.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def _inner(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key
