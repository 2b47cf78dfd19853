"""Every Python that the classifiers name runs the first experiments from the wheels, and a step as a child job."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.test_wheels import install
from tests.packaging.user import REPOSITORY, Outsider

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


def interpreter(version: str) -> str | None:
    """An interpreter of that version that starts: on PATH, or among those of pyenv, whose own shims may refuse."""
    shelves = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(shelves.glob(f"{version}.*/bin/python{version}")))]
    for candidate in candidates:
        if candidate is not None:
            asked = [candidate, "-c", "import sys, ssl, sqlite3, venv; print('%d.%d' % sys.version_info[:2])"]
            told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
            if told.returncode == 0 and told.stdout.strip() == version:
                return candidate
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_hello_world_and_a_remote_step(outsider: Outsider, wheels: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(
            f"NOT TESTED: there is no Python {version} on this machine (looked on PATH and in pyenv's versions)"
        )
    programs = install(outsider, wheels, python)
    folder = outsider.root / "work"
    shutil.copytree(REPOSITORY / "experiments", folder / "experiments")
    told = outsider.run([str(programs / "python"), "-c", "import sys; print(sys.version)"])
    assert told.startswith(version)

    run = [str(programs / "iris"), "job", "run", "--"]
    told = outsider.run([*run, "python", "-m", "experiments.hello_world"], folder)
    assert '"sum": 4950' in told, told
    outsider.extra["MARIN_PREFIX"] = str(outsider.root / "again")
    told = outsider.run([*run, "python", "-m", "experiments.tutorials.hello_world_remote"], folder)
    assert '"sum": 4950' in told, told
    assert "already done" not in told
    told = outsider.run([*run, "python", "-c", "import sys; print('ran on', sys.version)"], folder)
    assert f"ran on {version}" in told
