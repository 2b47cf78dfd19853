"""Creates the specs of attempts that run in containers."""

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from iris.domain.resources import Resources
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.tokens import write_private
from iris.worker.containers.engine import Bind, Container, Engine, container_name
from iris.worker.paths import ENV_FILE, OWN_ERRORS, WorkPaths, safe_name
from iris.worker.prepare.task_env import (
    DEFAULT_PATH,
    PreparedEnvironment,
    callable_sources,
    command_line,
    worker_environment,
)
from iris.worker.processes import ProcessSpec, StartFailed
from iris.worker.reports.exit_cause import TAIL_BYTES
from iris.worker.users.identity import TaskIdentity

_OF_THE_HOST: Final = frozenset({"USER", "LOGNAME", "IRIS_LOG_FILE"})
_QUOTES_OTHERS: Final = "IRIS_RUN_COMMAND"
_LONGEST_VARIABLE: Final = 65_000  # podman refuses lines of 64 KiB
_CACHES: Final = ("UV_CACHE_DIR", "PIP_CACHE_DIR")
_SYSTEM: Final = ("/usr", "/bin", "/usr/local")
# Of processes, runc refuses more than 32,768 on some hosts.
_ULIMITS: Final = (("nofile", resource.RLIMIT_NOFILE, 1 << 20), ("nproc", resource.RLIMIT_NPROC, 20_000))
_GPU_DEVICES: Final = "nvidia.com/gpu=all"


class ContainerSpecs:
    """Creates the specs of attempts in containers.

    Args:
        engine: The engine.
        paths: The files of the attempts.
        base: The variables of the engine's program.
        log_limit_bytes: Maximum size of an attempt's log on this disk; 0 for the default.
        identity: The identity of the attempts; None for root in the container.
    """

    def __init__(
        self,
        engine: Engine,
        paths: WorkPaths,
        base: Mapping[str, str],
        log_limit_bytes: int,
        identity: TaskIdentity | None,
    ) -> None:
        self._engine = engine
        self._paths = paths
        self._base = dict(base)
        self._log_limit = log_limit_bytes
        self._own_environment = worker_environment().virtual_env
        self._uid = 0 if identity is None else identity.uid

    def make(
        self,
        attempt: Attempt,
        prepared: PreparedEnvironment,
        env: Mapping[str, str],
        cwd: str,
        bundle: tuple[str, str] | None,
        writable: tuple[str, ...],
        devices: tuple[str, ...] = (),
    ) -> ProcessSpec:
        """Return the spec of an attempt.

        Args:
            attempt: The attempt.
            prepared: Its environment.
            env: All its variables on this host.
            cwd: Its working directory.
            bundle: The path of its workspace, and of its own copy if it has one; None for no workspace.
            writable: Its own directories.
            devices: Its accelerators; empty for all of the host, if it requests any.

        Raises:
            StartFailed: A variable cannot be passed to a container.
            OSError: The worker's disk is full or unusable.
        """
        launch, name = attempt.request.launch, attempt.attempt_id
        # Without packages of its own, a command finds the programs of the image.
        uses_host = bool(launch.payload_digest or launch.pip_packages or launch.extras) or (
            prepared.virtual_env != self._own_environment
        )
        env_file = env_file_of(self._paths, name)
        write_private(env_file, _env_text(self._inside(env, launch.env_vars, prepared, uses_host)), 0)
        binds = [Bind(path, is_writable=True) for path in writable]
        binds += [Bind(env["IRIS_TOKEN_FILE"]), Bind(str(self._paths.errors), self._errors(name), is_writable=True)]
        if bundle is not None:
            path, copy = bundle
            binds.append(Bind(path, copy, is_writable=True) if copy else Bind(path, is_layered=True))
        if uses_host:
            binds += [Bind(path) for path in _host_paths(prepared, bool(launch.payload_digest))]
            binds += [Bind(path, is_writable=True) for path in map(env.get, _CACHES) if path and os.path.isdir(path)]
        container = Container(
            name=container_name(self._paths.root, name),
            image=launch.runtime.image,
            cwd=cwd,
            env_file=env_file,
            binds=_without_inner(binds),
            devices=_devices(launch.resources, devices),
            uid=self._uid,
            limits=launch.limits,
        )
        argv = command_line(launch, prepared)
        marks = {key: env[key] for key in ("IRIS_ATTEMPT_ID", "IRIS_WORK_DIR") if key in env}
        return ProcessSpec(
            owner=name,
            argv=self._engine.run(container, str(self._paths.root), list(_ulimits()), argv),
            env={**self._base, **marks},
            cwd=str(self._paths.root),
            log=attempt.log_path,
            log_limit=self._log_limit,
            tail_bytes=TAIL_BYTES,
            fence_ms=launch.fence_after_ms if launch.exclusive else 0,
            note=attempt.note(),
            limits=launch.limits,
            is_contained=True,
        )

    def _inside(
        self, env: Mapping[str, str], of_job: Mapping[str, str], prepared: PreparedEnvironment, uses_host: bool
    ) -> dict[str, str]:
        """Return the variables in the container: the image, or the job, sets those that name the host's directories."""
        found = {
            name: value
            for name, value in env.items()
            if name in of_job
            or not (
                name in _OF_THE_HOST or (name not in _CACHES and value[:1] == "/" and self._base.get(name) == value)
            )
        }
        if uses_host:
            found["PATH"] = os.pathsep.join((*prepared.bin_dirs, of_job.get("PATH", DEFAULT_PATH)))
            return found
        of_host = {"VIRTUAL_ENV", "PYTHONPATH", "PATH"}
        return {name: of_job.get(name, value) for name, value in found.items() if name in of_job or name not in of_host}

    def _errors(self, name: str) -> str:
        directory = self._paths.error(name) + OWN_ERRORS
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        if self._uid:
            os.chown(directory, self._uid, self._uid)
        return directory


