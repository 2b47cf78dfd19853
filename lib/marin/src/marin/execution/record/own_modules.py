"""Read the code that functions reach in the modules of the user's own projects.

Own modules are in workspace members or the script's folder, and neither installed nor part of Python.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import PathFinder
from typing import Any, Final

from marin.execution.record.bare_source import bare_lines, joined
from marin.execution.record.function_source import plain_function
from marin.execution.record.held import held_by, table_in
from marin.execution.record.module_table import ModuleTable, parsed, table_of, text_of_lines
from marin.execution.record.reach import WHOLE, Reached, reach, recorded_reach
from marin.execution.record.table_cache import KnownTables
from marin.execution.version.canonical import SharedDict
from rigging.redaction import redact_code

logger = logging.getLogger(__name__)

# Tools like those of site-packages, also where they are installed from a checkout.
_TOOLS: Final = frozenset({"marin", "fray", "iris", "rigging"})
_NOT_OWN: Final = ("/site-packages/", "/dist-packages/", f"{os.path.dirname(os.__file__)}/")
_MOST_STARTS: Final = 4096

_Start = tuple[str, tuple[str, ...]]


class OwnModules:
    """The own modules of one plan. Each file is read once."""

    def __init__(self) -> None:
        self._files: dict[str, str | None] = {}
        self._tables: dict[str, ModuleTable | None] = {}
        # By id, as not every callable can be hashed; the function is kept, so that its id is not used again.
        self._starts: dict[int, tuple[Callable[..., Any] | None, _Start]] = {}
        self._reached: dict[_Start, Reached] = {}
        self._recorded: dict[tuple[_Start, ...], SharedDict] = {}
        self._known = KnownTables.of_script(str(getattr(sys.modules.get("__main__"), "__file__", "")))

    def reached(self, fn: Callable[..., Any] | None, held: Iterable[Any] = ()) -> dict[str, Any]:
        """Return the code that a function reaches outside its own module (`recorded_reach`).

        Args:
            fn: The function. Its own module is omitted, because `function_source` covers it, unless the whole module is
                reached.
            held: Functions and classes contained in the function or its step's config.
        """
        starts = self._starts_of(fn, held)
        if starts not in self._recorded:
            together: Reached = {}
            for start in starts:
                for module, names in self._reach(start).items():
                    if module != starts[0][0] or module != start[0] or WHOLE in names:
                        together.setdefault(module, set()).update(names)
            self._recorded[starts] = SharedDict(recorded_reach(self._digests(together)))
        return self._recorded[starts]

    def all_reached(self, functions: Iterable[Any]) -> dict[str, dict[str, str]]:
        """Return the digests of all definitions that functions and classes reach, by file and name."""
        return self._digests(self._together(functions))

    def texts(self, functions: Iterable[Any]) -> dict[str, str]:
        """Return the bare source of all definitions that functions reach, by digest; secrets redacted."""
        found: dict[str, str] = {}
        for module, names in self._together(functions).items():
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                table = self._tables[module]
                lines = (table and table.lines) or bare_lines(*parsed(self.file_of(module) or ""))
                found |= {self._digest(module, name): redact_code(self._text(module, name, lines)) for name in names}
        return found

    def _together(self, functions: Iterable[Any]) -> Reached:
        together: Reached = {}
        for start in {self._start(plain_function(fn)) for fn in functions}:
            for module, names in self._reach(start).items():
                together.setdefault(module, set()).update(names)
        return together

    def keep_tables(self) -> None:
        """Save the tables for later processes."""
        self._known.keep()

    def table(self, module: str) -> ModuleTable | None:
        """Return the table of an own module; None for other or unreadable modules."""
        if module not in self._tables:
            path = self.file_of(module)
            self._tables[module] = None if path is None else self._read(module, path)
        return self._tables[module]

    def _read(self, module: str, path: str) -> ModuleTable | None:
        is_package = os.path.basename(path) == "__init__.py"
        try:
            return self._known.table(path, lambda: table_of(*parsed(path), module, is_package=is_package))
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            logger.debug("%s is not followed: %s", path, error)
            return None

    def file_of(self, module: str) -> str | None:
        """Return the file of an own module; None for other modules."""
        if module not in self._files:
            top = module.partition(".")[0]
            self._files[module] = None if top in _TOOLS else _own_file(module, self.file_of)
        return self._files[module]

    def _starts_of(self, fn: Callable[..., Any] | None, held: Iterable[Any]) -> tuple[_Start, ...]:
        first = self._start(None if fn is None else plain_function(fn))
        return (first, *sorted({self._start(each) for each in held} - {first, ("", ())}))

    def _start(self, start: Any) -> _Start:
        """Return the module of a plain function or class and the definitions to start from; none if it is not own."""
        known = self._starts.get(id(start))
        if known is None:
            if len(self._starts) >= _MOST_STARTS:  # of an endless stream of steps
                self._starts.clear()
            known = self._starts[id(start)] = (start, self._look_up(start))
        return known[1]

    def _look_up(self, start: Any) -> _Start:
        module = getattr(start, "__module__", None)
        table = self.table(module) if isinstance(module, str) else None
        if start is None or module is None or table is None:
            return "", ()
        name = start.__qualname__.partition(".")[0]
        if name in table.definitions:
            return module, (name,)
        # A lambda of a table, or a function that was given another name.
        line = getattr(getattr(start, "__code__", None), "co_firstlineno", 0)
        return module, tuple(name for name in table.definitions if table.definition(name).has_line(line))

    def _reach(self, start: _Start) -> Reached:
        if start not in self._reached:
            together: Reached = {}
            waiting = [start]
            while waiting:
                for module, names in reach(*waiting.pop(), self.table).items():
                    there = together.setdefault(module, set())
                    waiting += self._registered(module, names - there)
                    there |= names
            self._reached[start] = together
        return self._reached[start]

    def _registered(self, module: str, names: Iterable[str]) -> set[_Start]:
        """Return the module's own functions and classes in tables of these names: decorators may have put them there.

        Those of other modules do not count, because they depend on what the script imports.
        """
        values = vars(sys.modules.get(module, sys))
        tables = [table_in(values.get(name)) for name in names]
        return {found for item in held_by(tables) if (found := self._start(plain_function(item)))[0] == module}

    def _digests(self, reached: Reached) -> dict[str, dict[str, str]]:
        return {
            _shown(module, self.file_of(module) or ""): {
                name: self._digest(module, name) for name in ({WHOLE} if WHOLE in names else names)
            }
            for module, names in reached.items()
        }

    def _digest(self, module: str, name: str) -> str:
        table = self._tables[module]
        assert table is not None
        return (table.digest if name == WHOLE else table.definition(name).digest).removeprefix("source ")

    def _text(self, module: str, name: str, lines: Sequence[str]) -> str:
        table = self._tables[module]
        assert table is not None
        return joined(lines) if name == WHOLE else text_of_lines(lines, table.definition(name).lines)


def _shown(module: str, path: str) -> str:
    """Return a module's file relative to its import root: `mypkg/words.py`."""
    parts = path.split("/")
    count = 1 if module == "__main__" else module.count(".") + 1 + (parts[-1] == "__init__.py")
    return "/".join(parts[-count:])


def _own_file(module: str, file_of: Callable[[str], str | None]) -> str | None:
    path = _file(module, file_of)
    if path is None or not path.endswith(".py") or any(part in path for part in _NOT_OWN):
        return None
    return path


def _file(module: str, file_of: Callable[[str], str | None]) -> str | None:
    loaded = sys.modules.get(module)
    if loaded is not None:
        return getattr(loaded, "__file__", None)
    parent, _, _ = module.rpartition(".")
    places = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    above = file_of(parent) if parent else None
    if parent and places is None:
        # Nothing below a module that is no package, or one that is not own.
        places = [os.path.dirname(above)] if above is not None and above.endswith("/__init__.py") else None
    if parent and (places is None or any(part in f"{place}/" for place in places for part in _NOT_OWN)):
        return None
    try:
        spec = PathFinder.find_spec(module, None if places is None else list(places))
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin
