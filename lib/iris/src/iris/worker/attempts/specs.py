"""Creates the specs of attempts that the guardian runs."""

import logging
import os
from collections.abc import Callable
from typing import Final

from iris.domain.ids import user_of
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.contained import ContainerSpecs
from iris.worker.attempts.directories import AttemptDirectories
from iris.worker.attempts.ports import PortChooser
from iris.worker.attempts.tokens import TokenFiles
from iris.worker.containers.engine import Engine
from iris.worker.devices.allotment import Allotment
from iris.worker.devices.gang import gang_variables, interface_of
from iris.worker.host.oom import machine_kills
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import PreparedEnvironment, TaskEnvironment, command_line, worker_environment
from iris.worker.processes import CommonSpec, ProcessSpec, StartFailed
from iris.worker.reports.exit_cause import TAIL_BYTES
from iris.worker.types import Launch
from iris.worker.users.identity import TaskIdentity

logger = logging.getLogger(__name__)

_MOST_COMMONS: Final = 64
PROGRESS_VARIABLE: Final = "IRIS_PROGRESS_FILE"
PROGRESS_NAME: Final = ".iris-progress"


class SpecMaker:
    """Creates the specs of attempts: directory, ports, accelerators and variables.

    Args:
        controller_address: Returns the controller's current address for tasks; called for every attempt.
        log_limit_bytes: Maximum size of an attempt's log on this disk; 0 for the default.
        ports: Finds ports for tasks.
        allotment: Allots accelerators.
        identity: The identity of the attempts; None for the worker's.
        engine: Runs the attempts with an image; None for none.
    """

    def __init__(
        self,
        paths: WorkPaths,
        directories: AttemptDirectories,
        task_environment: TaskEnvironment,
        tokens: TokenFiles,
        controller_address: Callable[[], str],
        log_limit_bytes: int,
        ports: PortChooser,
        allotment: Allotment,
        identity: TaskIdentity | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._contained = (
            None if engine is None else ContainerSpecs(engine, paths, task_environment.base, log_limit_bytes, identity)
        )
        self._identity = identity
        self._ports = ports
        self._allotment = allotment
        self._paths = paths
        self._directories = directories
        self._task_environment = task_environment
        self._tokens = tokens
        self._controller_address = controller_address
        self._log_limit = log_limit_bytes
        self._own = worker_environment()
        self._commons: dict[tuple[object, ...], CommonSpec] = {}
        self._last: tuple[Launch, PreparedEnvironment, str, CommonSpec] | None = None

    def make(self, attempt: Attempt) -> ProcessSpec:
        """Return the spec of an attempt. Also repairs directories that a task damaged outside its own (`rm -rf ../..`,
        `chmod 000 ..`).

        Raises:
            StartFailed: The command cannot be started.
            PortsInUse: Other attempts use the ports.
            ChipsHeld: The accelerators are in use.
            OSError: The worker's disk is full or unusable.
        """
        try:
            return self._make(attempt)
        except (FileNotFoundError, PermissionError) as error:
            logger.warning(
                "%s: a directory of this worker is missing; creating all again: %s", attempt.attempt_id, error
            )
            self._paths.make()
            self._directories.remove(attempt.attempt_id)
            return self._make(attempt)

    def release(self, attempt: Attempt) -> None:
        """Release the ports and accelerators of an attempt."""
        self._ports.release(attempt.attempt_id)
        self._allotment.release(attempt.attempt_id)

    def adopt(self, attempt: Attempt) -> None:
        """Record the accelerators of an attempt that an earlier worker process started."""
        self._allotment.restore(attempt.attempt_id, attempt.chips)

    @property
    def patience_s(self) -> float:
        """How long an attempt waits for accelerators in use, in seconds."""
        return self._allotment.patience_s

    def _make(self, attempt: Attempt) -> ProcessSpec:
        prepared = attempt.prepared or self._own
        request, launch = attempt.request, attempt.request.launch
        attempt.ports = self._ports.free_ports(launch.ports, request.attempt_id)
        attempt.chips = self._allotment.take(request.attempt_id, launch.resources.accelerator)
        name = attempt.attempt_id
        cwd = self._directories.make(name, prepared, launch.runtime.working_dir)
        attempt.slot = self._directories.slot(name)
        attempt.places = self._directories.places(name)
        temporary = self._directories.temporary(name)
        if launch.runtime.image:
            return self._make_contained(attempt, prepared, cwd)
        env = self._task_environment.own(request, self._tokens.path(request), attempt.ports, temporary)
        env |= self._allotment.variables(attempt.chips) | gang_variables(request, interface_of)
        if launch.watch.stall_s:
            attempt.progress = env[PROGRESS_VARIABLE] = os.path.join(temporary, PROGRESS_NAME)
        return ProcessSpec(
            owner=name,
            argv=(),
            env=env,
            cwd=cwd,
            log=attempt.log_path,
            note=attempt.note(),
            mounts=self._directories.mounts(name, prepared),
            common=self._common(launch, prepared, attempt.is_member),
        )

    def _make_contained(self, attempt: Attempt, prepared: PreparedEnvironment, cwd: str) -> ProcessSpec:
        if self._contained is None:
            raise StartFailed(f"image {attempt.request.launch.runtime.image}: this worker runs no containers")
        request, name = attempt.request, attempt.attempt_id
        attempt.kills_before = machine_kills() or 0
        temporary = self._directories.temporary(name)
        address, token = self._controller_address(), self._tokens.path(request)
        env = self._task_environment.variables(request, prepared, address, token, attempt.ports, temporary)
        env |= self._allotment.variables(attempt.chips) | gang_variables(request, interface_of)
        env["TMPDIR"] = request.launch.env_vars.get("TMPDIR", "/tmp")
        if request.launch.watch.stall_s:
            attempt.progress = env[PROGRESS_VARIABLE] = os.path.join(temporary, PROGRESS_NAME)
        bundle = self._directories.bundle_place(name, prepared)
        devices = self._allotment.devices(attempt.chips)
        return self._contained.make(
            attempt, prepared, env, cwd, bundle, tuple({attempt.slot: None, temporary: None}), devices
        )

    def _common(self, launch: Launch, prepared: PreparedEnvironment, is_member: bool) -> CommonSpec:
        """Return one shared object for all attempts with equal common parts, even of different jobs."""
        address = self._controller_address()
        last = self._last
        if last is not None and last[0] is launch and last[1] is prepared and last[2] == address:
            return last[3]
        # Whoever is watched is known by the variables it was started with, which a fork of a warm interpreter lacks.
        # And a warm interpreter is the worker's user.
        is_warm = launch.payload_digest and not launch.watch.is_on and self._identity is None
        sharer = user_of(launch.job_id) if is_warm else ""
        fence_ms = launch.fence_after_ms if launch.exclusive else 0
        tail_bytes = TAIL_BYTES if launch.has_accelerator or is_member else 0
        limits = launch.limits
        key = (
            *(prepared, address, sharer, fence_ms, tail_bytes, launch.argv, frozenset(launch.env_vars.items())),
            *(launch.bundle_digest, launch.payload_digest, launch.extras, launch.pip_packages, launch.runtime, limits),
        )
        common = self._commons.get(key)
        if common is None:
            if len(self._commons) >= _MOST_COMMONS:
                self._commons.clear()
            env = self._task_environment.common(launch, prepared, address)
            argv = command_line(launch, prepared)
            common = self._commons[key] = CommonSpec(
                argv, env, sharer, self._log_limit, tail_bytes, fence_ms, limits=limits, run_as=self._identity
            )
        self._last = (launch, prepared, address, common)
        return common
