"""The page about adding a dataset is an experiment that runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY, blocks_of

PAGE = "docs/datasets.md"


@pytest.mark.e2e
def test_the_experiment_of_the_page(tmp_path: Path) -> None:
    script = tmp_path / "birds.py"
    script.write_text("\n".join(block.text for block in blocks_of(PAGE) if block.language == "python"))
    environment = {
        **os.environ,
        "FRAY_CLIENT": "local",
        "MARIN_PREFIX": str(tmp_path / "prefix"),
        "PYTHONPATH": str(REPOSITORY),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "200 rows in the first" in done.stdout
    assert "source: struct<site: string, year: int64>" in done.stdout
    assert done.stdout.count("SUCCESS (ran") == 4
    copied = sorted((tmp_path / "prefix" / "raw").glob("birds-*/*.parquet"))
    assert [path.name for path in copied] == ["part-0.parquet", "part-1.parquet"]
