"""The experiment that newcomers run first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
DATA, STATS = "hello_world/data-d50b06", "hello_world/stats-b5daf3"
RESULT = 'stats: {"sum": 4950, "min": 0, "max": 99}\n'


def run(prefix: Path, *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MARIN_PREFIX": str(prefix)}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=True, timeout=60
    )


@pytest.mark.e2e
def test_its_paths_its_result_and_its_second_run(tmp_path: Path) -> None:
    script = str(ROOT / "experiments" / "hello_world.py")
    first = run(tmp_path / "p", script, cwd=tmp_path)
    assert first.stdout.endswith(RESULT)
    assert first.stdout.count("SUCCESS (ran ") == 2
    for path in (DATA, STATS):
        assert (tmp_path / "p" / path / ".executor_status").read_text() == "SUCCESS"
        assert str(tmp_path / "p" / path) in first.stdout
    second = run(tmp_path / "p", "-m", "experiments.tutorials.hello_world")
    assert second.stdout.endswith(RESULT)
    assert second.stdout.count("SUCCESS (already done)") == 2
    assert second.stderr.count("already done") == 2


@pytest.mark.e2e
def test_the_remote_variant_has_the_same_paths(tmp_path: Path) -> None:
    result = run(tmp_path / "p", "-m", "experiments.tutorials.hello_world_remote")
    assert result.stdout.endswith(RESULT)
    assert (
        '"fn_name": "experiments.hello_world.compute_stats"' in (tmp_path / "p" / STATS / ".executor_info").read_text()
    )
    assert (tmp_path / "p" / STATS / "stats.json").is_file()


@pytest.mark.e2e
def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    result = run(tmp_path / "p", "-m", "experiments.hello_world", "--dry_run")
    assert STATS in result.stdout
    assert not (tmp_path / "p").exists()


@pytest.mark.e2e
def test_a_module_is_named_as_it_was_started(tmp_path: Path) -> None:
    run(tmp_path / "p", "-m", "experiments.hello_world")
    info = (tmp_path / "p" / STATS / ".executor_info").read_text()
    assert '"fn_name": "experiments.hello_world.compute_stats"' in info
