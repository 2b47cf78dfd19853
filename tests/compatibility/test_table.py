"""docs/compatibility.md says what the tests here hold."""

import ast
import runpy
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = runpy.run_path(str(HERE / "table.py"))


def test_the_page_is_made_of_the_marks():
    made = TABLE["page"]()
    assert TABLE["PAGE"].read_text() == made, "run `uv run --group dev python tests/compatibility/table.py` and commit"


def test_every_test_is_marked_with_its_call():
    marked = {(mark.file, mark.test) for mark in TABLE["marks"]()}
    tests = {
        (path.name, node.name)
        for path in HERE.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    stand_ins = {"test_trainer.py", "test_data_library.py", "test_data_library_pool.py"}
    own = {(path, name) for path, name in tests if path in {Path(__file__).name, *stand_ins}}
    assert not tests - marked - own
