"""Everything that must be in place before a command can start: bundle, environment, payload."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from iris.domain.states import FailureKind
from iris.worker.bundle import BundleStore, SingleFlight
from iris.worker.environment import EnvironmentStore
from iris.worker.paths import WorkPaths
from iris.worker.runtime.running import Exit, ProcessSpec, Runtime, StartFailed
from iris.worker.task_env import Ground, own_ground
from iris.worker.types import Launch, PreparationFailed
from iris.worker.workspace import Workspace, read_workspace, write_site

_TOOL_OUTPUT_BYTES: Final = 64 * 1024


class Preparer(Protocol):
    """Makes the ground on which a job's attempts start."""

    def ready(self, launch: Launch) -> Ground | None:
        """The ground if it was prepared before and is still there; None: `prepare` must be called."""
        ...

    async def prepare(self, launch: Launch) -> Ground:
        """Fetch and build what is lacking. Raises PreparationFailed."""
        ...

    async def close(self) -> None:
        """Stop what is being fetched and built."""
        ...


@dataclass(frozen=True, slots=True)
class _Prepared:
    ground: Ground
    needed: tuple[str, ...]
    """Files and directories without which the ground is none any more."""


class BundlePreparer:
    """The real one: bundles from the controller, environments by uv."""

    def __init__(self, paths: WorkPaths, bundles: BundleStore, environments: EnvironmentStore) -> None:
        self._paths = paths
        self._bundles = bundles
        self._environments = environments
        self._own = own_ground()
        self._workspaces: dict[str, Workspace | None] = {}
        self._reading: SingleFlight[Workspace | None] = SingleFlight()
        self._grounds: dict[tuple[object, ...], _Prepared] = {}
        self._keys: dict[tuple[str, tuple[str, ...], tuple[str, ...]], str] = {}

    def ready(self, launch: Launch) -> Ground | None:
        prepared = self._grounds.get(_what_it_needs(launch))
        if prepared is None or not all(map(os.path.exists, prepared.needed)):
            return None
        if launch.payload_digest and not self._bundles.is_sound(launch.payload_digest):
            return None
        return prepared.ground

    async def prepare(self, launch: Launch) -> Ground:
        bundle = await self._bundles.bundle(launch.bundle_digest) if launch.bundle_digest else None
        payload = str(await self._bundles.blob(launch.payload_digest)) if launch.payload_digest else ""
        workspace = await self._workspace(launch.bundle_digest, bundle) if bundle else None
        environment = await self._environment(launch, workspace)
        bin_dirs = self._own.bin_dirs if environment is None else (str(environment / "bin"),)
        python_path: list[str] = []
        if workspace is not None:
            site = self._paths.sites / launch.bundle_digest
            bin_dirs = (*bin_dirs, str(site / "bin"))
            python_path = [*workspace.python_path(), str(site)]
        elif bundle is not None:
            python_path = [str(bundle)]
        ground = Ground(
            bin_dirs=bin_dirs,
            python_path=tuple(python_path),
            bundle_dir=bundle,
            virtual_env=self._own.virtual_env if environment is None else str(environment),
            payload_path=payload,
        )
        needed = [str(path) for path in (bundle, environment, payload or None) if path is not None]
        self._grounds[_what_it_needs(launch)] = _Prepared(ground, tuple(needed))
        return ground

    async def close(self) -> None:
        await self._bundles.close()
        await self._reading.close()
        await self._environments.close()

    async def _workspace(self, digest: str, bundle: Path) -> Workspace | None:
        if digest not in self._workspaces:
            site = self._paths.sites / digest
            self._workspaces[digest] = await self._reading.run(digest, lambda: asyncio.to_thread(_read, bundle, site))
        return self._workspaces[digest]

    async def _environment(self, launch: Launch, workspace: Workspace | None) -> Path | None:
        """None: the worker's own environment will do."""
        if workspace is None or not workspace.has_lock:
            if launch.extras:
                raise PreparationFailed(
                    FailureKind.ENVIRONMENT,
                    f"extras {', '.join(launch.extras)} were asked for, but the job's workspace has no "
                    "pyproject.toml with a uv.lock that could define them",
                )
            return await self._environments.overlay(launch.pip_packages) if launch.pip_packages else None
        asked = (launch.bundle_digest, launch.extras, launch.pip_packages)
        if asked not in self._keys:
            self._keys[asked] = await asyncio.to_thread(
                self._environments.locked_key, workspace, launch.extras, launch.pip_packages
            )
        return await self._environments.locked(self._keys[asked], workspace, launch.extras, launch.pip_packages)


class RuntimeTools:
    """Runs tools of the worker (uv) through the same runtime as attempts; they die with the worker's process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._count = 0

    async def run(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> tuple[bool, str]:
        self._count += 1
        listener = _Collector()
        owner = f"tool {os.getpid()}.{self._count}"
        spec = ProcessSpec(owner, tuple(argv), env, str(cwd), tail_bytes=_TOOL_OUTPUT_BYTES, dies_with_worker=True)
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

    def on_refused(self, error: StartFailed) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def on_exit(self, exit: Exit) -> None:
        if not self.ended.done():
            self.ended.set_result(exit)


def _what_it_needs(launch: Launch) -> tuple[object, ...]:
    return launch.bundle_digest, launch.payload_digest, launch.extras, launch.pip_packages


def _read(bundle: Path, site: Path) -> Workspace | None:
    workspace = read_workspace(bundle)
    if workspace is not None and not site.exists():
        write_site(workspace, site)
    return workspace
