"""Writes docs/compatibility.md from the marks of the tests beside this file.

uv run --group dev python tests/compatibility/table.py           # write the page
uv run --group dev python tests/compatibility/table.py --check   # exit code 1 when the page is not what the marks say

A test that holds an older call to what it did is marked with the call, as its caller writes it:

@pytest.mark.compatible("fray.client.wait_all(jobs=) raises JobFailed", since="0.1.0")
def test_...

One test may have several marks. The library is the second word of the file's name: test_fray_jobs.py is fray's.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"
LIBRARIES = ("rigging", "fray", "iris", "marin")
HEAD = """# Calls that older experiments make

Experiments, data libraries and training libraries written for the public ancestor of this project run here unchanged.
Each call below does what it did there, and has a test that is written as its caller would write it, in
[tests/compatibility](../tests/compatibility). `x?` is an argument that may be left out. How to move a project in is in
[migrating.md](migrating.md).

`trainer` there is a training library that is written of these calls alone: `test_trainer.py` runs its experiment in one
process, on Iris and on Ray, kills it, and compares every bit with a run that nothing disturbed. `data_library` is
a data library of such calls: `test_data_library.py` runs its shuffles in threads, on Iris and on Ray, kills workers,
and compares what they write with plain loops; `test_data_library_pool.py` runs them in a pool of workers on Iris.

Made by `uv run --group dev python tests/compatibility/table.py`; a test holds it to the marks of the tests.
"""


@dataclass(frozen=True)
class Mark:
    """One call that a test holds to what it did."""

    library: str
    call: str
    since: str
    file: str
    test: str


FOOT = """
## Taken, and not done

- `submit(task_image=)`: tasks run from the workspace, without images. A warning says so.
- `submit(preemption_policy="terminate_children")`: child jobs go on when a task of their parent is lost and starts
  again, and end with the job. A warning says so.
- `FrayIrisClient(bundle_id=)`: inside a job, its workspace goes along with child jobs anyway. A warning for any other.
"""


def marks() -> Iterator[Mark]:
    """Give the marks of all tests, in the order of libraries, files and lines."""
    for library in LIBRARIES:
        for path in sorted(HERE.glob(f"test_{library}*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef):
                    for call, since in _marked(node, path):
                        yield Mark(library, call, since, path.name, node.name)


def page() -> str:
    """Return the page as it is to be."""
    found = list(marks())
    parts = [HEAD]
    for library in LIBRARIES:
        rows = [mark for mark in found if mark.library == library]
        if rows:
            parts.append(f"\n## {library}\n\n| call | since | test |\n|---|---|---|\n")
            for mark in rows:
                call = mark.call.replace("|", "\\|")
                place = f"[{mark.test}](../tests/compatibility/{mark.file})"
                parts.append(f"| `{call}` | {mark.since} | {place} |\n")
    return "".join([*parts, FOOT])


def _marked(test: ast.FunctionDef, path: Path) -> Iterator[tuple[str, str]]:
    for decorator in test.decorator_list:
        if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.compatible"):
            continue
        try:
            (call,) = (ast.literal_eval(argument) for argument in decorator.args)
            (since,) = (ast.literal_eval(given.value) for given in decorator.keywords if given.arg == "since")
        except ValueError:
            raise SystemExit(
                f'{path}:{decorator.lineno}: expected @pytest.mark.compatible("call", since="0.1.0")'
            ) from None
        yield call, since


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE}: stale; run {Path(__file__).name}")
    PAGE.write_text(page(), encoding="utf-8")
