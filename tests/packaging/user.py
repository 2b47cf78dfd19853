"""Somebody outside of this repository who has the wheels: a folder, commands that run there, a cluster of their own."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iris.python_tools.uv import uv_program

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARIES = {"rigging": "marin-rigging", "fray": "marin-fray", "iris": "marin-iris", "marin": "marin"}

# Variables that would lead back to this repository's environment, or into the job that the tests run in.
_OURS = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "CONDA_PREFIX")
_OUR_PREFIXES = ("IRIS_", "MARIN_", "FRAY_", "UV_", "COVERAGE", "PYTEST_")


@dataclass
class Outsider:
    """A user with a home directory of their own.

    Args:
        root: All that they have is below it.
        path: Folders that come first on PATH.
    """

    root: Path
    path: Sequence[Path] = ()
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in _OURS and not k.startswith(_OUR_PREFIXES)}
        home = self.root / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {
            **kept,
            "HOME": str(home),
            "PATH": os.pathsep.join([*map(str, self.path), os.path.dirname(uv_program()), kept["PATH"]]),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", os.path.expanduser("~/.cache/uv")),
            "IRIS_STATE_DIR": str(self.root / "iris"),
            "MARIN_PREFIX": str(self.root / "storage"),
            **self.extra,
        }

    def run(self, command: str | Sequence[str], cwd: Path | None = None, timeout: float = 240) -> str:
        """Run a command (a text: lines for bash) that succeeds, and return what it wrote, errors included."""
        words = ["bash", "-ec", command] if isinstance(command, str) else list(command)
        place = cwd or self.root
        done = subprocess.run(
            words, cwd=place, env=self.environment(), capture_output=True, text=True, timeout=timeout, check=False
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{told}"
        return told


def build_wheels(place: Path) -> Path:
    """Build the wheels of all libraries into `place`."""
    command = [uv_program(), "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(place)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return place


def locked_versions(place: Path) -> Path:
    """Write the versions of third-party packages that uv.lock has, as constraints for an installation."""
    command = [uv_program(), "export", "--quiet", "--frozen", "--no-hashes", "--no-emit-workspace", "--no-annotate",
               "--no-default-groups", "--package", "marin", "--output-file", str(place)]  # fmt: skip
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    return place
