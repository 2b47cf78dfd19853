"""The examples of the executor's pages run, and what the pages name is there."""

import dataclasses
import os
import re
import sys
from pathlib import Path

import pytest

from marin.execution import ExecutorMainConfig
from support.marin.programs import run_program

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.process
def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "executor.md").read_text(), re.DOTALL)
    assert len(blocks) > 10
    script = tmp_path / "experiment.py"
    script.write_text("\n".join(blocks))
    run_program([sys.executable, str(script)], tmp_path, {**os.environ, "MARIN_PREFIX": str(tmp_path / "prefix")})


WHOLE = (
    *("docs/datasets.md", "docs/executor.md", "docs/mirror.md", "README.md", "lib/fray/README.md"),
    *("lib/rigging/README.md", "docs/experiments.md", "docs/storage.md", "docs/resources.md"),
    *("docs/cheat-sheet.md", "docs/how-to/moving-from.md"),
)
IN_PARTS = ("docs/fray.md", "lib/marin/README.md")


@pytest.mark.process
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("pages", "options"), [(WHOLE, ()), (IN_PARTS, ("name-defined", "no-untyped-def"))])
def test_the_examples_have_no_type_errors(tmp_path: Path, pages: tuple[str, ...], options: tuple[str, ...]) -> None:
    root = DOCS.parent
    for page in pages:
        blocks = re.findall(r"```python[^\n]*\n(.*?)```", (root / page).read_text(), re.DOTALL)
        assert blocks, page
        (tmp_path / (re.sub(r"\W", "_", page) + ".py")).write_text("\n".join(blocks))
    files = sorted(str(path) for path in tmp_path.glob("*.py"))
    ignored = [f"--disable-error-code={code}" for code in options]
    run_program([sys.executable, "-m", "mypy", "--strict", *ignored, *files], root, seconds=380)


def test_the_options_are_those_of_the_command_line() -> None:

    page = (DOCS / "reference" / "runs.md").read_text()
    for field in dataclasses.fields(ExecutorMainConfig):
        assert f"--{field.name}" in page
