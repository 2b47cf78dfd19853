"""Packages of jobs on Ray, installed once per host and set of requirements, separate from the cluster's own."""

import fcntl
import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from fray.backends.common.processes import with_own_python
from fray.backends.ray.resources import PACKAGES_FOLDER, packages_digest
from fray.errors import JobFailed
from rigging.filesystem.private import check_own_folder

_TAIL = 2000


def ensure_packages(requirements: Sequence[str]) -> str:
    """Return the directory with these packages and their dependencies, installing them once per host.

    The directory comes first on sys.path, so it never contains Ray: another version than the cluster's would break the
    job.

    Raises:
        JobFailed: The installation failed. The message includes the installer's output.
        Denied: Other users could write to the directory.
    """
    folder = _own_folder(os.path.join(tempfile.gettempdir(), f"{PACKAGES_FOLDER}{os.getuid()}"))
    directory = os.path.join(folder, f"py{sys.hexversion:x}-{packages_digest(requirements)}")
    done = os.path.join(directory, ".complete")
    if not os.path.exists(done):
        with open(f"{directory}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(done):
                shutil.rmtree(directory, ignore_errors=True)
                _install(requirements, directory)
                _remove_ray(directory)
                with open(done, "w"):
                    pass
    importlib.invalidate_caches()
    return directory


def _own_folder(path: str) -> str:
    """Create a folder that only this user can write to. Check an existing one, because its name is predictable."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    check_own_folder(path, "the folder for packages of jobs", "remove it", follow_links=False)
    return path


def _install(requirements: Sequence[str], directory: str) -> None:
    uv = shutil.which("uv", path=with_own_python(os.environ.get("PATH")))
    if uv is not None:
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    else:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    result = subprocess.run(
        [*command, "--target", directory, *requirements],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        raise JobFailed(f"cannot install {', '.join(requirements)}:\n{result.stdout[-_TAIL:]}")


def _remove_ray(directory: str) -> None:
    for entry in os.listdir(directory):
        if entry == "ray" or (entry.startswith("ray-") and entry.endswith(".dist-info")):
            shutil.rmtree(os.path.join(directory, entry), ignore_errors=True)
