"""Code that a step reaches by value alone, and the tables of modules that are kept between processes."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.execution import ExecutorStep, versioned
from marin.execution.record.held import MOST_OBJECTS, held_by
from marin.execution.record.module_table import ModuleTable
from marin.execution.record.table_cache import KnownTables
from marin.execution.script.explain import explain_steps
from support.marin.steps import MakeExecutor

WORDS = """\
FACTOR = 2
def count(config): return scaled(1)
def scaled(n): return n * FACTOR
class Count:
    run = count
import functools
TABLE = {}
def registered(fn): return TABLE.setdefault(fn.__name__, fn)
@registered
def tripled(n): return 3 * FACTOR
def chosen(name): return TABLE[name](1)
@functools.singledispatch
def size(value): return 1
@size.register
def of_text(value: str): return FACTOR
def sized(config): return size("")
"""


def call(*_: Any, **__: Any) -> None: ...


def closing(helper: Any) -> Callable[[Any], None]:
    def step(config: Any) -> None:
        call(helper, config)

    return step


class Holder:
    """A callable object."""

    def __init__(self, helper: Any) -> None:
        self._helper = helper

    def __call__(self, config: Any) -> None: ...

    def go(self, config: Any) -> None: ...


HELD: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "an argument of a partial": lambda words: (functools.partial(call, words.count), None),
    "a table of arguments": lambda words: (functools.partial(call, table={"a": [words.count]}), None),
    "a closure": lambda words: (closing(words.count), None),
    "a closure over a closure": lambda words: (closing(closing(functools.partial(words.scaled, 1))), None),
    "an attribute": lambda words: (Holder(words.count), None),
    "an attribute of a method's object": lambda words: (Holder(words.Count).go, None),
    "a function in a config": lambda words: (call, {"helpers": [words.count]}),
    "a partial in a config": lambda words: (call, {"helper": functools.partial(words.count, 1)}),
    "a class in a config": lambda words: (call, {"kind": versioned(words.Count)}),
    "a table that a decorator fills": lambda words: (functools.partial(call, words.chosen), None),
    "a case of a singledispatch function": lambda words: (functools.partial(call, words.sized), None),
    "an object in a config": lambda words: (call, {"helper": Holder(words.count)}),
}


@pytest.mark.parametrize("held", HELD)
def test_code_held_by_value_counts(
    held: str, tmp_path: Path, make_executor: MakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def step(source: str) -> ExecutorStep[Any]:
        (tmp_path / "held_words.py").write_text(source)
        monkeypatch.delitem(sys.modules, "held_words", raising=False)
        importlib.invalidate_caches()
        fn, config = HELD[held](importlib.import_module("held_words"))
        return ExecutorStep("a", fn, config)

    make_executor().run([step(WORDS)])
    again = make_executor()
    again.run([step(WORDS)], strict=True)
    [found] = explain_steps(make_executor(), [step(WORDS.replace("FACTOR = 2", "FACTOR = 30"))])
    assert [difference.where for difference in found.differences] == ["source of held_words.py: FACTOR"]
    assert found.code[-2:] == ["-FACTOR = 2", "+FACTOR = 30"]


class Proxy(Holder):
    """Stands for something that is not there."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no request")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no request")


def test_what_is_not_called_or_very_large_is_not_followed() -> None:
    loop = Holder(None)
    loop._helper = [loop, Proxy(None)]
    held = functools.partial(call, loop, Path("x"), os, [call] * (MOST_OBJECTS + 1), {"other": object()})
    assert held_by([held]) == [Holder, call]
    assert len(held_by([functools.partial(call, *(closing(number) for number in range(1000)))])) < MOST_OBJECTS


def test_tables_of_modules_are_kept_while_their_files_stay_the_same(tmp_path: Path) -> None:
    module, kept = tmp_path / "words.py", tmp_path / "kept" / "tables"
    module.write_text(WORDS)
    read: list[str] = []

    def table(tables: KnownTables, digest: str) -> str:
        def parse() -> ModuleTable:
            read.append(digest)
            return ModuleTable(digest, {}, {}, [])

        return tables.table(str(module), parse).digest

    first = KnownTables(str(kept))
    assert [table(first, name) for name in ("one", "two")] == ["one", "one"]
    first.keep()
    assert table(KnownTables(str(kept)), "three") == "one", "another process finds it"
    found = module.stat()
    for text, time in ((WORDS, found.st_mtime_ns + 1), (WORDS + "#", found.st_mtime_ns)):
        module.write_text(text)
        os.utime(module, ns=(time, time))
        assert table(KnownTables(str(kept)), text) == text, "its time or its size has changed"
    for damage in (b"", b"no table", kept.read_bytes()[:-1]):
        kept.write_bytes(damage)
        module.write_text(WORDS)
        os.utime(module, ns=(found.st_mtime_ns, found.st_mtime_ns))
        assert table(KnownTables(str(kept)), "four") == "four"
    assert len(read) == 6
    with pytest.raises(FileNotFoundError):
        first.table(str(tmp_path / "gone.py"), lambda: ModuleTable("", {}, {}, []))
