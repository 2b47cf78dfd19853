"""`ray_run` and steps with packages that Ray itself installs, on a real cluster whose Python has pip."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from fray.testing.ray_harness import need_namespaces
from support.iris.packages import make_wheel
from support.marin.programs import printed_address

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.process, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[4]
SERVE = """
import sys
from fray.testing.ray_harness import RayHarness
from fray.testing.ray_jobs import jobs_cluster
RayHarness.prepare()
with jobs_cluster() as cluster:
    print(cluster.jobs_address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with this workspace, Ray and pip, as a cluster's image has it."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("NOT TESTED: there is no uv to make an environment with pip")
    need_namespaces()
    environment = tmp_path_factory.mktemp("image") / "venv"
    subprocess.run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, environment], check=True)
    members = [word for name in ("rigging", "fray", "iris", "marin") for word in ("-e", f"{ROOT}/lib/{name}")]
    found = environment / "bin" / "python"
    # Compiled, as images are: a raylet gives its agent 15 s to load, which takes longer from sources on a busy machine.
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", found]
    subprocess.run([*install, *members, f"ray[default]=={version('ray')}"], check=True)
    return found


@pytest.fixture(scope="module")
def address(python: Path) -> Iterator[str]:
    with printed_address([python, "-c", SERVE], "/") as url:
        yield url


def ray_run(python: Path, address: str, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_", "FRAY_"))}
    program = ROOT / "marin" / "run" / "ray_run.py"
    return subprocess.run(
        [python, program, *words], cwd=cwd, env={**kept, "RAY_ADDRESS": address}, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip


def test_the_documents_command_with_the_dependencies_of_the_project(python: Path, address: str, tmp_path: Path) -> None:
    done = ray_run(
        python,
        address,
        ROOT,
        "--project-deps",
        "-e",
        "MARIN_PREFIX",
        str(tmp_path),
        "--",
        "python",
        "experiments/hello_world.py",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '{"sum": 4950, "min": 0, "max": 99}' in done.stdout


def wheel_of(folder: Path, name: str, number: str = "1.0") -> str:
    path = folder / f"{name}-{number}-py3-none-any.whl"
    make_wheel(path, name, number, {f"{name}.py": f"VERSION = {number!r}\n"})
    return str(path)


def test_groups_and_packages_are_there_and_missing_ones_are_told(python: Path, address: str, tmp_path: Path) -> None:
    wheels = {name: wheel_of(tmp_path, name) for name in ("core", "grouped", "typed")}
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        f"[project]\nname = 'study'\ndependencies = ['core @ file://{wheels['core']}', 'ray==1.0']\n"
        f"[project.optional-dependencies]\nmore_of = ['grouped @ file://{wheels['grouped']}']\n"
    )
    (project / "look.py").write_text("import core, grouped, typed, ray; print('found', typed.VERSION, ray.__version__)")
    words = ["--extra", "more-of", "--pip_deps", f"typed @ file://{wheels['typed']}", "--", "python", "look.py"]
    done = ray_run(python, address, project, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found 1.0 {version('ray')}" in done.stdout
    words = ["--pip_deps", f"none @ file://{tmp_path}/none-1.0-py3-none-any.whl", "--", "true"]
    done = ray_run(python, address, tmp_path, *words)
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
