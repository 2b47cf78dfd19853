"""The examples have no type errors for pyright either, which is what most editors show."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iris.python_tools.uv import uv_program
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
    command = [uv_program(), "run", "--isolated", "--frozen", "--only-group", "pyright", "basedpyright"]
    done = subprocess.run(
        [*command, "--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    assert done.stdout.strip().startswith("{"), done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert [found for found in told["generalDiagnostics"] if found["severity"] == "error"] == []
    assert told["summary"]["filesAnalyzed"] > len(PROGRAMS) + 20, "the experiments, too"
