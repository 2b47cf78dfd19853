"""The page about adding a dataset is an experiment that runs."""

import os
import sys
from pathlib import Path

import pytest

from support.marin.programs import run_program
from tests.docs.blocks import REPOSITORY, blocks_of

pytestmark = pytest.mark.process


def test_the_experiment_of_the_page(tmp_path: Path) -> None:
    script = tmp_path / "birds.py"
    script.write_text("\n".join(block.text for block in blocks_of("docs/datasets.md") if block.language == "python"))
    own = {"FRAY_CLIENT": "local", "MARIN_PREFIX": f"{tmp_path}/prefix", "PYTHONPATH": str(REPOSITORY)}
    done = run_program([sys.executable, str(script)], tmp_path, {**os.environ, **own, "TMPDIR": str(tmp_path)})
    assert "200 rows in the first" in done.stdout
    assert "source: struct<site: string, year: int64>" in done.stdout
    assert done.stdout.count("SUCCESS (ran") == 4
    copied = sorted((tmp_path / "prefix" / "raw").glob("birds-*/*.parquet"))
    assert [path.name for path in copied] == ["part-0.parquet", "part-1.parquet"]
