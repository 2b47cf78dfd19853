"""What a run takes, how it is spread over processes and what it tells, seen on a small project with our options."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
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
        f"[pytest]\ntestpaths = tests\naddopts = {options}\nmarkers =\n  ray\n  process\n  soak\n  quarantine\n"
    )
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "tests").mkdir()
    for name in ("a", "b", "ray_c", "d", "ray_e", "f"):
        add(tmp_path, name, "@pytest.mark.ray" if name.startswith("ray") else "")
    return tmp_path


def add(project: Path, name: str, mark: str) -> None:
    (project / "tests" / f"test_{name}.py").write_text(TEST.format(name=name, mark=mark))


def run(project: Path, *arguments: str) -> dict[str, set[str]]:
    """Run the tests; return in which processes each file's ran."""
    return by_file(project, *arguments)[0]


def by_file(project: Path, *arguments: str) -> tuple[dict[str, set[str]], str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    # Without the plugins that take long to import.
    environment = {**outside, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "RAN": str(project / "ran")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "no:cacheprovider", *arguments],
        cwd=project, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (project / "ran").read_text().splitlines()]
    return {name: {worker for other, worker in lines if other == name} for name, _ in lines}, done.stdout


def test_the_whole_run_takes_several_processes_and_one_of_them_has_all_tests_on_ray(project: Path) -> None:
    ran = run(project)
    assert set(ran) == {"a", "b", "ray_c", "d", "ray_e", "f"}
    assert all(len(workers) == 1 for workers in ran.values()), "no file is split"
    assert ran["ray_c"] == ran["ray_e"]
    assert len(set.union(*ran.values())) > 1
    assert "main" not in set.union(*ran.values())


@pytest.mark.parametrize("arguments", [["tests/test_a.py", "tests/test_b.py"], ["-k", "a or b"]])
def test_a_part_of_it_runs_in_the_process_that_was_started(project: Path, arguments: list[str]) -> None:
    assert set.union(*run(project, *arguments).values()) == {"main"}


@pytest.mark.parametrize(
    ("tier", "taken"),
    [([], {"a"}), (["-m", "process"], {"b", "c"}), (["-m", "soak"], {"d", "e"})],
    ids=["fast", "process", "soak"],
)
def test_each_tier_takes_its_own_tests_and_a_test_of_two_is_of_the_slower(
    project: Path, tier: list[str], taken: set[str]
) -> None:
    shutil.rmtree(project / "tests")
    (project / "tests").mkdir()
    process, soak = "@pytest.mark.process", "@pytest.mark.soak"
    for name, mark in {"a": "", "b": process, "c": "pytestmark = pytest.mark.process\n", "d": soak}.items():
        add(project, name, mark)
    add(project, "e", f"pytestmark = pytest.mark.process\n\n{soak}")
    assert set(run(project, *tier)) == taken


def test_a_test_in_quarantine_runs_apart_and_is_shown_in_every_run(project: Path) -> None:
    add(project, "b", "@pytest.mark.quarantine('ends too early')")
    ran, output = by_file(project)
    assert "b" not in ran
    assert "3 in quarantine" in output
    assert "tests/test_b.py::test_b[0]: ends too early" in output
    assert set(by_file(project, "-m", "quarantine")[0]) >= {"b"}
