"""Third-party packages of tasks: virtual environments built once per key by uv from its cache."""

import asyncio
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from iris.domain.states import FailureKind
from iris.worker.bundle import SingleFlight
from iris.worker.paths import WorkPaths
from iris.worker.types import PreparationFailed
from iris.worker.workspace import Workspace

_MARKER: Final = ".ready"
_ERROR_BYTES: Final = 4096
_FORMAT: Final = 1
"""Part of every key: change it when environments are built in another way."""


class ToolRunner(Protocol):
    """Runs a program to its end."""

    async def run(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> tuple[bool, str]:
        """Whether it succeeded, and the tail of its output. It is killed when the caller is cancelled."""
        ...


class EnvironmentStore:
    """Environments below `paths.envs`, each ready when its marker exists.

    Args:
        base: The variables that uv runs with (`task_env.base_variables`).
    """

    def __init__(self, paths: WorkPaths, tools: ToolRunner, base: Mapping[str, str]) -> None:
        self._paths = paths
        self._tools = tools
        self._base = base
        self._flights: SingleFlight[Path] = SingleFlight()
        self._uv_version = importlib.metadata.version("uv")

    def locked_key(self, workspace: Workspace, extras: Sequence[str], packages: Sequence[str]) -> str:
        """Names the environment of a locked workspace; equal keys mean equal third-party packages."""
        return self._key(workspace.lock_fingerprint(), extras, packages)

    async def locked(self, key: str, workspace: Workspace, extras: Sequence[str], packages: Sequence[str]) -> Path:
        """The environment of a locked workspace. Raises PreparationFailed (ENVIRONMENT) with uv's own words."""
        sync = ["sync", "--frozen", "--no-install-workspace", "--all-packages", "--no-default-groups"]
        for extra in sorted(set(extras)):
            sync += ["--extra", extra]
        hint = f"extras of this workspace: {', '.join(workspace.extras) or 'none'}" if extras else ""
        return await self._ready(key, workspace.root, sync, packages, hint)

    async def overlay(self, packages: Sequence[str]) -> Path:
        """The worker's own environment plus `packages`, for tasks without a locked workspace."""
        key = self._key(f"overlay {sys.prefix}", (), packages)
        return await self._ready(key, self._paths.scratch, ["venv", str(self._paths.envs / key)], packages, "")

    async def close(self) -> None:
        """Stop what is being built."""
        await self._flights.close()

    def _key(self, ground: str, extras: Sequence[str], packages: Sequence[str]) -> str:
        parts = [_FORMAT, ground, sorted(set(extras)), sorted(set(packages)), sys.version, sys.base_prefix]
        return hashlib.sha256(json.dumps([*parts, self._uv_version]).encode()).hexdigest()[:32]

    async def _ready(self, key: str, cwd: Path, make: list[str], packages: Sequence[str], hint: str) -> Path:
        path = self._paths.envs / key
        if (path / _MARKER).exists():
            return path
        return await self._flights.run(key, lambda: self._build(path, cwd, make, packages, hint))

    async def _build(self, path: Path, cwd: Path, make: list[str], packages: Sequence[str], hint: str) -> Path:
        try:
            await asyncio.to_thread(shutil.rmtree, path, True)
            await self._uv([*make, "--python", sys.executable], path, cwd, hint)
            if make[0] == "venv":
                _add_own_packages(path)
            if packages:
                python = str(path / "bin" / "python")
                await self._uv(["pip", "install", "--python", python, "--", *sorted(set(packages))], path, cwd, "")
            (path / _MARKER).touch()
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return path

    async def _uv(self, arguments: list[str], path: Path, cwd: Path, hint: str) -> None:
        env = {**self._base, "UV_PROJECT_ENVIRONMENT": str(path), "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        succeeded, output = await self._tools.run([_uv_program(), *arguments], env, cwd)
        if succeeded:
            return
        shown = " ".join(["uv", *arguments[:2]])
        words = output.strip()[-_ERROR_BYTES:] or "it said nothing"
        text = f"the environment could not be built ({shown}): {words}"
        raise PreparationFailed(FailureKind.ENVIRONMENT, f"{text}\n{hint}" if hint else text)


def _uv_program() -> str:
    import uv

    try:
        return os.fsdecode(uv.find_uv_bin())
    except FileNotFoundError as error:
        raise PreparationFailed(FailureKind.WORKER, f"the worker's uv program is missing: {error}") from error


def _add_own_packages(path: Path) -> None:
    # A .pth entry comes after the environment's own packages, so what the job asked for wins.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = path / "lib" / version / "site-packages"
    own = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    lines = [f"import site; site.addsitedir({directory!r})" for directory in own]
    (site / "_iris_worker.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
