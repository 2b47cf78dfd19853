"""A hundred thousand inputs go through `map_files` in the memory of a few."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[5] / "benchmarks" / "map_files.py"

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_a_hundred_thousand_inputs() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--memory", "100000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout)
    print(figures)
    assert figures["most_ahead"] <= 10_000, "inputs that were taken and not finished"
    tenths = figures["resident_mb_at_each_tenth"]
    # 80,000 inputs lie between the two: 8 bytes in a set for each, some 70 with what that takes; a task would be 500.
    assert tenths[-1] - tenths[1] < 20
