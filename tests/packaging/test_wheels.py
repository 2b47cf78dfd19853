"""The wheels work where this repository is not: installed into an environment of every Python that they name."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iris.python_tools.uv import uv_program
from tests.packaging.user import REPOSITORY, Outsider, locked_versions

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(600)]

# What only extras and the kits for tests bring; a module that needs anything else lacks a dependency.
FROM_EXTRAS = {
    *("ray", "aiohttp", "pytest", "jax", "matplotlib", "grpc_tools", "gcsfs", "s3fs", "numpy", "starlette", "uvicorn"),
    *("jinja2", "httpx2", "websockets", "anyio", "playwright", "IPython", "pyarrow", "pydantic"),
    *("google", "asyncssh"),
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
            lacks = error.name or getattr(error.__cause__, "name", None) or str(error)  # the cause of a MissingExtra
            failed[found.name] = lacks.partition(".")[0]
print(json.dumps([count, failed]))
"""


def interpreter(version: str) -> str:
    """An interpreter of that version that starts: on PATH, or among those of pyenv, whose own shims may refuse."""
    shelves = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(shelves.glob(f"{version}.*/bin/python{version}")))]
    asked = "import sys, ssl, sqlite3, venv; print('%d.%d' % sys.version_info[:2])"
    for candidate in [sys.executable, *candidates]:
        if candidate is not None:
            told = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False, timeout=60)
            if told.stdout.strip() == version:
                return candidate
    pytest.skip(f"NOT TESTED: there is no Python {version} on this machine (looked on PATH and in pyenv's versions)")


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_all_of_it_imports_and_experiments_run_as_jobs(outsider: Outsider, wheels: Path, version: str) -> None:
    uv, environment = uv_program(), outsider.root / ".venv"
    outsider.run([uv, "venv", "--quiet", "--python", interpreter(version), ".venv"])
    versions = locked_versions(outsider.root / "constraints.txt")
    where = ["--python", str(environment), "--find-links", str(wheels), "--constraints", str(versions)]
    outsider.run([uv, "pip", "install", "--quiet", *where, "marin"])
    told = outsider.run([str(environment / "bin" / "python"), "-c", IMPORT_ALL])
    count, failed = json.loads(told.splitlines()[-1])
    assert count > 600
    assert {module: lacks for module, lacks in failed.items() if lacks not in FROM_EXTRAS} == {}

    folder = outsider.root / "work"
    shutil.copytree(REPOSITORY / "experiments", folder / "experiments")
    run = [str(environment / "bin" / "iris"), "job", "run", "--", "python"]
    assert '"sum": 4950' in outsider.run([*run, "-m", "experiments.hello_world"], folder)
    outsider.extra["MARIN_PREFIX"] = str(outsider.root / "again")
    told = outsider.run([*run, "-m", "experiments.tutorials.hello_world_remote"], folder)
    assert '"sum": 4950' in told, told
    assert "already done" not in told
    told = outsider.run([*run, "-c", "import marin, sys; print('ran on', sys.version, marin.__file__)"], folder)
    assert f"ran on {version}" in told
    assert str(environment) in told
