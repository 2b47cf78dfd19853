"""The experiment that newcomers run first."""

import os
import sys
from pathlib import Path

import pytest

from support.marin.programs import run_program

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[4]
STATS = "hello_world/stats-b5daf3"
RESULT = 'stats: {"sum": 4950, "min": 0, "max": 99}\n'


def test_its_paths_its_result_and_its_second_run(tmp_path: Path) -> None:
    env = {**os.environ, "MARIN_PREFIX": str(tmp_path / "p")}
    planned = run_program([sys.executable, "-m", "experiments.hello_world", "--dry_run"], ROOT, env)
    assert STATS in planned.stdout
    assert not (tmp_path / "p").exists(), "a dry run makes nothing"
    first = run_program([sys.executable, str(ROOT / "experiments" / "hello_world.py")], tmp_path, env)
    assert first.stdout.endswith(RESULT)
    assert first.stdout.count("SUCCESS (ran ") == 2
    for path in ("hello_world/data-d50b06", STATS):
        assert (tmp_path / "p" / path / ".executor_status").read_text() == "SUCCESS"
        assert str(tmp_path / "p" / path) in first.stdout
    second = run_program([sys.executable, "-m", "experiments.tutorials.hello_world"], ROOT, env)
    assert second.stdout.endswith(RESULT)
    assert second.stdout.count("SUCCESS (already done)") == 2
    assert second.stderr.count("already done") == 2


@pytest.mark.parametrize("module", ["tutorials.hello_world_remote", "hello_world"])
def test_a_module_is_named_as_it_was_started_and_the_remote_variant_has_the_same_paths(
    module: str, tmp_path: Path
) -> None:
    done = run_program(
        [sys.executable, "-m", f"experiments.{module}"], ROOT, {**os.environ, "MARIN_PREFIX": str(tmp_path)}
    )
    assert done.stdout.endswith(RESULT)
    assert '"fn_name": "experiments.hello_world.compute_stats"' in (tmp_path / STATS / ".executor_info").read_text()
    assert (tmp_path / STATS / "stats.json").is_file()
