"""A user's program has the types it states, and the examples have no errors for pyright, which most editors show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iris.python_tools.uv import uv_program
from support.marin.programs import run_program
from tests.docs.blocks import REPOSITORY, blocks_of

# Pages whose Python is one program.
PROGRAMS = (
    "README.md",
    "docs/datasets.md",
    "docs/executor.md",
    "docs/experiments.md",
    "docs/mirror.md",
    "docs/resources.md",
    "docs/storage.md",
    "lib/fray/README.md",
    "lib/marin/README.md",
    "lib/rigging/README.md",
)
# Those of the extra `quickstart` alone are looked for where they are installed.
SETTINGS = {
    "typeCheckingMode": "standard",
    "include": ["experiments", "pages"],
    "reportMissingImports": "warning",
    # A page says `if __name__ == "__main__": paths = ...` and goes on with `paths`.
    "reportPossiblyUnboundVariable": "none",
}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_examples_and_pages_have_no_errors(tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "experiments").symlink_to(REPOSITORY / "experiments")
    (tmp_path / "pages").mkdir()
    for page in PROGRAMS:
        code = "\n".join(block.text for block in blocks_of(page) if block.language == "python")
        (tmp_path / "pages" / (re.sub(r"\W", "_", page) + ".py")).write_text(code)
    for block in blocks_of("docs/own-project.md"):
        if block.title:
            place = tmp_path / "pages" / block.title.removeprefix("src/")
            place.parent.mkdir(exist_ok=True)
            place.write_text(block.text)
    told = pyright(tmp_path)
    assert [found for found in told["generalDiagnostics"] if found["severity"] == "error"] == []
    assert told["summary"]["filesAnalyzed"] > len(PROGRAMS) + 20, "the experiments, too"


def pyright(project: Path) -> Any:
    """Return what pyright tells of the files that the settings in this directory include."""
    command = [uv_program(), "run", "--isolated", "--frozen", "--only-group", "pyright", "basedpyright"]
    here = subprocess.run([*command, "--version"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if here.returncode:
        pytest.skip(f"pyright can be neither found nor downloaded, so what it says is not tested: {here.stderr}")
    done = subprocess.run(
        [*command, "--project", str(project), "--pythonpath", sys.executable, "--outputjson"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    assert done.stdout.strip().startswith("{"), done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.process
def test_values_have_the_types_of_the_functions_that_return_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text((Path(__file__).parent / "typed_program.py").read_text())
    run_program([sys.executable, "-m", "mypy", "--strict", str(program)], tmp_path, seconds=100)
    run_program([sys.executable, str(program)], tmp_path, {**os.environ, "MARIN_PREFIX": str(tmp_path / "prefix")})
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["program.py"]}))
    told = pyright(tmp_path)
    assert told["generalDiagnostics"] == []
    assert told["summary"]["filesAnalyzed"] == 1
