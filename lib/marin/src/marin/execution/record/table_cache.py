"""A cache of module tables, from this process and earlier processes of the same script."""

from __future__ import annotations

import hashlib
import logging
import marshal
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from marin.execution.record.module_table import ModuleTable
from rigging.filesystem import write_bytes_atomic

logger = logging.getLogger(__name__)

_FORMAT: Final = [2, *sys.version_info[:2]]
_Stamp = tuple[int, int]


class KnownTables:
    """Tables by file. A table is valid while the file has the same modification time and size.

    Args:
        path: The file that stores the tables between processes; None for no file.
    """

    _by_script: Final[dict[str, KnownTables]] = {}

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._kept: dict[str, tuple[_Stamp, Any]] | None = None
        self._tables: dict[str, tuple[_Stamp, ModuleTable]] = {}
        self._is_new = False

    @classmethod
    def of_script(cls, script: str) -> KnownTables:
        """Return the tables of a script, in the user's cache."""
        if script not in cls._by_script:
            base = os.environ.get("XDG_CACHE_HOME", "")
            base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
            name = hashlib.sha256(os.path.abspath(script).encode(errors="surrogateescape")).hexdigest()[:16]
            cls._by_script[script] = cls(os.path.join(base, "marin", "code", name) if script else None)
        return cls._by_script[script]

    def table(self, path: str, read: Callable[[], ModuleTable]) -> ModuleTable:
        """Return the table of a file.

        Args:
            path: The file.
            read: Reads an unknown file.

        Raises:
            OSError: The file does not exist.
        """
        found = os.stat(path)
        stamp = (found.st_mtime_ns, found.st_size)
        known = self._tables.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        if self._kept is None:
            self._kept = {} if self._path is None else _load(self._path)
        kept = self._kept.get(path)
        if kept is not None and kept[0] == stamp:
            table = ModuleTable(*kept[1])
        else:
            table, self._is_new = read(), True
        self._tables[path] = (stamp, table)
        return table

    def keep(self) -> None:
        """Write the tables for later processes of the script. Failures are ignored."""
        if self._path is None or not self._is_new:
            return
        self._is_new = False
        content = {path: (stamp, _packed(table)) for path, (stamp, table) in self._tables.copy().items()}
        try:
            write_bytes_atomic(self._path, marshal.dumps([_FORMAT, content]))
        except OSError as error:
            logger.debug("%s was not written: %s", self._path, error)


def _load(path: str) -> dict[str, tuple[_Stamp, Any]]:
    try:
        with open(path, "rb") as file:
            form, content = marshal.loads(file.read())
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return content if form == _FORMAT and isinstance(content, dict) else {}


def _packed(table: ModuleTable) -> tuple[Any, ...]:
    definitions = {name: tuple(found) for name, found in table.definitions.items()}
    return table.digest, definitions, table.imports, table.stars
