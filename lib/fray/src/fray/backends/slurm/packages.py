"""Packages of jobs, installed once per set of requirements into the shared folder."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

from fray.types import EnvironmentConfig
from rigging.distributed_lock import lease
from rigging.errors import InvalidRequest

_TAIL: Final = 2000


def ensure_packages(folder: Path, environment: EnvironmentConfig | None) -> str | None:
    """Return a folder with an environment's packages and extras, installed by uv if it is missing; None if it has none.

    The folder is for the interpreter of this process, in which the jobs run. One process at a time installs, under a
    lease.

    Raises:
        InvalidRequest: uv is missing, or it failed. The message has the end of its output.
    """
    if environment is None or not (environment.pip_packages or environment.extras):
        return None
    project = Path(environment.workspace or ".")
    locked = [_digest_of(project / name) for name in ("pyproject.toml", "uv.lock")] if environment.extras else []
    key = json.dumps([sys.hexversion, list(environment.pip_packages), list(environment.extras), locked])
    target = folder / "packages" / hashlib.sha256(key.encode()).hexdigest()[:32]
    if not target.exists():
        target.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        with lease(str(target.with_name(f"{target.name}.lock")), wait_seconds=math.inf):
            if not target.exists():
                _install(target, environment, project)
    return str(target)


def _install(target: Path, environment: EnvironmentConfig, project: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        raise InvalidRequest("uv is not on PATH; it installs the packages of jobs: https://docs.astral.sh/uv")
    requirements = list(environment.pip_packages)
    partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        if environment.extras:
            extras = [word for extra in environment.extras for word in ("--extra", extra)]
            exported = _uv([uv, "export", "--frozen", "--no-default-groups", "--no-emit-workspace", *extras], project)
            partial.mkdir()
            (partial / "requirements.txt").write_text(exported)
            requirements += ["--requirement", str(partial / "requirements.txt")]
        _uv([uv, "pip", "install", "--python", sys.executable, "--target", str(partial), *requirements], project)
        os.rename(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _uv(command: list[str], project: Path) -> str:
    done = subprocess.run(
        command, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode != 0:
        raise InvalidRequest(f"{' '.join(command[:3])} in {project} failed:\n{done.stderr[-_TAIL:]}")
    return done.stdout


def _digest_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