def env_file_of(paths: WorkPaths, attempt_id: str) -> str:
    """Return the file with the variables of an attempt's container."""
    return paths.token(attempt_id) + ENV_FILE


def take_out(paths: WorkPaths, attempt_id: str) -> None:
    """Move the files that an attempt wrote for its worker out of the directory that its container had."""
    own = paths.error(attempt_id) + OWN_ERRORS
    with suppress(OSError):
        for name in (safe_name(attempt_id), safe_name(attempt_id) + ".value"):
            with suppress(FileNotFoundError):
                os.rename(f"{own}/{name}", f"{paths.errors}/{name}")


def _env_text(env: Mapping[str, str]) -> bytes:
    for name, value in sorted(env.items(), key=lambda item: item[0] == _QUOTES_OTHERS):
        if "\n" in value or value.endswith("\r"):
            raise StartFailed(f"the variable {name} has a line break, which a container's variable cannot have")
        if len(name) + len(value.encode()) > _LONGEST_VARIABLE:
            raise StartFailed(f"the variable {name} is longer than {_LONGEST_VARIABLE:,} bytes, a container's limit")
    return "".join(f"{name}={value}\n" for name, value in env.items()).encode()


def _host_paths(prepared: PreparedEnvironment, is_callable: bool) -> Iterator[str]:
    """Yield the directories and files of a job's prepared environment."""
    yield from prepared.bin_dirs
    yield from prepared.python_path
    if prepared.virtual_env:
        yield prepared.virtual_env
        with suppress(OSError):
            for line in Path(prepared.virtual_env, "pyvenv.cfg").read_text().splitlines():
                name, _, value = line.partition("=")
                base = os.path.dirname(os.path.realpath(value.strip()))
                if name.strip() == "home" and base not in _SYSTEM:
                    yield base
        if prepared.virtual_env == sys.prefix:
            yield from filter(os.path.isdir, sys.path)
    if is_callable:
        yield prepared.payload_path
        yield from callable_sources()


def _without_inner(binds: list[Bind]) -> tuple[Bind, ...]:
    """Leave out what an earlier read-only bind already shows, and repeated paths."""
    kept: dict[str, Bind] = {}
    for bind in binds:
        outer = [path for path in kept if bind.path == path or bind.path.startswith(f"{path}/")]
        if bind.path and not (outer and (bind.path in kept or (not bind.is_writable and not bind.source))):
            kept[bind.path] = bind
    return tuple(sorted(kept.values(), key=lambda bind: bind.path.count("/")))


def _devices(resources: Resources, allotted: tuple[str, ...]) -> tuple[str, ...]:
    device = resources.accelerator
    if device is None:
        return ()
    if allotted:
        return (*allotted, "/dev/vfio/vfio") if allotted[0].startswith("/dev/vfio/") else allotted
    if device.kind == "gpu":
        return (_GPU_DEVICES,)
    found = [f"/dev/{name}" for name in sorted(os.listdir("/dev")) if name.startswith("accel")]
    return (*found, "/dev/vfio") if os.path.exists("/dev/vfio") else tuple(found)


def _ulimits() -> Iterator[str]:
    # Named, because the engines' own defaults may be above what this host allows.
    for name, number, most in _ULIMITS:
        found = (most if value == resource.RLIM_INFINITY else min(value, most) for value in resource.getrlimit(number))
        yield "{}={}:{}".format(name, *found)
