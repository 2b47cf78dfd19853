"""The wheels work where this repository is not: installed into an environment that has nothing else."""

import json
import sys
from pathlib import Path

import pytest

from iris.python_tools.uv import uv_program
from tests.packaging.user import Outsider, locked_versions

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]

# What only extras and the kits for tests bring; a module that needs anything else lacks a dependency.
FROM_EXTRAS = {"ray", "aiohttp", "pytest", "jax", "matplotlib", "grpc_tools", "gcsfs", "s3fs", "numpy"} | {
    *("starlette", "uvicorn", "jinja2", "httpx2", "websockets", "anyio", "playwright", "IPython", "pyarrow")
}

IMPORT_ALL = """
import importlib, json, pkgutil
failed, count = {}, 0
for name in ("rigging", "fray", "iris", "marin"):
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if found.name.endswith("__main__"):
            continue
        count += 1
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            failed[found.name] = (error.name or str(error)).partition(".")[0]
print(json.dumps([count, failed]))
"""


def install(outsider: Outsider, wheels: Path, python: str = sys.executable) -> Path:
    """Make an environment with `marin` from the wheels; return its folder of programs."""
    uv = uv_program()
    outsider.run([uv, "venv", "--quiet", "--python", python, ".venv"])
    versions = locked_versions(outsider.root / "constraints.txt")
    place = str(outsider.root / ".venv")
    where = ["--python", place, "--find-links", str(wheels), "--constraints", str(versions)]
    outsider.run([uv, "pip", "install", "--quiet", *where, "marin"])
    return outsider.root / ".venv" / "bin"


def test_all_of_it_imports_and_a_command_runs_as_a_job(outsider: Outsider, wheels: Path) -> None:
    programs = install(outsider, wheels)
    count, failed = json.loads(outsider.run([str(programs / "python"), "-c", IMPORT_ALL]).splitlines()[-1])
    assert count > 600
    assert {module: lacks for module, lacks in failed.items() if lacks not in FROM_EXTRAS} == {}
    command = ["python", "-c", "import marin; print(marin.__file__)"]
    told = outsider.run([str(programs / "iris"), "job", "run", "--no-workspace", "--", *command])
    assert str(outsider.root / ".venv") in told
    assert "succeeded" in told
