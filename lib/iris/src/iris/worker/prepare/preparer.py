"""Fetches and builds the requirements of a command: bundle, environment, payload."""

import asyncio
import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from iris.domain.states import FailureKind
from iris.domain.usage import Usage
from iris.worker.host.removal import remove_tree
from iris.worker.isolation.plan import IsolationMode, Mount
from iris.worker.isolation.seals import Seals
from iris.worker.paths import WorkPaths
from iris.worker.prepare.bundle import BlobSource, BundleStore
from iris.worker.prepare.compiled import CompiledTrees
from iris.worker.prepare.environment import EnvironmentStore
from iris.worker.prepare.job_environment import JobEnvironments, JobSources
from iris.worker.prepare.single_flight import SingleFlight
from iris.worker.prepare.task_env import PreparedEnvironment
from iris.worker.prepare.workspace import Workspace, read_workspace, write_site
from iris.worker.processes import Exit, ProcessSpec, Runtime, StartFailed
from iris.worker.types import Launch, PreparationFailed
from iris.worker.users.identity import TaskIdentity

_TOOL_OUTPUT_BYTES: Final = 64 * 1024
_NUMBERS: Final = itertools.count(1)
"""Numbers that give each tool process a unique name in the guardian."""


class Preparer(Protocol):
    """Creates the environments in which attempts start."""

    def ready(self, launch: Launch) -> PreparedEnvironment | None:
        """Return the environment if it already exists, otherwise None: call `prepare`."""
        ...

    async def prepare(self, launch: Launch) -> PreparedEnvironment:
        """Fetch and build the environment's missing parts. Raises PreparationFailed."""
        ...

    def compiled(self, tree: Path, python: str) -> str:
        """Return the directory with `python`'s compiled files for a bundle or environment; empty if it does not exist
        (yet).
        """
        ...

    async def close(self) -> None:
        """Cancel all fetches and builds."""
        ...


@dataclass(frozen=True, slots=True)
class _Prepared:
    environment: PreparedEnvironment
    needed: tuple[str, ...]
    """Files and directories that the prepared environment needs."""


class BundlePreparer:
    """The production implementation: fetches bundles from the controller and builds environments with uv.

    Args:
        paths: The worker's directories.
        bundles: Fetches and stores bundles.
        store: Creates and stores environments.
        compiled: Compiles the files of bundles; None to compile nothing.
        seals: Makes shared directories read-only; None to keep them writable.
    """

    def __init__(
        self,
        paths: WorkPaths,
        bundles: BundleStore,
        store: EnvironmentStore,
        compiled: CompiledTrees | None,
        seals: Seals | None = None,
    ) -> None:
        self._paths = paths
        self._bundles = bundles
        self._store = store
        self._compiled = compiled
        self._seals = seals
        self._environments = JobEnvironments(paths, store)
        self._workspaces: dict[str, Workspace | None] = {}
        self._reading: SingleFlight[Workspace | None] = SingleFlight()
        self._prepared: dict[tuple[object, ...], _Prepared] = {}

    @classmethod
    def over(
        cls,
        paths: WorkPaths,
        source: BlobSource,
        runtime: Runtime,
        base: Mapping[str, str],
        identity: TaskIdentity | None = None,
    ) -> "BundlePreparer":
        """Create a preparer with caches in `paths`.

        Args:
            paths: The worker's files.
            source: The controller's blobs.
            runtime: Runs uv and other tools.
            base: Variables of the tools.
            identity: The identity of tasks and tools; None for the worker's.
        """
        seals = Seals() if runtime.isolation is IsolationMode.COPY else None
        tools = RuntimeTools(runtime)
        if identity is not None:
            # What builds an environment runs code of the job's: it writes there, and into nothing that root reads.
            kept = () if runtime.isolation is IsolationMode.COPY else (paths.blobs, paths.bundles, paths.sites)
            tools = RuntimeTools(runtime, identity, tuple(map(str, kept)))
        has_layers = runtime.isolation is IsolationMode.OVERLAY
        # What an identity compiles it could replace by a link to what it must not see, and have that mounted.
        compiled = CompiledTrees(paths, tools, base) if identity is None else None
        compiles = not has_layers or compiled is None
        store = EnvironmentStore(paths, tools, base, seals, compiles=compiles, owner=paths.uid)
        bundles = BundleStore(paths, source, seals=seals, owner=paths.uid if has_layers else 0)
        return cls(paths, bundles, store, compiled, seals)

    def ready(self, launch: Launch) -> PreparedEnvironment | None:
        if self._seals is not None:
            return None  # it may have been changed since
        known = self._prepared.get(_what_it_needs(launch))
        if known is None or not all(map(os.path.exists, known.needed)):
            return None
        if launch.bundle_digest and not self._bundles.was_just_seen(launch.bundle_digest):
            return None
        if launch.payload_digest and not self._bundles.is_sound(launch.payload_digest):
            return None
        return known.environment

    async def prepare(self, launch: Launch) -> PreparedEnvironment:
        sources = await self._sources(launch) if launch.bundle_digest else JobSources()
        payload = str(await self._bundles.blob(launch.payload_digest)) if launch.payload_digest else ""
        environment = await self._environments.find(launch, sources)
        bin_dirs: tuple[str, ...] = (environment.bin_dir,)
        python_path: list[str] = []
        if sources.workspace is not None:
            site = self._site(launch)
            bin_dirs = (*bin_dirs, str(site / "bin"))
            python_path = [*sources.workspace.python_path(), str(site)]
        elif sources.project is not None:
            python_path = [str(sources.project)]
        prepared = PreparedEnvironment(
            bin_dirs=bin_dirs,
            python_path=tuple(python_path),
            bundle_dir=sources.project,
            virtual_env=environment.virtual_env,
            payload_path=payload,
        )
        needed = [str(sources.project)] if sources.project else []
        needed += [path for path in (environment.bin_dir, payload) if path]
        self._prepared[_what_it_needs(launch)] = _Prepared(prepared, tuple(needed))
        return prepared

    def compiled(self, tree: Path, python: str) -> str:
        return self._compiled.over(tree, python) if self._compiled is not None else ""

    async def close(self) -> None:
        if self._compiled is not None:
            await self._compiled.close()
        await self._bundles.close()
        await self._reading.close()
        await self._store.close()

    async def _sources(self, launch: Launch) -> JobSources:
        bundle = await self._bundles.bundle(launch.bundle_digest)
        project = bundle / launch.runtime.project_dir
        if not project.is_dir():
            reason = f"the job's bundle has no directory {launch.runtime.project_dir!r}"
            raise PreparationFailed(FailureKind.ENVIRONMENT, reason)
        site = self._site(launch)
        if site.name not in self._workspaces:
            self._workspaces[site.name] = await self._reading.run(
                site.name, lambda: asyncio.to_thread(_read, project, site)
            )
        workspace = self._workspaces[site.name]
        if self._seals is not None and workspace is not None:
            await asyncio.to_thread(_mend_site, workspace, site, self._seals)
        return JobSources(bundle, project, self._workspaces[site.name])

    def _site(self, launch: Launch) -> Path:
        place = launch.runtime.project_dir
        name = f"{launch.bundle_digest}-{hashlib.sha256(place.encode()).hexdigest()[:16]}" if place else ""
        return self._paths.sites / (name or launch.bundle_digest)


