"""Chooses the environment for a job's attempts."""

import asyncio
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from iris.domain.runtime import PackageSource, TaskRuntime
from iris.domain.states import FailureKind
from iris.worker.paths import WorkPaths
from iris.worker.prepare.environment import REQUIREMENTS_FILE, EnvironmentStore
from iris.worker.prepare.interpreters import Interpreter, own_interpreter
from iris.worker.prepare.task_env import worker_environment
from iris.worker.prepare.workspace import Workspace
from iris.worker.types import Launch, PreparationFailed


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """An environment that exists on this host.

    Args:
        bin_dir: The directory of its `python`.
        virtual_env: Its directory, if it is a virtual environment.
    """

    bin_dir: str
    virtual_env: str


@dataclass(frozen=True, slots=True)
class JobSources:
    """The unpacked files of a job; all None without a bundle. `project` is the workspace's directory in `bundle`."""

    bundle: Path | None = None
    project: Path | None = None
    workspace: Workspace | None = None


class JobEnvironments:
    """Finds or creates the environments of jobs."""

    def __init__(self, paths: WorkPaths, environments: EnvironmentStore) -> None:
        self._paths = paths
        self._environments = environments
        self._interpreters = environments.interpreters
        self._own = worker_environment()
        self._keys: dict[tuple[object, ...], str] = {}

    async def find(self, launch: Launch, sources: JobSources) -> JobEnvironment:
        """Return the environment of a job. Raises PreparationFailed."""
        runtime = launch.runtime
        source = runtime.packages
        workspace = sources.workspace
        if source is PackageSource.UNSPECIFIED:
            locked = workspace is not None and workspace.has_lock
            source = PackageSource.LOCK if locked else PackageSource.UNSPECIFIED
        if launch.extras and source is not PackageSource.LOCK:
            raise PreparationFailed(
                FailureKind.ENVIRONMENT,
                f"extras {', '.join(launch.extras)} were requested, but the job's workspace has no "
                "pyproject.toml with a uv.lock that could define them",
            )
        if source is PackageSource.SUBMITTER:
            return await self._submitters(launch)
        if source is PackageSource.UNSPECIFIED:
            return await self._workers_own(launch)
        python = await self._interpreters.find(runtime.python, runtime.interpreter)
        match source:
            case PackageSource.LOCK:
                return await self._locked(launch, sources, python)
            case PackageSource.REQUIREMENTS:
                return await self._required(launch, sources, python)
            case _:
                return _at(await self._environments.plain(launch.pip_packages, python))

    async def _locked(self, launch: Launch, sources: JobSources, python: Interpreter) -> JobEnvironment:
        workspace, bundle = sources.workspace, sources.bundle
        if workspace is None or bundle is None or not workspace.has_lock:
            raise PreparationFailed(FailureKind.ENVIRONMENT, "the job's workspace has no pyproject.toml with a uv.lock")
        asked = (workspace.root, launch.extras, launch.pip_packages, python)
        if asked not in self._keys:
            self._keys[asked] = await asyncio.to_thread(
                self._environments.locked_key, workspace, launch.extras, launch.pip_packages, python
            )
        key = self._keys[asked]
        return _at(await self._environments.locked(key, workspace, bundle, launch.extras, launch.pip_packages, python))

    async def _required(self, launch: Launch, sources: JobSources, python: Interpreter) -> JobEnvironment:
        project, bundle = sources.project, sources.bundle
        if project is None or bundle is None or not (project / REQUIREMENTS_FILE).is_file():
            raise PreparationFailed(FailureKind.ENVIRONMENT, f"the job's workspace has no {REQUIREMENTS_FILE}")
        key = await asyncio.to_thread(self._environments.required_key, project, launch.pip_packages, python)
        return _at(await self._environments.required(key, project, bundle, launch.pip_packages, python))

    async def _submitters(self, launch: Launch) -> JobEnvironment:
        found = await asyncio.to_thread(self._at_submitter, launch.runtime)
        if not launch.pip_packages:
            return found
        below = await self._interpreters.probe(os.path.join(found.bin_dir, "python"))
        if below is None:
            raise PreparationFailed(FailureKind.ENVIRONMENT, f"the submitter's Python in {found.bin_dir} does not run")
        return _at(await self._environments.plain(launch.pip_packages, below, over=below))

    def _at_submitter(self, runtime: TaskRuntime) -> JobEnvironment:
        prefix = runtime.environment_path
        own_bin = os.path.join(prefix, "bin")
        if os.path.exists(os.path.join(own_bin, "python")):
            return JobEnvironment(own_bin, prefix if os.path.exists(os.path.join(prefix, "pyvenv.cfg")) else "")
        if os.path.isdir(prefix) and os.path.exists(runtime.interpreter):
            return JobEnvironment(self._named_python(runtime.interpreter), "")
        raise PreparationFailed(
            FailureKind.ENVIRONMENT,
            f"the submitter's environment {prefix} is not on this machine (any more): submit again, or add a uv.lock, "
            "pyproject.toml or requirements.txt to the workspace",
        )

    async def _workers_own(self, launch: Launch) -> JobEnvironment:
        """Return the worker's environment, for clients of earlier releases, which name no source of packages."""
        if not launch.pip_packages:
            return JobEnvironment(self._own.bin_dirs[0], self._own.virtual_env)
        own = own_interpreter()
        return _at(await self._environments.plain(launch.pip_packages, own, over=own))

    def _named_python(self, program: str) -> str:
        """Return a directory in which `program`, an installation's python3, is named `python`."""
        directory = self._paths.envs / f"python-{hashlib.sha256(program.encode()).hexdigest()[:32]}"
        if not directory.exists():
            temporary = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}")
            temporary.mkdir()
            (temporary / "python").symlink_to(program)
            try:
                temporary.rename(directory)
            except OSError:  # another attempt made it meanwhile
                (temporary / "python").unlink()
                temporary.rmdir()
        return str(directory)


def _at(path: Path) -> JobEnvironment:
    return JobEnvironment(str(path / "bin"), str(path))
