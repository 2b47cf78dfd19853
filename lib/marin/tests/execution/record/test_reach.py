"""The code that a function reaches in other modules of its project."""

import ast
import textwrap

import pytest

from marin.execution.record.module_table import ModuleTable, table_of
from marin.execution.record.reach import MOST_NAMES, WHOLE, reach, reach_differences, recorded_reach

WORDS = """
    from mypkg import deep
    LIMIT = 5
    TABLE = {}
    TABLE["a"] = deep.leaf
    def count(text): return len(split(text)) + LIMIT
    def split(text): return text.split()
    def unused(): return deep.other()
    class Counter(Base):
        def run(self): return TABLE
    class Base: pass
    def lookup(): return getattr(deep, NAME)
    NAME = "leaf"
"""
DEEP = """
    def leaf(): return 1
    def other(): return 2
"""


def table(source: str, module: str) -> ModuleTable:
    source = textwrap.dedent(source)
    return table_of(source, ast.parse(source), module, is_package=module == "mypkg")


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        ("from mypkg.words import count\ndef step(): count('')", {"mypkg.words": "count split LIMIT"}),
        ("import mypkg.words\ndef step(): mypkg.words.split('')", {"mypkg.words": "split"}),
        ("from mypkg import words as w\ndef step():\n  return w.split", {"mypkg.words": "split"}),
        ("from . import words\ndef step(): words.split", {"mypkg.words": "split"}),
        ("def step():\n  from .words import split\n  split('')", {"mypkg.words": "split"}),
        ("from mypkg import exported\ndef step(): exported('')", {"mypkg.words": "split"}),
        ("from mypkg.words import *\ndef step(): split('')", {"mypkg.words": "split"}),
        ("from mypkg.circle import *\nfrom .words import *\ndef step(): print(split(''))", {"mypkg.words": "split"}),
        ("from mypkg import words\n@words.split\ndef step(): pass", {"mypkg.words": "split"}),
        ("from mypkg import words\ndef step(words): words.split", {}),
        ("from mypkg import words\ndef step(x: words.Counter): pass", {}),
        # A class with its bases; a table with what is put into it later.
        (
            "from mypkg.words import Counter\ndef step(): Counter()",
            {"mypkg.words": "Counter Base TABLE", "mypkg.deep": "leaf"},
        ),
        # What cannot be told: all of the module.
        ("from mypkg.words import lookup\ndef step(): lookup()",
         {"mypkg.words": "lookup NAME", "mypkg.deep": "* leaf other"}),
        ("from importlib import import_module\ndef step(name): import_module('mypkg.deep')",
         {"mypkg.deep": "* leaf other"}),
        ("def step(): return eval('other()')\ndef other(): pass", {"mypkg.experiment": "* step other"}),
        ("import numpy\ndef step(): numpy.array(1)", {}),
    ],
)  # fmt: skip
def test_names_lead_to_definitions_in_other_modules(experiment: str, expected: dict[str, str]) -> None:
    sources = {
        "mypkg": "from mypkg.words import split as exported", "mypkg.words": WORDS, "mypkg.deep": DEEP,
        "mypkg.experiment": experiment, "mypkg.circle": "from mypkg.experiment import *",
    }  # fmt: skip
    tables = {name: table(source, name) for name, source in sources.items()}
    found = reach("mypkg.experiment", ["step"], tables.get)
    assert {module: names for module, names in found.items() if names != {"step"}} == {
        module: set(names.split()) for module, names in expected.items()
    }


def test_a_digest_is_of_the_definition_alone() -> None:
    old, new = table(WORDS, "w"), table(WORDS.replace("LIMIT = 5", "# raised\n    LIMIT = 6"), "w")
    changed = {name for name in old.definitions if old.definition(name).digest != new.definition(name).digest}
    assert (changed, old.digest == new.digest) == ({"LIMIT"}, False)


def test_differences_name_file_and_definition() -> None:
    old = {"mypkg/words.py": {"count": "aa", "LIMIT": "bb"}, "gone.py": {WHOLE: "cc"}}
    new = {"mypkg/words.py": {"count": "ab", "LIMIT": "bb", "split": "dd"}}
    assert [str(item) for item in reach_differences(old, new)] == [
        "source of mypkg/words.py: count: aa -> ab",
        "source of mypkg/words.py: split: dd (new)",
        "source of gone.py: was cc (removed)",
    ]
    assert reach_differences(None, new) == reach_differences(old, {}) == reach_differences("x", new) == []
    # Of very many, a file has one digest, which is compared with names all the same.
    many = {"a.py": {f"f{index}": "1" for index in range(MOST_NAMES)}, "b.py": {"g": "2"}}
    assert reach_differences(recorded_reach(many), many) == []
    [found] = reach_differences(recorded_reach(many), {**many, "b.py": {"g": "3"}})
    assert found.where == "source of b.py"