class RuntimeTools:
    """Runs tools of the worker (uv) like attempts; they are killed when the worker process exits.

    Args:
        identity: Their identity; None for the guardian's.
        read_only: Directories that are read-only for the tools.
    """

    def __init__(self, runtime: Runtime, identity: TaskIdentity | None = None, read_only: tuple[str, ...] = ()) -> None:
        self._mounts = tuple(Mount(path, path) for path in read_only)
        self._runtime = runtime
        self._identity = identity

    async def run(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> tuple[bool, str]:
        listener = _Collector()
        owner = f"tool {os.getpid()}.{next(_NUMBERS)}"
        spec = ProcessSpec(
            owner,
            tuple(argv),
            env,
            str(cwd),
            tail_bytes=_TOOL_OUTPUT_BYTES,
            dies_with_worker=True,
            run_as=self._identity,
            mounts=self._mounts,
        )
        process = self._runtime.start(spec, listener)
        try:
            exit = await listener.ended
        except asyncio.CancelledError:
            process.terminate(0)
            raise
        return exit.succeeded, exit.tail.decode(errors="replace")


class _Collector:
    def __init__(self) -> None:
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def on_started(self, pid: int) -> None: ...

    def on_log(self, size: int) -> None: ...

    def on_usage(self, usage: Usage) -> None: ...

    def on_refused(self, error: StartFailed) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def on_exit(self, exit: Exit) -> None:
        if not self.ended.done():
            self.ended.set_result(exit)


def _what_it_needs(launch: Launch) -> tuple[object, ...]:
    # Of the runtime all but the directory, which each job enters for itself.
    runtime = launch.runtime
    where = (runtime.project_dir, runtime.python, runtime.packages, runtime.environment_path, runtime.interpreter)
    return launch.bundle_digest, launch.payload_digest, launch.extras, launch.pip_packages, where


def _mend_site(workspace: Workspace, site: Path, seals: Seals) -> None:
    """Rewrite the workspace's metadata if a task may have changed it."""
    if not seals.is_intact(site):
        remove_tree(str(site))
        write_site(workspace, site)
        seals.seal(site)


def _read(bundle: Path, site: Path) -> Workspace | None:
    workspace = read_workspace(bundle)
    if workspace is not None and not site.exists():
        write_site(workspace, site)
    return workspace
