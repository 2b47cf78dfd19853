"""How the whole fast tier is spread over processes, seen on a small project with this one's conftest and options."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each test leaves a line with its name and the process that ran it; "" is the one that was started.
TEST = """
import os
import pytest

with open(os.environ["RAN"] + ".collected", "a") as file:
    print("{name}", os.environ.get("PYTEST_XDIST_WORKER", "main"), file=file)

{mark}
@pytest.mark.parametrize("number", range(3))
def test_{name}(number):
    with open(os.environ["RAN"], "a") as file:
        print("{name}", os.environ.get("PYTEST_XDIST_WORKER", "main"), file=file)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two files of tests on Ray and four others."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ntestpaths = tests\naddopts = {options}\nmarkers =\n  ray\n  slow\n"
    )
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "tests").mkdir()
    for name in ("a", "b", "ray_c", "d", "ray_e", "f"):
        mark = "@pytest.mark.ray" if name.startswith("ray") else ""
        (tmp_path / "tests" / f"test_{name}.py").write_text(TEST.format(name=name, mark=mark))
    return tmp_path


def run(project: Path, *arguments: str) -> dict[str, set[str]]:
    """Run the tests; return in which processes each file's ran."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    # Without the plugins that take long to import.
    environment = {**outside, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "RAN": str(project / "ran")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "no:cacheprovider", *arguments],
        cwd=project, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (project / "ran").read_text().splitlines()]
    return {name: {worker for other, worker in lines if other == name} for name, _ in lines}


def test_the_whole_run_takes_several_processes_and_one_of_them_has_all_tests_on_ray(project: Path) -> None:
    ran = run(project)
    assert set(ran) == {"a", "b", "ray_c", "d", "ray_e", "f"}
    assert all(len(workers) == 1 for workers in ran.values()), "no file is split"
    assert ran["ray_c"] == ran["ray_e"]
    assert len(set.union(*ran.values())) > 1
    assert "main" not in set.union(*ran.values())


def test_processes_begin_to_collect_at_different_files_and_have_the_same_tests(project: Path) -> None:
    """What one has compiled by the time the others come there need not be compiled by each of them."""
    assert set(run(project, "-n", "3")) == {"a", "b", "ray_c", "d", "ray_e", "f"}
    collected: dict[str, list[str]] = {}
    for line in (project / "ran.collected").read_text().splitlines():
        name, worker = line.split()
        collected.setdefault(worker, []).append(name)
    assert {worker: names[0] for worker, names in collected.items()} == {"gw0": "a", "gw1": "d", "gw2": "ray_c"}
    assert {tuple(sorted(names)) for names in collected.values()} == {("a", "b", "d", "f", "ray_c", "ray_e")}


@pytest.mark.parametrize("arguments", [["tests/test_a.py", "tests/test_b.py"], ["-k", "a or b"]])
def test_a_part_of_it_runs_in_the_process_that_was_started(project: Path, arguments: list[str]) -> None:
    assert set.union(*run(project, *arguments).values()) == {"main"}
