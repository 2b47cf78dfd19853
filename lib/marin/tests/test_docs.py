"""The examples of the executor's pages run, and what the pages name is there."""

import dataclasses
import importlib
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


def test_names_of_the_reference_are_there() -> None:
    """Each name at the beginning of a table's first column, in the module that its section or its row says."""
    page = (DOCS / "reference" / "executor.md").read_text()
    checked = 0
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, rows = section.partition("\n")
        heading = re.match(r"marin\.[a-z_.]+", title)
        modules = [heading.group() if heading else "marin.execution"]
        modules += ["marin.execution.step_runner"] if "step_runner" in title else []
        for row in re.findall(r"^\| (`.*?) \| ", rows, re.MULTILINE):
            named = re.match(r"`((?:marin|rigging)\.[a-z_.]+)`: ", row)
            current = [named.group(1)] if named else modules
            if named:
                modules = current
                row = row[named.end() :]
            for code in re.findall(r"`([^`]+)`", row):
                code = code.replace("StepRunner()", "StepRunner")
                match = re.match(r"((?:rigging|marin)\.[a-z_.]+\.)?([A-Z]\w*\.)?(\w+)(?:\(|$)", code)
                if match is None or code.startswith(("python", ".", "step /", "input /")):
                    continue
                places = [match.group(1).rstrip(".")] if match.group(1) else current
                name = (match.group(2) or "") + match.group(3)
                if title.startswith("Errors") and not match.group(1):
                    places = ["marin.execution.executor_step_status"]
                assert any(has(place, name) for place in places), f"{name} is not in {places} ({title})"
                checked += 1
    assert checked > 50


def has(module: str, name: str) -> bool:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part) and part not in getattr(found, "__dataclass_fields__", {}):
            return False
        found = getattr(found, part, None)
    return True
