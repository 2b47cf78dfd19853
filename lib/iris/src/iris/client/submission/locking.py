"""Lock a project without a uv.lock in a temporary copy. The user's folder is never touched."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.client.submission.bundle import gather_files
from iris.client.submission.project import LOCK_FILE, METADATA_FILES, Project
from iris.local.state import local_paths
from iris.python_tools.uv import is_network_failure, uv_program
from rigging.errors import InvalidRequest

LOCK_SECONDS: Final = 600.0
_ERROR_BYTES: Final = 4096
# Variables of `uv run` and of habits, which would make uv lock another project, or not lock at all.
_NOT_FOR_UV: Final = ("UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY", "UV_FROZEN")
_NOT_FOR_UV_EITHER: Final = ("UV_LOCKED", "UV_RUN_RECURSION_DEPTH", "UV_PYTHON", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Uv:
    """The uv program.

    Args:
        program: Its path.
        timeout_s: Timeout in seconds.
        scratch: The folder for copies; None for the system's temporary folder.
    """

    program: str
    timeout_s: float = LOCK_SECONDS
    scratch: Path | None = None


def lock_project(
    project: Project,
    project_dir: str,
    beside: Mapping[str, Path],
    python: str,
    environ: Mapping[str, str],
    uv: Uv | None = None,
) -> Path:
    """Lock `project` and return the lock file. Packages keep the versions of the earlier lock where possible.

    Args:
        project: The project, which is not changed.
        project_dir: Its directory in the bundle, whose layout the copy follows.
        beside: As in `make_bundle`.
        python: The Python for the lock; empty for uv's choice.
        environ: The environment variables for uv.
        uv: The uv to use; None for the one in this environment.

    Raises:
        InvalidRequest: The project cannot be locked. The message is uv's.
    """
    kept = _kept_lock(project.root, environ)
    uv = uv or Uv(uv_program())
    with tempfile.TemporaryDirectory(prefix="iris-lock-", dir=uv.scratch) as scratch:
        place = Path(scratch) / project_dir
        _copy(project, project_dir, beside, Path(scratch))
        with contextlib.suppress(OSError):
            shutil.copyfile(kept, place / LOCK_FILE)
        words = _run(uv, ["lock", *(["--python", python] if python else [])], place, environ)
        if words and is_network_failure(words):
            words = _run(uv, ["lock", "--offline", *(["--python", python] if python else [])], place, environ) and words
        if words:
            words = words.replace(scratch, str(project.root)).strip()[-_ERROR_BYTES:]
            raise InvalidRequest(f"the packages of {project.root} cannot be locked (uv lock): {words}")
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = kept.with_name(f".{kept.name}.{os.getpid()}")
        shutil.copyfile(place / LOCK_FILE, fresh)
        fresh.replace(kept)
    return kept


def _kept_lock(root: Path, environ: Mapping[str, str]) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return local_paths(environ).root / "locks" / f"{name}.lock"


def _copy(project: Project, project_dir: str, beside: Mapping[str, Path], scratch: Path) -> None:
    for path, (source, file) in gather_files(project.root, project_dir, beside).files.items():
        name = path.rpartition("/")[2]
        # What is static says what it needs in its metadata; anything else may read any of its files.
        if not project.builds and name not in METADATA_FILES and path not in beside:
            continue
        target = scratch / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.symlink_target is not None:
            target.symlink_to(file.symlink_target)
            continue
        with contextlib.suppress(FileNotFoundError, PermissionError):
            shutil.copyfile(source, target)
    for place, source in beside.items():  # a dependency without metadata is still to be found
        if source.is_dir():
            (scratch / place).mkdir(parents=True, exist_ok=True)
    (scratch / project_dir).mkdir(parents=True, exist_ok=True)


def _run(uv: Uv, arguments: list[str], cwd: Path, environ: Mapping[str, str]) -> str:
    """Run uv and return its error message; empty if it succeeded."""
    dropped = (*_NOT_FOR_UV, *_NOT_FOR_UV_EITHER)
    env = {name: value for name, value in environ.items() if name not in dropped}
    env |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    command = [uv.program, *arguments]
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, check=False, timeout=uv.timeout_s, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {uv.timeout_s:.0f} s"
    if done.returncode == 0:
        return ""
    return done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
